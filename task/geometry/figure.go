package geometry

import "fmt"

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

// degrees of a step of an angle.
const degrees = 15

// figure is what a question is about.
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

// offset is by how many pixels a figure is shifted in its image, with the grid under it.
type offset struct{ x, y int }

// room returns how far the figures of a shape can be shifted either way in an image, in pixels: the grid leaves a cell free,
// the vertex of an angle stays near the middle.
func room(s shape, size, cells int) int {
	switch s {
	case segment, rectangle, rightTriangle:
		return size - 1 - cells*cellOf(size, cells)
	case rays:
		return 2 * (size / 10)
	}
	return 0
}

// cellOf returns the pixels from line to line of a grid.
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

// segments returns the segments along the lines of a grid, its edges too.
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

// placed returns the figures of a x b cells in every place of a grid and every turn.
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

// labelledFigures returns the figures with two numbers from low to high, each in both turns.
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

// hypotenuse returns the hypotenuse of legs below 100, 0 if it is no integer.
func hypotenuse(a, b int) int {
	for c := max(a, b); c <= a+b; c++ {
		if c*c == a*a+b*b {
			return c
		}
	}
	return 0
}
