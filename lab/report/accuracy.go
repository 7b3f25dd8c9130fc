package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// progress is an x axis of accuracy.
type progress struct {
	title string // with the unit
	of    func(results.Axes) float64
}

func byCompute() progress {
	return progress{"compute: rollouts through one trainer", func(a results.Axes) float64 { return a.Compute }}
}

func byUpdates() progress {
	return progress{"optimizer updates", func(a results.Axes) float64 { return a.Update }}
}

func byClock() progress {
	return progress{"virtual time: trainer time per rollout", func(a results.Axes) float64 { return a.Clock }}
}

// accuracy is a figure of a measure of the held-out evaluations. Each arm has the median over its runs, the quartile
// band if there are few arms, and each run as a thin line. Marks show where medians reached the target, and where runs
// that have not ended were last evaluated.
type accuracy struct {
	title   string
	yTitle  string
	note    string
	measure func(results.Eval) results.Number
	against progress
	target  results.Number  // none: no line
	players []results.Guide // what others come to
	values  bool            // the marks have their values
	fixed   bool            // readers do not choose another x: the page has the same figure against it
}

// maxBandedArms is the most arms with quartile bands and values at their marks. More would hide one another.
const maxBandedArms = 2

// notEnded is the name of the mark of a run that has not ended.
const notEnded = "not ended"

func (a accuracy) figure(arms []*arm) results.Figure {
	f := results.Figure{
		Title: a.title, Note: a.note, X: results.Axis{Title: a.against.title, Low: results.Num(0)},
		Y: results.Axis{Title: a.yTitle}, Guides: slices.Clone(a.players),
	}
	if a.target.Known() {
		f.Guides = append(f.Guides, results.Guide{Name: "target " + number(a.target), Y: a.target})
	}
	far := 0.0
	way := func(number int) int {
		if a.fixed {
			return 0
		}
		return number
	}
	for _, side := range arms {
		evals, few := side.evals(), len(arms) <= maxBandedArms
		for _, run := range side.runs {
			if n := len(run.Updates); n > 0 { // the axis goes as far as the run, evaluated there or not
				far = max(far, a.against.of(run.Updates[n-1].At()))
			}
			seed := results.Curve{Name: side.label, Colour: side.colour, Thin: true, Run: way(side.ways[run])}
			var last results.MarkedAt
			for _, e := range run.Evals {
				at := results.Point{X: a.against.of(e.At()), Y: a.measure(e)}
				seed.At = append(seed.At, at)
				if at.Y.Known() {
					last = results.MarkedAt{Name: notEnded, X: at.X, Y: at.Y.Float(), Arm: side.label,
						Run: way(side.ways[run])}
					far = max(far, at.X)
				}
			}
			if len(evals) > 1 {
				f.Curves = append(f.Curves, seed)
			}
			if len(arms) > 1 && !ended(run) && last.Name != "" {
				f.Marks = append(f.Marks, last)
			}
		}
		median := results.Curve{Name: side.name(), Colour: side.colour, Run: way(side.middle)}
		curve := medianOf(evals, a.measure)
		for _, p := range curve {
			at := results.Point{X: a.against.of(p.At), Y: results.Num(p.Pass1)}
			if len(evals) > 1 && few {
				at.Low, at.High = results.Num(p.Q1), results.Num(p.Q3)
			}
			median.At = append(median.At, at)
		}
		overSeeds(&median, len(evals), func(run, k int) float64 {
			i := slices.IndexFunc(evals[run], func(e results.Eval) bool { return e.Grid == curve[k].Grid })
			return a.measure(evals[run][i]).Float()
		})
		f.Curves = append(f.Curves, median)
		if r := results.MedianReach(evals, a.target.Float()); a.target.Known() && r.Reached {
			m := results.MarkedAt{X: a.against.of(r.At()), Y: a.target.Float(), Arm: side.label, Run: way(side.middle)}
			if a.values && few {
				m.Name = words.Amount(m.X)
			}
			f.Marks = append(f.Marks, m)
		}
	}
	if far > 0 {
		f.X.High = results.Num(far)
	}
	return f
}

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

// pass1 is the measure of the headline.
func pass1(e results.Eval) results.Number { return results.Num(e.Pass1) }

// largestK returns the largest k for which pass@k was measured, or 0.
func largestK(arms []*arm) (k int) {
	for _, e := range evaluations(arms) {
		for _, p := range e.PassAt {
			k = max(k, p.K)
		}
	}
	return k
}

// accuracySection draws the held-out evaluations: accuracy against compute, then the smaller figures.
func accuracySection(arms []*arm, target results.Number) section {
	s := section{ID: "accuracy", Title: "Held-out accuracy"}
	pass := func(against progress, title string) accuracy {
		return accuracy{
			title: title, yTitle: "held-out pass@1, " + answers(arms), measure: pass1, against: against, target: target,
			players: players(arms, passOf),
		}
	}
	first := pass(byCompute(), "Accuracy against compute")
	first.note, first.values = updateCosts(arms), true
	main := first.figure(arms)
	chart := describe(&main)
	if !chart.Fit() {
		s.Text = []string{"No evaluation was made."}
		return s
	}
	s.Legend = chart.Legend()
	updates, clock := pass(byUpdates(), "Accuracy against updates"), pass(byClock(), "Accuracy against clock time")
	updates.fixed, clock.fixed = true, true
	small := []results.Figure{updates.figure(arms), clock.figure(arms)}
	if rewarded(arms) {
		small = append(small, accuracy{
			title: "Reward against compute", yTitle: "held-out mean reward, " + answers(arms), measure: heldOutReward,
			against: byCompute(), players: players(arms, rewardOf),
		}.figure(arms))
	}
	if k := largestK(arms); k > 0 {
		small = append(small, accuracy{
			title: fmt.Sprintf("pass@%d against compute", k), yTitle: fmt.Sprintf("held-out pass@%d, sampled", k),
			measure: func(e results.Eval) results.Number { return e.PassAtK(k) }, against: byCompute(),
		}.figure(arms), passByK(arms))
	}
	s.Rows = []figureRow{large().drawPlain("", []results.Figure{main}), halves().drawPlain("", small)}
	several := severalSeeds(arms)
	if several {
		text := "Thick: the median over seeds, as far as all of them have come."
		if len(arms) <= maxBandedArms {
			text += " Bands: between the quartiles."
		}
		s.Text = append(s.Text, text)
	}
	var rings []string
	if slices.ContainsFunc(main.Marks, func(m results.MarkedAt) bool { return m.Name != notEnded }) {
		where := "where the target was reached"
		if several {
			where += " by a median"
		}
		rings = append(rings, where)
	}
	if slices.ContainsFunc(main.Marks, func(m results.MarkedAt) bool { return m.Name == notEnded }) {
		rings = append(rings, "the last evaluation of a run that has not ended: failed, killed or running")
	}
	if len(rings) > 0 {
		s.Text = append(s.Text, "Rings: "+strings.Join(rings, "; ")+".")
	}
	return s
}

// passByK draws pass@k over k, before training and at the last evaluation of each arm.
func passByK(arms []*arm) results.Figure {
	f := results.Figure{
		Title: "pass@k before and after",
		Note:  "Last evaluation of each arm, median over seeds. Dashed: the warm start.",
		X:     results.Axis{Title: "k, samples per problem", Log: true},
		Y:     results.Axis{Title: "held-out pass@k, sampled"},
	}
	add := func(c results.Curve, rates []results.PassRate) {
		for _, r := range rates {
			c.At = append(c.At, results.Point{X: float64(r.K), Y: results.Num(r.Rate)})
		}
		f.Curves = append(f.Curves, c)
	}
	for i, side := range arms {
		c := results.MedianCurve(side.evals())
		if len(c) == 0 {
			continue
		}
		if first := c[0]; i == 0 && len(c) > 1 && first.At.Update == 0 {
			add(results.Curve{Name: "warm start", Colour: side.colour, Dashed: true}, first.PassAt)
		}
		add(results.Curve{Name: side.label, Colour: side.colour}, c[len(c)-1].PassAt)
	}
	return f
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

// players returns the reference players that every run knows and on which all agree.
func players(arms []*arm, of func(*results.Bound) float64) []results.Guide {
	var guides []results.Guide
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
			y := of(found[0])
			guides = append(guides, results.Guide{Name: p.name + " " + words.Fixed(y, 3), Y: results.Num(y)})
		}
	}
	return guides
}

func passOf(b *results.Bound) float64 { return b.Pass1 }

func rewardOf(b *results.Bound) float64 { return b.Reward }

// answers says how the runs' policies answered the held-out problems.
func answers(arms []*arm) string { return answered(append(evaluations(arms), results.Eval{})[0]) }

// answered says how the problems of an evaluation were answered.
func answered(e results.Eval) string {
	if !e.Temperature.Known() {
		return "greedy"
	}
	return fmt.Sprintf("sampled at temperature %v", e.Temperature)
}

// heldOutReward is the mean reward of an evaluation.
func heldOutReward(e results.Eval) results.Number { return e.Reward }

// rewarded reports whether any evaluation's reward differs from its pass@1.
func rewarded(arms []*arm) bool {
	return slices.ContainsFunc(evaluations(arms), func(e results.Eval) bool {
		return math.Abs(e.Reward.Float()-e.Pass1) > 1e-6
	})
}
