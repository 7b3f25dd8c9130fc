package study

import (
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

// variants changes the loss, and keeps correct rollouts for longer.
func variants() Study {
	return Study{
		Name: "variants", Title: "Does another loss, or keeping correct rollouts for longer, help a large buffer?", Source: "[ER] fig. 7",
		Lead: []string{
			aboutLab(),
			fmt.Sprintf("A buffer of %d batches at (6,2), with GRPO, whose ratios correct for staleness, and once with AsymRE, which has none. With positive-bias sampling of fraction δ "+
				"the table holds the newest (1 − δ)N rollouts and the newest δN correct ones among the older. The learning rate is the base's for all.", variantsCapacity/labBatch),
			"All arms with a buffer have the same cost of an update, so that among them equal compute is equal steps.",
		},
		Arms: variantsArms, Judge: judgeVariants,
	}
}

// The capacity of the study's tables, large as in [ER] fig. 7, where it is 77 batches.
const variantsCapacity = widest

const (
	grpo   = "grpo"
	asymre = "asymre"
)

func variantsFractions() []float64 { return []float64{0, 0.2, 0.5} }

func variantsArms(o Options) []Arm {
	return append(append([]Arm{queueArm(o)}, biasArms(o)...), variantArm(o, asymre, 0))
}

// biasArms are the arms with GRPO, by the fraction kept for being correct.
func biasArms(o Options) []Arm {
	var arms []Arm
	for _, fraction := range variantsFractions() {
		arms = append(arms, variantArm(o, grpo, fraction))
	}
	return arms
}

func variantArm(o Options, objective string, fraction float64) Arm {
	if objective == grpo && fraction == 0 {
		return bufferArm(o, labSplit(), variantsCapacity)
	}
	c := buffer(o, labSplit(), variantsCapacity)
	c.Learner.Objective = objective
	if fraction > 0 {
		c.Replay.Retention, c.Replay.PositiveFraction = "positive", fraction
		c.Replay.PositiveThreshold = 0.5 // a right answer after a turn that was none is worth 0.9
	}
	return Arm{fmt.Sprintf("%s, positive %g", objective, fraction), c}
}

func judgeVariants(f *Found) (Judgement, error) {
	plain, other := f.of(biasArms(f.Options)...), f.Of(variantArm(f.Options, asymre, 0).Name)
	bias, loss := chosenDifference(plain[1:], plain[:1], best), difference(other, plain[0], best)
	sooner := func(a Runs) string { return a.cell(toTarget, updates) }
	var byFraction []string
	for i, a := range plain {
		byFraction = append(byFraction, fmt.Sprintf("δ = %g %s", variantsFractions()[i], sooner(a)))
	}
	er7 := func(claim string) asked { return asked{"[ER] fig. 7", claim} }
	return Judgement{
		Findings: []results.Finding{
			f.settle(er7("Positive-bias sampling improves on keeping the newest."),
				fmt.Sprintf("GRPO, best pass@1 of the better δ above 0, chosen on the other seeds, less that of δ = 0: %s. Compute to the target: %s.",
					bias.format(change), strings.Join(byFraction, "; ")), bias, above("the difference", 0)),
			f.settle(er7("AsymRE improves on GRPO."),
				fmt.Sprintf("δ = 0, best pass@1 with AsymRE less that with GRPO: %s. Compute to the target: GRPO %s; AsymRE %s.",
					loss.format(change), sooner(plain[0]), sooner(other)), loss, above("the difference", 0)),
		},
		Sections: append(f.variantsSections(plain, other), f.trouble()...),
	}, nil
}

func (f *Found) variantsSections(plain []Runs, other Runs) []results.Section {
	queue := line{Runs: f.Of(queueName), colour: 0}
	list := lines(1, plain...)
	for i := range list {
		list[i].name = fmt.Sprintf("GRPO, δ = %g", variantsFractions()[i])
	}
	list = append(list, line{Runs: other, name: "AsymRE, δ = 0", colour: 1 + len(plain)})
	return []results.Section{
		{
			Title: "Accuracy against steps",
			Text:  []string{"Medians over seeds with their quartiles. The steps of the arm without replay cost more; it stands in the second figure alone."},
			Figures: []results.Figure{
				medians("Both losses", "", bySteps(), list...),
				medians("The same against compute", "", inUpdates(queue.Arm), append([]line{queue}, list...)...),
			},
			Grids: []results.Grid{armsGrid("Arms", f.Arms...)},
		},
		{Title: "Every seed", Figures: []results.Figure{everySeed("Both losses", "", bySteps(), list...)}},
	}
}
