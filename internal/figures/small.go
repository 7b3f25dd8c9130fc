package figures

import (
	"html/template"

	"github.com/reprise-rl/reprise/internal/words"
)

// smallWidth is the width of small drawings, in their own units.
const smallWidth = 320.0

// Meter draws a share as a horizontal bar, full from 1 on.
func Meter(share float64, colour, about string) template.HTML {
	full := smallWidth * max(0, min(1, share))
	if share > 0 {
		full = max(full, 3)
	}
	return svg(Size{Class: "meter", Width: smallWidth, Height: 8, Bare: true}, about,
		element{class: "track"}.rect(box{0, 0, smallWidth, 8}, 0)+
			element{class: "bar", colour: colour}.rect(box{0, 0, full, 8}, 0))
}

// Balance draws a value against two bounds, which lie at a sixth and five sixths of the width.
func Balance(value, low, high float64, about string) template.HTML {
	const left, right, middle = smallWidth / 6, smallWidth * 5 / 6, 10
	at := left
	if high > low {
		at = max(4, min(smallWidth-4, left+(value-low)/(high-low)*(right-left)))
	}
	content := element{class: "track"}.rect(box{0, middle - 4, smallWidth, middle + 4}, 4) +
		element{class: "allowed"}.rect(box{left, middle - 4, right, middle + 4}, 0)
	var marks, needle path
	for _, bound := range [2][2]float64{{left, low}, {right, high}} {
		marks.line('M', point{bound[0], middle - 7}, point{bound[0], middle + 7})
		content += element{}.centred(bound[0], middle+21, smallWidth, words.Amount(bound[1]))
	}
	return svg(Size{Class: "balance", Width: smallWidth, Height: 34}, about, content+element{class: "axis"}.path(&marks)+
		element{class: "needle"}.path(needle.marker(0, 6, point{at, middle})))
}
