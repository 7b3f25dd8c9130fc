package geometry

import (
	"fmt"
	"image"
	"image/color"
	"math"
)

// shape is a kind of figure.
type shape string

const (
	segment          shape = "segment"        // a cells long, level or upright (turn 0, 1)
	rectangle        shape = "rectangle"      // a cells wide and b high
	rays             shape = "rays"           // a steps apart, the first turn steps from the right
	rightTriangle    shape = "right triangle" // legs of a and b cells, the right angle in corner turn
	labelledTriangle shape = "triangle"       // angles of a and b degrees at its base, upside down with turn 1
	labelledRight    shape = "right"          // legs of a and b, any unit; mirrored with turn 1
)

// degrees is the size of a step of an angle.
const degrees = 15

// figure is what a question asks about.
type figure struct {
	shape shape
	a, b  int // sizes, see the shapes
	x, y  int // of the corner at the upper left, in cells
	turn  int
}

// String names the figure.
func (f figure) String() string {
	return fmt.Sprintf("%s %dx%d at %d,%d turned %d", f.shape, f.a, f.b, f.x, f.y, f.turn)
}

// offset is the shift of a figure, and of the grid under it, in pixels.
type offset struct{ x, y int }

// room returns the range of shifts of a shape, in pixels either way: the grid leaves a cell free, and the vertex of an
// angle stays near the middle.
func room(s shape, size, cells int) int {
	switch s {
	case segment, rectangle, rightTriangle:
		return size - 1 - cells*cellOf(size, cells)
	case rays:
		return 2 * (size / 10)
	}
	return 0
}

// cellOf returns the pixels between two lines of a grid.
func cellOf(size, cells int) int { return (size - 1) / (cells + 1) }

// figures returns all figures of a shape on a grid of size x size cells.
func figures(s shape, size int) []figure {
	switch s {
	case segment:
		return segments(size)
	case rectangle:
		return placed(size, 1, func(a, b int) bool { return true }, s)
	case rightTriangle:
		return placed(size, 4, func(a, b int) bool { return a*b%2 == 0 }, s)
	case rays:
		var all []figure
		for a := 1; a < 180/degrees; a++ {
			for turn := range 360 / degrees {
				all = append(all, figure{shape: s, a: a, turn: turn})
			}
		}
		return all
	case labelledTriangle:
		return labelledFigures(s, 20, 120, 10, func(a, b int) bool { return a+b <= 160 })
	case labelledRight:
		return labelledFigures(s, 3, 99, 1, func(a, b int) bool { c := hypotenuse(a, b); return c > 0 && c < 100 })
	}
	return nil
}

// segments returns the segments along the lines of a grid, including its edges.
func segments(size int) []figure {
	var all []figure
	for a := 1; a <= size; a++ {
		for along := range size - a + 1 {
			for across := range size + 1 {
				all = append(all, figure{segment, a, 0, along, across, 0}, figure{segment, a, 0, across, along, 1})
			}
		}
	}
	return all
}

// placed returns the figures of a × b cells at every place of a grid and with every rotation.
func placed(size, turns int, fits func(a, b int) bool, s shape) []figure {
	var all []figure
	for a := 1; a <= size; a++ {
		for b := 1; b <= size; b++ {
			for turn := 0; turn < turns && fits(a, b); turn++ {
				for x := range size - a + 1 {
					for y := range size - b + 1 {
						all = append(all, figure{s, a, b, x, y, turn})
					}
				}
			}
		}
	}
	return all
}

// labelledFigures returns the figures with two numbers from low to high, with both rotations.
func labelledFigures(s shape, low, high, step int, fits func(a, b int) bool) []figure {
	var all []figure
	for a := low; a <= high; a += step {
		for b := low; b <= high; b += step {
			if fits(a, b) {
				all = append(all, figure{shape: s, a: a, b: b}, figure{shape: s, a: a, b: b, turn: 1})
			}
		}
	}
	return all
}

// hypotenuse returns the hypotenuse for legs below 100, 0 if it is not an integer.
func hypotenuse(a, b int) int {
	for c := max(a, b); c <= a+b; c++ {
		if c*c == a*a+b*b {
			return c
		}
	}
	return 0
}

// draw returns the picture of a figure, size pixels wide and high. If it is measured in cells, there is a grid under
// it.
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

// edge draws a line between two crossings.
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

// triangle draws a right triangle. The corners of its rectangle are numbered clockwise from the upper left.
func (g grid) triangle(f figure) {
	x := [4]int{f.x, f.x + f.a, f.x + f.a, f.x}
	y := [4]int{f.y, f.y, f.y + f.b, f.y + f.b}
	right, next, previous := f.turn, (f.turn+1)%4, (f.turn+3)%4
	for _, side := range [3][2]int{{right, next}, {right, previous}, {next, previous}} {
		from, to := side[0], side[1]
		g.edge(x[from], y[from], x[to], y[to], ink)
	}
}

// rays draws two rays from near the middle, and fills the angle between them near the vertex.
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

// nearest rounds to a pixel, with a margin so that rounding errors of a sine do not matter.
func nearest(x float64) int { return int(math.Floor(x + 0.5 + 1e-9)) }

// labelled draws a triangle with the angles at its base written below them.
func (c canvas) labelled(f figure) {
	point := max(1, c.size/minLabels)
	height, base := c.size-7*point, c.size-1
	// of the apex, over the base
	rise := 1 / (1/math.Tan(float64(f.a)*math.Pi/180) + 1/math.Tan(float64(f.b)*math.Pi/180))
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

// right draws a right triangle over its labels: the horizontal leg's on the left, the vertical leg's on the right.
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

// Colours of a canvas, as indices of its palette.
const (
	paper = iota
	lines // of the grid
	fill
	ink
)

// canvas is an image being drawn.
type canvas struct {
	*image.Paletted
	size int
}

func newCanvas(size int) canvas {
	// The paper is middle grey, which is zero for a tower that reads pixels in [-1, 1]. On white paper, where every
	// step of learning can shift all patches at once, the first trials learned badly.
	palette := color.Palette{
		color.Gray{Y: 128}, color.Gray{Y: 170},
		color.RGBA{R: 80, G: 140, B: 255, A: 255}, color.Gray{Y: 0},
	}
	return canvas{image.NewPaletted(image.Rect(0, 0, size, size), palette), size}
}

// dot colours a pixel, unless it is outside.
func (c canvas) dot(x, y int, colour uint8) {
	if x >= 0 && y >= 0 && x < c.size && y < c.size {
		c.SetColorIndex(x, y, colour)
	}
}

// box colours the pixels of [x0, x1] × [y0, y1].
func (c canvas) box(x0, y0, x1, y1 int, colour uint8) {
	for y := y0; y <= y1; y++ {
		for x := x0; x <= x1; x++ {
			c.dot(x, y, colour)
		}
	}
}

// line draws a straight line between two pixels.
func (c canvas) line(x0, y0, x1, y1 int, colour uint8) {
	steps := max(abs(x1-x0), abs(y1-y0), 1)
	for i := range steps + 1 {
		c.dot(x0+divide((x1-x0)*i, steps), y0+divide((y1-y0)*i, steps), colour)
	}
}

// divide rounds a/b to the nearest integer, halves up; b is positive.
func divide(a, b int) int {
	n := 2*a + b
	quotient := n / (2 * b)
	if n%(2*b) < 0 {
		quotient--
	}
	return quotient
}

func abs(x int) int { return max(x, -x) }

// number writes digits with their upper left corner at a pixel. Each has 3 × 5 points of the given size, with one
// between.
func (c canvas) number(n, x, y, size int) {
	for _, d := range numerals(n) {
		for row, points := range glyphs()[d] {
			for column := range 3 {
				if points>>(2-column)&1 == 1 {
					left, top := x+column*size, y+row*size
					c.box(left, top, left+size-1, top+size-1, ink)
				}
			}
		}
		x += 4 * size
	}
}

// numerals returns the digits of a number that is not negative.
func numerals(n int) []int {
	if n < 10 {
		return []int{n}
	}
	return append(numerals(n/10), n%10)
}

// width returns the width of a number in points.
func width(n int) int { return 4*len(numerals(n)) - 1 }

// glyphs are the digits as five rows of three points.
func glyphs() [10][5]uint8 {
	return [10][5]uint8{
		{0b111, 0b101, 0b101, 0b101, 0b111},
		{0b010, 0b110, 0b010, 0b010, 0b111},
		{0b111, 0b001, 0b111, 0b100, 0b111},
		{0b111, 0b001, 0b011, 0b001, 0b111},
		{0b101, 0b101, 0b111, 0b001, 0b001},
		{0b111, 0b100, 0b111, 0b001, 0b111},
		{0b111, 0b100, 0b111, 0b101, 0b111},
		{0b111, 0b001, 0b010, 0b010, 0b010},
		{0b111, 0b101, 0b111, 0b101, 0b111},
		{0b111, 0b101, 0b111, 0b001, 0b111},
	}
}
