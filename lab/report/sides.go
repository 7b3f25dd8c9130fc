package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// compareSides adds what comes before a comparison's result, what each arm had, and what explains it, right after the
// accuracy: the settings in which the arms differ, and what their updates cost. The baseline of reprise train --compare
// is made from the other arm, by known rules.
func (p *page) compareSides(arms []*arm, made bool) {
	var named []results.NamedRuns
	for _, side := range arms {
		named = append(named, results.NamedRuns{Name: side.label, Runs: side.runs})
	}
	if len(arms) < 2 {
		return
	}
	sides := sidesSection(results.Setups(named))
	p.Sides = &sides
	p.Sections = slices.Insert(p.Sections, 1, differsSection(named, made), costSection(arms))
}

// sidesSection tells what each arm had, and how long it took on both clocks.
func sidesSection(sides []results.Setup) section {
	s := section{ID: "sides", Title: "What each side had"}
	g := results.Grid{Columns: []string{"", "GPUs, inference + training", "Batch, rollouts", "Budget", "Compute spent",
		"Virtual clock", "Wall clock"},
		Note: "Medians over seeds, at the end or as far as they came. The virtual clock counts what the GPUs would take, " +
			"in the time of a trainer per rollout; the wall clock is that of the machine that made the runs."}
	gpus := make(map[string]bool)
	var had []string
	for _, side := range sides {
		g.Rows = append(g.Rows, []string{side.Name, side.GPUs(), words.Whole(side.Batch.Float()), side.BudgetText(),
			number(side.Spent), number(side.Clock), side.WallText()})
		gpus[side.GPUs()] = true
		had = append(had, fmt.Sprintf("%s %s", side.Name, side.GPUs()))
	}
	if len(gpus) > 1 {
		s.Text = []string{"The sides do not have the same GPUs: " + strings.Join(had, ", ") + ". Compute by formula counts " +
			"the work of an update, whoever does it; all GPU time charges each GPU for the whole clock."}
	}
	s.Grids = gridTables(g)
	return s
}

// differsSection lists the settings in which arms differ.
func differsSection(arms []results.NamedRuns, made bool) section {
	s := section{ID: "differences", Title: "What differs in their configurations"}
	list := results.Differences(arms)
	if len(list) == 0 {
		s.Text = []string{"Nothing that decides what a run learns."}
		return s
	}
	heads := []string{"Setting"}
	for _, a := range arms {
		heads = append(heads, a.Name)
	}
	var settings map[string]string
	if made && len(arms[0].Runs) > 0 {
		heads = append(heads, "Why")
		settings = results.Settings(arms[0].Runs[0].Config)
	}
	var rows [][]string
	for _, d := range list {
		row := append([]string{d.Key}, d.Values...)
		if settings != nil {
			row = append(row, baselineReason(d.Key, settings))
		}
		rows = append(rows, row)
	}
	s.Text = []string{"Of each side's first run. Left out: names, seeds, checkpoints and engines."}
	s.Grids = []gridTable{factTable("", heads, rows)}
	return s
}

// baselineReason tells why the baseline of a comparison has another value than the arm that replays, by the rules of
// run.Config.BaselineArm.
func baselineReason(key string, settings map[string]string) string {
	section, name, _ := strings.Cut(key, ".")
	_, own := settings["baseline."+key]
	switch {
	case key == "pipeline.workers" || key == "pipeline.trainers":
		if results.SameSetting(settings["baseline."+name], "0") {
			return "the split of the GPUs that stalls least when each batch is used once"
		}
		return "set by baseline." + name
	case own:
		return "set by baseline." + key
	case key == "learner.learning_rate":
		return "set by baseline.learning_rate"
	case section == "budget" || section == "evaluate":
		return "counted in updates of the side's own batch: the same compute"
	case key == "pipeline.batch_updates" || key == "pipeline.publish_every":
		return "each batch is used once, and weights are published after as many batches"
	case section == "replay" && name == "sampler":
		return "a queue uses each rollout once: no replay"
	case section == "replay" || section == "prompts":
		return "goes with the queue: what replay needs is left out"
	case strings.HasPrefix(key, "pipeline.sync_"):
		return "a turn is one batch with its updates"
	}
	return "–"
}

// costSection tells what the updates of each arm cost, how many it made of its budget, and how it used its rollouts:
// where a difference in compute comes from.
func costSection(arms []*arm) section {
	s := section{ID: "costs", Title: "Why they differ"}
	heads := []string{""}
	for _, side := range arms {
		heads = append(heads, side.label)
	}
	last := func(side *arm, of func(*results.Update) float64) results.Number {
		var values []float64
		for _, run := range side.runs {
			if n := len(run.Updates); n > 0 {
				values = append(values, of(&run.Updates[n-1]))
			}
		}
		return results.RangeOf(values).Median
	}
	mean := func(side *arm, of func(*results.Update) results.Number) results.Number {
		return medianNumber(side.runs, func(r *results.Run) results.Number { return r.Mean(of) })
	}
	cost := func(side *arm) results.Number {
		return last(side, func(u *results.Update) float64 { return u.Compute / float64(u.Update) })
	}
	updates := func(side *arm) results.Number {
		return last(side, func(u *results.Update) float64 { return float64(u.Update) })
	}
	uses := func(side *arm) results.Number {
		return last(side, func(u *results.Update) float64 { return u.ReplayRatio.Float() })
	}
	var rows [][]string
	for _, fact := range []struct {
		name string
		of   func(*arm) string
	}{
		{"Compute of an update", func(a *arm) string { return number(cost(a)) }},
		{"Updates made", func(a *arm) string { return words.Whole(updates(a).Float()) }},
		{"Uses of a rollout", func(a *arm) string { return number(uses(a)) }},
		{"New rollouts", func(a *arm) string {
			return number(last(a, func(u *results.Update) float64 { return float64(u.Inserted) }))
		}},
		{"Staleness at use, versions", func(a *arm) string {
			return number(mean(a, func(u *results.Update) results.Number { return u.StalenessMean }))
		}},
		{"Inference GPUs at work", func(a *arm) string {
			return shareText(mean(a, func(u *results.Update) results.Number { return u.WorkerBusy }))
		}},
		{"Training GPUs at work", func(a *arm) string {
			return shareText(mean(a, func(u *results.Update) results.Number { return u.TrainerBusy }))
		}},
	} {
		row := []string{fact.name}
		for _, side := range arms {
			row = append(row, fact.of(side))
		}
		rows = append(rows, row)
	}
	for _, side := range arms[1:] {
		first := arms[0]
		a, b, m, n := cost(first), cost(side), updates(first), updates(side)
		if !a.Known() || !b.Known() {
			continue
		}
		s.Text = append(s.Text, fmt.Sprintf("An update of %s costs %s of compute, one of %s %s. It made %s updates against "+
			"%s, and used each rollout %s times against %s.", side.label, number(b), first.label, number(a),
			words.Whole(n.Float()), words.Whole(m.Float()), number(uses(side)), number(uses(first))))
	}
	s.Grids = []gridTable{factTable("", heads, withoutEmptyRows(rows))}
	s.Grids[0].Note = "Measured, medians over seeds. What a use teaches is in the accuracy: older rollouts teach less."
	return s
}
