package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/results"
)

// triple is the arms of a task that [FP] compares.
type triple struct {
	freshTask
	on, standard, fresh Runs
}

// triples returns the tasks of the study, those that are easy or those that are not.
func (f *Found) triples(easy bool) []triple {
	var list []triple
	for _, t := range freshTasks() {
		if t.easy == easy {
			list = append(list, triple{t, f.Of(freshArm(t.name, onPolicy)), f.Of(freshArm(t.name, standardPER)), f.Of(freshArm(t.name, freshPER))})
		}
	}
	return list
}

// parts compares arms of each task.
func parts(tasks []triple, of func(triple) spread) []part {
	var list []part
	for _, t := range tasks {
		list = append(list, part{t.name, of(t)})
	}
	return list
}

func judgeFreshness(f *Found) (Judgement, error) {
	return Judgement{
		Findings: append(f.freshMethods(), f.freshAblated()...),
		Sections: append(f.freshSections(), f.trouble()...),
	}, nil
}

// What is compared, in words.
const (
	afterEqualRollouts = "Pass@1, the mean of the last three evaluations after as many fresh rollouts"
	afterEqualCompute  = "Pass@1, the mean of the last three evaluations at equal compute"
)

// freshMethods judges what [FP] claims of the methods on tasks.
func (f *Found) freshMethods() []results.Finding {
	hard, easy := f.triples(false), f.triples(true)
	table := func(claim string) asked { return asked{"[FP] table 1, figs. 3 and 4", claim} }
	gain, loss := above("the difference", 0), below("the difference", 0)
	var controls []part
	for _, t := range easy {
		controls = append(controls, part{t.name + ", " + standardPER, atEqualFresh(t.standard, t.on)}, part{t.name + ", " + freshPER, atEqualFresh(t.fresh, t.on)})
	}
	return []results.Finding{
		f.settleParts(table("Freshness-aware replay comes further than on-policy training with as many fresh rollouts."),
			afterEqualRollouts+", freshness-aware less on-policy", parts(hard, func(t triple) spread { return atEqualFresh(t.fresh, t.on) }), change, gain, most, mostWords),
		f.settleParts(asked{"[FP], at equal compute", "The same at equal compute, in which replay has fewer fresh rollouts."},
			afterEqualCompute+", freshness-aware less on-policy", parts(hard, func(t triple) spread { return difference(t.fresh, t.on, settled) }), change, gain, most, mostWords),
		f.settleParts(table("Freshness-aware replay comes further than standard prioritized replay."),
			afterEqualRollouts+", freshness-aware less standard", parts(hard, func(t triple) spread { return atEqualFresh(t.fresh, t.standard) }), change, gain, most, mostWords),
		f.settleParts(table("Standard prioritized replay, whose priorities never fade, is worse than on-policy training."),
			afterEqualRollouts+", standard less on-policy", parts(hard, func(t triple) spread { return atEqualFresh(t.standard, t.on) }), change, loss, most, mostWords),
		f.settleParts(asked{"[FP] figs. 6 and 10", "Where the policy is nearly done at the start, replay makes no difference."},
			afterEqualRollouts+", replay less on-policy", controls, change, within("the difference", 0, alike), all, allWords),
	}
}

// freshAblated judges what [FP] claims of tau and of importance weights.
func (f *Found) freshAblated() []results.Finding {
	task := f.triples(false)[0]
	taus := f.tauArms()
	last := len(taus) - 1
	middle := chosenDifference(taus[1:last], []Runs{taus[0], taus[last]}, settled)
	var each []part
	for i, a := range taus {
		each = append(each, part{tauName(freshTaus()[i]), atEqualFresh(a, task.on)})
	}
	none := f.Of(freshArm(task.name, noWeights))
	peak, steady := difference(task.fresh, none, best), difference(none, task.fresh, lateFall)
	return []results.Finding{
		f.settle(asked{"[FP] figs. 5 and 8", "There is a best τ in the middle: with too little decay replay fails, with too much it gains less."},
			fmt.Sprintf("%s on %s, the better τ of the middle (%s, %s) less the better of the ends (%s, %s), each chosen on the other seeds: %s.",
				afterEqualCompute, task.name, freshTaus()[1], freshTaus()[2], freshTaus()[0], freshTaus()[last], middle.format(change)),
			middle, above("the difference", 0)),
		f.settleParts(asked{"[FP] fig. 5b", "Whatever the τ, replay is better than on-policy training."},
			afterEqualRollouts+" on "+task.name+", less on-policy", each, change, above("the difference", 0), all, allWords),
		f.settle(asked{"[FP] figs. 7 and 9", "Importance weights hardly change the best accuracy."},
			fmt.Sprintf("Best pass@1 on %s with β from 0.4 to 1, less that without weights: %s.", task.name, peak.format(change)), peak, within("the difference", 0, alike)),
		f.settle(asked{"[FP] figs. 7 and 9", "Importance weights make late training more stable."},
			fmt.Sprintf("Greatest fall below the best so far, in the second half of training on %s, without weights less with: %s.", task.name, steady.format(change)),
			steady, above("the difference", 0)),
	}
}

// tauArms returns the arms of the ablation of tau by ascending tau.
func (f *Found) tauArms() []Runs {
	task := freshTasks()[0]
	var arms []Runs
	for _, tau := range freshTaus() {
		name := tauName(tau)
		if tau == freshTau {
			name = freshPER
		}
		arms = append(arms, f.Of(freshArm(task.name, name)))
	}
	return arms
}

func (f *Found) freshSections() []results.Section {
	var sections []results.Section
	for _, t := range append(f.triples(false), f.triples(true)...) {
		sections = append(sections, t.section())
	}
	task := f.triples(false)[0]
	weights := []Runs{f.Of(freshArm(task.name, noWeights)), f.Of(freshArm(task.name, constantWeights)), task.fresh}
	uniform := f.Of(freshArm(task.name, uniformPER))
	return append(sections,
		results.Section{
			Title: "How fast to forget", Text: []string{"The age decay τ, in versions, on " + task.name + "; nothing else differs. Uniform replay draws all alike."},
			Figures: []results.Figure{medians("Accuracy against compute by τ", "", inUpdates(task.fresh.Arm), append(f.tauLines(), line{Runs: uniform, name: uniformPER, colour: 5, dashed: true}, line{Runs: task.on, name: onPolicy, colour: 0})...)},
			Grids:   []results.Grid{freshGrid("By τ", task.on, append(f.tauArms(), uniform)...)},
		},
		results.Section{
			Title: "Importance weights", Text: []string{"Weights (N P)^−β take back what drawing by priority changes in the mean; β 0 is none."},
			Figures: []results.Figure{everySeed("Accuracy against compute by β", "", inUpdates(task.fresh.Arm), lines(1, weights...)...)},
			Grids:   []results.Grid{freshGrid("By β", task.on, weights...), armsGrid("All arms of "+task.name, append([]Runs{task.on, task.standard, uniform}, append(f.tauArms(), weights[:2]...)...)...)},
		})
}

// tauLines draws the arms of the ablation under their tau.
func (f *Found) tauLines() []line {
	list := lines(1, f.tauArms()...)
	for i := range list {
		list[i].name = tauName(freshTaus()[i])
	}
	return list
}

// section shows a task.
func (t triple) section() results.Section {
	arms := lines(0, t.on, t.standard, t.fresh)
	for i, name := range []string{onPolicy, standardPER, freshPER} {
		arms[i].name = name
	}
	target := t.on.Config.Evaluate.Target
	return results.Section{
		Title: "On " + t.name,
		Text:  []string{fmt.Sprintf("τ of freshness-aware replay is %s versions. Thin lines are single runs, bands quartiles.", freshTau)},
		Figures: []results.Figure{
			withTarget(everySeed("Accuracy against compute", "", inUpdates(t.on.Arm), arms...), target),
			withTarget(byFresh("Accuracy against fresh rollouts", "", arms...), target),
		},
		Grids: []results.Grid{freshGrid("Arms", t.on, t.on, t.standard, t.fresh)},
	}
}

// freshGrid tells what became of arms beside on-policy training.
func freshGrid(title string, on Runs, arms ...Runs) results.Grid {
	g := results.Grid{
		Title: title,
		Note: "Medians over seeds. Accuracy is the mean of the last three evaluations, quartiles in brackets; the differences have 95% bootstrap intervals. " +
			"ESS/n, staleness in versions and the share of groups of zero variance are means over the updates.",
		Columns: []string{"arm", "pass@1", "best", "above on-policy, equal rollouts", "above on-policy, equal compute", "ESS/n", "staleness", "zero variance", "failed"},
	}
	for _, a := range arms {
		equalRollouts, equalCompute := "—", "—"
		if a.Name != on.Name {
			equalRollouts, equalCompute = cellOf(atEqualFresh(a, on), change), cellOf(difference(a, on, settled), change)
		}
		g.Rows = append(g.Rows, []string{
			a.Name, a.cell(settled, points), a.cell(best, points), equalRollouts, equalCompute,
			fixed(a.median(meanOf(effectiveSize, 1)), 2), fixed(a.median(meanOf(meanStaleness, 1)), 1), fixed(a.median(meanOf(zeroVariance, 1)), 2), fmt.Sprint(len(a.Failed)),
		})
	}
	return g
}
