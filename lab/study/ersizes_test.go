package study

import (
	"math"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// Entropy is compared where accuracies are equal: an arm that learns twice as fast and loses its entropy at each level
// of accuracy as the other does preserves it.
func TestEntropyIsComparedAtEqualAccuracy(t *testing.T) {
	made := func(speed, kept float64) Runs {
		a := Runs{Arm: Arm{"arm", erQueueConfig(Options{Seeds: 1})}}
		r := &results.Run{Seed: 1, Summary: &results.Summary{Ended: "budget"}}
		for i := range 40 {
			p := math.Min(0.6, 0.02*float64(i)*speed)
			r.Evals = append(r.Evals, results.Eval{Update: 10 * i, Pass1: p, Problems: 1000})
			if i > 0 {
				before := r.Evals[i-1].Pass1 // a line stands for the updates since the line before
				r.Updates = append(r.Updates, results.Update{Update: 10 * i, Entropy: results.Num(kept * (1 - (before+p)/2))})
			}
		}
		a.Runs = []*results.Run{r}
		return a
	}
	for _, c := range []struct{ speed, kept, want float64 }{{1, 1, 1}, {2, 1, 1}, {2, 0.5, 0.5}} {
		low, high := entropies(made(c.speed, c.kept), made(1, 1)).pairs.Mean()
		if got := math.Exp(low); low != high || math.Abs(got-c.want) > 0.05*c.want {
			t.Errorf("speed %g, entropy %g of the other's: the ratio is %.3f, want %g", c.speed, c.kept, got, c.want)
		}
	}
}
