package study

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

func savings() Study {
	return Study{
		Name: "savings", Title: "Does replay reach the same accuracy with less compute?", Source: "[ER] fig. 1",
		Lead: []string{
			"The same experiment with and without replay, on the same seeds, warm starts and held-out problems: how " +
				"much compute does each need to reach an accuracy that is fixed before the run? Compute is counted " +
				"by formula: B(1 + μ) an update without replay, B(1 + W/T) with.",
			"Both arms are run at the same learning rates, and each is judged at its best. No seed has a say in the " +
				"rate at which it is judged: on each seed the rate is the one with the least median compute to the " +
				"target on the other seeds; among equals, and if none reaches the target, the most accurate over the " +
				"run. A rate of 5e-4 was run with seeds 1 to 5 as well. It was best for neither arm and is left out " +
				"to save time. The split (5,3) was chosen by pilot runs on a seed that is not among the study's. The " +
				"source's split, (6,2), is shown with the two arms but not judged.",
			aboutSearch(savingsBatch, savingsCompute) + " The batch is twice that of the other studies, so that " +
				"stability limits the learning rate, not the noise of a batch.",
			"A seed's ratio is 0 if only the arm with replay reached the target, and infinite if only the other did. " +
				"A seed on which neither did is left out.",
		},
		Arms:  func(o Options) []Arm { return append(append(savingsQueues(o), savingsBuffers(o)...), savingsOther(o)) },
		Judge: judgeSavings,
	}
}

const (
	savingsBatch    = 2 * labBatch
	savingsCapacity = 2 * savingsBatch
	savingsCompute  = 20
	savingsEvery    = 1
	savingsTarget   = 0.65
	savingsBuffer   = "replay"
)

// savingsRates are the learning rates of both arms, ascending.
func savingsRates() []float64 { return []float64{7e-4, 1e-3} }

// savingsSplit is the split of the arm with replay, sourceSplit that of [ER] fig. 1.
func savingsSplit() split { return split{5, 3} }
func sourceSplit() split  { return split{6, 2} }

// computeRatio is gamma, the cost of an update with replay over that of one without.
func computeRatio(s split, mu float64) float64 { return (1 + s.ratio()) / (1 + mu) }

// savingsGoal is what [ER]'s split saves if an update with replay teaches as much as one without: 1 - gamma.
func savingsGoal() float64 {
	return 1 - computeRatio(sourceSplit(), run.Default().Pipeline.RolloutCost)
}

// savingsConfig is the configuration with replay.
func savingsConfig(o Options, s split, rate float64) run.Config {
	c := withRate(s.set(searchBase(o)), rate)
	c.Pipeline.Batch = savingsBatch
	c.Replay.Sampler, c.Replay.Capacity = labSampler, savingsCapacity
	c.Evaluate.Every, c.Evaluate.Target, c.Budget.Compute = savingsEvery, savingsTarget, savingsCompute
	if o.Quick {
		c.Pipeline.Batch, c.Budget.Compute, c.Evaluate.Every = savingsBatch/5, 2, 0.5
	}
	return c
}

func savingsQueues(o Options) []Arm {
	var arms []Arm
	for _, rate := range savingsRates() {
		c := savingsConfig(o, queueSplit(), rate)
		c.Replay.Sampler, c.Replay.Capacity = "lifo", 2*savingsBatch
		arms = append(arms, Arm{rateName(queueName, rate), c})
	}
	return arms
}

func savingsBuffers(o Options) []Arm {
	var arms []Arm
	for _, rate := range savingsRates() {
		arms = append(arms, Arm{rateName(savingsBuffer, rate), savingsConfig(o, savingsSplit(), rate)})
	}
	return arms
}

// savingsOther is the source's split, at the highest rate.
func savingsOther(o Options) Arm {
	rate := slices.Max(savingsRates())
	return Arm{rateName(fmt.Sprintf("%s, %s", savingsBuffer, sourceSplit()), rate),
		savingsConfig(o, sourceSplit(), rate)}
}

func judgeSavings(f *Found) (Judgement, error) {
	queues, buffers := f.of(savingsQueues(f.Options)...), f.of(savingsBuffers(f.Options)...)
	queue, buffer := tuned("without replay", queues), tuned("with replay", buffers)
	target, gamma := buffer.Config.Evaluate.Target, bufferUnit(buffer.Config)/unit(buffer.Config)
	cost := ratio(buffer.Runs, queue.Runs, toTarget)
	var saved []float64
	for _, v := range cost.values {
		saved = append(saved, 1-v)
	}
	saving := estimateOf("the saving", percent, saved)
	higher, everywhere, steps := aheadEverywhere(buffer.Runs, queue.Runs)
	const er1 = "[ER] fig. 1"
	return f.judge([]claim{
		{
			source: er1, text: "With a well-chosen buffer the same accuracy takes less compute.", by: cost.is(below(1)),
			measured: fmt.Sprintf("Compute to pass@1 of %g, with replay over without", target),
			more: fmt.Sprintf("Ratio of the median curves: %s. Learning rates, each chosen on the other seeds: %s "+
				"without replay, %s with.",
				times(curvesRatio(buffer.Runs, queue.Runs)), queue.rates(), buffer.rates()),
		},
		{
			source: er1 + ", up to 40%", by: saving.is(atLeast(savingsGoal())), measured: "Saving",
			text: fmt.Sprintf("The saving is %s or more, 1 − γ of the source's %s.", percent(savingsGoal()),
				sourceSplit()),
		},
		{
			source: "[ER] §2", by: saving.is(atLeast(1 - gamma)), measured: "Saving",
			text: fmt.Sprintf("An update with replay teaches as much as one without: the saving is 1 − γ = %s or "+
				"more at %s, where it costs γ = %.3f of one.", percent(1-gamma), savingsSplit(), gamma),
		},
		{
			source: er1, text: "Whatever the compute, the accuracy with replay is higher.", by: higher.is(everywhere),
			measured: "Mean accuracy over the run, with replay less without", more: steps,
			why: "The claim holds if the 95% bootstrap interval of the difference in mean accuracy over the run lies " +
				"above 0 and the median difference is below 0 at no step of the grid. It does not hold if the " +
				"interval of the difference lies below 0 at two steps in a row; at one of so many steps it may by " +
				"chance.",
		},
		{
			source: er1, text: "Runs without replay are less stable.",
			by:       difference(queue.Runs, buffer.Runs, fall).is(above(0)),
			measured: "Greatest fall below a run's own best, without replay less with",
			more: fmt.Sprintf("Crashed: %d of %d runs without, %d of %d with.",
				queue.crashes(), len(queue.Runs.Runs), buffer.crashes(), len(buffer.Runs.Runs)),
		},
	}, savingsPage(queue, buffer, queues, append(buffers, f.Of(savingsOther(f.Options).Name)))...)
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

// aheadEverywhere compares two arms at every step of compute: the difference over the run, the rule that asks of the
// steps as well, and a sentence about them.
func aheadEverywhere(a, b Runs) (estimate, rule, string) {
	steps, behind, clearly, row, longest := grid(a.Config, 1), 0, 0, 0, 0
	for _, g := range steps {
		d := difference(a, b, accuracyAtStep(g))
		if d.median < 0 {
			behind++
		}
		if d.high < 0 {
			clearly++
			row++
		} else {
			row = 0
		}
		longest = max(longest, row)
	}
	r := rule{decide: func(low, _ float64) results.Verdict { return verdict(low > 0 && behind == 0, longest >= 2) }}
	return difference(a, b, meanOver(1)), r, fmt.Sprintf("The median difference is below 0 at %d of %d steps of the "+
		"grid, its interval at %d.",
		behind, len(steps), clearly)
}

// atBest is a family of arms that differ in their learning rate, as it is judged: on each seed, the run at the best
// rate.
type atBest struct {
	Runs
	at []float64 // the rate of each run
}

// tuned picks, on each seed, the run at the rate that is best on the other seeds; a single seed has no others.
func tuned(name string, family []Runs) atBest {
	t := atBest{Runs: Runs{Arm: Arm{name, family[0].Config}}}
	seeds := seedsOf(family...)
	for _, seed := range seeds {
		leaveOut := seed
		if len(seeds) == 1 {
			leaveOut = 0
		}
		a := soonest(family, leaveOut)
		if r := a.Seed(seed); r != nil {
			t.Runs.Runs, t.at = append(t.Runs.Runs, r), append(t.at, a.Config.Learner.LearningRate)
		}
	}
	return t
}

// soonest returns the arm with the least median compute to the target over all seeds but one (0: over all), the most
// accurate over the run among equals.
func soonest(arms []Runs, leaveOut uint64) Runs {
	compute := func(a Runs) float64 {
		if v := a.without(leaveOut).median(toTarget); !math.IsNaN(v) {
			return v
		}
		return math.Inf(1)
	}
	least := math.Inf(1)
	for _, a := range arms {
		least = min(least, compute(a))
	}
	equal := slices.DeleteFunc(slices.Clone(arms), func(a Runs) bool { return compute(a) != least })
	return highest(equal, meanOver(1), leaveOut)
}

// rates writes how many seeds are judged at which rate.
func (t atBest) rates() string {
	count := make(map[float64]int)
	for _, rate := range t.at {
		count[rate]++
	}
	var list []string
	for _, rate := range slices.Sorted(maps.Keys(count)) {
		text := fmt.Sprintf("%g", rate)
		if len(count) > 1 {
			text += fmt.Sprintf(" (%d of %d seeds)", count[rate], len(t.at))
		}
		list = append(list, text)
	}
	return sortedNames(list)
}

// rateOn writes the rate at which a seed is judged.
func (t atBest) rateOn(seed uint64) string {
	i := slices.IndexFunc(t.Runs.Runs, func(r *results.Run) bool { return r.Seed == seed })
	if i < 0 {
		return missing
	}
	return fmt.Sprintf("%g", t.at[i])
}

func savingsPage(queue, buffer atBest, queues, buffers []Runs) []results.Section {
	target, x := buffer.Config.Evaluate.Target, inUpdates(buffer.Arm)
	both := lines(0, queue.Runs, buffer.Runs)
	every := slices.Concat(queues, buffers)
	inBuffer := byCompute("compute, in updates with replay", bufferUnit(buffer.Config))
	return []results.Section{
		{
			Title: "Accuracy against compute",
			Text: []string{"Lines are medians over seeds, bands quartiles. Each seed is shown at the learning rate " +
				"that is best on the other seeds."},
			Figures: []results.Figure{withTarget(medianFigure("Both arms at their best learning rate", "", x, both...),
				target)},
			Grids: []results.Grid{savingsTable(queue, buffer)},
		},
		{
			Title: "In the other unit, and by seed",
			Figures: []results.Figure{
				withTarget(medianFigure("In updates with replay",
					"[ER] draws figure 1 in updates without replay and figure 3 in updates with replay.",
					inBuffer, both...), target),
				withTarget(seedFigure("Every seed", "", x, both...), target),
			},
		},
		{
			Title: "Learning rates",
			Figures: []results.Figure{withTarget(medianFigure("Every learning rate", "", x, lines(0, every...)...),
				target)},
			Grids: []results.Grid{armsTable("Every learning rate", every...)},
		},
	}
}

// savingsTable shows the cost of the target on each seed.
func savingsTable(queue, buffer atBest) results.Grid {
	g := results.Grid{
		Title: "By seed", Note: "Compute to the target in updates without replay.",
		Columns: []string{
			"seed", "without replay", "with replay", "ratio", "best pass@1 without", "best pass@1 with", "rate without",
			"rate with",
		},
	}
	for _, seed := range seedsOf(queue.Runs, buffer.Runs) {
		q, b := queue.on(seed, toTarget), buffer.on(seed, toTarget)
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(seed), updates(q), updates(b), times(b / q), points(queue.on(seed, best)),
			points(buffer.on(seed, best)),
			queue.rateOn(seed), buffer.rateOn(seed),
		})
	}
	return g
}
