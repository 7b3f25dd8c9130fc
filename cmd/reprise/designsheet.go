package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/results"
)

// mostMapped is how many divisions of the GPUs the page's map shows.
const mostMapped = 24

// sheet is the page of a calculation; schedule is nil without --sim.
func (found *calculation) sheet(schedule *simulated) *results.Sheet {
	o, p := found.best, found.plan
	s := &results.Sheet{
		Kind:  "Design",
		Title: fmt.Sprintf("%s, %s, a buffer of %d", counted(p.Workers, "worker"), counted(p.Trainers, "trainer"), p.Capacity),
		Lead: []string{
			fmt.Sprintf("The replay configuration that costs least for %s, by the theory of [ER] theorem 3.5: a staleness horizon of %s and %s uses of each rollout where GPUs and rollouts could be divided at will.",
				found.fleetText(), inVersions(o.X), amount(o.Y)),
			fmt.Sprintf("It saves %.1f%% of the compute of on-policy batches drawn with replacement; %s.", 100*p.Savings, found.onceText(p.Objective)),
		},
		Sections: []results.Section{
			{Title: "Why", Text: found.why(), Grids: []results.Grid{found.configurationGrid()}},
			{Title: "To train so", Text: []string{found.command()}},
			{Title: "Mind", Text: found.warnings},
			found.whatIfSection(),
			{Title: "Over the rollout cost", Figures: found.figure4()},
			{Title: "Over the staleness horizon", Figures: found.figure5()},
			{Title: "Prompts whose rewards are all alike", Text: []string{zeroVarianceText}, Figures: found.figureGRPO()},
		},
		Facts: found.facts(schedule),
	}
	s.Sections = append(s.Sections, found.noiseSections()...)
	if schedule != nil {
		s.Sections = append(s.Sections, simSections(schedule)...)
	}
	return s
}

func (found *calculation) configurationGrid() results.Grid {
	p := found.plan
	g := results.Grid{Title: "The configuration", Columns: []string{"", "value", "from"}, Rows: [][]string{
		{"workers, trainers", fmt.Sprintf("%d, %d", p.Workers, p.Trainers), "(W, T)"},
		{"capacity", fmt.Sprint(p.Capacity), "N, rollouts"},
		{"batch", fmt.Sprint(p.Batch), "B, rollouts per update"},
		{"new per update", fmt.Sprintf("%.4g", p.RolloutsPerUpdate), "R = B (W/T)/mu"},
		{"compute ratio", fmt.Sprintf("%.3f", p.ComputeRatio), "gamma = (1 + W/T)/(1 + mu)"},
		{"expected replay ratio", fmt.Sprintf("%.3f", p.ReplayRatio), "y = B/R = mu T/W"},
		{"staleness horizon", fmt.Sprintf("%.4g", p.Horizon), "x = N/R, versions"},
		{"greatest staleness, about", fmt.Sprintf("%.4g", p.Staleness), "N/R + 2D + 1"},
		{"cost", fmt.Sprintf("%.4g", p.Objective), "J(x, y)"},
		{"expected savings", fmt.Sprintf("%.1f%%", 100*p.Savings), "1 - J(x, y)/J(1, 1)"},
	}}
	if b := found.bound; b != nil {
		g.Rows = append(g.Rows, []string{"bound on the mean squared gradient", fmt.Sprintf("%.4g", b.Bound),
			fmt.Sprintf("theorem 3.4: %s, eta %.4g of at most %.4g", counted(b.Updates, "update"), b.LearningRate, b.Most)})
	}
	return g
}

func (found *calculation) whatIfSection() results.Section {
	g := found.nearest(mostMapped)
	m := &results.HeatMap{Digits: 1, Unit: "savings, %"}
	for _, n := range g.Capacities {
		m.Columns = append(m.Columns, fmt.Sprint(n))
	}
	high := highest(g.Savings)
	var marks []results.MarkedAt
	for i, s := range g.Splits {
		m.Rows = append(m.Rows, fmt.Sprintf("(%d, %d)", s.Workers, s.Trainers))
		row := make([]results.Number, len(g.Savings[i]))
		for k, v := range g.Savings[i] {
			row[k] = results.Num(100 * v)
			if v == high {
				marks = append(marks, results.MarkedAt{Name: "highest", X: float64(k), Y: float64(i)})
			}
		}
		m.Values = append(m.Values, row)
	}
	return results.Section{
		Title: "What if",
		Text:  []string{"More trainers per worker use each rollout more often; a larger buffer is more diverse and older. Cells are empty where a buffer is too small for its batch or its groups, or larger than the noise profile reaches."},
		Figures: []results.Figure{{
			Title: "Savings by division of the GPUs and capacity", Note: "Expected savings in percent against on-policy batches drawn with replacement, 1 - J(x, y)/J(1, 1).",
			X: results.Axis{Title: "capacity N, rollouts"}, Y: results.Axis{Title: "(workers, trainers)"}, Map: m, Marks: marks,
		}},
		Grids: []results.Grid{{
			Title: "Neighbours", Note: "One step from the configuration in GPUs or in capacity.",
			Columns: []string{"", "W", "T", "N", "J", "beside it", "savings", "remark"}, Rows: found.neighbourRows(),
		}},
	}
}

// facts says what the page rests on.
func (found *calculation) facts(schedule *simulated) []results.Fact {
	facts := []results.Fact{
		{Name: "rollout cost", Text: fmt.Sprintf("mu = %.4g, train cost m = %.4g; %s", found.cost, found.theory.TrainCost, found.costFrom)},
		{Name: "correlation", Text: fmt.Sprintf("rho = %.4g; %s", found.theory.Correlation, found.correlationFrom)},
		{Name: "noise", Text: fmt.Sprintf("%s; %s", found.noiseText(), found.noiseFrom)},
		{Name: "fleet", Text: found.fleetText()},
	}
	if len(found.noise) == 0 { // else the section of the noise profile has them
		for _, sentence := range found.measured {
			facts = append(facts, results.Fact{Name: "measured", Text: sentence})
		}
	}
	seeds := "none: formulas draw nothing"
	if len(found.measured) > 0 {
		seeds = "those of the runs measured"
	}
	if schedule != nil {
		seeds += fmt.Sprintf("; of the schedule without a model: %d", schedule.Seed)
	}
	build := results.ThisBuild()
	commit := build.Revision
	if commit == "" {
		commit = "not known"
	} else if build.Modified {
		commit += ", changed"
	}
	words := []string{"reprise"}
	for _, word := range os.Args[1:] {
		words = append(words, quoted(word))
	}
	return append(facts,
		results.Fact{Name: "seeds", Text: seeds},
		results.Fact{Name: "commit", Text: commit},
		results.Fact{Name: "machine", Text: fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())},
		results.Fact{Name: "time", Text: fmt.Sprintf("%s, %.3g s", found.began.UTC().Format(time.DateTime+" MST"), found.took.Seconds())},
		results.Fact{Name: "made by", Text: strings.Join(words, " ")})
}
