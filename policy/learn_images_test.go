package policy

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// imageBatch makes rollouts of images, text and four tokens of the policy, the second of which may be the token that stands
// for a patch.
func imageBatch(m *Model, seed uint64, n int) *rollout.Batch {
	rng, b := rollout.Stream(seed, "test/images", 0), &rollout.Batch{}
	for i := range n {
		in := randomInput(m.config, rng, 1+rng.IntN(4), 1+i%2)
		r := &rollout.Rollout{Tokens: in.Tokens, Images: in.Images, Temperature: 1.1, Reward: rng.Float32()}
		r.Mask = make([]uint8, len(in.Tokens), len(in.Tokens)+4)
		r.Logprobs = make([]float32, len(in.Tokens), len(in.Tokens)+4)
		for k := range 4 {
			token := rng.Int32N(int32(m.config.VocabSize))
			if k == 1 && i == 0 {
				token = int32(m.config.Vision.ImageTokenID)
			}
			r.Tokens, r.Mask, r.Logprobs = append(r.Tokens, token), append(r.Mask, 1), append(r.Logprobs, -2-rng.Float32())
		}
		b.Draws = append(b.Draws, rollout.Draw{Rollout: r, Weight: 0.5 + rng.Float32(), Advantage: 2*rng.Float32() - 1, GroupStd: 1})
	}
	return b
}

// The losses of all kinds of learners, so that forward passes before the gradient see the images too.
func TestALearnersGradientsReachTheTower(t *testing.T) {
	m := newTestModel(t, seeing())
	w := randomWeights(t, m, 40)
	for name, o := range map[string]Learning{
		"grpo":     {Objective: objective.GRPO{}},
		"ppo":      {Objective: objective.PPO{}, Advantage: advantage.Critic, PassElements: 2 * 16 * m.config.VocabSize},
		"grpo_off": {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.3}, Updates: 2},
	} {
		t.Run(name, func(t *testing.T) {
			o.Optimizer = Adam{LearningRate: 2e-3, ClipNorm: -1}
			l := newTestLearner(t, m, w, o)
			step(t, l, imageBatch(m, 41, 5))
			batch := imageBatch(m, 41, 5)
			shards, before := prepared(t, l, []*rollout.Batch{batch}), state(t, l)
			ref, err := newReference(m.config, l.Weights())
			if err != nil {
				t.Fatal(err)
			}
			near(t, "loss", float32(step(t, l, batch)["loss"]), plainLoss(ref, o.Objective, shards), 1e-4)
			after, rng, largest := state(t, l), rollout.Stream(42, "test/differences", 0), 0.0
			for i, s := range m.config.Specs() {
				if !strings.HasPrefix(s.Name, "vision_tower.") && !strings.HasPrefix(s.Name, "multi_modal_projector.") {
					continue
				}
				at, values := rng.IntN(size(s.Shape)), ref.weight[s.Name]
				kept := values[at]
				const h = 1.0 / 65536
				values[at] = kept + h
				up, high := plainLoss(ref, o.Objective, shards), values[at]
				values[at] = kept - h
				down, low := plainLoss(ref, o.Objective, shards), values[at]
				values[at] = kept
				want := (up - down) / (float64(high) - float64(low))
				got := (float64(after.First[i][at]) - 0.9*float64(before.First[i][at])) / 0.1
				if math.Abs(got-want) > 3e-3*max(math.Abs(want), 0.02) {
					t.Errorf("%s[%d]: gradient %v, finite differences say %v", s.Name, at, got, want)
				}
				largest = max(largest, math.Abs(want))
			}
			if largest < 1e-3 {
				t.Errorf("the largest gradient of the tower is %g: nothing was tested", largest)
			}
		})
	}
}

// Two pictures, a token for each: without seeing them nothing is better than a guess, log 2.
func TestALearnerLearnsWhatAPictureShows(t *testing.T) {
	m := newTestModel(t, seeing())
	w, err := m.Initial(43)
	if err != nil {
		t.Fatal(err)
	}
	batch := &rollout.Batch{}
	for i := range 8 {
		shown := uint8(250 * (i % 2))
		r := &rollout.Rollout{Temperature: 1, Images: [][]byte{picture(m.config.Vision.ImageSize, func() uint8 { return shown })}}
		for range m.config.Vision.Tokens() {
			r.Tokens = append(r.Tokens, int32(m.config.Vision.ImageTokenID))
		}
		r.Tokens = append(r.Tokens, 3, int32(5+i%2))
		r.Mask = make([]uint8, len(r.Tokens))
		r.Mask[len(r.Tokens)-1] = 1
		r.Logprobs = make([]float32, len(r.Tokens))
		batch.Draws = append(batch.Draws, rollout.Draw{Rollout: r, Weight: 1})
	}
	l := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}})
	var nll float64
	for range 60 {
		nll = step(t, l, batch)["nll"]
	}
	if nll > 0.1*math.Ln2 {
		t.Errorf("-log pi of the pictures' tokens is %v, want less than a tenth of log 2", nll)
	}
}

func TestARolloutWhoseImagesDoNotFitIsRefusedByItsID(t *testing.T) {
	m := newTestModel(t, seeing())
	w := randomWeights(t, m, 44)
	l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}})
	batch := imageBatch(m, 45, 3)
	batch.Draws[2].ID = 77
	batch.Draws[2].Rollout.Images = nil
	if _, err := l.Step(context.Background(), []*rollout.Batch{batch}); err == nil || !strings.Contains(err.Error(), "rollout 77: token 0 is an image's") {
		t.Errorf("error %v", err)
	}
}
