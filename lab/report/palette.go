package report

import (
	"fmt"
	"image/color"
	"slices"

	"github.com/reprise-rl/reprise/internal/figures"
)

// role is the meaning of a colour, and what is drawn in it. Plots are drawn in a colour of each role's own; the SVG
// then refers to the page's style sheet, which has the light and the dark colour. Roles below allRoles are drawn in
// their light colour; those of parts follow.
type role int

const (
	inkColor role = iota
	mutedColor
	gridColor
	axisColor
	firstArm // the arms' colours, each with its band and its thin line
)

const (
	perArm   = 3                              // roles of an arm: itself, its band, its thin line
	lastArm  = firstArm + perArm*(MostArms-1) // the last arm's own
	heat0    = lastArm + perArm               // the fills of heat maps, from the least to the most
	onHeat0  = heat0 + heatLevels             // text on each of them
	allRoles = onHeat0 + heatLevels
	solid    = MostArms / 2 // colours after which the markers of lines change
)

// MostArms is the most arms that a page can show: one for each colour.
const MostArms = 8

// armRole returns the colour of arm i, counted from 0.
func armRole(i int) role { return firstArm + perArm*role(i) }

// paint is a role's colour, in the drawing and on the page.
type paint struct {
	hex      uint32
	variable string  // of the style sheet
	opacity  float64 // 1: opaque
}

// armPaints are the arms' colours. Blue and vermillion are distinct under any common colour blindness, and differ in
// lightness in grey print (Okabe and Ito's pair, darkened until text in them is legible on white). Eight hues are not
// all distinct, so the arms are two times four: within a four every two differ for every eye, and the second four have
// another marker.
func armPaints() [MostArms]paint {
	return [MostArms]paint{
		{0xC2500A, "baseline", 1}, {0x0062B1, "replay", 1}, {0x1FA574, "green", 1}, {0x5E1A78, "purple", 1},
		{0xB0307F, "pink", 1}, {0x8A7A00, "olive", 1}, {0x3C3F44, "graphite", 1}, {0x2B9FCB, "sky", 1},
	}
}

// of returns the role of a part of a drawing in this colour: that of the n-th curve, guide or mark.
func (r role) of(p figures.Part, n int) role {
	kinds := figures.Parts()
	return r%allRoles + allRoles*role(1+n*len(kinds)+slices.Index(kinds, p))
}

// part returns what of returned, as the value of the attribute data-p, "" for other roles.
func (r role) part() string {
	if r < allRoles {
		return ""
	}
	kinds := figures.Parts()
	k := int(r/allRoles) - 1
	return fmt.Sprintf("%c%d", kinds[k%len(kinds)], k/len(kinds))
}

// partColours is where the colours of parts begin.
const partColours = 0x400000

// hex returns the colour in which the role is drawn.
func (r role) hex() uint32 {
	if r < allRoles {
		return r.paint().hex
	}
	return partColours + uint32(r)
}

// drawnIn returns the role that is drawn in a colour.
func drawnIn(hex uint32) (r role, ok bool) {
	for r := inkColor; r < allRoles; r++ {
		if r.paint().hex == hex {
			return r, true
		}
	}
	return role(hex - partColours), hex >= partColours+uint32(allRoles)
}

func (r role) paint() paint {
	r %= allRoles
	switch r {
	case inkColor:
		return paint{0x1F2328, "ink", 1}
	case mutedColor:
		return paint{0x59636E, "muted", 1}
	case gridColor:
		return paint{0xE4E7EB, "grid", 1}
	case axisColor:
		return paint{0x8C959F, "axis", 1}
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

// color returns the drawing colour, which is different for every role.
func (r role) color() color.Color {
	hex := r.hex()
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 255}
}

// band returns the role of an arm's spread, and thin that of its single seeds.
func (r role) band() role { return r + 1 }

func (r role) thin() role { return r + 2 }

// heatLevels is the number of fills of a heat map, few enough that text is readable on each.
const heatLevels = 9

// heatFill returns the fill of a share from the lowest to the highest value, and the colour of text on it.
func heatFill(share float64) (fill, onFill role) {
	level := role(min(heatLevels-1, max(0, int(share*heatLevels))))
	return heat0 + level, onHeat0 + level
}

// heatPaints are the fills on a light page, from the lowest to the highest value: one hue with falling lightness, and a
// step in the middle where neither dark nor light text would be readable.
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
