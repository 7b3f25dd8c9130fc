package study

import (
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

func best() Study {
	return Study{
		Name: "best", Title: "Which replay configuration learns with the least compute?", Source: "[ER], [FP], [PR] together",
		Lead: []string{
			"A tournament on the two tasks of the study savings, with the same budgets and targets. It begins with what that " +
				"study chose: the split, the learning rate, and a buffer of which rollouts that were never used are drawn " +
				"first. One thing is chosen after the other, each on what was chosen before: what the buffer keeps and how it " +
				"is drawn from; how the policy learns from it; the learning rate once more. Training without replay has the same choice " +
				"of losses.",
			"All of this is chosen on base models and held-out problems that judge nothing. The winner is then compared with " +
				"training without replay, and with the plain buffer, on others.",
		},
		Pilots: bestPilots, Arms: bestArms, Judge: judgeBest,
	}
}

// variant is a change of a configuration, by name.
type variant struct {
	name   string
	change func(*run.Config)
}

// ways returns what a buffer may keep and how it may be drawn from, the plain one first.
func ways() []variant {
	fill := func(c *run.Config) { // the limit is for the first batches of a rehearsal
		c.Pipeline.FilterGroups, c.Pipeline.MaxGenBatches = true, 100
	}
	prioritized := func(c *run.Config) {
		c.Replay.Sampler, c.Replay.PriorityBase = replay.Prioritized, replay.BaseAdvantage
	}
	return []variant{
		{"plain", func(*run.Config) {}},
		{"four batches", func(c *run.Config) { c.Replay.Capacity = 4 * c.Pipeline.Batch }},
		{"prioritized", prioritized},
		{"freshness-aware", func(c *run.Config) {
			prioritized(c)
			c.Replay.AgeDecay = 3
		}},
		{"fresh and replayed in turn", func(c *run.Config) { c.Replay.Mix = 1 }},
		{"positive retention", func(c *run.Config) {
			c.Replay.Retention, c.Replay.PositiveFraction = replay.KeepPositive, 0.4
			c.Replay.PositiveThreshold = new(float32(0.5))
		}},
		{"filled batches", fill},
		{"filled batches, prompt replay", func(c *run.Config) {
			fill(c)
			*c = promptDefaults().set(*c)
		}},
	}
}

// losses returns how the policy may learn from what is drawn, GRPO as it is first.
func losses() []variant {
	return []variant{
		{"GRPO", func(*run.Config) {}},
		{"wide clip", func(c *run.Config) { c.Learner.ClipLow, c.Learner.ClipHigh = 0.4, 0.4 }},
		{"AsymRE", withAsymRE},
		{"CISPO", func(c *run.Config) { c.Learner.Objective = cispo }},
		{"advantages not divided", func(c *run.Config) { c.Learner.Advantage = "no_std" }},
	}
}

// pilotOf chooses among variants of a configuration. Those that cannot be combined with it are left out.
func pilotOf(name string, stage int, c run.Config, variants []variant) Pilot {
	p := Pilot{Name: name, of: overTheRun, by: meanOver(1), stage: stage}
	for _, v := range variants {
		changed := c
		if v.change(&changed); changed.Validate() == nil {
			p.Arms = append(p.Arms, Arm{name + ": " + v.name, changed})
		}
	}
	return p
}

// The pilots of a task, in the order of bestPilots.
const (
	rateWithout = iota // of the study savings
	rateWith
	lossWithout
	wayWith
	lossWith
	rateLast
	pilotsOfTask
)

func bestPilots(o Options) (list []Pilot) {
	chosen := savingsPilots(o)
	for i, t := range savingsTasks() {
		way := pilotOf(t.name+", buffer", 1, o.choice(chosen[2*i+1]).Config, ways())
		loss := pilotOf(t.name+", loss", 2, o.choice(way).Config, losses())
		without := pilotOf(t.name+", loss without replay", 1, o.choice(chosen[2*i]).Config, losses())
		rate := pilotOf(t.name+", rate", 3, o.choice(loss).Config, []variant{
			{"as before", func(*run.Config) {}},
			{"× 0.7", func(c *run.Config) { c.Learner.LearningRate *= 0.7 }},
			{"× 1.4", func(c *run.Config) { c.Learner.LearningRate *= 1.4 }},
		})
		list = append(list, chosen[2*i], chosen[2*i+1], without, way, loss, rate)
	}
	return list
}

// bestOf returns the pilots of the task of a number.
func bestOf(o Options, i int) []Pilot {
	return bestPilots(o)[i*pilotsOfTask : (i+1)*pilotsOfTask]
}

// bestArms are, of each task, training without replay, the plain buffer, and the winner.
func bestArms(o Options) (arms []Arm) {
	for i, t := range savingsTasks() {
		p := bestOf(o, i)
		arms = append(arms, Arm{t.without, o.choice(p[lossWithout]).Config}, Arm{t.replay, o.choice(p[rateWith]).Config},
			Arm{t.name + ": best", o.choice(p[rateLast]).Config})
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
		queue, plain, winner := f.Of(t.without), f.Of(t.replay), f.Of(t.name+": best")
		cost := ratio(winner, queue, toTarget)
		less = append(less, cost.named(t.name, below(1)))
		goal = append(goal, cost.named(t.name, atMost(bestGoal)))
		better = append(better, ratio(winner, plain, toTarget).named(t.name, below(1)))
		var names []string
		for _, p := range bestOf(f.Options, i)[lossWithout:] {
			_, name, _ := strings.Cut(f.choice(p).Name, ": ")
			names = append(names, name)
		}
		winners = append(winners, fmt.Sprintf("%s: %s, learning rate %.3g", t.name, strings.Join(names, "; "),
			winner.Config.Learner.LearningRate))
		x, three := inUpdates(queue.Arm), lines(0, queue, plain, winner)
		sections = append(sections, results.Section{
			Title: "Accuracy against compute: " + t.name, Text: []string{"Lines are medians over seeds, bands quartiles."},
			Figures: []results.Figure{
				withTarget(medianFigure("Without replay, with a plain buffer, and the best", "", x, three...), t.target),
				withTarget(seedFigure("Every seed", "", x, three...), t.target),
			},
			Grids: []results.Grid{savingsTable(queue, winner), armsTable("Arms", queue, plain, winner)},
		})
	}
	const source, toTheTarget = "our own", "Compute to the target, the best over no replay"
	return f.judge([]claim{
		{
			source: source, text: "The best replay configuration reaches the target with less compute.", by: less,
			measured: toTheTarget, more: "Chosen: " + strings.Join(winners, "; ") + ".",
		},
		{
			source: source, by: goal, measured: toTheTarget,
			text: fmt.Sprintf("It takes at most %s of the compute.", percent(bestGoal)),
		},
		{
			source: source, text: "It takes less compute than a plain buffer.", by: better,
			measured: "Compute to the target, the best over the plain buffer",
		},
	}, sections...)
}
