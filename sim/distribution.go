package sim

import "math"

// Distribution is lengths whose distribution is known.
type Distribution interface {
	Lengths
	// AtLeast returns the probability of a length of n tokens or more, 1 for n <= 1.
	AtLeast(n int) float64
	// Most returns the greatest length there is.
	Most() int
}

// AtLeast returns 1 up to the length, and 0 above.
func (c Constant) AtLeast(n int) float64 {
	if n <= c.Most() {
		return 1
	}
	return 0
}

// Most returns the length.
func (c Constant) Most() int { return max(1, int(c)) }

// AtLeast returns the probability of n tokens or more. What Draw rounds to n begins half a token below.
func (l Lognormal) AtLeast(n int) float64 {
	switch {
	case n <= 1:
		return 1
	case n > l.Max:
		return 0
	case l.Sigma == 0:
		return Constant(math.Round(l.Median)).AtLeast(n)
	}
	return 0.5 * math.Erfc(math.Log((float64(n)-0.5)/l.Median)/(l.Sigma*math.Sqrt2))
}

// Most returns Max.
func (l Lognormal) Most() int { return max(1, l.Max) }

// Mean returns the mean length in tokens, at a cost that grows with the greatest.
func Mean(d Distribution) float64 { return MeanLongest(d, 1) }

// MeanLongest returns the mean over groups of the length of the longest of a group's rollouts, at a cost that grows with
// the greatest length there is.
func MeanLongest(d Distribution, group int) float64 {
	sum := 0.0
	for n := 1; n <= d.Most(); n++ {
		p := d.AtLeast(n)
		if p == 0 {
			break
		}
		// 1 - (1-p)^group, which keeps its digits where p is small.
		sum += -math.Expm1(float64(group) * math.Log1p(-p))
	}
	return sum
}
