package report

import (
	"io"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

// Study writes the page of a study: its sheet, and its arms with the folders of their runs. Links are relative to the study's folder.
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

// FoldArms reports whether there are so many arms that their table is shown on demand.
func (p *sheetPage) FoldArms() bool {
	const most = 12
	return len(p.Arms) > most
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

// aboutStudy is the line under the title. A run that is of two arms is one run.
func aboutStudy(s *results.Study) []string {
	runs := make(map[string]bool)
	for _, a := range s.Arms {
		for _, folder := range a.Folders {
			if folder != "" {
				runs[folder] = true
			}
		}
	}
	line := []string{countOf(len(s.Arms), "arm"), countOf(s.Seeds, "seed"), countOf(len(runs), "run")}
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
