package study

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
)

func freshParts() Study {
	return Study{
		Name: "fresh-parts", Title: "Which part of freshness-aware replay helps?", Source: "our own, on [FP]",
		Lead: []string{
			"Freshness-aware replay of the study freshness has three parts: rollouts enter at the largest priority seen " +
				"until they are drawn, rather than at their own; priorities fade with age, with τ = " + freshTau.String() +
				" versions, or never; and importance weights, whose exponent goes from 0.4 to 1, or none. All eight " +
				"combinations are run on its first task, at the learning rate that was best for on-policy training.",
		},
		Pilots: func(o Options) []Pilot { return []Pilot{freshTasks()[0].ratePilot(o)} },
		Arms:   freshPartArms, Judge: judgeFreshParts,
	}
}

// The parts, in the order of freshPartList.
const (
	entryAtMax = iota
	fading
	weighting
)

func freshPartList() factorial {
	return factorial{none: "priorities alone", by: settled, parts: []string{
		entryAtMax: "entry at the largest priority", fading: "fading", weighting: "importance weights",
	}}
}

func freshPartArms(o Options) []Arm {
	t := freshTasks()[0]
	arms := []Arm{{onPolicy, o.choice(t.ratePilot(o)).Config}}
	x := freshPartList()
	for _, m := range x.mixtures() {
		c := withRate(t.config(), o.rate(t.ratePilot(o)))
		r := &c.Replay
		if r.Entry, r.EntryUntil = replay.EnterOwn, ""; m.has(entryAtMax) {
			r.Entry, r.EntryUntil = replay.EnterMax, replay.UntilReplay
		}
		if !m.has(fading) {
			r.AgeDecay = replay.Versions(math.Inf(1))
		}
		if !m.has(weighting) {
			r.ImportanceBeta, r.ImportanceAnneal = new(0.0), new(0)
		}
		arms = append(arms, Arm{x.name(m), rehearsed(o, c)})
	}
	return arms
}

func judgeFreshParts(f *Found) (Judgement, error) {
	x, on := freshPartList(), f.Of(onPolicy)
	var claims []claim
	for part, c := range []struct {
		text string
		rule rule
	}{
		entryAtMax: {"To enter rollouts at the largest priority helps.", above(0)},
		fading:     {"Fading helps.", above(0)},
		weighting:  {"Importance weights cost nothing.", atLeast(-noImpact)},
	} {
		claims = append(claims, claim{source: "[FP] table 1, figs. 5 to 8", text: c.text,
			by:       x.gain(f, part, nil).is(c.rule),
			measured: "Pass@1, the mean of the last three evaluations, with less without, mean over the other parts"})
	}
	return f.judge(claims, results.Section{
		Title: "The parts", Text: []string{fmt.Sprintf("On-policy training reaches %s at the end.",
			points(mean(on.over(settled))))},
		Grids: []results.Grid{x.grid("What each part adds, by what else there is", f),
			freshnessTable("Every combination", on, x.runs(f)...)},
	})
}
