package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// ageBar is the units within a range of ages.
type ageBar struct {
	index       uint64  // of the stretch
	probability float64 // with which a draw falls on them, in [0, 1]
	held        float64 // share of the units held, which is that probability if all weigh the same
	base        float64 // mean
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

// priorityFigures draws the probability and the mean base of each age, none if the arm has no prioritized table with
// units.
func priorityFigures(side *arm, compared bool) []results.Figure {
	tables := side.priorities()
	held, width := ageBars(tables)
	if len(held) == 0 {
		return nil
	}
	x, unit := results.Axis{Title: "age, in versions", Low: results.Num(0)}, "% of draws"
	if width > 1 {
		unit += fmt.Sprintf(", by %d versions", width)
	}
	base := "mean base"
	if name := tables[0].Base; name != "" {
		base += ", " + name
	}
	drawn, uniform := results.Curve{Name: side.label, Colour: side.colour},
		results.Curve{Dashed: true, Colour: side.colour}
	bases := drawn
	for _, b := range held {
		at := (float64(b.index)+0.5)*float64(width) - 0.5
		drawn.At = append(drawn.At, results.Point{X: at, Y: results.Num(100 * b.probability)})
		uniform.At = append(uniform.At, results.Point{X: at, Y: results.Num(100 * b.held)})
		bases.At = append(bases.At, results.Point{X: at, Y: results.Num(b.base)})
	}
	probability := results.Figure{
		Title: "Priority against age", X: x, Y: results.Axis{Title: unit, Low: results.Num(0)},
		Curves: []results.Curve{uniform, drawn},
	}
	priority := results.Figure{
		Title: "Mean base against age", X: x, Y: results.Axis{Title: base, Low: results.Num(0)},
		Curves: []results.Curve{bases},
	}
	if compared {
		probability.Title += ", " + side.label
		priority.Title += ", " + side.label
	}
	halfLife := medianNumber(tables, func(p *results.Priority) results.Number { return p.HalfLife })
	note := "Age does not count."
	switch last := float64(held[len(held)-1].index+1) * float64(width); {
	case halfLife.Float() > last:
		note = fmt.Sprintf("The half-life, %s versions, lies beyond the oldest held.", number(halfLife))
	case halfLife.Known():
		note = fmt.Sprintf("The half-life is %s versions.", number(halfLife))
		probability.Guides = []results.Guide{{Name: "half-life " + number(halfLife), X: halfLife}}
	}
	probability.Note = "At the end of the run. Dashed: uniform draws. " + note
	return []results.Figure{probability, priority}
}

// samplingSection shows how batches were drawn; ok is false if there is nothing to show.
func samplingSection(arms []*arm) (s section, ok bool) {
	s = section{ID: "sampling", Title: "Sampling", Legend: armKeys(arms)}
	var byAge []results.Figure
	for _, side := range arms {
		byAge = append(byAge, priorityFigures(side, len(arms) > 1)...)
	}
	if f := essFigure(arms); len(f.Curves) > 0 {
		byAge = append(byAge, f)
	}
	if len(byAge) > 0 {
		size := halves()
		if len(byAge) == 3 {
			size = thirds()
		}
		s.Rows = append(s.Rows, size.drawPlain("", byAge))
	}
	if figures, _ := trainingFigures(arms, samplingMetrics(arms)); len(figures) > 0 {
		s.Rows = append(s.Rows, thirds().drawPlain("", figures))
	}
	return s, len(s.Rows) > 0
}

// essFigure draws the effective sample size by age, of every arm that measured it.
func essFigure(arms []*arm) results.Figure {
	f := results.Figure{
		Title: "ESS by age", X: results.Axis{Title: "age at use, in versions", Low: results.Num(0)},
		Y: results.Axis{Title: "ESS/n by token"},
	}
	var notes []string
	for _, side := range arms {
		var curves [][]results.AgeESS
		for _, s := range side.summaries() {
			if len(s.ESSByAge) > 1 { // at one age, that of training on the spot, there is nothing to see
				curves = append(curves, s.ESSByAge)
			}
		}
		if len(curves) == 0 {
			continue
		}
		if len(curves) > 1 {
			for _, c := range curves {
				f.Curves = append(f.Curves, results.Curve{Colour: side.colour, Thin: true, At: essPoints(c)})
			}
		}
		f.Curves = append(f.Curves, results.Curve{Name: side.label, Colour: side.colour,
			At: essPoints(medianESS(curves))})
		if target := targetESS(side); target.Known() {
			f.Guides = append(f.Guides, results.Guide{Name: "target " + number(target), Y: target})
		}
		if note := decayNote(side, len(arms) > 1); note != "" {
			notes = append(notes, note)
		}
	}
	f.Note = strings.Join(notes, " ")
	return f
}

// essPoints places each measurement in the middle of its ages.
func essPoints(curve []results.AgeESS) []results.Point {
	points := make([]results.Point, len(curve))
	for i, e := range curve {
		points[i] = results.Point{X: float64(e.Age+e.Last) / 2, Y: results.Num(e.ESS)}
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
		return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(a.Last, b.Last))
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
		return fmt.Sprintf("τ%s: %s at the end, set for an ESS/n of %s over all ages (dotted).", who, value,
			words.Amount(target.Float()))
	}
	return fmt.Sprintf("τ%s: %s.", who, value)
}
