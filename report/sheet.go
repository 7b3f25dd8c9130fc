package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/results"
)

//go:embed sheet.html
var sheetText string

//go:embed sheet.css
var sheetStyleText string

// renderSheet writes a page of findings, figures and tables. An invalid sheet is refused with all of its problems.
func renderSheet(w io.Writer, s *results.Sheet) error {
	p, err := newSheetPage(s)
	if err != nil {
		return err
	}
	return p.write(w)
}

// sheetPage is the input of the template sheet.html.
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

// findingCard is a finding on the page.
type findingCard struct {
	results.Finding
	Class, Sign string
}

// sheetSection is a section on the page.
type sheetSection struct {
	Title string
	Text  []string
	Rows  []figureRow
	Grids []gridTable
}

// newSheetPage validates and draws a sheet.
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

// CSS gives the template the style sheets.
func (p *sheetPage) CSS() template.CSS { return template.CSS(styleText + sheetStyleText) }

func (p *sheetPage) write(w io.Writer) error {
	t, err := template.New("sheet").Parse(sheetText)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// verdictLook returns a verdict's class in the style sheet and its sign.
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
	}{{results.Holds, "holds", "hold"}, {results.DoesNotHold, "does not hold", "do not hold"},
		{results.CannotTell, "cannot be told", "cannot be told"}} {
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

// sheetFigure is a drawn figure. If there are two SVGs, the second is for narrow screens. Empty explains a missing SVG.
type sheetFigure struct {
	Title, Note, Empty string
	Beyond             string // what the axes leave out
	Legend             []sheetKey
	SVG                []markup
	Scrolls            bool // sideways, on a narrow screen
}

// Many reports whether the legend is so long that it stands in columns.
func (f sheetFigure) Many() bool { return len(f.Legend) > crowdedFrom }

// figureRow is figures of one size, with their class in the style sheet.
type figureRow struct {
	Class   string
	Figures []sheetFigure
}

// arranged draws a section's figures in rows. A single figure is large; simple figures in multiples of three stand
// three to a row; others stand two to a row, with the first large if the number is odd. A map takes the width that its
// columns need.
func arranged(figures []results.Figure) ([]figureRow, error) {
	var rows []figureRow
	for len(figures) > 0 {
		n := 1
		if !broad(&figures[0]) {
			for n < len(figures) && !broad(&figures[n]) {
				n++
			}
		}
		for _, size := range sizes(figures[:n]) {
			row, err := drawRow(figures[:size.figures], size)
			if err != nil {
				return nil, err
			}
			rows, figures = append(rows, row), figures[size.figures:]
		}
	}
	return rows, nil
}

// rowSize is the size of a number of figures.
type rowSize struct {
	figures int
	class   string
	shapes  []shape
}

// sizes divides neighbouring figures into rows. A broad figure is alone.
func sizes(figures []results.Figure) []rowSize {
	half := shape{"half", halfWidth, 240, false, 5}
	third := shape{"third", 290, 200, false, 4}
	large := []shape{wide(), narrow()}
	n := len(figures)
	switch {
	case n == 1 && figures[0].Map != nil && !broad(&figures[0]):
		return []rowSize{{1, "grid halves", nil}}
	case n == 1:
		return []rowSize{{1, "large", large}}
	case n%3 == 0 && simple(figures):
		return []rowSize{{n, "grid thirds", []shape{third}}}
	case n%2 == 0 || figures[0].Map != nil:
		return []rowSize{{n, "grid halves", []shape{half}}}
	default:
		return []rowSize{{1, "large", large}, {n - 1, "grid halves", []shape{half}}}
	}
}

// broad reports whether a map needs the whole width of the page.
func broad(f *results.Figure) bool {
	if f.Map == nil {
		return false
	}
	h, ok := newHeat(f)
	return ok && h.width > halfWidth
}

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

func drawRow(figures []results.Figure, size rowSize) (figureRow, error) {
	row := figureRow{Class: size.class}
	charts := curveChartsOf(figures)
	for i := range figures {
		var f sheetFigure
		var err error
		if figures[i].Map != nil {
			f, err = heatFigure(&figures[i])
		} else {
			f, err = curveFigure(&figures[i], charts[i], size.shapes)
		}
		if err != nil {
			return row, err
		}
		row.Figures = append(row.Figures, f)
	}
	return row, nil
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

// FoldArms reports whether the table of arms is long enough to be collapsed.
func (p *sheetPage) FoldArms() bool {
	const most = 12
	return len(p.Arms) > most
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

// gridTable is a table on the page: numbers to the right, words to the left.
type gridTable struct {
	Title, Note string
	Heads       []gridCell
	Rows        [][]gridCell // the first cell of a row is its name
}

// Folded reports whether the table is long enough to be collapsed.
func (t gridTable) Folded() bool {
	const most = 20
	return len(t.Rows) > most
}

// gridCell is a cell with its column's class in the style sheet.
type gridCell struct {
	Text   string
	Spread string // in brackets behind a number, under it where the table is narrow
	Class  string
}

func gridTables(grids []results.Grid) []gridTable {
	var tables []gridTable
	for _, g := range grids {
		t := gridTable{Title: g.Title, Note: g.Note}
		classes := make([]string, len(g.Columns))
		for j, name := range g.Columns {
			classes[j] = columnClass(g.Rows, j)
			t.Heads = append(t.Heads, gridCell{Text: name, Class: classes[j]})
		}
		for _, row := range g.Rows {
			cells := make([]gridCell, len(row))
			for j, text := range row {
				cells[j] = cellOf(text, classes[j])
			}
			t.Rows = append(t.Rows, cells)
		}
		tables = append(tables, t)
	}
	return tables
}

// cellOf writes a minus sign and splits the spread from a number.
func cellOf(text, class string) gridCell {
	if class == "" && len(text) > 1 && text[0] == '-' {
		text = "−" + text[1:]
	}
	number, spread, found := strings.Cut(text, " (")
	if class != "" || !found || !strings.HasSuffix(spread, ")") {
		return gridCell{Text: text, Class: class}
	}
	return gridCell{number, "(" + spread, "split"}
}

// columnClass returns the class of a column: numbers, aligned right in one line; words, aligned left; or sentences,
// wrapped.
func columnClass(rows [][]string, column int) string {
	const sentence = 34 // letters that are no longer a word or two
	numbers, filled, longest := 0, 0, 0
	for _, row := range rows {
		text := row[column]
		longest = max(longest, utf8.RuneCountInString(text))
		if strings.Trim(text, "–—- ") == "" || strings.HasPrefix(text,
			"not ") { // not reached, not measured: where a number would stand
			continue
		}
		filled++
		if numeric(text) {
			numbers++
		}
	}
	switch {
	case longest > sentence:
		return "sentence"
	case column > 0 && filled > 0 && 2*numbers >= filled:
		return ""
	default:
		return "word"
	}
}

// numeric reports whether a cell begins with a number.
func numeric(text string) bool {
	text = strings.TrimLeft(text, "+-−±≥≤<>≈~∞ (")
	return text == "" || unicode.IsDigit(rune(text[0]))
}
