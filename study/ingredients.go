package study

import (
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

func ingredients() Study {
	return Study{
		Name: "ingredients", Title: "Which part of a replay recipe gains what?", Source: "our own",
		Lead: []string{
			"Four parts of a recipe, each with and without: right answers that are kept for longer and make up half of each " +
				"batch; a buffer of recent rollouts, right or wrong; AsymRE instead of GRPO's clip; small batches. All 16 " +
				"combinations are run on addition, each at the learning rate that was best for it, of three. With right answers " +
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

// mixture says which parts a combination has.
type mixture [4]bool

// The parts, in the order of mixture.
const (
	withAnswers = iota
	withRecent
	withLoss
	withSmall
)

var parts = [4]string{
	withAnswers: "right answers", withRecent: "a buffer", withLoss: "AsymRE", withSmall: "small batches",
}

func (m mixture) String() string {
	var has []string
	for i, part := range parts {
		if m[i] {
			has = append(has, part)
		}
	}
	if has == nil {
		return "none"
	}
	return strings.Join(has, ", ")
}

// mixtures are all combinations: that of number n has part i if bit i is 1.
func mixtures() (list []mixture) {
	for n := range 1 << len(parts) {
		var m mixture
		for i := range m {
			m[i] = n>>i&1 == 1
		}
		list = append(list, m)
	}
	return list
}

// config is a combination at a multiple of the learning rate that goes with its batch.
func (m mixture) config(o Options, by float64) run.Config {
	t := opponentTasks()[0]
	batch := 1920
	if m[withSmall] {
		batch = 480
	}
	f := family{fit: func(c *run.Config) {
		asQueue(1)(c)
		fitQueue(c)
		recent := c.Pipeline.Batch
		switch {
		case m[withRecent]:
			*c, recent = split{5, 3}.set(*c), opponentBuffer
		case m[withAnswers]: // each fresh rollout is used once, in half of a batch
			*c = split{5, 2}.set(*c)
		default:
			return
		}
		c.Replay.Sampler, c.Replay.Capacity = unseen, recent
		if m[withAnswers] {
			c.Replay.PositiveShare = 0.5
			keepRightAnswers(c, recent)
		}
	}}
	c := t.base(o)
	c.Pipeline.Group, c.Learner.WeightDecay = ingredientGroup, ingredientDecay
	if m[withLoss] {
		withAsymRE(&c)
	} else {
		c.Learner.ClipLow, c.Learner.ClipHigh = 0.4, 0.4
	}
	return t.resized(o, f, withRate(c, roundRate(by*t.rateOf(batch))), batch)
}

func (m mixture) pilot(o Options) Pilot {
	p := Pilot{Name: fmt.Sprintf("rate with %s", m), of: overTheRun, by: meanOver(1)}
	for _, by := range []float64{0.7, 1.4, 2.8} {
		c := m.config(o, by)
		p.Arms = append(p.Arms, Arm{fmt.Sprintf("%s: %.2g", p.Name, c.Learner.LearningRate), c})
	}
	return p
}

func ingredientPilots(o Options) (list []Pilot) {
	for _, m := range mixtures() {
		list = append(list, m.pilot(o))
	}
	return list
}

func ingredientArms(o Options) (list []Arm) {
	for _, m := range mixtures() {
		list = append(list, Arm{m.String(), o.choice(m.pilot(o)).Config})
	}
	return list
}

// gain is what a part adds to the mean pass@1 over the run: the mean over the combinations that chosen takes, each with
// the part less the same without it.
func (f *Found) gain(part int, chosen func(without mixture) bool) estimate {
	var with, without []Runs
	for _, m := range mixtures() {
		if !m[part] && chosen(m) {
			without = append(without, f.Of(m.String()))
			m[part] = true
			with = append(with, f.Of(m.String()))
		}
	}
	return estimateOf("the gain", change, func(seed uint64) float64 {
		return mean(onSeed(with, seed, meanOver(1))) - mean(onSeed(without, seed, meanOver(1)))
	}, append(with, without...)...)
}

func judgeIngredients(f *Found) (Judgement, error) {
	all := func(mixture) bool { return true }
	const source, measured = "our own", "Mean pass@1 over the budget, with less without, mean over the other parts"
	var claims []claim
	for part, text := range [...]string{
		withAnswers: "Keeping right answers for longer helps.", withRecent: "A buffer of recent rollouts helps.",
		withLoss: "AsymRE helps.", withSmall: "Small batches help.",
	} {
		claims = append(claims, claim{source: source, text: text, measured: measured, by: f.gain(part, all).is(above(0))})
	}
	claims = append(claims, claim{
		source: source, text: "Right answers beside fresh rollouts need no buffer of other old ones.",
		measured: "Mean pass@1 over the budget, with a buffer less without, where right answers are kept",
		by:       f.gain(withRecent, func(m mixture) bool { return m[withAnswers] }).is(atMost(noImpact)),
	})
	g := results.Grid{Title: "What each part adds to mean pass@1, by what else there is",
		Columns: []string{"part", "over all", "with right answers", "without", "with a buffer", "without", "with AsymRE",
			"without",
			"in small batches", "in large"}}
	for part, name := range parts {
		row := []string{name, f.gain(part, all).cell()}
		for other := range parts {
			for _, has := range []bool{true, false} {
				cell := missing
				if other != part {
					cell = f.gain(part, func(m mixture) bool { return m[other] == has }).cell()
				}
				row = append(row, cell)
			}
		}
		g.Rows = append(g.Rows, row)
	}
	each := results.Grid{Title: "Mean pass@1 over the budget",
		Columns: []string{"with", "mean pass@1", "rate", "more than with none"}}
	none := f.Of(mixture{}.String())
	for _, m := range mixtures() {
		a := f.Of(m.String())
		each.Rows = append(each.Rows, []string{a.Name, points(mean(a.over(meanOver(1)))),
			fmt.Sprintf("%.2g", a.Config.Learner.LearningRate), difference(a, none, meanOver(1)).cell()})
	}
	return f.judge(claims, results.Section{Title: "The parts", Grids: []results.Grid{g, each}})
}
