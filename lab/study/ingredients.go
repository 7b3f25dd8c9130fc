package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

func ingredients() Study {
	return Study{
		Name: "ingredients", Title: "Which part of a replay recipe gains what?", Source: "our own",
		Lead: []string{
			"Four parts of a recipe, each with and without: right answers that are kept for longer and make up half of each " +
				"batch; a buffer of recent rollouts, right or wrong; AsymRE instead of GRPO's clip; small batches. All 16 " +
				"combinations are run on addition, each at the learning rate that was best for it. With right answers " +
				"and no buffer, at (5,2), fresh rollouts are used once and old ones only if they are right; with a buffer, " +
				"at (5,3), all are used more often.",
			fmt.Sprintf("The budget is that of the study opponent. Groups have %d rollouts and the weight decay is %g, with "+
				"every part or none.", ingredientGroup, ingredientDecay),
		},
		PilotRuns: 2, Pilots: ingredientPilots, Arms: ingredientArms, Judge: judgeIngredients,
	}
}

// What all combinations have in common.
const (
	ingredientGroup = 4
	ingredientDecay = 1.0
)

// The parts, in the order of ingredientParts.
const (
	withAnswers = iota
	withRecent
	withLoss
	withSmall
)

func ingredientParts() factorial {
	return factorial{none: "none", by: meanOver(1), parts: []string{
		withAnswers: "right answers", withRecent: "a buffer", withLoss: "AsymRE", withSmall: "small batches",
	}}
}

// ingredientConfig is a combination at a multiple of the learning rate that goes with its batch.
func ingredientConfig(o Options, m mixture, by float64) run.Config {
	t := opponentTasks()[0]
	batch := 1920
	if m.has(withSmall) {
		batch = 480
	}
	f := family{fit: func(c *run.Config) {
		asQueue(1)(c)
		fitQueue(c)
		recent := c.Pipeline.Batch
		switch {
		case m.has(withRecent):
			*c, recent = split{5, 3}.set(*c), opponentBuffer
		case m.has(withAnswers): // each fresh rollout is used once, in half of a batch
			*c = split{5, 2}.set(*c)
		default:
			return
		}
		c.Replay.Sampler, c.Replay.Capacity = unseen, recent
		if m.has(withAnswers) {
			c.Replay.PositiveShare = 0.5
			keepRightAnswers(c, recent)
		}
	}}
	c := t.base(o)
	c.Pipeline.Group, c.Learner.WeightDecay = ingredientGroup, ingredientDecay
	if m.has(withLoss) {
		withAsymRE(&c)
	} else {
		c.Learner.ClipLow, c.Learner.ClipHigh = 0.4, 0.4
	}
	return t.resized(o, f, withRate(c, roundRate(by*t.rateOf(batch))), batch)
}

func ingredientRate(o Options, m mixture) rateTuning {
	p := Pilot{Name: "rate with " + ingredientParts().name(m), of: overTheRun, by: meanOver(1)}
	for _, by := range []float64{0.7, 1.4, 2.8} {
		c := ingredientConfig(o, m, by)
		p.Arms = append(p.Arms, Arm{rateName(p.Name, c.Learner.LearningRate), c})
	}
	return p.withFurtherRates(o)
}

func ingredientPilots(o Options) (list []Pilot) {
	for _, m := range ingredientParts().mixtures() {
		list = append(list, ingredientRate(o, m).pilots()...)
	}
	return list
}

func ingredientArms(o Options) (list []Arm) {
	x := ingredientParts()
	for _, m := range x.mixtures() {
		list = append(list, Arm{x.name(m), ingredientRate(o, m).best(o)})
	}
	return list
}

func judgeIngredients(f *Found) (Judgement, error) {
	x := ingredientParts()
	const source, measured = "our own", "Mean pass@1 over the budget, with less without, mean over the other parts"
	var claims []claim
	for part, text := range [...]string{
		withAnswers: "Keeping right answers for longer helps.", withRecent: "A buffer of recent rollouts helps.",
		withLoss: "AsymRE helps.", withSmall: "Small batches help.",
	} {
		claims = append(claims, claim{source: source, text: text, measured: measured,
			by: x.gain(f, part, nil).is(above(0))})
	}
	claims = append(claims, claim{
		source: source, text: "Right answers beside fresh rollouts need no buffer of other old ones.",
		measured: "Mean pass@1 over the budget, with a buffer less without, where right answers are kept",
		by:       x.gain(f, withRecent, func(m mixture) bool { return m.has(withAnswers) }).is(atMost(noImpact)),
	})
	each := results.Grid{Title: "Mean pass@1 over the budget",
		Columns: []string{"with", "mean pass@1", "rate", "more than with none"}}
	arms := x.runs(f)
	for _, a := range arms {
		each.Rows = append(each.Rows, []string{a.Name, points(mean(a.over(meanOver(1)))),
			fmt.Sprintf("%.2g", a.Config.Learner.LearningRate), difference(a, arms[0], meanOver(1)).cell()})
	}
	return f.judge(claims, results.Section{Title: "The parts", Grids: []results.Grid{
		x.grid("What each part adds to mean pass@1, by what else there is", f), each}})
}
