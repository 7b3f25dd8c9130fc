package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

func offPolicyGRPO() Study {
	return Study{
		Name: "off-policy-grpo", Title: "Must the workers have the newest weights?",
		Source: "[OG] fig. 2, tables 2 and 3",
		Lead: []string{
			"[OG] algorithm 1 has two numbers, (v, i): the workers take the current weights every v batches, and " +
				"each batch is used for i updates. (1,1) is on-policy, with groups of zero variance masked or kept " +
				"in the loss; (10,1) is theirs; (1,10) is DeepSeekMath's.",
			"Additions below 100, batches of 64 prompts with 8 answers each, a KL to a reference that becomes the " +
				"policy every 50 batches, and the same compute for all. [OG] trains models of 0.5 and 1.5 billion " +
				"parameters on GSM8K and DeepScaleR, one seed each, with answers sampled at temperatures of 0.1 and 0.7 and " +
				"KL coefficients of 0.1 and 0.001; here they are 1 and 0.01.",
			"One learning rate, the best of three for (1,1), serves all arms but (1,10), whose ten updates on a batch move " +
				"the policy ten times. It has the best of 1e-4, 2e-4 and 6e-4.",
		},
		Pilots: func(o Options) []Pilot { return []Pilot{plainPilot(o), slowPilot(o)} }, Arms: grpoArms,
		Judge: judgeOffPolicyGRPO,
	}
}

// The arms, by (v, i) of [OG] algorithm 1.
const (
	og11        = "(1,1)"
	og11Masked  = "(1,1), masked" // groups of zero variance leave the loss, not its denominator: [OG] eq. 8
	og101       = "(10,1)"
	og101Masked = "(10,1), masked"
	og110       = "(1,10)"
)

// grpoConfig is on additions, with v and i of the algorithm.
func grpoConfig(o Options, v, i int, masked bool) run.Config {
	c := run.Default()
	c.Task = map[string]any{"name": "arithmetic", "held_out": labHeldOut}
	c.Pipeline.Mode, c.Pipeline.Batch = "sync", 512
	c.Pipeline.PublishEvery, c.Pipeline.BatchUpdates = v*i, i // versions count updates
	c.Replay.Sampler, c.Replay.Capacity = "fifo", 0
	c.Learner.Objective, c.Learner.KLCoef, c.Learner.ReferenceEvery = "grpo_off", 0.01, 50*i
	if masked {
		c.Learner.MaskZeroVariance, c.Learner.MaskedDenominator = true, "all"
	}
	c.Evaluate.Every, c.Evaluate.Target, c.Evaluate.Samples = 15, 0.5, 0
	c.Budget.Compute = 300
	return rehearsed(o, c)
}

// plainPilot chooses the learning rate of (1,1), which all other arms but (1,10) have too.
func plainPilot(o Options) Pilot {
	c := grpoConfig(o, 1, 1, false)
	return ratePilot(og11, c, halfToTwice(c)...)
}

// slowPilot chooses the learning rate of (1,10).
func slowPilot(o Options) Pilot {
	return ratePilot(og110, grpoConfig(o, 1, 10, false), 6e-4, 2e-4, 1e-4)
}

func grpoArms(o Options) []Arm {
	at := func(v int, masked bool) run.Config {
		return withRate(grpoConfig(o, v, 1, masked), o.rate(plainPilot(o)))
	}
	return []Arm{
		{og11, at(1, false)}, {og11Masked, at(1, true)}, {og101, at(10, false)}, {og101Masked, at(10, true)},
		{og110, o.choice(slowPilot(o)).Config},
	}
}

func judgeOffPolicyGRPO(f *Found) (Judgement, error) {
	on, masked, off := f.Of(og11), f.Of(og11Masked), f.Of(og101)
	slow := f.Of(og110)
	// lag is how far (1,1) is above (1,10) at the last point of a scale that all came to.
	lag := func(by scale) (estimate, float64) {
		at := min(on.end(by), slow.end(by))
		return difference(on, slow, settledAt(at, by)), at
	}
	afterBatches, batches := lag(freshRollouts)
	afterUpdates, steps := lag(updateCount)
	const fig2 = "[OG] fig. 2"
	return f.judge([]claim{
		{
			source: fig2, text: "Masking groups of zero variance makes on-policy GRPO more stable.",
			by: unsteadier(on, masked).is(above(0)), premise: wavers(on), note: samplingNote,
			measured: unsteadiness + ", (1,1) less (1,1) with masking",
		},
		{
			source: fig2, text: "Masking raises the best accuracy of on-policy GRPO, 45% to 50% there.",
			by:       difference(masked, on, level).is(above(0)),
			measured: "Pass@1 reached by (1,1) with masking less that without",
		},
		{
			source: fig2, text: "Off-policy GRPO, (10,1), is more stable than on-policy, (1,1).",
			by: unsteadier(on, off).is(above(0)), premise: wavers(on), note: samplingNote,
			measured: unsteadiness + ", (1,1) less (10,1)",
		},
		{
			source: fig2, text: "(10,1) reaches a higher best accuracy than (1,1), 45% to 50% there.",
			by:       difference(off, on, level).is(above(0)),
			measured: "Pass@1 reached by (10,1) less that of (1,1)",
		},
		{
			source: "[OG] tables 2 and 3", by: difference(off, on, meanOver(1)).is(within(0, alike)),
			text:     "Over the checkpoints (10,1) is on par with (1,1), while weights go to the workers a tenth as often.",
			measured: "Mean pass@1 over the checkpoints, (10,1) less (1,1)",
			more: fmt.Sprintf("Weights were sent %s times rather than %s.", whole(off.median(sent)),
				whole(on.median(sent))),
		},
		{
			source: fig2, text: "(1,10), ten updates on each batch, is slower than (1,1).",
			by:       afterBatches.is(above(0)),
			measured: fmt.Sprintf("Pass@1 of (1,1) less that of (1,10) after %s rollouts each", updates(batches)),
			more: fmt.Sprintf("At equal compute, of which (1,10) takes %s times as much for a batch: %s. After %s "+
				"updates "+
				"each, ten of which (1,10) makes on a batch: %s.",
				times(costOfBatch(slow)/costOfBatch(on)), difference(on, slow, settled),
				updates(steps),
				afterUpdates),
		},
	}, grpoPage(f.Arms)...)
}

// sent is how many versions of the weights the workers got.
func sent(a Runs, r *results.Run) float64 {
	return inSummary(func(s *results.Summary) float64 {
		return math.Floor(float64(s.Updates) / float64(a.Config.Pipeline.PublishEvery))
	})(a, r)
}

// costOfBatch is the compute of a batch with all its updates, in updates without replay.
func costOfBatch(a Runs) float64 {
	return (float64(a.Config.Pipeline.BatchUpdates) + a.Config.Pipeline.RolloutCost) / (1 +
		a.Config.Pipeline.RolloutCost)
}

// quantileOfCheckpoints is a quantile of the accuracies at a run's checkpoints.
func quantileOfCheckpoints(q float64) measure {
	return func(a Runs, r *results.Run) float64 { return results.Quantile(checkpoints(a, r, 0, 1), q) }
}

func grpoPage(arms []Runs) []results.Section {
	x, target := inUpdates(arms[0].Arm), arms[0].Config.Evaluate.Target
	var every []results.Figure // each arm by itself, as in [OG] fig. 2
	for _, l := range lines(0, arms...) {
		every = append(every, seedFigure(l.Name, "", x, l))
	}
	return []results.Section{
		{
			Title: "Accuracy over the checkpoints",
			Text: []string{"Minimum, maximum, median and mean are over a run's evaluations after the start, as in " +
				"[OG] tables 2 and 3. The table shows their medians over seeds, quartiles in brackets."},
			Grids: []results.Grid{checkpointsTable(arms), checkpointsBySeed(arms)},
		},
		{
			Title: "Curves",
			Figures: []results.Figure{
				withTarget(medianFigure("Accuracy against rollouts", "[OG] fig. 2 has iterations, each a batch of "+
					"rollouts; ten iterations of (1,10) are one batch.", byRollouts(), lines(0, arms...)...), target),
				withTarget(medianFigure("Accuracy against compute",
					"An update on a batch that was used before costs no generation.", x,
					lines(0, arms...)...), target),
			},
		},
		{Title: "Every seed", Figures: every, Grids: []results.Grid{armsTable("Arms", arms...)}},
	}
}

func checkpointsTable(arms []Runs) results.Grid {
	g := table("pass@1 over the checkpoints", "", arms, medianOf("min", quantileOfCheckpoints(0), points),
		medianOf("max", quantileOfCheckpoints(1), points),
		medianOf("median", quantileOfCheckpoints(0.5), points), medianOf("mean", meanOver(1), points),
		medianOf("wavers by", wavering, points),
		medianOf("weights sent", sent, updates))
	g.Columns[0] = "(v, i)"
	return g
}

func checkpointsBySeed(arms []Runs) results.Grid {
	g := results.Grid{Title: "The same by seed", Columns: []string{"(v, i)", "seed", "min", "max", "median", "mean"}}
	measures := []measure{quantileOfCheckpoints(0), quantileOfCheckpoints(1), quantileOfCheckpoints(0.5), meanOver(1)}
	for _, a := range arms {
		for _, r := range a.Runs {
			row := []string{a.Name, fmt.Sprint(r.Seed)}
			for _, m := range measures {
				row = append(row, points(m(a, r)))
			}
			g.Rows = append(g.Rows, row)
		}
	}
	return g
}
