package objective

import (
	"math"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
)

// Row 0 is the policy's: ratio 1.5, A = 1, so the clip holds its term at 1.2. Row 1 is an expert's, of two tokens of
// pi = 1/2 and 1/4, A = 2, whose log-probs are NaN. The loss is minus half the sum of the means of the rows.
func TestTermsOfExpertsWorkedOutByHand(t *testing.T) {
	ln, nan := math.Log, math.NaN()
	for name, c := range map[string]struct {
		experts Experts
		mean    float64    // of row 1
		slopes  [2]float64 // of its terms by log pi
	}{
		"sft": {Experts{Term: ExpertSFT}, (ln(0.5) + ln(0.25)) / 2, [2]float64{1, 1}},
		"phi": {Experts{Term: ExpertPhi}, (0.25*ln(0.5) + 0.1875*ln(0.25)) / 2, [2]float64{0.25, 0.1875}},
		// 2 x 0.5/0.6 and 2 x 0.25/0.35; slopes 2 x 0.1 x 0.5/0.36 and 2 x 0.1 x 0.25/0.1225.
		"shaped": {Experts{Term: ExpertShaped}, (1/0.6 + 0.5/0.35) / 2, [2]float64{0.1 / 0.36, 0.05 / 0.1225}},
		// 2 x 0.5/1 and 2 x 0.25/0.75; slopes 2 x 0.5 x 0.5/1 and 2 x 0.5 x 0.25/0.5625.
		"shaped less": {Experts{Term: ExpertShaped, Gamma: 0.5}, (1 + 0.5/0.75) / 2, [2]float64{0.5, 0.25 / 0.5625}},
	} {
		for surrogate, o := range map[string]GRPO{"grpo": {}, "cispo": {Method: CISPO, ClipHigh: 0.2, Normalisation: PerSequence},
			"decoupled": {Corrections: Corrections{ProximalRecompute, []Correction{{Kind: Truncate}, {Kind: MaskRatio, High: 1.1}}}}} {
			o.Experts = c.experts
			exec := MustNewExec(newBackend(t), func(in []*Node) []*Node {
				out := o.Loss(Inputs{Logprobs: in[0], Behaviour: in[1], Mask: in[2], Advantage: in[3], Expert: in[4],
					Rollouts: in[5], Tokens: in[5], Anchor: in[0]})
				return []*Node{out.Loss, Gradient(out.Loss, in[0])[0], out.Sums}
			})
			logprobs := [][]float64{{ln(0.75), -9}, {ln(0.5), ln(0.25)}}
			out, err := exec.Call(logprobs, [][]float64{{ln(0.5), 0}, {nan, nan}}, [][]float64{{1, 0}, {1, 1}},
				[][]float64{{1, 1}, {2, 2}}, []float64{0, 1}, 2.0)
			if err != nil {
				t.Fatal(err)
			}
			loss, gradient := out[0].Value().(float64), out[1].Value().([][]float64)
			own := map[string]float64{"grpo": 1.2, "cispo": 1.2 * ln(0.75), "decoupled": 0}[surrogate] // k = 1.5 is masked
			if !near(loss, -(own+c.mean)/2, 1e-12) {
				t.Errorf("%s, %s: loss %g, want %g", surrogate, name, loss, -(own+c.mean)/2)
			}
			for i, slope := range c.slopes {
				if !near(gradient[1][i], -slope/4, 1e-12) {
					t.Errorf("%s, %s: gradient of token %d is %g, want %g", surrogate, name, i, gradient[1][i], -slope/4)
				}
			}
			m := Combine([]Sums{ReadSums(out[2].Value().([]float64))})
			if !near(m["mean_ratio"], 3.5/3, 1e-12) || m["corrected_mask_token_rollouts"] > 0.5 ||
				surrogate != "decoupled" && !near(m["clip_fraction"], 1.0/3, 1e-12) {
				t.Errorf("%s, %s: metrics %v", surrogate, name, m)
			}
		}
	}
}

func TestExpertsOutOfRangeAreNamed(t *testing.T) {
	for want, o := range map[string]Objective{
		"experts: bc: want sft, phi or shaped":        GRPO{Experts: Experts{Term: "bc"}},
		"expert_gamma: 0.1: want 0, or experts: shap": GRPO{Experts: Experts{Term: ExpertSFT, Gamma: 0.1}},
		"expert_gamma: -1: want a finite number":      GRPO{Experts: Experts{Term: ExpertShaped, Gamma: -1}},
		"experts: sft: want none with objective ppo":  PPO{Surrogate: GRPO{Experts: Experts{Term: ExpertSFT}}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for name, takes := range map[bool][]Objective{
		true:  {GRPO{Experts: Experts{Term: ExpertSFT}}, AsymRE{}, TrajectoryBalance{}, SFT{}},
		false: {GRPO{}, OffPolicyGRPO{}, PPO{}, OAPL{}},
	} {
		for _, o := range takes {
			if TakesExperts(o) != name {
				t.Errorf("%s takes experts: %t", o.Name(), !name)
			}
		}
	}
}
