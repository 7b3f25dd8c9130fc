package design

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Known is the calculator's parameters and where each comes from.
type Known struct {
	RolloutCost float64 // mu, 1e-3 to 1e5
	Correlation float64 // rho
	Profile     Profile
	NoiseScale  float64 // S, 0 if unknown
	Coherence   float64 // psi
	Batch       int     // of the run that Profile was measured in, 0 if none was
	Exponent    float64 // a of the profile, or of the power law nearest to a measured one; NaN if there is none
	Origins     Origins

	HowMeasured []string // sentences: what was measured, from how much, with which spread
	Noise       []Noise  // the measurements that Profile was fitted to, in units of that of fresh rollouts
	Warnings    []string // of the measurement
	Doubts      Doubts   // of the fit
}

// Origins are the sources of the parameters: Given, Measured, Assumed, or one of these with details.
type Origins struct {
	RolloutCost string `json:"rollout_cost"`
	Correlation string `json:"correlation"`
	Noise       string `json:"noise"`
	NoiseScale  string `json:"noise_scale"`
	Coherence   string `json:"coherence"`
}

// Sources of a parameter.
const (
	Given    = "given"
	Measured = "measured"
	Assumed  = "assumed"
)

// Assumptions returns the parameters to use when nothing is known: the rollout cost that [ER] measured of Qwen2.5-7B, a
// modest correlation, noise that grows slowly, and a coherence that orders the laboratory's runs. There is no noise
// scale to assume: it differs by orders of magnitude.
func Assumptions() Known {
	const exponent = 0.2
	return Known{
		RolloutCost: 5.28, Correlation: 0.1, Profile: PowerLaw{Exponent: exponent}, Exponent: exponent,
		Coherence: assumedCoherence,
		Origins: Origins{RolloutCost: Assumed + ": [ER] measured it of Qwen2.5-7B", Correlation: Assumed, Noise: Assumed,
			NoiseScale: "unknown", Coherence: Assumed},
	}
}

// GiveRolloutCost sets mu.
func (k *Known) GiveRolloutCost(mu float64) {
	k.RolloutCost, k.Origins.RolloutCost, k.Doubts.Cost = mu, Given, nil
}

// MeasureRolloutCost sets mu as it was measured somewhere.
func (k *Known) MeasureRolloutCost(mu float64, where string) {
	k.RolloutCost, k.Origins.RolloutCost, k.Doubts.Cost = mu, Measured+": "+where, nil
}

// GiveCorrelation sets rho.
func (k *Known) GiveCorrelation(rho float64) {
	k.Correlation, k.Origins.Correlation, k.Doubts.Correlation = rho, Given, nil
}

// GiveNoiseScale sets S.
func (k *Known) GiveNoiseScale(scale float64) {
	k.NoiseScale, k.Origins.NoiseScale, k.Doubts.Scale = scale, Given, nil
}

// GiveCoherence sets psi.
func (k *Known) GiveCoherence(psi float64) { k.Coherence, k.Origins.Coherence = psi, Given }

// MeasureCoherence sets psi, which was measured at the noise scale S.
func (k *Known) MeasureCoherence(psi float64) { k.Coherence, k.Origins.Coherence = psi, Measured }

// GiveProfile sets the growth of noise, from a file if one is named.
func (k *Known) GiveProfile(p Profile, file string) {
	k.Profile, k.Exponent, k.Origins.Noise = p, math.NaN(), Given
	if file != "" {
		k.Origins.Noise = Given + " by " + file
	}
	if law, ok := p.(PowerLaw); ok {
		k.Exponent = law.Exponent
	}
	k.Noise, k.Doubts.Noise = nil, nil
}

// Theory returns the parameters as a theory.
func (k Known) Theory() Theory {
	return Theory{TrainCost: 1 / k.RolloutCost, Correlation: k.Correlation, Profile: k.Profile, NoiseScale: k.NoiseScale,
		Coherence: k.Coherence, Batch: k.Batch}
}

// Validate reports every parameter out of its range.
func (k Known) Validate() error {
	var problems option.Problems
	problems.Check(k.RolloutCost >= 1e-3 && k.RolloutCost <= 1e5, "rollout_cost", k.RolloutCost, "0.001 to 100000 "+
		"units of training, such as 5.28")
	t := k.Theory()
	t.TrainCost = 1
	problems.Add(t.Validate())
	return problems.Err()
}

// Recommendation is the configuration to run on a fleet, and everything that led to it.
type Recommendation struct {
	Known
	Theory Theory
	Fleet  Fleet

	Run        *Priced  // the fleet's source, nil if there is none
	Ways       []Priced // the cheapest use of each way by [Theory.Cost], cheapest first; none without a noise scale
	Best       *Priced  // the first of them or, if that is hardly cheaper, Run; nil if nothing has a cost
	Keep       bool     // Best is Run
	Unreliable []string // why Best is no recommendation, and what to do; none if it is one

	Optimum Optimum // of [ER]'s theory
	Plan    Plan    // the buffer that [ER]'s theory puts first
	NoPlan  error   // why the fleet can run no buffer; nil if Plan is one
	Bound   *Bound  // nil without conditions and without a plan

	Changes []Change // of settings, which make Command of the source's configuration
	Command string   // runs Best; empty without a recommendation
	Refused error    // why that command would fail, nil if it would not
}

// Change is a setting that a recommendation changes.
type Change struct {
	Assignment string `json:"assignment"` // KEY=VALUE
	Why        string `json:"why"`        // empty for what the recommendation is about
}

// Recommend works out how to use the rollouts of a fleet, the buffer that [ER]'s theory puts first, and the bound of
// theorem 3.4 on that buffer unless conditions is nil. If the fleet can run no buffer, the recommendation holds the
// optimum of [ER]'s theory and NoPlan.
func Recommend(k Known, f Fleet, conditions *Conditions) (*Recommendation, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	r := &Recommendation{Known: k, Theory: k.Theory(), Fleet: f}
	r.Optimum = r.Theory.Optimum()
	if err := f.Validate(); err != nil {
		return nil, err
	}
	r.choice()
	var err error
	if r.Plan, err = r.Theory.Configure(f); err != nil {
		r.NoPlan = fmt.Errorf("no configuration for %s: %w", f, err)
		return r, nil
	}
	if conditions != nil {
		b, err := r.Theory.Bound(*conditions, r.Plan.Configuration)
		if err != nil {
			return nil, option.Under("bound", err)
		}
		r.Bound = &b
	}
	return r, nil
}

// once returns the cost of on-policy training that uses each rollout once, and the share of it that a cost of j saves.
// Both are the most they can be if atMost: a power law that grows gives no sigma2(0).
func (r *Recommendation) once(j float64) (objective, savings float64, atMost bool) {
	objective, exact := r.Theory.OnPolicyOnce()
	return objective, 1 - j/objective, !exact
}

// Document is a recommendation as JSON. A number that does not exist is null; one that is null because it is infinite
// is named in Infinite.
type Document struct {
	Reliable    bool     `json:"reliable"`    // there is a recommendation
	Reasons     []string `json:"reasons"`     // why there is none, and what to do
	Recommended *Priced  `json:"recommended"` // null if not reliable
	Keep        bool     `json:"keep"`        // it is the run itself: nothing is cheaper by a tenth
	Run         *Priced  `json:"run"`         // the run that was measured, null if none was
	Ways        []Priced `json:"ways"`        // the cheapest use of each way, cheapest first
	Changes     []Change `json:"changes"`     // of the run's settings

	NoiseScale    *float64  `json:"noise_scale"`    // S, rollouts; null if unknown
	Coherence     float64   `json:"coherence"`      // kappa
	RolloutCost   float64   `json:"rollout_cost"`   // mu
	TrainCost     float64   `json:"train_cost"`     // m = 1/mu
	Correlation   float64   `json:"correlation"`    // rho
	NoiseExponent *float64  `json:"noise_exponent"` // a, of the nearest power law if measured; null for a given profile
	NoiseProfile  []float64 `json:"noise_profile"`  // variances at staleness 0, 1, 2, …; null for a power law
	Origins       Origins   `json:"origins"`

	StalenessHorizon *float64 `json:"staleness_horizon"` // x*
	ReplayRatio      *float64 `json:"replay_ratio"`      // y*
	Infinite         []string `json:"infinite"`          // keys of the two that are infinite
	Where            Where    `json:"where"`
	Objective        float64  `json:"objective"` // J(x*, y*)
	OnPolicy         float64  `json:"on_policy_objective"`
	Savings          float64  `json:"expected_savings"` // 1 - J/J(1, 1)
	Once             struct {
		Objective float64 `json:"objective"`        // sigma2(0)(1 + m)
		Savings   float64 `json:"expected_savings"` // of the optimum
		AtMost    bool    `json:"at_most"`          // both are the most they can be, for a law that grows
	} `json:"each_used_once"` // compared with on-policy training that uses each rollout once
	AsymptoticBound float64 `json:"asymptotic_bound"` // of the mean squared gradient, in units of sqrt(F0 L/C)

	// the buffer that [ER]'s theory puts first, null if the fleet can run none
	Configuration *planDocument       `json:"er_configuration"`
	Neighbours    []neighbourDocument `json:"neighbours"`
	WhatIf        struct {
		Splits     []Split      `json:"splits"`
		Capacities []int        `json:"capacities"`
		Objective  [][]*float64 `json:"objective"` // by split, then by capacity
		Savings    [][]*float64 `json:"expected_savings"`
	} `json:"what_if"`
	Bound *Bound `json:"bound,omitempty"` // on the configuration

	Why      []string `json:"why"`
	Measured []string `json:"measured"`
	Warnings []string `json:"warnings"`
	Command  string   `json:"command"`
}

type planDocument struct {
	Configuration
	Group        int     `json:"group"`
	MostCapacity int     `json:"most_capacity"`
	AtLimit      bool    `json:"at_limit"`
	SavingsOnce  float64 `json:"expected_savings_each_used_once"`
}

type neighbourDocument struct {
	Change    string   `json:"change"`
	Workers   int      `json:"workers"`
	Trainers  int      `json:"trainers"`
	Capacity  int      `json:"capacity"`
	Batch     int      `json:"batch"`
	Objective *float64 `json:"objective"`
	Savings   *float64 `json:"expected_savings"`
	Refused   string   `json:"refused,omitempty"`
}

// Document returns the recommendation as JSON.
func (r *Recommendation) Document() Document {
	o, p := r.Optimum, r.Plan
	d := Document{
		Reliable: len(r.Unreliable) == 0, Reasons: append([]string{}, r.Unreliable...), Keep: r.Keep,
		Run: r.Run, Ways: append([]Priced{}, r.Ways...), Changes: append([]Change{}, r.Changes...),
		Coherence:   r.Coherence,
		RolloutCost: r.RolloutCost, TrainCost: r.Theory.TrainCost, Correlation: r.Correlation,
		NoiseExponent: finite(r.Exponent), Origins: r.Origins,
		StalenessHorizon: finite(o.X), ReplayRatio: finite(o.Y), Infinite: []string{}, Where: o.Where,
		Objective: o.Objective, OnPolicy: r.Theory.OnPolicy(), Savings: o.Savings,
		AsymptoticBound: asymptotic(o.Objective),
		Neighbours:      []neighbourDocument{}, Bound: r.Bound,
		Why: r.Why(), Measured: append([]string{}, r.HowMeasured...), Warnings: r.Caveats(), Command: r.Command,
	}
	if d.Reliable {
		d.Recommended = r.Best
	}
	if r.NoiseScale > 0 {
		d.NoiseScale = &r.NoiseScale
	}
	if table, ok := r.Profile.(*Table); ok {
		d.NoiseProfile = table.Values()
	}
	if math.IsInf(o.X, 1) {
		d.Infinite = append(d.Infinite, "staleness_horizon")
	}
	if math.IsInf(o.Y, 1) {
		d.Infinite = append(d.Infinite, "replay_ratio")
	}
	d.Once.Objective, d.Once.Savings, d.Once.AtMost = r.once(o.Objective)
	if r.NoPlan == nil {
		_, once, _ := r.once(p.Objective)
		d.Configuration = &planDocument{p.Configuration, r.Fleet.Group, r.Fleet.MostCapacity, p.AtLimit, once}
	}
	for _, n := range p.Neighbours {
		d.Neighbours = append(d.Neighbours, neighbourDocument{n.Change, n.Workers, n.Trainers, n.Capacity, n.Batch,
			finite(n.Objective), finite(n.Savings), n.Refused})
	}
	d.WhatIf.Splits, d.WhatIf.Capacities = p.Grid.Splits, p.Grid.Capacities
	d.WhatIf.Objective, d.WhatIf.Savings = finiteGrid(p.Grid.Objective), finiteGrid(p.Grid.Savings)
	return d
}

// finite returns v for JSON, nil if JSON cannot express it.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func finiteGrid(grid [][]float64) [][]*float64 {
	rows := make([][]*float64, len(grid))
	for i, row := range grid {
		rows[i] = make([]*float64, len(row))
		for k, v := range row {
			rows[i][k] = finite(v)
		}
	}
	return rows
}
