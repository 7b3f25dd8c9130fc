package report

import "github.com/reprise-rl/reprise/results"

// sheetFigure is a drawn figure of a sheet. Of two SVGs the second is for narrow screens. One without SVG says why.
type sheetFigure struct {
	Title, Note, Empty string
	Beyond             string // what the axes leave out
	Legend             []sheetKey
	SVG                []markup
	Scrolls            bool // sideways, on a narrow screen
}

// Many reports whether the legend is so long that it stands in columns.
func (f sheetFigure) Many() bool { return len(f.Legend) > crowd }

// figureRow is figures of one size, by its class in the style sheet.
type figureRow struct {
	Class   string
	Figures []sheetFigure
}

// arranged draws a section's figures in rows: one alone is large, threes of simple ones stand three to a row, others two to a row with the
// first large if it would stand alone at the end. A map takes the room that its columns need.
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

// rowSize is how a number of figures is shown.
type rowSize struct {
	figures int
	class   string
	shapes  []shape
}

// sizes divides neighbouring figures, of which none is broad unless it is alone.
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

// simple reports whether figures can be read when they are small.
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
	planes := planesOf(figures)
	for i := range figures {
		var f sheetFigure
		var err error
		if figures[i].Map != nil {
			f, err = heatFigure(&figures[i])
		} else {
			f, err = planeFigure(&figures[i], planes[i], size.shapes)
		}
		if err != nil {
			return row, err
		}
		row.Figures = append(row.Figures, f)
	}
	return row, nil
}
