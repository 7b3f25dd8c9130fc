package study

import (
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
)

func variants() Study {
	return Study{
		Name: "variants", Title: "Does another loss, or keeping correct rollouts for longer, help a large buffer?",
		Source: "[ER] fig. 7",
		Lead: []string{
			aboutLab(),
			fmt.Sprintf("A buffer of %d batches at (6,2), with GRPO, whose ratios correct for staleness, and "+
				"once with "+
				"AsymRE, which has none. With positive-bias sampling of fraction δ the table holds the newest (1 − "+
				"δ)N rollouts "+
				"and, among the older, the newest δN correct ones. The learning rate of GRPO is the base's.",
				variantsCapacity/labBatch),
			"An update costs the same for all arms with a buffer, so that among them equal compute means equal steps.",
		},
		Pilots: variantPilots, Arms: variantArms, Judge: judgeVariants,
	}
}

// variantsCapacity is large, as in [ER] fig. 7, where it is 77 batches.
const variantsCapacity = widest

const asymre = "asymre"

func biasFractions() []float64 { return []float64{0, 0.2, 0.5} }

// biasArms are the arms with GRPO, by the fraction kept for being correct.
func biasArms(o Options) []Arm {
	var arms []Arm
	for _, fraction := range biasFractions() {
		arms = append(arms, biasArm(o, fraction))
	}
	return arms
}

// asymreName is the arm with AsymRE.
const asymreName = "asymre, δ = 0"

// variantPilots choose the fraction that is kept, and AsymRE's shift and learning rate.
func variantPilots(o Options) []Pilot {
	p := Pilot{Name: "shift and learning rate of AsymRE", of: overTheRun, by: meanOver(1)}
	for _, shift := range []float64{-0.1, -0.3} {
		for _, rate := range labRates() {
			c := withRate(buffer(o, cell{labSplit(), variantsCapacity}), rate)
			withAsymRE(&c)
			c.Learner.Shift = shift
			p.Arms = append(p.Arms, Arm{fmt.Sprintf("shift %g, rate %g", shift, rate), c})
		}
	}
	return []Pilot{{Name: "fraction δ", Arms: biasArms(o)[1:], of: "pass@1 reached", by: level}, p}
}

func variantArms(o Options) []Arm {
	other := o.choice(variantPilots(o)[1])
	return append(append([]Arm{queueArm(o)}, biasArms(o)...), Arm{asymreName, other.Config})
}

func biasArm(o Options, fraction float64) Arm {
	at := cell{labSplit(), variantsCapacity}
	if fraction == 0 {
		return bufferArm(o, at)
	}
	c := buffer(o, at)
	c.Replay.Retention, c.Replay.PositiveFraction = "positive", fraction
	c.Replay.PositiveThreshold = new(float32(0.5)) // a right answer after an invalid turn is worth 0.9
	return Arm{fmt.Sprintf("grpo, δ = %g", fraction), c}
}

func judgeVariants(f *Found) (Judgement, error) {
	queue, plain, other := f.Of(queueName), f.of(biasArms(f.Options)...), f.Of(asymreName)
	chosen := f.Of(f.choice(variantPilots(f.Options)[0]).Name)
	reach := func(a Runs) string { return a.cell(toTarget, updates) }
	var byFraction []string
	for i, a := range plain {
		byFraction = append(byFraction, fmt.Sprintf("δ = %g %s", biasFractions()[i], reach(a)))
	}
	const er7 = "[ER] fig. 7"
	drawn := append(namedLines(1, func(i int) string { return fmt.Sprintf("GRPO, δ = %g", biasFractions()[i]) },
		plain...),
		line{Runs: other, name: "AsymRE, δ = 0", colour: 1 + len(plain)})
	return f.judge([]claim{
		{
			source: er7, text: "Positive-bias sampling improves on keeping the newest.",
			by: difference(chosen, plain[0], level).is(above(0)),
			measured: fmt.Sprintf("GRPO, pass@1 reached with δ = %g, chosen before, less that of δ = 0",
				chosen.Config.Replay.PositiveFraction),
			more: fmt.Sprintf("Compute to the target: %s.", strings.Join(byFraction, "; ")),
		},
		{
			source: er7, text: "AsymRE improves on GRPO.", by: difference(other, plain[0], level).is(above(0)),
			measured: "δ = 0, pass@1 reached with AsymRE less that with GRPO",
			more:     fmt.Sprintf("Compute to the target: GRPO %s; AsymRE %s.", reach(plain[0]), reach(other)),
		},
	}, results.Section{
		Title: "Accuracy against steps",
		Text: []string{"Medians over seeds with their quartiles. The steps of the arm without replay cost more, so " +
			"it is shown in the second figure only."},
		Figures: []results.Figure{
			medianFigure("Both losses", "", byUpdates(), drawn...),
			medianFigure("The same against compute", "", inUpdates(queue.Arm), append(lines(0, queue), drawn...)...),
		},
		Grids: []results.Grid{armsTable("Arms", f.Arms...)},
	}, results.Section{Title: "Every seed", Figures: []results.Figure{seedFigure("Both losses", "", byUpdates(),
		drawn...)}})
}
