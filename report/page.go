package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/results"
)

//go:embed page.html
var pageText string

//go:embed style.css
var styleText string

// markup is HTML that must not be escaped.
type markup = template.HTML

// figure is a titled plot. If there are two SVGs, the second is for narrow screens. Empty explains a missing SVG.
type figure struct {
	Title string
	Note  string
	SVG   []markup
	Empty string
}

// legend names the colour of an arm.
type legend struct {
	Class string
	Label string
	Note  string
}

// armSection is the figures of one arm.
type armSection struct {
	Class   string // of its colour key
	Label   string
	Figures []figure
}

// config is a configuration to print.
type config struct{ Label, Text string }

// page is the input of the template page.html.
type page struct {
	Kind     string
	Title    string
	About    []string
	Headline headline
	Warnings []string // what keeps the arms from being compared as they stand
	Legend   []legend
	Target   string   // of accuracy, where there is one
	Guides   []string // of accuracy: who else plays, and what comes of it
	Reached  bool     // by some arm's median
	Spread   bool     // more than one seed somewhere: thin lines are drawn
	Banded   bool     // and bands
	Stopped  bool     // some run has not ended, and is crossed

	Large   []figure
	Small   []figure
	NoEvals string

	Seeds    []seedRow
	Arms     []armRow
	Against  []againstRow
	Chance   string
	Training []figure
	Further  []figure // by the objective alone, folded away
	Missing  string
	ByAge    []figure // of what tables held, and of the effective sample size
	Sampling []figure // over the updates
	Prompts  []figure
	Reuse    []armSection
	GPUs     []figure
	Idle     bool // some GPU was, in synchronous mode
	Facts    []factRow
	Configs  []config
	Build    string

	arms   []*arm
	target results.Number
}

func newPage(arms []*arm) *page { return &page{arms: arms} }

// CSS gives the template the style sheet.
func (p *page) CSS() template.CSS { return template.CSS(styleText) }

// Compared reports whether the page has several arms.
func (p *page) Compared() bool { return len(p.arms) > 1 }

// Many reports whether there are so many arms that the sections of single arms are collapsed.
func (p *page) Many() bool { return len(p.arms) > 3 }

// write draws everything and executes the template.
func (p *page) write(w io.Writer) error {
	if err := p.draw(); err != nil {
		return err
	}
	p.describe()
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// draw draws the figures.
func (p *page) draw() (err error) {
	if p.Large, p.Small, err = accuracyFigures(p.arms, p.target); err != nil {
		return err
	}
	if len(p.Large) == 0 {
		p.NoEvals = "No evaluation was made, so that there is no accuracy to show."
	}
	var missing []string
	if p.Training, missing, err = trainingFigures(p.arms, append(commonMetrics(), episodeMetrics()...)); err != nil {
		return err
	}
	if p.Further, _, err = trainingFigures(p.arms, furtherMetrics(p.arms)); err != nil {
		return err
	}
	if len(missing) > 0 {
		p.Missing = "Not measured: " + strings.Join(missing, ", ") + "."
	}
	if err := p.drawSampling(); err != nil {
		return err
	}
	for _, side := range p.arms {
		section := armSection{Class: side.class(), Label: side.label}
		if section.Figures, err = figuresOf(side, histograms()); err != nil {
			return err
		}
		p.Reuse = append(p.Reuse, section)
		gpus, err := gpuFigure(side)
		if err != nil {
			return err
		}
		p.GPUs = append(p.GPUs, gpus)
		p.Idle = p.Idle || idles(side)
	}
	return nil
}

// drawSampling draws the figures of prioritized sampling and of prompt replay.
func (p *page) drawSampling() (err error) {
	for _, side := range p.arms {
		f, ok, err := priorityFigure(side, p.Compared())
		if err != nil {
			return err
		}
		if ok {
			p.ByAge = append(p.ByAge, f)
		}
	}
	f, ok, err := essFigure(p.arms)
	if err != nil {
		return err
	}
	if ok {
		p.ByAge = append(p.ByAge, f)
	}
	if p.Sampling, _, err = trainingFigures(p.arms, samplingMetrics()); err != nil {
		return err
	}
	p.Prompts, err = promptFigures(p.arms)
	return err
}

// describe fills in the texts.
func (p *page) describe() {
	p.Facts = factRows(p.arms)
	if p.target.Known() {
		p.Target = words.Amount(p.target.Float())
		for _, side := range p.arms {
			p.Reached = p.Reached || results.MedianReach(side.evals(), p.target.Float()).Reached
		}
	}
	for _, g := range players(p.arms, passOf) {
		p.Guides = append(p.Guides, g.name+" "+fraction(results.Num(g.y)))
	}
	for _, side := range p.arms {
		l := legend{Class: side.class(), Label: side.label}
		var notes []string
		if side.note != "" {
			notes = append(notes, side.note)
		}
		if n := len(side.runs); n > 1 {
			notes = append(notes, fmt.Sprintf("median of %d seeds", n))
			p.Spread = true
			p.Banded = len(p.arms) <= maxBandedArms
		}
		p.Stopped = p.Stopped || p.Compared() &&
			slices.ContainsFunc(side.runs, func(r *results.Run) bool { return !ended(r) && len(r.Evals) > 0 })
		l.Note = strings.Join(notes, ", ")
		p.Legend = append(p.Legend, l)
		if len(side.runs) > 0 {
			label := side.label
			if len(side.runs) > 1 {
				label += fmt.Sprintf(" (seed %d; the others differ in the seed)", side.runs[0].Seed)
			}
			p.Configs = append(p.Configs, config{label, side.runs[0].Config})
		}
		if s := side.summaries(); len(s) > 0 && p.About == nil {
			p.About = about(s[0], p.arms)
			p.Build = buildText(s[0].Build)
		}
	}
}

// about is the line under the title.
func about(s *results.Summary, arms []*arm) []string {
	line := []string{"task " + s.Task, words.Whole(float64(s.Parameters)) + " parameters",
		"batch of " + words.Whole(float64(s.BatchSize))}
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

// arm is one configuration under one or more seeds: a side of a comparison, one of several arms, or the single run of a
// report.
type arm struct {
	label string // for the reader
	note  string // beside it in the legend
	role  role   // its colour
	runs  []*results.Run
}

// class returns the style sheet's name of the arm's colour.
func (a *arm) class() string { return a.role.paint().variable }

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
	var values []float64
	for _, s := range a.summaries() {
		if n := of(s); n.Known() {
			values = append(values, n.Float())
		}
	}
	return results.Num(results.Median(values))
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
	for value, count := range counts {
		h = append(h, [2]uint64{value, count})
	}
	slices.SortFunc(h, func(x, y [2]uint64) int {
		if x[0] < y[0] {
			return -1
		}
		return 1
	})
	return h
}
