package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot/vg"
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
	onFillColor // text on a filled bar
	firstArm    // the arms' colours, each with its band and its thin line
)

const (
	perArm   = 3                              // roles of an arm: itself, its band, its thin line
	lastArm  = firstArm + perArm*(MostArms-1) // the last arm's own
	heat0    = lastArm + perArm               // the fills of heat maps, from the least to the most
	onHeat0  = heat0 + heatLevels             // text on each of them
	allRoles = onHeat0 + heatLevels
	solid    = MostArms / 2 // arms whose lines are solid; those after them are dashed

	baselineColor = firstArm
	replayColor   = firstArm + perArm
)

// MostArms is how many arms a page can show: as many as have colours of their own.
const MostArms = 8

// armRole returns the colour of arm i, counted from 0.
func armRole(i int) role { return firstArm + perArm*role(i) }

// paint is a role's colour while drawing and in the page.
type paint struct {
	hex      uint32
	variable string  // of the style sheet
	opacity  float64 // 1: opaque
}

// armPaints are the arms' colours. Blue and vermillion are told apart with any common colour
// blindness, and differ in lightness in grey print (Okabe and Ito's pair, darkened until text in
// them is legible on white). Eight hues are not, so that the arms are two times four: within a four
// every two differ for every eye, and the second four are dashed.
func armPaints() [MostArms]paint {
	return [MostArms]paint{
		{0xC2500A, "baseline", 1}, {0x0062B1, "replay", 1}, {0x1FA574, "green", 1}, {0x5E1A78, "purple", 1},
		{0xB0307F, "pink", 1}, {0x8A7A00, "olive", 1}, {0x3C3F44, "graphite", 1}, {0x2B9FCB, "sky", 1},
	}
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
	case onFillColor:
		return paint{0xFFFFFF, "on-fill", 1}
	}
	if r >= heat0 {
		return r.heatPaint()
	}
	p := armPaints()[(r-firstArm)/perArm]
	switch (r - firstArm) % perArm {
	case 1:
		return paint{towardsWhite(p.hex, 0.8), p.variable, 0.17}
	case 2:
		return paint{towardsWhite(p.hex, 0.5), p.variable, 0.38}
	default:
		return p
	}
}

// towardsWhite mixes a share of white into a colour.
func towardsWhite(hex uint32, share float64) uint32 {
	var mixed uint32
	for shift := 0; shift <= 16; shift += 8 {
		c := float64(hex >> shift & 0xFF)
		mixed |= uint32(c+share*(255-c)) << shift
	}
	return mixed
}

// color is what the plotting library draws with; roles differ in it, whatever they look like.
func (r role) color() color.Color {
	hex := r.paint().hex
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 255}
}

// band and thin return the role of an arm's spread and of its single seeds.
func (r role) band() role { return r + 1 }

func (r role) thin() role { return r + 2 }

// dashes returns the pattern of an arm's thick lines, nothing for solid ones.
func (r role) dashes() []vg.Length {
	if r < armRole(solid) || (r-firstArm)%perArm != 0 {
		return nil
	}
	return []vg.Length{5, 2.5}
}

// paints returns every role's CSS by the hexadecimal colour that it was drawn in.
func paints() map[string]paint {
	m := make(map[string]paint)
	for r := inkColor; r < allRoles; r++ {
		p := r.paint()
		m[fmt.Sprintf("%06X", p.hex)] = p
	}
	return m
}

// heatLevels is how many fills a heat map has: few enough that each can have text of enough contrast.
const heatLevels = 9

// heatFill returns the fill of a share of the way from the least to the most, and the colour of text on it.
func heatFill(share float64) (fill, onFill role) {
	level := role(min(heatLevels-1, max(0, int(share*heatLevels))))
	return heat0 + level, onHeat0 + level
}

// heatPaints are the fills on a light page, from the least to the most: one hue, by falling lightness, with a step in
// the middle where neither dark nor light text could be read.
func heatPaints() [heatLevels]uint32 {
	return [heatLevels]uint32{0xECF5FB, 0xCCE3F3, 0xADD2ED, 0x8FBFE6, 0x70ABDE, 0x5296D5, 0x1F6CB6, 0x0E56A0, 0x00408A}
}

// heatPaint returns the paint of a fill or of the text on it.
func (r role) heatPaint() paint {
	if r < onHeat0 {
		return paint{heatPaints()[r-heat0], fmt.Sprintf("heat-%d", r-heat0), 1}
	}
	// Text is dark or light by the style sheet, which is told the level by a shade of black of its own.
	level := r - onHeat0
	return paint{0x010101 + uint32(level), fmt.Sprintf("on-heat-%d", level), 1}
}
