package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/results"
)

// ageBar is the units within a range of ages.
type ageBar struct {
	index       uint64  // of the stretch
	probability float64 // with which a draw falls on them, in [0, 1]
	held        float64 // share of the units held, which is that probability if all weigh the same
	base        float64 // mean
}

// priorities returns the final state of the prioritized tables of an arm's runs.
func (a *arm) priorities() []*results.Priority {
	var list []*results.Priority
	for _, s := range a.summaries() {
		if s.Sampling != nil && s.Sampling.Priority != nil {
			list = append(list, s.Sampling.Priority)
		}
	}
	return list
}

// ageBars adds up tables in ranges of ages that fit a plot. width is the size of a range in versions.
func ageBars(tables []*results.Priority) (bars []ageBar, width uint64) {
	oldest, tablesWithUnits := 0, 0.0
	for _, p := range tables {
		if n := len(p.ByAge); n > 0 {
			oldest = max(oldest, p.ByAge[n-1].Age)
			tablesWithUnits++
		}
	}
	width = uint64(oldest+maxBins) / maxBins
	byIndex := map[uint64]*ageBar{}
	units := 0.0
	for _, p := range tables {
		for _, at := range p.ByAge {
			i := uint64(at.Age) / width
			if byIndex[i] == nil {
				byIndex[i] = &ageBar{index: i}
			}
			n := float64(at.Count)
			byIndex[i].probability += at.Probability / tablesWithUnits
			byIndex[i].base += n * at.Base
			byIndex[i].held += n
			units += n
		}
	}
	for _, i := range slices.Sorted(maps.Keys(byIndex)) {
		b := byIndex[i]
		b.base /= b.held
		b.held /= units
		bars = append(bars, *b)
	}
	return bars, width
}

// priorityFigure draws the probability and the mean base of each age; ok is false if the arm has no prioritized table
// with units.
func priorityFigure(side *arm, compared bool) (f figure, ok bool, err error) {
	tables := side.priorities()
	held, width := ageBars(tables)
	if len(held) == 0 {
		return f, false, nil
	}
	f.Title = "Priority against age"
	if compared {
		f.Title += ", " + side.label
	}
	last := held[len(held)-1].index
	x := axis{low: -0.5, high: float64((last+1)*width) - 0.5, ticks: ticks{about: 6, integer: true}, gridless: true}
	halfLife := medianNumber(tables, func(p *results.Priority) results.Number { return p.HalfLife })
	top, err := probabilityChart(side, held, width, x, halfLife).svg()
	if err != nil {
		return f, false, err
	}
	x.title = "age, in versions"
	bottom, err := baseChart(side, held, width, x).svg()
	if err != nil {
		return f, false, err
	}
	f.SVG = []markup{top, bottom}
	f.Note = "At the end of the run. The grey line is what uniform draws would give. " + halfLifeNote(halfLife, x.high)
	return f, true, nil
}

// halfLifeNote describes the half-life, drawn or not.
func halfLifeNote(halfLife results.Number, end float64) string {
	switch h := halfLife.Float(); {
	case !halfLife.Known():
		return "Age does not count."
	case h > end:
		return fmt.Sprintf("The half-life, %s versions, lies beyond the oldest held.", words.Amount(h))
	default:
		return fmt.Sprintf("Dashed: the half-life, %s versions.", words.Amount(h))
	}
}

func probabilityChart(side *arm, held []ageBar, width uint64, x axis, halfLife results.Number) *chart {
	shares := bars{role: side.role, width: float64(width)}
	var uniform plotter.XYs
	highest := 0.0
	for i, b := range held {
		shares.bars = append(shares.bars, bar{b.index, 100 * b.probability})
		left, right := float64(b.index*width)-0.5, float64((b.index+1)*width)-0.5
		if i > 0 && held[i-1].index+1 < b.index { // a stretch that holds nothing
			uniform = append(uniform, plotter.XY{X: float64((held[i-1].index+1)*width) - 0.5, Y: 0}, plotter.XY{X: left, Y: 0})
		}
		uniform = append(uniform, plotter.XY{X: left, Y: 100 * b.held}, plotter.XY{X: right, Y: 100 * b.held})
		highest = max(highest, 100*b.probability, 100*b.held)
	}
	ch := &chart{title: "Probability of a draw against age, " + side.label, class: "half", width: 380, height: 165,
		left: 40, right: 10}
	unit := "% of draws"
	if width > 1 {
		unit += fmt.Sprintf(", by %d versions", width)
	}
	ch.x, ch.y = x, axis{title: unit, low: 0, high: highest * 1.12, ticks: ticks{about: 4}}
	ch.layers = []plot.Plotter{shares, line{uniform, penOf(onFillColor, 3)}, line{uniform, penOf(mutedColor, 1.2)}}
	if halfLife.Known() && halfLife.Float() <= x.high {
		ch.layers = append(ch.layers, ageMark{halfLife.Float(), "half-life " + words.Amount(halfLife.Float())})
	}
	return ch
}

func baseChart(side *arm, held []ageBar, width uint64, x axis) *chart {
	points := make(plotter.XYs, len(held))
	ys := nothing()
	ys.add(0)
	for i, b := range held {
		points[i] = plotter.XY{X: (float64(b.index)+0.5)*float64(width) - 0.5, Y: b.base}
		ys.add(b.base)
	}
	base := "mean base"
	if p := side.priorities(); p[0].Base != "" {
		base += ", " + p[0].Base
	}
	ch := &chart{title: "Mean base of the priority against age, " + side.label, class: "half", width: 380, height: 115,
		left: 40, right: 10}
	ch.x, ch.y = x, axis{title: base, low: 0, high: cmp.Or(ys.high*1.1, 1), ticks: ticks{about: 3}}
	ch.layers = []plot.Plotter{line{points, penOf(side.role, 1.7)}}
	return ch
}

// medianNumber returns the median of a number over the items that know it.
func medianNumber[T any](list []T, of func(T) results.Number) results.Number {
	values := make([]float64, len(list))
	for i, v := range list {
		values[i] = of(v).Float()
	}
	return results.RangeOf(values).Median
}

// essFigure draws the effective sample size by age, of every arm that measured it; ok is false if none did.
func essFigure(arms []*arm) (f figure, ok bool, err error) {
	f.Title = "ESS by age"
	s := half()
	ch := &chart{title: "Effective sample size by age of the rollouts", class: s.class, width: s.width, height: 235,
		left: 40, right: 10}
	xs, ys := nothing(), nothing()
	xs.add(0)
	var notes []string
	for _, side := range arms {
		var curves [][]results.AgeESS
		for _, s := range side.summaries() {
			if len(s.ESSByAge) > 1 { // at one age, that of training on the spot, there is nothing to see
				curves = append(curves, s.ESSByAge)
			}
		}
		for _, c := range curves {
			points := essPoints(c)
			for _, p := range points {
				xs.add(p.X)
				ys.add(p.Y)
			}
			if len(curves) > 1 {
				ch.layers = append(ch.layers, line{points, penOf(side.role.thin(), 0.8)})
			}
		}
		middle := essPoints(medianESS(curves))
		ch.layers = append(ch.layers, line{middle, penOf(side.role, 2)})
		if len(middle) <= 40 && len(middle) > 0 {
			ch.layers = append(ch.layers, dots(middle, side.role, 2.1))
		}
		if target := targetESS(side); len(curves) > 0 && target.Known() {
			ys.add(target.Float())
			ch.layers = append(ch.layers, targetRule(target.Float()))
		}
		if note := decayNote(side, len(arms) > 1); len(curves) > 0 && note != "" {
			notes = append(notes, note)
		}
	}
	if ys.empty() {
		return f, false, nil
	}
	y := ys.padded(0.08)
	ch.x = axis{title: "age at use, in versions", low: 0, high: cmp.Or(xs.high, 1), ticks: ticks{about: 6, integer: true},
		gridless: true}
	ch.y = axis{title: "ESS/n by token", low: max(0, y.low), high: min(1, y.high), ticks: ticks{about: 5}}
	svg, err := ch.svg()
	f.SVG = []markup{svg}
	f.Note = strings.Join(notes, " ")
	return f, true, err
}

// essPoints places each measurement in the middle of its ages.
func essPoints(curve []results.AgeESS) plotter.XYs {
	points := make(plotter.XYs, len(curve))
	for i, e := range curve {
		points[i] = plotter.XY{X: float64(e.Age+e.Last) / 2, Y: e.ESS}
	}
	return points
}

// medianESS returns the median over runs in every bin of ages.
func medianESS(curves [][]results.AgeESS) []results.AgeESS {
	type ages struct{ age, last int }
	measured := map[ages][]float64{}
	for _, c := range curves {
		for _, e := range c {
			at := ages{e.Age, e.Last}
			measured[at] = append(measured[at], e.ESS)
		}
	}
	var middle []results.AgeESS
	for at, values := range measured {
		middle = append(middle, results.AgeESS{Age: at.age, Last: at.last, ESS: results.Median(values)})
	}
	slices.SortFunc(middle, func(a, b results.AgeESS) int {
		return cmp.Or(cmp.Compare(a.Age, b.Age),
			cmp.Compare(a.Last, b.Last))
	})
	return middle
}

// targetESS returns the effective sample size for which an arm's tau was set, unknown if tau was fixed.
func targetESS(side *arm) results.Number {
	return medianNumber(side.priorities(), func(p *results.Priority) results.Number {
		if !p.Auto {
			return results.Number{}
		}
		return p.TargetESS
	})
}

// decayNote describes tau and its target.
func decayNote(side *arm, compared bool) string {
	tau := medianNumber(side.priorities(), func(p *results.Priority) results.Number { return p.AgeDecay })
	target := targetESS(side)
	if !tau.Known() && !target.Known() {
		return ""
	}
	who := ""
	if compared {
		who = ", " + side.label
	}
	value := "infinite"
	if tau.Known() {
		value = words.Amount(tau.Float()) + " versions"
	}
	if target.Known() {
		return fmt.Sprintf("τ%s: %s at the end, set for an ESS/n of %s over all ages (dashed).", who, value,
			words.Amount(target.Float()))
	}
	return fmt.Sprintf("τ%s: %s.", who, value)
}
