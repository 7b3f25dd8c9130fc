package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

//go:embed sheet.html
var sheetText string

//go:embed sheet.css
var sheetStyleText string

// Sheet writes the page of findings, figures and tables that belong to no single run. A sheet that cannot be drawn as it stands is
// refused with everything that is wrong with it.
func Sheet(w io.Writer, s *results.Sheet) error {
	p, err := newSheetPage(s)
	if err != nil {
		return err
	}
	return p.write(w)
}

// sheetPage is what the template of sheets shows.
type sheetPage struct {
	Kind, Title string
	About       []string
	Caution     string // what keeps the page from being evidence
	Tally       string // of the verdicts
	Findings    []findingCard
	Lead        []string
	Sections    []sheetSection
	Arms        []studyArm
	Facts       []results.Fact
	Numbers     string // where the figures' numbers stand
}

// findingCard is a finding as it is shown.
type findingCard struct {
	results.Finding
	Class, Sign string
}

// sheetSection is a section as it is shown.
type sheetSection struct {
	Title string
	Text  []string
	Rows  []figureRow
	Grids []gridTable
}

// newSheetPage checks and draws a sheet.
func newSheetPage(s *results.Sheet) (*sheetPage, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &sheetPage{Kind: s.Kind, Title: s.Title, Lead: s.Lead, Facts: s.Facts, Tally: tally(s.Findings)}
	for _, f := range s.Findings {
		card := findingCard{Finding: f}
		card.Class, card.Sign = verdictLook(f.Verdict)
		p.Findings = append(p.Findings, card)
	}
	for _, section := range s.Sections {
		rows, err := arranged(section.Figures)
		if err != nil {
			return nil, fmt.Errorf("section %q: %w", section.Title, err)
		}
		p.Sections = append(p.Sections, sheetSection{section.Title, section.Text, rows, gridTables(section.Grids)})
	}
	return p, nil
}

// CSS gives the template the style sheet: that of all pages, and what sheets have beside it.
func (p *sheetPage) CSS() template.CSS { return template.CSS(styleText + sheetStyleText) }

func (p *sheetPage) write(w io.Writer) error {
	t, err := template.New("sheet").Parse(sheetText)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// verdictLook returns a verdict's class in the style sheet and its sign, which tells it without colours.
func verdictLook(v results.Verdict) (class, sign string) {
	switch v {
	case results.Holds:
		return "holds", "✓"
	case results.DoesNotHold:
		return "fails", "×"
	default:
		return "open", "?"
	}
}

// tally counts the verdicts in words.
func tally(findings []results.Finding) string {
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
	}{{results.Holds, "holds", "hold"}, {results.DoesNotHold, "does not hold", "do not hold"}, {results.CannotTell, "cannot be told", "cannot be told"}} {
		switch n := count[part.verdict]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+part.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, part.many))
		}
	}
	claims := "One claim"
	if n := len(findings); n > 1 {
		claims = fmt.Sprintf("%d claims", n)
	}
	return claims + ": " + strings.Join(parts, ", ") + "."
}
