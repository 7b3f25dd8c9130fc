package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/results"
)

func judgeOffPolicyGRPO(f *Found) (Judgement, error) {
	on, masked, off := f.Of(og11), f.Of(og11Masked), f.Of(og101)
	slow := []Runs{f.Of(og110), f.Of(og110Own)}
	fig2 := func(claim string) asked { return asked{"[OG] fig. 2", claim} }
	calmer, steadier := difference(on, masked, fall), difference(on, off, fall)
	higher, above101 := difference(masked, on, best), difference(off, on, best)
	same := difference(off, on, meanOver(1))
	batches := min(on.freshEnd(), slow[0].freshEnd(), slow[1].freshEnd())
	lag := chosenDifference([]Runs{on}, slow, settledAt(batches))
	lagCompute := chosenDifference([]Runs{on}, slow, settled)
	steps := min(on.end(byUpdate), slow[0].end(byUpdate), slow[1].end(byUpdate))
	lagUpdates := chosenDifference([]Runs{on}, slow, settledUpTo(steps, byUpdate))
	return Judgement{
		Findings: []results.Finding{
			f.settle(fig2("Masking groups of zero variance makes on-policy GRPO more stable."),
				fmt.Sprintf("Greatest fall of (1,1) below its own best, less that of (1,1) with masking: %s.", calmer.format(change)),
				calmer, above("the difference in the greatest fall", 0)),
			f.settle(fig2("Masking raises the best accuracy of on-policy GRPO, 45% to 50% there."),
				fmt.Sprintf("Best pass@1 of (1,1) with masking less that without: %s.", higher.format(change)), higher, above("the difference", 0)),
			f.settle(fig2("Off-policy GRPO, (10,1), is more stable than on-policy, (1,1)."),
				fmt.Sprintf("Greatest fall of (1,1) below its own best less that of (10,1): %s.", steadier.format(change)),
				steadier, above("the difference in the greatest fall", 0)),
			f.settle(fig2("(10,1) comes to a higher best accuracy than (1,1), 45% to 50% there."),
				fmt.Sprintf("Best pass@1 of (10,1) less that of (1,1): %s.", above101.format(change)), above101, above("the difference", 0)),
			f.settle(asked{"[OG] tables 2 and 3", "Over the checkpoints (10,1) is on par with (1,1), while weights go to the workers a tenth as often."},
				fmt.Sprintf("Mean pass@1 over the checkpoints, (10,1) less (1,1): %s. Weights were sent %s times rather than %s.",
					same.format(change), updates(off.median(sent)), updates(on.median(sent))),
				same, within("the difference", 0, alike)),
			f.settle(fig2("(1,10), ten updates on each batch, is slower than (1,1)."),
				fmt.Sprintf("Pass@1 of (1,1) less that of (1,10) after %s rollouts each: %s. At equal compute, of which (1,10) takes %s times as much for a batch: %s. "+
					"After %s updates each, ten of which (1,10) makes on a batch: %s. Of the two learning rates of (1,10) the better is taken, chosen on the other seeds.",
					updates(batches), lag.format(change), times(costOfBatch(slow[0])/costOfBatch(on)), lagCompute.format(change), updates(steps), lagUpdates.format(change)),
				lag, above("the difference after equal rollouts", 0)),
		},
		Sections: append(f.offPolicySections(), f.trouble()...),
	}, nil
}

// sent is how many versions of the weights the workers got.
func sent(a Runs, r *results.Run) float64 {
	if r.Summary == nil {
		return math.NaN()
	}
	return math.Floor(float64(r.Summary.Updates) / float64(a.Config.Pipeline.PublishEvery))
}

// costOfBatch is the compute of a batch with all its updates, in updates without replay.
func costOfBatch(a Runs) float64 {
	return (float64(a.Config.Pipeline.BatchUpdates) + a.Config.Pipeline.RolloutCost) / (1 + a.Config.Pipeline.RolloutCost)
}

// checkpoints returns the accuracies at the evaluations after the start: 0 where the run had ended with an error.
func checkpoints(a Runs, r *results.Run) []float64 {
	var list []float64
	for _, step := range grid(a.Config, 1) {
		if p := accuracyAt(r, step); !math.IsNaN(p) {
			list = append(list, p)
		} else if failed(r) {
			list = append(list, 0)
		}
	}
	return list
}

// quantileOfCheckpoints is a quantile of the accuracies at a run's checkpoints.
func quantileOfCheckpoints(q float64) measure {
	return func(a Runs, r *results.Run) float64 { return results.Quantile(checkpoints(a, r), q) }
}

func (f *Found) offPolicySections() []results.Section {
	arms := f.of(ogArms(f.Options)...)
	compared := lines(0, arms...)
	return []results.Section{
		{
			Title: "Accuracy over the checkpoints",
			Text: []string{
				"Minimum, maximum, median and mean are over a run's evaluations after the start, as in [OG] tables 2 and 3; what stands here is their median over seeds, quartiles in brackets.",
			},
			Grids: []results.Grid{checkpointsGrid(arms), checkpointsBySeed(arms)},
		},
		{
			Title: "Curves",
			Figures: []results.Figure{
				withTarget(byFresh("Accuracy against rollouts", "[OG] fig. 2 has iterations, each a batch of rollouts; of (1,10) ten iterations are one batch.", compared...), arms[0].Config.Evaluate.Target),
				withTarget(medians("Accuracy against compute", "An update on a batch that was used before costs no generation.", inUpdates(arms[0].Arm), compared...), arms[0].Config.Evaluate.Target),
			},
		},
		{
			Title:   "Every seed",
			Figures: f.schedulesBySeed(arms),
			Grids:   []results.Grid{armsGrid("Arms", arms...)},
		},
	}
}

// schedulesBySeed draws each arm by itself, as [OG] fig. 2 does.
func (f *Found) schedulesBySeed(arms []Runs) []results.Figure {
	var figures []results.Figure
	for i, a := range arms {
		figures = append(figures, everySeed(a.Name, "", inUpdates(arms[0].Arm), line{Runs: a, colour: i}))
	}
	return figures
}

func checkpointsGrid(arms []Runs) results.Grid {
	g := results.Grid{Title: "pass@1 over the checkpoints", Columns: []string{"(v, i)", "min", "max", "median", "mean", "greatest fall", "weights sent"}}
	for _, a := range arms {
		g.Rows = append(g.Rows, []string{
			a.Name, a.cell(quantileOfCheckpoints(0), points), a.cell(quantileOfCheckpoints(1), points), a.cell(quantileOfCheckpoints(0.5), points),
			a.cell(meanOver(1), points), a.cell(fall, points), a.cell(sent, updates),
		})
	}
	return g
}

func checkpointsBySeed(arms []Runs) results.Grid {
	g := results.Grid{Title: "The same by seed", Columns: []string{"(v, i)", "seed", "min", "max", "median", "mean"}}
	for _, a := range arms {
		for _, r := range a.Runs {
			of := func(m measure) string { return points(m(a, r)) }
			g.Rows = append(g.Rows, []string{a.Name, fmt.Sprint(r.Seed), of(quantileOfCheckpoints(0)), of(quantileOfCheckpoints(1)), of(quantileOfCheckpoints(0.5)), of(meanOver(1))})
		}
	}
	return g
}
