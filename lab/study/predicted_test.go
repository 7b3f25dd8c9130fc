package study

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
)

// With hardly any noise, an update in a small batch is worth as much as one in a large batch.
func TestTheCalculatorsOrderIsComparedWithThatOfTheArms(t *testing.T) {
	task := opponentTasks()[0]
	section := func(power float64, measured bool) results.Section {
		f := foundIn(task.tournament(), Options{Seeds: 12}, func(a Arm, _ uint64) behaviour {
			b := usual()
			b.speed = math.Pow(float64(a.Config.Pipeline.Batch)/rateBatch, power)
			return b
		})
		for _, a := range f.pilots {
			for _, r := range a.Runs {
				if measured && strings.HasPrefix(a.Name, "queue: batch: 960 ") {
					r.Noise = noiseOf("a", 5.28, 960, 0, 0.1, 1)
					r.Noise.Scale = results.Num(1)
				}
			}
		}
		return task.predicted(f)
	}
	for _, c := range []struct {
		power float64
		want  string
	}{{-1, "is 0.90"}, {1, "is −0.90"}} {
		s := section(c.power, true)
		if len(s.Grids) != 1 || len(s.Grids[0].Rows) != 20 || !strings.Contains(s.Text[0], c.want) ||
			!strings.Contains(s.Text[0], "a noise scale of 1 rollouts") {
			t.Errorf("speed goes with batch^%g: %s %v", c.power, s.Text, s.Grids)
		}
	}
	if s := section(1, false); s.Grids != nil || !strings.Contains(s.Text[0], "its noise was not measured") {
		t.Errorf("without a measurement the page says %q", s.Text)
	}
}

func TestTheIntervalOfARankCorrelationIsThatOfFisher(t *testing.T) {
	x := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	y := []float64{2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11} // 6 of 66 pairs disagree
	tau, low, high := rankInterval(x, y)
	if math.Abs(tau-54.0/66) > 1e-12 || math.Abs(low-0.60025) > 1e-3 || math.Abs(high-0.92333) > 1e-3 {
		t.Errorf("%.5f (%.5f to %.5f)", tau, low, high)
	}
}
