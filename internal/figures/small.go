package figures

import (
	"html/template"

	"github.com/reprise-rl/reprise/internal/words"
)

// smallWidth is the width of small drawings, in their own units.
const smallWidth = 320.0

// Meter draws a share as a horizontal bar, full from 1 on.
func Meter(share float64, colour, about string) template.HTML {
	var c canvas
	c.rect(element{class: "track"}, box{0, 0, smallWidth, 8}, 0)
	if share > 0 {
		c.rect(element{class: "bar", colour: colour}, box{0, 0, max(3, smallWidth*min(1, share)), 8}, 0)
	}
	return c.svg(Size{Class: "meter", Width: smallWidth, Height: 8, Bare: true}, about)
}

// Balance draws a value against two bounds, which lie at a sixth and five sixths of the width.
func Balance(value, low, high float64, about string) template.HTML {
	const left, right, middle = smallWidth / 6, smallWidth * 5 / 6, 10
	var c canvas
	c.rect(element{class: "track"}, box{0, middle - 4, smallWidth, middle + 4}, 4)
	c.rect(element{class: "allowed"}, box{left, middle - 4, right, middle + 4}, 0)
	var bounds, needle path
	for _, bound := range [2][2]float64{{left, low}, {right, high}} {
		bounds.line('M', point{bound[0], middle - 7}, point{bound[0], middle + 7})
		c.centred(element{}, bound[0], middle+21, smallWidth, words.Amount(bound[1]))
	}
	c.path(element{class: "axis"}, &bounds)
	at := left
	if high > low {
		at = max(4, min(smallWidth-4, left+(value-low)/(high-low)*(right-left)))
	}
	c.path(element{class: "needle"}, needle.marker(0, 6, point{at, middle}))
	return c.svg(Size{Class: "balance", Width: smallWidth, Height: 34}, about)
}
