package report

import (
	"bytes"
	"cmp"
	"io"
	"path/filepath"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/results"
)

// Write reads the folder dir, of a run, a comparison or a study, and writes report.html into it.
func Write(dir string) error {
	var page bytes.Buffer
	if err := read(dir, &page); err != nil {
		return err
	}
	return disk.WriteFile(filepath.Join(dir, results.ReportFile), page.Bytes())
}

// read writes the report of whichever kind of folder dir is.
func read(dir string, page io.Writer) error {
	if results.IsStudy(dir) {
		s, err := results.ReadStudy(dir)
		if err != nil {
			return err
		}
		return Study(page, s)
	}
	if results.IsComparison(dir) {
		c, err := results.ReadComparison(dir)
		if err != nil {
			return err
		}
		return Comparison(page, c)
	}
	run, err := results.ReadRun(dir)
	if err != nil {
		return err
	}
	return Run(page, run)
}

// Run writes the report of one run.
func Run(w io.Writer, run *results.Run) error {
	a := &arm{label: "this run", role: replayColor, runs: []*results.Run{run}}
	p := newPage([]*arm{a})
	p.Title = "A training run"
	if s := run.Summary; s != nil {
		p.Title = cmp.Or(s.Name, p.Title)
		p.target = s.Target
	}
	p.Kind = "Training run"
	p.Headline = runHeadline(run)
	return p.write(w)
}

// Comparison writes the report of a comparison, whatever part of it has ended.
func Comparison(w io.Writer, c *results.Comparison) error {
	baseline := &arm{label: "baseline", note: "no replay", role: baselineColor, runs: c.Baseline}
	replay := &arm{label: "replay", role: replayColor, runs: c.Replay}
	p := newPage([]*arm{baseline, replay})
	p.Kind = "Comparison"
	p.Title = "Replay against no replay"
	if c.Compare != nil {
		if name := c.Compare.Name; name != "" {
			p.Title = name + ": replay against no replay"
		}
		p.target = results.Num(c.Compare.Target)
		p.Seeds = seedRows(c.Compare)
	}
	p.Headline = comparisonHeadline(c)
	return p.write(w)
}
