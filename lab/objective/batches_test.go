package objective

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
)

var writeGolden = flag.String("write-golden", "", "write the golden batches of python/tests/test_torch.py to this file")

// golden is a random batch and what the graph computes of it in float64. Its gradients are by the log-probs and, with a
// critic, by the values.
type golden struct {
	Options        options            `json:"options"`
	Tokens         map[string]matrix  `json:"tokens"`   // inputs per token
	Rollouts       map[string]vector  `json:"rollouts"` // inputs per rollout
	Expert         vector             `json:"expert"`   // of each rollout: 1 if its log-probs are not known
	NumRollouts    float64            `json:"num_rollouts"`
	NumTokens      float64            `json:"num_tokens"`
	SecondMoment   float64            `json:"second_moment"`
	Loss           float64            `json:"loss"`
	Gradient       matrix             `json:"gradient"`
	ValuesGradient matrix             `json:"values_gradient,omitempty"`
	Rows           []Row              `json:"rows"`
	Metrics        map[string]float64 `json:"metrics"`
}

type (
	matrix = [][]float64
	vector = []float64
)

// options are an objective's options by the keys of a configuration.
type options struct {
	Objective      string        `json:"objective"`
	Ratio          Ratio         `json:"ratio,omitempty"`
	Normalisation  Normalisation `json:"normalisation,omitempty"`
	ConstantLength int           `json:"constant_length,omitempty"`
	ClipLow        float64       `json:"clip_low,omitempty"`
	ClipHigh       float64       `json:"clip_high,omitempty"`
	DualClip       float64       `json:"dual_clip,omitempty"`
	Clip           float64       `json:"clip,omitempty"`
	RPrime         RPrime        `json:"r_prime,omitempty"`
	KLCoef         float64       `json:"kl_coef,omitempty"`
	KLWeighted     bool          `json:"kl_weighted,omitempty"`
	KLAnchor       float64       `json:"kl_anchor,omitempty"`
	ValueCoef      float64       `json:"value_coef,omitempty"`
	ValueClip      float64       `json:"value_clip,omitempty"`
	Shift          *float64      `json:"shift,omitempty"`
	Beta           float64       `json:"beta,omitempty"`
	Experts        ExpertTerm    `json:"experts,omitempty"`
	ExpertGamma    float64       `json:"expert_gamma,omitempty"`
	Proximal       Proximal      `json:"proximal,omitempty"`
	Correction     []Correction  `json:"correction,omitempty"`
}

func optionsOf(o Objective) options {
	switch o := o.(type) {
	case GRPO:
		return options{Objective: o.Name(), Ratio: o.Ratio, Normalisation: o.Normalisation,
			ConstantLength: o.ConstantLength, ClipLow: o.ClipLow, ClipHigh: o.ClipHigh, DualClip: o.DualClip,
			Proximal: o.Corrections.Proximal, Correction: o.Corrections.Steps, Experts: o.Experts.Term,
			ExpertGamma: o.Experts.Gamma}
	case OffPolicyGRPO:
		return options{Objective: o.Name(), Normalisation: o.Normalisation, ConstantLength: o.ConstantLength,
			Clip: o.Clip, RPrime: o.RPrime, KLCoef: o.KLCoef, KLWeighted: o.KLWeighted, KLAnchor: o.KLAnchor,
			Proximal: o.Corrections.Proximal, Correction: o.Corrections.Steps}
	case PPO:
		s := optionsOf(o.Surrogate)
		s.Objective, s.ValueCoef, s.ValueClip = o.Name(), o.ValueCoef, o.ValueClip
		return s
	case AsymRE:
		return options{Objective: o.Name(), Shift: o.Shift}
	case OAPL:
		return options{Objective: o.Name(), Beta: o.Beta}
	case TrajectoryBalance:
		return options{Objective: o.Name(), Beta: o.Beta}
	}
	panic(o)
}

// goldenObjectives returns every objective, and those with ratios with every correction.
func goldenObjectives() (list []Objective) {
	shift := 0.25
	list = []Objective{
		AsymRE{}, AsymRE{Shift: &shift},
		GRPO{Ratio: SequenceRatio, ClipLow: 0.1, ClipHigh: 0.3, DualClip: 3}, GRPO{Normalisation: PerToken, DualClip: 1.5},
		GRPO{Method: ReinforcePP}, GRPO{Method: ReinforcePPBaseline, Normalisation: PerToken}, GRPO{Method: RLOO},
		GRPO{Method: DrGRPO, ConstantLength: 7}, GRPO{Method: CISPO, ClipLow: 0.5, ClipHigh: 1},
		GRPO{Method: CISPO, Ratio: SequenceRatio, Normalisation: PerSequence},
	}
	for _, c := range sortedByName(correctionsOf()) {
		list = append(list, GRPO{Corrections: c}, GRPO{Method: CISPO, Corrections: c},
			PPO{Surrogate: GRPO{Ratio: SequenceRatio, Corrections: c}, ValueCoef: 0.5, ValueClip: 0.4})
		if !c.decouples() {
			list = append(list,
				OffPolicyGRPO{Clip: 0.4, RPrime: RPrimeExact, KLCoef: 0.3, Normalisation: PerToken, Corrections: c},
				OffPolicyGRPO{Clip: 1.2, KLCoef: 0.1, KLWeighted: true, Normalisation: PerConstant, ConstantLength: 9,
					Corrections: c},
				OffPolicyGRPO{Corrections: c})
		}
	}
	for _, term := range []ExpertTerm{ExpertSFT, ExpertPhi, ExpertShaped} {
		list = append(list, GRPO{Experts: Experts{Term: term}}, GRPO{Method: CISPO, Experts: Experts{Term: term},
			Corrections: correctionsOf()["together"]})
	}
	list = append(list, GRPO{Experts: Experts{Term: ExpertShaped, Gamma: 0.5}, Normalisation: PerToken})
	return append(list, OffPolicyGRPO{KLCoef: 0.3, KLAnchor: 0.6, KLWeighted: true, RPrime: RPrimeExact}, OAPL{}, OAPL{Beta: 0.5}, TrajectoryBalance{}, TrajectoryBalance{Beta: 0.5})
}

func sortedByName[V any](m map[string]V) (values []V) {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values = append(values, m[name])
	}
	return values
}

// refused is an objective that Validate refuses, and its words, a problem a line.
type refused struct {
	Options  options `json:"options"`
	Problems string  `json:"problems"`
}

func refusedObjectives() (list []refused) {
	step := func(steps ...Correction) GRPO { return GRPO{Corrections: Corrections{Steps: steps}} }
	for _, o := range []Objective{
		GRPO{Ratio: "word", ClipLow: 1.5, ClipHigh: -1, Normalisation: "row", DualClip: 1},
		GRPO{ConstantLength: 5}, GRPO{Normalisation: PerConstant}, GRPO{Method: "sarsa"},
		GRPO{Method: CISPO, DualClip: 2}, GRPO{Method: DrGRPO, ConstantLength: 3, Normalisation: PerToken},
		OffPolicyGRPO{Clip: -1, RPrime: "two", KLCoef: -0.5, KLWeighted: true}, OffPolicyGRPO{KLWeighted: true}, OffPolicyGRPO{KLAnchor: 0.5},
		OffPolicyGRPO{Corrections: Corrections{Proximal: ProximalRecompute}},
		PPO{Surrogate: GRPO{ClipLow: 2}, ValueCoef: -1, ValueClip: -0.25}, OAPL{Beta: -1},
		GRPO{Experts: Experts{Term: "bc"}}, GRPO{Experts: Experts{Term: ExpertSFT, Gamma: 0.5}},
		GRPO{Corrections: Corrections{Proximal: "then", Steps: []Correction{{Kind: "tis"}}}},
		step(Correction{Kind: Truncate}), step(Correction{Kind: MaskRatio}, Correction{Kind: MaskRatio}),
		step(Correction{Kind: MaskRatio, Low: 1.25, High: 0.5, Limit: 3}),
		step(Correction{Kind: MaskRatio, Level: "row"}), step(Correction{Kind: DPPO, Low: -0.1, High: 1.5}),
		step(Correction{Kind: OPSM, Limit: -1}, Correction{Kind: M2PO, Level: LevelToken, Low: 0.1}),
		GRPO{Corrections: Corrections{ProximalRecompute, []Correction{{Kind: Truncate, Low: 0.1, High: 0.9}}}},
		GRPO{Corrections: Corrections{ProximalUnweighted, []Correction{{Kind: Truncate}}}},
		OffPolicyGRPO{Corrections: Corrections{Proximal: ProximalUnweighted}},
	} {
		list = append(list, refused{optionsOf(o), o.Validate().Error()})
	}
	return list
}

// newGolden makes batch number seed and computes the objective of it.
func newGolden(t *testing.T, o Objective, seed uint64) golden {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 16))
	v := randomRatios(rng, cmp.Or(o.Needs().SecondMoment, 0.04))
	grid := func(scale float64) matrix {
		g := make(matrix, len(v.mask))
		for b := range g {
			for range v.mask[b] {
				g[b] = append(g[b], scale*rng.NormFloat64())
			}
		}
		return g
	}
	row := func() (r vector) {
		for range v.mask {
			r = append(r, rng.NormFloat64())
		}
		return r
	}
	g := golden{
		Options: optionsOf(o), NumRollouts: v.rollouts, NumTokens: v.tokens, SecondMoment: v.moment,
		Tokens: map[string]matrix{"logprobs": v.logp, "behaviour": v.behaviour, "anchor": v.proximal,
			"staleness": v.staleness, "advantages": v.advantage, "mask": v.mask, "entropy": grid(1), "values": grid(1),
			"old_values": grid(1), "returns": grid(2)},
		Rollouts: map[string]vector{"weights": v.weight, "rewards": row(), "group_means": row()},
	}
	reference := grid(1)
	for b := range reference {
		for i := range reference[b] {
			reference[b][i] += v.logp[b][i]
		}
	}
	g.Tokens["reference"] = reference
	// Two rollouts of each prompt.
	var logZ, groups vector
	var counted []Trajectory
	for b := range v.mask {
		groups = append(groups, float64(b/2))
		t := Trajectory{Prompt: fmt.Sprint(b / 2), Reward: g.Rollouts["rewards"][b]}
		for i, m := range v.mask[b] {
			t.LogRatio += m * (v.logp[b][i] - reference[b][i])
		}
		if slices.Contains(v.mask[b], 1) {
			counted = append(counted, t)
		}
	}
	estimates := LogZ(counted, cmp.Or(o.Needs().LogZ, 1))
	for b := range v.mask {
		logZ = append(logZ, 0)
		if slices.Contains(v.mask[b], 1) {
			logZ[b], estimates = estimates[0], estimates[1:]
		}
	}
	g.Rollouts["groups"] = groups
	// With a term for them, or log-probs for metrics only, every other rollout is an expert's.
	expert := make(vector, len(v.mask))
	for b := range expert {
		if TakesExperts(o) {
			expert[b] = float64(b % 2)
		}
	}
	g.Expert = expert
	g.SecondMoment = v.secondMoment(cmp.Or(o.Needs().SecondMoment, 0.04), func(b int) bool { return expert[b] == 0 })
	critic := o.Needs().Critic
	exec := MustNewExec(newBackend(t), func(in []*Node) []*Node {
		out := o.Loss(Inputs{Logprobs: in[0], Behaviour: in[1], Anchor: in[2], Advantage: in[3], Mask: in[4],
			Entropy: in[5], Values: in[6], OldValues: in[7], Returns: in[8], Reference: in[9], Weight: in[10],
			Reward: in[11], GroupMean: in[12], Rollouts: in[13], Tokens: in[14], SecondMoment: in[15], Staleness: in[16],
			LogZ: in[17], Expert: in[18]})
		by := []*Node{in[0]}
		if critic {
			by = append(by, in[6])
		}
		return append([]*Node{out.Loss, out.Sums, out.Rows}, Gradient(out.Loss, by...)...)
	})
	x, y := g.Tokens, g.Rollouts
	out, err := exec.Call(x["logprobs"], x["behaviour"], x["anchor"], x["advantages"], x["mask"], x["entropy"],
		x["values"], x["old_values"], x["returns"], x["reference"], y["weights"], y["rewards"], y["group_means"],
		g.NumRollouts, g.NumTokens, g.SecondMoment, x["staleness"], logZ, expert)
	if err != nil {
		t.Fatalf("batch %d: %v", seed, err)
	}
	g.Metrics = Combine([]Sums{ReadSums(out[1].Value().([]float64))})
	g.Loss, g.Gradient = out[0].Value().(float64), out[3].Value().(matrix)
	var rows vector
	for _, r := range out[2].Value().(matrix) {
		rows = append(rows, r...)
	}
	g.Rows = ReadRows(rows)
	if critic {
		g.ValuesGradient = out[4].Value().(matrix)
	}
	return g
}

// The batches must be finite, or they could not be written, and each correction must do something in some of them.
func TestGoldenBatchesReachEveryCorrection(t *testing.T) {
	const batches = 400
	objectives := goldenObjectives()
	if len(objectives) > batches {
		t.Fatalf("%d objectives: want at most %d, one for each batch", len(objectives), batches)
	}
	list := make([]golden, batches)
	hits := make(map[string]int)
	for i := range list {
		list[i] = newGolden(t, objectives[i%len(objectives)], uint64(i))
		for key, share := range list[i].Metrics {
			if share != 0 {
				hits[list[i].Options.Objective+" "+key]++
			}
		}
		if list[i].Metrics["tokens"] == 0 {
			hits["empty"]++
		}
	}
	for _, name := range []string{"grpo", "cispo", "ppo"} {
		for _, correction := range correctionNames() {
			if key := name + " corrected_" + correction; hits[key] == 0 {
				t.Errorf("no batch has %s", key)
			}
		}
	}
	for _, key := range []string{"empty", "grpo clip_fraction", "grpo ratio_clamped", "cispo clip_fraction",
		"grpo_off corrected_m2po", "grpo_off kl_reference", "ppo value_clip_fraction", "asymre loss", "oapl loss",
		"trajectory_balance loss"} {
		if hits[key] == 0 {
			t.Errorf("no batch has %s", key)
		}
	}
	text, err := json.Marshal(map[string]any{"batches": list, "refused": refusedObjectives()})
	if err != nil {
		t.Fatal(err)
	}
	if *writeGolden == "" {
		return
	}
	if err := os.WriteFile(*writeGolden, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
