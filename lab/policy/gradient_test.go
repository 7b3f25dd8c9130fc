package policy

import (
	"context"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// singles returns the gradients of a batch's draws.
func drawGradients(t *testing.T, l *Learner, b *rollout.Batch) [][]float32 {
	t.Helper()
	var list [][]float32
	err := l.Gradients(context.Background(), b, func(i int, g []float32) error {
		if i != len(list) {
			t.Fatalf("draw %d is visited after %d others", i, len(list))
		}
		list = append(list, slices.Clone(g))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// ofStep returns the gradient of the learner's first step: without clipping Adam's first moment is (1 - beta1) times
// it.
func stepGradient(t *testing.T, l *Learner, b *rollout.Batch) []float32 {
	t.Helper()
	step(t, l, b)
	g := slices.Concat(state(t, l).First...)
	for i := range g {
		g[i] /= 0.1
	}
	return g
}

func TestTheMeanOfDrawGradientsIsTheGradientOfTheStep(t *testing.T) {
	tests.OneGoroutine(t)
	m := newTestModel(t, withCritic())
	w := randomWeights(t, m, 90)
	for name, o := range map[string]Learning{
		"sequences":       {Objective: objective.GRPO{}},
		"tokens":          {Objective: objective.GRPO{Normalisation: objective.PerToken}},
		"masked":          {Objective: objective.GRPO{}, MaskZeroVariance: true},
		"masked, counted": {Objective: objective.GRPO{}, MaskZeroVariance: true, MaskedInDenominator: true},
		"wild ratios out": {Objective: objective.GRPO{}, MaxLogRatio: 0.3},
		"critic":          {Objective: objective.PPO{}, Advantage: advantage.Critic},
		"penalised rewards": {Objective: objective.GRPO{Method: objective.ReinforcePP}, Advantage: advantage.Batch,
			KLPenalty: 0.3},
		"reference": {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.1},
			Updates: 2},
		"corrected":  {Objective: objective.GRPO{Corrections: corrections()}},
		"logits too": {Objective: objective.AsymRE{}, LogitGradients: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.Optimizer = Adam{LearningRate: 1, ClipNorm: -1}
			l := newTestLearner(t, m, w, o)
			b := &rollout.Batch{Draws: allDraws(criticBatches(t, m, w))}
			b.Draws[2].GroupStd, b.Draws[5].GroupStd = 0, 0
			before, list := state(t, l), drawGradients(t, l, b)
			if !reflect.DeepEqual(state(t, l), before) {
				t.Error("the learner has changed")
			}
			if len(list) != len(b.Draws) {
				t.Fatalf("%d gradients of %d draws", len(list), len(b.Draws))
			}
			if o.MaskZeroVariance && slices.ContainsFunc(list[2], func(x float32) bool { return x != 0 }) {
				t.Error("a draw that is masked out has a gradient")
			}
			want, largest := stepGradient(t, l, b), 0.0
			for _, x := range want {
				largest = max(largest, math.Abs(float64(x)))
			}
			for at := range want {
				var mean float64
				for _, g := range list {
					mean += float64(g[at]) / float64(len(list))
				}
				if math.Abs(mean-float64(want[at])) > 1e-5*largest {
					t.Fatalf("parameter %d: mean gradient %v, the step's is %v", at, mean, want[at])
				}
			}
		})
	}
}

// A gradient is the draw's own: that of a step on it alone, where nothing is common to the draws.
func TestTheGradientOfADrawIsThatOfAStepOnItAlone(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w, b := randomWeights(t, m, 91), randomBatch(c, 92, 5)
	o := Learning{Objective: objective.GRPO{}, Optimizer: Adam{LearningRate: 1, ClipNorm: -1}}
	for i, g := range drawGradients(t, newTestLearner(t, m, w, o), b) {
		want := stepGradient(t, newTestLearner(t, m, w, o), &rollout.Batch{Draws: b.Draws[i : i+1]})
		for at := range want {
			if math.Abs(float64(g[at]-want[at])) > 1e-5 {
				t.Fatalf("draw %d, parameter %d: gradient %v, alone %v", i, at, g[at], want[at])
			}
		}
	}
}

func TestGradientsAreTheSameOnAnyNumberOfCores(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	l, b := newTestLearner(t, m, randomWeights(t, m, 93), Learning{Objective: objective.GRPO{}, MaxLogRatio: 1}),
		randomBatch(c, 94, 7)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one := drawGradients(t, l, b)
	runtime.GOMAXPROCS(3)
	if !reflect.DeepEqual(drawGradients(t, l, b), one) {
		t.Error("three cores give other gradients than one")
	}
}

func TestAWalkOverGradientsEndsWithTheVisitorsError(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	l, b := newTestLearner(t, m, randomWeights(t, m, 95), Learning{Objective: objective.GRPO{}}), randomBatch(c, 96, 9)
	enough := errors.New("enough")
	visits := 0
	stop := func(int, []float32) error { visits++; return enough }
	if err := l.Gradients(context.Background(), b, stop); !errors.Is(err, enough) || visits != 1 {
		t.Errorf("%d visits end with %v, want the visitor's error after one", visits, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Gradients(ctx, b, func(int, []float32) error { t.Error("a visit"); return nil }); !errors.Is(err,
		context.Canceled) {
		t.Errorf("without time it ends with %v", err)
	}
	if err := l.Gradients(context.Background(), &rollout.Batch{}, stop); err != nil || visits != 1 {
		t.Errorf("an empty batch gives %v and %d visits", err, visits-1)
	}
}
