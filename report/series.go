package report

import (
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/reprise-rl/reprise/results"
)

// thin returns about limit of the points: of every stretch the first, the lowest, the highest and
// one without a value, and the last point of all. So peaks, collapses, gaps and both ends stay
// where they are.
func thin(points plotter.XYs, limit int) plotter.XYs {
	stretches := max(1, limit/3)
	if len(points) <= limit {
		return points
	}
	kept := make(plotter.XYs, 0, limit+1)
	for s := range stretches {
		from, to := s*len(points)/stretches, (s+1)*len(points)/stretches
		low, high, gap := from, from, -1
		for i := from; i < to; i++ {
			y := points[i].Y
			switch {
			case math.IsNaN(y):
				gap = i
			case math.IsNaN(points[low].Y) || y < points[low].Y:
				low = i
			}
			if !math.IsNaN(y) && (math.IsNaN(points[high].Y) || y > points[high].Y) {
				high = i
			}
		}
		last := -1
		stretch := []int{from, low, high, gap}
		slices.Sort(stretch)
		for _, i := range stretch {
			if i > last {
				kept = append(kept, points[i])
				last = i
			}
		}
	}
	if end := points[len(points)-1]; kept[len(kept)-1].X != end.X {
		kept = append(kept, end)
	}
	return kept
}

// unbroken splits points where one has no value, so that nothing is drawn across a gap.
func unbroken(points plotter.XYs) []plotter.XYs {
	var parts []plotter.XYs
	start := -1
	for i, p := range points {
		known := !math.IsNaN(p.X) && !math.IsNaN(p.Y)
		if known && start < 0 {
			start = i
		}
		if !known && start >= 0 {
			parts = append(parts, points[start:i])
			start = -1
		}
	}
	if start >= 0 {
		parts = append(parts, points[start:])
	}
	return parts
}

// smooth returns the median of the values within half points on either side, which a lone spike
// does not move, at about sixteen points per window and at both ends. A point without a value
// stays without.
func smooth(points plotter.XYs, half int) plotter.XYs {
	var out plotter.XYs
	stride := max(1, half/8)
	around := make([]float64, 0, 2*half+1)
	for i, p := range points {
		if i%stride != 0 && i != len(points)-1 {
			continue
		}
		if math.IsNaN(p.Y) {
			out = append(out, p)
			continue
		}
		around = around[:0]
		for _, q := range points[max(0, i-half):min(len(points), i+half+1)] {
			if !math.IsNaN(q.Y) {
				around = append(around, q.Y)
			}
		}
		out = append(out, plotter.XY{X: p.X, Y: results.Median(around)})
	}
	return out
}
