package policy

import (
	"context"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// bitsOf are feedback to the last bit.
func feedbackBits(list []rollout.Feedback) (all [][8]uint64) {
	for _, f := range list {
		b := [8]uint64{uint64(f.ID), uint64(f.Staleness)}
		for i, v := range []float64{f.Advantage.Value, f.TDError.Value, f.GradNorm.Value, f.Tokens, f.RatioSum,
			f.RatioSquares} {
			b[2+i] = math.Float64bits(v)
		}
		all = append(all, b)
	}
	return all
}

// closeTo compares to float32's rounding, relative to want or to 1.
func closeTo(t *testing.T, what string, id rollout.ID, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*max(math.Abs(want), 1)) {
		t.Errorf("rollout %d: %s %v, the plain computation says %v", id, what, got, want)
	}
}

// twoBatches are those of two trainers, 12 draws together: rollouts of 3 to 11 tokens with ids, staleness, weights and
// ratios of their own. Draw 1 has an advantage for each token and draw 4 ratios that are held; draws 2 and 9 are of
// groups that MaskZeroVariance takes out, and draw 11 is of the rollout of draw 0.
func twoBatches(ref *reference) []*rollout.Batch {
	b := randomBatch(ref.Config, 31, 12)
	b.Draws[11].Rollout = b.Draws[0].Rollout
	for i := range b.Draws {
		d := &b.Draws[i]
		d.ID, d.Staleness = rollout.ID(100-7*i), int32(i*i)
		logprobs, _ := ref.score(d.Rollout.Tokens, d.Rollout.SamplingMask, float64(d.Rollout.Temperature))
		for j, m := range d.Rollout.Mask { // close to the policy's, so that clips decide some terms and not others
			d.Rollout.Logprobs[j] = float32(m) * float32(logprobs[j]+0.5*math.Sin(float64(3*i+j)))
		}
	}
	b.Draws[11].ID = b.Draws[0].ID
	per := b.Draws[1].Rollout
	for j := range per.Tokens {
		per.Advantages = append(per.Advantages, float32(math.Cos(float64(j))))
	}
	for j, m := range b.Draws[4].Rollout.Mask {
		b.Draws[4].Rollout.Logprobs[j] = -90 * float32(m)
	}
	b.Draws[2].GroupStd, b.Draws[9].GroupStd = 0, 0
	return []*rollout.Batch{{Draws: b.Draws[:7]}, {Draws: b.Draws[7:]}}
}

func allDraws(batches []*rollout.Batch) (all []rollout.Draw) {
	for _, b := range batches {
		all = append(all, b.Draws...)
	}
	return all
}

// plainFeedback is the definition of feedback in loops; without the gradient norm.
func plainFeedback(r *reference, d rollout.Draw, masked bool) rollout.Feedback {
	f := rollout.Feedback{ID: d.ID, Staleness: d.Staleness}
	logprobs, _ := r.score(d.Rollout.Tokens, d.Rollout.SamplingMask, float64(d.Rollout.Temperature))
	for j, m := range d.Rollout.Mask {
		if m == 0 || masked {
			continue
		}
		rho := math.Exp(min(max(logprobs[j]-float64(d.Rollout.Logprobs[j]), -20), 20))
		f.Tokens++
		f.RatioSum += rho
		f.RatioSquares += rho * rho
		f.Advantage.Value += math.Abs(float64(advantageAt(d, j)))
	}
	f.Advantage.Value /= max(f.Tokens, 1)
	return f
}

func advantageAt(d rollout.Draw, j int) float32 {
	if d.Rollout.Advantages != nil {
		return d.Rollout.Advantages[j]
	}
	return d.Advantage
}

func TestFeedbackAgreesWithThePlainComputationInTheOrderOfTheDraws(t *testing.T) {
	c := architectures()["grouped queries"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 30)
	ref, err := newReference(c, w)
	if err != nil {
		t.Fatal(err)
	}
	for name, passElements := range map[string]int{"one pass": 0, "passes of 2 and 3 rows": 2 * 16 * c.VocabSize,
		"a row at a time": 1} {
		for _, mask := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				batches := twoBatches(ref)
				l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}, MaskZeroVariance: mask,
					PassElements: passElements})
				got := measure(t, l, batches...)
				all := allDraws(batches)
				if len(got.Feedback) != len(all) {
					t.Fatalf("%d entries for %d draws", len(got.Feedback), len(all))
				}
				var total rollout.Feedback
				rollouts := 0.0
				for i, f := range got.Feedback {
					want := plainFeedback(ref, all[i], mask && all[i].GroupStd == 0)
					if f.ID != want.ID || f.Staleness != want.Staleness || f.Tokens != want.Tokens {
						t.Errorf("draw %d: got %+v, want %+v", i, f, want)
					}
					closeTo(t, "advantage", f.ID, f.Advantage.Value, want.Advantage.Value, 1e-6)
					closeTo(t, "sum of ratios", f.ID, f.RatioSum, want.RatioSum, 1e-4)
					closeTo(t, "sum of squared ratios", f.ID, f.RatioSquares, want.RatioSquares, 1e-4)
					if !f.Advantage.Known || f.TDError.Known || f.GradNorm.Known {
						t.Errorf("draw %d: %+v was not asked for", i, f)
					}
					total.Advantage.Value += f.Advantage.Value
					total.Tokens += f.Tokens
					total.RatioSum += f.RatioSum
					total.RatioSquares += f.RatioSquares
					rollouts += min(f.Tokens, 1)
				}
				for key, value := range map[string]float64{"tokens": total.Tokens,
					"mean_ratio":    total.RatioSum / total.Tokens,
					"abs_advantage": total.Advantage.Value / rollouts,
					"ess":           total.RatioSum * total.RatioSum / (total.Tokens * total.RatioSquares)} {
					if math.Abs(got.Metrics[key]-value) > 1e-6*value {
						t.Errorf("%s is %v, the feedback adds up to %v", key, got.Metrics[key], value)
					}
				}
			})
		}
	}
}

// lossOfLogits is a draw's l in L = 1/N sum w l (see Learning.LogitGradients), as a function of logits [L][V].
func lossOfLogits(o objective.Objective, d rollout.Draw, logits [][]float64, meanTokens float64) float64 {
	var sum, n float64
	for j, m := range d.Rollout.Mask {
		if m == 0 {
			continue
		}
		n++
		var partition float64
		for _, z := range logits[j-1] {
			partition += math.Exp(z / float64(d.Rollout.Temperature))
		}
		logprob := logits[j-1][d.Rollout.Tokens[j]]/float64(d.Rollout.Temperature) - math.Log(partition)
		switch o.(type) {
		case objective.GRPO:
			r, a := math.Exp(min(max(logprob-float64(d.Rollout.Logprobs[j]), -20), 20)), float64(advantageAt(d, j))
			sum -= min(r*a, min(max(r, 0.8), 1.2)*a)
		case objective.AsymRE:
			sum -= (float64(d.Rollout.Reward-d.GroupMean) + 0.1) * logprob
		case objective.RAFT:
			sum -= float64(max(d.Rollout.Reward, 0)) * logprob
		default:
			sum -= logprob
		}
	}
	if g, ok := o.(objective.GRPO); ok && g.Normalisation == objective.PerToken {
		return sum / meanTokens
	}
	switch o.(type) {
	case objective.AsymRE, objective.RAFT:
		return sum
	}
	return sum / n
}

// differencesNorm is the norm of the gradient of lossOfLogits by central differences in float64.
func differencesNorm(o objective.Objective, d rollout.Draw, logits [][]float64, meanTokens float64) float64 {
	const h = 1e-5
	var squares float64
	for _, row := range logits {
		for k, z := range row {
			row[k] = z + h
			up := lossOfLogits(o, d, logits, meanTokens)
			row[k] = z - h
			down := lossOfLogits(o, d, logits, meanTokens)
			row[k] = z
			squares += (up - down) * (up - down) / (4 * h * h)
		}
	}
	return math.Sqrt(squares)
}

func TestGradientNormsAgreeWithFiniteDifferencesOfTheLogits(t *testing.T) {
	tests.OneGoroutine(t)
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 33)
	ref, err := newReference(c, w)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Learning{
		"grpo":        {Objective: objective.GRPO{}, PassElements: 2 * 16 * c.VocabSize},
		"grpo, masks": {Objective: objective.GRPO{}, MaskZeroVariance: true},
		"grpo, in N":  {Objective: objective.GRPO{}, MaskZeroVariance: true, MaskedInDenominator: true},
		"grpo, by token": {Objective: objective.GRPO{Normalisation: objective.PerToken}, MaskZeroVariance: true,
			PassElements: 1},
		"asymre": {Objective: objective.AsymRE{}},
		"raft":   {Objective: objective.RAFT{}},
		"sft":    {Objective: objective.SFT{}},
	} {
		t.Run(name, func(t *testing.T) {
			batches := twoBatches(ref)
			all := allDraws(batches)
			all[5].Weight, batches[0].Draws[5].Weight = 1e-20, 1e-20 // its square is 0 in float32
			var rollouts, tokens float64
			for _, d := range all {
				if d.GroupStd > 0 || !o.MaskZeroVariance || o.MaskedInDenominator {
					rollouts++
					tokens += float64(countPolicyTokens(d.Rollout))
				}
			}
			o.LogitGradients = true
			for i, f := range measure(t, newTestLearner(t, m, w, o), batches...).Feedback {
				want := differencesNorm(o.Objective, all[i], ref.logits(all[i].Rollout.Tokens), tokens/rollouts)
				if o.MaskZeroVariance && all[i].GroupStd == 0 {
					want = 0
				}
				if !(math.Abs(f.GradNorm.Value-want) <= 1e-4*want) {
					t.Errorf("draw %d: gradient norm %v, finite differences say %v", i, f.GradNorm.Value, want)
				}
			}
		})
	}
}

// The norm of a rollout depends neither on the other draws nor on its weight.
func TestAGradientNormDependsOnItsRolloutAlone(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w, batch := randomWeights(t, m, 34), randomBatch(c, 35, 9)
	norms := func(batches ...*rollout.Batch) (norms []float64) {
		l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}, LogitGradients: true})
		for _, f := range measure(t, l, batches...).Feedback {
			if !f.GradNorm.Known {
				f.GradNorm.Value = math.NaN()
			}
			norms = append(norms, f.GradNorm.Value)
		}
		return norms
	}
	together, clipped := norms(batch), 0
	for i, d := range batch.Draws {
		d.Weight = 1 / float32(i+3)
		if alone := norms(&rollout.Batch{Draws: []rollout.Draw{d}})[0]; !(math.Abs(alone-together[i]) <= 1e-5*together[i]) {
			t.Errorf("draw %d: norm %v alone, %v among others", i, alone, together[i])
		}
		if together[i] == 0 {
			clipped++
		}
	}
	if clipped > 4 {
		t.Errorf("%d of 9 norms are 0: nothing was tested", clipped)
	}
	batch.Draws[3].Weight = 0
	got := norms(batch)
	if !math.IsNaN(got[3]) || math.IsNaN(got[2]+got[4]) {
		t.Errorf("weight 0 gives norm %v, want NaN there only", got)
	}
}

func TestGradientNormsChangeNothingElse(t *testing.T) {
	c := architectures()["qwen2"]
	m := newTestModel(t, c)
	var want []any
	for _, asked := range []bool{false, true} {
		l := newTestLearner(t, m, randomWeights(t, m, 36), Learning{Objective: objective.GRPO{}, LogitGradients: asked})
		measured := measure(t, l, randomBatch(c, 37, 6), randomBatch(c, 38, 5))
		for i, f := range measured.Feedback {
			if f.GradNorm.Known != asked {
				t.Errorf("asked %v: draw %d has norm %v", asked, i, f.GradNorm)
			}
			measured.Feedback[i].GradNorm = rollout.Measurement{}
		}
		got := []any{measured.Metrics, feedbackBits(measured.Feedback), state(t, l)}
		if want == nil {
			want = got
		} else if !reflect.DeepEqual(got, want) {
			t.Error("a step has other bits when norms are asked for")
		}
	}
}

func TestPaddingRowsHaveNoFeedback(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	l := newTestLearner(t, m, randomWeights(t, m, 39), Learning{Objective: objective.GRPO{}, LogitGradients: true})
	list := randomBatch(c, 40, 5).Draws
	run := func(rows int) shardGradient {
		p := m.newPass(rows, 16)
		p.draws, p.at, p.rollouts, p.policyTokens = list[:3], []int{0, 1, 2}, 3, 20
		for i, d := range p.draws {
			if err := p.set(i, d, true); err != nil {
				t.Fatal(err)
			}
		}
		other := m.newPass(2, 16)
		other.draws, other.at, other.rollouts, other.policyTokens = list[3:], []int{3, 4}, 3, 20
		for i, d := range other.draws {
			if err := other.set(i, d, true); err != nil {
				t.Fatal(err)
			}
		}
		r, err := l.shardGradient(context.Background(), []pass{p, other}, list)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want, got := run(3), run(6)
	if len(got.feedback) != 5 || !slices.Equal(feedbackBits(got.feedback), feedbackBits(want.feedback)) {
		t.Errorf("with padding rows %+v, without %+v", got.feedback, want.feedback)
	}
}

func TestWeightsAndFreshDrawsOfABatchAreMeasured(t *testing.T) {
	batch := func(weights ...float32) *rollout.Batch {
		b := &rollout.Batch{}
		for i, w := range weights {
			b.Draws = append(b.Draws, rollout.Draw{Rollout: &rollout.Rollout{Mask: []uint8{0, 1, 1}}, Weight: w,
				Fresh: i == 0})
		}
		return b
	}
	for _, tc := range []struct {
		batches []*rollout.Batch
		want    map[string]float64
	}{
		// 2/4; 4/(4*(1 + 0.25 + 2*0.0625)); two first draws of four
		{[]*rollout.Batch{batch(1, 0.25), batch(0.25, 0.5)}, map[string]float64{"weight_mean": 0.5, "weight_min": 0.25,
			"weight_ess": 4 / 5.5, "fresh_share": 0.5}},
		{[]*rollout.Batch{batch(1, 1, 1, 1, 1)}, map[string]float64{"weight_mean": 1, "weight_min": 1, "weight_ess": 1,
			"fresh_share": 0.2}},
		{[]*rollout.Batch{batch(0, 0)}, map[string]float64{"weight_mean": 0, "weight_min": 0, "fresh_share": 0.5}},
	} {
		got := map[string]float64{}
		measureBatches(got, tc.batches)
		if got["zero_variance"] != 1 || got["response_length"] != 2 {
			t.Errorf("measured %v", got)
		}
		delete(got, "zero_variance")
		delete(got, "response_length")
		if len(got) != len(tc.want) {
			t.Errorf("measured %v, want %v", got, tc.want)
		}
		for key, want := range tc.want {
			if math.Abs(got[key]-want) > 1e-12 {
				t.Errorf("%s is %v, want %v", key, got[key], want)
			}
		}
	}
	for n := range 100 { // of some numbers of them the sums round up
		w := make([]float32, n+1)
		for i := range w {
			w[i] = 0.1
		}
		got := map[string]float64{}
		if measureBatches(got, []*rollout.Batch{batch(w...)}); got["weight_ess"] > 1 {
			t.Errorf("weight_ess %v of %d equal weights", got["weight_ess"], n+1)
		}
	}
}

// boundKeys are the metrics of the bound.
func boundKeys() []string {
	return []string{"bound", "bound_gain", "bound_tv", "bound_tv_start", "bound_scale"}
}

// Two rollouts of weights 1 and 3, sigma 1/2 and 1/4:
//
//	rho   rho_k   A    rho A   (1-sigma)/sigma   TV(pi, b)   TV(pi_k, b)
//	1.5   0.5     1    1.5     1                 0.25        0.25
//	0.8   1       -2   -1.6    3                 0.1         0
//
// L = (1.5 - 4.8)/4 = -0.825; 2 (1*0.25 + 3*3*0.1)/4 = 0.575; 2*0.25/4 = 0.125.
func TestTheBoundOfTwoRolloutsWorkedOutByHand(t *testing.T) {
	var total boundSums
	total.add(1, boundTerm{ratio: 1.5, start: 0.5, advantage: 1, sigma: 0.5})
	total.add(3, boundTerm{ratio: 0.8, start: 1, advantage: -2, sigma: 0.25})
	got := map[string]float64{}
	total.put(got)
	for key, want := range map[string]float64{"bound": -0.825 - 0.575 - 0.125, "bound_gain": -0.825,
		"bound_tv": 0.55 / 4, "bound_tv_start": 0.25 / 4} {
		if math.Abs(got[key]-want) > 1e-12 {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

// plainBound is [OG] theorem 1 in loops, as METHODS section 5 has it, with the references' log-probs.
func plainBound(now, then *reference, draws []rollout.Draw) map[string]float64 {
	least, greatest := math.Inf(1), math.Inf(-1)
	for _, d := range draws {
		least, greatest = min(least, float64(d.Rollout.Reward)), max(greatest, float64(d.Rollout.Reward))
	}
	scaled := func(r float32) float64 { return (float64(r) - least) / (greatest - least) }
	var weights, gain, bound, tv, tvStart float64
	for _, d := range draws {
		if d.GroupStd == 0 {
			continue
		}
		ratio := func(r *reference) float64 {
			logprobs, _ := r.predict(d.Rollout)
			product := 1.0
			for j, m := range d.Rollout.Mask {
				if m == 1 {
					product *= math.Exp(logprobs[j] - float64(d.Rollout.Logprobs[j]))
				}
			}
			return min(max(product, math.Exp(-20)), math.Exp(20))
		}
		std := float64(d.GroupStd) / (greatest - least)
		sigma := math.Sqrt(std*std + 1e-8)
		a := (scaled(d.Rollout.Reward) - scaled(d.GroupMean)) / sigma
		w, rho, start := float64(d.Weight), ratio(now), ratio(then)
		weights += w
		gain += w * rho * a
		tv += w * math.Abs(rho-1) / 2
		tvStart += w * math.Abs(start-1) / 2
		bound += w * (rho*a - 2*(1-sigma)/sigma*math.Abs(rho-1)/2 - 2*math.Abs(start-1)/2)
	}
	return map[string]float64{"bound": bound / weights, "bound_gain": gain / weights, "bound_tv": tv / weights,
		"bound_tv_start": tvStart / weights, "bound_scale": greatest - least}
}

// nearby gives rollouts behaviour log-probs within 0.2 of a policy's, so that no ratio swamps the others.
func nearPolicy(policy *reference, batches []*rollout.Batch) {
	rng := rollout.Stream(53, "test/nearby", 0)
	for i, d := range allDraws(batches) {
		logprobs, _ := policy.predict(d.Rollout)
		r := *d.Rollout
		r.Logprobs = make([]float32, len(r.Tokens))
		for j, m := range r.Mask {
			r.Logprobs[j] = float32(m) * (float32(logprobs[j]) + 0.4*rng.Float32() - 0.2)
		}
		batches[i/7].Draws[i%7].Rollout = &r
	}
}

func TestTheBoundAgreesWithThePlainComputation(t *testing.T) {
	tests.Long(t)
	m := newTestModel(t, architectures()["tied"])
	w := randomWeights(t, m, 50)
	references := func(l *Learner) *reference {
		ref, err := newReference(m.config, l.Weights())
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	for _, tc := range []struct {
		updates int
		far     bool // the log-ratios of some rollouts are beyond 20 nats
	}{{1, false}, {2, false}, {1, true}} {
		l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}, Updates: tc.updates, BoundEvery: 2,
			PassElements: 3 * 12 * m.config.VocabSize, Optimizer: Adam{LearningRate: 1e-3}})
		var at []*reference
		for n := range 4 {
			at = append(at, references(l))
			batches := twoBatches(at[0])
			if !tc.far {
				nearPolicy(at[0], batches)
			}
			for i := range allDraws(batches) {
				d := &batches[i/7].Draws[i%7]
				d.GroupMean = d.Rollout.Reward * float32(0.4+0.1*float64(i%5))
				if d.GroupStd > 0 {
					d.GroupStd = 0.1 + 0.02*float32(i)
				}
			}
			got := step(t, l, batches...)
			if n%2 == 0 {
				for _, key := range boundKeys() {
					if v, ok := got[key]; ok {
						t.Errorf("step %d: %s is %v: want it after every second step only", n+1, key, v)
					}
				}
				continue
			}
			want := plainBound(references(l), at[n+1-tc.updates], allDraws(batches))
			for _, key := range boundKeys() {
				if math.Abs(got[key]-want[key]) > 2e-4*max(math.Abs(want[key]), 1) || got[key] == 0 {
					t.Errorf("%+v, step %d: %s is %v, the plain computation says %v", tc, n+1, key, got[key], want[key])
				}
			}
			other := plainBound(references(l), at[n-2+tc.updates], allDraws(batches))["bound_tv_start"]
			if !tc.far && math.Abs(other-want["bound_tv_start"]) < 2e-3 {
				t.Errorf("%+v, step %d: bound_tv_start is %v, of the policy at another step %v: the test shows little",
					tc, n+1, want["bound_tv_start"], other)
			}
		}
	}
}

func TestEqualRewardsGiveNoBound(t *testing.T) {
	m := newTestModel(t, architectures()["tied"])
	w := randomWeights(t, m, 51)
	for name, change := range map[string]func(*rollout.Draw){
		"one reward":        func(d *rollout.Draw) { d.Rollout.Reward = 0.5 },
		"no group of two":   func(d *rollout.Draw) { d.GroupStd = 0 },
		"weights all of 0 ": func(d *rollout.Draw) { d.Weight = 0 },
	} {
		batch := randomBatch(m.config, 52, 5)
		for i := range batch.Draws {
			change(&batch.Draws[i])
		}
		got := step(t, newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}, BoundEvery: 1}), batch)
		for _, key := range boundKeys() {
			if v, ok := got[key]; ok {
				t.Errorf("%s: %s is %v", name, key, v)
			}
		}
	}
}
