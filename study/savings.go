package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

func savings() Study {
	return Study{
		Name: "savings", Title: "Does replay reach the same accuracy with less compute?", Source: "[ER] fig. 1",
		Lead: []string{
			"The same experiment with and without replay, on the same base models, seeds and held-out problems: how " +
				"much compute does each need to reach an accuracy that is fixed before the run? Compute is counted " +
				"by formula: B(1 + μ) an update without replay, B(1 + W/T) with.",
			"Each arm has the learning rate that was best for it on base models that judge nothing. The split (5,3) was " +
				"chosen by runs on a seed that is not among the study's. The source's split, (6,2), is shown with the two " +
				"arms but not judged.",
			aboutSearch(savingsBatch, savingsCompute) + " The batch is twice that of the other studies, so that " +
				"stability limits the learning rate, not the noise of a batch.",
			"A ratio is 0 if only the run with replay reached the target, and infinite if only the other did. Where neither " +
				"did there is none.",
		},
		Pilots: savingsPilots, Arms: savingsArms, Judge: judgeSavings,
	}
}

const (
	savingsBatch    = 2 * labBatch
	savingsCapacity = 2 * savingsBatch
	savingsCompute  = 20
	savingsEvery    = 1
	savingsTarget   = 0.5
	savingsNone     = "without replay"
	savingsBuffer   = "with replay"
)

// savingsRates are the learning rates that both arms choose among, ascending.
func savingsRates() []float64 { return []float64{5e-4, 7e-4, 1e-3} }

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

// savingsQueue is the configuration without replay.
func savingsQueue(o Options, rate float64) run.Config {
	c := savingsConfig(o, queueSplit(), rate)
	c.Replay.Sampler, c.Replay.Capacity = "lifo", 2*savingsBatch
	return c
}

// savingsPilots choose the learning rates.
func savingsPilots(o Options) []Pilot {
	queue, buffer := Pilot{Name: "learning rate without replay", by: meanOver(1)},
		Pilot{Name: "learning rate with replay", by: meanOver(1)}
	for _, rate := range savingsRates() {
		queue.Arms = append(queue.Arms, Arm{rateName(savingsNone, rate), savingsQueue(o, rate)})
		buffer.Arms = append(buffer.Arms, Arm{rateName(savingsBuffer, rate), savingsConfig(o, savingsSplit(), rate)})
	}
	return []Pilot{queue, buffer}
}

// savingsArms are the two arms that are judged, and the source's split at the rate with replay.
func savingsArms(o Options) []Arm {
	pilots := savingsPilots(o)
	queue, buffer := o.choice(pilots[0]).Config, o.choice(pilots[1]).Config
	return []Arm{{savingsNone, queue}, {savingsBuffer, buffer}, {fmt.Sprintf("%s, %s", savingsBuffer, sourceSplit()),
		sourceSplit().set(buffer)}}
}

func judgeSavings(f *Found) (Judgement, error) {
	queue, buffer := f.Arms[0], f.Arms[1]
	target, gamma := buffer.Config.Evaluate.Target, bufferUnit(buffer.Config)/unit(buffer.Config)
	cost := ratio(buffer, queue, toTarget)
	measured := fmt.Sprintf("Compute to pass@1 of %g, with replay over without", target)
	const er1 = "[ER] fig. 1"
	return f.judge([]claim{
		{
			source: er1, text: "With a well-chosen buffer the same accuracy takes less compute.", by: cost.is(below(1)),
			measured: measured,
			more: fmt.Sprintf("Ratio of the median curves: %s. Learning rates: %g without replay, %g with.",
				times(curvesRatio(buffer, queue)), queue.Config.Learner.LearningRate, buffer.Config.Learner.LearningRate),
		},
		{
			source: er1 + ", up to 40%", by: cost.is(atMost(1 - savingsGoal())), measured: measured,
			text: fmt.Sprintf("The saving is %s or more, 1 − γ of the source's %s.", percent(savingsGoal()),
				sourceSplit()),
		},
		{
			source: "[ER] §2", by: cost.is(atMost(gamma)), measured: measured,
			text: fmt.Sprintf("An update with replay teaches as much as one without: the saving is 1 − γ = %s or "+
				"more at %s, where it costs γ = %.3f of one.", percent(1-gamma), savingsSplit(), gamma),
		},
		{
			source: er1, text: "Whatever the compute, the accuracy with replay is higher.",
			by: ahead(buffer, queue), measured: "Mean pass@1 over each quarter of the budget, with replay less " +
				"without",
		},
		{
			source: er1, text: "Runs without replay are less stable.",
			by:       difference(queue, buffer, unsteady).is(above(0)),
			measured: "How unsteady a run is, without replay less with",
			more: fmt.Sprintf("Crashed: %d of %d runs without, %d of %d with.",
				queue.crashes(), len(queue.Runs), buffer.crashes(), len(buffer.Runs)),
		},
	}, savingsPage(f.Arms, target)...)
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

// ahead asks of each quarter of the budget that arm a is more accurate than b.
func ahead(a, b Runs) (tests []test) {
	for i := range 4 {
		from, to := float64(i)/4, float64(i+1)/4
		tests = append(tests, difference(a, b, meanBetweenShares(from, to)).named(
			fmt.Sprintf("%s to %s", percent(from), percent(to)), above(0)))
	}
	return tests
}

func savingsPage(arms []Runs, target float64) []results.Section {
	queue, buffer := arms[0], arms[1]
	x, both := inUpdates(queue.Arm), lines(0, queue, buffer)
	inBuffer := byCompute("compute, in updates with replay", bufferUnit(buffer.Config))
	return []results.Section{
		{
			Title: "Accuracy against compute",
			Text:  []string{"Lines are medians over seeds, bands quartiles."},
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
			Grids: []results.Grid{armsTable("Arms", arms...)},
		},
	}
}

// savingsTable shows the cost of the target on each seed.
func savingsTable(queue, buffer Runs) results.Grid {
	g := results.Grid{
		Title: "By seed", Note: "Compute to the target in updates without replay.",
		Columns: []string{
			"seed", "base model", "without replay", "with replay", "ratio", "mean pass@1 without", "mean pass@1 with",
		},
	}
	for _, seed := range seedsOf(queue, buffer) {
		q, b := queue.on(seed, toTarget), buffer.on(seed, toTarget)
		g.Rows = append(g.Rows, []string{
			fmt.Sprint(seed), fmt.Sprint(baseOf(seed)), updates(q), updates(b), times(b / q),
			points(queue.on(seed, meanOver(1))), points(buffer.on(seed, meanOver(1))),
		})
	}
	return g
}
