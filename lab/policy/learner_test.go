package policy

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// randomBatch makes rollouts of different lengths, the first two tokens being the prompt.
func randomBatch(c hf.Config, seed uint64, n int) *rollout.Batch {
	rng := rollout.Stream(seed, "test/batch", 0)
	b := &rollout.Batch{}
	for range n {
		length := 3 + rng.IntN(9)
		r := &rollout.Rollout{Tokens: randomTokens(rng, length, c.VocabSize), Temperature: 1.2, Reward: rng.Float32()}
		for i := range length {
			m := uint8(0)
			if i > 1 {
				m = 1
			}
			r.Mask = append(r.Mask, m)
			r.Logprobs = append(r.Logprobs, -float32(m)*(2+2*rng.Float32()))
		}
		b.Draws = append(b.Draws, rollout.Draw{Rollout: r, Weight: 0.5 + rng.Float32(), Advantage: 2*rng.Float32() - 1,
			GroupStd: 1})
	}
	return b
}

// randomMask makes a sampling mask of about a third of the vocabulary for each token but every fourth.
func randomMask(c hf.Config, seed uint64, tokens []int32) (mask rollout.IDLists) {
	rng := rollout.Stream(seed, "test/sampling mask", 0)
	for j, token := range tokens {
		var ids []int32
		for id := range int32(c.VocabSize) {
			if j%4 != 1 && (id == token || rng.IntN(3) == 0) {
				ids = append(ids, id)
			}
		}
		mask.Append(ids...)
	}
	return mask
}

func newTestLearner(t testing.TB, m *Model, w *Weights, o Learning) *Learner {
	t.Helper()
	if o.Optimizer.LearningRate == 0 {
		o.Optimizer.LearningRate = 1e-2
	}
	l, err := m.NewLearner(w, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func step(t testing.TB, l *Learner, batches ...*rollout.Batch) map[string]float64 {
	t.Helper()
	return measure(t, l, batches...).Metrics
}

func measure(t testing.TB, l *Learner, batches ...*rollout.Batch) StepResult {
	t.Helper()
	measured, err := l.Step(context.Background(), batches)
	if err != nil {
		t.Fatal(err)
	}
	return measured
}

// learnedState is all that a learner holds.
type learnedState struct {
	LearnerState
	Weights [][]float32
}

func state(t testing.TB, l *Learner) learnedState {
	t.Helper()
	s, err := l.State()
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.Weights().Flat()
	if err != nil {
		t.Fatal(err)
	}
	return learnedState{s, w}
}

func restore(l *Learner, s learnedState) error {
	w, err := l.model.NewWeights(0, s.Weights)
	if err != nil {
		return err
	}
	return l.Restore(s.LearnerState, w)
}

// sftLoss is the mean over rollouts of the mean over policy tokens of -log pi, by the reference.
func sftLoss(r *reference, b *rollout.Batch) float64 {
	var loss float64
	for _, d := range b.Draws {
		logprobs, _ := r.score(d.Rollout.Tokens, d.Rollout.SamplingMask, float64(d.Rollout.Temperature))
		var sum, n float64
		for i, m := range d.Rollout.Mask {
			sum -= logprobs[i] * float64(m)
			n += float64(m)
		}
		loss += float64(d.Weight) * sum / n
	}
	return loss / float64(len(b.Draws))
}

// After one step without clipping Adam's first moment is (1 - beta1) times the gradient, which is compared with
// central differences of the plain float64 computation, for every kind of parameter.
func TestGradientsAgreeWithFiniteDifferences(t *testing.T) {
	tests.OneGoroutine(t)
	for name, c := range someArchitectures() {
		t.Run(name, func(t *testing.T) {
			m := newTestModel(t, c)
			w := randomWeights(t, m, 5)
			ref, err := newReference(c, w)
			if err != nil {
				t.Fatal(err)
			}
			batch := randomBatch(c, 6, 3)
			batch.Draws[1].Rollout.SamplingMask = randomMask(c, 7, batch.Draws[1].Rollout.Tokens)
			l := newTestLearner(t, m, w,
				Learning{Objective: objective.SFT{}, Optimizer: Adam{LearningRate: 1, ClipNorm: -1}})
			near(t, "loss", float32(step(t, l, batch)["loss"]), sftLoss(ref, batch), 1e-5)
			moments := state(t, l).First
			rng := rollout.Stream(7, "test/differences", 0)
			for i, s := range c.Specs() {
				at, values := rng.IntN(size(s.Shape)), ref.weight[s.Name]
				kept := values[at]
				const h = 1.0 / 256 // a power of two, so that float32 weights move by exactly h
				values[at] = kept + h
				up, high := sftLoss(ref, batch), values[at]
				values[at] = kept - h
				down, low := sftLoss(ref, batch), values[at]
				values[at] = kept
				want := (up - down) / (float64(high) - float64(low))
				got := float64(moments[i][at]) / 0.1
				if math.Abs(got-want) > 2e-3*max(math.Abs(want), 0.02) {
					t.Errorf("%s[%d]: gradient %v, finite differences say %v", s.Name, at, got, want)
				}
			}
		})
	}
}

// sameStates compares moments, which a wrong gradient changes at once, to float32's rounding.
func sameStates(t *testing.T, got, want learnedState) {
	t.Helper()
	for i := range want.First {
		for j := range want.First[i] {
			if math.Abs(float64(got.First[i][j]-want.First[i][j])) > 2e-6 {
				t.Fatalf("tensor %d, value %d: first moment %v, want %v", i, j, got.First[i][j], want.First[i][j])
			}
		}
	}
}

// A table divides the weights of each trainer's batch by their largest.
func TestTheNumberOfTrainersDoesNotChangeAWeightedUpdate(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w, batch := randomWeights(t, m, 8), randomBatch(c, 9, 12)
	for i := range batch.Draws {
		batch.Draws[i].Weight = 1 / float32(i+1)
	}
	want := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}})
	step(t, want, batch)
	for _, trainers := range []int{2, 4} {
		var batches []*rollout.Batch
		for draws := range slices.Chunk(batch.Draws, 12/trainers) {
			b := &rollout.Batch{Draws: slices.Clone(draws), LogWeightScale: math.Log(float64(draws[0].Weight))}
			for i := range b.Draws {
				b.Draws[i].Weight /= draws[0].Weight
			}
			batches = append(batches, b)
		}
		rollout.NormaliseWeights(batches)
		got := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}})
		step(t, got, batches...)
		sameStates(t, state(t, got), state(t, want))
	}
}

func TestTrainersAndPassesAddUpToOneLoss(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w, batch := randomWeights(t, m, 8), randomBatch(c, 9, 12)
	for _, o := range []Learning{
		{Objective: objective.GRPO{Normalisation: objective.PerToken}},
		{Objective: objective.GRPO{Corrections: corrections()}, Updates: 2},
	} {
		whole := newTestLearner(t, m, w, o)
		want := step(t, whole, batch)

		shards := newTestLearner(t, m, w, o)
		got := step(t, shards, &rollout.Batch{Draws: batch.Draws[:4]}, &rollout.Batch{Draws: batch.Draws[4:8]},
			&rollout.Batch{Draws: batch.Draws[8:]})
		sameStates(t, state(t, shards), state(t, whole))
		for _, key := range []string{"ess", "corrected_truncate", "corrected_m2po_rollouts", "corrected_dppo"} {
			near(t, key, float32(got[key]), want[key], 1e-5)
			if of := want[key]; o.Updates > 1 && (of <= 0 || of >= 1) {
				t.Errorf("%s is %v, want more than 0 and less than 1", key, of)
			}
		}

		o.PassElements = 5 * 12 * c.VocabSize // five rows at a time
		passes := newTestLearner(t, m, w, o)
		step(t, passes, batch)
		sameStates(t, state(t, passes), state(t, whole))
	}
}

// corrections returns one of each kind, with bounds that some tokens of the test batches exceed and others do not.
func corrections() objective.Corrections {
	return objective.Corrections{Proximal: objective.ProximalRecompute, Steps: []objective.Correction{
		{Kind: objective.Truncate, High: 1.2}, {Kind: objective.MaskRatio, Low: 0.3, High: 3},
		{Kind: objective.MaskRatio, Level: objective.LevelSequence, Low: 0.5, High: 2},
		{Kind: objective.OPSM, Limit: 1e-3}, {Kind: objective.M2PO, Limit: 5}, {Kind: objective.DPPO, Low: 0.05, High: 0.05},
	}}
}

// The bound of M2PO is that of all tokens of the step, under the weights that it begins with.
func TestTheSecondMomentOfAStepIsWithinItsLimit(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	const limit = 5.0
	l := newTestLearner(t, m, randomWeights(t, m, 8), Learning{Objective: objective.GRPO{
		Corrections: objective.Corrections{Steps: []objective.Correction{{Kind: objective.M2PO, Limit: limit}}}}})
	batch := randomBatch(c, 9, 12)
	shards, err := l.prepare(t.Context(), []*rollout.Batch{{Draws: batch.Draws[:5]}, {Draws: batch.Draws[5:]}})
	if err != nil {
		t.Fatal(err)
	}
	var all, kept, tokens, dropped float64
	least := math.Inf(1) // of the squares dropped
	for p := range eachPass(shards) {
		for i := range p.draws {
			for at := range p.policyIndices(i) {
				m := float64(p.current[at]) - float64(p.behaviour[at])
				tokens, all = tokens+1, all+m*m
				if m*m > float64(p.secondMoment) && m*float64(p.advantage[at]) > 0 {
					dropped, least = dropped+1, min(least, m*m)
				} else {
					kept += m * m
				}
			}
		}
	}
	if all/tokens < limit*1.1 || kept/(tokens-dropped) > limit || dropped == 0 {
		t.Fatalf("mean square %.3f, after %g of %g tokens were dropped %.3f: want at most %g", all/tokens, dropped, tokens,
			kept/(tokens-dropped), limit)
	}
	if (kept+least)/(tokens-dropped+1) <= limit {
		t.Errorf("one token less would have been enough")
	}
	if share := step(t, l, batch)["corrected_m2po"]; math.Abs(share-dropped/tokens) > 1e-6 {
		t.Errorf("the step dropped a share of %v, want %v", share, dropped/tokens)
	}
}

func TestZeroVarianceGroupsAreMaskedOut(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w, batch := randomWeights(t, m, 8), randomBatch(c, 9, 6)
	kept := &rollout.Batch{Draws: batch.Draws[:4]}
	for i := range batch.Draws[4:] {
		batch.Draws[4+i].GroupStd = 0
	}
	want := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}})
	step(t, want, kept)
	masked := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}, MaskZeroVariance: true})
	if share := step(t, masked, batch)["zero_variance"]; share != 2.0/6 {
		t.Errorf("zero_variance %v, want 2 of 6", share)
	}
	sameStates(t, state(t, masked), state(t, want))

	// In the denominator the same gradients count for 4 of 6 rollouts.
	all := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}, MaskZeroVariance: true,
		MaskedInDenominator: true, Optimizer: Adam{LearningRate: 1, ClipNorm: -1}})
	part := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}, MaskZeroVariance: true,
		Optimizer: Adam{LearningRate: 1, ClipNorm: -1}})
	step(t, all, batch)
	step(t, part, batch)
	scaled := state(t, part)
	for i := range scaled.First {
		for j := range scaled.First[i] {
			scaled.First[i][j] *= 4.0 / 6
		}
	}
	sameStates(t, state(t, all), scaled)
}

// Draws of a group that failed teach once a success is among what they compare with, and lone ones do not.
func TestRegroupedDrawsAreMaskedByTheirAdvantage(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w, batch := randomWeights(t, m, 8), randomBatch(c, 9, 6)
	for i := range batch.Draws {
		batch.Draws[i].GroupStd, batch.Draws[i].Advantage = 0, 1
		if i >= 4 {
			batch.Draws[i].GroupStd, batch.Draws[i].Advantage = 1, 0
		}
	}
	want := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}})
	step(t, want, &rollout.Batch{Draws: batch.Draws[:4]})
	masked := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}, MaskZeroVariance: true, Regrouped: true})
	step(t, masked, batch)
	sameStates(t, state(t, masked), state(t, want))
}

// The update is worked out in float64 from the moments that the gradients of two steps give.
func TestAdamFollowsItsFormula(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w, batch := randomWeights(t, m, 8), randomBatch(c, 9, 6)
	a := Adam{LearningRate: 0.03, Warmup: 4, Beta1: 0.8, Beta2: 0.9, WeightDecay: 0.1, ClipNorm: 0.5}
	l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}, Optimizer: a})
	before := state(t, l)
	for n := 1; n <= 2; n++ {
		norm := step(t, l, batch)["grad_norm"]
		if norm < a.ClipNorm {
			t.Fatalf("gradient norm %v is not clipped by %v", norm, a.ClipNorm)
		}
		after := state(t, l)
		var square float64
		for i, s := range c.Specs() {
			for j := range after.First[i] {
				g := (float64(after.First[i][j]) - 0.8*float64(before.First[i][j])) / 0.2
				square += g * g
				near(t, "second moment", after.Second[i][j], 0.9*float64(before.Second[i][j])+0.1*g*g, 1e-6)
				change := float64(after.First[i][j]) / (1 - math.Pow(0.8, float64(n))) /
					(math.Sqrt(float64(after.Second[i][j])/(1-math.Pow(0.9, float64(n)))) + 1e-8)
				if len(s.Shape) > 1 {
					change += 0.1 * float64(before.Weights[i][j])
				}
				near(t, "weight", after.Weights[i][j], float64(before.Weights[i][j])-0.03*float64(n)/4*change, 1e-5)
			}
		}
		if math.Abs(math.Sqrt(square)-a.ClipNorm) > 1e-4 {
			t.Errorf("step %d: clipped gradient has norm %v, want %v", n, math.Sqrt(square), a.ClipNorm)
		}
		before = after
	}
}

func TestARestoredLearnerContinuesBitForBit(t *testing.T) {
	c := architectures()["qwen2"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 8)
	o := Learning{Objective: objective.GRPO{}, Optimizer: Adam{LearningRate: 1e-3, Warmup: 5}}
	l := newTestLearner(t, m, w, o)
	step(t, l, randomBatch(c, 1, 6))
	saved := state(t, l)
	clone, err := l.Clone()
	if err != nil {
		t.Fatal(err)
	}
	step(t, l, randomBatch(c, 2, 6))
	if !reflect.DeepEqual(state(t, clone), saved) {
		t.Error("a step of the learner changes its clone")
	}
	step(t, clone, randomBatch(c, 2, 6))

	restored := newTestLearner(t, m, w, o)
	if err := restore(restored, saved); err != nil {
		t.Fatal(err)
	}
	step(t, restored, randomBatch(c, 2, 6))
	if !reflect.DeepEqual(state(t, restored), state(t, l)) || !reflect.DeepEqual(state(t, clone), state(t, l)) {
		t.Error("the next step of the restored learner, or of the clone, differs")
	}
	if l.Weights().Version != 2 {
		t.Errorf("version %d after two steps", l.Weights().Version)
	}
	want := state(t, l)
	want.Version = 7
	if l.SetVersion(7); !reflect.DeepEqual(state(t, l), want) {
		t.Error("another version of the weights changed more than their number")
	}
}

func TestWeightsOfEarlierVersionsStayAsTheyWere(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 8)
	before, err := w.Flat()
	if err != nil {
		t.Fatal(err)
	}
	l := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}})
	step(t, l, randomBatch(c, 1, 4))
	after, err := w.Flat()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Error("a step changed the weights it started from")
	}
}

func TestInvalidOptionsAndBatchesAreRefused(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 8)
	if _, err := m.NewLearner(w,
		Learning{Objective: objective.SFT{}, Optimizer: Adam{LearningRate: -1, Beta2: 2}}); err == nil {
		t.Error("a negative learning rate was taken")
	}
	l := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}})
	if _, err := l.Step(context.Background(), []*rollout.Batch{{}}); err == nil {
		t.Error("an empty batch was taken")
	}
	long := randomBatch(c, 1, 1)
	long.Draws[0].Rollout.Tokens = make([]int32, c.MaxPositionEmbeddings+1)
	if _, err := l.Step(context.Background(), []*rollout.Batch{long}); err == nil {
		t.Error("a rollout longer than the model's positions was taken")
	}
}

func TestACancelledStepDoesNotChangeTheLearner(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	l := newTestLearner(t, m, randomWeights(t, m, 8), Learning{Objective: objective.GRPO{}})
	step(t, l, randomBatch(c, 1, 4))
	before := state(t, l)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Step(cancelled, []*rollout.Batch{randomBatch(c, 2, 4)}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a step under a cancelled context: %v", err)
	}
	if !reflect.DeepEqual(state(t, l), before) {
		t.Error("a cancelled step changed the learner")
	}
	step(t, l, randomBatch(c, 2, 4))
}

func TestEveryInvalidOptionIsReported(t *testing.T) {
	nan := math.NaN()
	adam := Adam{LearningRate: 1}
	for _, tc := range []struct {
		o     Learning
		wants []string
	}{
		{Learning{Objective: objective.GRPO{}}, nil},
		{Learning{Objective: objective.SFT{}, Advantage: advantage.Group}, nil},
		{Learning{Objective: objective.PPO{}, Advantage: advantage.Critic, StoredValues: true,
			GAE: advantage.GAE{Gamma: 1}}, nil},
		{Learning{Objective: objective.GRPO{}, Advantage: advantage.Batch, KLPenalty: 1,
			Reference: Reference{Every: 5, Swaps: 2}, Updates: 9, MaxLogRatio: 3, BoundEvery: 1}, nil},
		{Learning{}, []string{"objective: none"}},
		{Learning{Objective: objective.GRPO{ClipLow: 3}, Updates: -1, MaxLogRatio: -2, BoundEvery: -3, PassElements: -4,
			Reference: Reference{Every: -5, Swaps: -6}}, []string{
			"clip_low: 3", "batch_updates: -1", "max_log_ratio: -2", "bound_every: -3", "pass_elements: -4",
			"reference_every: -5", "reference_swaps: -6"}},
		{Learning{Objective: objective.GRPO{}, MaxLogRatio: nan, KLPenalty: math.Inf(1),
			Reference: Reference{Swaps: 1}}, []string{
			"max_log_ratio: NaN", "kl_penalty: +Inf", "reference_swaps: 1"}},
		{Learning{Objective: objective.GRPO{}, KLPenalty: 0.1}, []string{"kl_penalty: 0.1: want 0, or advantage " +
			"batch or group_batch"}},
		{Learning{Objective: objective.PPO{}}, []string{"advantage: none: want gae for objective ppo"}},
		{Learning{Objective: objective.PPO{}, Advantage: advantage.Group},
			[]string{"advantage: group: want gae for objective ppo"}},
		{Learning{Objective: objective.GRPO{}, Advantage: advantage.Critic}, []string{"advantage: gae: want group or " +
			"no_std or leave_one_out or batch or group_batch for objective grpo"}},
		{Learning{Objective: objective.GRPO{Method: objective.RLOO}, Advantage: advantage.Group},
			[]string{"advantage: group: want leave_one_out for objective rloo"}},
		{Learning{Objective: objective.GRPO{}, Advantage: "best", StoredValues: true},
			[]string{"advantage: best: want group"}},
		{Learning{Objective: objective.GRPO{}, StoredValues: true}, []string{"values: stored"}},
		{Learning{Objective: objective.PPO{}, Advantage: advantage.Critic, GAE: advantage.GAE{Gamma: 2, Lambda: -1}},
			[]string{"gamma: 2", "lambda: -1"}},
	} {
		tc.o.Optimizer = adam
		err := tc.o.Validate()
		if (err == nil) != (len(tc.wants) == 0) {
			t.Errorf("%+v: error %v", tc.o, err)
		}
		if err != nil && strings.Count(err.Error(), "\n")+1 != len(tc.wants) {
			t.Errorf("%d problems are reported as %v", len(tc.wants), err)
		}
		for _, want := range tc.wants {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error does not say %q: %v", want, err)
			}
		}
	}
}

// The kinds that package objective names are those of package advantage, and each method takes its default.
func TestEveryMethodTakesItsAdvantages(t *testing.T) {
	for _, m := range objective.Methods() {
		o := map[string]objective.Objective{"grpo": objective.GRPO{}, "grpo_off": objective.OffPolicyGRPO{},
			"asymre": objective.AsymRE{}, "raft": objective.RAFT{}, "ppo": objective.PPO{}, "oapl": objective.OAPL{},
			"trajectory_balance": objective.TrajectoryBalance{}}[m.Name]
		if o == nil {
			o = objective.GRPO{Method: m.Name, ConstantLength: 4, Normalisation: objective.PerConstant}
		}
		if o.Name() != m.Name || o.Needs().Critic != m.Critic || len(m.Advantages) == 0 {
			t.Errorf("method %+v is objective %s with needs %+v", m, o.Name(), o.Needs())
		}
		for _, kind := range advantage.Kinds() {
			takes := false
			for _, a := range m.Advantages {
				takes = takes || a == string(kind)
			}
			err := Learning{Objective: o, Optimizer: Adam{LearningRate: 1}, Advantage: kind}.Validate()
			if (err == nil) != takes {
				t.Errorf("%s with advantage %s: takes %v, error %v", m.Name, kind, takes, err)
			}
		}
		for _, a := range m.Advantages {
			if err := advantage.Kind(a).Validate(); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}

func TestACriticNeedsAValueHead(t *testing.T) {
	m := newTestModel(t, architectures()["llama"])
	_, err := m.NewLearner(randomWeights(t, m, 1), Learning{Objective: objective.PPO{}, Advantage: advantage.Critic,
		Optimizer: Adam{LearningRate: 1}})
	if err == nil || !strings.Contains(err.Error(), "objective ppo needs a value head") {
		t.Errorf("error %v", err)
	}
}

// On-policy rollouts drawn from a nucleus have ratio 1 with their sampling mask. Without the
// mask the ratio is the nucleus's probability.
func TestRatiosOfTopPAreOverTheNucleus(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 31)
	rng := rollout.Stream(32, "test", 0)
	prompts := [][]int32{randomTokens(rng, 3, c.VocabSize), randomTokens(rng, 5, c.VocabSize)}
	rows := generate(t, m, w, prompts, Sampling{Temperature: 0.9, TopP: 0.6, MaxTokens: 9}, 0)
	measure := func(masked bool) (ratio float64, outside int) {
		b := &rollout.Batch{}
		for i, row := range rows {
			r := &rollout.Rollout{Tokens: row.Tokens, Mask: row.Mask, Logprobs: row.Logprobs, Versions: row.Versions,
				Temperature: 0.9, TopP: 0.6}
			if masked {
				r.SamplingMask = row.SamplingMask
			}
			b.Draws = append(b.Draws, rollout.Draw{Rollout: r, Weight: 1, Advantage: float32(1 - 2*i)})
		}
		metrics := step(t, newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}}), b)
		for _, row := range rows {
			for j, of := range row.Mask {
				if kept := len(row.SamplingMask.At(j)); of == 0 && kept > 0 || of == 1 && kept == 0 {
					t.Fatalf("token %d, mask %d, has a nucleus of %d", j, of, kept)
				} else if of == 1 {
					outside += c.VocabSize - kept
				}
			}
		}
		return metrics["max_ratio"], outside
	}
	if ratio, outside := measure(true); math.Abs(ratio-1) > 1e-4 || outside == 0 {
		t.Errorf("the largest ratio is %v, want 1; %d ids are outside", ratio, outside)
	}
	if ratio, _ := measure(false); ratio > 0.99 {
		t.Errorf("without a sampling mask the largest ratio is %v", ratio)
	}
}

// Draws that are in no pass change neither the gradient nor the order of the feedback, whatever the lengths.
func TestSkippedDrawsTeachNothingAndHaveFeedbackInOrder(t *testing.T) {
	c := architectures()["llama"]
	m := newTestModel(t, c)
	w, batch := randomWeights(t, m, 8), randomBatch(c, 9, 12)
	for i := range batch.Draws {
		if i%3 == 0 { // a group of one reward: GRPO learns nothing from it
			batch.Draws[i].GroupStd, batch.Draws[i].Advantage = 0, 0
		}
	}
	o := Learning{Objective: objective.GRPO{}}
	whole := newTestLearner(t, m, w, o)
	want := measure(t, whole, batch)
	o.MaskZeroVariance, o.MaskedInDenominator = true, true
	o.PassElements = 3 * 16 * c.VocabSize
	skips := newTestLearner(t, m, w, o)
	got := measure(t, skips, batch)
	sameStates(t, state(t, skips), state(t, whole))
	for i, f := range got.Feedback {
		if f.ID != batch.Draws[i].ID || (f.Tokens == 0) != (i%3 == 0) || i%3 != 0 && f.Tokens != want.Feedback[i].Tokens {
			t.Errorf("draw %d: %+v, want that of %+v", i, f, want.Feedback[i])
		}
	}
	for i := range batch.Draws {
		batch.Draws[i].GroupStd = 0
	}
	before := state(t, skips)
	if got := measure(t, skips, batch); len(got.Feedback) != 12 || got.Metrics["grad_norm"] != 0 ||
		got.Metrics["zero_variance"] != 1 {
		t.Errorf("of a batch without anything to learn: %v, %d entries", got.Metrics, len(got.Feedback))
	}
	if after := state(t, skips); after.Step != before.Step+1 {
		t.Errorf("step %d after %d", after.Step, before.Step)
	}
}

func TestRowsAreRoundedUpByAnEighthAtMost(t *testing.T) {
	shapes := make(map[int]bool)
	for n := 1; n <= 1024; n++ {
		r := roundRows(n)
		if r < n || float64(r) > 1.125*float64(n) {
			t.Errorf("%d rows become %d", n, r)
		}
		shapes[r] = true
	}
	if len(shapes) > 80 {
		t.Errorf("%d shapes for 1024 numbers of rows", len(shapes))
	}
}
