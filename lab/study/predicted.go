package study

import (
	"fmt"
	"math"
	"strings"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/results"
)

// predicted compares what the calculator says of the first stage's arms, queue, reuse and buffer in each batch, with
// what they learned. The calculator is fitted to the pilots of the queue in batches of rateBatch, and knows nothing of
// the recipe. No claim rests on it: the arms are pilots.
func (t opponentTask) predicted(f *Found) results.Section {
	s := results.Section{Title: "What the calculator says of the first stage"}
	var arms []Runs
	var fitted Runs
	for _, c := range t.contests(f.Options) {
		if c.family.name == "recipe" {
			continue
		}
		for _, a := range c.pilots()[0].Arms {
			runs := f.pilot(a.Name)
			if arms = append(arms, runs); c.family.name == "queue" && a.Config.Pipeline.Batch == rateBatch {
				fitted = runs
			}
		}
	}
	known, err := knownFrom(fitted)
	if err != nil {
		s.Text = []string{fmt.Sprintf("Nothing: %v.", err)}
		return s
	}
	unit := Source(fitted.Config).Use
	queue, _ := t.contests(f.Options)[0].chosen()
	tuned := Source(queue)
	g := results.Grid{Title: "Predicted and measured", Note: fmt.Sprintf("Cost for the same progress over that of the queue "+
		"in batches of %d, each at its best rate. Progress for the same compute at the rate tried, over that of the tuned "+
		"queue, whose rate is taken to be its best; below 0 the rate is more than twice the best. Mean pass@1 over the "+
		"budget.", rateBatch),
		Columns: []string{"arm", "predicted cost", "predicted progress", "mean pass@1"}}
	var predicted, measured []float64
	for _, a := range arms {
		use := Source(a.Config).Use
		cost, _, _ := known.Relative(use, unit)
		progress := known.Progress(use, a.Config.Learner.LearningRate, tuned.Use, queue.Learner.LearningRate)
		accuracy := mean(a.over(meanOver(1)))
		predicted, measured = append(predicted, progress), append(measured, accuracy)
		g.Rows = append(g.Rows, []string{strings.Replace(a.Name, "batch: ", "", 1), times(cost), times(progress),
			points(accuracy)})
	}
	r, low, high := rankInterval(predicted, measured)
	s.Grids = []results.Grid{g}
	s.Text = []string{fmt.Sprintf("Kendall's rank correlation of predicted progress with accuracy is %s over %d arms (95%% "+
		"interval %s to %s). The calculator is fitted to the ends of the %d pilot runs of the queue in batches of %d: a noise "+
		"scale of %.0f rollouts, and a coherence of %.2g (%s). Pilots judge nothing.", times(r), len(arms), times(low),
		times(high), len(fitted.Runs), rateBatch, known.NoiseScale, known.Coherence, known.Origins.Coherence)}
	return s
}

// knownFrom fits the calculator to the runs of an arm.
func knownFrom(a Runs) (design.Known, error) {
	var noises []*results.Noise
	for _, r := range a.Runs {
		if err := measureNoise(r); err != nil {
			return design.Known{}, err
		}
		noises = append(noises, r.Noise)
	}
	known, err := calibrate(noises)
	known.Batch = a.Config.Pipeline.Batch
	return known, err
}

// rankInterval returns Kendall's rank correlation of five pairs or more, and its 95% interval by Fisher's
// transformation, with the variance 0.437/(n - 4) of Fieller, Hartley and Pearson (1957).
func rankInterval(x, y []float64) (tau, low, high float64) {
	tau = rankCorrelation(x, y)
	z, width := math.Atanh(tau), 1.96*math.Sqrt(0.437/float64(len(x)-4))
	return tau, math.Tanh(z - width), math.Tanh(z + width)
}
