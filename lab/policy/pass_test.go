package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// firstScores returns the scores of the first pass.
func firstScores(t *testing.T, l *Learner, shards [][]pass, w *Weights) Score {
	t.Helper()
	scores, err := l.model.scoreText(w, shards[0][0].text)
	if err != nil {
		t.Fatal(err)
	}
	return scores
}

func TestTheAnchorIsThePolicyBeforeTheFirstStepOnABatch(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 70)
	for _, o := range []Learning{
		{Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact}, Updates: 3},
		{Objective: objective.PPO{}, Advantage: advantage.Critic, Updates: 3},
	} {
		l := newTestLearner(t, m, w, o)
		var first *Weights
		for n := range 7 {
			if n%3 == 0 {
				first = l.Weights()
			}
			batches := criticBatches(t, m, w)
			shards := mustPrepare(t, l, batches)
			want := firstScores(t, l, shards, first)
			if !slices.Equal(shards[0][0].anchor, want.Logprobs) {
				t.Errorf("%s, step %d: pi_k is not the policy of step %d", o.Objective.Name(), n, n/3*3)
			}
			if o.Advantage == advantage.Critic && !slices.Equal(shards[0][0].values, want.Values) {
				t.Errorf("step %d: the values are not those of step %d", n, n/3*3)
			}
			step(t, l, batches...)
		}
	}
}

// A learner of one step to a batch takes r' from the gradient's own pass; one of three has it computed: the first step
// is the same, and in it nothing is ever clipped, however far b is.
func TestRPrimeIsTheRatioAtTheFirstStepOnABatch(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 71)
	var steps [2]map[string]float64
	var states [2]learnedState
	for i, updates := range []int{1, 3} {
		l := newTestLearner(t, m, w, Learning{Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact},
			Updates: updates})
		batches := criticBatches(t, m, w)
		steps[i] = step(t, l, batches...)
		states[i] = state(t, l)
		if steps[i]["clip_fraction"] != 0 || steps[i]["chi_square"] < 0.1 {
			t.Errorf("updates %d: clip fraction %v at chi^2 %v, want 0 of ratios far from 1", updates,
				steps[i]["clip_fraction"], steps[i]["chi_square"])
		}
		if second := step(t, l, batches...)["clip_fraction"]; (second > 0) != (updates == 3) {
			t.Errorf("updates %d: clip fraction %v at the second step", updates, second)
		}
	}
	if math.Abs(steps[0]["loss"]-steps[1]["loss"]) > 1e-5 {
		t.Errorf("loss %v, with computed r' %v", steps[0]["loss"], steps[1]["loss"])
	}
	sameStates(t, states[0], states[1])
}

func TestTheReferencePolicyIsReplacedOnTime(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 72)
	for _, tc := range []struct {
		reference Reference
		from      []int // step whose weights the reference policy has, step by step
		swaps     []int
	}{
		{Reference{}, []int{0, 0, 0, 0, 0, 0}, nil},
		{Reference{Every: 2}, []int{0, 0, 2, 2, 4, 4}, []int{0, 0, 1, 1, 2, 2}},
		{Reference{Every: 2, Swaps: 1}, []int{0, 0, 2, 2, 2, 2}, []int{0, 0, 1, 1, 1, 1}},
		{Reference{Every: 1, Swaps: 3}, []int{0, 1, 2, 3, 3, 3}, []int{0, 1, 2, 3, 3, 3}},
	} {
		t.Run(fmt.Sprint(tc.reference), func(t *testing.T) {
			l := newTestLearner(t, m, w, Learning{Objective: objective.OffPolicyGRPO{KLCoef: 0.1},
				Reference: tc.reference})
			var versions []*Weights
			for n := range tc.from {
				versions = append(versions, l.Weights())
				batches := criticBatches(t, m, w)
				shards := mustPrepare(t, l, batches)
				if want := firstScores(t, l, shards, versions[tc.from[n]]); !slices.Equal(shards[0][0].reference,
					want.Logprobs) {
					t.Errorf("step %d: the reference policy is not that of step %d", n, tc.from[n])
				}
				metrics := step(t, l, batches...)
				swaps, known := metrics["reference_swaps"]
				if known != (tc.swaps != nil) || known && swaps != float64(tc.swaps[n]) {
					t.Errorf("step %d: %v swaps, want %v", n, swaps, tc.swaps)
				}
				if kl := metrics["kl_reference"]; (kl > 1e-9) != (tc.from[n] != n) {
					t.Errorf("step %d: KL %v from the policy of step %d", n, kl, tc.from[n])
				}
			}
		})
	}
}

func TestRolloutsAboveMaxLogRatioLeaveTheLoss(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 73)
	ref, err := newReference(m.config, w)
	if err != nil {
		t.Fatal(err)
	}
	batches := func() []*rollout.Batch { // the logs of the ratios of draw i are all near (i-6)/2
		list := criticBatches(t, m, w)
		for i, d := range allDraws(list) {
			logprobs, _ := ref.predict(d.Rollout)
			r := *d.Rollout
			r.Logprobs = make([]float32, len(r.Tokens))
			for j, m := range r.Mask {
				r.Logprobs[j] = float32(m) * (float32(logprobs[j]) - float32(i-6)/2 + 0.1*float32(j%2))
			}
			list[i/7].Draws[i%7].Rollout = &r
		}
		return list
	}
	kept := batches() // a mean log-ratio above 1.2 have 9, 10 and 11
	kept[1].Draws = kept[1].Draws[:2]
	for name, o := range map[string]Learning{
		"plain":                 {},
		"masked":                {MaskZeroVariance: true},
		"masked in denominator": {MaskZeroVariance: true, MaskedInDenominator: true},
		"critic":                {Objective: objective.PPO{}, Advantage: advantage.Critic},
	} {
		t.Run(name, func(t *testing.T) {
			if o.Objective == nil {
				o.Objective = objective.GRPO{Normalisation: objective.PerToken}
			}
			want := newTestLearner(t, m, w, o)
			expected := step(t, want, kept...)
			o.MaxLogRatio = 1.2
			l := newTestLearner(t, m, w, o)
			got := measure(t, l, batches()...)
			if got.Metrics["filtered"] != 3.0/12 {
				t.Errorf("filtered %v, want 3 of 12", got.Metrics["filtered"])
			}
			for i, f := range got.Feedback {
				if gone := i > 8 || i == 2 && o.MaskZeroVariance; (f.Tokens == 0) != gone ||
					f.TDError.Known != (o.Advantage != "") || gone && f.TDError.Value+f.Advantage.Value != 0 {
					t.Errorf("draw %d: %+v", i, f)
				}
			}
			near(t, "loss", float32(got.Metrics["loss"]), expected["loss"], 1e-5)
			sameStates(t, state(t, l), state(t, want))
		})
	}
}

func TestAKLPenaltyIsSubtractedFromTheRewardTokenByToken(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 74)
	first, err := newReference(m.config, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []advantage.Kind{advantage.Batch, advantage.GroupBatch} {
		method := map[advantage.Kind]string{advantage.Batch: objective.ReinforcePP,
			advantage.GroupBatch: objective.ReinforcePPBaseline}[kind]
		l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{Method: method}, Advantage: kind,
			KLPenalty: 0.3, MaskZeroVariance: true})
		step(t, l, criticBatches(t, m, w)...)
		now, err := newReference(m.config, l.Weights())
		if err != nil {
			t.Fatal(err)
		}
		batches := criticBatches(t, m, w)
		var want []map[int]float64
		var kl, tokens float64
		for _, d := range allDraws(batches) {
			a := map[int]float64{}
			pi, _ := now.predict(d.Rollout)
			reference, _ := first.predict(d.Rollout)
			for j, of := range d.Rollout.Mask {
				if of == 0 || d.GroupStd == 0 {
					continue
				}
				a[j] = float64(d.Rollout.Reward)
				if kind == advantage.GroupBatch {
					a[j] -= float64(d.GroupMean)
				}
				for later := j; later < len(pi); later++ {
					a[j] -= 0.3 * float64(d.Rollout.Mask[later]) * (pi[later] - reference[later])
				}
				kl += math.Exp(reference[j]-pi[j]) - 1 - (reference[j] - pi[j])
				tokens++
			}
			want = append(want, a)
		}
		plainNormalize(want)
		shards := mustPrepare(t, l, batches)
		for i := range want {
			p, _, from := findPass(shards, batches, i)
			for j, a := range want[i] {
				near(t, "advantage", p.advantage[from+j], a, 1e-3)
			}
		}
		if got := step(t, l, batches...)["kl_reference"]; math.Abs(got-kl/tokens) > 1e-4 || got < 1e-3 {
			t.Errorf("kl_reference is %v, want %v", got, kl/tokens)
		}
	}
}

func TestALearnerRestoredAnywhereContinuesBitForBit(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 75)
	batches := criticBatches(t, m, w) // the same ones throughout: a learner keeps their scores, a restored one has none
	kinds := learnerKinds()
	kinds["corrected"] = Learning{Objective: objective.GRPO{Corrections: corrections()}, Updates: 3}
	for name, o := range kinds {
		t.Run(name, func(t *testing.T) {
			l := newTestLearner(t, m, w, o)
			var saved []learnedState
			var measured []StepResult
			for range 7 {
				saved = append(saved, state(t, l))
				measured = append(measured, measure(t, l, batches...))
			}
			want := state(t, l)
			for n, s := range saved {
				if testing.Short() && n%3 == 0 {
					continue // within a batch of 2 or 3, and between two, is enough
				}
				restored := newTestLearner(t, m, randomWeights(t, m, 76), o)
				restored.gradient, restored.update = l.gradient, l.update // compiled
				if err := restore(restored, s); err != nil {
					t.Fatal(err)
				}
				for k := n; k < 7; k++ {
					got := measure(t, restored, batches...)
					if !reflect.DeepEqual(got, measured[k]) {
						t.Fatalf("restored after %d steps, step %d measures %v, want %v", n, k, got, measured[k])
					}
				}
				if !reflect.DeepEqual(state(t, restored), want) {
					t.Errorf("restored after %d steps, the learner ends otherwise", n)
				}
			}
		})
	}
}

func TestAStateWithoutANeededPolicyIsRefused(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 77)
	o := learnerKinds()["grpo_off"]
	l := newTestLearner(t, m, w, o)
	step(t, l, criticBatches(t, m, w)...)
	whole := state(t, l)
	before := state(t, l)
	for want, change := range map[string]func(*learnedState){
		"needs a reference policy":      func(s *learnedState) { s.Reference = nil },
		"step 1 is within a batch of 3": func(s *learnedState) { s.Began = nil },
		"20 tensors given":              func(s *learnedState) { s.Began = s.Began[:20] },
	} {
		s := whole
		change(&s)
		if err := restore(l, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
		if !reflect.DeepEqual(state(t, l), before) {
			t.Errorf("%s: the refused state changed the learner", want)
		}
	}
	old := LearnerState{Version: whole.Version, Step: 1, First: whole.First, Second: whole.Second}
	if err := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}, Updates: 3}).Restore(old, w); err != nil {
		t.Errorf("a state without policies that nothing needs: %v", err)
	}
}

func TestMissingStoredValuesAreRefused(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 78)
	l := newTestLearner(t, m, w, learnerKinds()["ppo, stored"])
	batches := criticBatches(t, m, w)
	batches[1].Draws[2].Rollout.Values = nil
	before := state(t, l)
	_, err := l.Step(context.Background(), batches)
	if err == nil || !strings.Contains(err.Error(),
		fmt.Sprintf("rollout %d has no stored values", batches[1].Draws[2].ID)) {
		t.Errorf("error %v", err)
	}
	if !reflect.DeepEqual(state(t, l), before) {
		t.Error("the refused step changed the learner")
	}
}

func TestScoresOfABatchAreComputedOnce(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 151)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for name, o := range map[string]Learning{
		"r' and reference": {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.1}},
		"values":           {Objective: objective.PPO{}, Advantage: advantage.Critic},
		// which asks the policy after the step
		"bound": {Objective: objective.GRPO{}, MaxLogRatio: 9, BoundEvery: 1},
	} {
		o.Updates, o.PassElements = 3, 3*16*m.config.VocabSize
		l := newTestLearner(t, m, w, o)
		batches, others := criticBatches(t, m, w), criticBatches(t, m, w)
		for n := range 7 {
			_, again := l.prepare(over, batches)
			_, another := l.prepare(over, others)
			if known := n%3 != 0; (again == nil) != known || !known && !errors.Is(again, context.Canceled) ||
				!errors.Is(another, context.Canceled) {
				t.Errorf("%s, step %d: asked of the batch before: %v, of another: %v", name, n, again, another)
			}
			step(t, l, batches...)
		}
	}
}

// The pipeline's cost model counts these passes.
func TestCorrectionsTakeTheForwardPassesThatTheirDocumentationSays(t *testing.T) {
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 153)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	recompute, m2po := objective.ProximalRecompute, objective.Correction{Kind: objective.M2PO}
	for _, c := range []struct {
		proximal objective.Proximal
		step     objective.Correction
		updates  int
		want     []bool // a pass before each of six steps
	}{
		{"", objective.Correction{Kind: objective.MaskRatio}, 3, make([]bool, 6)},
		{recompute, objective.Correction{Kind: objective.Truncate}, 1, make([]bool, 6)},
		{recompute, objective.Correction{Kind: objective.Truncate}, 3, []bool{true, false, false, true, false, false}},
		{objective.ProximalUnweighted, objective.Correction{Kind: objective.DPPO}, 3,
			[]bool{true, false, false, true, false, false}},
		{objective.ProximalInterpolate, objective.Correction{Kind: objective.Truncate}, 3, make([]bool, 6)},
		{"", m2po, 1, slices.Repeat([]bool{true}, 6)},
		{recompute, m2po, 3, slices.Repeat([]bool{true}, 6)},
	} {
		l := newTestLearner(t, m, w, Learning{Updates: c.updates, Objective: objective.GRPO{
			Corrections: objective.Corrections{Proximal: c.proximal, Steps: []objective.Correction{c.step}}}})
		batches := criticBatches(t, m, w)
		for _, d := range allDraws(batches) {
			d.Rollout.Versions = make([]rollout.Version, len(d.Rollout.Tokens))
		}
		for n, want := range c.want {
			if _, err := l.prepare(over, batches); errors.Is(err, context.Canceled) != want {
				t.Errorf("%s, %s with %d updates, step %d: a forward pass: %t, want %t", c.proximal, c.step.Kind,
					c.updates, n, err != nil, want)
			}
			step(t, l, batches...)
		}
	}
}

func TestARolloutWithoutLogprobsIsRefusedByName(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	l := newTestLearner(t, m, randomWeights(t, m, 8), Learning{Objective: objective.GRPO{}})
	batch := randomBatch(c, 9, 4)
	batch.Draws[2].ID = 17
	batch.Draws[2].Rollout.Logprobs[len(batch.Draws[2].Rollout.Tokens)-1] = float32(math.NaN())
	_, err := l.Step(t.Context(), []*rollout.Batch{batch})
	if want := "trainer 0: rollout 17: logprobs: NaN: want numbers: objective grpo reads them"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// With mu the loss is (1 - mu) times that of the other rollouts alone and mu times that of the experts' alone, over
// trainers and passes; without it all rollouts weigh alike. The schedule is asked at the version before the step.
func TestExpertsAndOthersAreWeighedByTheirMeans(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 8)
	o := Learning{Objective: objective.GRPO{Experts: objective.Experts{Term: objective.ExpertSFT}},
		PassElements: 2 * 12 * c.VocabSize}
	batch := randomBatch(c, 9, 8)
	experts, others := &rollout.Batch{}, &rollout.Batch{}
	for i, d := range batch.Draws {
		if i%3 != 0 {
			others.Draws = append(others.Draws, d)
			continue
		}
		for j, m := range d.Rollout.Mask {
			if m == 1 {
				d.Rollout.Logprobs[j] = float32(math.NaN())
			}
		}
		experts.Draws = append(experts.Draws, d)
	}
	of := func(o Learning, batches ...*rollout.Batch) map[string]float64 {
		return step(t, newTestLearner(t, m, w.WithVersion(7), o), batches...)
	}
	for i, f := range measure(t, newTestLearner(t, m, w, o), batch).Feedback {
		tokens, ratios := float64(countPolicyTokens(batch.Draws[i].Rollout)), true
		if i%3 == 0 { // a table is to take no ratio of 1 for measured
			tokens, ratios = 0, false
		}
		if f.Tokens != tokens || f.RatioSum > 0 != ratios || f.RatioSquares > 0 != ratios || !f.Advantage.Known {
			t.Errorf("draw %d: feedback %+v, want %v tokens", i, f, tokens)
		}
	}
	e, p := of(o, experts)["loss"], of(o, others)["loss"]
	halves := []*rollout.Batch{{Draws: batch.Draws[:3]}, {Draws: batch.Draws[3:]}}
	near(t, "loss", float32(of(o, halves...)["loss"]), (3*e+5*p)/8, 1e-5)
	asked := rollout.Version(-1)
	o.ExpertWeight = func(v rollout.Version) float64 {
		asked = v
		return 0.25
	}
	got := of(o, halves...)
	near(t, "weighed loss", float32(got["loss"]), 0.25*e+0.75*p, 1e-5)
	if asked != 7 || got["expert_weight"] != 0.25 || got["experts"] != 3.0/8 {
		t.Errorf("asked at version %d; metrics %v", asked, got)
	}
	o.ExpertWeight = func(rollout.Version) float64 { return 9 }
	near(t, "loss of experts alone", float32(of(o, halves...)["loss"]), e, 1e-5)
	o.ExpertWeight = func(v rollout.Version) float64 { return math.Sqrt(float64(7 - v)) }
	l := newTestLearner(t, m, w.WithVersion(7), o)
	step(t, l, halves...)
	before := state(t, l)
	_, err := l.Step(t.Context(), halves)
	if err == nil || !strings.Contains(err.Error(), "learner.expert_weight: not a number at version 8: write an") {
		t.Errorf("a weight of NaN: %v", err)
	}
	sameStates(t, state(t, l), before)
	for _, o := range []objective.Objective{objective.GRPO{}, objective.GRPO{Normalisation: objective.PerToken,
		Experts: objective.Experts{Term: objective.ExpertSFT}}} {
		err := Learning{Objective: o, Optimizer: Adam{LearningRate: 1},
			ExpertWeight: func(rollout.Version) float64 { return 0 }}.Validate()
		if err == nil || !strings.Contains(err.Error(), "expert_weight: given: want none") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Trajectory balance reads no log b: a rollout without teaches what it does with. The reference policy is another than
// the policy from the second step on.
func TestTrajectoryBalanceTakesExpertsAsAnyOthers(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 8)
	var states [2]learnedState
	var losses [2][]float64
	for i, known := range []bool{true, false} {
		l := newTestLearner(t, m, w, Learning{Objective: objective.TrajectoryBalance{Beta: 0.5}})
		batch := randomBatch(c, 9, 6)
		for j, m := range batch.Draws[2].Rollout.Mask {
			if m == 1 && !known {
				batch.Draws[2].Rollout.Logprobs[j] = float32(math.NaN())
			}
		}
		for range 3 {
			losses[i] = append(losses[i], step(t, l, batch)["loss"])
		}
		states[i] = state(t, l)
	}
	if !slices.Equal(losses[0], losses[1]) || !reflect.DeepEqual(states[0], states[1]) {
		t.Errorf("losses %v without log-probs, %v with them, or other weights", losses[1], losses[0])
	}
}

// A rollout of versions 3 and 5, drawn at version 7: 4 and 2 versions old at every update on the batch, which the
// pipeline makes a version older each time, at the first of the next, and at those of a batch after a restart, which
// skips versions. The prompt has no version.
func TestStalenessIsThatOfEachTokenWhenTheBatchWasDrawn(t *testing.T) {
	m := newTestModel(t, architectures()["tied"])
	interpolate := objective.Corrections{Proximal: objective.ProximalInterpolate}
	l := newTestLearner(t, m, randomWeights(t, m, 8), Learning{Objective: objective.GRPO{Corrections: interpolate},
		Updates: 2})
	r := rollout.New("p", []int32{1, 2}, rollout.Completion{Tokens: []int32{3, 4, 5}, Logprobs: []float32{-1, -1, -1}})
	copy(r.Versions[2:], []rollout.Version{3, 5, 5})
	for i, staleness := range []int32{4, 5, 4, 4, 5} {
		if i == 3 {
			l.SetVersion(10)
		}
		batches := []*rollout.Batch{{Draws: []rollout.Draw{{Rollout: r, Weight: 1, Staleness: staleness}}}}
		if got := mustPrepare(t, l, batches)[0][0].staleness[:5]; !slices.Equal(got, []float32{0, 0, 4, 2, 2}) {
			t.Errorf("update %d: staleness is %v, want 4, 2, 2 after the prompt", i, got)
		}
		step(t, l, batches...)
	}
}

// Some steps are on the batch before, some on one that shares its first rollouts, in passes of another length or not.
func TestALearnerThatKeepsNoScoresTakesTheSameSteps(t *testing.T) {
	tests.Long(t)
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 152)
	longer := func(batches []*rollout.Batch) []*rollout.Batch {
		var list []*rollout.Batch
		for _, b := range batches {
			c := *b
			c.Draws = slices.Clone(b.Draws)
			last := &c.Draws[len(c.Draws)-1]
			r := *last.Rollout
			for len(r.Tokens) < 20 {
				r.Tokens, r.Mask, r.Logprobs, r.Values = append(r.Tokens, 3), append(r.Mask, 1), append(r.Logprobs, -2),
					append(r.Values, 0.5)
			}
			last.Rollout = &r
			list = append(list, &c)
		}
		return list
	}
	for name, o := range learnerKinds() {
		o.PassElements = 1 // so that a pass is one rollout, at the length of the longest of those to come
		var states [2]learnedState
		var measured [2][]StepResult
		first := newTestLearner(t, m, w, o)
		for i, forgetful := range []bool{false, true} {
			l := newTestLearner(t, m, w, o)
			l.gradient, l.update = first.gradient, first.update // compiled
			batches := criticBatches(t, m, w)
			for n := range 7 {
				if n == 4 {
					batches = longer(batches)
				}
				if forgetful {
					l.previous = nil
				}
				measured[i] = append(measured[i], measure(t, l, batches...))
			}
			states[i] = state(t, l)
		}
		if !reflect.DeepEqual(states[0], states[1]) || !reflect.DeepEqual(measured[0], measured[1]) {
			t.Errorf("%s: a learner that keeps scores takes other steps", name)
		}
	}
}

// A learner scores the tokens of its rollouts' policies and no others, and those as well as if it scored all.
func TestOnlyTheTokensOfThePolicyAreScored(t *testing.T) {
	for _, name := range []string{"llama", "grouped queries", "biases"} {
		m := newTestModel(t, architectures()[name])
		w := randomWeights(t, m, 91)
		rng := rollout.Stream(91, "test/scored", 0)
		masks := [][]uint8{{0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0}, {0, 1, 0, 0, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}
		few, all := m.newText(4, 12), m.newText(4, 12) // the last row is padding
		few.scoreAtMost(3)
		if few.scored.most != 4 {
			t.Fatalf("%d tokens of a row are scored, want 3, rounded to 4", few.scored.most)
		}
		for i, mask := range masks {
			tokens := randomTokens(rng, len(mask), m.config.VocabSize)
			copy(few.tokens[i*12:], tokens)
			copy(all.tokens[i*12:], tokens)
			few.scoreMasked(i, mask)
			few.temperature[i], all.temperature[i] = 0.7, 0.7
		}
		got, err := m.scoreText(w, few)
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.scoreText(w, all)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			for j := range 12 {
				var logprob, entropy float64
				if i < len(masks) && j < len(masks[i]) && masks[i][j] == 1 {
					logprob, entropy = float64(want.Logprobs[i*12+j]), float64(want.Entropy[i*12+j])
				}
				near(t, fmt.Sprintf("%s: log-prob of token %d of row %d", name, j, i), got.Logprobs[i*12+j], logprob, 1e-5)
				near(t, fmt.Sprintf("%s: entropy of token %d of row %d", name, j, i), got.Entropy[i*12+j], entropy, 1e-5)
			}
		}
	}
}

// To score nearly all tokens costs as much as to score all.
func TestNearlyAllTokensAreNotPickedOneByOne(t *testing.T) {
	m := newTestModel(t, architectures()["llama"])
	for most, want := range map[int]int{0: 2, 1: 2, 7: 8, 8: 8, 9: 0, 11: 0} {
		x := m.newText(2, 12)
		x.scoreAtMost(most)
		if x.scored.most != want {
			t.Errorf("of rows with %d of 11 tokens to score, %d are picked, want %d", most, x.scored.most, want)
		}
	}
}
