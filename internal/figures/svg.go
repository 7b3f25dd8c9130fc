package figures

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// textSize is the size of text for which drawings have room, in their own units. The style sheet has 10 to 12.5.
const textSize = 12

// width estimates the width of text, in the widest of the usual fonts.
func width(text string) float64 {
	em := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune(" .,:;'|!()[]/ijlftrI", r):
			em += 0.4
		case strings.ContainsRune("mwMW%@—∞…", r), r >= 0x1100:
			em++
		case r >= 'A' && r <= 'Z', strings.ContainsRune("=+−<>~", r):
			em += 0.76
		default:
			em += 0.64
		}
	}
	return em * textSize
}

// fitted writes text in one line, and cuts what is wider than a width.
func fitted(text string, most float64) string {
	text = oneLine(text)
	if width(text) <= most {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && width(string(runes)+"…") > most {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// oneLine returns text without line breaks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// point is a place in a drawing, whose y grows downwards.
type point struct{ x, y float64 }

// box is a rectangle of a drawing.
type box struct{ left, top, right, bottom float64 }

// inset returns the box without an edge of a width.
func (b box) inset(by float64) box { return box{b.left + by, b.top + by, b.right - by, b.bottom - by} }

// holds reports whether a point lies in the box, up to rounding.
func (b box) holds(p point) bool {
	const slack = 0.01
	return p.x >= b.left-slack && p.x <= b.right+slack && p.y >= b.top-slack && p.y <= b.bottom+slack
}

func (b box) overlaps(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// clip returns the pieces of a line that lie in the box; of a ring, one ring.
func (b box) clip(line []point, ring bool) [][]point {
	pieces := [][]point{line}
	for _, inside := range [4]func(point) float64{
		func(p point) float64 { return p.x - b.left }, func(p point) float64 { return b.right - p.x },
		func(p point) float64 { return p.y - b.top }, func(p point) float64 { return b.bottom - p.y },
	} {
		var kept [][]point
		for _, piece := range pieces {
			if ring && len(piece) > 0 {
				piece = append(piece, piece[0])
			}
			kept = append(kept, cut(piece, inside)...)
		}
		if pieces = kept; ring {
			pieces = [][]point{slices.Concat(kept...)}
		}
	}
	return pieces
}

// cut returns the pieces of a line where a distance from an edge is not negative.
func cut(line []point, inside func(point) float64) (pieces [][]point) {
	for i, at := range line {
		to := inside(at)
		if from := inside(line[max(0, i-1)]); (from < 0) != (to < 0) {
			before, share := line[i-1], from/(from-to)
			edge := point{before.x + share*(at.x-before.x), before.y + share*(at.y-before.y)}
			if from < 0 {
				pieces = append(pieces, nil)
			}
			pieces[len(pieces)-1] = append(pieces[len(pieces)-1], edge)
		}
		if i == 0 && to >= 0 {
			pieces = append(pieces, nil)
		}
		if to >= 0 {
			pieces[len(pieces)-1] = append(pieces[len(pieces)-1], at)
		}
	}
	return pieces
}

// path is the d of an SVG's path, in tenths of a unit.
type path struct {
	strings.Builder
	x, y float64 // where it is
}

// to adds a command that ends at a point: M, or m or l, which are written by the way from the point before.
func (p *path) to(command byte, at point) {
	x, y := round(at.x), round(at.y)
	right, down := x, y
	if command != 'M' {
		right, down = round(x-p.x), round(y-p.y)
	}
	p.WriteString(string(command) + tenths(right))
	if down >= 0 {
		p.WriteByte(' ')
	}
	p.WriteString(tenths(down))
	p.x, p.y = x, y
}

// line adds a line through points. The command is that of the first.
func (p *path) line(command byte, points ...point) *path {
	for _, at := range points {
		p.to(command, at)
		command = 'l'
	}
	return p
}

// ring adds a closed line.
func (p *path) ring(points ...point) *path {
	p.line('M', points...).WriteByte('z')
	return p
}

// box adds the outline of a box.
func (p *path) box(b box) *path {
	return p.ring(point{b.left, b.top}, point{b.right, b.top}, point{b.right, b.bottom}, point{b.left, b.bottom})
}

func round(v float64) float64 { return math.Round(10*v)/10 + 0 } // + 0: never −0

// tenths writes a length to a tenth of a unit.
func tenths(v float64) string { return strconv.FormatFloat(round(v), 'f', -1, 64) }

// marker adds the shape of a point: a circle, a square, a triangle, a diamond, or a triangle upside down. It begins
// with a move to the point, by which the script moves the shape.
func (p *path) marker(shape int, size float64, at point) *path {
	p.to('M', at)
	corners := [5][]point{1: {{-0.92, -0.92}, {0.92, -0.92}, {0.92, 0.92}, {-0.92, 0.92}},
		2: {{0, -1.5}, {1.3, 0.75}, {-1.3, 0.75}}, 3: {{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}},
		4: {{0, 1.5}, {1.3, -0.75}, {-1.3, -0.75}}}[shape%5]
	if len(corners) == 0 {
		r, wide := tenths(size), tenths(2*size)
		fmt.Fprintf(p, "m-%s 0a%[1]s %[1]s 0 1 0 %s 0a%[1]s %[1]s 0 1 0-%s 0z", r, wide, wide)
		return p
	}
	for i := range corners {
		corners[i] = point{at.x + size*corners[i].x, at.y + size*corners[i].y}
	}
	p.line('m', corners...).WriteByte('z')
	return p
}

// element is a part of a drawing: its class, its colour as a variable of the style sheet, and its data-p.
type element struct{ class, colour, part string }

// canvas is the content of a drawing.
type canvas struct{ strings.Builder }

func (c *canvas) open(tag string, e element) {
	c.WriteString("<" + tag)
	if e.class != "" {
		c.WriteString(` class="` + e.class + `"`)
	}
	if e.colour != "" {
		c.WriteString(` color="var(--` + e.colour + `)"`)
	}
	if e.part != "" {
		c.WriteString(` data-p="` + e.part + `"`)
	}
}

// path writes a path, nothing if it is empty.
func (c *canvas) path(e element, p *path) {
	if p.Len() > 0 {
		c.open("path", e)
		c.WriteString(` d="` + p.String() + `"/>` + "\n")
	}
}

// rect writes a rectangle with round corners.
func (c *canvas) rect(e element, b box, radius float64) {
	c.open("rect", e)
	fmt.Fprintf(c, ` x="%s" y="%s" width="%s" height="%s" rx="%s"/>`, tenths(b.left), tenths(b.top),
		tenths(b.right-b.left), tenths(b.bottom-b.top), tenths(radius))
}

// text writes text with its start, middle or end at a point.
func (c *canvas) text(e element, anchor string, x, y float64, text string) {
	if text != "" {
		c.open("text", e)
		fmt.Fprintf(c, ` text-anchor="%s" x="%s" y="%s">%s</text>`+"\n", anchor, tenths(x), tenths(y),
			template.HTMLEscapeString(text))
	}
}

// centred writes muted text about a place, moved and cut so that it stays between 0 and a width.
func (c *canvas) centred(e element, x, y, most float64, text string) {
	text = fitted(text, most)
	half := width(text) / 2
	c.text(e, "middle", max(half, min(most-half, x)), y, text)
}

// svg returns the drawing for the page, with a title for screen readers.
func (c *canvas) svg(s Size, title string) template.HTML {
	stretch := ""
	if s.Bare {
		stretch = ` preserveAspectRatio="none"`
	}
	return template.HTML(fmt.Sprintf(`<svg class="chart %s" viewBox="0 0 %g %g"%s role="img"><title>%s</title>`+
		"\n%s</svg>", s.Class, s.Width, s.Height, stretch, template.HTMLEscapeString(oneLine(title)), c.String()))
}

// iconHeight is the height of drawings for a line of text.
const iconHeight = 11

// icon returns a drawing for a line of text. Screen readers skip it, and read its name.
func (c *canvas) icon(width float64) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="chart icon" viewBox="0 0 %g %d" width="%[1]g" height="%[2]d" `+
		`aria-hidden="true">%[3]s</svg>`, width, iconHeight, c.String()))
}
