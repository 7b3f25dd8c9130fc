package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

func erSizes() Study {
	return Study{
		Name: "er-sizes", Title: "What does a buffer do at the source's own sizes?", Source: "[ER] §4, app. E.2",
		Lead: []string{
			"[ER] trains with batches of 60 rollouts in groups of 16, at a constant learning rate, that of the best baseline. " +
				"The other studies here have batches of thousands. This one has the source's sizes on addition: without a " +
				"buffer, and at (6,2) with buffers of 2 to 512 batches. The learning rate is chosen for training without a " +
				"buffer, and the buffer's size by pilots. Draws are with replacement, as the source's. Training in turns, which " +
				"takes whole groups, has batches of 64.",
			"Policies with other accuracies have other entropies. So the claim that replay preserves entropy is tested where " +
				"two runs of a seed have the same accuracy: at nine tenths of the lower of what they reached.",
		},
		PilotRuns: 2, Pilots: erPilots, Arms: erArms, Judge: judgeERSizes,
	}
}

const (
	erBatch, erGroup = 60, 16
	erQueue          = "no buffer"
	erTwice          = "in turns, each batch twice"
	erFaster         = "in turns, each batch once at twice the rate"
)

// erCapacities are the sizes of buffers, in batches.
func erCapacities() []int { return []int{2, 8, 32, 128, 512} }

func erConfig(o Options, batch int, set func(*run.Config)) run.Config {
	t := opponentTasks()[0]
	c := t.base(o)
	c.Pipeline.Group = erGroup
	return t.resized(o, family{fit: set}, c, batch)
}

func erQueueConfig(o Options) run.Config {
	return erConfig(o, erBatch, func(c *run.Config) {
		asQueue(1)(c)
		fitQueue(c)
	})
}

func erRate(o Options) rateTuning {
	return tuneRate(o, erQueue, erQueueConfig(o), 1.8e-4, 3.5e-4, 7e-4, 1.4e-3)
}

// erBuffers are the arms with a buffer, by its size.
func erBuffers(o Options) (list []Arm) {
	for _, batches := range erCapacities() {
		c := erConfig(o, erBatch, func(c *run.Config) {
			*c = split{6, 2}.set(*c)
			c.Replay.Sampler, c.Replay.Capacity = uniform, batches*c.Pipeline.Batch
		})
		list = append(list, Arm{fmt.Sprintf("buffer of %d batches", batches),
			withRate(c, erRate(o).best(o).Learner.LearningRate)})
	}
	return list
}

func erSizePilot(o Options) Pilot {
	return Pilot{Name: "size of the buffer", Arms: erBuffers(o), of: overTheRun, by: meanOver(1), stage: 2}
}

func erPilots(o Options) []Pilot { return append(erRate(o).pilots(), erSizePilot(o)) }

func erArms(o Options) []Arm {
	rate := erRate(o).best(o).Learner.LearningRate
	turns := func(updates int, by float64) run.Config {
		return withRate(erConfig(o, 4*erGroup, func(c *run.Config) { // turns are whole groups
			inTurns(asQueue(updates))(c)
			fitQueue(c)
		}), by*rate)
	}
	arms := []Arm{{erQueue, withRate(erQueueConfig(o), rate)}}
	return append(append(arms, erBuffers(o)...), Arm{erTwice, turns(2, 1)}, Arm{erFaster, turns(1, 2)})
}

// entropyAt is the policy's entropy where a run reached an accuracy, NaN if it did not. A line of a condensed run
// stands for the updates since the line before.
func entropyAt(accuracy float64) measure {
	return func(a Runs, r *results.Run) float64 {
		where := results.ReachOf(a.evalsOf(r), accuracy)
		if !where.Reached {
			return math.NaN()
		}
		i := slices.IndexFunc(r.Updates, func(u results.Update) bool { return float64(u.Update) >= where.Update.Float() })
		if i < 0 {
			return math.NaN()
		}
		return r.Updates[i].Entropy.Float()
	}
}

// entropies is the entropy of one arm over that of another, seed by seed, where both have the same accuracy.
func entropies(a, b Runs) estimate {
	e := estimateOf("the ratio", times, func(seed uint64) float64 {
		at := entropyAt(0.9 * min(a.on(seed, level), b.on(seed, level)))
		return math.Log(a.on(seed, at) / b.on(seed, at))
	}, a, b)
	e.log = true
	return e
}

// preserved is the least entropy, relative to that without a buffer, that counts as preserved.
const preserved = 0.9

func judgeERSizes(f *Found) (Judgement, error) {
	queue, buffers := f.Of(erQueue), f.of(erBuffers(f.Options)...)
	chosen := f.Of(f.choice(erSizePilot(f.Options)).Name)
	twice, faster := f.Of(erTwice), f.Of(erFaster)
	sizes := make([]float64, len(buffers))
	for i, n := range erCapacities() {
		sizes[i] = float64(n)
	}
	at := min(twice.end(freshRollouts), faster.end(freshRollouts))
	x := byCompute("compute, in rollouts generated and used once", 1+queue.Config.Pipeline.RolloutCost)
	drawn := append(lines(0, queue), lines(1, buffers...)...)
	g := results.Grid{Title: "Against training without a buffer", Columns: []string{"arm", "mean pass@1", "the difference",
		"pass@1 reached, the difference", "entropy at equal accuracy, the ratio", "staleness"}}
	for _, a := range append([]Runs{queue}, append(buffers, twice, faster)...) {
		g.Rows = append(g.Rows, []string{a.Name, points(mean(a.over(meanOver(1)))), difference(a, queue, meanOver(1)).cell(),
			difference(a, queue, level).cell(), entropies(a, queue).cell(),
			fmt.Sprintf("%.1f", mean(a.over(meanOf(meanStaleness, 1))))})
	}
	const er3 = "[ER] fig. 3"
	return f.judge([]claim{
		{
			source: er3, text: "Larger buffers slow training down.", by: trend(buffers, sizes, meanOver(0.5)).is(below(0)),
			measured: "Rank correlation of N with mean accuracy over the first half of the budget, at (6,2)",
		},
		{
			source: er3, text: "A buffer learns faster for its compute than training without.",
			by:       difference(chosen, queue, meanOver(1)).is(above(0)),
			measured: fmt.Sprintf("Mean pass@1 over the budget with a %s, chosen before, less that without", chosen.Name),
		},
		{
			source: er3, text: "A buffer of the right size reaches a higher best accuracy than none.",
			by: difference(chosen, queue, level).is(above(0)), premise: falls(chosen, queue),
			measured: fmt.Sprintf("Pass@1 reached with a %s, chosen before, less that without", chosen.Name),
		},
		{
			source: "[ER] abstract", text: "A buffer preserves the policy's entropy.",
			by:       entropies(chosen, queue).is(atLeast(preserved)),
			measured: fmt.Sprintf("Entropy at equal accuracy with a %s, chosen before, over that without", chosen.Name),
		},
		{
			source: "[ER] footnote 7", text: "To use a batch twice in a row is like one update at twice the learning rate.",
			by: difference(twice, faster, settledAt(at, freshRollouts)).is(within(0, noImpact)),
			measured: fmt.Sprintf("Pass@1 of two updates on each batch less that of one at twice the rate, after %s "+
				"rollouts each",
				updates(at)),
		},
	}, results.Section{
		Title: "Accuracy against compute", Text: []string{"Lines are medians over seeds, bands quartiles."},
		Figures: []results.Figure{medianFigure("By the size of the buffer", "", x, drawn...)}, Grids: []results.Grid{g},
	})
}
