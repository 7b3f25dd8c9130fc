package advantage

import "math"

// Epsilon is added to the variance under the root, as [OG] has it.
const Epsilon = 1e-8

// Moments sums up the rewards of a group or batch.
type Moments struct {
	Mean float64
	Var  float64 // population variance
	Zero bool    // all rewards are equal: nothing can be learned from comparing them
}

// Std returns the population standard deviation, without Epsilon.
func (m Moments) Std() float64 { return math.Sqrt(m.Var) }

// MomentsOf returns the moments of rewards; those of none are zero. Zero is exact: it looks at the
// greatest and the least, as a variance of rounded sums need not vanish.
func MomentsOf(rewards []float32) Moments {
	if len(rewards) == 0 {
		return Moments{Zero: true}
	}
	least, greatest := rewards[0], rewards[0]
	var sum float64
	for _, r := range rewards {
		least, greatest = min(least, r), max(greatest, r)
		sum += float64(r)
	}
	if least == greatest {
		return Moments{Mean: float64(least), Zero: true}
	}
	n := float64(len(rewards))
	m := Moments{Mean: sum / n}
	for _, r := range rewards {
		d := float64(r) - m.Mean
		m.Var += d * d
	}
	m.Var /= n
	return m
}
