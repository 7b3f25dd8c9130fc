package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// arm is one configuration under one or more seeds: a side of a comparison, one of several arms, or the single run of a
// report.
type arm struct {
	label  string // for the reader
	colour int
	runs   []*results.Run

	// numbers of the page's ways, set by measured: of the runs, and of their median
	ways   map[*results.Run]int
	middle int
}

// name is the arm's name where its median is drawn.
func (a *arm) name() string {
	if n := len(a.runs); n > 1 {
		return fmt.Sprintf("%s, %d seeds", a.label, n)
	}
	return a.label
}

// evals returns the evaluations of every run that has any.
func (a *arm) evals() [][]results.Eval {
	var evals [][]results.Eval
	for _, r := range a.runs {
		if len(r.Evals) > 0 {
			evals = append(evals, r.Evals)
		}
	}
	return evals
}

// summaries returns the summaries of the finished runs.
func (a *arm) summaries() []*results.Summary {
	var s []*results.Summary
	for _, r := range a.runs {
		if r.Summary != nil {
			s = append(s, r.Summary)
		}
	}
	return s
}

// median returns the median of a number over the finished runs that know it.
func (a *arm) median(of func(*results.Summary) results.Number) results.Number {
	return medianNumber(a.summaries(), of)
}

// medianNumber returns the median of a number over the items that know it.
func medianNumber[T any](list []T, of func(T) results.Number) results.Number {
	values := make([]float64, len(list))
	for i, v := range list {
		values[i] = of(v).Float()
	}
	return results.RangeOf(values).Median
}

// histogram adds up a histogram over the finished runs.
func (a *arm) histogram(of func(*results.Summary) results.Histogram) results.Histogram {
	counts := make(map[uint64]uint64)
	for _, s := range a.summaries() {
		for _, bin := range of(s) {
			counts[bin[0]] += bin[1]
		}
	}
	var h results.Histogram
	for _, value := range slices.Sorted(maps.Keys(counts)) {
		h = append(h, [2]uint64{value, counts[value]})
	}
	return h
}

// priorities returns the final state of the prioritized tables.
func (a *arm) priorities() []*results.Priority {
	var list []*results.Priority
	for _, s := range a.summaries() {
		if s.Sampling != nil && s.Sampling.Priority != nil {
			list = append(list, s.Sampling.Priority)
		}
	}
	return list
}

// replayingPrompts returns the arm with only its finished runs that replayed prompts.
func (a *arm) replayingPrompts() *arm {
	kept := &arm{label: a.label, colour: a.colour, ways: a.ways, middle: a.middle}
	for _, r := range a.runs {
		if r.Summary != nil && r.Summary.PromptReplay != nil {
			kept.runs = append(kept.runs, r)
		}
	}
	return kept
}

// evaluations returns every evaluation of the arms' runs.
func evaluations(arms []*arm) (all []results.Eval) {
	for _, side := range arms {
		for _, run := range side.runs {
			all = append(all, run.Evals...)
		}
	}
	return all
}

// anyEnded reports whether some run has a summary.
func anyEnded(arms []*arm) bool {
	return slices.ContainsFunc(arms, func(a *arm) bool { return len(a.summaries()) > 0 })
}

// severalSeeds reports whether some arm has more than one run.
func severalSeeds(arms []*arm) bool {
	return slices.ContainsFunc(arms, func(a *arm) bool { return len(a.runs) > 1 })
}

// newPage draws everything that the arms' runs recorded, with the given tables after the accuracy.
func newPage(arms []*arm, target results.Number, tables ...section) *page {
	p := &page{Measures: measured(arms).Data()}
	for _, side := range arms {
		if s := side.summaries(); len(s) > 0 {
			p.About, p.Build = about(s[0], arms), buildText(s[0].Build)
			break
		}
	}
	p.Sections = append([]section{accuracySection(arms, target)}, tables...)
	p.Sections = append(p.Sections, trainingSection(arms))
	if s, ok := samplingSection(arms); ok {
		p.Sections = append(p.Sections, s)
	}
	if s, ok := promptSection(arms); ok {
		p.Sections = append(p.Sections, s)
	}
	p.Sections = append(p.Sections, reuseSection(arms), gpuSection(arms))
	if s, ok := liveSection(arms); ok {
		p.Sections = append(p.Sections, s)
	}
	if anyEnded(arms) {
		p.Sections = append(p.Sections, factSection(arms))
	}
	p.Sections = append(p.Sections, configSection(arms))
	return p
}

// about is the line under the title.
func about(s *results.Summary, arms []*arm) []string {
	line := []string{"task " + s.Task, words.Whole(float64(s.Parameters)) + " parameters"}
	if !slices.ContainsFunc(arms, func(a *arm) bool {
		return slices.ContainsFunc(a.summaries(), func(o *results.Summary) bool { return o.BatchSize != s.BatchSize })
	}) {
		line = append(line, "batch of "+words.Whole(float64(s.BatchSize)))
	}
	runs := len(arms[0].runs)
	switch {
	case slices.ContainsFunc(arms, func(a *arm) bool { return len(a.runs) != runs }):
		return line // the legend says it of each
	case runs > 1:
		return append(line, fmt.Sprintf("%d seeds per arm", runs))
	default:
		return append(line, fmt.Sprintf("seed %d", s.Seed))
	}
}

func buildText(b results.Build) string {
	parts := []string{b.Go}
	if b.GoMLX != "" {
		parts = append(parts, "GoMLX "+b.GoMLX)
	}
	if b.Revision != "" {
		revision := "revision " + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			revision += " (modified)"
		}
		parts = append(parts, revision)
	}
	return strings.Join(parts, ", ")
}

// configSection prints the configuration of each arm.
func configSection(arms []*arm) section {
	s := section{ID: "configuration", Title: "Configuration"}
	for _, side := range arms {
		if len(side.runs) == 0 {
			continue
		}
		label := side.label
		if len(side.runs) > 1 {
			label += fmt.Sprintf(" (seed %d; the others differ in the seed)", side.runs[0].Seed)
		}
		s.Configs = append(s.Configs, config{label, side.runs[0].Config})
	}
	return s
}
