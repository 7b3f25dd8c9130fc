package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// early is the part of the budget in which [PR] sees its gain.
const early = 1.0 / 3

func judgePrompts(f *Found) (Judgement, error) {
	plain, replay := f.Of(allPrompts), f.Of(promptReplay)
	return Judgement{
		Findings: append(f.promptGains(plain, replay), f.promptControls(plain, replay)...),
		Sections: append(f.promptSections(plain, replay), f.trouble()...),
	}, nil
}

// promptGains judges what [PR] claims of prompt replay.
func (f *Found) promptGains(plain, replay Runs) []results.Finding {
	abstract := func(claim string) asked { return asked{"[PR] section 5.1", claim} }
	zero, zeroEarly := difference(replay, plain, meanOf(zeroVariance, 1)), difference(replay, plain, meanOf(zeroVariance, early))
	advantage, advantageEarly := difference(replay, plain, meanOf(absAdvantage, 1)), difference(replay, plain, meanOf(absAdvantage, early))
	sooner, end := difference(replay, plain, meanOver(early)), difference(replay, plain, settled)
	clock := ratio(replay, plain, clockToTarget)
	mild, bold := f.Of(promptAblations()[0].name()), f.Of(boldest().name())
	bounded := difference(mild, bold, settled)
	return []results.Finding{
		f.settle(abstract("Fewer groups have zero variance."),
			fmt.Sprintf("Share of groups of zero variance, with prompt replay less without: %s over the run; over its first third %s.", zero.format(change), zeroEarly.format(change)),
			zero, below("the difference over the run", 0)),
		f.settle(abstract("The mean |advantage| is larger."),
			fmt.Sprintf("Mean |advantage|, with prompt replay less without: %s over the run; over its first third %s.", advantage.format(change), advantageEarly.format(change)),
			advantage, above("the difference over the run", 0)),
		f.settle(abstract("Accuracy rises faster at first."),
			fmt.Sprintf("Mean pass@1 over the first third of the budget, with prompt replay less without: %s. Virtual time to pass@1 of %g, with over without: %s.",
				sooner.format(change), plain.Config.Evaluate.Target, clock.format(times)),
			sooner, above("the difference", 0)),
		f.settle(abstract("It then flattens out, and ends where training without prompt replay does."),
			fmt.Sprintf("Pass@1, the mean of the last three evaluations, with prompt replay less without: %s.", end.format(change)), end, within("the difference", 0, alike)),
		f.settle(asked{"[PR] sections 5.1 and 6", "Replaying too aggressively costs accuracy at the end; cooldown and a limit of reuse keep it."},
			fmt.Sprintf("Pass@1, the mean of the last three evaluations, at %s less that at %s: %s.", mild.Name, bold.Name, bounded.format(change)),
			bounded, above("the difference", 0)),
	}
}

// boldest is the setting that bounds nothing.
func boldest() replayOfPrompts { return promptAblations()[len(promptAblations())-1] }

// promptControls judges the controls.
func (f *Found) promptControls(plain, replay Runs) []results.Finding {
	few, chance := f.Of(fewPrompts), f.Of(randomRewards)
	narrow := difference(few, plain, settled)
	risen, learned := spreadOf(chance.over(rise)), spreadOf(plain.over(rise))
	return []results.Finding{
		f.settle(asked{"[PR] fig. 4", fmt.Sprintf("Training on %d fixed prompts does as well as on all: a warning that the model learns nothing from the prompts.", fixedPrompts)},
			fmt.Sprintf("Pass@1, the mean of the last three evaluations, on %d prompts less on all: %s.", fixedPrompts, narrow.format(change)),
			narrow, atLeast("the difference", -alike)),
		f.settle(asked{"[PR] section 6.1, Shao et al. 2025", "Accuracy rises even where rewards are random: a warning that reward is not what is learned from."},
			fmt.Sprintf("Pass@1, the mean of the last three evaluations, less that of the warm start: %s with random rewards, %s with those of the task.",
				risen.format(change), learned.format(change)),
			risen, above("the difference", 0)),
		f.bottleneck(plain, replay),
	}
}

// bottleneck judges whether prompt replay gains where rollouts are dear, and more than where they are cheap.
func (f *Found) bottleneck(plain, replay Runs) results.Finding {
	cheapPlain, cheapReplay := f.Of(cheapPlain), f.Of(cheapReplay)
	dear, cheap := onSeeds(f, replay, plain, meanOver(early)), onSeeds(f, cheapReplay, cheapPlain, meanOver(early))
	gain, more := spreadOf(dear), spreadOf(minusEach(dear, cheap))
	x := f.settle(asked{"[PR] section 5.1", "Prompt replay gains most where rollouts are the bottleneck, and little where they are not."},
		fmt.Sprintf("What prompt replay adds to mean pass@1 over the first third of the clock, at μ = %g: %s; less what it adds at μ = %g: %s. "+
			"Every batch takes as many rollouts with prompt replay as without: what is gained here is what a batch teaches more. A loop that generates until its batch is full saves rollouts too, see the table.",
			plain.Config.Pipeline.RolloutCost, gain.format(change), cheapPlain.Config.Pipeline.RolloutCost, more.format(change)),
		more, above("the difference", 0))
	gains := above("what is added at the greater μ", 0)
	x.Verdict, x.Why = all(x.Verdict, gains.by(f, gain)), x.Why+" The same is asked of what is added at the greater μ."
	return x
}

// rise is how much a run's accuracy rose above that of its start.
func rise(a Runs, r *results.Run) float64 {
	if len(r.Evals) == 0 || r.Evals[0].Update != 0 {
		return math.NaN()
	}
	return settled(a, r) - r.Evals[0].Pass1
}

// onSeeds is how much more of a measure arm a has than b on each seed of the study, NaN where one of them lacks it.
func onSeeds(f *Found, a, b Runs, m measure) []float64 {
	values := make([]float64, f.Seeds)
	for i := range values {
		values[i] = a.on(uint64(i+1), m) - b.on(uint64(i+1), m)
	}
	return values
}

func (f *Found) promptSections(plain, replay Runs) []results.Section {
	both := lines(0, plain, replay)
	target := plain.Config.Evaluate.Target
	var ablated []Runs
	for _, r := range promptAblations() {
		ablated = append(ablated, f.Of(r.name()))
	}
	controls := []Runs{plain, f.Of(fewPrompts), f.Of(randomRewards)}
	cheap := []Runs{f.Of(cheapPlain), f.Of(cheapReplay)}
	settings := append([]Runs{plain, replay}, ablated...)
	return []results.Section{
		{
			Title: "With and without prompt replay",
			Text:  []string{fmt.Sprintf("Prompt replay here is %s, band %g; [PR] gives the fraction alone.", promptDefaults().name(), replay.Config.Prompts.Band)},
			Figures: []results.Figure{
				metrics("Groups of zero variance", "Medians over seeds of the mean over a thirtieth of the budget, quartiles as bands.", "share of groups", zeroVariance, both...),
				metrics("Mean |advantage|", "With std-normalised advantages a group's mean is 2√(p(1 − p)).", "mean |advantage|", absAdvantage, both...),
				withTarget(byFresh("Accuracy against rollouts", "", both...), target),
				withTarget(everySeed("Accuracy against the clock", "", byClock(), both...), target),
			},
		},
		{
			Title: "How much to replay", Text: []string{"One setting changes at a time, and in the last row all bounds are off."},
			Figures: []results.Figure{medians("Accuracy against compute", "", inUpdates(plain.Arm), lines(0, settings...)...)},
			Grids:   []results.Grid{promptsGrid("Settings", plain, settings...)},
		},
		{
			Title: "Controls",
			Text: []string{
				fmt.Sprintf("The %d fixed prompts are asked over and over, from the same warm start. Random rewards go to half of all pairs of prompt and answer, whatever the answer; accuracy is that of true answers.", fixedPrompts),
				fmt.Sprintf("Where rollouts are cheap, μ = %g, %d workers wait for %d trainers most of the time.", cheap[0].Config.Pipeline.RolloutCost, cheap[0].Config.Pipeline.Workers, cheap[0].Config.Pipeline.Trainers),
			},
			Figures: []results.Figure{
				everySeed("Fixed prompts and random rewards", "", inUpdates(plain.Arm), lines(0, controls...)...),
				medians("Cheap rollouts: accuracy against the clock", "", byClock(), lines(0, cheap...)...),
			},
			Grids: []results.Grid{promptsGrid("Controls", plain, controls...), promptsGrid("Cheap rollouts", cheap[0], cheap...), refillGrid(plain, replay, cheap)},
		},
	}
}

// promptsGrid tells what became of arms beside the first.
func promptsGrid(title string, reference Runs, arms ...Runs) results.Grid {
	g := results.Grid{
		Title: title, Note: "Medians over seeds. Accuracy is the mean of the last three evaluations, quartiles in brackets; differences have 95% bootstrap intervals.",
		Columns: []string{"arm", "pass@1", "above the first", "over the first third, above the first", "zero variance", "mean |advantage|", "prompts replayed", "target reached"},
	}
	for _, a := range arms {
		end, first := "—", "—"
		if a.Name != reference.Name {
			end, first = cellOf(difference(a, reference, settled), change), cellOf(difference(a, reference, meanOver(early)), change)
		}
		g.Rows = append(g.Rows, []string{
			a.Name, a.cell(settled, points), end, first, fixed(a.median(meanOf(zeroVariance, 1)), 3), fixed(a.median(meanOf(absAdvantage, 1)), 3),
			percent(a.median(meanOf(func(u *results.Update) results.Number { return u.PromptShare }, 1))), fmt.Sprintf("%d of %d", a.reachedTarget(), len(a.Runs)),
		})
	}
	return g
}

// reachedTarget counts the runs that reached the arm's target.
func (a Runs) reachedTarget() int {
	n := 0
	for _, v := range a.over(toTarget) {
		if !math.IsInf(v, 1) {
			n++
		}
	}
	return n
}

// refillGrid computes what the measured shares of zero variance would save a loop that goes on generating until its batch is full of
// groups with a signal.
func refillGrid(plain, replay Runs, cheap []Runs) results.Grid {
	g := results.Grid{
		Title: "What a loop would save that generates until its batch is full of groups with a signal",
		Note: "Computed, not measured: such a loop generates 1/(1 − z) rollouts for each that it learns from, z being the share of groups of zero variance over the first third of the run. " +
			"An update then takes μ/(W(1 − z)) + 1/T per rollout where workers and trainers take turns, and the longer of the two where they do not.",
		Columns: []string{"rollout cost", "generation per update, without", "z without", "z with", "rollouts saved", "time saved"},
	}
	for _, pair := range [][2]Runs{{plain, replay}, {cheap[0], cheap[1]}} {
		without, with := pair[0].median(meanOf(zeroVariance, early)), pair[1].median(meanOf(zeroVariance, early))
		generation, all := refill(pair[0].Config, without)
		_, shorter := refill(pair[1].Config, with)
		g.Rows = append(g.Rows, []string{
			fmt.Sprintf("μ = %g", pair[0].Config.Pipeline.RolloutCost), percent(generation / all), fixed(without, 3), fixed(with, 3),
			percent(1 - (1-without)/(1-with)), percent(1 - shorter/all),
		})
	}
	return g
}

// refill is the time per rollout learned from that generation takes, and that all takes, in trainings of a rollout.
func refill(c run.Config, zero float64) (generation, all float64) {
	p := c.Pipeline
	generation = p.RolloutCost / (float64(p.Workers) * (1 - zero))
	training := 1 / float64(p.Trainers)
	if p.Mode == "sync" {
		return generation, generation + training
	}
	return generation, max(generation, training)
}
