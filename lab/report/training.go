package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// metric is a quantity of every update.
type metric struct {
	title string
	unit  string
	of    func(*results.Update) results.Number
	rare  bool // not every run measures it
}

// commonMetrics returns the metrics of the training section in order.
func commonMetrics() []metric {
	return []metric{
		{"Reward", "mean of new rollouts", func(u *results.Update) results.Number { return u.Reward }, false},
		{"Entropy", "nats per token", func(u *results.Update) results.Number { return u.Entropy }, false},
		{"Response length", "tokens, batch mean", func(u *results.Update) results.Number { return u.ResponseLength },
			false},
		{"KL(b‖π)", "nats per token, k3", func(u *results.Update) results.Number { return u.KLK3 }, false},
		{"D2(π‖b) = −ln(ESS/n)", "nats, by token", func(u *results.Update) results.Number { return u.D2 }, true},
		{"Effective sample size", "ESS/n by token", func(u *results.Update) results.Number { return u.ESS }, false},
		{"ESS by rollout", "ESS/n, ratio exp(mean log)", func(u *results.Update) results.Number { return u.ESSRollout },
			true},
		{"Clip fraction", "share of tokens", func(u *results.Update) results.Number { return u.ClipFraction }, false},
		{"Staleness", "versions, batch mean", func(u *results.Update) results.Number { return u.StalenessMean }, false},
		{"Gradient norm", "before clipping", func(u *results.Update) results.Number { return u.GradNorm }, false},
		{"Zero-variance groups", "share of groups", func(u *results.Update) results.Number { return u.ZeroVariance },
			false},
		{"Mean |advantage|", "of the batch", func(u *results.Update) results.Number { return u.MeanAbsAdvantage },
			true},
		{"Improvement: lower bound", "of reward, scaled to [0, 1]", other(bound), true},
		{"Improvement: true change", "of reward, scaled to [0, 1]", other(change), true},
		// of episodes of several turns
		{"Turns", "mean of new episodes", func(u *results.Update) results.Number { return u.Turns }, true},
		{"Success", "share of new episodes", func(u *results.Update) results.Number { return u.Success }, true},
		{"Invalid turns", "share of turns that were no action",
			func(u *results.Update) results.Number { return u.Invalid }, true},
	}
}

// The further metrics that are shown among the common ones, side by side.
const (
	bound  = "bound"
	change = "reward_change"
)

// other returns an objective-specific metric by name.
func other(name string) func(*results.Update) results.Number {
	return func(u *results.Update) results.Number { return u.Other[name] }
}

// furtherMetrics returns the remaining objective-specific metrics by name.
func furtherMetrics(arms []*arm) (list []metric) {
	names := make(map[string]bool)
	for _, side := range arms {
		for _, run := range side.runs {
			for _, u := range run.Updates {
				for name := range u.Other {
					names[name] = true
				}
			}
		}
	}
	delete(names, bound)
	delete(names, change)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, metric{name, "as in metrics.jsonl", other(name), true})
	}
	return list
}

// samplingMetrics returns the metrics of sampling that say something of these arms.
func samplingMetrics(arms []*arm) (list []metric) {
	weighted, fresh, moves := false, false, false
	for _, side := range arms {
		for _, run := range side.runs {
			tau := run.Final(func(u *results.Update) results.Number { return u.AgeDecay })
			for i := range run.Updates {
				u := &run.Updates[i]
				weighted = weighted || u.WeightMin.Float() < 1
				fresh = fresh || u.FreshShare.Float() > 0
				moves = moves || u.AgeDecay.Known() && u.AgeDecay != tau // it follows a target ESS
			}
		}
	}
	add := func(is bool, title, unit string, of func(*results.Update) results.Number) {
		if is {
			list = append(list, metric{title, unit, of, true})
		}
	}
	add(weighted, "Importance weights, mean", "of the batch, its largest 1",
		func(u *results.Update) results.Number { return u.WeightMean })
	add(weighted, "Importance weights, least", "of the batch, its largest 1",
		func(u *results.Update) results.Number { return u.WeightMin })
	add(weighted, "ESS of the weights", "ESS/n", func(u *results.Update) results.Number { return u.WeightESS })
	add(true, "Never drawn", "share of rollouts held", func(u *results.Update) results.Number { return u.NeverDrawn })
	add(fresh, "Fresh share", "of the batch", func(u *results.Update) results.Number { return u.FreshShare })
	add(moves, "Age decay τ", "versions", func(u *results.Update) results.Number { return u.AgeDecay })
	return list
}

// promptMetrics returns the metrics of prompt replay.
func promptMetrics() []metric {
	return []metric{
		{"Prompts held", "by prompt replay", func(u *results.Update) results.Number { return u.PromptsHeld }, true},
		{"Replayed prompts", "share of new groups", func(u *results.Update) results.Number { return u.PromptShare },
			true},
	}
}

// lineBudget is the number of points shared by all lines of a training chart. It bounds the size of pages with many
// seeds and long runs.
const lineBudget = 420

// thickBudget is the number of points shared by the medians of a training chart.
const thickBudget = 126

// trainingFigures draws every measured metric, and names the unmeasured ones that are normally shown.
func trainingFigures(arms []*arm, metrics []metric) (figures []results.Figure, missing []string) {
	for _, m := range metrics {
		if f, ok := m.figure(arms); ok {
			figures = append(figures, f)
		} else if !m.rare {
			missing = append(missing, strings.ToLower(m.title))
		}
	}
	return figures, missing
}

// figure draws a metric: every run thin, and the smoothed median over it. Outliers lie outside the axes; the note names
// them.
func (m metric) figure(arms []*arm) (f results.Figure, ok bool) {
	lines := 0
	for _, side := range arms {
		lines += len(side.runs) + 1
	}
	limit := max(24, lineBudget/lines)
	var all []float64
	last := 0.0
	for _, side := range arms {
		var traces [][]results.Point
		for _, run := range side.runs {
			points := spaced(seriesOf(run, m.of))
			if len(points) == 0 {
				continue
			}
			traces = append(traces, points)
			last = max(last, points[len(points)-1].X)
			all = append(all, valuesOf(points)...)
			f.Curves = append(f.Curves,
				results.Curve{Name: side.label, Colour: side.colour, Thin: true, At: thin(points, limit), Run: side.ways[run]})
		}
		if len(traces) > 0 {
			middle := medianSeries(traces)
			points := smooth(middle, smoothing(len(middle)), max(1, len(middle)*len(arms)/thickBudget))
			thick := results.Curve{Name: side.label, Colour: side.colour, At: points, Mean: means(middle, points),
				Run: side.middle}
			parts := make([][]results.Number, len(traces))
			for i, trace := range traces {
				parts[i] = means(trace, points)
			}
			overSeeds(&thick, len(traces), func(run, k int) float64 { return parts[run][k].Float() })
			f.Curves = append(f.Curves, thick)
		}
	}
	if len(all) == 0 {
		return f, false
	}
	f.Title = m.title
	f.X = results.Axis{Title: updatesTitle, Low: results.Num(0), High: results.Num(last)}
	f.Y.Title = m.unit
	f.Y.Low, f.Y.High, f.Note = window(all)
	return f, true
}

// trainingSection draws the metrics of all updates.
func trainingSection(arms []*arm) section {
	s := section{ID: "training", Title: "Training"}
	figures, missing := trainingFigures(arms, commonMetrics())
	if len(figures) == 0 {
		s.Text = []string{"No update was made."}
		return s
	}
	s.Legend = armKeys(arms)
	text := "Thin: every run. Thick: the running median over a twentieth of the updates"
	if severalSeeds(arms) {
		text += ", of the median over seeds"
	}
	s.Text = []string{text + "."}
	if len(missing) > 0 {
		s.Text = append(s.Text, "Not measured: "+strings.Join(missing, ", ")+".")
	}
	s.Rows = []figureRow{thirds().drawPlain("", figures)}
	if further, _ := trainingFigures(arms, furtherMetrics(arms)); len(further) > 0 {
		row := thirds().drawPlain("", further)
		row.Fold = "Further metrics of the objective"
		s.Rows = append(s.Rows, row)
	}
	return s
}

// armKeys is the legend of figures whose curves are arms, none for a single arm.
func armKeys(arms []*arm) []figures.Key {
	if len(arms) == 1 {
		return nil
	}
	var f results.Figure
	for _, side := range arms {
		at := make([]results.Point, 2)
		at[0].Y, at[1].Y = results.Num(0), results.Num(0)
		f.Curves = append(f.Curves, results.Curve{Name: side.label, Colour: side.colour, At: at})
	}
	return describe(&f).Legend()
}

// spaced drops the points without a value if they are the majority: a metric measured every few updates is drawn
// without gaps.
func spaced(points []results.Point) []results.Point {
	measured := slices.DeleteFunc(slices.Clone(points), func(p results.Point) bool { return !p.Y.Known() })
	if 2*len(measured) >= len(points) {
		return points
	}
	return measured
}

// valuesOf returns the known values of points.
func valuesOf(points []results.Point) (values []float64) {
	for _, p := range points {
		if p.Y.Known() {
			values = append(values, p.Y.Float())
		}
	}
	return values
}

// smoothing returns the half width of the running median over n updates: the window is a twentieth of them.
func smoothing(n int) int { return n / 40 }

// window returns the range to show if a few outliers would flatten the rest, and a note that they are cut off.
func window(values []float64) (low, high results.Number, note string) {
	slices.Sort(values)
	least, most := values[0], values[len(values)-1]
	from, to := results.Quantile(values, 0.01), results.Quantile(values, 0.99)
	room := 4 * (to - from)
	shownFrom, shownTo, cut := least, most, []string(nil)
	if room > 0 && most > to+room {
		shownTo = to + room/4
		cut = append(cut, fmt.Sprintf("peaks up to %s are cut off", words.Amount(most)))
	}
	if room > 0 && least < from-room {
		shownFrom = from - room/4
		cut = append(cut, fmt.Sprintf("dips down to %s are cut off", words.Amount(least)))
	}
	if cut == nil {
		return low, high, ""
	}
	beside := (shownTo - shownFrom) / 20
	if shownFrom -= beside; least >= 0 {
		shownFrom = max(0, shownFrom)
	}
	note = strings.Join(cut, ", ")
	return results.Num(shownFrom), results.Num(shownTo + beside), strings.ToUpper(note[:1]) + note[1:] + "."
}

// seriesOf returns a metric of a run by update.
func seriesOf(run *results.Run, metric func(*results.Update) results.Number) []results.Point {
	points := make([]results.Point, len(run.Updates))
	for i := range run.Updates {
		u := &run.Updates[i]
		points[i] = results.Point{X: float64(u.Update), Y: metric(u)}
	}
	return points
}

// medianSeries returns the median over series at every update that all of them have. Missing values are left out.
func medianSeries(traces [][]results.Point) []results.Point {
	shortest := len(slices.MinFunc(traces, func(a, b []results.Point) int { return len(a) - len(b) }))
	points := make([]results.Point, shortest)
	for i := range points {
		var column []results.Point
		for _, t := range traces {
			column = append(column, t[i])
		}
		points[i] = results.Point{X: traces[0][i].X, Y: results.Num(results.Median(valuesOf(column)))}
	}
	return points
}

// thin reduces a line to about limit points. Of every stretch it keeps the first point, the lowest, the highest and one
// without a value, and it keeps the last point of all: peaks, collapses, gaps and both ends stay.
func thin(points []results.Point, limit int) []results.Point {
	stretches := max(1, limit/3)
	if len(points) <= limit {
		return points
	}
	kept := make([]results.Point, 0, limit+1)
	for s := range stretches {
		from, to := s*len(points)/stretches, (s+1)*len(points)/stretches
		low, high, gap := from, from, -1
		for i := from; i < to; i++ {
			y := points[i].Y.Float()
			if math.IsNaN(y) {
				gap = i
				continue
			}
			if !(points[low].Y.Float() <= y) { // NaN is above and below any
				low = i
			}
			if !(points[high].Y.Float() >= y) {
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

// means returns, for each of some points of a series, the mean of the series since the point before.
func means(series, points []results.Point) []results.Number {
	list := make([]results.Number, len(points))
	at := 0
	for i, p := range points {
		sum, n := 0.0, 0
		for ; at < len(series) && series[at].X <= p.X; at++ {
			if y := series[at].Y; y.Known() {
				sum, n = sum+y.Float(), n+1
			}
		}
		list[i] = results.Num(sum / float64(n)) // none of nothing
	}
	return list
}

// smooth returns, at every stride-th point and at both ends, the median of the values within half points on either
// side. Missing values stay missing.
func smooth(points []results.Point, half, stride int) (out []results.Point) {
	for i, p := range points {
		if i%stride != 0 && i != len(points)-1 {
			continue
		}
		if p.Y.Known() {
			p.Y = results.Num(results.Median(valuesOf(points[max(0, i-half):min(len(points), i+half+1)])))
		}
		out = append(out, p)
	}
	return out
}
