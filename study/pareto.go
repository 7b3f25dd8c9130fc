package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/results"
)

// pareto sweeps learning rates and buffers: the best of each family at every compute.
func pareto() Study {
	return Study{
		Name: "pareto", Title: "Is replay better when everything is tuned?", Source: "[ER] figs. 6, 8, 9",
		Lead: []string{
			aboutLab(),
			"The family without replay is run at every learning rate, the family with replay at every learning rate at the capacity that the other studies use and at the " +
				"base's learning rate over the whole grid of splits and capacities. A family's optimality curve is, at each compute, the best median accuracy over its " +
				"configurations until then: the running maximum.",
			"The best of many is high by chance alone, and the families differ in size. So the verdict rests on a choice that cannot look at its own result: at each compute, the " +
				"best configuration and time are chosen on the other seeds, and judged on the seed left out.",
		},
		Arms: paretoArms, Judge: judgePareto,
	}
}

// paretoCells are the cells of the grid that are run at every learning rate; the others are at labRate alone.
func paretoCells() []cell {
	return []cell{{labSplit(), labCapacity}}
}

func paretoArms(o Options) []Arm { return append(paretoQueues(o), paretoBuffers(o)...) }

// paretoQueues are the family without replay, by learning rate.
func paretoQueues(o Options) []Arm {
	var arms []Arm
	for _, rate := range labRates() {
		arms = append(arms, queueRateArm(o, rate))
	}
	return arms
}

// paretoBuffers are the family with replay.
func paretoBuffers(o Options) []Arm {
	arms := gridArms(o)
	for _, rate := range labRates() {
		for _, c := range paretoCells() {
			if rate != labRate {
				arms = append(arms, bufferRateArm(o, c.split, c.capacity, rate))
			}
		}
	}
	return arms
}

// paretoRates are the arms of a cell, by learning rate.
func paretoRates(o Options, c cell) []Arm {
	var arms []Arm
	for _, rate := range labRates() {
		arms = append(arms, bufferRateArm(o, c.split, c.capacity, rate))
	}
	return arms
}

func judgePareto(f *Found) (Judgement, error) {
	queues, buffers := f.of(paretoQueues(f.Options)...), f.of(paretoBuffers(f.Options)...)
	lead := spreadOf(leadOver(buffers, queues))
	ahead, steps := stepsAhead(buffers, queues)
	unsteady := trend(queues, labRates(), fall)
	large := labRates()[len(labRates())-1]
	steady := difference(queues[len(queues)-1], f.Of(bufferRateArm(f.Options, labSplit(), labCapacity, large).Name), fall)
	return Judgement{
		Findings: []results.Finding{
			f.settle(asked{"[ER] fig. 6", "The best configurations with replay outperform the best without."},
				fmt.Sprintf("Mean over the budget of the best of %d configurations with replay less the best of %d without, chosen on the other seeds: %s. "+
					"By the optimality curves themselves, replay is ahead at %d of %d steps of compute.",
					len(buffers), len(queues), lead.format(change), ahead, steps),
				lead, above("the difference", 0)),
			f.settle(asked{"[ER] figs. 8, 9", "Without replay, large learning rates make training unstable."},
				fmt.Sprintf("Rank correlation of the learning rate with the greatest fall below a run's own best: %s. %s", unsteady.format(times), crashesByRate(queues)),
				unsteady, above("the rank correlation", 0)),
			f.settle(asked{"[ER] §4.2", "A buffer stabilizes training, preventing crashes."},
				fmt.Sprintf("Tried where training is least stable, at the largest rate, %g: the greatest fall below a run's own best is larger without replay by %s.", large, steady.format(points)),
				steady, above("the difference in the greatest fall", 0)),
		},
		Sections: append(f.paretoSections(queues, buffers), f.trouble()...),
	}, nil
}

// leadOver is how far the optimality curve of a family lies above that of another, mean over the budget, seed by seed, with the choice made
// on the other seeds.
func leadOver(family, other []Runs) []float64 {
	at := grid(other[0].Config, 1)
	var values []float64
	for _, seed := range seedsOf(append(append([]Runs(nil), family...), other...)...) {
		values = append(values, mean(minusEach(heldOutCurve(family, at, seed), heldOutCurve(other, at, seed))))
	}
	return values
}

// stepsAhead is at how many steps of compute, of how many, the optimality curve of a family lies above that of another.
func stepsAhead(family, other []Runs) (ahead, steps int) {
	at := grid(other[0].Config, 1)
	ours, theirs := optimality(family, at), optimality(other, at)
	for i := range at {
		if ours[i] > theirs[i] {
			ahead++
		}
	}
	return ahead, len(at)
}

// heldOutCurve is, at each step of compute, the accuracy on one seed of the configuration and step that have the best median until then on
// the other seeds.
func heldOutCurve(family []Runs, at []float64, seed uint64) []float64 {
	curve := make([]float64, len(at))
	top, value := math.Inf(-1), math.NaN()
	for i, g := range at {
		for _, a := range family {
			m := accuracyAtStep(g)
			if v := a.without(seed).median(m); v > top && a.Seed(seed) != nil {
				top, value = v, a.on(seed, m)
			}
		}
		curve[i] = value
	}
	return curve
}

// optimality is the running maximum, over the steps of compute, of the best median accuracy of a family.
func optimality(family []Runs, at []float64) []float64 {
	curve := make([]float64, len(at))
	top := math.NaN()
	for i, g := range at {
		for _, a := range family {
			if v := a.median(accuracyAtStep(g)); v > top || math.IsNaN(top) {
				top = v
			}
		}
		curve[i] = top
	}
	return curve
}

// accuracyAtStep is a run's accuracy at a step of compute, 0 from where it ended with an error.
func accuracyAtStep(g float64) measure {
	return func(_ Runs, r *results.Run) float64 {
		v := accuracyAt(r, g)
		if math.IsNaN(v) && failed(r) && len(r.Evals) > 0 {
			return 0
		}
		return v
	}
}

func minusEach(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}

// mean is the mean of the values that are numbers, NaN without any.
func mean(values []float64) float64 {
	var sum, n float64
	for _, v := range values {
		if !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	return sum / n
}

// crashesByRate counts crashed runs at each learning rate.
func crashesByRate(arms []Runs) string {
	s := "Crashed:"
	for i, a := range arms {
		s += fmt.Sprintf(" %d of %d at %g;", a.crashes(), len(a.Runs), labRates()[i])
	}
	return s[:len(s)-1] + "."
}

func (f *Found) paretoSections(queues, buffers []Runs) []results.Section {
	x := inUpdates(queues[0].Arm)
	sections := []results.Section{
		{Title: "Optimality curves", Figures: []results.Figure{optimalityFigure(queues, buffers, x)}},
		{
			Title: "Learning rates without replay", Text: []string{"Medians with quartiles, then every seed by itself ([ER] figs. 8, 9): crashes are lines that fall."},
			Figures: []results.Figure{
				medians("Medians", "", x, rateLines(queues)...),
			},
		},
		{Title: "Learning rates with replay", Text: []string{"The same with replay, at the split and the capacity of the other studies."}},
	}
	for i, a := range queues {
		sections[1].Figures = append(sections[1].Figures, everySeed(fmt.Sprintf("Rate %g, every seed", labRates()[i]), "", x, line{Runs: a, colour: i}))
	}
	for _, c := range paretoCells() {
		arms := f.of(paretoRates(f.Options, c)...)
		sections[2].Figures = append(sections[2].Figures,
			everySeed(c.String()+", every seed of every rate", "", x, rateLines(arms)...))
	}
	sections[2].Grids = []results.Grid{armsGrid("Every configuration", append(append([]Runs(nil), queues...), buffers...)...)}
	return sections
}

// rateLines names arms by their learning rates.
func rateLines(arms []Runs) []line {
	list := lines(0, arms...)
	for i := range list {
		list[i].name = fmt.Sprintf("rate %g", labRates()[i])
	}
	return list
}

// optimalityFigure draws every configuration's median behind the two optimality curves.
func optimalityFigure(queues, buffers []Runs, x abscissa) results.Figure {
	fig := results.Figure{
		Title: "Optimality curves", Note: "The running maximum of the best median of each family.", Thin: "median of one configuration",
		X: results.Axis{Title: x.title}, Y: accuracyAxis(),
	}
	for i, family := range [][]Runs{queues, buffers} {
		for _, a := range family {
			c := line{Runs: a, colour: i}.medianCurve(x)
			if len(c.At) > 0 {
				for j := range c.At {
					c.At[j].Low, c.At[j].High = results.Number{}, results.Number{}
				}
				c.Thin = true
				fig.Curves = append(fig.Curves, c)
			}
		}
	}
	at := grid(queues[0].Config, 1)
	for i, family := range [][]Runs{queues, buffers} {
		c := results.Curve{Name: []string{"without replay", "with replay"}[i], Colour: i}
		for j, v := range optimality(family, at) {
			c.At = append(c.At, results.Point{X: at[j] / unit(queues[0].Config), Y: results.Num(v)})
		}
		fig.Curves = append(fig.Curves, c)
	}
	return fig
}
