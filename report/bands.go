package report

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/reprise-rl/reprise/results"
)

// bands is a layer: the spread of a line, filled between its ends wherever two points in a row have one; a lone one is a whisker.
type bands struct {
	low, high plotter.XYs // of the same x
	look      look
}

// Plot implements plot.Plotter.
func (b bands) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	from := 0
	for _, part := range unbroken(b.low) {
		for b.low[from] != part[0] {
			from++
		}
		high := b.high[from : from+len(part)]
		from += len(part)
		if len(part) == 1 {
			whiskers{part, high, b.look}.Plot(c, p)
			continue
		}
		var ring []vg.Point
		for _, at := range part {
			ring = append(ring, vg.Point{X: trX(at.X), Y: trY(at.Y)})
		}
		for i := len(high) - 1; i >= 0; i-- {
			ring = append(ring, vg.Point{X: trX(high[i].X), Y: trY(high[i].Y)})
		}
		if ring = c.ClipPolygonXY(ring); len(ring) > 2 {
			c.FillPolygon(b.look.role.band().color(), ring)
		}
	}
}

// whiskers is a layer: the spread of points, each by itself.
type whiskers struct {
	low, high plotter.XYs // of the same x
	look      look
}

// Plot implements plot.Plotter.
func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	pen := draw.LineStyle{Color: w.look.role.color(), Width: 1}
	const half = vg.Length(3)
	for i, low := range w.low {
		if low.Y != low.Y {
			continue
		}
		x, bottom, top := trX(low.X), trY(low.Y), trY(w.high[i].Y)
		lines := [][]vg.Point{{{X: x, Y: bottom}, {X: x, Y: top}}, {{X: x - half, Y: bottom}, {X: x + half, Y: bottom}}, {{X: x - half, Y: top}, {X: x + half, Y: top}}}
		c.StrokeLines(pen, c.ClipLinesXY(lines...)...)
	}
}

// guideLines is a layer: straight lines across the plot.
type guideLines []results.Guide

// Plot implements plot.Plotter.
func (g guideLines) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	pen := draw.LineStyle{Color: mutedColor.color(), Width: 1, Dashes: []vg.Length{1.5, 2.5}}
	for _, guide := range g {
		if guide.Y.Known() {
			if y := trY(guide.Y.Float()); c.ContainsY(y) {
				c.StrokeLine2(pen, c.Min.X, y, c.Max.X, y)
			}
			continue
		}
		if x := trX(guide.X.Float()); c.ContainsX(x) {
			c.StrokeLine2(pen, x, c.Min.Y, x, c.Max.Y)
		}
	}
}
