package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/results"
)

// abscissa is a measure of how far a run had come, along which accuracy is drawn.
type abscissa struct {
	title string
	at    func(results.Axes) float64
}

// byCompute measures compute in updates that cost so much.
func byCompute(title string, unit float64) abscissa {
	return abscissa{title, func(a results.Axes) float64 { return a.Compute / unit }}
}

// inUpdates measures compute in updates without replay.
func inUpdates(a Arm) abscissa {
	return byCompute("compute, in updates without replay", unit(a.Config))
}

// bySteps counts optimizer updates.
func bySteps() abscissa {
	return abscissa{"optimizer updates", func(a results.Axes) float64 { return a.Update }}
}

// byClock measures virtual time.
func byClock() abscissa {
	return abscissa{"virtual time, in rollouts' trainings by one trainer", func(a results.Axes) float64 { return a.Clock }}
}

func axesOf(e results.Eval) results.Axes {
	return results.Axes{Update: float64(e.Update), Compute: e.Compute, ComputeBusy: e.ComputeBusy, ComputeAll: e.ComputeAll, Clock: e.Clock}
}

// line is an arm as it is drawn.
type line struct {
	Runs
	name   string // empty: the arm's
	colour int
	dashed bool // computed, as a page's legend has it
}

// lines gives each arm a colour of its own, from a first.
func lines(first int, arms ...Runs) []line {
	list := make([]line, len(arms))
	for i, a := range arms {
		list[i] = line{Runs: a, colour: first + i}
	}
	return list
}

func (l line) title() string {
	if l.name != "" {
		return l.name
	}
	return l.Name
}

// medianCurve is the median accuracy over an arm's seeds with its quartiles.
func (l line) medianCurve(x abscissa) results.Curve {
	c := results.Curve{Name: l.title(), Colour: l.colour, Dashed: l.dashed}
	for _, p := range results.MedianCurve(l.evals()) {
		c.At = append(c.At, results.Point{X: x.at(p.At), Y: results.Num(p.Pass1), Low: results.Num(p.Q1), High: results.Num(p.Q3)})
	}
	return c
}

// seedCurves are the accuracies of an arm's runs, one by one; one that ended with an error falls to 0.
func (l line) seedCurves(x abscissa) []results.Curve {
	var curves []results.Curve
	for _, r := range l.Runs.Runs {
		c := results.Curve{Name: fmt.Sprintf("%s, seed %d", l.title(), r.Seed), Colour: l.colour, Thin: true}
		for _, e := range r.Evals {
			c.At = append(c.At, results.Point{X: x.at(axesOf(e)), Y: results.Num(e.Pass1)})
		}
		if n := len(c.At); n > 0 && failed(r) {
			c.At = append(c.At, results.Point{X: c.At[n-1].X, Y: results.Num(0)})
		}
		if len(c.At) > 0 {
			curves = append(curves, c)
		}
	}
	return curves
}

// evals returns the evaluations of the runs that have any. One that ended with an error goes on at accuracy 0 as far as the longest: left
// out, or with its end taken for that of all, it would hide what it cost.
func (a Runs) evals() [][]results.Eval {
	var longest []results.Eval
	for _, r := range a.Runs {
		if len(r.Evals) > len(longest) {
			longest = r.Evals
		}
	}
	var list [][]results.Eval
	for _, r := range a.Runs {
		switch {
		case len(r.Evals) == 0:
		case failed(r):
			list = append(list, lost(r.Evals, longest))
		default:
			list = append(list, r.Evals)
		}
	}
	return list
}

// lost continues evaluations at accuracy 0, at the steps of a run that came further.
func lost(evals, further []results.Eval) []results.Eval {
	list := slices.Clone(evals)
	for _, e := range further {
		if e.Grid > evals[len(evals)-1].Grid {
			e.Pass1, e.PassAt = 0, nil
			list = append(list, e)
		}
	}
	return list
}

func accuracyAxis() results.Axis { return results.Axis{Title: "held-out pass@1"} }

// medians draws the median accuracy of arms, with the target where they have one.
func medians(title, note string, x abscissa, lines ...line) results.Figure {
	f := results.Figure{Title: title, Note: note, X: results.Axis{Title: x.title}, Y: accuracyAxis()}
	for _, l := range lines {
		if c := l.medianCurve(x); len(c.At) > 0 {
			f.Curves = append(f.Curves, c)
		}
	}
	return f
}

// everySeed draws the accuracy of every run of arms behind their medians.
func everySeed(title, note string, x abscissa, lines ...line) results.Figure {
	f := medians(title, note, x, lines...)
	for i := range f.Curves { // the runs themselves show the spread
		for j := range f.Curves[i].At {
			f.Curves[i].At[j].Low, f.Curves[i].At[j].High = results.Number{}, results.Number{}
		}
	}
	for _, l := range lines {
		f.Curves = append(l.seedCurves(x), f.Curves...)
	}
	return f
}

// withTarget draws the target across a figure of accuracy.
func withTarget(f results.Figure, target float64) results.Figure {
	f.Guides = append(f.Guides, results.Guide{Name: fmt.Sprintf("target %g", target), Y: results.Num(target)})
	return f
}

// heat draws a quantity of the grid of splits and capacities: nothing where it is infinite or not known.
func heat(title, note, unit string, digits int, less bool, value func(cell) float64) results.Figure {
	m := &results.HeatMap{Digits: digits, Unit: unit, Less: less}
	for _, n := range labCapacities() {
		m.Columns = append(m.Columns, fmt.Sprint(n))
	}
	for _, s := range labSplits() {
		m.Rows = append(m.Rows, s.String())
		var row []results.Number
		for _, n := range labCapacities() {
			v := math.NaN()
			if slices.Contains(capacitiesAt(s), n) {
				v = value(cell{s, n})
			}
			row = append(row, results.Num(v))
		}
		m.Values = append(m.Values, row)
	}
	return results.Figure{
		Title: title, Note: note, X: results.Axis{Title: "capacity N, rollouts"}, Y: results.Axis{Title: "workers and trainers (W,T)"}, Map: m,
	}
}

// against draws a quantity of arms against a level of theirs: its median and quartiles over seeds.
func against(name string, colour int, levels []float64, of []spread) results.Curve {
	c := results.Curve{Name: name, Colour: colour}
	for i, s := range of {
		c.At = append(c.At, results.Point{X: levels[i], Y: results.Num(s.median), Low: results.Num(s.q1), High: results.Num(s.q3)})
	}
	return c
}

// armsGrid tells what became of arms.
func armsGrid(title string, arms ...Runs) results.Grid {
	g := results.Grid{
		Title: title,
		Note: "Medians over seeds, quartiles in brackets. Compute is in updates without replay. The greatest fall is from a run's best accuracy " +
			"until then; a run that ended with an error falls to 0. A run crashed if it did, or ended with less than half of its best.",
		Columns: []string{"arm", "seeds", "best pass@1", "last pass@1", "compute to the target", "compute to 98% of its best", "greatest fall", "crashed"},
	}
	for _, a := range arms {
		g.Rows = append(g.Rows, []string{
			a.Name, fmt.Sprint(len(a.Runs)), a.cell(best, points), a.cell(last, points), a.cell(toTarget, updates), a.cell(toOwnBest, updates),
			a.cell(fall, points), fmt.Sprint(a.crashes()),
		})
	}
	return g
}

// cell writes the median of a measure and its quartiles.
func (a Runs) cell(m measure, value func(float64) string) string {
	s := quartilesOf(a.over(m))
	switch {
	case len(s.values) == 0:
		return "—"
	case len(s.values) == 1 || s.q1 == s.q3:
		return value(s.median)
	default:
		return fmt.Sprintf("%s (%s to %s)", value(s.median), value(s.q1), value(s.q3))
	}
}

// trouble lists the runs that ended with an error, nothing if none did.
func (f *Found) trouble() []results.Section {
	g := results.Grid{Title: "Runs that ended with an error", Columns: []string{"arm", "run"}}
	for _, a := range f.Arms {
		for _, why := range a.Failed {
			g.Rows = append(g.Rows, []string{a.Name, why})
		}
	}
	if len(g.Rows) == 0 {
		return nil
	}
	return []results.Section{{
		Title: "What failed",
		Text:  []string{"These runs stay in the study as what they are: accuracy 0 from where they ended, and a target that they had not reached not reached. To have one made again, remove its folder from the pool."},
		Grids: []results.Grid{g},
	}}
}

// names joins names for a sentence.
func names(list []string) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	switch n := len(list); n {
	case 0:
		return "none"
	case 1:
		return list[0]
	default:
		s := list[0]
		for _, x := range list[1 : n-1] {
			s += ", " + x
		}
		return s + " and " + list[n-1]
	}
}
