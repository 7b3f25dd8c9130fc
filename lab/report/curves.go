package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// pointsPerWidth is the most points drawn of a line for each point of the chart's width, and maxPoints the most that a
// figure carries of it. More are thinned; peaks, gaps and ends stay.
const (
	pointsPerWidth = 0.6
	maxPoints      = 600
)

// crowdedFrom is the number of lines from which lines are finer and carry fewer markers.
const crowdedFrom = 8

// maxBands is the most overlapping bands that leave the lines visible. More are drawn fainter.
const maxBands = 4

// shape is the size of a chart, with about how many ticks fit along x.
type shape struct {
	class         string
	width, height vg.Length
	about         int
}

// curveChart draws a figure's curves over common axes.
type curveChart struct {
	of   *results.Figure
	x, y extent // what the axes show
}

// newCurveChart lays the axes out; ok is false if there is nothing to draw.
func newCurveChart(f *results.Figure) (p curveChart, ok bool) {
	xs, ys := nothing(), nothing()
	scattered := false
	for _, c := range f.Curves {
		for _, at := range c.At {
			spread := at.Low.Known() && at.High.Known()
			if spread {
				ys.add(at.Low.Float())
				ys.add(at.High.Float())
			}
			if ys.add(at.Y.Float()); at.Y.Known() || spread {
				xs.add(at.X)
			}
		}
		scattered = scattered || c.Points
	}
	for _, m := range f.Marks {
		xs.add(m.X)
		ys.add(m.Y)
	}
	if ys.empty() || xs.empty() {
		return p, false
	}
	for _, g := range f.Guides {
		xs.add(g.X.Float())
		ys.add(g.Y.Float())
	}
	beside := 0.0
	if scattered || xs.low == xs.high {
		beside = 0.05
	}
	return curveChart{f, reach(f.X, xs, beside), reach(f.Y, ys, 0.07)}, true
}

// reach returns the range of an axis: the values with a share of their extent added at both ends, unless the axis gives
// its ends.
func reach(a results.Axis, values extent, share float64) extent {
	shown := values
	switch {
	case share == 0:
	case a.Log:
		logs := extent{math.Log10(values.low), math.Log10(values.high)}.padded(share)
		shown = extent{math.Pow(10, logs.low), math.Pow(10, logs.high)}
	default:
		shown = values.padded(share)
		if values.low >= 0 && values.low < values.high { // room below 0 would say that values may lie there
			shown.low = max(0, shown.low)
		}
	}
	if a.Low.Known() {
		shown.low = a.Low.Float()
	}
	if a.High.Known() {
		shown.high = a.High.Float()
	}
	if shown.high > shown.low {
		return shown
	}
	switch { // an end was given beyond all values
	case a.Log && a.High.Known():
		shown.low = shown.high / 10
	case a.Log:
		shown.high = shown.low * 10
	case a.High.Known():
		shown.low = shown.high - 1
	default:
		shown.high = shown.low + 1
	}
	return shown
}

// chart draws the figure in a shape.
func (p curveChart) chart(s shape) *chart {
	ch := &chart{title: oneLine(p.of.Title), class: s.class, width: s.width, height: s.height, left: 34, right: 12}
	ch.x, ch.y = axisOf(p.of.X, p.x, ticks{s.about, p.whole()}), axisOf(p.of.Y, p.y, ticks{about: 5})
	ch.x.gridless = true
	if p.banded() > maxBands {
		ch.class += " faint"
	}
	many := p.named() > crowdedFrom
	drawn := int(pointsPerWidth * s.width)
	var back, lines, marks []plot.Plotter
	for i, c := range p.of.Curves {
		pen := penOfCurve(c)
		pen.curve = i
		if many {
			pen.width = min(pen.width, 1.4)
		}
		points := pointsOf(c)
		low, high := spreadOf(c)
		switch {
		case c.Thin && c.Points:
			back = append(back, markers{thin(points, drawn), pen})
		case c.Thin:
			back = append(back, line{thin(points, drawn), pen})
		case c.Points:
			back = append(back, whiskers{low, high, pen})
			marks = append(marks, markers{thin(points, drawn), pen})
		default:
			back = append([]plot.Plotter{band{low, high, pen}}, back...)
			lines = append(lines, line{thin(points, drawn), pen})
			marks = append(marks, markers{pen.along(points, many), pen})
		}
	}
	ch.layers = append(back, guideRules(p.of.Guides)...)
	ch.layers = append(append(append(ch.layers, lines...), marks...), annotations{p.of, p.inked()})
	return ch
}

// pointsOf returns a curve's points, NaN for missing values.
func pointsOf(c results.Curve) plotter.XYs {
	points := make(plotter.XYs, len(c.At))
	for i, at := range c.At {
		points[i] = plotter.XY{X: at.X, Y: at.Y.Float()}
	}
	return points
}

// spreadOf returns the spread of a curve's points, NaN where there is none.
func spreadOf(c results.Curve) (low, high plotter.XYs) {
	for _, at := range c.At {
		l, h := at.Low.Float(), at.High.Float()
		if !at.Low.Known() || !at.High.Known() {
			l, h = math.NaN(), math.NaN()
		}
		low, high = append(low, plotter.XY{X: at.X, Y: l}), append(high, plotter.XY{X: at.X, Y: h})
	}
	return low, high
}

// inked returns the lines that labels should not cover.
func (p curveChart) inked() []plotter.XYs {
	var lines []plotter.XYs
	for _, c := range p.of.Curves {
		for _, part := range unbroken(pointsOf(c)) {
			if c.Points {
				for i := range part {
					lines = append(lines, part[i:i+1])
				}
				continue
			}
			lines = append(lines, thin(part, 120))
		}
	}
	return lines
}

// named counts the curves that are not thin.
func (p curveChart) named() int {
	n := 0
	for _, c := range p.of.Curves {
		if !c.Thin {
			n++
		}
	}
	return n
}

// banded counts the lines with a band.
func (p curveChart) banded() int {
	n := 0
	for _, c := range p.of.Curves {
		if !c.Thin && !c.Points && spreads(c) {
			n++
		}
	}
	return n
}

// whole reports whether all x are whole numbers, so that no tick should stand between them.
func (p curveChart) whole() bool {
	for _, c := range p.of.Curves {
		for _, at := range c.At {
			if at.X != math.Trunc(at.X) {
				return false
			}
		}
	}
	return true
}

// axisOf returns an axis with ticks, on a logarithmic axis logarithmic ones.
func axisOf(a results.Axis, shown extent, t ticks) axis {
	out := axis{title: oneLine(a.Title), low: shown.low, high: shown.high, ticks: t, log: a.Log}
	if a.Log {
		out.ticks = logTicks(t)
	}
	return out
}

// figure draws the chart in every shape of its place on the page.
func (p curveChart) figure(shapes []shape) figure {
	f := figure{Title: p.of.Title, Note: p.of.Note}
	data := p.data()
	for _, s := range shapes {
		svg, area := p.chart(s).svg()
		f.SVG, data.Areas = append(f.SVG, svg), append(data.Areas, area)
	}
	f.Data = template.JS(data.JSON())
	return f
}

// curveChartsOf lays out the axes of the figures of one row; nil for maps and empty figures. Axes of equal title and
// kind share one range, so that figures side by side can be compared by eye, unless one of them would become too flat
// to read.
func curveChartsOf(figures []results.Figure) []*curveChart {
	charts := make([]*curveChart, len(figures))
	xs, ys := make(map[results.Axis][]*extent), make(map[results.Axis][]*extent)
	for i := range figures {
		f := &figures[i]
		if f.Map != nil {
			continue
		}
		if p, ok := newCurveChart(f); ok {
			charts[i] = &p
			xs[f.X], ys[f.Y] = append(xs[f.X], &p.x), append(ys[f.Y], &p.y)
		}
	}
	for _, along := range []map[results.Axis][]*extent{xs, ys} {
		for axis, ranges := range along {
			if axis.Title != "" {
				share(ranges, axis.Log)
			}
		}
	}
	return charts
}

// share gives every range the extent of all, if each fills at least a quarter of it.
func share(ranges []*extent, log bool) {
	all := nothing()
	for _, r := range ranges {
		all.add(r.low)
		all.add(r.high)
	}
	for _, r := range ranges {
		if 4*length(*r, log) < length(all, log) {
			return
		}
	}
	for _, r := range ranges {
		*r = all
	}
}

// length is the length of a range on its axis, in powers of ten if it is logarithmic.
func length(e extent, log bool) float64 {
	if log {
		return math.Log10(e.high / e.low)
	}
	return e.high - e.low
}

// beyond lists the measured points, marks and guides outside the axes.
func (p curveChart) beyond() string {
	n := 0
	var names []string
	for _, c := range p.of.Curves {
		for _, at := range c.At {
			if !c.Dashed && at.Y.Known() && !(p.x.holds(at.X) && p.y.holds(at.Y.Float())) {
				n++
			}
		}
	}
	for _, m := range p.of.Marks {
		if !p.x.holds(m.X) || !p.y.holds(m.Y) {
			names = append(names, oneLine(m.Name))
		}
	}
	for _, g := range p.of.Guides {
		if g.X.Known() && !p.x.holds(g.X.Float()) || g.Y.Known() && !p.y.holds(g.Y.Float()) {
			names = append(names, oneLine(g.Name))
		}
	}
	if n > 0 {
		names = append([]string{words.Plural(n, "point")}, names...)
	}
	if len(names) == 0 {
		return ""
	}
	return "Beyond the axes: " + strings.Join(names, ", ") + "."
}

// whyEmpty explains why a figure is empty.
func whyEmpty(f *results.Figure) string {
	switch n := len(f.Curves); n {
	case 0:
		return "Nothing to draw: no run came to what this figure shows."
	case 1:
		return "Nothing to draw: its one curve never has a value."
	default:
		return fmt.Sprintf("Nothing to draw: none of its %d curves has a value.", n)
	}
}

// legend names what the figure shows.
func (p curveChart) legend() []key {
	f := p.of
	var keys []key
	seen := make(map[string]bool)
	var shows struct{ thin, band, whisker, computed, measured bool }
	thick := make(map[int]bool)
	for _, c := range f.Curves {
		thick[c.Colour] = thick[c.Colour] || !c.Thin && c.Name != "" && hasValue(c)
	}
	arms := armsOf(f.Curves)
	for n, c := range f.Curves {
		l := penOfCurve(c)
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
			marked := l.points || len(l.along(pointsOf(c), p.named() > crowdedFrom)) > 0
			icon := keyIcon(width, func(canvas *draw.Canvas) { l.key(canvas, marked) })
			keys = append(keys, key{Icon: icon, Name: oneLine(c.Name), Arm: arms[n]})
		}
		shows.computed, shows.measured = shows.computed || c.Dashed, shows.measured || !c.Dashed
		shows.band = shows.band || spreads(c) && !c.Points && !c.Thin
		shows.whisker = shows.whisker || spreads(c) && c.Points && !c.Thin
	}
	if shows.thin {
		keys = append(keys, key{Icon: `<i class="key fine"></i>`, Name: oneLine(cmp.Or(f.Thin, "one seed"))})
	}
	var spread markup
	if shows.band {
		spread += `<i class="key band"></i>`
	}
	if shows.whisker {
		spread += `<i class="key whisker"></i>`
	}
	if spread != "" {
		keys = append(keys, key{Icon: spread, Name: "spread"})
	}
	if shows.computed && shows.measured {
		keys = append(keys, key{Icon: `<i class="key computed"></i>`, Name: "computed"})
	}
	return keys
}

// key draws a piece of a curve, with its marker if it has any.
func (l pen) key(c *draw.Canvas, marked bool) {
	if !l.points {
		y := c.Center().Y
		c.StrokeLine2(draw.LineStyle{Color: l.role.color(), Width: max(1, l.width), Dashes: l.dashes}, c.Min.X, y,
			c.Max.X, y)
	}
	if marked {
		l.shape.draw(c, l.role, max(3.1, l.radius), c.Center())
	}
}

// keyIcon draws a key as an SVG for a line of text. It is hidden from screen readers, which read its name.
func keyIcon(width vg.Length, paint func(*draw.Canvas)) markup {
	const height = vg.Length(11)
	canvas := vgsvg.New(width, height)
	c := draw.New(canvas)
	paint(&c)
	svg := strings.TrimSpace(string(inline(canvas, width, height, "icon", "")))
	shown := fmt.Sprintf(` width="%g" height="%g" aria-hidden="true">`, width.Points(), height.Points())
	return markup(strings.Replace(svg, ` role="img"><title></title>`, shown, 1))
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

// spreads reports whether any point of a curve has a visible spread.
func spreads(c results.Curve) bool {
	for _, at := range c.At {
		if at.Low.Known() && at.High.Known() && at.Low != at.High {
			return true
		}
	}
	return false
}

// oneLine returns text without line breaks, for names in plots.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
