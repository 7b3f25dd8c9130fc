package study

import (
	"cmp"
	"slices"

	"github.com/reprise-rl/reprise/results"
)

// outcomes is what the cells of the grid really came to, seed by seed.
type outcomes map[cell]map[uint64]outcome

type outcome struct{ reach, mean float64 }

func (f *Found) outcomes() outcomes {
	o := make(outcomes)
	for _, c := range labGrid() {
		a := f.at(c)
		for _, r := range a.Runs {
			if o[c] == nil {
				o[c] = make(map[uint64]outcome)
			}
			o[c][r.Seed] = outcome{toTarget(a, r), meanOver(1)(a, r)}
		}
	}
	return o
}

// ranked returns the cells that have runs of the seeds, of which one may be named more than once, the best first.
func (o outcomes) ranked(seeds []uint64) []cell {
	type standing struct {
		cell
		median outcome
	}
	var list []standing
	reach, mean := make([]float64, 0, len(seeds)), make([]float64, 0, len(seeds))
	for _, c := range labGrid() { // in an order of its own: a stable one for equal cells
		reach, mean = reach[:0], mean[:0]
		for _, s := range seeds {
			if x, ok := o[c][s]; ok {
				reach, mean = append(reach, x.reach), append(mean, x.mean)
			}
		}
		if len(reach) > 0 {
			list = append(list, standing{c, outcome{results.Median(reach), results.Median(mean)}})
		}
	}
	slices.SortStableFunc(list, func(a, b standing) int {
		return cmp.Or(cmp.Compare(a.median.reach, b.median.reach), cmp.Compare(b.median.mean, a.median.mean))
	})
	cells := make([]cell, len(list))
	for i, s := range list {
		cells[i] = s.cell
	}
	return cells
}

// spread is the median over the forecasts of what each is worth in the order of the real runs. Its interval draws seeds, and with a
// seed both its forecast and its runs of every cell: the order of the cells is as uncertain as the forecasts are.
func (o outcomes) spread(ranked []cell, forecasts []forecast, worth func(c forecast, ranked []cell) float64) spread {
	s := quartilesOf(each(forecasts, func(c forecast) float64 { return worth(c, ranked) }))
	if len(forecasts) < claimSeeds {
		return s
	}
	seeds, worths := make([]uint64, len(forecasts)), make([]float64, len(forecasts))
	s.low, s.high = results.BootstrapOf(len(forecasts), func(draw []int) float64 {
		for i, of := range draw {
			seeds[i] = forecasts[of].seed
		}
		drawn := o.ranked(seeds)
		for i, of := range draw {
			worths[i] = worth(forecasts[of], drawn)
		}
		return results.Median(worths)
	}, 0.95, bootstrapSeed)
	return s
}
