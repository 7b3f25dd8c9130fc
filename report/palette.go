package report

import (
	"fmt"
	"image/color"
)

// role is what a colour stands for. Plots are drawn in the role's light colour, and the SVG then
// refers to the page's style sheet, which knows the dark one too.
type role int

const (
	inkColor role = iota
	mutedColor
	gridColor
	axisColor
	stalledColor
	idleColor
	baselineColor
	replayColor
	baselineBand // the same hues, transparent
	replayBand
	baselineThin
	replayThin
	onFillColor // text on a filled bar
)

// paint is a role's colour while drawing and in the page. Blue and vermillion are told apart
// with any common colour blindness, and differ in lightness in grey print (Okabe and Ito's pair,
// darkened until text in them is legible on white).
type paint struct {
	hex      uint32
	variable string  // of the style sheet
	opacity  float64 // 1: opaque
}

func (r role) paint() paint {
	switch r {
	case inkColor:
		return paint{0x1F2328, "ink", 1}
	case mutedColor:
		return paint{0x59636E, "muted", 1}
	case gridColor:
		return paint{0xE4E7EB, "grid", 1}
	case axisColor:
		return paint{0x8C959F, "axis", 1}
	case stalledColor:
		return paint{0x98A2AD, "stalled", 1}
	case idleColor:
		return paint{0xD5DAE0, "idle", 1}
	case baselineColor:
		return paint{0xC2500A, "baseline", 1}
	case replayColor:
		return paint{0x0062B1, "replay", 1}
	case baselineBand:
		return paint{0xF3DCCE, "baseline", 0.17}
	case replayBand:
		return paint{0xCCE0EF, "replay", 0.17}
	case baselineThin:
		return paint{0xDDA077, "baseline", 0.38}
	case replayThin:
		return paint{0x77A8D3, "replay", 0.38}
	default:
		return paint{0xFFFFFF, "on-fill", 1}
	}
}

// color is what the plotting library draws with; roles differ in it, whatever they look like.
func (r role) color() color.Color {
	hex := r.paint().hex
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 255}
}

// band and thin return the role for the spread of an arm and for its single seeds.
func (r role) band() role {
	if r == baselineColor {
		return baselineBand
	}
	return replayBand
}

func (r role) thin() role {
	if r == baselineColor {
		return baselineThin
	}
	return replayThin
}

// paints returns every role's CSS by the hexadecimal colour that it was drawn in.
func paints() map[string]paint {
	m := make(map[string]paint)
	for r := inkColor; r <= onFillColor; r++ {
		p := r.paint()
		m[fmt.Sprintf("%06X", p.hex)] = p
	}
	return m
}
