package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

//go:embed page.html
var pageText string

//go:embed style.css
var styleText string

// page is the input of the template page.html.
type page struct {
	Kind, Title string
	About       []string // in the line under the title
	Caution     string   // what keeps the page from being evidence
	Sides       *section // what each arm had; nil: there is one arm
	Headline    *headline
	Warnings    []string // what keeps the arms from being compared as they stand
	Tally       string   // of the verdicts
	Findings    []findingCard
	Checks      []findingCard // which no learning decides
	Lead        []string
	Sections    []section
	Measures    template.JS // for the script: what x may be; empty: nothing else
	Build       string
	Numbers     string // where the figures' numbers stand
}

// findingCard is a finding on the page.
type findingCard struct {
	results.Finding
	Class, Sign string
}

// section is a part of a page under its own heading.
type section struct {
	ID, Title string
	Text      []string
	Command   string        // of the program
	Legend    []figures.Key // of all its figures
	Rows      []figureRow
	Grids     []gridTable
	Arms      []studyArm
	Configs   []config
}

// figureRow is figures of one size, with their class in the style sheet. Fold is the summary of a collapsed row.
type figureRow struct {
	Class, Fold string
	Figures     []figure
}

// figure is a drawn figure. If there are two SVGs, the second is for narrow screens. Empty explains a missing SVG.
type figure struct {
	ID                 string // on the page
	Title, Note, Empty string
	figures.Drawing
}

// config is a configuration to print.
type config struct{ Label, Text string }

// Style returns the style sheet of all pages, for others beside them.
func Style() string { return styleText + figures.Style }

// CSS gives the template the style sheet.
func (p *page) CSS() template.CSS { return template.CSS(Style()) }

// Script gives it the script.
func (p *page) Script() template.JS { return template.JS(figures.Script) }

// nameFigures gives every figure an address on the page, made of its title.
func (p *page) nameFigures() {
	taken := make(map[string]int)
	for _, s := range p.Sections {
		taken[s.ID]++
	}
	for _, s := range p.Sections {
		for _, row := range s.Rows {
			for i := range row.Figures {
				f := &row.Figures[i]
				id := strings.Join(strings.FieldsFunc(strings.ToLower(f.Title), func(r rune) bool {
					return (r < 'a' || r > 'z') && (r < '0' || r > '9')
				}), "-")
				if taken[id]++; taken[id] > 1 || id == "" {
					id = fmt.Sprintf("%s-%d", cmp.Or(id, "figure"), taken[id])
				}
				f.ID = id
			}
		}
	}
}

func (p *page) write(w io.Writer) error {
	p.nameFigures()
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// gridTable is a table on the page: numbers to the right, words to the left.
type gridTable struct {
	Title, Note string
	Heads       []gridCell   // none: a list of names and values
	Rows        [][]gridCell // the first cell of a row is its name
}

// Folded reports whether the table is long enough to be collapsed.
func (t gridTable) Folded() bool {
	const most = 20
	return len(t.Heads) > 0 && len(t.Rows) > most
}

// gridCell is a cell with its column's class in the style sheet.
type gridCell struct {
	Text   string
	Spread string // in brackets behind a number, under it where the table is narrow
	Class  string
}

func gridTables(grids ...results.Grid) []gridTable {
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

// factTable returns a table of facts by name, each in words. It has one or more columns, with or without heads.
func factTable(title string, heads []string, rows [][]string) gridTable {
	cells := func(row []string) (list []gridCell) {
		for i, text := range row {
			class := "sentence"
			if i == 0 {
				class = "word"
			}
			if i > 0 && row[0] == results.CommandFact {
				class += " command"
			}
			list = append(list, gridCell{Text: text, Class: class})
		}
		return list
	}
	t := gridTable{Title: title, Heads: cells(heads)}
	for _, row := range rows {
		t.Rows = append(t.Rows, cells(row))
	}
	return t
}

// cellOf writes a minus sign and splits the spread from a number.
func cellOf(text, class string) gridCell {
	if class != "" || text == "-" {
		return gridCell{Text: text, Class: class}
	}
	text = words.Minus(text)
	number, spread, found := strings.Cut(text, " (")
	if !found || !strings.HasSuffix(spread, ")") {
		return gridCell{Text: text}
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
		if strings.Trim(text, "–—- ") == "" || strings.HasPrefix(text, "not ") { // a number would stand here
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
