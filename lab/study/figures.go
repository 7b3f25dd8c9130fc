package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// line is an arm as it is drawn.
type line struct {
	Runs
	name   string // in the legend
	colour int
	dashed bool
}

// lines gives each arm a colour of its own, counted from the first.
func lines(first int, arms ...Runs) []line {
	list := make([]line, len(arms))
	for i, a := range arms {
		list[i] = line{Runs: a, name: a.Name, colour: first + i}
	}
	return list
}

// namedLines names the arms by their number.
func namedLines(first int, name func(int) string, arms ...Runs) []line {
	list := lines(first, arms...)
	for i := range list {
		list[i].name = name(i)
	}
	return list
}

// progress is a measure of how far a run has come. Accuracy is drawn along it.
type progress struct {
	title string
	at    func(run.Config, results.Axes) float64
}

// byCompute is compute in a unit.
func byCompute(title string, unit float64) progress {
	return progress{title, func(_ run.Config, a results.Axes) float64 { return a.Compute / unit }}
}

// inUpdates is compute in an arm's updates without replay.
func inUpdates(a Arm) progress {
	return byCompute("compute, in updates without replay", unit(a.Config))
}

func byUpdates() progress {
	return progress{"optimizer updates", func(_ run.Config, a results.Axes) float64 { return a.Update }}
}

func byClock() progress {
	return progress{"virtual time, in rollouts' trainings by one trainer",
		func(_ run.Config, a results.Axes) float64 { return a.Clock }}
}

func byRollouts() progress {
	return progress{"fresh rollouts", func(c run.Config, a results.Axes) float64 { return freshRollouts(c, a.Update) }}
}

// medianCurve is the median accuracy over an arm's seeds with its quartiles.
func (l line) medianCurve(x progress) results.Curve {
	c := results.Curve{Name: l.name, Colour: l.colour, Dashed: l.dashed}
	for _, p := range results.MedianCurve(l.evals()) {
		c.At = append(c.At, results.Point{X: x.at(l.Config, p.At), Y: results.Num(p.Pass1), Low: results.Num(p.Q1),
			High: results.Num(p.Q3)})
	}
	return c
}

// seedCurves are the accuracies of an arm's runs. A run that failed falls to 0 at its end.
func (l line) seedCurves(x progress) []results.Curve {
	var curves []results.Curve
	for _, r := range l.Runs.Runs {
		c := results.Curve{Name: fmt.Sprintf("%s, seed %d", l.name, r.Seed), Colour: l.colour, Thin: true}
		for _, e := range r.Evals {
			at := results.Axes{Update: float64(e.Update), Compute: e.Compute, Clock: e.Clock}
			c.At = append(c.At, results.Point{X: x.at(l.Config, at), Y: results.Num(e.Pass1)})
		}
		if n := len(c.At); n > 0 && failed(r) {
			c.At = append(c.At, results.Point{X: c.At[n-1].X, Y: results.Num(0)})
		}
		curves = append(curves, c)
	}
	return curves
}

// evals returns the evaluations of the runs that have any.
func (a Runs) evals() (list [][]results.Eval) {
	for _, r := range a.Runs {
		if len(r.Evals) > 0 {
			list = append(list, a.evalsOf(r))
		}
	}
	return list
}

// evalsOf returns the evaluations of a run. One that failed goes on at accuracy 0 to the end of its budget: if it
// were left out, or ended the median curve, its loss would not show.
func (a Runs) evalsOf(r *results.Run) []results.Eval {
	if len(r.Evals) == 0 || !failed(r) {
		return r.Evals
	}
	longest := slices.MaxFunc(a.Runs, func(x, y *results.Run) int { return cmp.Compare(len(x.Evals), len(y.Evals)) })
	evals, end := slices.Clone(r.Evals), r.Evals[len(r.Evals)-1].Grid
	for _, step := range grid(a.Config, 1) {
		if step <= end*(1+1e-9) {
			continue
		}
		last := r.Evals[len(r.Evals)-1]
		on := step / max(end, 1) // times as far as it came
		lost := results.Eval{Grid: step, Compute: step, Clock: on * last.Clock, Update: int(on * float64(last.Update))}
		if i := slices.IndexFunc(longest.Evals, func(e results.Eval) bool { return e.Grid == step }); i >= 0 {
			lost = longest.Evals[i]
			lost.Pass1, lost.PassAt = 0, nil
		}
		evals = append(evals, lost)
	}
	return evals
}

// metricCurve is a metric along the budget: the median over seeds of its mean since the evaluation before, with
// quartiles. Condensed runs have a line of metrics for each evaluation.
func (l line) metricCurve(of metric) results.Curve {
	c := results.Curve{Name: l.name, Colour: l.colour, Dashed: l.dashed}
	for k := 0; ; k++ {
		var compute, values []float64
		for _, r := range l.Runs.Runs {
			if k < len(r.Updates) {
				compute, values = append(compute, r.Updates[k].Compute), append(values, of(&r.Updates[k]).Float())
			}
		}
		if len(values) == 0 {
			return c
		}
		values = slices.DeleteFunc(values, math.IsNaN)
		if len(values) > 0 {
			c.At = append(c.At, quartilesOf(values).point(results.Median(compute)/unit(l.Config)))
		}
	}
}

// quartiles are the median and the quartiles of values.
type quartiles struct {
	values         []float64
	median, q1, q3 float64 // NaN without values
}

func quartilesOf(values []float64) quartiles {
	return quartiles{values, results.Median(values), results.Quantile(values, 0.25), results.Quantile(values, 0.75)}
}

// point is the median with its quartiles.
func (q quartiles) point(x float64) results.Point {
	return results.Point{X: x, Y: results.Num(q.median), Low: results.Num(q.q1), High: results.Num(q.q3)}
}

// point is the mean with its interval.
func (e estimate) point(x float64) results.Point {
	low, high := e.pairs.Interval(intervalLevel)
	p := results.Point{X: x, Low: results.Num(low), High: results.Num(high)}
	if from, to := e.pairs.Mean(); from == to {
		p.Y = results.Num(from)
	}
	return p
}

// curveOf draws estimates against the levels of their arms.
func curveOf(name string, colour int, levels []float64, of []estimate) results.Curve {
	c := results.Curve{Name: name, Colour: colour}
	for i, e := range of {
		c.At = append(c.At, e.point(levels[i]))
	}
	return c
}

// figure draws the curves that have points.
func figure(title, note, x, y string, curves ...results.Curve) results.Figure {
	return results.Figure{
		Title: title, Note: note, X: results.Axis{Title: x}, Y: results.Axis{Title: y},
		Curves: slices.DeleteFunc(curves, func(c results.Curve) bool { return len(c.At) == 0 }),
	}
}

const accuracy = "held-out pass@1"

// medianFigure draws the median accuracy of arms with quartiles.
func medianFigure(title, note string, x progress, lines ...line) results.Figure {
	var curves []results.Curve
	for _, l := range lines {
		curves = append(curves, l.medianCurve(x))
	}
	return figure(title, note, x.title, accuracy, curves...)
}

// seedFigure draws the accuracy of every run of arms behind their medians.
func seedFigure(title, note string, x progress, lines ...line) results.Figure {
	var curves []results.Curve
	for _, l := range slices.Backward(lines) {
		curves = append(curves, l.seedCurves(x)...)
	}
	for _, l := range lines {
		curves = append(curves, withoutBand(l.medianCurve(x)))
	}
	return figure(title, note, x.title, accuracy, curves...)
}

// withoutBand drops the quartiles of a curve.
func withoutBand(c results.Curve) results.Curve {
	for i := range c.At {
		c.At[i].Low, c.At[i].High = results.Number{}, results.Number{}
	}
	return c
}

// metricFigure draws a metric of arms along their budgets.
func metricFigure(title, note, y string, of metric, lines ...line) results.Figure {
	var curves []results.Curve
	for _, l := range lines {
		curves = append(curves, l.metricCurve(of))
	}
	return figure(title, note, "compute, in updates without replay", y, curves...)
}

// withGuide draws a horizontal line across a figure.
func withGuide(f results.Figure, name string, y float64) results.Figure {
	f.Guides = append(f.Guides, results.Guide{Name: name, Y: results.Num(y)})
	return f
}

// withTarget draws the target across a figure of accuracy.
func withTarget(f results.Figure, target float64) results.Figure {
	return withGuide(f, fmt.Sprintf("target %g", target), target)
}

// heatMap draws a quantity of the grid of splits and capacities. Cells where it is infinite or not known stay empty.
func heatMap(title, note, unit string, digits int, less bool, value func(cell) float64) results.Figure {
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
	f := figure(title, note, "capacity N, rollouts", "workers and trainers (W,T)")
	f.Map = m
	return f
}

// column is a column of a table of arms.
type column struct {
	title string
	of    func(Runs) string
}

// medianOf is a column with the median of a measure and its quartiles.
func medianOf(title string, m measure, write format) column {
	return column{title, func(a Runs) string { return a.cell(m, write) }}
}

// plainMedian is a column with the median of a measure alone.
func plainMedian(title string, m measure, write format) column {
	return column{title, func(a Runs) string { return write(a.median(m)) }}
}

// compared is a column with the comparison of each arm with a reference, which has none itself.
func compared(title string, reference Runs, of func(a, b Runs) estimate) column {
	return column{title, func(a Runs) string {
		if a.Name == reference.Name {
			return missing
		}
		return of(a, reference).cell()
	}}
}

// cell writes the median of a measure and its quartiles.
func (a Runs) cell(m measure, write format) string {
	q := quartilesOf(a.over(m))
	switch {
	case len(q.values) == 0:
		return missing
	case len(q.values) == 1 || q.q1 == q.q3:
		return write(q.median)
	default:
		return fmt.Sprintf("%s (%s to %s)", write(q.median), write(q.q1), write(q.q3))
	}
}

// table has a row for each arm, under its name.
func table(title, note string, arms []Runs, columns ...column) results.Grid {
	g := results.Grid{Title: title, Note: note, Columns: []string{"arm"}}
	for _, c := range columns {
		g.Columns = append(g.Columns, c.title)
	}
	for _, a := range arms {
		row := []string{a.Name}
		for _, c := range columns {
			row = append(row, c.of(a))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

const mediansNote = "Medians over seeds, quartiles in brackets."

// armsTable shows how the runs of arms ended.
func armsTable(title string, arms ...Runs) results.Grid {
	return table(title, mediansNote+" Compute is in updates without replay. The accuracy reached is the end of a run's "+
		"isotonic curve, the nearest that never falls. A run wavers by its deviation from a smooth curve, of which sampling "+
		"of the answers explains some, at most what stands beside it. A "+
		"run that failed goes on at 0. It crashed if it failed or ended with less than half of its highest accuracy.",
		arms,
		column{"runs", func(a Runs) string { return fmt.Sprint(len(a.Runs)) }},
		medianOf("pass@1 reached", level, points), medianOf("mean pass@1", meanOver(1), points),
		medianOf("compute to the target", toTarget, updates),
		medianOf("compute to 98% of what it reached", toOwnLevel, updates),
		medianOf("wavers by", wavering, points), plainMedian("sampling, at most", sampled, points),
		column{"crashed", func(a Runs) string { return fmt.Sprint(a.crashes()) }})
}

// failures lists the runs that failed, nothing if none did.
func (f *Found) failures() []results.Section {
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
		Text: []string{"These runs stay in the study: their accuracy counts as 0 after they failed, and a target " +
			"that they had not reached as not reached. To repeat a run, remove its folder from the pool."},
		Grids: []results.Grid{g},
	}}
}
