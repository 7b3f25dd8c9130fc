package policy

import (
	"context"
	"math"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// armPolicy returns the log-probs of tokens 0, 1 and 2 after the prompt, token 3, and the critic's value there.
func armPolicy(t *testing.T, l *Learner) (logprobs [4]float64, value float64) {
	t.Helper()
	scores, err := l.model.Score(context.Background(), l.Weights(), Plain([]int32{3, 0}, []int32{3, 1}, []int32{3, 2}, []int32{3, 3}), 1)
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range scores {
		logprobs[k] = float64(s.Logprobs[1])
	}
	return logprobs, float64(scores[0].Values[1])
}

// The task: a prompt of one token, an answer of one token, rewards 1, 0.6 and 0 for tokens 0, 1 and 2, and 0 for the prompt's.
// The policy draws 32 answers, learns from each batch twice and draws again.
func TestALearnerOfEveryMethodFindsTheBestAnswer(t *testing.T) {
	rewards := [4]float32{1, 0.6, 0, 0}
	m := newTestModel(t, hf.Config{ModelType: hf.Llama, VocabSize: 4, HiddenSize: 8, IntermediateSize: 12, NumHiddenLayers: 1,
		NumAttentionHeads: 2, NumKeyValueHeads: 1, MaxPositionEmbeddings: 4, TieWordEmbeddings: true, ValueHead: true,
		BOSTokenID: hf.NoToken, PadTokenID: hf.NoToken})
	w, err := m.Initial(80)
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range objective.Methods() {
		t.Run(method.Name, func(t *testing.T) {
			kind := advantage.Kind(method.Advantages[0])
			o := Learning{Advantage: kind, Updates: 2, Optimizer: Adam{LearningRate: 1e-2}}
			switch method.Name {
			case "grpo":
				o.Objective = objective.GRPO{}
			case "grpo_off":
				o.Objective = objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.02}
				o.Reference = Reference{Every: 10}
			case "asymre":
				o.Objective = objective.AsymRE{}
			case "ppo":
				o.Objective = objective.PPO{ValueCoef: 0.5}
			case "dr_grpo":
				o.Objective = objective.GRPO{Method: method.Name, ConstantLength: 1}
			default:
				o.Objective = objective.GRPO{Method: method.Name}
			}
			if kind.UsesBatch() {
				o.KLPenalty, o.Reference = 0.02, Reference{Every: 10}
			}
			l := newTestLearner(t, m, w, o)
			rng := rollout.Stream(81, "test/answers", 0)
			for range 60 {
				logprobs, _ := armPolicy(t, l)
				batch, drawn := &rollout.Batch{}, make([]float32, 32)
				for i := range drawn {
					arm, u := 0, rng.Float64()
					for ; arm < 3 && u >= math.Exp(logprobs[arm]); arm++ {
						u -= math.Exp(logprobs[arm])
					}
					drawn[i] = rewards[arm]
					batch.Draws = append(batch.Draws, rollout.Draw{Weight: 1, Rollout: &rollout.Rollout{Tokens: []int32{3, int32(arm)}, Mask: []uint8{0, 1},
						Logprobs: []float32{0, float32(logprobs[arm])}, Temperature: 1, Reward: rewards[arm]}})
				}
				moments := advantage.MomentsOf(drawn)
				if kind.GroupRelative() {
					advantage.OfGroup(drawn, drawn, kind)
				}
				for i := range batch.Draws {
					d := &batch.Draws[i]
					d.Advantage, d.GroupMean, d.GroupStd = drawn[i], float32(moments.Mean), float32(moments.Std())
				}
				step(t, l, batch)
				step(t, l, batch)
			}
			logprobs, value := armPolicy(t, l)
			expected := 0.0
			for k, r := range rewards {
				expected += float64(r) * math.Exp(logprobs[k])
			}
			if expected < 0.95 {
				t.Errorf("the policy's log-probs are %.3f, its reward %.3f: want 0.95 of the best answer's 1", logprobs, expected)
			}
			if method.Critic && math.Abs(value-1) > 0.25 {
				t.Errorf("the critic expects %.3f of a policy with reward %.3f", value, expected)
			}
		})
	}
}
