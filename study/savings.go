package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// savings asks what replay saves at a fixed target, both arms at their best learning rate.
func savings() Study {
	return Study{
		Name: "savings", Title: "Does replay reach the same accuracy with less compute?", Source: "[ER] fig. 1",
		Lead: []string{
			"The same experiment with and without replay, on the same seeds, warm starts and held-out problems: how much compute does each need to " +
				"the accuracy that the configuration fixes before the run? Compute is counted by formula: B(1 + μ) an update without replay, B(1 + W/T) with.",
			"Each arm is run at as many learning rates as the other, and judged at its best, so that no seed has a say in the rate that it is judged at: on each seed the rate is that with the least median compute to " +
				"the target on the other seeds (of those that need as much, or do not reach it, the most accurate over the run). A rate of 5e-4 was run with seeds 1 to 5 as well, was best for neither arm, and is " +
				"left out for time. The split (5,3) was settled by pilots on a seed that is not among the study's. " +
				"The source's split, (6,2), is shown beside the two arms and not judged.",
			aboutSearching(savingsBatch, savingsCompute) + " The batch is twice that of the other studies, so that the learning rate is bounded by stability rather than by the noise of a batch.",
			"A seed's ratio is 0 where only the arm with replay reached the target, infinite where only the other did; a seed on which neither did has none and is left out.",
		},
		Arms: savingsArms, Judge: judgeSavings,
	}
}

// The experiment of the headline: batches twice those of the other studies, so that the learning rate is bounded by stability rather than by the
// noise of a batch.
const (
	savingsBatch    = 2 * labBatch
	savingsCapacity = 2 * savingsBatch
	savingsCompute  = 20
	savingsEvery    = 1
	savingsTarget   = 0.65
	savingsBuffer   = "replay"
)

// savingsRates are the learning rates of both arms, ascending: those of a first sweep but 5e-4, which was best for neither.
func savingsRates() []float64 { return []float64{7e-4, 1e-3} }

// savingsSplit is how the arm with replay shares out its GPUs, sourceSplit how [ER] fig. 1 does.
func savingsSplit() split { return split{5, 3} }
func sourceSplit() split  { return split{6, 2} }

// savingsGoal is what [ER]'s split saves if an update with replay teaches as much as one without: 1 - gamma.
func savingsGoal() float64 {
	return 1 - (1+sourceSplit().ratio())/(1+run.Default().Pipeline.RolloutCost)
}

func savingsArms(o Options) []Arm {
	return append(append(savingsQueues(o), savingsBuffers(o)...), savingsOther(o))
}

func savingsQueues(o Options) []Arm {
	var arms []Arm
	for _, rate := range savingsRates() {
		c := atRate(savingsBase(o), rate)
		c.Replay.Sampler, c.Replay.Capacity = "lifo", 2*savingsBatch
		c.Pipeline.Workers, c.Pipeline.Trainers = queueSplit().workers, queueSplit().trainers
		arms = append(arms, Arm{rateName(queueName, rate), c})
	}
	return arms
}

func savingsBuffers(o Options) []Arm {
	var arms []Arm
	for _, rate := range savingsRates() {
		arms = append(arms, Arm{rateName(savingsBuffer, rate), atRate(savingsBase(o), rate)})
	}
	return arms
}

// savingsOther is the source's split, at the largest rate.
func savingsOther(o Options) Arm {
	rate, s := savingsRates()[len(savingsRates())-1], sourceSplit()
	c := atRate(savingsBase(o), rate)
	c.Pipeline.Workers, c.Pipeline.Trainers = s.workers, s.trainers
	return Arm{rateName(fmt.Sprintf("%s, %s", savingsBuffer, s), rate), c}
}

// savingsBase is the arm with replay.
func savingsBase(o Options) run.Config {
	c := searching(o)
	c.Pipeline.Batch, c.Pipeline.Workers, c.Pipeline.Trainers = savingsBatch, savingsSplit().workers, savingsSplit().trainers
	c.Replay.Sampler, c.Replay.Capacity = labSampler, savingsCapacity
	c.Evaluate.Every, c.Evaluate.Target, c.Budget.Compute = savingsEvery, savingsTarget, savingsCompute
	if o.Quick {
		c.Budget.Compute = 1
	}
	return c
}

func judgeSavings(f *Found) (Judgement, error) {
	queues, buffers := f.of(savingsQueues(f.Options)...), f.of(savingsBuffers(f.Options)...)
	queue, buffer := tuned("without replay", queues), tuned("with replay", buffers)
	gamma := bufferUnit(buffer.Config) / unit(buffer.Config)
	target := buffer.Config.Evaluate.Target
	r := ratio(buffer.Runs, queue.Runs, toTarget)
	ofCurves := curvesRatio(buffer.Runs, queue.Runs)
	found := fmt.Sprintf("Compute to pass@1 of %g, with replay over without: %s; ratio of the median curves %s. Learning rates, each chosen on the other seeds: %s without replay, %s with.",
		target, r.format(times), times(ofCurves), queue.rates(), buffer.rates())
	saved := spreadOf(each(r.values, func(v float64) float64 { return 1 - v }))

	steady := difference(queue.Runs, buffer.Runs, fall)
	everywhere, why := f.everywhere(buffer.Runs, queue.Runs)
	return Judgement{
		Findings: []results.Finding{
			f.settle(asked{"[ER] fig. 1", "With a well-chosen buffer the same accuracy takes less compute."}, found, r, below("the ratio", 1)),
			f.settle(asked{"[ER] fig. 1, up to 40%", fmt.Sprintf("The saving is %s or more, 1 − γ of the source's %s.", percent(savingsGoal()), sourceSplit())},
				fmt.Sprintf("Saving: %s.", saved.format(percent)), saved, atLeast("the saving", savingsGoal())),
			f.settle(asked{"[ER] §2", fmt.Sprintf("An update with replay teaches as much as one without: the saving is 1 − γ = %s or more at %s, where it costs γ = %.3f of one.",
				percent(1-gamma), savingsSplit(), gamma)},
				fmt.Sprintf("Saving: %s.", saved.format(percent)), saved, atLeast("the saving", 1-gamma)),
			{
				Source: "[ER] fig. 1", Claim: "Whatever the compute, the accuracy with replay is higher.", Found: why, Verdict: everywhere,
				Why: f.because(buffer.Runs, "The claim holds if the 95% bootstrap interval of the difference in mean accuracy over the run lies above 0 and at no step "+
					"of the grid the median difference is below 0; it does not hold if at two steps in a row the interval of the difference lies below 0, since of so many steps one may by chance."),
			},
			f.settle(asked{"[ER] fig. 1", "Runs without replay are less stable."},
				fmt.Sprintf("The greatest fall below a run's own best is larger without replay by %s. Crashed: %d of %d runs without, %d of %d with.",
					steady.format(points), queue.crashes(), len(queue.Runs.Runs), buffer.crashes(), len(buffer.Runs.Runs)),
				steady, above("the difference in the greatest fall", 0)),
		},
		Sections: append(savingsSections(queue, buffer, queues, append(buffers, f.Of(savingsOther(f.Options).Name))), f.trouble()...),
	}, nil
}

// curvesRatio is the compute at which the median curve of arm a reaches the target over that of b.
func curvesRatio(a, b Runs) float64 {
	to := func(r Runs) float64 {
		where := results.MedianReach(r.evals(), r.Config.Evaluate.Target)
		if !where.Reached {
			return math.Inf(1)
		}
		return where.Compute.Float()
	}
	return to(a) / to(b)
}

// everywhere judges whether arm a is more accurate than b at every step of compute.
func (f *Found) everywhere(a, b Runs) (results.Verdict, string) {
	mean := difference(a, b, meanOver(1))
	steps, below, lower, row, longest := grid(a.Config, 1), 0, 0, 0, 0
	for _, g := range steps {
		d := difference(a, b, accuracyAtStep(g))
		if d.median < 0 {
			below++
		}
		if row++; !(d.high < 0) {
			row = 0
		}
		lower, longest = lower+min(row, 1), max(longest, row)
	}
	v := verdict(mean.low > 0 && below == 0, longest >= 2)
	if f.caution(len(mean.values)) != "" {
		v = results.CannotTell
	}
	return v, fmt.Sprintf("Mean accuracy over the run, with replay less without: %s. The median difference is below 0 at %d of %d steps of the grid, its interval at %d.",
		mean.format(change), below, len(steps), lower)
}

// because is the words of a rule with what keeps an arm's runs from a claim before them.
func (f *Found) because(a Runs, words string) string {
	if c := f.caution(len(a.over(best))); c != "" {
		return c + " " + words
	}
	return words
}

// each returns a number of each of a list.
func each[T any](values []T, of func(T) float64) []float64 {
	list := make([]float64, len(values))
	for i, v := range values {
		list[i] = of(v)
	}
	return list
}

func savingsSections(queue, buffer atBest, queues, buffers []Runs) []results.Section {
	target := buffer.Config.Evaluate.Target
	both := lines(0, queue.Runs, buffer.Runs)
	rates := append(lines(0, queues...), lines(len(queues), buffers...)...)
	inBuffer := byCompute("compute, in updates with replay", bufferUnit(buffer.Config))
	return []results.Section{
		{
			Title:   "Accuracy against compute",
			Text:    []string{"Lines are medians over seeds, bands quartiles. Each seed is shown at the learning rate that is best on the other seeds."},
			Figures: []results.Figure{withTarget(medians("Both arms at their best learning rate", "", inUpdates(buffer.Arm), both...), target)},
			Grids:   []results.Grid{savingsGrid(queue, buffer)},
		},
		{
			Title: "In the other unit, and by seed",
			Figures: []results.Figure{
				withTarget(medians("In updates with replay", "[ER] draws figure 1 in updates without replay and figure 3 in updates with.", inBuffer, both...), target),
				withTarget(everySeed("Every seed", "", inUpdates(buffer.Arm), both...), target),
			},
		},
		{
			Title:   "Learning rates",
			Figures: []results.Figure{withTarget(medians("Every learning rate", "", inUpdates(buffer.Arm), rates...), target)},
			Grids:   []results.Grid{armsGrid("Every learning rate", append(append([]Runs(nil), queues...), buffers...)...)},
		},
	}
}

// savingsGrid tells what each seed's target cost.
func savingsGrid(queue, buffer atBest) results.Grid {
	g := results.Grid{
		Title: "By seed", Note: "Compute to the target in updates without replay.",
		Columns: []string{"seed", "without replay", "with replay", "ratio", "best pass@1 without", "best pass@1 with", "rate without", "rate with"},
	}
	for _, seed := range seedsOf(queue.Runs, buffer.Runs) {
		q, b := queue.on(seed, toTarget), buffer.on(seed, toTarget)
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(seed), updates(q), updates(b), times(b / q), points(queue.on(seed, best)), points(buffer.on(seed, best)),
			queue.rateOn(seed), buffer.rateOn(seed),
		})
	}
	return g
}
