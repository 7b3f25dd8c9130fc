package study

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/replay"
)

func savings() Study {
	return Study{
		Name: "savings", Title: "Does replay reach the same accuracy with less compute?", Source: "[ER] fig. 1",
		Lead: []string{
			"The same experiment with and without replay, on the same base models, seeds and held-out problems: how " +
				"much compute does each need to reach an accuracy that is fixed before the run? Compute is counted " +
				"by formula: B(1 + μ) an update without replay, B(1 + W/T) with.",
			"Each arm has the learning rate, and replay the split, that was best for it on base models and held-out problems " +
				"that judge nothing. Replay draws rollouts that were never used first; on addition other ways to draw are shown " +
				"beside it, at its settings.",
			fmt.Sprintf("Two tasks. Addition of numbers below 50, in batches of %d rollouts: runs end at the compute of %g "+
				"updates without replay. Search: questions about made-up facts, answered after queries to a small search "+
				"engine, in batches of %d, to %g updates. Batches are large, so that stability limits the learning rate and "+
				"not their noise. The policy has two layers of width 64 and starts from a supervised warm-up. The source "+
				"trains large language models for longer; what is found here holds for this small model and these short runs.",
				savingsTasks()[0].batch, savingsTasks()[0].compute, savingsTasks()[1].batch, savingsTasks()[1].compute),
			"A run that did not reach the target counts with what it spent: the ratio is at most that if it is the run " +
				"without replay, at least if it is the other. Where neither did there is none.",
		},
		Pilots: savingsPilots, Arms: savingsArms, Judge: judgeSavings,
	}
}

// savingsTask is a task on which both arms are tried.
type savingsTask struct {
	name            string
	base            func(Options) run.Config
	rates           []float64 // to choose from, ascending
	target          float64
	batch           int
	compute, every  float64
	samplers        []string  // ways to draw beside unseen
	pilots          [2]string // the choices without replay and with
	without, replay string    // the arms
}

func savingsTasks() []savingsTask {
	tasks := []savingsTask{
		{name: "addition", base: additionBase, rates: labRates(), target: labTarget, batch: labBatch, compute: labCompute,
			every: labEvery, samplers: []string{uniform, distinct, epoch}},
		{name: "search", base: searchBase, rates: []float64{7e-4, 1e-3, 1.4e-3}, target: 0.18, batch: labBatch / 2,
			compute: 10, every: 1},
	}
	for i := range tasks {
		t := &tasks[i]
		t.pilots = [2]string{t.name + ", learning rate without replay", t.name + ", split and learning rate with replay"}
		t.without, t.replay = t.name+": without replay", t.name+": with replay"
	}
	return tasks
}

// searchBase is the task search with its policy and warm-up.
func searchBase(o Options) run.Config {
	c := run.Default()
	c.Task = map[string]any{"name": "search", "passages": 1, "held_out": 800} // half of the questions
	c.Policy.Positions, c.Generate.MaxTokens = 128, 14
	c.Warmup.Steps, c.Warmup.Batch, c.Warmup.Until = 1000, 32, 0.5
	c.Pipeline.Group = labGroup
	skipZeroVariance(&c)
	c.Evaluate.Samples = 0
	c.Checkpoint.Every = 1000
	if o.Quick { // at a higher rate the policy answers some questions within seconds
		c.Task["held_out"] = 40
		c.Warmup.Steps, c.Warmup.LearningRate = 150, 3e-3
	}
	return c
}

// savingsSplits are the splits that replay chooses between.
func savingsSplits() []split { return []split{{5, 3}, {4, 4}} }

// computeRatio is gamma, the cost of an update with replay over that of one without.
func computeRatio(s split, mu float64) float64 { return (1 + s.ratio()) / (1 + mu) }

// savingsGoal is what [ER]'s split saves if an update with replay teaches as much as one without: 1 - gamma.
func savingsGoal() float64 {
	return 1 - computeRatio(labSplit(), run.Default().Pipeline.RolloutCost)
}

// config is the task's configuration, with replay unless its table is a queue.
func (t savingsTask) config(o Options, s split, rate float64, sampler replay.Sampler) run.Config {
	c := withRate(s.set(t.base(o)), rate)
	c.Pipeline.Batch = t.batch
	c.Replay.Sampler, c.Replay.Capacity = sampler, 2*t.batch
	c.Evaluate.Every, c.Evaluate.Target, c.Budget.Compute = t.every, t.target, t.compute
	if o.Quick {
		c.Pipeline.Batch, c.Replay.Capacity, c.Budget.Compute, c.Evaluate.Every = t.batch/10, t.batch/5, 2, 0.5
	}
	return c
}

// savingsPilots choose the learning rates, and the split with replay.
func savingsPilots(o Options) (list []Pilot) {
	for _, t := range savingsTasks() {
		queue := Pilot{Name: t.pilots[0], of: overTheRun, by: meanOver(1)}
		buffer := Pilot{Name: t.pilots[1], of: overTheRun, by: meanOver(1)}
		for _, rate := range t.rates {
			queue.Arms = append(queue.Arms, Arm{rateName(t.without, rate), t.config(o, queueSplit(), rate, "lifo")})
			for _, s := range savingsSplits() {
				buffer.Arms = append(buffer.Arms, Arm{rateName(fmt.Sprintf("%s, %s", t.replay, s), rate),
					t.config(o, s, rate, unseen)})
			}
		}
		list = append(list, queue, buffer)
	}
	return list
}

// savingsArms are, of each task, the two arms that are judged, and replay with other samplers.
func savingsArms(o Options) (arms []Arm) {
	pilots := savingsPilots(o)
	for i, t := range savingsTasks() {
		queue, buffer := o.choice(pilots[2*i]).Config, o.choice(pilots[2*i+1]).Config
		arms = append(arms, Arm{t.without, queue}, Arm{t.replay, buffer})
		for _, s := range t.samplers {
			c := buffer
			c.Replay.Sampler = replay.Sampler(s)
			arms = append(arms, Arm{t.replay + ", " + s, c})
		}
	}
	return arms
}

func judgeSavings(f *Found) (Judgement, error) {
	var less, vanilla, goal, teaches, everywhere, steadier []test
	var chosen, crashed []string
	var queues []Runs
	for _, t := range savingsTasks() {
		queue, buffer := f.Of(t.without), f.Of(t.replay)
		s := split{buffer.Config.Pipeline.Workers, buffer.Config.Pipeline.Trainers}
		gamma := computeRatio(s, buffer.Config.Pipeline.RolloutCost)
		cost := ratio(buffer, queue, toTarget)
		less = append(less, cost.named(t.name, below(1)))
		goal = append(goal, cost.named(t.name, atMost(1-savingsGoal())))
		teaches = append(teaches, cost.named(fmt.Sprintf("%s, γ = %.3f", t.name, gamma), atMost(gamma)))
		if slices.Contains(t.samplers, uniform) {
			vanilla = append(vanilla, ratio(f.Of(t.replay+", "+uniform), queue, toTarget).named(t.name, below(1)))
		}
		everywhere = append(everywhere, ahead(t.name, buffer, queue)...)
		steadier, queues = append(steadier, unsteadier(queue, buffer).named(t.name, above(0))), append(queues, queue)
		chosen = append(chosen, fmt.Sprintf("%s: rate %g without replay, %g at %s with", t.name,
			queue.Config.Learner.LearningRate, buffer.Config.Learner.LearningRate, s))
		crashed = append(crashed, fmt.Sprintf("%s: %d of %d without, %d of %d with", t.name, queue.crashes(),
			len(queue.Runs), buffer.crashes(), len(buffer.Runs)))
	}
	const er1, toTheTarget = "[ER] fig. 1", "Compute to the target, with replay over without"
	return f.judge([]claim{
		{
			source: er1, text: "With a well-chosen buffer the same accuracy takes less compute.", by: less,
			measured: toTheTarget, more: "Chosen: " + strings.Join(chosen, "; ") + ".",
		},
		{
			source: er1, text: "So it does with [ER]'s sampler, with replacement.", by: vanilla, measured: toTheTarget,
		},
		{
			source: er1 + ", up to 40%", by: goal, measured: toTheTarget,
			text: fmt.Sprintf("The saving is %s or more, 1 − γ of the source's %s.", percent(savingsGoal()),
				labSplit()),
		},
		{
			source: "[ER] §2", by: teaches, measured: toTheTarget,
			text: "An update with replay teaches as much as one without: the saving is 1 − γ or more.",
		},
		{
			source: er1, text: "Whatever the compute, the accuracy with replay is higher.", by: everywhere,
			measured: "Mean pass@1 over each quarter of the budget, with replay less without",
		},
		{
			source: er1, text: "Runs without replay are less stable.", by: steadier, premise: wavers(queues...),
			measured: unsteadiness + ", without replay less with", note: samplingNote,
			more: "Crashed: " + strings.Join(crashed, "; ") + ".",
		},
	}, savingsPage(f)...)
}

// ahead asks of each quarter of the budget that arm a is more accurate than b.
func ahead(task string, a, b Runs) (tests []test) {
	for i := range 4 {
		from, to := float64(i)/4, float64(i+1)/4
		tests = append(tests, difference(a, b, meanBetweenShares(from, to)).named(
			fmt.Sprintf("%s, %s to %s", task, percent(from), percent(to)), above(0)))
	}
	return tests
}

func savingsPage(f *Found) (sections []results.Section) {
	for _, t := range savingsTasks() {
		queue, buffer := f.Of(t.without), f.Of(t.replay)
		arms := slices.DeleteFunc(slices.Clone(f.Arms), func(a Runs) bool { return !strings.HasPrefix(a.Name, t.name) })
		x, both := inUpdates(queue.Arm), lines(0, queue, buffer)
		inBuffer := byCompute("compute, in updates with replay", bufferUnit(buffer.Config))
		figures := []results.Figure{medianFigure("Both arms, each as chosen", "", x, both...)}
		if len(t.samplers) > 0 {
			figures = append(figures, medianFigure("Other samplers", "", x, lines(0, arms...)...))
		}
		figures = append(figures, medianFigure("In updates with replay",
			"[ER] draws figure 1 in updates without replay and figure 3 in updates with replay.", inBuffer, both...),
			seedFigure("Every seed", "", x, both...))
		for i := range figures {
			figures[i] = withTarget(figures[i], t.target)
		}
		figures = append(figures, metricFigure("Reward of fresh rollouts",
			"On training prompts. Medians over seeds of the mean since the evaluation before, quartiles as bands.",
			"mean reward", freshReward, both...))
		sections = append(sections, results.Section{
			Title:   "Accuracy against compute: " + t.name,
			Text:    []string{"Lines are medians over seeds, bands quartiles."},
			Figures: figures,
			Grids:   []results.Grid{savingsTable(queue, buffer), armsTable("Arms", arms...)},
		})
	}
	return sections
}

// seedRatio writes the ratio of what two runs of a seed needed to reach the target, or a bound of it.
func seedRatio(a, b Runs, seed uint64) string {
	x, own := a.spent(seed, toTarget)
	y, opponent := b.spent(seed, toTarget)
	low, high := results.LogRatio(x, y, own, opponent)
	return results.SpanText(math.Exp(low), math.Exp(high), times)
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
			fmt.Sprint(seed), fmt.Sprint(baseOf(seed)), updates(q), updates(b), seedRatio(buffer, queue, seed),
			points(queue.on(seed, meanOver(1))), points(buffer.on(seed, meanOver(1))),
		})
	}
	return g
}
