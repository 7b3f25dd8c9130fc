package report

import (
	"fmt"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// Sheet writes a page of findings, figures and tables. An invalid sheet is refused with all of its problems.
func Sheet(w io.Writer, s *results.Sheet) error {
	p, err := newSheetPage(s)
	if err != nil {
		return err
	}
	p.addFacts(s.Facts)
	return p.write(w)
}

// newSheetPage validates and draws a sheet, without its facts.
func newSheetPage(s *results.Sheet) (*page, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &page{Kind: s.Kind, Title: s.Title, Lead: s.Lead, Tally: tally(s.Findings)}
	for _, f := range s.Findings {
		card := findingCard{Finding: f}
		card.Class, card.Sign = verdictLook(f.Verdict)
		if f.Check {
			p.Checks = append(p.Checks, card)
		} else {
			p.Findings = append(p.Findings, card)
		}
	}
	for _, part := range s.Sections {
		p.Sections = append(p.Sections, section{
			Title: part.Title, Text: part.Text, Command: part.Command, Rows: arranged(part.Figures),
			Grids: gridTables(part.Grids...),
		})
	}
	return p, nil
}

func (p *page) addFacts(facts []results.Fact) {
	if len(facts) == 0 {
		return
	}
	var rows [][]string
	for _, f := range facts {
		rows = append(rows, []string{f.Name, f.Text})
	}
	p.Sections = append(p.Sections,
		section{ID: "facts", Title: "How it was made", Grids: []gridTable{factTable("", nil, rows)}})
}

// verdictLook returns a verdict's class in the style sheet and its sign.
func verdictLook(v results.Verdict) (class, sign string) {
	switch v {
	case results.Holds:
		return "holds", "✓"
	case results.DoesNotHold:
		return "fails", "×"
	case results.Untested:
		return "untested", "–"
	default:
		return "open", "?"
	}
}

// tally counts the verdicts on claims that learning decides, in words.
func tally(findings []results.Finding) string {
	findings = slices.DeleteFunc(slices.Clone(findings), func(f results.Finding) bool { return f.Check })
	if len(findings) == 0 {
		return ""
	}
	count := make(map[results.Verdict]int)
	for _, f := range findings {
		count[f.Verdict]++
	}
	var parts []string
	for _, part := range []struct {
		verdict   results.Verdict
		one, many string
	}{{results.Holds, "holds", "hold"}, {results.DoesNotHold, "does not hold", "do not hold"},
		{results.Inconclusive, "is inconclusive", "are inconclusive"},
		{results.Untested, "is untested", "are untested"}} {
		if n := count[part.verdict]; n > 0 {
			parts = append(parts, words.Plural(n, part.one, part.many))
		}
	}
	claims := "One claim"
	if n := len(findings); n > 1 {
		claims = fmt.Sprintf("%d claims", n)
	}
	return claims + ": " + strings.Join(parts, ", ") + "."
}

// arranged draws a section's figures in rows. A single figure is large; simple figures in multiples of three stand
// three to a row; others stand two to a row, with the first large if the number is odd. A map takes the width that its
// columns need.
func arranged(figures []results.Figure) []figureRow {
	var rows []figureRow
	for len(figures) > 0 {
		n := 1
		if !broad(&figures[0]) {
			for n < len(figures) && !broad(&figures[n]) {
				n++
			}
		}
		first := n
		size := halves()
		switch {
		case n == 1 && (figures[0].Map == nil || broad(&figures[0])):
			size = large()
		case n%3 == 0 && simple(figures[:n]):
			size = thirds()
		case n%2 == 1 && figures[0].Map == nil:
			size, first = large(), 1
		}
		rows = append(rows, size.draw(figures[:first]))
		if first < n {
			rows = append(rows, halves().draw(figures[first:n]))
		}
		figures = figures[n:]
	}
	return rows
}

// broad reports whether a map needs the whole width of the page.
func broad(f *results.Figure) bool { return describe(f).Broad() }

// simple reports whether figures are readable when small.
func simple(figures []results.Figure) bool {
	const most = 4 // names in a legend
	for i := range figures {
		names := 0
		for _, c := range figures[i].Curves {
			if !c.Thin && c.Name != "" {
				names++
			}
		}
		if figures[i].Map != nil || names > most || len(figures[i].Marks) > 0 {
			return false
		}
	}
	return true
}

// renderStudy writes the page of a study: its sheet, and its arms with links to the folders of their runs. Links are
// relative to the study's folder.
func renderStudy(w io.Writer, s *results.Study) error {
	p, err := newSheetPage(&s.Sheet)
	if err != nil {
		return err
	}
	p.About = aboutStudy(s)
	if s.Quick {
		p.Caution = "A rehearsal with small budgets: its figures are no evidence for or against anything."
	}
	if len(s.Arms) > 0 {
		arms := section{ID: "arms", Title: "Arms",
			Text: []string{"The settings of each arm that differ from the first, and the folders of its runs by seed."}}
		for i, a := range s.Arms {
			arms.Arms = append(arms.Arms, armOfStudy(a, i == 0))
		}
		p.Sections = append(p.Sections, arms)
	}
	p.addFacts(s.Sheet.Facts)
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

// runLink links to the folder of a run.
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

// folderURL returns the relative, escaped address of a folder.
func folderURL(folder string) string {
	parts := strings.Split(path.Clean(filepath.ToSlash(folder)), "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return "./" + strings.TrimPrefix(strings.Join(parts, "/")+"/", "./")
}

// aboutStudy is the line under the title. A run shared by two arms counts once.
func aboutStudy(s *results.Study) []string {
	runs := make(map[string]bool)
	for _, a := range s.Arms {
		for _, folder := range a.Folders {
			if folder != "" {
				runs[folder] = true
			}
		}
	}
	line := []string{words.Plural(len(s.Arms), "arm"), words.Plural(s.Seeds, "seed"), words.Plural(len(runs), "run")}
	if !s.Ended.IsZero() {
		line = append(line, s.Ended.UTC().Format("2 January 2006"))
	}
	return line
}
