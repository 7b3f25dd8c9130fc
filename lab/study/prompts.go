package study

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

func prompts() Study {
	return Study{
		Name: "prompts", Title: "Is it worth asking the same prompts again?",
		Source: "[PR] sections 5 and 6, figs. 3 and 4",
		Lead: []string{
			"Groups whose answers are all right or all wrong teach nothing. Prompt replay asks prompts again that " +
				"were answered right about half of the time; the answers are generated anew, so that training stays " +
				"on-policy.",
			"Additions below 100, batches of 64 prompts, 8 answers each ([PR] has 32 prompts). Of the sampler's " +
				"settings, [PR] gives only the fraction, 0.75; it has one seed per arm.",
			"With filled batches (DAPO's dynamic sampling) groups of zero variance are dropped and others are generated " +
				"until the batch is full, which saves rollouts if better prompts are asked. Dropped rollouts count as " +
				"compute.",
			"All arms have the learning rate that was best without prompt replay. Three controls follow: training on 32 " +
				"fixed prompts, training on random rewards, and filled batches with rollouts so cheap that generation is " +
				"not the bottleneck.",
		},
		Pilots: func(o Options) []Pilot { return promptRate(o).pilots() }, Arms: promptArms, Judge: judgePrompts,
	}
}

// The arms beside the ablations.
const (
	allPrompts    = "no prompt replay"
	promptReplay  = "prompt replay"
	fewPrompts    = "32 fixed prompts"
	randomRewards = "random rewards"
	filledPlain   = "filled batches"
	filledReplay  = "filled batches, prompt replay"
	cheapPlain    = "cheap rollouts: no prompt replay"
	cheapFilled   = "cheap rollouts: filled batches"
	cheapReplay   = "cheap rollouts: filled batches, prompt replay"
)

const (
	fixedPrompts = 32      // that the control of [PR] fig. 4 trains on
	unlimited    = 1000    // a limit of reuse that no prompt of a run reaches
	early        = 1.0 / 3 // share of the budget in which [PR] sees its gain
)

// promptSetting is a setting of prompt replay.
type promptSetting struct {
	fraction float64
	cooldown int
	maxReuse int
}

// promptDefaults has [PR]'s fraction. [PR] gives no cooldown and no limit of reuse; these are the program's defaults.
func promptDefaults() promptSetting { return promptSetting{0.75, 5, 10} }

// promptAblations returns the settings that leave out one bound of the default, and last the boldest, which has none.
func promptAblations() []promptSetting { return []promptSetting{noCooldown(), noLimit(), boldest()} }

func boldest() promptSetting    { return promptSetting{0.75, 0, unlimited} }
func noCooldown() promptSetting { return promptSetting{0.75, 0, 10} }
func noLimit() promptSetting    { return promptSetting{0.75, 5, unlimited} }

func (p promptSetting) name() string {
	reuse := fmt.Sprint(p.maxReuse)
	if p.maxReuse == unlimited {
		reuse = "unlimited"
	}
	return fmt.Sprintf("fraction %g, cooldown %d, reuse %s", p.fraction, p.cooldown, reuse)
}

func (p promptSetting) set(c run.Config) run.Config {
	c.Prompts.Fraction, c.Prompts.Cooldown, c.Prompts.MaxReuse = p.fraction, p.cooldown, p.maxReuse
	return c
}

// promptBase is on-policy training on additions, 64 prompts to a batch, each answered 8 times. With the 32 prompts of
// [PR] the noise of a batch made a pilot run unlearn at first.
func promptBase() run.Config {
	c := run.Default()
	c.Task = map[string]any{"name": "arithmetic", "held_out": labHeldOut}
	c.Pipeline.Mode, c.Pipeline.Batch = "sync", 512
	c.Replay.Sampler, c.Replay.Capacity = "fifo", 0
	c.Evaluate.Every, c.Evaluate.Target, c.Evaluate.Samples = 15, 0.45, 0
	c.Budget.Compute = 300
	skipZeroVariance(&c)
	return c
}

// cheapRollouts makes generation a small part, at a twentieth of the rollout cost and else the same.
func cheapRollouts() run.Config {
	c := promptBase()
	c.Pipeline.RolloutCost = 0.25
	return c
}

// filled drops groups of zero variance and generates until the batch is full. The limit is for the first batches of a
// rehearsal, whose policy rarely answers right.
func filled(c run.Config) run.Config {
	c.Pipeline.FilterGroups, c.Pipeline.MaxGenBatches = true, 100
	return c
}

// promptRate chooses the learning rate of all arms.
func promptRate(o Options) rateTuning {
	c := rehearsed(o, promptBase())
	return tuneRate(o, allPrompts, c, halfToTwice(c)...)
}

func promptArms(o Options) []Arm {
	few, random := promptBase(), promptBase()
	few.Prompts.Limit = fixedPrompts
	random.Task = map[string]any{"name": "arithmetic", "held_out": labHeldOut, "random_rewards": 0.5}
	arms := []Arm{{allPrompts, promptBase()}, {promptReplay, promptDefaults().set(promptBase())}}
	for _, p := range promptAblations() {
		arms = append(arms, Arm{p.name(), p.set(promptBase())})
	}
	arms = append(arms, Arm{fewPrompts, few}, Arm{randomRewards, random},
		Arm{filledPlain, filled(promptBase())}, Arm{filledReplay, filled(promptDefaults().set(promptBase()))},
		Arm{cheapPlain, cheapRollouts()}, Arm{cheapFilled, filled(cheapRollouts())},
		Arm{cheapReplay, filled(promptDefaults().set(cheapRollouts()))})
	for i := range arms {
		arms[i].Config = rehearsed(o, withRate(arms[i].Config, promptRate(o).best(o).Learner.LearningRate))
	}
	return arms
}

func judgePrompts(f *Found) (Judgement, error) {
	plain, replay, few, random := f.Of(allPrompts), f.Of(promptReplay), f.Of(fewPrompts), f.Of(randomRewards)
	dear := []Runs{f.Of(filledPlain), f.Of(filledReplay)}
	cheap := []Runs{f.Of(cheapFilled), f.Of(cheapReplay)}
	bold := f.Of(boldest().name())
	both := func(m metric, share float64) estimate { return difference(replay, plain, meanOf(m, share)) }
	gain := difference(replay, plain, meanOver(early))
	moreGain := estimateOf("the difference of the differences", change, func(seed uint64) float64 {
		m := meanOver(early)
		return dear[1].on(seed, m) - dear[0].on(seed, m) - (cheap[1].on(seed, m) - cheap[0].on(seed, m))
	}, slices.Concat(dear, cheap)...)
	dearGain := difference(dear[1], dear[0], meanOver(early))
	mu, cheapMu := dear[0].Config.Pipeline.RolloutCost, cheap[0].Config.Pipeline.RolloutCost
	const (
		pr51      = "[PR] section 5.1"
		pr6       = "[PR] sections 5.1 and 6"
		atTheEnd  = "Pass@1, the mean of the last three evaluations"
		firstPart = "Over the first third: %s."
	)
	return f.judge([]claim{
		{
			source: pr51, text: "Fewer groups have zero variance.", by: both(zeroVariance, 1).is(below(0)),
			measured: "Share of groups of zero variance over the run, with prompt replay less without",
			more:     fmt.Sprintf(firstPart, both(zeroVariance, early)),
		},
		{
			source: pr51, text: "The mean |advantage| is larger.", by: both(absAdvantage, 1).is(above(0)),
			measured: "Mean |advantage| over the run, with prompt replay less without",
			more:     fmt.Sprintf(firstPart, both(absAdvantage, early)),
		},
		{
			source: pr51, text: "Accuracy rises faster at first.", by: gain.is(above(0)),
			measured: "Mean pass@1 over the first third of the budget, with prompt replay less without",
			more: fmt.Sprintf("Virtual time to pass@1 of %g, with over without: %s.", plain.Config.Evaluate.Target,
				ratio(replay, plain, clockToTarget)),
		},
		{
			source: pr51, text: "It then flattens out, and ends where training without prompt replay does.",
			by: difference(replay, plain, settled).is(within(0, alike)), measured: atTheEnd + ", with prompt replay " +
				"less without",
		},
		{
			source: pr6, by: difference(replay, bold, settled).is(above(0)),
			text:     "Replaying without bounds costs accuracy at the end; a cooldown and a limit of reuse prevent this.",
			measured: fmt.Sprintf("%s, at %s less that at %s", atTheEnd, promptDefaults().name(), bold.Name),
		},
		{
			source: pr6, by: difference(replay, f.Of(noCooldown().name()), settled).is(above(0)),
			text:     "Without a cooldown the accuracy at the end is lower.",
			measured: fmt.Sprintf("%s, at %s less that at %s", atTheEnd, promptDefaults().name(), noCooldown().name()),
		},
		{
			source: pr6, by: difference(replay, f.Of(noLimit().name()), settled).is(above(0)),
			text:     "Without a limit of reuse the accuracy at the end is lower.",
			measured: fmt.Sprintf("%s, at %s less that at %s", atTheEnd, promptDefaults().name(), noLimit().name()),
		},
		{
			source: "[PR] fig. 4", by: difference(few, plain, settled).is(atLeast(-alike)), premise: pretrained(few),
			text: fmt.Sprintf("Training on %d fixed prompts does as well as on all: a warning that the model learns "+
				"nothing from the prompts.",
				fixedPrompts),
			measured: fmt.Sprintf("%s, on %d prompts less on all", atTheEnd, fixedPrompts),
		},
		{
			source: "[PR] section 6.1, Shao et al. 2025",
			by:     quantity(random, rise, "the difference", change).is(above(0)), premise: pretrained(random),
			text: "Accuracy rises even where rewards are random: a warning that the model does not learn from " +
				"the reward.",
			measured: atTheEnd + ", less that of the warm start, with random rewards",
			more:     fmt.Sprintf("With the task's rewards: %s.", quantity(plain, rise, "", change)),
		},
		{
			source: pr51, text: "Prompt replay gains most where rollouts are the bottleneck, and little where they " +
				"are not.",
			by: []test{moreGain.named(fmt.Sprintf("at μ = %g less at %g", mu, cheapMu), above(0)),
				dearGain.named(fmt.Sprintf("at μ = %g", mu), above(0))},
			measured: "What prompt replay adds to mean pass@1 of filled batches over the first third of the budget",
		},
	}, promptsPage(f, plain, replay)...)
}

// rise is how far a run's accuracy rose above that of its start.
func rise(a Runs, r *results.Run) float64 {
	if len(r.Evals) == 0 || r.Evals[0].Update != 0 {
		return math.NaN()
	}
	return settled(a, r) - r.Evals[0].Pass1
}

func promptsPage(f *Found, plain, replay Runs) []results.Section {
	both, x, target := lines(0, plain, replay), inUpdates(plain.Arm), plain.Config.Evaluate.Target
	settings := []Runs{plain, replay}
	for _, p := range promptAblations() {
		settings = append(settings, f.Of(p.name()))
	}
	controls := []Runs{plain, f.Of(fewPrompts), f.Of(randomRewards)}
	filled := []Runs{plain, f.Of(filledPlain), f.Of(filledReplay)}
	cheap := []Runs{f.Of(cheapPlain), f.Of(cheapFilled), f.Of(cheapReplay)}
	return []results.Section{
		{
			Title: "With and without prompt replay",
			Text: []string{fmt.Sprintf("Prompt replay here is %s, band %g; [PR] gives only the fraction.",
				promptDefaults().name(), replay.Config.Prompts.Band)},
			Figures: []results.Figure{
				metricFigure("Groups of zero variance",
					"Medians over seeds of the mean since the evaluation before, quartiles as bands.",
					"share of groups", zeroVariance, both...),
				metricFigure("Mean |advantage|", "With std-normalised advantages a group's mean is 2√(p(1 − p)).",
					"mean |advantage|", absAdvantage,
					both...),
				withTarget(medianFigure("Accuracy against rollouts", "", byRollouts(), both...), target),
				withTarget(seedFigure("Accuracy against the clock", "", byClock(), both...), target),
			},
		},
		{
			Title: "Without bounds", Text: []string{"One bound is left out at a time, then both."},
			Figures: []results.Figure{medianFigure("Accuracy against compute", "", x, lines(0, settings...)...)},
			Grids:   []results.Grid{promptsTable("Bounds", settings...)},
		},
		{
			Title: "Filled batches",
			Text: []string{fmt.Sprintf("Arms differ in μ alone from those with the same name and “cheap rollouts”: μ is %g "+
				"and %g.", plain.Config.Pipeline.RolloutCost, cheap[0].Config.Pipeline.RolloutCost)},
			Figures: []results.Figure{
				withTarget(medianFigure("Accuracy against the clock", "", byClock(), lines(0, filled...)...), target),
				withTarget(medianFigure("Cheap rollouts: accuracy against the clock", "", byClock(),
					lines(0, cheap...)...), target),
			},
			Grids: []results.Grid{filledTable("Filled batches", filled...),
				filledTable("Filled batches with cheap rollouts", cheap...)},
		},
		{
			Title: "Controls",
			Text: []string{
				fmt.Sprintf("The %d fixed prompts are asked again and again, from the same warm start. Random "+
					"rewards go to half of all rollouts, whatever the answer; accuracy counts true answers.",
					fixedPrompts),
			},
			Figures: []results.Figure{seedFigure("Fixed prompts and random rewards", "", x, lines(0, controls...)...)},
			Grids:   []results.Grid{promptsTable("Controls", controls...)},
		},
	}
}

// promptsTable compares arms with the first.
func promptsTable(title string, arms ...Runs) results.Grid {
	reference := arms[0]
	atReach := func(a Runs) string {
		reached := slices.DeleteFunc(a.over(toTarget), func(v float64) bool { return math.IsInf(v, 1) })
		return fmt.Sprintf("%d of %d", len(reached), len(a.Runs))
	}
	return table(title,
		"Medians over seeds. Accuracy is the mean of the last three evaluations, quartiles in brackets; "+
			"differences are means with 95% intervals.",
		arms, medianOf("pass@1", settled, points),
		compared("above the first", reference, atEqualCompute),
		compared("over the first third, above the first", reference,
			func(a, b Runs) estimate { return difference(a, b, meanOver(early)) }),
		plainMedian("zero variance", meanOf(zeroVariance, 1), points),
		plainMedian("mean |advantage|", meanOf(absAdvantage, 1), points),
		plainMedian("prompts replayed", meanOf(promptShare, 1), percent), column{"target reached", atReach})
}

// filledTable compares plain with filled batches.
func filledTable(title string, arms ...Runs) results.Grid {
	reference := arms[0]
	return table(title, "Medians over seeds. Accuracy is the mean of the last three evaluations, quartiles in brackets; "+
		"differences at equal compute, dropped rollouts included, are means with 95% intervals.",
		arms, medianOf("pass@1", settled, points),
		compared("over the first third, above the first", reference,
			func(a, b Runs) estimate { return difference(a, b, meanOver(early)) }),
		plainMedian("rollouts generated per rollout learned from", generatedPerUsed, points),
		plainMedian("mean |advantage|", meanOf(absAdvantage, 1), points),
		plainMedian("prompts replayed", meanOf(promptShare, 1), percent))
}

// generatedPerUsed is how many rollouts an on-policy run generates for each that it learns from.
func generatedPerUsed(a Runs, r *results.Run) float64 {
	if !a.Config.Pipeline.FilterGroups {
		return 1
	}
	return inSummary(func(s *results.Summary) float64 { return s.GeneratedPerInserted.Float() })(a, r)
}
