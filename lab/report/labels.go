package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/lab/results"
)

// annotations is a layer: the marks of a figure, and the names of its marks and guides, placed where they cover least.
type annotations struct {
	of    *results.Figure
	lines []plotter.XYs // that the names keep clear of
}

// Plot implements plot.Plotter.
func (a annotations) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	place := labelPlacer{canvas: &c}
	for _, l := range a.lines {
		place.avoid(l, trX, trY)
	}
	const ring = vg.Length(5)
	for i, m := range a.of.Marks {
		at := vg.Point{X: trX(m.X), Y: trY(m.Y)}
		if c.Contains(at) {
			marker{open: true}.draw(&c, inkColor.of(figures.Mark, i), ring, at)
			place.taken = append(place.taken, around(at, ring))
		}
	}
	for i, m := range a.of.Marks {
		if at := (vg.Point{X: trX(m.X), Y: trY(m.Y)}); c.Contains(at) {
			place.write(oneLine(m.Name), inkColor.of(figures.Mark, i), beside(at, ring+3))
		}
	}
	for i, g := range a.of.Guides {
		named := mutedColor.of(figures.Guide, i)
		if g.Y.Known() {
			if y := trY(g.Y.Float()); c.ContainsY(y) {
				place.write(oneLine(g.Name), named, alongRow(c.Rectangle, y))
			}
			continue
		}
		if x := trX(g.X.Float()); c.ContainsX(x) {
			place.write(oneLine(g.Name), named, alongColumn(c.Rectangle, x))
		}
	}
}

// labelPlacer writes names into a plot.
type labelPlacer struct {
	canvas *draw.Canvas
	ink    []vg.Point     // points of the lines that are drawn
	dots   []vg.Point     // points by themselves
	taken  []vg.Rectangle // by names and marks
}

// avoid records a line, or a single point, that names should not cover.
func (p *labelPlacer) avoid(line plotter.XYs, trX, trY func(float64) vg.Length) {
	const step = 3
	at := make([]vg.Point, len(line))
	for i, v := range line {
		at[i] = vg.Point{X: trX(v.X), Y: trY(v.Y)}
	}
	if len(at) == 1 {
		p.dots = append(p.dots, at[0])
		return
	}
	for _, part := range p.canvas.ClipLinesXY(at) {
		for i := 1; i < len(part); i++ {
			from, to := part[i-1], part[i]
			n := int(math.Hypot(float64(to.X-from.X), float64(to.Y-from.Y))/step) + 1
			for k := range n + 1 {
				share := vg.Length(k) / vg.Length(n)
				p.ink = append(p.ink, vg.Point{X: from.X + share*(to.X-from.X), Y: from.Y + share*(to.Y-from.Y)})
			}
		}
	}
}

// placement returns the box of a name of a size.
type placement func(width, height vg.Length) vg.Rectangle

// write writes a name at the placement that covers least, the first of equals.
func (p *labelPlacer) write(name string, r role, placements []placement) {
	if name == "" {
		return
	}
	text := style(r, textSize)
	width, height := text.Width(name), vg.Length(textSize)
	var best vg.Rectangle
	least := math.Inf(1)
	for _, s := range placements {
		box := s(width, height)
		if cost := p.cost(box); cost < least {
			best, least = box, cost
		}
	}
	p.taken = append(p.taken, best)
	text.YAlign = draw.YBottom
	p.canvas.FillText(text, vg.Point{X: best.Min.X, Y: best.Min.Y - 1}, name)
}

// cost rates a box for a name. Leaving the plot is worst, covering another name is bad, and covering lines costs by
// their length. A single point counts as a whole crossing.
func (p *labelPlacer) cost(box vg.Rectangle) float64 {
	cost := 0.0
	edge := p.canvas.Rectangle
	for _, over := range []vg.Length{edge.Min.X - box.Min.X, box.Max.X - edge.Max.X, edge.Min.Y - box.Min.Y,
		box.Max.Y - edge.Max.Y} {
		if over > 0 {
			cost += 1e6 + 1e4*float64(over)
		}
	}
	for _, t := range p.taken {
		if box.Min.X < t.Max.X && t.Min.X < box.Max.X && box.Min.Y < t.Max.Y && t.Min.Y < box.Max.Y {
			cost += 1e4
		}
	}
	const crossing = 8
	return cost + hidden(p.ink, box) + crossing*hidden(p.dots, box)
}

// hidden counts the points that a box covers or touches.
func hidden(points []vg.Point, box vg.Rectangle) float64 {
	n := 0.0
	for _, at := range points {
		if at.X > box.Min.X-1 && at.X < box.Max.X+1 && at.Y > box.Min.Y-1 && at.Y < box.Max.Y+1 {
			n++
		}
	}
	return n
}

// around returns the square about a point.
func around(at vg.Point, half vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: vg.Point{X: at.X - half, Y: at.Y - half}, Max: vg.Point{X: at.X + half, Y: at.Y + half}}
}

// boxAt returns the placement whose lower left corner is offset from a point, by multiples of the width and height of
// the name plus a distance.
func boxAt(at vg.Point, widths, heights, right, up vg.Length) placement {
	return func(width, height vg.Length) vg.Rectangle {
		corner := vg.Point{X: at.X + widths*width + right, Y: at.Y + heights*height + up}
		return vg.Rectangle{Min: corner, Max: vg.Point{X: corner.X + width, Y: corner.Y + height}}
	}
}

// beside returns the placements around a point.
func beside(at vg.Point, gap vg.Length) []placement {
	return []placement{
		boxAt(at, 0, -0.5, gap, 0), boxAt(at, -1, -0.5, -gap, 0), boxAt(at, -0.5, 0, 0, gap),
		boxAt(at, -0.5, -1, 0, -gap),
		boxAt(at, 0, 0, gap, gap), boxAt(at, -1, 0, -gap, gap), boxAt(at, 0, -1, gap, -gap),
		boxAt(at, -1, -1, -gap, -gap),
		boxAt(at, 0, 1, gap, gap), boxAt(at, -1, 1, -gap, gap), boxAt(at, 0, -2, gap, -gap),
		boxAt(at, -1, -2, -gap, -gap),
	}
}

// alongRow returns the placements above and below a horizontal line.
func alongRow(edge vg.Rectangle, y vg.Length) []placement {
	var placements []placement
	const gap = vg.Length(4)
	for _, share := range []vg.Length{1, 0, 0.75, 0.5, 0.25} {
		at := vg.Point{X: edge.Min.X + gap + share*(edge.Max.X-edge.Min.X-2*gap), Y: y}
		placements = append(placements, boxAt(at, -share, 0, 0, gap), boxAt(at, -share, -1, 0, -gap))
	}
	return placements
}

// alongColumn returns the placements right and left of a vertical line.
func alongColumn(edge vg.Rectangle, x vg.Length) []placement {
	var placements []placement
	const gap = vg.Length(4)
	for _, share := range []vg.Length{1, 0, 0.75, 0.5, 0.25} {
		at := vg.Point{X: x, Y: edge.Min.Y + gap + share*(edge.Max.Y-edge.Min.Y-2*gap)}
		placements = append(placements, boxAt(at, 0, -share, gap, 0), boxAt(at, -1, -share, -gap, 0))
	}
	return placements
}
