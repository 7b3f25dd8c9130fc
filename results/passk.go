package results

import "math"

// PassAtK returns the chance that at least one of k responses is right, drawn without replacement
// from n responses of which c are right: 1 - C(n-c, k)/C(n, k), as a product, which does not
// overflow. It is NaN unless 1 <= k <= n and 0 <= c <= n.
func PassAtK(n, c, k int) float64 {
	switch {
	case k < 1 || k > n || c < 0 || c > n:
		return math.NaN()
	case n-c < k:
		return 1
	}
	wrong := 1.0
	for i := n - c + 1; i <= n; i++ {
		wrong *= 1 - float64(k)/float64(i)
	}
	return 1 - wrong
}

// MeanPassAtK averages PassAtK over problems, correct[i] of problem i's n responses being right. It
// is NaN without problems.
func MeanPassAtK(n int, correct []int, k int) float64 {
	var sum float64
	for _, c := range correct {
		sum += PassAtK(n, c, k)
	}
	return sum / float64(len(correct))
}
