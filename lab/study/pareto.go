package study

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
)

func pareto() Study {
	return Study{
		Name: "pareto", Title: "Is replay better when everything is tuned?", Source: "[ER] figs. 6, 8, 9",
		Lead: []string{
			aboutLab(),
			"The family without replay is run at every learning rate. The family with replay is run at every " +
				"learning rate at the split and capacity of the other studies, and at the base's learning rate over " +
				"the whole grid of splits and capacities. A family's optimality curve is, at each compute, the best " +
				"median accuracy of its configurations until then: the running maximum.",
			"Losses are not tuned here. What the best of five losses gives training without replay is shown " +
				"beside the first claim.",
			"The best of many is high by chance alone, and the families differ in size. So the best configuration of each is " +
				"chosen before, by runs that judge nothing.",
		},
		Pilots: paretoPilots,
		Arms: func(o Options) []Arm {
			return append(append(paretoQueues(o), paretoBuffers(o)...), tunedQueueArm(o))
		},
		Judge: judgePareto,
	}
}

// paretoPilots choose the best configuration of each family.
func paretoPilots(o Options) []Pilot {
	tuned := queueTuning(o)
	return append([]Pilot{{Name: "best without replay", Arms: paretoQueues(o), of: overTheRun, by: meanOver(1)},
		{Name: "best with replay", Arms: paretoBuffers(o), of: overTheRun, by: meanOver(1)}}, tuned[:]...)
}

// paretoCell is the cell of the grid that is run at every learning rate. The others are run at labRate only.
func paretoCell() cell { return cell{labSplit(), labCapacity} }

// paretoQueues are the family without replay, by learning rate.
func paretoQueues(o Options) []Arm {
	var arms []Arm
	for _, rate := range labRates() {
		arms = append(arms, queueArm(o).atRate(rate, queue(o)))
	}
	return arms
}

// paretoBuffers are the family with replay.
func paretoBuffers(o Options) []Arm {
	inGrid := func(a Arm) bool { return a.Name == paretoCell().String() }
	return append(gridArms(o), slices.DeleteFunc(paretoRates(o), inGrid)...)
}

// paretoRates are the arms of paretoCell, by learning rate.
func paretoRates(o Options) []Arm {
	var arms []Arm
	for _, rate := range labRates() {
		arms = append(arms, bufferArm(o, paretoCell()).atRate(rate, buffer(o, paretoCell())))
	}
	return arms
}

func judgePareto(f *Found) (Judgement, error) {
	queues, buffers, rates := f.of(paretoQueues(f.Options)...), f.of(paretoBuffers(f.Options)...),
		f.of(paretoRates(f.Options)...)
	pilots := paretoPilots(f.Options)
	without, with := f.Of(f.choice(pilots[0]).Name), f.Of(f.choice(pilots[1]).Name)
	ahead, steps := stepsAhead(buffers, queues)
	largest := len(labRates()) - 1
	var crashed []string
	for i, a := range queues {
		crashed = append(crashed, fmt.Sprintf("%d of %d at %g", a.crashes(), len(a.Runs), labRates()[i]))
	}
	return f.judge([]claim{
		{
			source: "[ER] fig. 6", text: "The best configurations with replay outperform the best without.",
			by: difference(with, without, meanOver(1)).is(above(0)),
			measured: fmt.Sprintf("Mean pass@1 over the run of %q, chosen before of %d configurations with replay, less "+
				"that of %q, chosen of %d without", with.Name, len(buffers), without.Name, len(queues)),
			more: join(fmt.Sprintf("By the optimality curves themselves, replay is ahead at %d of %d steps of compute.",
				ahead, steps), f.againstTuned(func(queue Runs) estimate { return difference(with, queue, meanOver(1)) })),
		},
		{
			source: "[ER] figs. 8, 9", text: "Without replay, large learning rates make training unstable.",
			by:      unsteadier(queues[largest], queues[0]).is(above(0)),
			premise: wavers(queues[largest]), note: samplingNote,
			measured: fmt.Sprintf("%s, at the rate %g less at %g", unsteadiness, labRates()[largest], labRates()[0]),
			more:     "Crashed: " + strings.Join(crashed, "; ") + ".",
		},
		{
			source: "[ER] §4.2", text: "A buffer stabilizes training and prevents crashes.",
			by:      unsteadier(queues[largest], rates[largest]).is(above(0)),
			premise: crashes(queues[largest], rates[largest]), note: samplingNote,
			measured: fmt.Sprintf("%s at the largest rate, %g, without replay less with", unsteadiness, labRates()[largest]),
		},
	}, paretoPage(queues, buffers, rates)...)
}

// stepsAhead counts the steps of compute at which the optimality curve of one family is above that of another.
func stepsAhead(family, other []Runs) (ahead, of int) {
	steps := grid(other[0].Config, 1)
	ours, theirs := optimality(family, steps), optimality(other, steps)
	for i := range steps {
		if ours[i] > theirs[i] {
			ahead++
		}
	}
	return ahead, len(steps)
}

// optimality is the running maximum, over the steps of compute, of the best median accuracy of a family.
func optimality(family []Runs, steps []float64) []float64 {
	curve := make([]float64, len(steps))
	top := math.NaN()
	for i, step := range steps {
		for _, a := range family {
			if v := a.median(accuracyAtStep(step)); v > top || math.IsNaN(top) {
				top = v
			}
		}
		curve[i] = top
	}
	return curve
}

func paretoPage(queues, buffers, rates []Runs) []results.Section {
	x := inUpdates(queues[0].Arm)
	rateOf := func(i int) string { return fmt.Sprintf("rate %g", labRates()[i]) }
	without := []results.Figure{medianFigure("Medians", "", x, namedLines(0, rateOf, queues...)...)}
	for i, l := range lines(0, queues...) {
		without = append(without, seedFigure(fmt.Sprintf("Rate %g, every seed", labRates()[i]), "", x, l))
	}
	return []results.Section{
		{Title: "Optimality curves", Figures: []results.Figure{optimalityFigure(queues, buffers, x)}},
		{
			Title: "Learning rates without replay",
			Text: []string{"Medians with quartiles, then every seed by itself ([ER] figs. 8, 9): crashes are lines " +
				"that fall."},
			Figures: without,
		},
		{
			Title: "Learning rates with replay",
			Text:  []string{"The same with replay, at the split and the capacity of the other studies."},
			Figures: []results.Figure{seedFigure(paretoCell().String()+", every seed of every rate", "", x,
				namedLines(0, rateOf, rates...)...)},
			Grids: []results.Grid{armsTable("Every configuration", slices.Concat(queues, buffers)...)},
		},
	}
}

// optimalityFigure draws the median of every configuration behind the two optimality curves.
func optimalityFigure(queues, buffers []Runs, x progress) results.Figure {
	steps := grid(queues[0].Config, 1)
	var medians, families []results.Curve
	for i, family := range [][]Runs{queues, buffers} {
		for _, a := range family {
			c := withoutBand(line{Runs: a, name: a.Name, colour: i}.medianCurve(x))
			c.Thin = true
			medians = append(medians, c)
		}
		c := results.Curve{Name: []string{"without replay", "with replay"}[i], Colour: i}
		for j, v := range optimality(family, steps) {
			c.At = append(c.At, results.Point{X: steps[j] / unit(queues[0].Config), Y: results.Num(v)})
		}
		families = append(families, c)
	}
	fig := figure("Optimality curves", "The running maximum of the best median of each family.", x.title, accuracy,
		append(medians, families...)...)
	fig.Thin = "median of one configuration"
	return fig
}
