package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/reprise-rl/reprise/results"
)

// essFigure draws the effective sample size measured at each age, of every arm that has it; ok is
// false if none has.
func essFigure(arms []*arm) (f figure, ok bool, err error) {
	f.Title = "ESS by age"
	s := half()
	ch := &chart{title: "Effective sample size by age of the rollouts", class: s.class, width: s.width, height: 235, left: 40, right: 10}
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
				ch.layers = append(ch.layers, line(points, side.role.thin(), 0.8)...)
			}
		}
		middle := essPoints(medianESS(curves))
		ch.layers = append(ch.layers, line(middle, side.role, 2)...)
		if len(middle) <= 40 && len(middle) > 0 {
			ch.layers = append(ch.layers, dots(middle, side.role, 2.1))
		}
		if target := targetESS(side); len(curves) > 0 && target.Known() {
			ys.add(target.Float())
			ch.layers = append(ch.layers, targetLine{target.Float()})
		}
		if note := decayNote(side, len(arms) > 1); len(curves) > 0 && note != "" {
			notes = append(notes, note)
		}
	}
	if ys.empty() {
		return f, false, nil
	}
	y := ys.padded(0.08)
	ch.x = axis{title: "age at use, in versions", low: 0, high: cmp.Or(xs.high, 1), ticks: ticks{about: 6, integer: true}, gridless: true}
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

// medianESS returns the median over runs in every bin of ages that one of them measured.
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
	slices.SortFunc(middle, func(a, b results.AgeESS) int { return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(a.Last, b.Last)) })
	return middle
}

// targetESS returns the effective sample size that an arm's tau was set for, nothing if it was
// fixed.
func targetESS(side *arm) results.Number {
	return medianNumber(side.priorities(), func(p *results.Priority) results.Number {
		if !p.Auto {
			return results.Number{}
		}
		return p.TargetESS
	})
}

// decayNote says what tau was, and what it aimed at.
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
		value = short(tau.Float(), 0) + " versions"
	}
	if target.Known() {
		return fmt.Sprintf("τ%s: %s at the end, set for an ESS/n of %s over all ages (dashed).", who, value, short(target.Float(), 0))
	}
	return fmt.Sprintf("τ%s: %s.", who, value)
}
