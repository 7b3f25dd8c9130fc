package geometry

import "math"

// draw returns the picture of a figure: size pixels wide and high, with a grid of cells x cells where it is measured in cells.
func (f figure) draw(size, cells int, shift offset) canvas {
	c := newCanvas(size)
	g := grid{canvas: c, cell: cellOf(size, cells), shift: shift}
	switch f.shape {
	case segment, rectangle, rightTriangle:
		g.rule(cells)
	}
	switch f.shape {
	case segment:
		g.segment(f)
	case rectangle:
		g.rectangle(f)
	case rightTriangle:
		g.triangle(f)
	case rays:
		c.rays(f, shift)
	case labelledTriangle:
		c.labelled(f)
	case labelledRight:
		c.right(f)
	}
	return c
}

// grid is a canvas measured in cells.
type grid struct {
	canvas
	cell  int // pixels from line to line
	shift offset
}

// at returns the pixel where two lines of the grid cross.
func (g grid) at(column, row int) (x, y int) {
	return g.shift.x + column*g.cell, g.shift.y + row*g.cell
}

// edge draws a line from crossing to crossing.
func (g grid) edge(column0, row0, column1, row1 int, colour uint8) {
	x0, y0 := g.at(column0, row0)
	x1, y1 := g.at(column1, row1)
	g.line(x0, y0, x1, y1, colour)
}

// rule draws the lines of the grid.
func (g grid) rule(cells int) {
	for i := range cells + 1 {
		g.edge(0, i, cells, i, lines)
		g.edge(i, 0, i, cells, lines)
	}
}

func (g grid) segment(f figure) {
	if f.turn == 0 {
		g.edge(f.x, f.y, f.x+f.a, f.y, ink)
	} else {
		g.edge(f.x, f.y, f.x, f.y+f.a, ink)
	}
}

// rectangle fills the cells of a rectangle, whose inner lines stay visible, and draws its edge.
func (g grid) rectangle(f figure) {
	for i := range f.a {
		for j := range f.b {
			left, top := g.at(f.x+i, f.y+j)
			g.box(left+1, top+1, left+g.cell-1, top+g.cell-1, fill)
		}
	}
	x0, y0, x1, y1 := f.x, f.y, f.x+f.a, f.y+f.b
	g.edge(x0, y0, x1, y0, ink)
	g.edge(x0, y1, x1, y1, ink)
	g.edge(x0, y0, x0, y1, ink)
	g.edge(x1, y0, x1, y1, ink)
}

// triangle draws a right triangle: the corners of its rectangle are numbered clockwise from the upper left.
func (g grid) triangle(f figure) {
	x := [4]int{f.x, f.x + f.a, f.x + f.a, f.x}
	y := [4]int{f.y, f.y, f.y + f.b, f.y + f.b}
	right, next, previous := f.turn, (f.turn+1)%4, (f.turn+3)%4
	for _, side := range [3][2]int{{right, next}, {right, previous}, {next, previous}} {
		from, to := side[0], side[1]
		g.edge(x[from], y[from], x[to], y[to], ink)
	}
}

// rays draws two rays from near the middle, and fills the angle between them close to it.
func (c canvas) rays(f figure, shift offset) {
	space := room(rays, c.size, 0) / 2
	middle, length := c.size/2, float64(c.size/2-space-1)
	x0, y0 := middle+shift.x-space, middle+shift.y-space
	for y := range c.size {
		for x := range c.size {
			dx, dy := float64(x-x0), float64(y0-y)
			turned := math.Mod(math.Atan2(dy, dx)*180/math.Pi-float64(f.turn*degrees)+720, 360)
			if math.Hypot(dx, dy) < length*2/3 && turned < float64(f.a*degrees) {
				c.dot(x, y, fill)
			}
		}
	}
	for _, steps := range []int{f.turn, f.turn + f.a} {
		sine, cosine := math.Sincos(float64(steps*degrees) * math.Pi / 180)
		c.line(x0, y0, x0+nearest(length*cosine), y0-nearest(length*sine), ink)
	}
}

// nearest rounds to a pixel, with a little to spare so that no rounding error of a sine decides.
func nearest(x float64) int { return int(math.Floor(x + 0.5 + 1e-9)) }

// labelled draws a triangle over its base, with the angles at the base written below them.
func (c canvas) labelled(f figure) {
	point := max(1, c.size/minLabels)
	height, base := c.size-7*point, c.size-1
	rise := 1 / (1/math.Tan(float64(f.a)*math.Pi/180) + 1/math.Tan(float64(f.b)*math.Pi/180)) // of the apex, over the base
	apex := rise / math.Tan(float64(f.a)*math.Pi/180)
	left, right := min(0, apex), max(1, apex)
	scale := min(float64(base)/(right-left), float64(height-1)/rise)
	at := func(x, y float64) (int, int) {
		row := nearest((rise - y) * scale)
		if f.turn == 1 {
			row = c.size - 1 - row
		}
		return nearest((x - left) * scale), row
	}
	x0, y0 := at(0, 0)
	x1, y1 := at(1, 0)
	x2, y2 := at(apex, rise)
	c.line(x0, y0, x1, y1, ink)
	c.line(x0, y0, x2, y2, ink)
	c.line(x1, y1, x2, y2, ink)
	row := c.size - 5*point
	if f.turn == 1 {
		row = 0
	}
	c.number(f.a, 0, row, point)
	c.number(f.b, c.size-width(f.b)*point, row, point)
}

// right draws a right triangle over its labels: the level leg is written on the left below it, the upright one on the right.
func (c canvas) right(f figure) {
	point := max(1, c.size/minLabels)
	bottom, end := c.size-1-7*point, c.size-1
	scale := min(float64(end)/float64(f.a), float64(bottom)/float64(f.b))
	wide, high := max(2, nearest(float64(f.a)*scale)), max(2, nearest(float64(f.b)*scale))
	column := func(x int) int {
		if f.turn == 1 {
			return end - x
		}
		return x
	}
	c.line(column(0), bottom, column(wide), bottom, ink)
	c.line(column(0), bottom, column(0), bottom-high, ink)
	c.line(column(wide), bottom, column(0), bottom-high, ink)
	row := c.size - 5*point
	c.number(f.a, 0, row, point)
	c.number(f.b, c.size-width(f.b)*point, row, point)
}
