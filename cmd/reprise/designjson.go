package main

import (
	"math"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
)

// designJSON is what reprise design --json prints. A number that does not exist is null; one that is null because it is infinite is
// named in Infinite.
type designJSON struct {
	RolloutCost   float64        `json:"rollout_cost"`   // mu
	TrainCost     float64        `json:"train_cost"`     // m = 1/mu
	Correlation   float64        `json:"correlation"`    // rho
	NoiseExponent results.Number `json:"noise_exponent"` // a; of a profile measured, that of the power law nearest to it; null for one given
	NoiseProfile  []float64      `json:"noise_profile"`  // variances at staleness 0, 1, 2, …; null for a power law
	Origins       origins        `json:"origins"`

	StalenessHorizon results.Number `json:"staleness_horizon"` // x*
	ReplayRatio      results.Number `json:"replay_ratio"`      // y*
	Infinite         []string       `json:"infinite"`          // keys of the two that are infinite
	Where            design.Where   `json:"where"`             // inside, at one, at the end of the profile, at infinity
	Objective        float64        `json:"objective"`         // J(x*, y*)
	OnPolicy         float64        `json:"on_policy_objective"`
	Savings          float64        `json:"expected_savings"` // 1 - J/J(1, 1)
	Once             once           `json:"each_used_once"`
	AsymptoticBound  float64        `json:"asymptotic_bound"` // of the mean squared gradient, in units of sqrt(F0 L/C)

	Configuration configurationJSON `json:"configuration"`
	Neighbours    []neighbourJSON   `json:"neighbours"`
	WhatIf        whatIfJSON        `json:"what_if"`
	Bound         *boundary         `json:"bound,omitempty"` // of the configuration, with --bound-…

	Why      []string   `json:"why"`
	Measured []string   `json:"measured"`
	Warnings []string   `json:"warnings"`
	Command  string     `json:"command"`
	Schedule *simulated `json:"schedule,omitempty"` // with --sim
}

// origins says who said what the theory was told.
type origins struct {
	RolloutCost string `json:"rollout_cost"`
	Correlation string `json:"correlation"`
	Noise       string `json:"noise"`
}

// once compares with on-policy training that uses each rollout exactly once.
type once struct {
	Objective float64 `json:"objective"`        // sigma2(0)(1 + m)
	Savings   float64 `json:"expected_savings"` // of the optimum
	AtMost    bool    `json:"at_most"`          // both are the most they can be: a power law that grows gives no sigma2(0)
}

type configurationJSON struct {
	design.Configuration
	Group        int     `json:"group"`
	MostCapacity int     `json:"most_capacity"`
	AtLimit      bool    `json:"at_limit"`
	SavingsOnce  float64 `json:"expected_savings_each_used_once"`
}

// neighbourJSON is a neighbour whose J may not exist.
type neighbourJSON struct {
	Change    string         `json:"change"`
	Workers   int            `json:"workers"`
	Trainers  int            `json:"trainers"`
	Capacity  int            `json:"capacity"`
	Batch     int            `json:"batch"`
	Objective results.Number `json:"objective"`
	Savings   results.Number `json:"expected_savings"`
	Refused   string         `json:"refused,omitempty"`
}

// whatIfJSON is J by division of the GPUs and by capacity.
type whatIfJSON struct {
	Splits     []design.Split     `json:"splits"`
	Capacities []int              `json:"capacities"`
	Objective  [][]results.Number `json:"objective"` // by split, then by capacity
	Savings    [][]results.Number `json:"expected_savings"`
}

// newDesignJSON writes everything that was worked out as JSON holds it; schedule is nil without --sim.
func newDesignJSON(found *calculation, schedule *simulated) designJSON {
	o, p := found.best, found.plan
	j := designJSON{
		RolloutCost: found.cost, TrainCost: found.theory.TrainCost, Correlation: found.theory.Correlation, NoiseExponent: results.Num(found.exponent),
		Origins:          origins{found.costFrom, found.correlationFrom, found.noiseFrom},
		StalenessHorizon: results.Num(o.X), ReplayRatio: results.Num(o.Y), Infinite: []string{}, Where: o.Where,
		Objective: o.Objective, OnPolicy: found.theory.OnPolicy(), Savings: o.Savings, AsymptoticBound: asymptotic(o.Objective),
		Once:          once{found.once(), found.savedOnce(o.Objective), found.grows()},
		Configuration: configurationJSON{p.Configuration, p.Group, p.Most, p.AtLimit, found.savedOnce(p.Objective)},
		WhatIf:        whatIfJSON{p.Grid.Splits, p.Grid.Capacities, gridNumbers(p.Grid.Objective), gridNumbers(p.Grid.Savings)},
		Bound:         found.bound, Why: found.why(), Measured: append([]string{}, found.measured...), Warnings: found.warnings, Command: found.command(), Schedule: schedule,
		Neighbours: []neighbourJSON{},
	}
	if table, ok := found.theory.Profile.(*design.Table); ok {
		j.NoiseProfile = table.Values()
	}
	if math.IsInf(o.X, 1) {
		j.Infinite = append(j.Infinite, "staleness_horizon")
	}
	if math.IsInf(o.Y, 1) {
		j.Infinite = append(j.Infinite, "replay_ratio")
	}
	for _, n := range p.Neighbours {
		j.Neighbours = append(j.Neighbours, neighbourJSON{n.Change, n.Workers, n.Trainers, n.Capacity, n.Batch, results.Num(n.Objective), results.Num(n.Savings), n.Refused})
	}
	return j
}

// gridNumbers writes a grid, nothing where it has no number.
func gridNumbers(grid [][]float64) [][]results.Number {
	rows := make([][]results.Number, len(grid))
	for i, row := range grid {
		rows[i] = make([]results.Number, len(row))
		for k, v := range row {
			rows[i][k] = results.Num(v)
		}
	}
	return rows
}
