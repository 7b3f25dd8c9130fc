package objective

import (
	"math"
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
)

// direct computes an objective in float32, as training does, on log-probs given as numbers:
//
//	row   tokens     log b        ratio pi/b    A     weight  reward  V
//	0     2          ln 1/2 each  1.5, 0.5      +1    1       1       0.25
//	1     3          ln 1/4 each  2, 1, 0.5     -2    0.5     0       0.25
//
// and what objectives with a reference policy, with r' and with a critic read
//
//	row   pi_ref            pi_ref/pi      r' = pi_k/b      V             V_old             R
//	0     0.375, 0.25       1/2, 1         1.3, 0.2         0.5, 1        0.25, 0.5         1, 1
//	1     0.5, 0.5, 0.25    1, 2, 2        1, 1.6, 1.2      1/4, 0, -1/2  1/4, 1/2, -1/4    0, -1/2, 0
//
// and log Z of 0.5 and -1. The first position of both rows is a prompt. Denominators: 2 rollouts, 5 tokens.
func direct(t *testing.T, o Objective, logprobs, entropy [][]float32) (loss float32, gradient [][]float32,
	m map[string]float64, rows []Row) {
	t.Helper()
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	exec := MustNewExec(newBackend(t), func(in []*Node) []*Node {
		out := o.Loss(Inputs{Logprobs: in[0], Behaviour: in[1], Mask: in[2], Advantage: in[3], Weight: in[4],
			Reward: in[5], GroupMean: in[6], Rollouts: in[7], Tokens: in[8], Entropy: in[9],
			Reference: in[10], Anchor: in[11], Values: in[12], OldValues: in[13], Returns: in[14], LogZ: in[15]})
		return []*Node{out.Loss, Gradient(out.Loss, in[0])[0], out.Sums, out.Rows}
	})
	out, err := exec.Call(
		logprobs,
		[][]float32{{0, ln(0.5), ln(0.5), 0}, {0, ln(0.25), ln(0.25), ln(0.25)}},
		[][]float32{{0, 1, 1, 0}, {0, 1, 1, 1}},
		[][]float32{{1, 1, 1, 1}, {-2, -2, -2, -2}},
		[]float32{1, 0.5}, []float32{1, 0}, []float32{0.25, 0.25}, float32(2), float32(5), entropy,
		[][]float32{{0, ln(0.375), ln(0.25), 0}, {0, ln(0.5), ln(0.5), ln(0.25)}},
		[][]float32{{0, ln(0.65), ln(0.1), 0}, {0, ln(0.25), ln(0.4), ln(0.3)}},
		[][]float32{{9, 0.5, 1, 9}, {9, 0.25, 0, -0.5}},
		[][]float32{{9, 0.25, 0.5, 9}, {9, 0.25, 0.5, -0.25}},
		[][]float32{{9, 1, 1, 9}, {9, 0, -0.5, 0}}, []float32{0.5, -1})
	if err != nil {
		t.Fatal(err)
	}
	return tensors.ToScalar[float32](out[0]), out[1].Value().([][]float32),
		Combine([]Sums{ReadSums(out[2].Value().([]float32))}), ReadRows(tensors.MustCopyFlatData[float32](out[3]))
}

func goldenLogprobs() [][]float32 {
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	return [][]float32{{-9, ln(0.75), ln(0.25), -9}, {-9, ln(0.5), ln(0.25), ln(0.125)}}
}

func TestValuesWorkedOutByHand(t *testing.T) {
	shift := 0.25
	entropy := [][]float32{{7, 1, 0.5, 7}, {7, 0.25, 0.25, 0.5}} // 2.5 over 5 tokens
	for _, tc := range []struct {
		name string
		o    Objective
		loss float64
		clip float64
	}{
		// Row 0, A = 1: min(1.5, 1.2) = 1.2 (clipped), min(0.5, 0.8) = 0.5: mean 0.85.
		// Row 1, A = -2: min(-4, -2.4) = -4, -2, min(-1, -1.6) = -1.6 (clipped): mean -7.6/3.
		// Loss: -(1*0.85 + 0.5*(-7.6/3))/2 = 0.2083333. Clipped 2 of 5.
		{"grpo", GRPO{}, 0.20833333, 0.4},
		// Sums 1.7 and -7.6: -(1.7 - 3.8)/5.
		{"grpo by token", GRPO{Normalisation: PerToken}, 0.42, 0.4},
		// -(1.7 - 3.8)/10/2.
		{"grpo by constant", GRPO{Normalisation: PerConstant, ConstantLength: 10}, 0.105, 0.4},
		// Row 1's -4 becomes -3 (1.5 * -2): sum -6.6: -(0.85 + 0.5*(-2.2))/2. Clipped 3 of 5.
		{"grpo dual clip", GRPO{DualClip: 1.5}, 0.125, 0.6},
		// Clip to [0.9, 1.6]: row 0: 1.5, 0.5: mean 1. Row 1: -4, -2, min(-1, -1.8): mean -2.6.
		{"grpo other bounds", GRPO{ClipLow: 0.1, ClipHigh: 0.6}, -(1 - 1.3) / 2, 0.2},
		// Row 0: sqrt(0.75) = 0.8660254 within [0.8, 1.2]: 0.8660254. Row 1: (2*1*0.5)^(1/3) = 1: -2.
		// -(0.8660254 + 0.5*(-2))/2.
		{"gspo", GRPO{Ratio: SequenceRatio}, 0.0669873, 0},
		// As grpo, whatever the method is called.
		{"rloo", GRPO{Method: RLOO}, 0.20833333, 0.4},
		{"reinforce++", GRPO{Method: ReinforcePP}, 0.20833333, 0.4},
		{"dr_grpo", GRPO{Method: DrGRPO, ConstantLength: 10}, 0.105, 0.4},
		// With r' = 1 as grpo; with Clip 1.25 within [0, 2.25]: nothing is clipped: rows 2/2 and -7/3.
		{"grpo_off", OffPolicyGRPO{}, 0.20833333, 0.4},
		{"grpo_off wide", OffPolicyGRPO{Clip: 1.25}, -(1 - 7.0/6) / 2, 0},
		// Row 0, A = 1: r = 1.5 within [1.1, 1.5]; 0.5 within [0, 0.4]: 0.4 (clipped): mean 0.95. The lower bound is
		// max(0.2 - 0.2, 0). Row 1, A = -2: r = 2 within [0.8, 1.2]: min(-4, -2.4) = -4; 1 within [1.4, 1.8]:
		// min(-2, -2.8) = -2.8 (clipped); 0.5 within [1, 1.4]: min(-1, -2) = -2 (clipped): mean -8.8/3.
		// -(0.95 + 0.5*(-8.8/3))/2.
		{"grpo_off exact", OffPolicyGRPO{RPrime: RPrimeExact}, 0.2583333, 0.6},
		// With Clip 0.75 row 0 has [0.55, 2.05] and [max(-0.55, 0), 0.95]: 1.5, 0.5. Row 1: [0.25, 1.75]: -4; [0.85,
		// 2.35]: -2; [0.45, 1.95]: -1. Nothing is clipped, as 0.5 is not below max(0.2 - 0.75, 0).
		{"grpo_off exact wide", OffPolicyGRPO{RPrime: RPrimeExact, Clip: 0.75}, -(1 - 7.0/6) / 2, 0},
		// k3 = x - 1 - ln x at x = pi_ref/pi: 0 at 1, 0.1931472 at 1/2, 0.3068528 at 2. Rows 0.1931472/2 = 0.0965736
		// and 2*0.3068528/3 = 0.2045685: 0.2083333 + 0.5*(0.0965736 + 0.5*0.2045685)/2.
		{"grpo_off kl", OffPolicyGRPO{KLCoef: 0.5}, 0.2580478, 0.4},
		// To pi_k/pi = 0.65/0.75, 0.4; 1/2, 1.6, 2.4: k3 0.0097675, 0.3162907; 0.1931472, 0.1299964, 0.5245313; means of the
		// rows 0.1630291 and 0.2825583. 0.2083333 + 0.5*(0.25*(0.0965736 + 0.5*0.2045685) + 0.75*(0.1630291 +
		// 0.5*0.2825583))/2.
		{"grpo_off convex kl", OffPolicyGRPO{KLCoef: 0.5, KLAnchor: 0.75}, 0.2778197, 0.4},
		// By r: 1.5*0.1931472/2 = 0.1448604 and (1 + 0.5)*0.3068528/3 = 0.1534264: 0.2083333 + 0.5*(0.1448604 +
		// 0.5*0.1534264)/2.
		{"grpo_off weighted kl", OffPolicyGRPO{KLCoef: 0.5, KLWeighted: true}, 0.2637267, 0.4},
		// Free squares (V-R)^2: 1/4, 0; 1/16, 1/4, 1/4. Clipped V, at most 0.2 from V_old: 0.45, 0.7; 0.25, 0.3, -0.45:
		// squares 0.3025, 0.09; 0.0625, 0.64, 0.2025. Greatest: 0.3025, 0.09; 0.0625, 0.64, 0.25, three of them
		// clipped. Halves' means: 0.098125 and 0.15875. 0.2083333 + 0.1*(0.098125 + 0.5*0.15875)/2.
		{"ppo", PPO{}, 0.2172083, 0.4},
		// Clip 1 leaves V as it is: halves' means 0.0625 and 0.09375: 0.2083333 + 0.5*(0.0625 + 0.5*0.09375)/2.
		{"ppo wide", PPO{ValueCoef: 0.5, ValueClip: 1}, 0.2356771, 0.4},
		// Row 0: (1 - 0.25 + 0.1) ln(0.75*0.25) = 0.85*(-1.6739764) = -1.4228799.
		// Row 1: (0 - 0.25 + 0.1) ln(0.5*0.25*0.125) = -0.15*(-4.1588831) = 0.6238325.
		// -(-1.4228799 + 0.5*0.6238325)/2.
		{"asymre", AsymRE{}, 0.5554818, 0},
		// (0.75-0.25)(-1.6739764) = -0.8369882; (-0.25-0.25)(-4.1588831) = 2.0794415.
		// -(-0.8369882 + 0.5*2.0794415)/2.
		{"asymre shifted", AsymRE{Shift: &shift}, -0.1013663, 0},
		// Row 0, whose reward is 1: ln(0.75*0.25) = -1.6739764. Row 1 has reward 0. 1.6739764/2.
		{"raft", RAFT{}, 0.8369882, 0},
		// log(pi/b) of the rows: ln 0.75 = -0.2876821 and 0. ((0.5*(-0.2876821) - 1)^2 + 0.5*(0 + 2)^2)/2.
		{"oapl", OAPL{Beta: 0.5}, 1.6541862, 0},
		// log(pi/pi_ref) of the rows: ln 2 = 0.6931472 and -2 ln 2. ((0.5*(0.5 + 0.6931472) - 1)^2 +
		// 0.5*(0.5*(-1 - 1.3862944) - 0)^2)/2.
		{"trajectory_balance", TrajectoryBalance{Beta: 0.5}, 0.4372765, 0},
		// Means -0.8369882 and -1.3862944: (0.8369882 + 0.5*1.3862944)/2.
		{"sft", SFT{}, 0.7650677, 0},
		// (1.6739764 + 0.5*4.1588831)/5.
		{"sft by token", SFT{Normalisation: PerToken}, 0.7506836, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			loss, _, m, rows := direct(t, tc.o, goldenLogprobs(), entropy)
			if !near(float64(loss), tc.loss, 1e-6) {
				t.Errorf("loss %g, want %g", loss, tc.loss)
			}
			for key, want := range map[string]float64{
				"loss": tc.loss, "clip_fraction": tc.clip, "tokens": 5,
				"entropy": 0.5, "nll": (1.6739764 + 4.1588831) / 5, "abs_advantage": 1.5, // (1 + 2)/2 rollouts
				// Ratios 1.5, 0.5, 2, 1, 0.5: sum 5.5, squares 2.25+0.25+4+1+0.25 = 7.75.
				"mean_ratio": 1.1, "max_ratio": 2, "ratio_clamped": 0, "ess": 5.5 * 5.5 / (5 * 7.75),
				// By rollout sqrt(0.75) and 1: (1.8660254)^2/(2*1.75).
				"ess_rollout": 0.9948717,
				// 7.75*5/5.5^2 - 1 and 2*1.75/1.8660254^2 - 1, and the logs of what they add to 1.
				"chi_square": 0.2809917, "d2": 0.2476347, "chi_square_rollout": 0.0051548, "d2_rollout": 0.0051415,
				// The product of the ratios is 0.75: k1 = -ln 0.75/5, k3 = (5.5-5)/5 + k1.
				"kl_k1": 0.0575364, "kl_k3": 0.1575364,
			} {
				if !near(m[key], want, 1e-6) {
					t.Errorf("%s is %g, want %g", key, m[key], want)
				}
			}
			count := 17
			for key, want := range further(tc.o) {
				count++
				if !near(m[key], want, 1e-6) {
					t.Errorf("%s is %g, want %g", key, m[key], want)
				}
			}
			if len(m) != count {
				t.Errorf("%d metrics, want %d: %v", len(m), count, m)
			}
			for i, want := range []Row{{2, 1, 2, 2.5}, {3, 2, 3.5, 5.25}} {
				sameRow(t, rows[i], want, 1e-6)
			}
		})
	}
}

// further returns the metrics of the golden batch that only some objectives have.
func further(o Objective) map[string]float64 {
	switch o := o.(type) {
	case OffPolicyGRPO:
		if o.KLCoef != 0 {
			return map[string]float64{"kl_reference": (0.1931472 + 2*0.3068528) / 5}
		}
	case TrajectoryBalance:
		return map[string]float64{"kl_reference": (0.1931472 + 2*0.3068528) / 5}
	case PPO:
		// Misses R - V: 0.5, 0; -0.25, -0.5, 0.5: mean 0.05, squares 0.8125: variance 0.16. Returns: mean 0.3, squares
		// 2.25: variance 0.36. Values: sum 1.25.
		m := map[string]float64{"value_loss": (0.19625 + 0.47625) / 5, "value_clip_fraction": 0.6, "value_mean": 0.25,
			"explained_variance": 1 - 0.16/0.36}
		if o.ValueClip == 1 {
			m["value_loss"], m["value_clip_fraction"] = 0.8125/2/5, 0
		}
		return m
	}
	return nil
}

// Prompt a: rewards 1 and 0 at beta 0.5 and log-ratios 1 and -1: (2 - 1 + 0 + 1)/2. Prompt b has one rollout.
func TestLogZIsTheMeanOverThePrompt(t *testing.T) {
	got := LogZ([]Trajectory{{"a", 1, 1}, {"b", 1, 0.25}, {"a", 0, -1}}, 0.5)
	if !slices.Equal(got, []float64{1, 1.75, 1}) {
		t.Errorf("log Z is %v, want 1, 1.75, 1", got)
	}
}

func TestUncountedLogprobsGetNoGradientWhateverTheyAre(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for name, o := range combinations() {
		logprobs, entropy := goldenLogprobs(), [][]float32{{nan, 0, 0, inf}, {nan, 0, 0, 0}}
		logprobs[0][0], logprobs[0][3], logprobs[1][0] = nan, inf, -1e38
		loss, gradient, m, _ := direct(t, o, logprobs, entropy)
		if gradient[0][0] != 0 || gradient[0][3] != 0 || gradient[1][0] != 0 || gradient[0][1] == 0 &&
			gradient[0][2] == 0 || math.IsNaN(float64(loss)) || m["entropy"] != 0 {
			t.Errorf("%s: loss %g, gradient %v, entropy %g", name, loss, gradient, m["entropy"])
		}
	}
}

func TestKLNearRatioOneKeepsItsDigits(t *testing.T) {
	logprobs := goldenLogprobs()
	for b, want := range [][]float32{{0, 0.5, 0.5, 0}, {0, 0.25, 0.25, 0.25}} {
		for i, p := range want {
			logprobs[b][i] = float32(math.Log(float64(p))) * (1 + 1.0/4096) // d = ln p/4096, exact enough
		}
	}
	logprobs[0][0], logprobs[0][3], logprobs[1][0] = 0, 0, 0
	_, _, m, _ := direct(t, GRPO{}, logprobs, logprobs)
	want := 0.0 // mean of d^2/2
	for _, d := range []float64{math.Ln2, math.Ln2, 2 * math.Ln2, 2 * math.Ln2, 2 * math.Ln2} {
		want += d / 4096 * d / 4096 / 10
	}
	if got := m["kl_k3"]; math.Abs(got/want-1) > 0.01 {
		t.Errorf("k3 is %g, want %g", got, want)
	}
}

func TestOptionsOutOfRangeAreAllNamed(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		o     Objective
		wants []string
	}{
		{GRPO{}, nil}, {AsymRE{}, nil}, {SFT{}, nil},
		{GRPO{Ratio: SequenceRatio, ClipLow: 3e-4, ClipHigh: 4e-4, Normalisation: PerConstant, ConstantLength: 9,
			DualClip: 3}, nil},
		{GRPO{Ratio: "word", ClipLow: 1.5, ClipHigh: -1, Normalisation: "row", DualClip: 1}, []string{
			"ratio: word", "clip_low: 1.5", "clip_high: -1", "normalisation: row", "dual_clip: 1"}},
		{GRPO{ClipLow: nan, ClipHigh: math.Inf(1), Normalisation: PerConstant, DualClip: nan}, []string{
			"clip_low: NaN", "clip_high: +Inf", "constant_length: 0", "dual_clip: NaN"}},
		{GRPO{ConstantLength: 5}, []string{"constant_length: 5"}},
		{AsymRE{Shift: &nan}, []string{"shift: NaN"}},
		{OffPolicyGRPO{}, nil}, {PPO{}, nil}, {GRPO{Method: RLOO}, nil}, {GRPO{Method: DrGRPO, ConstantLength: 3}, nil},
		{OffPolicyGRPO{Clip: 2, RPrime: RPrimeExact, KLCoef: 1, KLWeighted: true, Normalisation: PerToken}, nil},
		{OffPolicyGRPO{Clip: -1, RPrime: "two", KLCoef: -1, KLWeighted: true, ConstantLength: 2}, []string{
			"clip: -1", "r_prime: two", "kl_coef: -1", "constant_length: 2"}},
		{OffPolicyGRPO{Clip: nan, KLCoef: math.Inf(1)}, []string{"clip: NaN", "kl_coef: +Inf"}},
		{OffPolicyGRPO{KLWeighted: true}, []string{"kl_weighted: true"}},
		{OffPolicyGRPO{KLAnchor: 0.5}, []string{"kl_anchor: 0.5: want 0, or a kl_coef"}},
		{OffPolicyGRPO{KLCoef: 1, KLAnchor: 1.5}, []string{"kl_anchor: 1.5: want a share"}},
		{PPO{Surrogate: GRPO{ClipLow: 2}, ValueCoef: -1, ValueClip: nan},
			[]string{"clip_low: 2", "value_coef: -1", "value_clip: NaN"}},
		{PPO{ValueCoef: math.Inf(1), ValueClip: -1}, []string{"value_coef: +Inf", "value_clip: -1"}},
		{GRPO{Method: "sarsa", Ratio: "word"}, []string{"objective: sarsa", "ratio: word"}},
		{GRPO{Method: DrGRPO}, []string{"constant_length: 0"}},
		{GRPO{Method: DrGRPO, Normalisation: PerToken}, []string{"normalisation: token"}},
		{SFT{Normalisation: PerConstant}, []string{"normalisation: constant"}},
		{OAPL{Beta: -1}, []string{"beta: -1"}}, {TrajectoryBalance{Beta: nan}, []string{"beta: NaN"}},
	} {
		err := tc.o.Validate()
		if (err == nil) != (len(tc.wants) == 0) {
			t.Errorf("%s %+v: error %v", tc.o.Name(), tc.o, err)
		}
		for _, want := range tc.wants {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error does not say %q: %v", want, err)
			}
		}
	}
}

func TestMisuseIsAnErrorOfTheGraph(t *testing.T) {
	for want, o := range map[string]Objective{
		"objective grpo: clip_low: 2":            GRPO{ClipLow: 2},
		"input Behaviour is nil: want shape":     GRPO{},
		"input Reward has shape (Float32)[3]":    RAFT{},
		"objective sft: input Reward has shape ": SFT{},
		"objective rloo: input Behaviour is nil": GRPO{Method: RLOO},
		"input Reference is nil":                 OffPolicyGRPO{KLCoef: 1},
		"input Anchor is nil":                    OffPolicyGRPO{RPrime: RPrimeExact},
		"input OldValues is nil":                 PPO{},
		"input LogZ is nil":                      TrajectoryBalance{},
	} {
		exec := MustNewExec(newBackend(t), func(x, row, scalar *Node) *Node {
			return o.Loss(Inputs{Logprobs: x, Mask: x, Rollouts: scalar, Tokens: scalar, Reward: row,
				GroupMean: ReduceSum(x, 1)}).Loss
		})
		if _, err := exec.Call([][]float32{{1}, {2}}, []float32{1, 2, 3}, float32(1)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %.300v", want, err)
		}
	}
}

func TestWithoutBehaviourThereAreNoRatioMetrics(t *testing.T) {
	exec := MustNewExec(newBackend(t), func(x, mask, n *Node) (*Node, *Node) {
		out := SFT{}.Loss(Inputs{Logprobs: x, Mask: mask, Rollouts: n, Tokens: n})
		return out.Sums, out.Rows
	})
	out, err := exec.Call([][]float32{{-1, -2}}, [][]float32{{1, 1}}, float32(1))
	if err != nil {
		t.Fatal(err)
	}
	m := Combine([]Sums{ReadSums(out[0].Value().([]float32))})
	if _, ok := m["ess"]; ok || m["loss"] != 1.5 || m["nll"] != 1.5 || m["tokens"] != 2 {
		t.Errorf("metrics %v", m)
	}
	sameRow(t, ReadRows(tensors.MustCopyFlatData[float32](out[1]))[0], Row{Tokens: 2}, 0)
}

func sameRow(t *testing.T, got, want Row, tolerance float64) {
	t.Helper()
	if !near(got.Tokens, want.Tokens, 0) || !near(got.AbsAdvantage, want.AbsAdvantage, tolerance) ||
		!near(got.RatioSum, want.RatioSum, tolerance) || !near(got.RatioSquares, want.RatioSquares, tolerance) {
		t.Errorf("row %+v, want %+v", got, want)
	}
}

// naiveRow is row b of v by the definition of Row, as a loop.
func naiveRow(v values, b int) Row {
	var r Row
	for i := range width {
		if v.mask[b][i] == 0 || v.keep[b] == 0 {
			continue
		}
		rho := math.Exp(min(max(v.logprob(b, i)-v.behaviour[b][i], -20), 20))
		r.Tokens++
		r.AbsAdvantage += math.Abs(v.advantage[b][i])
		r.RatioSum += rho
		r.RatioSquares += rho * rho
	}
	r.AbsAdvantage /= max(r.Tokens, 1)
	return r
}

func TestRowsAgreeWithTheirDefinitionAndAddUpToTheSums(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			for seed := range uint64(10) {
				v := randomValues(seed)
				v.behaviour[0][4], v.behaviour[1][4] = -100, 100 // both are held
				r := p.run(v)
				if len(r.rows) != rows {
					t.Fatalf("%d rows, want %d", len(r.rows), rows)
				}
				var total Row
				for b, got := range r.rows {
					sameRow(t, got, naiveRow(v, b), 1e-12)
					total.Tokens += got.Tokens
					total.AbsAdvantage += got.AbsAdvantage
					total.RatioSum += got.RatioSum
					total.RatioSquares += got.RatioSquares
				}
				sameRow(t, total, Row{r.sums[sumTokens], r.sums[sumRowAbsAdv], r.sums[sumRho], r.sums[sumRho2]}, 1e-12)
			}
		})
	}
}

func TestOnlyWholeRowsAreRead(t *testing.T) {
	if none := ReadRows([]float32{}); len(none) != 0 {
		t.Errorf("no values are %d rows", len(none))
	}
	defer func() {
		if recover() == nil {
			t.Error("five values were read as rows")
		}
	}()
	ReadRows(make([]float32, numRowColumns+1))
}
