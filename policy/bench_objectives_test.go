package policy

import (
	"testing"
	"time"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// What the forward passes and inputs of further objectives cost: a step of each over one of grpo, in turn.
func BenchmarkObjectives(b *testing.B) {
	for name, o := range map[string]Learning{
		"grpo_off":     {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact}},
		"grpo_off_kl":  {Objective: objective.OffPolicyGRPO{KLCoef: 0.1}, Reference: Reference{Every: 10}},
		"grpo_off_4":   {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.1}, Updates: 4},
		"filter":       {Objective: objective.GRPO{}, MaxLogRatio: 3},
		"ppo":          {Objective: objective.PPO{}, Advantage: advantage.Critic},
		"ppo_stored":   {Objective: objective.PPO{}, Advantage: advantage.Critic, StoredValues: true},
		"bound_each":   {Objective: objective.GRPO{}, BoundEvery: 1},
		"grpo_as_self": {Objective: objective.GRPO{}},
	} {
		b.Run(name, func(b *testing.B) {
			c := benchmarkModel()
			c.ValueHead = true
			m := newTestModel(b, c)
			w, err := m.Initial(1)
			if err != nil {
				b.Fatal(err)
			}
			batches := []*rollout.Batch{benchmarkBatch(c, 1, 32, 33), benchmarkBatch(c, 2, 32, 33)}
			for i, d := range allDraws(batches) {
				d.Rollout.Reward, d.Rollout.Values = float32(i%2), make([]float32, len(d.Rollout.Tokens))
			}
			learners, spent := [2]*Learner{}, [2]time.Duration{}
			for i, o := range []Learning{{Objective: objective.GRPO{}}, o} {
				learners[i] = newTestLearner(b, m, w, o)
				step(b, learners[i], batches...) // compiles
			}
			step(b, learners[1], batches...) // compiles with a reference policy of its own
			for b.Loop() {
				for i, l := range learners {
					began := time.Now()
					step(b, l, batches...)
					spent[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "x-grpo")
		})
	}
}
