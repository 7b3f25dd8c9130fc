package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/results"
)

func bufferSize() Study {
	return Study{
		Name: "buffer-size", Title: "How large should the buffer be, and how many GPUs should train?",
		Source: "[ER] figs. 3, 13, 14",
		Lead: []string{
			aboutLab(),
			"Eight GPUs. The buffer keeps the newest N rollouts; W GPUs generate and T train. The arm without replay has " +
				"the split that stalls least and the learning rate that was best for it, of three; all buffers have one " +
				"rate, that of the base, and the same loss. The best without replay, with its own loss too, is tuned by " +
				"pilots. A larger N means staler rollouts; a smaller W/T means more uses of each rollout and " +
				"cheaper updates. The largest N is run at (6,2) only.",
			"The source's runs pass a peak and fall, and its best accuracies are those peaks. Where runs still rise at the " +
				"end of their budget its claims about them are untested.",
			fmt.Sprintf("pass@k is measured without replay and at (6,2) with N = %d, both at the base's learning rate, from "+
				"samples at temperature 1.",
				labCapacity),
		},
		Pilots: func(o Options) []Pilot {
			tuned := queueTuning(o)
			return append([]Pilot{capacityPilot(o)}, tuned[:]...)
		},
		Arms: func(o Options) []Arm {
			return append([]Arm{ratedQueueArm(o), tunedQueueArm(o), queueArm(o)}, gridArms(o)...)
		},
		Judge: judgeBufferSize,
	}
}

// capacityPilot chooses N at (6,2).
func capacityPilot(o Options) Pilot {
	return Pilot{Name: "capacity at (6,2)", Arms: capacityArms(o, labSplit()), of: "pass@1 reached", by: level}
}

func judgeBufferSize(f *Found) (Judgement, error) {
	queue, sampled := f.Of(ratedQueueName), f.Of(queueName)
	sizes, levels := f.of(capacityArms(f.Options, labSplit())...), capacityLevels(labSplit())
	middle := f.at(cell{labSplit(), labCapacity})
	chosen := f.Of(f.choice(capacityPilot(f.Options)).Name)
	smallest, largest := sizes[0], sizes[len(sizes)-1]
	const er3 = "[ER] fig. 3"
	return f.judge([]claim{
		{
			source: er3, text: "Larger buffers slow training down.",
			by:       trend(sizes, levels, meanOver(0.5)).is(below(0)),
			measured: "Rank correlation of N with mean accuracy over the first half of the budget, at (6,2)",
		},
		{
			source: er3, text: "Larger buffers make training more stable.", by: unsteadier(smallest, largest).is(above(0)),
			measured: fmt.Sprintf("%s, with N = %d less with %d, at (6,2)", unsteadiness, smallest.Config.Replay.Capacity,
				largest.Config.Replay.Capacity),
			premise: wavers(smallest), note: samplingNote,
		},
		{
			source: er3, text: "Larger buffers reach a higher best accuracy.",
			by: trend(sizes, levels, level).is(above(0)), premise: falls(sizes...),
			measured: "Rank correlation of N with the pass@1 reached, at (6,2)",
		},
		{
			source: er3, text: "A buffer of the right size reaches a higher best accuracy than none.",
			by: difference(chosen, queue, level).is(above(0)), premise: falls(chosen, queue),
			more: f.againstTuned(func(queue Runs) estimate { return difference(chosen, queue, level) }),
			measured: fmt.Sprintf("Pass@1 reached with N = %d at (6,2), chosen before, less that without replay",
				chosen.Config.Replay.Capacity),
		},
		{
			source: er3, text: "Moderate replay does not lower the best accuracy.",
			by: f.splitLess(labSplits()[0], queue).is(atLeast(-alike)), premise: falls(queue, middle),
			more:     f.againstTuned(func(queue Runs) estimate { return f.splitLess(labSplits()[0], queue) }),
			measured: "Pass@1 reached at (6,2), mean over the N of every split, less that without replay",
		},
		{
			source: er3, text: "Aggressive replay lowers the best accuracy.",
			by:       f.splitLess(labSplits()[2], queue).is(below(0)),
			premise:  falls(queue, f.at(cell{labSplits()[2], labCapacity})),
			more:     f.againstTuned(func(queue Runs) estimate { return f.splitLess(labSplits()[2], queue) }),
			measured: "Pass@1 reached at (4,4), mean over the N of every split, less that without replay",
		},
		{
			source: er3, text: fmt.Sprintf("A buffer raises pass@k, k = %d.", labPassAt),
			by: difference(middle, sampled, passAt(labPassAt)).is(above(0)),
			measured: fmt.Sprintf("Last pass@%d of %s less that without replay at the same learning rate", labPassAt,
				middle.Name),
		},
		{
			source: er3, text: "A buffer helps pass@k more than pass@1.",
			by: difference(middle, sampled, passGain).is(above(0)),
			measured: fmt.Sprintf("Last pass@%d less pass@1 of samples, %s less no replay at the same learning rate",
				labPassAt, middle.Name),
		},
	}, f.bufferSizePage(queue, sampled, sizes)...)
}

// splitLess is the accuracy reached at a split, mean over the capacities of every split, less that of an arm, seed by
// seed. Seeds that an arm lacks are left out.
func (f *Found) splitLess(s split, queue Runs) estimate {
	arms := f.of(capacityArms(f.Options, s)[:len(commonCapacities())]...)
	return estimateOf("the difference", change, func(seed uint64) float64 {
		sum := 0.0
		for _, a := range arms {
			sum += a.on(seed, level)
		}
		return sum/float64(len(arms)) - queue.on(seed, level)
	}, append(arms, queue)...)
}

// passAt is the last measured pass@k, 0 for a run that failed.
func passAt(k int) measure {
	return func(a Runs, r *results.Run) float64 {
		if failed(r) || len(r.Evals) == 0 {
			return last(a, r)
		}
		return r.Evals[len(r.Evals)-1].PassAtK(k).Float()
	}
}

// passGain is how far the last pass@k is above pass@1 of the same samples.
func passGain(a Runs, r *results.Run) float64 { return passAt(labPassAt)(a, r) - passAt(1)(a, r) }

func (f *Found) bufferSizePage(queue, sampled Runs, sizes []Runs) []results.Section {
	x := inUpdates(queue.Arm)
	inBuffer := byCompute("compute, in updates with replay at (6,2)", bufferUnit(sizes[0].Config))
	curves := append(lines(0, queue), lines(1, sizes...)...)
	median := func(m measure) func(cell) float64 { return func(c cell) float64 { return f.at(c).median(m) } }
	every := []results.Figure{seedFigure("Without replay", "", x, lines(0, queue)...)}
	for _, s := range labSplits() {
		every = append(every, seedFigure(s.String(), "", x, lines(1, f.of(capacityArms(f.Options, s)...)...)...))
	}
	return []results.Section{
		{
			Title: "Accuracy against compute, by N",
			Text:  []string{"Medians over seeds with their quartiles, at (6,2)."},
			Figures: []results.Figure{
				medianFigure("Accuracy at (6,2)", "", x, curves...),
				medianFigure("The same, in the source's unit", "[ER] figure 3 counts an update with replay as 1.",
					inBuffer,
					curves...),
			},
		},
		{Title: "Accuracy and pass@k against N",
			Figures: []results.Figure{f.levelByCapacity(), passFigure(sampled, sizes)}},
		{
			Title: "The grid",
			Figures: []results.Figure{
				heatMap("Pass@1 reached", "Median over seeds.", "pass@1 reached", 3, false, median(level)),
				heatMap("Compute to 98% of what a run reached", "In updates without replay; median over seeds ([ER] "+
					"fig. 14).",
					"updates without replay", 0, true, median(toOwnLevel)),
				heatMap("Compute to the target", "In updates without replay; median over seeds. Empty: not reached, "+
					"or not run.",
					"updates without replay", 0, true, median(toTarget)),
			},
			Grids: []results.Grid{armsTable("Arms", f.Arms...)},
		},
		{
			Title:   "Every seed",
			Text:    []string{"Each run by itself, behind the medians ([ER] fig. 13): a crash or a late collapse shows."},
			Figures: every,
		},
	}
}

const lessQueue = "Differences on the same seed: means with 95% intervals."

// levelByCapacity draws how far the accuracy reached at each split is above that without replay.
func (f *Found) levelByCapacity() results.Figure {
	var curves []results.Curve
	for i, s := range labSplits() {
		var of []estimate
		for _, a := range f.of(capacityArms(f.Options, s)...) {
			of = append(of, difference(a, f.Of(ratedQueueName), level))
		}
		curves = append(curves, curveOf(s.String(), i+1, capacityLevels(s), of))
	}
	fig := figure("Pass@1 reached, compared with no replay at its own rate", lessQueue, "capacity N, rollouts",
		"difference in pass@1 reached", curves...)
	fig.X.Log = true
	return withGuide(fig, ratedQueueName, 0)
}

// passFigure draws how far pass@k is above that of an arm without replay.
func passFigure(queue Runs, sizes []Runs) results.Figure {
	var curves []results.Curve
	for i, a := range sizes {
		if a.Config.Evaluate.Samples == 0 {
			continue
		}
		var levels []float64
		var of []estimate
		for _, k := range a.Config.Evaluate.PassAt {
			levels, of = append(levels, float64(k)), append(of, difference(a, queue, passAt(k)))
		}
		curves = append(curves, curveOf(a.Name, i+1, levels, of))
	}
	fig := figure("Last pass@k compared with no replay", "Of samples at temperature 1, at (6,2). "+lessQueue, "k",
		"difference in pass@k", curves...)
	return withGuide(fig, queueName, 0)
}
