package sim

import (
	"math"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/rollout"
)

// drawLengths returns the lengths of a job's group, each at least 1: the same for all that ask with one seed.
func drawLengths(l Lengths, seed, job uint64, group int) []int {
	rng := rollout.Stream(seed, "sim/lengths", job)
	lengths := make([]int, group)
	for i := range lengths {
		lengths[i] = max(1, l.Draw(rng))
	}
	return lengths
}

// Lengths draws the lengths of completions.
type Lengths interface {
	// Draw returns a length in tokens; below 1 counts as 1.
	Draw(rng *rand.Rand) int
}

// Constant is one length for all.
type Constant int

// Draw returns the length.
func (c Constant) Draw(*rand.Rand) int { return int(c) }

// Lognormal is lengths whose logarithm is normal with mean log Median and standard deviation Sigma,
// rounded, in [1, Max].
type Lognormal struct {
	Median float64
	Sigma  float64
	Max    int
}

// Draw returns a length.
func (l Lognormal) Draw(rng *rand.Rand) int {
	x := math.Round(l.Median * math.Exp(float64(l.Sigma*rng.NormFloat64())))
	return int(max(1, min(x, float64(l.Max))))
}
