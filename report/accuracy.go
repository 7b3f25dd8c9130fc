package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/results"
)

// progress is an x axis of accuracy.
type progress struct {
	title  string // of the axis, with the unit
	of     func(results.Eval) float64
	end    func(results.Update) float64
	median func(results.Axes) float64
	reach  func(results.Reach) float64
}

func byCompute() progress {
	return progress{
		"compute: rollouts through one trainer",
		func(e results.Eval) float64 { return e.Compute },
		func(u results.Update) float64 { return u.Compute },
		func(a results.Axes) float64 { return a.Compute },
		func(r results.Reach) float64 { return r.Compute.Float() },
	}
}

func byUpdates() progress {
	return progress{
		"optimizer updates",
		func(e results.Eval) float64 { return float64(e.Update) },
		func(u results.Update) float64 { return float64(u.Update) },
		func(a results.Axes) float64 { return a.Update },
		func(r results.Reach) float64 { return float64(r.Update) },
	}
}

func byClock() progress {
	return progress{
		"virtual time: trainer time per rollout",
		func(e results.Eval) float64 { return e.Clock },
		func(u results.Update) float64 { return u.Clock },
		func(a results.Axes) float64 { return a.Clock },
		func(r results.Reach) float64 { return r.Clock.Float() },
	}
}

// shape is the size of a chart and what fits into it.
type shape struct {
	class         string
	width, height vg.Length
	labels        bool // names of the arms beside the lines, values at the marks
	about         int  // ticks along x
}

func wide() shape { return shape{"wide", 840, 330, true, 9} }

func narrow() shape { return shape{"narrow", 380, 260, false, 5} }

func half() shape { return shape{"half", 380, 225, false, 5} }

// accuracyChart shows a measure of the held-out evaluations. Each arm has the median over its runs, the quartile band
// if there are few arms, and each run as a thin line.
type accuracyChart struct {
	title   string
	yTitle  string
	measure func(results.Eval) results.Number
	against progress
	target  results.Number // nothing: none is drawn
	guides  []guide        // what others come to
	free    bool           // the measure is no share: it may lie outside [0, 1]
}

// chart lays the chart out; ok is false if no run was evaluated.
func (a accuracyChart) chart(arms []*arm, s shape) (ch *chart, ok bool) {
	ch = &chart{title: a.title, class: s.class, width: s.width, height: s.height, left: 34, right: 10}
	xs, ys := nothing(), nothing()
	xs.add(0)
	var spread, lines, marks []plot.Plotter
	var ends []label
	for _, side := range arms {
		one := a.drawArm(side, len(arms), &xs, &ys)
		spread, lines, marks = append(spread, one.spread...), append(lines, one.lines...), append(marks, one.marks...)
		if n := len(one.median); n > 0 && s.labels {
			ends = append(ends, label{at: one.median[n-1], text: clipped(side.label), role: side.role})
		}
	}
	if ys.empty() {
		return nil, false
	}
	if a.target.Known() {
		ys.add(a.target.Float())
	}
	for _, g := range a.guides {
		ys.add(g.y)
	}
	y := ys.padded(0.06)
	if !a.free {
		y.low, y.high = max(0, y.low), min(1, y.high)
	}
	ch.x = axis{title: a.against.title, low: xs.low, high: cmp.Or(xs.high, 1), ticks: ticks{about: s.about},
		gridless: true}
	ch.y = axis{title: a.yTitle, low: y.low, high: y.high, ticks: ticks{about: 5}}
	ch.layers = append(ch.layers, spread...)
	if a.target.Known() {
		ch.layers = append(ch.layers, targetRule(a.target.Float()))
	}
	for _, g := range a.guides {
		style := draw.LineStyle{Color: mutedColor.color(), Width: 0.9, Dashes: []vg.Length{2, 2.5}}
		ch.layers = append(ch.layers, rule{at: g.y, style: style})
	}
	ch.layers = append(append(ch.layers, lines...), marks...)
	if s.labels {
		if a.target.Known() {
			at := plotter.XY{X: ch.x.high, Y: a.target.Float()}
			ends = append(ends, label{at: at, text: "target " + words.Amount(at.Y), role: inkColor})
		}
		for _, g := range a.guides {
			ends = append(ends, label{at: plotter.XY{X: ch.x.high, Y: g.y}, text: g.name, role: mutedColor})
		}
		names := endLabels{ends, len(arms) > 2}
		ch.right = max(78, names.width())
		ch.layers = append(ch.layers, names)
		if len(arms) <= 2 {
			ch.layers = append(ch.layers, reachLabels(a.reaches(arms)))
		}
	}
	return ch, true
}

// drawn is the layers of one arm.
type drawn struct {
	spread, lines, marks []plot.Plotter
	median               plotter.XYs
}

// clipped shortens a name to the room beside a plot. The legend has the full name.
func clipped(name string) string {
	const most = 24
	if letters := []rune(name); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return name
}

// drawArm draws one of several arms.
func (a accuracyChart) drawArm(side *arm, arms int, xs, ys *extent) drawn {
	var d drawn
	evals := side.evals()
	stopped := crosses{role: side.role}
	for _, run := range side.runs {
		if n := len(run.Updates); n > 0 { // the axis goes as far as the run, evaluated there or not
			xs.add(a.against.end(run.Updates[n-1]))
		}
		points := make(plotter.XYs, len(run.Evals))
		for i, e := range run.Evals {
			points[i] = plotter.XY{X: a.against.of(e), Y: a.measure(e).Float()}
			if !math.IsNaN(points[i].Y) {
				xs.add(points[i].X)
				ys.add(points[i].Y)
			}
		}
		if len(evals) > 1 {
			d.spread = append(d.spread, line{thin(points, 300), penOf(side.role.thin(), 0.8)})
		}
		if parts := unbroken(points); arms > 1 && !ended(run) && len(parts) > 0 {
			last := parts[len(parts)-1]
			stopped.at = append(stopped.at, last[len(last)-1])
		}
	}
	if len(stopped.at) > 0 {
		d.marks = append(d.marks, stopped)
	}
	low, high := plotter.XYs{}, plotter.XYs{}
	for _, p := range medianOf(evals, a.measure) {
		x := a.against.median(p.At)
		d.median = append(d.median, plotter.XY{X: x, Y: p.Pass1})
		low, high = append(low, plotter.XY{X: x, Y: p.Q1}), append(high, plotter.XY{X: x, Y: p.Q3})
	}
	if len(evals) > 1 && len(d.median) > 1 && arms <= maxBandedArms {
		d.spread = append([]plot.Plotter{band{low, high, side.role}}, d.spread...)
	}
	d.lines = []plot.Plotter{line{d.median, penOf(side.role, 2)}}
	if len(d.median) <= 40 {
		d.lines = append(d.lines, dots(d.median, side.role, 2.1))
	}
	if a.target.Known() {
		for _, r := range a.reaches([]*arm{side}) {
			d.marks = append(d.marks, r)
		}
	}
	return d
}

// maxBandedArms is the most arms with quartile bands. The bands of more arms would hide each other.
const maxBandedArms = 2

// ended reports whether a run reached the end of its budget.
func ended(run *results.Run) bool { return run.Summary != nil && run.Summary.Ended != "interrupted" }

// medianOf returns the median curve of a measure, stored as pass@1. It leaves out evaluations without the measure.
func medianOf(runs [][]results.Eval, measure func(results.Eval) results.Number) []results.CurvePoint {
	kept := make([][]results.Eval, len(runs))
	for i, run := range runs {
		for _, e := range run {
			if m := measure(e); m.Known() {
				e.Pass1 = m.Float()
				kept[i] = append(kept[i], e)
			}
		}
	}
	return results.MedianCurve(kept)
}

// reaches returns the points at which the median curves reached the target.
func (a accuracyChart) reaches(arms []*arm) []reachMark {
	var marks []reachMark
	for _, side := range arms {
		r := results.MedianReach(side.evals(), a.target.Float())
		if at := a.against.reach(r); r.Reached && !math.IsNaN(at) {
			marks = append(marks, reachMark{x: at, y: a.target.Float(), role: side.role})
		}
	}
	return marks
}

// figure draws the chart. A second shape is for narrow screens.
func (a accuracyChart) figure(arms []*arm, note string, shapes ...shape) (figure, bool, error) {
	f := figure{Title: a.title, Note: note}
	for _, s := range shapes {
		ch, ok := a.chart(arms, s)
		if !ok {
			return f, false, nil
		}
		svg, err := ch.svg()
		if err != nil {
			return f, false, err
		}
		f.SVG = append(f.SVG, svg)
	}
	return f, true, nil
}

// pass1 is the measure of the headline.
func pass1(e results.Eval) results.Number { return results.Num(e.Pass1) }

// largestK returns the largest k for which pass@k was measured, or 0.
func largestK(arms []*arm) int {
	k := 0
	for _, side := range arms {
		for _, run := range side.evals() {
			for _, e := range run {
				for _, p := range e.PassAt {
					k = max(k, p.K)
				}
			}
		}
	}
	return k
}

// accuracyFigures returns the figures of the accuracy section: the large one and the small ones below it.
func accuracyFigures(arms []*arm, target results.Number) (large, small []figure, err error) {
	pass := func(against progress, title string) accuracyChart {
		return accuracyChart{
			title: title, yTitle: "held-out pass@1, greedy", measure: pass1, against: against, target: target,
			guides: players(arms, passOf),
		}
	}
	add := func(list *[]figure, c accuracyChart, note string, shapes ...shape) {
		f, ok, e := c.figure(arms, note, shapes...)
		if e != nil {
			err = e
		}
		if ok {
			*list = append(*list, f)
		}
	}
	add(&large, pass(byCompute(), "Accuracy against compute"), updateCosts(arms), wide(), narrow())
	add(&small, pass(byUpdates(), "Accuracy against updates"), "", half())
	add(&small, pass(byClock(), "Accuracy against clock time"), "", half())
	if rewarded(arms) {
		add(&small, accuracyChart{
			title: "Reward against compute", yTitle: "held-out mean reward, greedy", measure: heldOutReward,
			against: byCompute(),
			guides:  players(arms, rewardOf), free: true,
		}, "", half())
	}
	if k := largestK(arms); k > 0 {
		atK := func(e results.Eval) results.Number { return e.PassAtK(k) }
		title := fmt.Sprintf("pass@%d against compute", k)
		add(&small, accuracyChart{title: title, yTitle: fmt.Sprintf("held-out pass@%d, sampled", k), measure: atK,
			against: byCompute()}, "", half())
		f, e := passByK(arms)
		if e != nil {
			err = e
		}
		small = append(small, f)
	}
	return large, small, err
}

// passByK draws pass@k over k, before training and at the last evaluation of each arm.
func passByK(arms []*arm) (figure, error) {
	f := figure{Title: "pass@k before and after",
		Note: "Last evaluation of each arm, median over seeds. Grey: the warm start."}
	ys, ks := nothing(), nothing()
	var layers []plot.Plotter
	marked := map[int]bool{}
	curve := func(rates []results.PassRate) plotter.XYs {
		var points plotter.XYs
		for _, r := range rates {
			points = append(points, plotter.XY{X: math.Log2(float64(r.K)), Y: r.Rate})
			ks.add(math.Log2(float64(r.K)))
			ys.add(r.Rate)
			marked[r.K] = true
		}
		return points
	}
	add := func(points plotter.XYs, r role) {
		layers = append(layers, line{points, penOf(r, 2)}, dots(points, r, 2.5))
	}
	for i, side := range arms {
		c := results.MedianCurve(side.evals())
		if len(c) == 0 {
			continue
		}
		if first := c[0]; i == 0 && len(c) > 1 && first.At.Update == 0 {
			add(curve(first.PassAt), mutedColor)
		}
		add(curve(c[len(c)-1].PassAt), side.role)
	}
	y := ys.padded(0.06)
	s := half()
	ch := &chart{title: f.Title, class: s.class, width: s.width, height: s.height, left: 34, right: 10, layers: layers}
	x := ks.padded(0.04)
	ch.x = axis{title: "k, samples per problem", low: x.low, high: x.high, ticks: powersOf(marked), gridless: true}
	ch.y = axis{title: "held-out pass@k, sampled", low: max(0, y.low), high: min(1, y.high), ticks: ticks{about: 5}}
	svg, err := ch.svg()
	f.SVG = append(f.SVG, svg)
	return f, err
}

// powersOf returns ticks at the measured k, on an axis of log2 k.
func powersOf(marked map[int]bool) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		var marks []plot.Tick
		for k := 1; math.Log2(float64(k)) <= high; k++ {
			if marked[k] {
				marks = append(marks, plot.Tick{Value: math.Log2(float64(k)), Label: strconv.Itoa(k)})
			}
		}
		return marks
	})
}

// updateCosts writes the compute of one update of each arm.
func updateCosts(arms []*arm) string {
	var text string
	for _, side := range arms {
		for _, run := range side.runs {
			if n := len(run.Updates); n > 0 {
				last := run.Updates[n-1]
				if text != "" {
					text += ", "
				}
				text += fmt.Sprintf("%s %s", side.label, words.Whole(last.Compute/float64(last.Update)))
				break
			}
		}
	}
	if text == "" {
		return ""
	}
	return "Compute of one update: " + text + "."
}

// guide is the accuracy or reward of a reference player: the expert, or random actions.
type guide struct {
	name string
	y    float64
}

// players returns the reference players that every run knows and on which all agree.
func players(arms []*arm, of func(*results.Bound) float64) []guide {
	var guides []guide
	for _, p := range []struct {
		name  string
		bound func(*results.Summary) *results.Bound
	}{
		{"expert", func(s *results.Summary) *results.Bound { return s.Expert }},
		{"random actions", func(s *results.Summary) *results.Bound { return s.Random }},
	} {
		var found []*results.Bound
		for _, side := range arms {
			for _, s := range side.summaries() {
				found = append(found, p.bound(s))
			}
		}
		differs := func(b *results.Bound) bool { return b == nil || *b != *found[0] }
		if len(found) > 0 && found[0] != nil && !slices.ContainsFunc(found, differs) {
			guides = append(guides, guide{p.name, of(found[0])})
		}
	}
	return guides
}

func passOf(b *results.Bound) float64 { return b.Pass1 }

func rewardOf(b *results.Bound) float64 { return b.Reward }

// heldOutReward is the mean reward of the greedy evaluation.
func heldOutReward(e results.Eval) results.Number { return e.Reward }

// rewarded reports whether any evaluation's reward differs from its pass@1.
func rewarded(arms []*arm) bool {
	for _, side := range arms {
		for _, run := range side.evals() {
			for _, e := range run {
				if r := e.Reward; r.Known() && (r.Float()-e.Pass1 > 1e-6 || e.Pass1-r.Float() > 1e-6) {
					return true
				}
			}
		}
	}
	return false
}
