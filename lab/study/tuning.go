package study

import (
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/run"
)

// variant is a change of a configuration, by name.
type variant struct {
	name    string
	change  func(*run.Config)
	clashes func(run.Config) bool // it cannot be combined with a configuration; nil: with any
}

// batchWays returns what may be trained on without a buffer.
func batchWays() []variant {
	again := promptDefaults()
	again.cooldown = 1 // runs are short: a cooldown of 5 updates is too long
	return []variant{
		{name: "plain", change: func(*run.Config) {}},
		{name: "filled batches", change: func(c *run.Config) { *c = filled(*c) }},
		{name: "filled batches, prompt replay", change: func(c *run.Config) { *c = filled(again.set(*c)) }},
	}
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

// tuning is the pilots of training without replay on addition in large batches, in the order in which they choose: the
// learning rate; what is trained on; the loss; the rate once more.
type tuning [4]Pilot

// queueTuning begins with the learning rate of the study savings.
func queueTuning(o Options) tuning {
	t := tuning{savingsPilots(o)[0]}
	for i, variants := range [][]variant{batchWays(), losses(), rates()} {
		p := Pilot{Name: savingsTasks()[0].without + ", " + []string{"batches", "loss", "last rate"}[i], of: overTheRun,
			by: meanOver(1), stage: i + 1}
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

// stage is a step of tuning: what it may change of what the stages before chose, of which it gets the pilots too.
type stage struct {
	name     string
	variants func(chosen Arm, before []Pilot) []variant
}

// always are the same variants whatever was chosen.
func always(list ...variant) func(Arm, []Pilot) []variant {
	return func(Arm, []Pilot) []variant { return list }
}

// inStages are the pilots of stages, each of which begins with what the one before chose.
func (o Options) inStages(name string, stages []stage) (list []Pilot) {
	var chosen Arm
	for i, s := range stages {
		p := Pilot{Name: fmt.Sprintf("%s: %s", name, s.name), of: overTheRun, by: meanOver(1), stage: i}
		if i > 0 { // leaving it as it is comes first, so that a tie changes nothing
			p.Arms = append(p.Arms, Arm{p.Name + ": as before", chosen.Config})
		}
		for _, v := range s.variants(chosen, list) {
			if v.clashes == nil || !v.clashes(chosen.Config) {
				changed := chosen.Config
				v.change(&changed)
				p.Arms = append(p.Arms, Arm{p.Name + ": " + v.name, changed})
			}
		}
		list = append(list, p)
		chosen = o.choice(p)
	}
	return list
}
