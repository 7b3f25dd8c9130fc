package report

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/results"
)

// sheetKey is an entry of a figure's legend: a piece of what is drawn, and its name.
type sheetKey struct {
	Before string // to the left of the piece
	Icon   markup
	Name   string
}

// legend names what a figure of curves shows, and nothing else.
func (p plane) legend() ([]sheetKey, error) {
	f := p.of
	var keys []sheetKey
	seen := make(map[string]bool)
	var shows struct{ thin, band, whisker, computed, measured bool }
	thick := make(map[int]bool)
	for _, c := range f.Curves {
		thick[c.Colour] = thick[c.Colour] || !c.Thin && c.Name != "" && hasValue(c)
	}
	for _, c := range f.Curves {
		l := lookOf(c)
		switch {
		case !hasValue(c):
			continue
		case c.Thin && (thick[c.Colour] || c.Name == ""):
			shows.thin = true
			continue
		case c.Name != "":
			id := fmt.Sprint(l, c.Name)
			if seen[id] {
				break
			}
			seen[id] = true
			width := vg.Length(26)
			if l.points {
				width = 10
			}
			marked := l.points || len(l.along(pointsOf(c), p.named() > crowd)) > 0
			icon, err := keyIcon(width, func(canvas *draw.Canvas) { l.key(canvas, marked) })
			if err != nil {
				return nil, err
			}
			keys = append(keys, sheetKey{Icon: icon, Name: oneLine(c.Name)})
		}
		shows.computed, shows.measured = shows.computed || c.Dashed, shows.measured || !c.Dashed
		shows.band = shows.band || spreads(c) && !c.Points && !c.Thin
		shows.whisker = shows.whisker || spreads(c) && c.Points && !c.Thin
	}
	if shows.thin {
		keys = append(keys, sheetKey{Icon: `<i class="key fine"></i>`, Name: oneLine(cmp.Or(f.Thin, "one seed"))})
	}
	var spread markup
	if shows.band {
		spread += `<i class="key band"></i>`
	}
	if shows.whisker {
		spread += `<i class="key whisker"></i>`
	}
	if spread != "" {
		keys = append(keys, sheetKey{Icon: spread, Name: "spread"})
	}
	if shows.computed && shows.measured {
		keys = append(keys, sheetKey{Icon: `<i class="key computed"></i>`, Name: "computed"})
	}
	return keys, nil
}

// key draws a piece of a curve, with its marker if it carries any.
func (l look) key(c *draw.Canvas, marked bool) {
	if !l.points {
		across(c, draw.LineStyle{Color: l.role.color(), Width: max(1, l.width), Dashes: l.dashes})
	}
	if marked {
		l.shape.draw(c, l.role, max(3.1, l.radius()), c.Center())
	}
}

// across draws a line through the middle of a key.
func across(c *draw.Canvas, pen draw.LineStyle) {
	y := c.Center().Y
	c.StrokeLine2(pen, c.Min.X, y, c.Max.X, y)
}

// keyIcon draws a key of a width as an SVG that stands in a line of text. Who cannot see it has the name beside it.
func keyIcon(width vg.Length, paint func(*draw.Canvas)) (markup, error) {
	const height = vg.Length(11)
	canvas := vgsvg.New(width, height)
	c := draw.New(canvas)
	paint(&c)
	svg, err := inline(canvas, width, height, "icon", "")
	if err != nil {
		return "", err
	}
	shown := fmt.Sprintf(` width="%g" height="%g" aria-hidden="true">`, width.Points(), height.Points())
	text := strings.Replace(strings.TrimSpace(string(svg)), ` role="img"><title></title>`, shown, 1)
	return template.HTML(text), nil
}

// hasValue reports whether a curve has a point to draw.
func hasValue(c results.Curve) bool {
	for _, at := range c.At {
		if at.Y.Known() || at.Low.Known() && at.High.Known() {
			return true
		}
	}
	return false
}

// spreads reports whether some point of a curve has a spread that can be seen.
func spreads(c results.Curve) bool {
	for _, at := range c.At {
		if at.Low.Known() && at.High.Known() && at.Low != at.High {
			return true
		}
	}
	return false
}

// oneLine returns text without line breaks, as names in plots are.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
