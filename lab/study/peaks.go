package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

func peaks() Study {
	return Study{
		Name: "peaks", Title: "What happens past the peak of accuracy?", Source: "[ER] figs. 3, 8, 9, 12",
		Lead: []string{
			aboutLab(),
			fmt.Sprintf("The source's runs pass a peak and fall, and some crash. The other studies here end before. These runs "+
				"have %d times their budget, and two arms a learning rate of %g, %.1f times the best; they end there whether "+
				"or not accuracy has fallen. A claim about best accuracies is tested where both arms passed a peak, a claim "+
				"about crashes where runs crashed.", peakBudgets, crashRate, crashRate/labRate),
		},
		Pilots: func(o Options) []Pilot { return []Pilot{queueTuning(o)[0]} }, Arms: peakArms, Judge: judgePeaks,
	}
}

const (
	peakBudgets = 4
	crashRate   = 4e-3
)

// The arms that no other study has.
const (
	peakQueue, peakFast = "no replay", "no replay, large rate"
	peakLate            = "no replay, weights every 4 updates"
	peakBufferFast      = "buffer, large rate"
)

// peakCells are the buffers: one of two batches, a large one, and one with many trainers.
func peakCells() [3]cell {
	return [3]cell{{labSplit(), labCapacity}, {labSplit(), widest}, {split{4, 4}, labCapacity}}
}

func peakArms(o Options) []Arm {
	long := func(c run.Config) run.Config {
		if !o.Quick {
			c.Budget.Compute *= peakBudgets
		}
		return c
	}
	plain, cells := ratedQueueArm(o).Config, peakCells()
	late := plain
	late.Pipeline.PublishEvery = 4
	arms := []Arm{{peakQueue, long(plain)}, {peakFast, long(withRate(plain, crashRate))}, {peakLate, long(late)}}
	for _, at := range cells {
		arms = append(arms, Arm{at.String(), long(buffer(o, at))})
	}
	return append(arms, Arm{peakBufferFast, long(withRate(buffer(o, cells[0]), crashRate))})
}

func judgePeaks(f *Found) (Judgement, error) {
	cells := peakCells()
	queue, fast, late, bufferFast := f.Of(peakQueue), f.Of(peakFast), f.Of(peakLate), f.Of(peakBufferFast)
	small, large, many := f.at(cells[0]), f.at(cells[1]), f.at(cells[2])
	const reached = "Pass@1 reached, "
	x := inUpdates(queue.Arm)
	return f.judge([]claim{
		{
			source: "[ER] fig. 3", text: "A buffer reaches a higher best accuracy than none.",
			by: difference(small, queue, level).is(above(0)), premise: falls(small, queue),
			measured: fmt.Sprintf("%s%s less no replay", reached, small.Name),
		},
		{
			source: "[ER] fig. 3", text: "Larger buffers reach a higher best accuracy.",
			by: difference(large, small, level).is(above(0)), premise: falls(large, small),
			measured: fmt.Sprintf("%s%s less %s", reached, large.Name, small.Name),
		},
		{
			source: "[ER] fig. 3", text: "Aggressive replay lowers the best accuracy.",
			by: difference(many, queue, level).is(below(0)), premise: falls(many, queue),
			measured: fmt.Sprintf("%s%s less no replay", reached, many.Name),
		},
		{
			source: "[ER] fig. 12", text: "Moderate staleness reaches a higher best accuracy.",
			by: difference(late, queue, level).is(above(0)), premise: falls(late, queue),
			measured: reached + "with weights every 4 updates less every update",
		},
		{
			source: "[ER] figs. 8, 9", text: "Without replay, large learning rates make training unstable.",
			by: unsteadier(fast, queue).is(above(0)), premise: wavers(fast), note: samplingNote,
			measured: fmt.Sprintf("%s, at the rate %g less at %g", unsteadiness, fast.Config.Learner.LearningRate,
				queue.Config.Learner.LearningRate),
		},
		{
			source: "[ER] §4.2", text: "A buffer stabilizes training and prevents crashes.",
			by: unsteadier(fast, bufferFast).is(above(0)), premise: crashes(fast, bufferFast), note: samplingNote,
			measured: fmt.Sprintf("%s at the rate %g, without replay less with", unsteadiness, crashRate),
		},
	}, results.Section{
		Title: "Accuracy against compute",
		Text:  []string{"Compute is in updates without replay. Thin lines are single runs, bands quartiles."},
		Figures: []results.Figure{
			medianFigure("At the usual rates", "", x, append(lines(0, queue, late), lines(2, small, large, many)...)...),
			seedFigure("At the large rate", "", x, lines(0, fast, bufferFast)...),
		},
		Grids: []results.Grid{armsTable("Arms", f.Arms...)},
	})
}
