package report

import (
	"fmt"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/results"
)

// Study writes the page of a study: its sheet, its arms with the folders of their runs, and what they ran on. Links are relative to the
// study's folder.
func Study(w io.Writer, s *results.Study) error {
	p, err := newSheetPage(&s.Sheet)
	if err != nil {
		return err
	}
	p.About = aboutStudy(s)
	if s.Quick {
		p.Caution = "A rehearsal with small budgets: its figures are no evidence for or against anything."
	}
	for i, a := range s.Arms {
		p.Arms = append(p.Arms, armOfStudy(a, i == 0))
	}
	p.Facts = studyFacts(s)
	p.Numbers = results.StudyFile
	return p.write(w)
}

// studyArm is a row of the table of a study's arms.
type studyArm struct {
	Name    string
	Runs    []runLink
	Failed  []string
	Differs []string
	First   bool // what the others differ from
}

// runLink leads to the folder of a run.
type runLink struct{ Name, Folder string }

func armOfStudy(a results.StudyArm, first bool) studyArm {
	arm := studyArm{Name: a.Name, Failed: a.Failed, Differs: a.Differs, First: first}
	for i, folder := range a.Folders {
		if folder != "" {
			arm.Runs = append(arm.Runs, runLink{strconv.Itoa(i + 1), folderURL(folder)})
		}
	}
	return arm
}

// folderURL returns a relative address of a folder, whatever its name holds.
func folderURL(folder string) string {
	parts := strings.Split(path.Clean(filepath.ToSlash(folder)), "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return "./" + strings.TrimPrefix(strings.Join(parts, "/")+"/", "./")
}

// aboutStudy is the line under the title.
func aboutStudy(s *results.Study) []string {
	runs := 0
	for _, a := range s.Arms {
		runs += len(a.Folders)
	}
	line := []string{countOf(len(s.Arms), "arm"), countOf(s.Seeds, "seed"), countOf(runs, "run")}
	if !s.Ended.IsZero() {
		line = append(line, s.Ended.UTC().Format("2 January 2006"))
	}
	return line
}

// countOf writes a number of things.
func countOf(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return grouped(float64(n)) + " " + thing
}

// studyFacts returns the facts that the study's sheet tells, and before them what study.json knows besides.
func studyFacts(s *results.Study) []results.Fact {
	told := make(map[string]bool)
	for _, f := range s.Sheet.Facts {
		told[strings.ToLower(f.Name)] = true
	}
	var facts []results.Fact
	for _, f := range []results.Fact{
		{Name: "Seeds", Text: seedRange(s.Seeds)},
		{Name: "Machine", Text: machineText(s.Machine)},
		{Name: "Commit", Text: buildText(s.Build)},
		{Name: "Time", Text: timeText(s)},
	} {
		if f.Text != "" && !told[strings.ToLower(f.Name)] {
			facts = append(facts, f)
		}
	}
	return append(facts, s.Sheet.Facts...)
}

func seedRange(n int) string {
	switch {
	case n < 1:
		return ""
	case n == 1:
		return "1"
	default:
		return fmt.Sprintf("1 to %d, of each arm", n)
	}
}

func machineText(m results.Machine) string {
	var parts []string
	for _, part := range []string{m.CPU, m.System} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if m.Cores > 0 {
		parts = append(parts, countOf(m.Cores, "core"))
	}
	return strings.Join(parts, ", ")
}

// timeText says how long the runs took and when the study was made.
func timeText(s *results.Study) string {
	var parts []string
	if s.Seconds > 0 {
		text := fmt.Sprintf("runs of %s in sum", time.Duration(s.Seconds*float64(time.Second)).Round(time.Second))
		if s.AtOnce > 0 {
			text += fmt.Sprintf(", %d at once", s.AtOnce)
		}
		parts = append(parts, text)
	}
	if !s.Began.IsZero() && !s.Ended.IsZero() {
		const minute = "2006-01-02 15:04"
		parts = append(parts, fmt.Sprintf("from %s to %s UTC", s.Began.UTC().Format(minute), s.Ended.UTC().Format(minute)))
	}
	return strings.Join(parts, "; ")
}
