package study

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

func best() Study {
	return Study{
		Name: "best", Title: "Which replay configuration learns with the least compute?", Source: "[ER], [FP], [PR] together",
		Lead: []string{
			"A tournament on the two tasks of the study savings, with the same budgets and targets. It begins with what that " +
				"study chose: the learning rates, and the split of a buffer that draws never-used rollouts first. One thing is " +
				"then chosen after the other: what is drawn, how the policy learns from it, and the learning rate once more. " +
				"Training without replay has the same stages, with what needs no buffer.",
			"Tuning has base models and held-out problems of its own. The winners are then compared with each other, and with " +
				"the plain buffer, on others.",
		},
		Pilots: bestPilots, Arms: bestArms, Judge: judgeBest,
	}
}

// variant is a change of a configuration, by name.
type variant struct {
	name    string
	change  func(*run.Config)
	clashes func(run.Config) bool // it cannot be combined with a configuration; nil: with any
}

// ways returns what may be drawn and trained on. Those with a buffer only, if there is one.
func ways(buffer bool) []variant {
	again := promptDefaults()
	again.cooldown = 1 // runs are short: a cooldown of 5 updates is too long
	fill := func(c *run.Config) { *c = filled(*c) }
	list := []variant{
		{name: "plain", change: func(*run.Config) {}},
		{name: "filled batches", change: fill},
		{name: "filled batches, prompt replay", change: func(c *run.Config) {
			*c = filled(again.set(*c))
		}},
	}
	if !buffer {
		return list
	}
	prioritized := func(c *run.Config) {
		c.Replay.Sampler, c.Replay.PriorityBase = replay.Prioritized, replay.BaseAdvantage
	}
	return append(list,
		variant{name: "four batches", change: func(c *run.Config) { c.Replay.Capacity = 4 * c.Pipeline.Batch }},
		variant{name: "prioritized", change: prioritized},
		variant{name: "freshness-aware", change: func(c *run.Config) {
			prioritized(c)
			c.Replay.AgeDecay = 3
		}},
		variant{name: "fresh and replayed in turn", change: func(c *run.Config) { c.Replay.Mix = 1 }},
		variant{name: "positive retention", change: func(c *run.Config) {
			c.Replay.Retention, c.Replay.PositiveFraction = replay.KeepPositive, 0.4
			c.Replay.PositiveThreshold = new(float32(0.5))
		}},
	)
}

// losses returns how the policy may learn from what is drawn.
func losses() []variant {
	return []variant{
		{name: "GRPO", change: func(*run.Config) {}},
		{name: "wide clip", change: func(c *run.Config) { c.Learner.ClipLow, c.Learner.ClipHigh = 0.4, 0.4 }},
		{name: "AsymRE", change: withAsymRE, clashes: func(c run.Config) bool { return c.Pipeline.FilterGroups }},
		{name: "CISPO", change: func(c *run.Config) { c.Learner.Objective = objective.CISPO }},
		{name: "advantages not divided", change: func(c *run.Config) { c.Learner.Advantage = "no_std" }},
	}
}

// rates returns changes of the learning rate.
func rates() []variant {
	times := func(by float64) func(*run.Config) { return func(c *run.Config) { c.Learner.LearningRate *= by } }
	return []variant{
		{name: "rate as before", change: times(1)}, {name: "rate × 0.7", change: times(0.7)},
		{name: "rate × 1.4", change: times(1.4)},
	}
}

// tuning is the pilots of one arm of a task, in the order in which they choose: the learning rate, and the split of a
// buffer; what is drawn; the loss; the rate once more.
type tuning [4]Pilot

// tune returns the pilots of an arm whose first one is that of the study savings.
func tune(o Options, name string, first Pilot, buffer bool) tuning {
	t := tuning{first}
	for i, variants := range [][]variant{ways(buffer), losses(), rates()} {
		p := Pilot{Name: name + ", " + []string{"batches", "loss", "last rate"}[i], of: overTheRun, by: meanOver(1),
			stage: i + 1}
		for _, v := range variants {
			c := o.choice(t[i]).Config
			if v.clashes == nil || !v.clashes(c) {
				v.change(&c)
				p.Arms = append(p.Arms, Arm{p.Name + ": " + v.name, c})
			}
		}
		t[i+1] = p
	}
	return t
}

// chosen returns the configuration that the pilots chose, and what it is in words.
func (t tuning) chosen(o Options) (run.Config, string) {
	var names []string
	for _, p := range t[1:] {
		names = append(names, strings.TrimPrefix(o.choice(p).Name, p.Name+": "))
	}
	return o.choice(t[len(t)-1]).Config, strings.Join(names, ", ")
}

// tunings are those of training without replay and with, by task.
func tunings(o Options) (list [][2]tuning) {
	first := savingsPilots(o)
	for i, t := range savingsTasks() {
		list = append(list, [2]tuning{tune(o, t.without, first[2*i], false), tune(o, t.replay, first[2*i+1], true)})
	}
	return list
}

func bestPilots(o Options) (list []Pilot) {
	for _, t := range tunings(o) {
		list = slices.Concat(list, t[0][:], t[1][:])
	}
	return list
}

// The arms of a task, behind its name; the plain buffer is the one of the study savings.
const (
	tunedQueue  = ": without replay, tuned"
	tunedReplay = ": with replay, tuned"
)

func bestArms(o Options) (arms []Arm) {
	for i, t := range savingsTasks() {
		tuned := tunings(o)[i]
		queue, _ := tuned[0].chosen(o)
		winner, _ := tuned[1].chosen(o)
		arms = append(arms, Arm{t.name + tunedQueue, queue}, Arm{t.replay, o.choice(tuned[1][0]).Config},
			Arm{t.name + tunedReplay, winner})
	}
	return arms
}

// bestGoal is the ratio of compute that the best configuration is to reach.
const bestGoal = 0.55

func judgeBest(f *Found) (Judgement, error) {
	var less, goal, better []test
	var winners []string
	var sections []results.Section
	for i, t := range savingsTasks() {
		queue, plain, winner := f.Of(t.name+tunedQueue), f.Of(t.replay), f.Of(t.name+tunedReplay)
		cost := ratio(winner, queue, toTarget)
		less = append(less, cost.named(t.name, below(1)))
		goal = append(goal, cost.named(t.name, atMost(bestGoal)))
		better = append(better, ratio(winner, plain, toTarget).named(t.name, below(1)))
		tuned := tunings(f.Options)[i]
		_, without := tuned[0].chosen(f.Options)
		_, with := tuned[1].chosen(f.Options)
		winners = append(winners, fmt.Sprintf("%s without replay: %s, %.3g; with: %s, %.3g", t.name, without,
			queue.Config.Learner.LearningRate, with, winner.Config.Learner.LearningRate))
		x, three := inUpdates(queue.Arm), lines(0, queue, plain, winner)
		sections = append(sections, results.Section{
			Title: "Accuracy against compute: " + t.name, Text: []string{"Lines are medians over seeds, bands quartiles."},
			Figures: []results.Figure{
				withTarget(medianFigure("Tuned without replay, a plain buffer, and the best", "", x, three...), t.target),
				withTarget(seedFigure("Every seed", "", x, three...), t.target),
			},
			Grids: []results.Grid{savingsTable(queue, winner), armsTable("Arms", queue, plain, winner)},
		})
	}
	const source, toTheTarget = "our own", "Compute to the target, the best with replay over the best without"
	return f.judge([]claim{
		{
			source: source, text: "The best configuration with replay reaches the target with less compute.", by: less,
			measured: toTheTarget, more: "Chosen: " + strings.Join(winners, "; ") + ".",
		},
		{
			source: source, by: goal, measured: toTheTarget,
			text: fmt.Sprintf("It takes at most %s of the compute.", percent(bestGoal)),
		},
		{
			source: source, text: "It takes less compute than a plain buffer.", by: better,
			measured: "Compute to the target, the best with replay over a plain buffer",
		},
	}, sections...)
}
