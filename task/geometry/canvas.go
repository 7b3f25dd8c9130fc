package geometry

import (
	"image"
	"image/color"
)

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
	// The paper is the middle grey, which a tower that reads pixels within [-1, 1] takes for nothing; on white paper, where every step
	// of learning may shift all patches at once, the first trials learned badly.
	palette := color.Palette{
		color.Gray{Y: 128}, color.Gray{Y: 170},
		color.RGBA{R: 80, G: 140, B: 255, A: 255}, color.Gray{Y: 0},
	}
	return canvas{image.NewPaletted(image.Rect(0, 0, size, size), palette), size}
}

// dot colours a pixel; those outside are left out.
func (c canvas) dot(x, y int, colour uint8) {
	if x >= 0 && y >= 0 && x < c.size && y < c.size {
		c.SetColorIndex(x, y, colour)
	}
}

// box colours the pixels of [x0, x1] x [y0, y1].
func (c canvas) box(x0, y0, x1, y1 int, colour uint8) {
	for y := y0; y <= y1; y++ {
		for x := x0; x <= x1; x++ {
			c.dot(x, y, colour)
		}
	}
}

// line draws a straight line from pixel to pixel.
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

// number writes digits with their upper left corner at a pixel, each of 3 x 5 points of the given size with one between.
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

// width returns the points that a number is wide.
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
