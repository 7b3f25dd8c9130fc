package report

import (
	"math"

	"github.com/reprise-rl/reprise/results"
)

// planesOf lays out the axes of the figures of one row: nothing for maps and where there is nothing to draw. Axes of one title and kind get
// one range, so that figures side by side can be compared by eye, unless one of them would be too flat to be read.
func planesOf(figures []results.Figure) []*plane {
	planes := make([]*plane, len(figures))
	xs, ys := make(map[results.Axis][]*extent), make(map[results.Axis][]*extent)
	for i := range figures {
		f := &figures[i]
		if f.Map != nil {
			continue
		}
		if p, ok := newPlane(f); ok {
			planes[i] = &p
			xs[f.X], ys[f.Y] = append(xs[f.X], &p.x), append(ys[f.Y], &p.y)
		}
	}
	for _, along := range []map[results.Axis][]*extent{xs, ys} {
		for axis, ranges := range along {
			if axis.Title != "" {
				share(ranges, axis.Log)
			}
		}
	}
	return planes
}

// share gives every range the extent of all, if each fills at least a quarter of it.
func share(ranges []*extent, log bool) {
	all := nothing()
	for _, r := range ranges {
		all.add(r.low)
		all.add(r.high)
	}
	for _, r := range ranges {
		if 4*length(*r, log) < length(all, log) {
			return
		}
	}
	for _, r := range ranges {
		*r = all
	}
}

// length is how long a range is on its axis, in powers of ten on a logarithmic one.
func length(e extent, log bool) float64 {
	if log {
		return math.Log10(e.high / e.low)
	}
	return e.high - e.low
}
