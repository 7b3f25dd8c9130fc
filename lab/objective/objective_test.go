package objective

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/backend"
)

// Dimensions of the batches in these tests.
const (
	rows, width, vocab = 4, 5, 3
)

// values are the inputs of one shard as plain numbers, in float64 so that finite differences are
// sharp. A nil slice is an input not given. The current policy is a softmax over logits, one per
// position.
type values struct {
	logits           [][][]float64 // [B, T, V]
	tokens           [][]int32     // [B, T]
	behaviour, mask  [][]float64   // [B, T]
	advantage        [][]float64   // [B, T]
	weight, keep     []float64     // [B]
	reward, mean     []float64     // [B]
	reference        [][]float64   // [B, T]
	anchor           [][]float64   // [B, T]
	value, oldValue  [][]float64   // [B, T]
	returns          [][]float64   // [B, T]
	nRollouts, nToks float64
}

// result is what an objective computed of values.
type result struct {
	loss     float64
	gradient [][][]float64 // of the loss with respect to the logits
	critic   [][]float64   // of the loss with respect to the critic's values
	metrics  map[string]float64
	sums     Sums
	rows     []Row
}

// opened is the backend of all tests.
var opened = sync.OnceValues(func() (compute.Backend, error) { return backend.Open(false) })

func newBackend(t testing.TB) compute.Backend {
	t.Helper()
	b, err := opened()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// programs holds what [compile] made, by name and options of the objective: most tests run all combinations.
var programs sync.Map

// program is an objective compiled for the policy of these tests.
type program struct {
	t    testing.TB
	exec *Exec
}

func compile(t testing.TB, o Objective) program {
	t.Helper()
	key := fmt.Sprintf("%s %+v", o.Name(), o) // a pointer in the options compares by address
	if exec, ok := programs.Load(key); ok {
		return program{t, exec.(*Exec)}
	}
	exec := MustNewExec(newBackend(t), func(in []*Node) []*Node {
		logits, tokens := in[0], in[1]
		all := LogSoftmax(logits)
		chosen := ReduceSum(Mul(all, OneHot(tokens, logits.Shape().Dim(2), logits.DType())), 2)
		inputs := Inputs{
			Logprobs: chosen, Behaviour: in[2], Mask: in[3], Advantage: in[4], Weight: in[5], Keep: in[6],
			Reward: in[7], GroupMean: in[8], Rollouts: in[9], Tokens: in[10],
			Reference: in[11], Anchor: in[12], Values: in[13], OldValues: in[14], Returns: in[15],
			LogZ: in[8], Entropy: Neg(ReduceSum(Mul(Exp(all), all), 2)),
		}
		out := o.Loss(inputs)
		gradients := Gradient(out.Loss, logits, in[13])
		return []*Node{out.Loss, gradients[0], out.Sums, out.Rows, gradients[1]}
	})
	programs.Store(key, exec)
	return program{t, exec}
}

func (p program) run(v values) result {
	p.t.Helper()
	out, err := p.exec.Call(v.logits, v.tokens, v.behaviour, v.mask, v.advantage, v.weight, v.keep, v.reward, v.mean,
		v.nRollouts, v.nToks, v.reference, v.anchor, v.value, v.oldValue, v.returns)
	if err != nil {
		p.t.Fatal(err)
	}
	r := result{
		loss:     tensors.ToScalar[float64](out[0]),
		gradient: out[1].Value().([][][]float64),
		critic:   out[4].Value().([][]float64),
		sums:     ReadSums(out[2].Value().([]float64)),
		rows:     ReadRows(tensors.MustCopyFlatData[float64](out[3])),
	}
	r.metrics = Combine([]Sums{r.sums})
	return r
}

// naive is METHODS section 5 written as loops, for comparison.
func naive(o Objective, v values) (loss float64, clipped int) {
	var critic func(b, t int) float64
	switch of := o.(type) { // they share GRPO's surrogate
	case GRPO:
		o = of.WithDefaults()
	case PPO:
		o = of.Surrogate
		critic = func(b, t int) float64 {
			value, old, target := v.value[b][t], v.oldValue[b][t], v.returns[b][t]
			held := max(old-of.ValueClip, min(old+of.ValueClip, value))
			return of.ValueCoef * max((value-target)*(value-target), (held-target)*(held-target)) / 2
		}
	}
	for b := range rows {
		var n, sum, mean, whole, toReference float64
		for i := range width {
			if v.mask[b][i] != 0 && v.keep[b] != 0 {
				n++
				mean += v.logprob(b, i) - v.behaviour[b][i]
				toReference += v.logprob(b, i) - v.reference[b][i]
				whole += v.advantage[b][i]
			}
		}
		if n == 0 {
			continue
		}
		switch o := o.(type) {
		case OAPL:
			miss := o.Beta*mean - whole/n
			loss += v.weight[b] * miss * miss / v.nRollouts
			continue
		case TrajectoryBalance:
			miss := o.Beta*(v.mean[b]+toReference) - v.reward[b]
			loss += v.weight[b] * miss * miss / v.nRollouts
			continue
		}
		mean /= n
		for i := range width {
			if v.mask[b][i] == 0 {
				continue
			}
			switch o := o.(type) {
			case GRPO:
				r := math.Exp(v.logprob(b, i) - v.behaviour[b][i])
				if o.Ratio == SequenceRatio {
					r = math.Exp(mean)
				}
				lo, hi := o.ClipLow, o.ClipHigh
				if lo == 0 {
					lo, hi = 0.2, 0.2
				}
				a := v.advantage[b][i]
				term := min(r*a, max(1-lo, min(1+hi, r))*a)
				if o.DualClip > 0 && a < 0 {
					term = max(term, o.DualClip*a)
				}
				if term != r*a {
					clipped++
				}
				sum += term
				if critic != nil {
					sum -= critic(b, i)
				}
			case OffPolicyGRPO:
				r, start, clip := math.Exp(v.logprob(b, i)-v.behaviour[b][i]), 1.0, o.Clip
				if o.RPrime == RPrimeExact {
					start = math.Exp(v.anchor[b][i] - v.behaviour[b][i])
				}
				if clip == 0 {
					clip = 0.2
				}
				a := v.advantage[b][i]
				term := min(r*a, max(max(start-clip, 0), min(start+clip, r))*a)
				if term != r*a {
					clipped++
				}
				d := v.reference[b][i] - v.logprob(b, i)
				kl := (1 - o.KLAnchor) * o.KLCoef * (math.Exp(d) - d - 1)
				d = v.anchor[b][i] - v.logprob(b, i)
				kl += o.KLAnchor * o.KLCoef * (math.Exp(d) - d - 1)
				if o.KLWeighted {
					kl *= r
				}
				sum += term - kl
			case AsymRE:
				sum += (v.reward[b] - (v.mean[b] + o.shift())) * v.logprob(b, i)
			case RAFT:
				sum += max(v.reward[b], 0) * v.logprob(b, i)
			case SFT:
				sum += v.logprob(b, i)
			}
		}
		norm := PerConstant
		length := 1 // AsymRE, RAFT: the plain sum
		switch o := o.(type) {
		case GRPO:
			norm, length = cmp.Or(o.Normalisation, PerSequence), o.ConstantLength
		case OffPolicyGRPO:
			norm, length = o.Normalisation, o.ConstantLength
		case SFT:
			norm = cmp.Or(o.Normalisation, PerSequence)
		}
		switch norm {
		case PerSequence:
			sum /= n * v.nRollouts
		case PerToken:
			sum /= v.nToks
		case PerConstant:
			sum /= float64(length) * v.nRollouts
		}
		loss -= v.weight[b] * sum
	}
	return loss, clipped
}

func TestMethodsAreFoundByName(t *testing.T) {
	want := []string{"grpo", "grpo_off", "asymre", "raft", "ppo", "reinforce++", "reinforce++-baseline", "rloo", "dr_grpo",
		"cispo", "oapl", "trajectory_balance"}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	for name, advantage := range map[string]string{"grpo": "group", "grpo_off": "group", "asymre": "group",
		"raft": "group", "ppo": "gae", "reinforce++": "batch",
		"reinforce++-baseline": "group_batch", "rloo": "leave_one_out", "dr_grpo": "no_std", "cispo": "group",
		"oapl": "log_mean_exp", "trajectory_balance": "no_std"} {
		m, ok := FindMethod(name)
		if !ok || m.Name != name || m.Advantages[0] != advantage || m.Critic != (name == "ppo") {
			t.Errorf("%s is %+v, %v", name, m, ok)
		}
	}
	if m, ok := FindMethod("sft"); ok {
		t.Errorf("sft, which has no rewards, is %+v", m)
	}
}

func TestOnlyWhatIsReadIsNeeded(t *testing.T) {
	for _, tc := range []struct {
		o    Objective
		want Needs
	}{
		{GRPO{}, Needs{}}, {SFT{}, Needs{}}, {AsymRE{}, Needs{}}, {RAFT{}, Needs{}}, {GRPO{Method: RLOO}, Needs{}},
		{OffPolicyGRPO{}, Needs{}},
		{OffPolicyGRPO{KLCoef: 0.1}, Needs{Reference: true}}, {OffPolicyGRPO{RPrime: RPrimeExact}, Needs{Anchor: true}},
		{OffPolicyGRPO{KLCoef: 0.1, KLAnchor: 0.5}, Needs{Reference: true, Anchor: true}},
		{PPO{}, Needs{Critic: true}}, {OAPL{}, Needs{}},
		{TrajectoryBalance{}, Needs{Reference: true, LogZ: 0.012}},
	} {
		if got := tc.o.Needs(); got != tc.want {
			t.Errorf("%+v needs %+v, want %+v", tc.o, got, tc.want)
		}
	}
}

// combinations returns every combination of options under its name.
func combinations() map[string]Objective {
	zero := 0.0
	all := map[string]Objective{
		"asymre default": AsymRE{}, "asymre unshifted": AsymRE{Shift: &zero},
		"raft": RAFT{}, "oapl": OAPL{Beta: 0.5}, "trajectory_balance": TrajectoryBalance{Beta: 0.5},
		"sft sequence": SFT{}, "sft token": SFT{Normalisation: PerToken},
	}
	for _, ratio := range []Ratio{TokenRatio, SequenceRatio} {
		for _, norm := range []Normalisation{PerSequence, PerToken, PerConstant} {
			for _, dual := range []float64{0, 1.5} {
				for _, clip := range []float64{0, 0.05} {
					o := GRPO{Ratio: ratio, Normalisation: norm, DualClip: dual, ClipLow: clip, ClipHigh: 2 * clip}
					if norm == PerConstant {
						o.ConstantLength = 7
					}
					all[fmt.Sprintf("grpo %s %s dual=%g clip=%g", ratio, norm, dual, clip)] = o
				}
			}
		}
	}
	for _, norm := range []Normalisation{PerSequence, PerToken, PerConstant} {
		base := GRPO{Normalisation: norm, ClipLow: 0.3, ClipHigh: 0.1}
		if norm == PerConstant {
			base.ConstantLength = 7
			all["dr_grpo"] = GRPO{Method: DrGRPO, ConstantLength: 7}
		}
		variant := base
		variant.Method = ReinforcePP
		all[fmt.Sprintf("reinforce++ %s", norm)] = variant
		base.DualClip = 1.5
		all[fmt.Sprintf("ppo %s", norm)] = PPO{Surrogate: base, ValueCoef: 0.5, ValueClip: 0.4}
		for _, prime := range []RPrime{RPrimeOne, RPrimeExact} {
			for _, clip := range []float64{0, 1.1} {
				o := OffPolicyGRPO{Clip: clip, RPrime: prime, Normalisation: norm, ConstantLength: base.ConstantLength}
				all[fmt.Sprintf("grpo_off %s r'=%s clip=%g", norm, prime, clip)] = o
				o.KLCoef = 0.3
				all[fmt.Sprintf("grpo_off %s r'=%s clip=%g kl", norm, prime, clip)] = o
				o.KLAnchor = 0.4
				all[fmt.Sprintf("grpo_off %s r'=%s clip=%g convex kl", norm, prime, clip)] = o
				o.KLAnchor, o.KLWeighted = 0, true
				all[fmt.Sprintf("grpo_off %s r'=%s clip=%g weighted kl", norm, prime, clip)] = o
			}
		}
	}
	return all
}

// randomValues returns a batch in which every kind of entry occurs: masked positions, a row not
// kept, a row without tokens of the policy, weights, ratios on both sides of every clip.
func randomValues(seed uint64) values {
	rng := rand.New(rand.NewPCG(seed, 1))
	grid := func(f func(b, t int) float64) [][]float64 {
		g := make([][]float64, rows)
		for b := range g {
			g[b] = make([]float64, width)
			for t := range g[b] {
				g[b][t] = f(b, t)
			}
		}
		return g
	}
	row := func(f func(b int) float64) []float64 {
		r := make([]float64, rows)
		for b := range r {
			r[b] = f(b)
		}
		return r
	}
	v := values{tokens: make([][]int32, rows), logits: make([][][]float64, rows)}
	for b := range rows {
		v.tokens[b], v.logits[b] = make([]int32, width), make([][]float64, width)
		for t := range width {
			v.tokens[b][t] = rng.Int32N(vocab)
			v.logits[b][t] = []float64{rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()}
		}
	}
	v.mask = grid(func(b, t int) float64 {
		if b != 3 && (t >= 3 || rng.IntN(2) == 0) {
			return 1
		}
		return 0
	})
	v.behaviour = grid(func(b, t int) float64 { return v.logprob(b, t) + 0.4*rng.NormFloat64() })
	v.advantage = grid(func(_, _ int) float64 { return rng.NormFloat64() })
	v.weight = row(func(int) float64 { return 0.5 + rng.Float64() })
	v.keep = row(func(b int) float64 { return map[bool]float64{true: 0, false: 1}[b == 2] })
	v.reward = row(func(int) float64 { return 0.5 * float64(1+rng.IntN(2)) })
	v.mean = row(func(int) float64 { return rng.Float64() })
	v.nRollouts, v.nToks = 5, 17 // of a batch of which this is a shard
	v.reference = grid(func(b, t int) float64 { return v.logprob(b, t) + 0.8*rng.NormFloat64() })
	v.anchor = grid(func(b, t int) float64 { return v.behaviour[b][t] + 0.8*rng.NormFloat64() })
	v.value = grid(func(_, _ int) float64 { return rng.NormFloat64() })
	v.oldValue = grid(func(b, t int) float64 { return v.value[b][t] + 0.6*rng.NormFloat64() })
	v.returns = grid(func(_, _ int) float64 { return rng.NormFloat64() })
	return v
}

// logprob returns log pi of token t of row b.
func (v values) logprob(b, t int) float64 {
	sum := 0.0
	for _, l := range v.logits[b][t] {
		sum += math.Exp(l)
	}
	return v.logits[b][t][v.tokens[b][t]] - math.Log(sum)
}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*(1+math.Abs(b)) }

func sameGradient(t *testing.T, got, want [][][]float64, scale, tolerance float64) {
	t.Helper()
	for b := range want {
		for i := range want[b] {
			for k := range want[b][i] {
				if !near(got[b][i][k], scale*want[b][i][k], tolerance) {
					t.Fatalf("gradient at [%d %d %d] is %g, want %g", b, i, k, got[b][i][k], scale*want[b][i][k])
				}
			}
		}
	}
}

// The derivative along random directions compares every entry of the gradient at once. Central differences with step
// 1e-6 in float64 have an error of about 1e-10. These seeds do not hit a kink of a clip: a hit would show as a failure.
func TestGradientsAgreeWithFiniteDifferences(t *testing.T) {
	const h, directions = 1e-6, 4
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			for seed := range uint64(tests.Count(4, 1)) {
				v := randomValues(seed)
				r := p.run(v)
				logits, values := flatten(v.logits...), flatten(v.value)
				gradient, critic := flatten(r.gradient...), flatten(r.critic)
				rng := rand.New(rand.NewPCG(seed, 2))
				for range directions {
					if want, got := directional(rng, logits, gradient, h,
						func() float64 { return p.run(v).loss }); !near(got, want, 1e-8) {
						t.Errorf("seed %d: derivative by logits %g, finite difference %g", seed, got, want)
					}
					if !o.Needs().Critic {
						continue
					}
					if want, got := directional(rng, values, critic, h,
						func() float64 { return p.run(v).loss }); !near(got, want, 1e-8) {
						t.Errorf("seed %d: derivative by values %g, finite difference %g", seed, got, want)
					}
				}
				if largest(gradient) < 1e-3 || o.Needs().Critic && largest(critic) < 1e-3 {
					t.Errorf("seed %d: the largest gradients are %g and %g: nothing was tested", seed,
						largest(gradient), largest(critic))
				}
			}
		})
	}
}

// flatten returns pointers to all numbers of matrices.
func flatten(matrices ...[][]float64) (all []*float64) {
	for _, m := range matrices {
		for _, row := range m {
			for i := range row {
				all = append(all, &row[i])
			}
		}
	}
	return all
}

func largest(all []*float64) (most float64) {
	for _, x := range all {
		most = max(most, math.Abs(*x))
	}
	return most
}

// directional returns the derivative of f by x along a random direction: by central differences, and by the gradient.
func directional(rng *rand.Rand, x, gradient []*float64, h float64, f func() float64) (difference, derivative float64) {
	direction, start := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		direction[i], start[i] = rng.NormFloat64(), *x[i]
		derivative += direction[i] * *gradient[i]
	}
	at := func(step float64) float64 {
		for i := range x {
			*x[i] = start[i] + step*direction[i]
		}
		return f()
	}
	difference = (at(h) - at(-h)) / (2 * h)
	at(0)
	return difference, derivative
}

func TestLossesAgreeWithTheFormulaWrittenAsLoops(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			for seed := range uint64(20) {
				v := randomValues(seed)
				v.reward[seed%2] *= -1
				r := p.run(v)
				want, clipped := naive(o, v)
				if !near(r.loss, want, 1e-12) || r.sums[sumLoss] != r.loss {
					t.Errorf("seed %d: loss %g, want %g", seed, r.loss, want)
				}
				if r.sums[sumClipped] != float64(clipped) {
					t.Errorf("seed %d: %g tokens clipped, want %d", seed, r.sums[sumClipped], clipped)
				}
			}
		})
	}
}

// At b = pi the gradient of every clipped surrogate is the policy gradient -1/N sum_i 1/|y_i| sum_t A_t d log pi, with
// d log pi / d logit_k = [k = token] - pi_k.
func TestAtRatioOneTheGradientIsThePolicyGradient(t *testing.T) {
	p := compile(t, GRPO{DualClip: 3})
	for seed := range uint64(5) {
		v := randomValues(seed)
		want := make([][][]float64, rows)
		for b := range rows {
			n := 0.0
			for i := range width {
				v.behaviour[b][i] = v.logprob(b, i)
				n += v.mask[b][i]
			}
			want[b] = make([][]float64, width)
			for i := range width {
				want[b][i] = make([]float64, vocab)
				if v.mask[b][i] == 0 || v.keep[b] == 0 {
					continue
				}
				for k := range vocab {
					pi := math.Exp(v.logits[b][i][k] - v.logits[b][i][v.tokens[b][i]] + v.logprob(b, i))
					d := -pi
					if k == int(v.tokens[b][i]) {
						d++
					}
					want[b][i][k] = -v.weight[b] * v.advantage[b][i] * d / (n * v.nRollouts)
				}
			}
		}
		r := p.run(v)
		sameGradient(t, r.gradient, want, 1, 1e-12)
		for key, value := range map[string]float64{"clip_fraction": 0, "mean_ratio": 1, "max_ratio": 1, "ess": 1,
			"ess_rollout": 1,
			"chi_square":  0, "chi_square_rollout": 0, "d2": 0, "d2_rollout": 0, "kl_k1": 0, "kl_k3": 0} {
			if !near(r.metrics[key], value, 1e-12) {
				t.Errorf("%s is %g at ratio 1, want %g", key, r.metrics[key], value)
			}
		}
	}
}

func TestAWeightMultipliesItsRollout(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			v := randomValues(3)
			loss := func(weights ...float64) float64 {
				v.weight = weights
				return p.run(v).loss
			}
			a, b := loss(1, 0, 0, 0), loss(0, 1, 0, 0)
			if got, want := loss(2, 0.25, 9, 9), 2*a+0.25*b; !near(got, want, 1e-12) || a == 0 || b == 0 {
				t.Errorf("loss %g, want 2*%g + 0.25*%g = %g", got, a, b, want)
			}
		})
	}
}

// part returns rows from to to of v, with the denominators of all.
func (v values) part(from, to int) values {
	v.logits, v.tokens = v.logits[from:to], v.tokens[from:to]
	v.behaviour, v.mask, v.advantage = v.behaviour[from:to], v.mask[from:to], v.advantage[from:to]
	v.weight, v.keep, v.reward, v.mean = v.weight[from:to], v.keep[from:to], v.reward[from:to], v.mean[from:to]
	v.reference, v.anchor, v.returns = v.reference[from:to], v.anchor[from:to], v.returns[from:to]
	v.value, v.oldValue = v.value[from:to], v.oldValue[from:to]
	return v
}

func TestShardsAddUpToTheBatch(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			v := randomValues(4)
			whole, a, b := p.run(v), p.run(v.part(0, 1)), p.run(v.part(1, rows))
			if !near(a.loss+b.loss, whole.loss, 1e-12) {
				t.Errorf("losses %g + %g, of the batch %g", a.loss, b.loss, whole.loss)
			}
			sameGradient(t, append(slices.Clone(a.gradient), b.gradient...), whole.gradient, 1, 1e-12)
			sameGradient(t, [][][]float64{append(slices.Clone(a.critic), b.critic...)}, [][][]float64{whole.critic}, 1,
				1e-12)
			for key, value := range Combine([]Sums{a.sums, b.sums}) {
				if !near(value, whole.metrics[key], 1e-12) {
					t.Errorf("%s: shards give %g, the batch %g", key, value, whole.metrics[key])
				}
			}
		})
	}
}

func TestWhatDoesNotCountIsNeverSeen(t *testing.T) {
	for name, o := range combinations() {
		t.Run(name, func(t *testing.T) {
			p := compile(t, o)
			for _, poison := range []float64{1e300, math.Inf(-1), math.Inf(1), math.NaN()} {
				v := randomValues(5)
				want := p.run(v)
				for b := range rows {
					counts := false
					for i := range width {
						if v.mask[b][i] != 0 && v.keep[b] != 0 {
							counts = true
							continue
						}
						v.behaviour[b][i], v.advantage[b][i] = poison, poison
						v.reference[b][i], v.anchor[b][i], v.returns[b][i] = poison, poison, poison
						v.value[b][i], v.oldValue[b][i] = poison, poison
					}
					if !counts {
						v.weight[b], v.reward[b], v.mean[b] = poison, poison, poison
					}
				}
				got := p.run(v)
				if got.loss != want.loss || got.sums != want.sums {
					t.Errorf("poison %g: loss %g, want %g; sums %v, want %v", poison, got.loss, want.loss,
						got.sums, want.sums)
				}
				if !slices.Equal(got.rows, want.rows) {
					t.Errorf("poison %g: rows %v, want %v", poison, got.rows, want.rows)
				}
				sameGradient(t, got.gradient, want.gradient, 1, 0)
				sameGradient(t, [][][]float64{got.critic}, [][][]float64{want.critic}, 1, 0)
			}
		})
	}
}

func TestABatchOfWhichNothingIsKeptHasNoGradient(t *testing.T) {
	for name, o := range combinations() {
		p := compile(t, o)
		v := randomValues(6)
		v.keep = make([]float64, rows)
		v.nRollouts, v.nToks = 0, 0
		r := p.run(v)
		sameGradient(t, r.gradient, r.gradient, 0, 0)
		if r.loss != 0 || len(r.metrics) != 2 || r.metrics["tokens"] != 0 {
			t.Errorf("%s: loss %g, metrics %v", name, r.loss, r.metrics)
		}
	}
}

func TestRatiosBeyondTheBoundAreHeldAndCounted(t *testing.T) {
	for _, ratio := range []Ratio{TokenRatio, SequenceRatio} {
		p := compile(t, GRPO{Ratio: ratio})
		v := randomValues(7)
		tokens := 0.0
		for b := range rows {
			for i := range width {
				v.behaviour[b][i], v.advantage[b][i] = -1000, -1
				if v.keep[b] != 0 {
					tokens += v.mask[b][i]
				}
			}
		}
		r := p.run(v)
		if r.metrics["ratio_clamped"] != tokens || !near(r.metrics["max_ratio"], math.Exp(20), 1e-12) {
			t.Errorf("%s: %g of %g tokens held, largest ratio %g", ratio, r.metrics["ratio_clamped"], tokens,
				r.metrics["max_ratio"])
		}
		sameGradient(t, r.gradient, r.gradient, 0, 0)
		if math.IsInf(r.loss, 0) || r.loss < 1e6 {
			t.Errorf("%s: loss %g, want large and finite", ratio, r.loss)
		}
	}
}
