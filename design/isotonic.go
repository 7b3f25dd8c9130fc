package design

import (
	"cmp"
	"slices"
)

// weighted is a measurement with what it counts for.
type weighted struct {
	at, value, weight float64
}

// ascending returns the values that never fall with at and are nearest to those given in weighted least squares: isotonic regression by
// pooling adjacent violators. Values of one at are averaged first, so the result has each at once, in order. Weights are above 0.
func ascending(values []weighted) []weighted {
	values = slices.Clone(values)
	slices.SortStableFunc(values, func(a, b weighted) int { return cmp.Compare(a.at, b.at) })
	merged := values[:0]
	for _, v := range values {
		if last := len(merged) - 1; last >= 0 && merged[last].at == v.at {
			merged[last] = pooled(merged[last], v)
			continue
		}
		merged = append(merged, v)
	}
	type block struct {
		weighted
		size int
	}
	var blocks []block
	for _, v := range merged {
		next := block{v, 1}
		for len(blocks) > 0 && blocks[len(blocks)-1].value > next.value {
			last := blocks[len(blocks)-1]
			next = block{pooled(last.weighted, next.weighted), last.size + next.size}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, next)
	}
	smooth, i := slices.Clone(merged), 0
	for _, b := range blocks {
		for range b.size {
			smooth[i].value = b.value
			i++
		}
	}
	return smooth
}

// pooled returns the weighted mean of two values, at the first one's place.
func pooled(a, b weighted) weighted {
	w := a.weight + b.weight
	return weighted{a.at, a.value + (b.value-a.value)*(b.weight/w), w}
}

// interpolate returns the value at x, linear between the neighbours in ascending order and constant beyond the ends.
func interpolate(values []weighted, x float64) float64 {
	i, exact := slices.BinarySearchFunc(values, x, func(v weighted, x float64) int { return cmp.Compare(v.at, x) })
	switch {
	case exact || i == 0:
		return values[i].value
	case i == len(values):
		return values[i-1].value
	}
	a, b := values[i-1], values[i]
	return a.value + (b.value-a.value)*((x-a.at)/(b.at-a.at))
}
