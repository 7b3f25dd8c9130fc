package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/results"
)

// bufferSize is the grid of capacities and splits beside the arm without replay.
func bufferSize() Study {
	return Study{
		Name: "buffer-size", Title: "How large should the buffer be, and how many GPUs should train?", Source: "[ER] figs. 3, 13, 14",
		Lead: []string{
			aboutLab(),
			"One learning rate, eight GPUs. The buffer keeps the newest N rollouts, and W GPUs generate while T train; the arm without replay has the split " +
				"that stalls least. A larger N means staler rollouts, a smaller W/T more uses of each and cheaper updates. The largest N is run at (6,2) alone.",
			"pass@k is measured of the arm without replay and of three capacities at (6,2), from samples at temperature 1.",
		},
		Arms: bufferSizeArms, Judge: judgeBufferSize,
	}
}

func bufferSizeArms(o Options) []Arm { return append([]Arm{queueArm(o)}, gridArms(o)...) }

// A buffer does no harm if it costs less accuracy than this.
const harmless = 0.03

func judgeBufferSize(f *Found) (Judgement, error) {
	queue, sizes, levels := f.Of(queueName), f.row(labSplit()), capacities(labSplit())
	slow, steady, rise := trend(sizes, levels, meanOver(0.5)), trend(sizes, levels, fall), trend(sizes, levels, best)
	top := chosenDifference(sizes, []Runs{queue}, best)
	few, many := f.rowDifference(labSplits()[0]), f.rowDifference(labSplits()[2])
	middle := f.Of(bufferName(labSplit(), labCapacity))
	pass, more := difference(middle, queue, passAt(labPassAt)), difference(middle, queue, spreadOfPass)
	er3 := func(claim string) asked { return asked{"[ER] fig. 3", claim} }
	return Judgement{
		Findings: []results.Finding{
			f.settle(er3("Larger buffers slow training down."),
				fmt.Sprintf("Rank correlation of N with mean accuracy over the first half of the budget, at (6,2): %s.", slow.format(times)),
				slow, below("the rank correlation", 0)),
			f.settle(er3("Larger buffers make training more stable."),
				fmt.Sprintf("Rank correlation of N with the greatest fall below a run's own best, at (6,2): %s.", steady.format(times)),
				steady, below("the rank correlation", 0)),
			f.settle(er3("Larger buffers reach a higher best accuracy."),
				fmt.Sprintf("Rank correlation of N with best pass@1, at (6,2): %s.", rise.format(times)), rise, above("the rank correlation", 0)),
			f.settle(er3("A buffer of the right size comes to a higher best accuracy than none."),
				fmt.Sprintf("Best pass@1 of the best N at (6,2), chosen on the other seeds, less that without replay: %s.", top.format(change)),
				top, above("the difference", 0)),
			f.settle(er3("Moderate replay does not lower the best accuracy."),
				fmt.Sprintf("Best pass@1 at (6,2), mean over the N of every split, less that without replay: %s.", few.format(change)), few, atLeast("the difference", -harmless)),
			f.settle(er3("Aggressive replay lowers the best accuracy."),
				fmt.Sprintf("Best pass@1 at (4,4), mean over the N of every split, less that without replay: %s.", many.format(change)), many, below("the difference", 0)),
			f.settle(er3(fmt.Sprintf("A buffer raises pass@k, k = %d.", labPassAt)),
				fmt.Sprintf("Last pass@%d of %s less that without replay: %s.", labPassAt, middle.Name, pass.format(change)), pass, above("the difference", 0)),
			f.settle(er3("A buffer helps pass@k more than pass@1."),
				fmt.Sprintf("What pass@%d gains on pass@1 of samples, %s beside no replay: %s.", labPassAt, middle.Name, more.format(change)),
				more, above("the difference of the differences", 0)),
		},
		Sections: append(f.bufferSizeSections(queue, sizes), f.trouble()...),
	}, nil
}

// row returns the arms of a split, by capacity.
func (f *Found) row(s split) []Runs {
	var arms []Runs
	for _, n := range capacitiesAt(s) {
		arms = append(arms, f.Of(bufferName(s, n)))
	}
	return arms
}

// at returns the arm of a cell.
func (f *Found) at(c cell) Runs { return f.Of(bufferName(c.split, c.capacity)) }

func capacities(s split) []float64 {
	var levels []float64
	for _, n := range capacitiesAt(s) {
		levels = append(levels, float64(n))
	}
	return levels
}

// rowDifference is the best accuracy at a split, mean over the capacities of every split, less that without replay, seed by seed.
func (f *Found) rowDifference(s split) spread {
	queue, row := f.Of(queueName), f.row(s)[:len(commonCapacities())]
	var values []float64
	for _, seed := range seedsOf(append([]Runs{queue}, row...)...) {
		sum := 0.0
		for _, a := range row {
			sum += a.on(seed, best)
		}
		values = append(values, sum/float64(len(row))-queue.on(seed, best))
	}
	return spreadOf(values)
}

// passAt is the last measured pass@k.
func passAt(k int) measure {
	return func(a Runs, r *results.Run) float64 {
		if failed(r) || len(r.Evals) == 0 {
			return last(a, r)
		}
		return r.Evals[len(r.Evals)-1].PassAtK(k).Float()
	}
}

// spreadOfPass is how far the last pass@k lies above pass@1 of the same samples.
func spreadOfPass(a Runs, r *results.Run) float64 { return passAt(labPassAt)(a, r) - passAt(1)(a, r) }

func (f *Found) bufferSizeSections(queue Runs, sizes []Runs) []results.Section {
	curves := append([]line{{Runs: queue, colour: 0}}, lines(1, sizes...)...)
	inBuffer := byCompute("compute, in updates with replay at (6,2)", bufferUnit(sizes[0].Config))
	sections := []results.Section{
		{
			Title: "Accuracy against compute, by N",
			Text:  []string{"Medians over seeds with their quartiles, at (6,2)."},
			Figures: []results.Figure{
				medians("Accuracy at (6,2)", "", inUpdates(queue.Arm), curves...),
				medians("The same, in the source's unit", "[ER] figure 3 counts an update with replay as 1.", inBuffer, curves...),
			},
		},
		{Title: "Accuracy and pass@k against N", Figures: []results.Figure{f.bestByCapacity(), passFigure(queue, sizes)}},
		{
			Title: "The grid",
			Figures: []results.Figure{
				heat("Best pass@1", "Median over seeds.", "best pass@1", 3, false, func(c cell) float64 { return f.at(c).median(best) }),
				heat("Compute to 98% of a run's own best", "In updates without replay; median over seeds ([ER] fig. 14).", "updates without replay", 0, true,
					func(c cell) float64 { return f.at(c).median(toOwnBest) }),
				heat("Compute to the target", "In updates without replay; median over seeds. Empty: not reached, or not run.", "updates without replay", 0, true,
					func(c cell) float64 { return f.at(c).median(toTarget) }),
			},
			Grids: []results.Grid{armsGrid("Arms", f.Arms...)},
		},
	}
	every := results.Section{Title: "Every seed", Text: []string{"Each run by itself, behind the medians ([ER] fig. 13): a crash or a late collapse shows."}}
	every.Figures = append(every.Figures, everySeed("Without replay", "", inUpdates(queue.Arm), line{Runs: queue}))
	for _, s := range labSplits() {
		every.Figures = append(every.Figures, everySeed(s.String(), "", inUpdates(queue.Arm), lines(1, f.row(s)...)...))
	}
	return append(sections, every)
}

// bestByCapacity draws what each split's best accuracy is above that without replay.
func (f *Found) bestByCapacity() results.Figure {
	fig := results.Figure{
		Title: "Best pass@1 beside no replay", Note: "Differences on the same seed: median and quartiles.",
		X: results.Axis{Title: "capacity N, rollouts", Log: true}, Y: results.Axis{Title: "difference in best pass@1"},
		Guides: []results.Guide{{Name: "no replay", Y: results.Num(0)}},
	}
	for i, s := range labSplits() {
		var of []spread
		for _, a := range f.row(s) {
			of = append(of, difference(a, f.Of(queueName), best))
		}
		fig.Curves = append(fig.Curves, against(s.String(), i+1, capacities(s), of))
	}
	return fig
}

// passFigure draws what pass@k gains on that of the arm without replay.
func passFigure(queue Runs, sizes []Runs) results.Figure {
	fig := results.Figure{
		Title: "Last pass@k beside no replay", Note: "Of samples at temperature 1, at (6,2). Differences on the same seed: median and quartiles.",
		X: results.Axis{Title: "k"}, Y: results.Axis{Title: "difference in pass@k"},
		Guides: []results.Guide{{Name: "no replay", Y: results.Num(0)}},
	}
	for i, a := range sizes {
		if a.Config.Evaluate.Samples == 0 {
			continue
		}
		var levels []float64
		var of []spread
		for _, k := range a.Config.Evaluate.PassAt {
			levels, of = append(levels, float64(k)), append(of, difference(a, queue, passAt(k)))
		}
		fig.Curves = append(fig.Curves, against(a.Name, i+1, levels, of))
	}
	return fig
}
