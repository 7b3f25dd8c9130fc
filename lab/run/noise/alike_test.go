package noise

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// invented returns gradients that are given.
func invented(list [][]float32) gradients {
	return func(_ context.Context, _ *rollout.Batch, visit func(int, []float32) error) error {
		shared := make([]float32, len(list[0])) // valid during the visit only
		for i, g := range list {
			copy(shared, g)
			if err := visit(i, shared); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestTheCorrelationIsThatOfTheDeviations(t *testing.T) {
	const n, size = 400, 50
	for _, r := range []float64{-0.5, 0, 0.3, 0.95} {
		rng := rand.New(rand.NewPCG(1, 2))
		first, second := make([][]float32, n), make([][]float32, n)
		for i := range n {
			first[i], second[i] = make([]float32, size), make([]float32, size)
			for j := range size {
				a, b := rng.NormFloat64(), rng.NormFloat64()
				first[i][j] = float32(5 + a) // the means, 5 and -3, do not count, and nor does the scale
				second[i][j] = float32(-3 + 2*(r*a+math.Sqrt(1-r*r)*b))
			}
		}
		got, err := correlation(t.Context(), nil, invented(first), invented(second))
		if want := r; err != nil || math.Abs(got-want) > 0.02 {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
}

func TestAnErrorOfEitherGradientsEndsTheMeasurement(t *testing.T) {
	broken := errors.New("broken")
	breaks := func(context.Context, *rollout.Batch, func(int, []float32) error) error { return broken }
	fine := invented([][]float32{{1}, {2}, {3}})
	for _, pair := range [][2]gradients{{breaks, fine}, {fine, breaks}} {
		if _, err := correlation(t.Context(), nil, pair[0], pair[1]); !errors.Is(err, broken) {
			t.Errorf("the error is %v", err)
		}
	}
}

// Updates move the weights of a copy. With a rate of almost nothing they leave the noise as it was; the usual rate
// leaves less.
func TestUpdatesLeaveLessOfTheNoiseTheLargerTheyAre(t *testing.T) {
	tests.Long(t)
	still, moved := t.TempDir(), t.TempDir()
	train(t, small(t, "learner.learning_rate=1e-9"), still)
	train(t, small(t, "learner.learning_rate=0.01"), moved)
	a, b := measured(t, still, Options{Held: 8, Fresh: 64}), measured(t, moved, Options{Held: 8, Fresh: 64})
	if a.Alike.Float() < 0.999 || !(b.Alike.Float() < 0.9) || a.Batch != 16 {
		t.Errorf("%v after updates that change nothing, %v after others, in batches of %d", a.Alike, b.Alike, a.Batch)
	}
}
