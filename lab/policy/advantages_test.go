package policy

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// withCritic is an architecture with a critic.
func withCritic() hf.Config {
	c := architectures()["grouped queries"]
	c.ValueHead = true
	return c
}

// predict returns the reference computation's log-probs and values of a rollout's tokens.
func (r *reference) predict(of *rollout.Rollout) (logprobs, values []float64) {
	logprobs, values = make([]float64, len(of.Tokens)), make([]float64, len(of.Tokens))
	hidden := r.hidden(Input{Tokens: of.Tokens, Mask: of.Mask, Images: of.Images})
	for j := 1; j < len(of.Tokens); j++ {
		logprobs[j] = logSoftmax(r.head(hidden[j-1]), float64(of.Temperature))[of.Tokens[j]]
		if r.ValueHead {
			values[j] = r.linear(hidden[j-1], "v_head.summary")[0]
		}
	}
	return logprobs, values
}

// episodes are the draws of two trainers with rewards, groups and turns: draw 3 has two turns with a prompt of the
// environment between and rewards of their own, draw 4 has values stored at generation as all others.
func criticBatches(t testing.TB, m *Model, w *Weights) []*rollout.Batch {
	t.Helper()
	ref, err := newReference(m.config, w)
	if err != nil {
		t.Fatal(err)
	}
	batches := twoBatches(ref)
	rng := rollout.Stream(61, "test/values", 0)
	for i, d := range allDraws(batches) {
		r := d.Rollout
		r.Advantages, r.Values = nil, nil
		for range r.Tokens {
			r.Values = append(r.Values, float32(rng.NormFloat64()))
		}
		if i == 4 { // its ratios are beyond all bounds
			for j, m := range r.Mask {
				r.Logprobs[j] = -3 * float32(m)
			}
		}
		batches[i/7].Draws[i%7].GroupMean = rng.Float32()
	}
	turns := &rollout.Rollout{Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, Mask: []uint8{0, 0, 1, 1, 0, 0, 1, 1, 1},
		Temperature: 1, Reward: 9,
		Logprobs: []float32{0, 0, -2, -3, 0, 0, -4, -3, -2}, Values: []float32{0, 0, 0.5, 0.25, 0, 0, -0.5, 1, 0.75},
		Turns: []rollout.Turn{{Start: 2, End: 4, Reward: -1}, {Start: 6, End: 9, Reward: 2, Done: true}}}
	batches[0].Draws[3].Rollout = turns
	return batches
}

// plainEstimate is GAE as METHODS section 5 has it, as a sum over the policy's tokens: advantages by token of the
// policy, and the mean of |delta|.
func plainEstimate(r *rollout.Rollout, values []float64, gamma, lambda float64) (advantages map[int]float64,
	tdError float64) {
	var at []int
	for j, m := range r.Mask {
		if m == 1 {
			at = append(at, j)
		}
	}
	delta := make([]float64, len(at))
	for k, j := range at {
		delta[k] = -values[j]
		if k+1 < len(at) {
			delta[k] += gamma * values[at[k+1]]
		}
		for _, turn := range r.Turns {
			if j == int(turn.End)-1 {
				delta[k] += float64(turn.Reward)
			}
		}
		if len(r.Turns) == 0 && k == len(at)-1 {
			delta[k] += float64(r.Reward)
		}
		tdError += math.Abs(delta[k]) / float64(len(at))
	}
	advantages = map[int]float64{}
	for k, j := range at {
		for n := range delta[k:] {
			advantages[j] += math.Pow(gamma*lambda, float64(n)) * delta[k+n]
		}
	}
	return advantages, tdError
}

// plainNormalize shifts and scales values to mean 0 and variance 1.
func plainNormalize(all []map[int]float64) {
	var n, mean, square float64
	for _, a := range all {
		for _, x := range a {
			n++
			mean += x
			square += x * x
		}
	}
	mean /= n
	std := math.Sqrt(square/n - mean*mean + 1e-8)
	for _, a := range all {
		for j := range a {
			a[j] = (a[j] - mean) / std
		}
	}
}

// findPass returns the pass that holds draw i of all trainers, and its first place there; nil if none does.
func findPass(shards [][]pass, batches []*rollout.Batch, i int) (p *pass, row, from int) {
	for s, b := range batches {
		if i >= len(b.Draws) {
			i -= len(b.Draws)
			continue
		}
		for k := range shards[s] {
			if row := slices.Index(shards[s][k].at, i); row >= 0 {
				return &shards[s][k], row, row * shards[s][k].length
			}
		}
		break
	}
	return nil, 0, 0
}

func mustPrepare(t testing.TB, l *Learner, batches []*rollout.Batch) [][]pass {
	t.Helper()
	shards, err := l.prepare(context.Background(), batches)
	if err != nil {
		t.Fatal(err)
	}
	return shards
}

func TestCriticAdvantagesAreNormalisedGAE(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 60)
	ref, err := newReference(m.config, w)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Learning{
		"recomputed, defaults": {},
		"recomputed": {GAE: advantage.GAE{Gamma: 0.9, Lambda: 0.8},
			PassElements: 3 * 16 * m.config.VocabSize},
		"stored": {GAE: advantage.GAE{Gamma: 0.9, Lambda: 0.8}, StoredValues: true},
		"masked": {MaskZeroVariance: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.Objective, o.Advantage = objective.PPO{}, advantage.Critic
			batches := criticBatches(t, m, w)
			l := newTestLearner(t, m, w, o)
			shards := mustPrepare(t, l, batches)
			gae := o.withDefaults().GAE
			all := allDraws(batches)
			var want []map[int]float64
			var raw, values [][]float64
			var errors []float64
			for _, d := range all {
				_, v := ref.predict(d.Rollout)
				for j, stored := range d.Rollout.Values {
					if o.StoredValues {
						v[j] = float64(stored)
					}
				}
				a, tdError := plainEstimate(d.Rollout, v, gae.Gamma, gae.Lambda)
				kept := make([]float64, len(v))
				for j, x := range a {
					kept[j] = x
				}
				if o.MaskZeroVariance && d.GroupStd == 0 {
					a, tdError = nil, 0
				}
				want, raw, values, errors = append(want, a), append(raw, kept), append(values, v),
					append(errors, tdError)
			}
			plainNormalize(want)
			feedback, metrics := measure(t, l, batches...), map[string]float64{}
			for i, d := range all {
				p, _, from := findPass(shards, batches, i)
				mean := 0.0
				for j, a := range want[i] {
					near(t, "advantage", p.advantage[from+j], a, 1e-4)
					near(t, "return", p.returns[from+j], raw[i][j]+values[i][j], 1e-4)
					near(t, "value", p.values[from+j], values[i][j], 1e-4)
					mean += math.Abs(a) / float64(len(want[i]))
				}
				f := feedback.Feedback[i]
				if !f.TDError.Known || int(f.Tokens) != len(want[i]) {
					t.Errorf("draw %d: feedback %+v, want %d tokens", i, f, len(want[i]))
				}
				closeTo(t, "TD-error", d.ID, f.TDError.Value, errors[i], 1e-4)
				closeTo(t, "advantage", d.ID, f.Advantage.Value, mean, 1e-4)
				metrics["tokens"] += float64(len(want[i]))
				metrics["td_error"] += errors[i] * float64(len(want[i]))
			}
			if got, want := feedback.Metrics["td_error"],
				metrics["td_error"]/metrics["tokens"]; math.Abs(got-want) > 1e-4 {
				t.Errorf("td_error is %v, want %v", got, want)
			}
		})
	}
}

// plainLoss is METHODS section 5 in loops over what a learner prepared, with the reference's log-probs and values.
func plainLoss(r *reference, o objective.Objective, shards [][]pass) (loss float64) {
	for p := range eachPass(shards) {
		for i, d := range p.draws {
			if p.keep[i] == 0 {
				continue
			}
			logprobs, values := r.predict(d.Rollout)
			if o, ok := o.(objective.TrajectoryBalance); ok {
				flow := float64(p.logZ[i])
				for at := range p.policyIndices(i) {
					flow += logprobs[at-i*p.length] - float64(p.reference[at])
				}
				loss += float64(d.Weight) * math.Pow(o.Beta*flow-float64(p.reward[i]), 2) / float64(p.rollouts)
				continue
			}
			var sum, n float64
			for j, m := range d.Rollout.Mask {
				if m == 0 {
					continue
				}
				at := i*p.length + j
				ratio, a := math.Exp(logprobs[j]-float64(p.behaviour[at])), float64(p.advantage[at])
				n++
				switch o := o.(type) {
				case objective.OffPolicyGRPO:
					start := 1.0
					if o.RPrime == objective.RPrimeExact {
						start = math.Exp(float64(p.anchor[at]) - float64(p.behaviour[at]))
					}
					to := float64(p.reference[at]) - logprobs[j]
					sum += min(ratio*a, max(max(start-0.2, 0), min(start+0.2, ratio))*a) - o.KLCoef*(math.Exp(to)-to-1)
				case objective.PPO:
					old, target := float64(p.values[at]), float64(p.returns[at])
					held := max(old-0.2, min(old+0.2, values[j]))
					sum += min(ratio*a, max(0.8, min(1.2, ratio))*a) - 0.1*max(math.Pow(values[j]-target, 2),
						math.Pow(held-target, 2))/2
				default:
					sum += min(ratio*a, max(0.8, min(1.2, ratio))*a)
				}
			}
			loss -= float64(d.Weight) * sum / n / float64(p.rollouts)
		}
	}
	return loss
}

// learners are options of each kind that has the learner compute more than the gradient.
func learnerKinds() map[string]Learning {
	return map[string]Learning{
		"grpo_off": {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.3}, Updates: 3,
			Reference: Reference{Every: 2, Swaps: 2}, MaskZeroVariance: true},
		"ppo": {Objective: objective.PPO{}, Advantage: advantage.Critic, Updates: 2},
		"ppo, stored": {Objective: objective.PPO{}, Advantage: advantage.Critic, StoredValues: true, MaxLogRatio: 0.4,
			BoundEvery: 2, Updates: 3},
		"trajectory_balance": {Objective: objective.TrajectoryBalance{Beta: 0.5}, MaskZeroVariance: true,
			Reference: Reference{Every: 3}},
		"reinforce++": {Objective: objective.GRPO{Method: objective.ReinforcePP}, Advantage: advantage.Batch,
			KLPenalty: 0.2,
			Reference: Reference{Every: 3}},
	}
}

// The second step of a learner, so that the policy, the policy at the start of the batch and the reference policy
// differ. Without clipping its gradient is what Adam's first moment gained.
func TestGradientsOfEveryObjectiveAgreeWithFiniteDifferences(t *testing.T) {
	tests.OneGoroutine(t)
	m := newTestModel(t, withCritic())
	for name, o := range learnerKinds() {
		t.Run(name, func(t *testing.T) {
			w := randomWeights(t, m, 62)
			o.Optimizer = Adam{LearningRate: 2e-3, ClipNorm: -1}
			l := newTestLearner(t, m, w, o)
			step(t, l, criticBatches(t, m, w)...)
			batches := criticBatches(t, m, w)
			shards, before := mustPrepare(t, l, batches), state(t, l)
			ref, err := newReference(m.config, l.Weights())
			if err != nil {
				t.Fatal(err)
			}
			near(t, "loss", float32(step(t, l, batches...)["loss"]), plainLoss(ref, o.Objective, shards), 1e-4)
			after, rng := state(t, l), rollout.Stream(63, "test/differences", 0)
			for i, s := range m.config.Specs() {
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
			}
		})
	}
}

func TestTheLossOfEveryObjectiveIsTheSameForAnyTrainersAndPasses(t *testing.T) {
	m := newTestModel(t, withCritic())
	for name, o := range learnerKinds() {
		t.Run(name, func(t *testing.T) {
			w := randomWeights(t, m, 64)
			whole := newTestLearner(t, m, w, o)
			want := step(t, whole, &rollout.Batch{Draws: allDraws(criticBatches(t, m, w))})
			o.PassElements = 2 * 12 * m.config.VocabSize
			parts := newTestLearner(t, m, w, o)
			got := step(t, parts, criticBatches(t, m, w)...)
			sameStates(t, state(t, parts), state(t, whole))
			if len(got) != len(want) {
				t.Errorf("metrics %v, want %v", got, want)
			}
			for key, v := range want {
				if math.Abs(got[key]-v) > 1e-4*max(math.Abs(v), 1) {
					t.Errorf("%s is %v in parts, %v as a whole", key, got[key], v)
				}
			}
		})
	}
}

func TestPlainGRPORunsNoExtraForwardPasses(t *testing.T) {
	m := newOwnModel(t, withCritic())
	w := randomWeights(t, m, 65)
	l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}, Updates: 4})
	step(t, l, randomBatch(m.config, 66, 6))
	if len(m.score.compiled) != 0 || l.options.passNeeds() != (objective.Needs{}) || l.reference != nil ||
		l.anchor != nil {
		t.Errorf("%d shapes scored, given %+v, reference %v, start of the batch %v", len(m.score.compiled),
			l.options.passNeeds(), l.reference, l.anchor)
	}
	// r' of a batch that is used once comes from the pass itself.
	step(t, newTestLearner(t, m, w, Learning{Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact}}),
		randomBatch(m.config, 66, 6))
	if len(m.score.compiled) != 0 {
		t.Errorf("%d shapes scored for r' exact at one step to a batch", len(m.score.compiled))
	}
	critic := newTestLearner(t, m, w, Learning{Objective: objective.PPO{}, Advantage: advantage.Critic})
	step(t, critic, randomBatch(m.config, 66, 6))
	if len(m.score.compiled) != 1 {
		t.Errorf("%d shapes scored for a critic, want 1", len(m.score.compiled))
	}
}

// armPolicy returns the log-probs of tokens 0, 1 and 2 after the prompt, token 3, and the critic's value there.
func armPolicy(t *testing.T, l *Learner) (logprobs [4]float64, value float64) {
	t.Helper()
	scores, err := l.model.Score(context.Background(), l.Weights(), Plain([]int32{3, 0}, []int32{3, 1}, []int32{3, 2},
		[]int32{3, 3}), 1)
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range scores {
		logprobs[k] = float64(s.Logprobs[1])
	}
	return logprobs, float64(scores[0].Values[1])
}

// The task: a prompt of one token, an answer of one token, rewards 1, 0.6 and 0 for tokens 0, 1 and 2, and 0 for the
// prompt's. The policy draws 32 answers, learns from each batch twice and draws again.
func TestEveryMethodFindsTheBestAnswer(t *testing.T) {
	tests.Long(t)
	rewards := [4]float32{1, 0.6, 0, 0}
	m := newTestModel(t, hf.Config{ModelType: hf.Llama, VocabSize: 4, HiddenSize: 8, IntermediateSize: 12,
		NumHiddenLayers:   1,
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
			case "raft":
				o.Objective = objective.RAFT{}
			case "ppo":
				o.Objective = objective.PPO{ValueCoef: 0.5}
			case "oapl":
				o.Objective = objective.OAPL{}
			case "trajectory_balance":
				o.Objective = objective.TrajectoryBalance{}
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
					batch.Draws = append(batch.Draws,
						rollout.Draw{Weight: 1, Rollout: &rollout.Rollout{Tokens: []int32{3, int32(arm)},
							Mask:     []uint8{0, 1},
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
				t.Errorf("the policy's log-probs are %.3f, its reward %.3f: want 0.95 of the best answer's 1",
					logprobs, expected)
			}
			if method.Critic && math.Abs(value-1) > 0.25 {
				t.Errorf("the critic expects %.3f of a policy with reward %.3f", value, expected)
			}
		})
	}
}
