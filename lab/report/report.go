// Package report renders results as one HTML file: a run, a comparison, arms, a study or a recommended design, in
// words, plots and tables.
//
// [Write] reads a folder of a run, a comparison or a study and writes report.html into it; [Folder] writes the page to
// a writer. [Arms] writes a page over up to eight configurations of several seeds each, and [Design] the page of a
// recommendation. A page is self-contained: inline SVG, one style sheet, one script, nothing from the network. It
// follows the reader's light or dark setting, fits narrow screens, and prints in full. The same results give the same
// bytes.
//
// The drawing is complete without the script. Every figure carries its points too, and the script of package figures
// shows their values, hides arms, changes axes and smooths, on that drawing. Its state is the address's fragment.
//
// A page names what is missing instead of drawing it: a killed run has no summary and so no histograms, a run with
// fewer than two evaluations has not reached a target, and a metric that was not measured has no plot. Long lines are
// thinned so that peaks and collapses stay visible.
//
// Curves differ in hue and in the shape of their points, so that forty can be told apart. Dashes mean that a
// line was computed; thin lines are single seeds. Every verdict has a word and a sign as well as a colour. Figures side
// by side with equal axes share one range.
//
// The definitions are those of docs/METHODS.md. Package results computes the numbers; this package draws and words
// them.
package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// Write reads a folder of a run, a comparison or a study and writes report.html into it.
func Write(dir string) error {
	var page bytes.Buffer
	if err := Folder(&page, dir); err != nil {
		return err
	}
	return disk.WriteFile(filepath.Join(dir, results.ReportFile), page.Bytes())
}

// Folder writes the page of a folder of a run, a comparison or a study, finished or not.
func Folder(page io.Writer, dir string) error {
	if results.IsStudy(dir) {
		s, err := results.ReadStudy(dir)
		if err != nil {
			return err
		}
		return renderStudy(page, s)
	}
	if results.IsComparison(dir) {
		c, err := results.ReadComparison(dir)
		if err != nil {
			return err
		}
		return renderComparison(page, c)
	}
	run, err := results.ReadRun(dir)
	if err != nil {
		return err
	}
	return renderRun(page, run)
}

// renderRun writes the report of one run.
func renderRun(w io.Writer, run *results.Run) error {
	title, target := "A training run", results.Number{}
	if s := run.Summary; s != nil {
		title, target = cmp.Or(s.Name, title), s.Target
	}
	p := newPage([]*arm{{label: "this run", colour: 1, runs: []*results.Run{run}}}, target)
	p.Kind, p.Title, p.Headline = "Training run", title, runHeadline(run)
	if s, ok := problemSection(run); ok {
		p.Sections = slices.Insert(p.Sections, 1, s) // behind the accuracy
	}
	p.Sections = append(p.Sections, section{ID: "rollouts", Title: "Rollouts", Text: []string{
		"The first command lists the rollouts in the table of the last checkpoint in a terminal, the second shows them on " +
			"a page, token by token: link Rollouts of the run. The third writes that page with some of them into a file, of " +
			"1 MB at most, to send or to keep. This file has none of them."},
		Command: "reprise rollouts RUN\nreprise board FOLDER-OF-RUNS\nreprise rollouts RUN --html rollouts.html"})
	return p.write(w)
}

// renderComparison writes the report of a comparison, finished or not.
func renderComparison(w io.Writer, c *results.Comparison) error {
	title, target := "Replay against no replay", results.Number{}
	var tables []section
	if c.Compare != nil {
		if c.Compare.Name != "" {
			title = c.Compare.Name + ": replay against no replay"
		}
		target, tables = results.Num(c.Compare.Target), []section{seedSection(c.Compare)}
	}
	arms := []*arm{{label: "baseline", runs: c.Baseline}, {label: "replay", colour: 1, runs: c.Replay}}
	p := newPage(arms, target, tables...)
	p.Kind, p.Title, p.Headline = "Comparison", title, comparisonHeadline(c)
	p.compareSides(arms, true)
	return p.write(w)
}

// Arms writes a page over up to MostArms arms, each a configuration under one or more seeds. The other arms are
// compared with the first.
func Arms(w io.Writer, title string, arms []results.NamedRuns) error {
	if n := len(arms); n < 1 || n > MostArms {
		return fmt.Errorf("%d arms: a page shows 1 to %d", n, MostArms)
	}
	table := results.NewTable(arms)
	var sides []*arm
	for i, a := range arms {
		sides = append(sides, &arm{label: a.Name, colour: i, runs: a.Runs})
	}
	p := newPage(sides, table.Target, armsSection(table))
	p.Kind, p.Title, p.Headline = "Arms", cmp.Or(title, "Arms side by side"), armsHeadline(table)
	p.Warnings = table.Warnings
	p.compareSides(sides, false)
	return p.write(w)
}

// headline is the result in words, with one large number and a few facts.
type headline struct {
	Big      string // "38%"
	BigLabel string
	Caution  string // why it is none
	Text     string
	Points   []string // that follow the text
	Lead     string   // what the facts beside it are
	Beside   []fact
}

// fact is a named number.
type fact struct{ Name, Value, Note string }

func comparisonHeadline(c *results.Comparison) *headline {
	if c.Compare == nil {
		return &headline{Big: "…", BigLabel: "not ended",
			Text: "The comparison has not ended: nothing can be said of savings yet."}
	}
	r := c.Compare.Ratio
	h := &headline{Text: c.Compare.Statement}
	switch saved := 1 - r.Mean.Float(); {
	case r.Seeds == 0 && c.Compare.Above():
		h.Big, h.BigLabel = "–", "both arms begin at the target"
	case r.Seeds == 0:
		h.Big, h.BigLabel = "–", "no arm reached the target"
	case !r.Mean.Known(), r.Bound == results.AtMost && saved <= 0, r.Bound == results.AtLeast && saved >= 0:
		h.Big, h.BigLabel = "–", "not every run reached the target"
	case saved >= 0:
		h.Big, h.BigLabel = words.Percent(saved, 0), "of the baseline's compute saved"
	default:
		h.Big, h.BigLabel = words.Percent(-saved, 0), "more compute than the baseline"
	}
	if h.Big != "–" && r.Bound != results.Exactly {
		h.Big = "≥ " + h.Big
	}
	switch n := len(c.Compare.Seeds); {
	case n == 1:
		h.Caution = "One seed: no claim"
	case !c.Compare.Claim:
		h.Caution = fmt.Sprintf("%d seeds: no claim", n)
	}
	if r.Seeds == 0 {
		return h
	}
	h.Lead = "What the target cost, replay over baseline:"
	h.Beside = []fact{
		ratioFact("compute by formula", r),
		ratioFact("busy GPU time", c.Compare.RatioBusy),
		ratioFact("all GPU time", c.Compare.RatioAll),
		ratioFact("clock time", c.Compare.RatioClock),
	}
	return h
}

// ratioFact writes a ratio with its interval.
func ratioFact(name string, r results.Effect) fact {
	f := fact{Name: name, Value: r.Text(ratioText)}
	if interval := r.IntervalText(ratioText); interval != "" {
		f.Note = "95%: " + interval
	}
	return f
}

// ratioText writes a ratio, or a dash if it is not known.
func ratioText(v float64) string { return words.Fixed(v, 2) }

func runHeadline(run *results.Run) *headline {
	h := &headline{Big: "–", BigLabel: "not evaluated yet"}
	if n := len(run.Evals); n > 0 {
		last := run.Evals[n-1]
		h.Big, h.BigLabel = fmt.Sprintf("%.3f", last.Pass1), "held-out pass@1 at the last evaluation"
		h.Text = fmt.Sprintf("Held-out pass@1 of %.3f after %s updates, on %d problems, %s.", last.Pass1,
			words.Whole(float64(last.Update)), last.Problems, answered(last))
		if n > 1 {
			h.Text += fmt.Sprintf(" It began at %.3f and reached %.3f.", run.Evals[0].Pass1,
				results.Level(run.Evals).Float())
		}
	}
	s := run.Summary
	if s == nil {
		h.Caution = "This run has not ended"
		h.Text = strings.TrimSpace(h.Text + " There is no summary yet: what follows is the run so far.")
		return h
	}
	if s.Target.Known() {
		if s.ToTarget.Reached {
			h.Text += fmt.Sprintf(" It reached the target of %.4g at update %s, after %s of compute.",
				s.Target.Float(), words.Whole(s.ToTarget.Update.Float()), words.Whole(s.ToTarget.Compute.Float()))
		} else {
			h.Text += fmt.Sprintf(" It did not reach the target of %.4g.", s.Target.Float())
		}
	}
	h.Beside = []fact{
		{"updates", words.Whole(float64(s.Updates)), "ended: " + s.Ended},
		{"compute", words.Amount(s.Compute), "by formula"},
		{"replay ratio", number(s.ReplayRatio), "expected " + words.Amount(s.ReplayRatioPlanned)},
		{"pass@1 reached", fraction(s.Pass1Level), "held-out"},
	}
	return h
}

// number writes a measured number with three significant digits, or a dash if it is unknown.
func number(n results.Number) string { return words.Amount(n.Float()) }

// fraction writes an accuracy with three decimals.
func fraction(n results.Number) string { return words.Fixed(n.Float(), 3) }

// armsHeadline is the headline of a page over arms.
func armsHeadline(t *results.Table) *headline {
	h := &headline{Big: fmt.Sprint(len(t.Arms)), BigLabel: "arms, " + seedsText(t), Text: t.Caution, Points: t.Findings}
	if len(t.Arms) == 1 {
		h.BigLabel = "arm, " + seedsText(t)
	}
	switch {
	case !t.Claim && len(t.Arms) > 1:
		h.Caution = "No claim"
	case t.Claim:
		h.Text = fmt.Sprintf("Against %s, seed by seed:", t.Arms[0].Name)
	}
	h.Lead = "Held-out pass@1 at the last evaluation, median over seeds:"
	for _, row := range t.Arms {
		f := fact{Name: row.Name, Value: fraction(row.Last.Median)}
		if row.Last.Runs > 1 {
			f.Note = fraction(row.Last.Low) + "–" + fraction(row.Last.High)
		}
		h.Beside = append(h.Beside, f)
	}
	return h
}

// seedsText writes the number of seeds per arm.
func seedsText(t *results.Table) string {
	least, most := t.Arms[0].Runs, t.Arms[0].Runs
	for _, row := range t.Arms {
		least, most = min(least, row.Runs), max(most, row.Runs)
	}
	switch {
	case least < most:
		return fmt.Sprintf("%d to %d seeds each", least, most)
	case most == 1:
		return "one seed each"
	default:
		return fmt.Sprintf("%d seeds each", most)
	}
}
