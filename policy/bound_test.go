package policy

import (
	"math"
	"testing"

	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
)

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
	for key, want := range map[string]float64{"bound": -0.825 - 0.575 - 0.125, "bound_gain": -0.825, "bound_tv": 0.55 / 4, "bound_tv_start": 0.25 / 4} {
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
			logprobs, _ := r.said(d.Rollout)
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
func nearby(policy *reference, batches []*rollout.Batch) {
	rng := rollout.Stream(53, "test/nearby", 0)
	for i, d := range allDraws(batches) {
		logprobs, _ := policy.said(d.Rollout)
		r := *d.Rollout
		r.Logprobs = make([]float32, len(r.Tokens))
		for j, m := range r.Mask {
			r.Logprobs[j] = float32(m) * (float32(logprobs[j]) + 0.4*rng.Float32() - 0.2)
		}
		batches[i/7].Draws[i%7].Rollout = &r
	}
}

func TestTheBoundAgreesWithThePlainComputation(t *testing.T) {
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
				nearby(at[0], batches)
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
				t.Errorf("%+v, step %d: bound_tv_start is %v, of the policy at another step %v: the test shows little", tc, n+1, want["bound_tv_start"], other)
			}
		}
	}
}

func TestWithoutRewardsThatDifferThereIsNoBound(t *testing.T) {
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
