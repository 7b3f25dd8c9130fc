package report

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/results"
)

// gridTable is a table of a sheet as it is shown: numbers to the right, words to the left.
type gridTable struct {
	Title, Note string
	Heads       []gridCell
	Rows        [][]gridCell // the first cell of a row is its name
}

// Folded reports whether the table is so long that it is shown on demand.
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

// cellOf writes a number's sign as such and parts it from the spread behind it.
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

// columnClass tells a column of numbers, which stand to the right and in one line, from words, which stand to the left, and sentences, which
// are broken into lines.
func columnClass(rows [][]string, column int) string {
	const sentence = 34 // letters that are no longer a word or two
	numbers, filled, longest := 0, 0, 0
	for _, row := range rows {
		text := row[column]
		longest = max(longest, utf8.RuneCountInString(text))
		if strings.Trim(text, "–—- ") == "" || strings.HasPrefix(text, "not ") { // not reached, not measured: where a number would stand
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

// numeric reports whether a cell begins with a number, whatever follows it.
func numeric(text string) bool {
	text = strings.TrimLeft(text, "+-−±≥≤<>≈~∞ (")
	return text == "" || unicode.IsDigit(rune(text[0]))
}
