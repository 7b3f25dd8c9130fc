package report

import (
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/results"
)

// heatLevels is how many fills a heat map has: few enough that each can have text of enough contrast.
const heatLevels = 9

// heatFill returns the fill of a share of the way from the least to the most, and the colour of text on it.
func heatFill(share float64) (fill, onFill role) {
	level := role(min(heatLevels-1, max(0, int(share*heatLevels))))
	return heat0 + level, onHeat0 + level
}

// heatPaints are the fills on a light page, from the least to the most: one hue, by falling lightness, with a step in the middle where
// neither dark nor light text could be read.
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

// ranks returns the different values in ascending order if half of them lie within a sixth of their range at one of its ends, else nothing.
func ranks(values []float64, within extent) []float64 {
	share := (results.Median(values) - within.low) / (within.high - within.low)
	if share > 1.0/6 && share < 5.0/6 || within.low == within.high {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

// share returns how strong a value's colour is, from 0 to 1.
func (h heat) share(v float64) float64 {
	var share float64
	switch {
	case h.values.high == h.values.low:
		return 0.4
	case h.ranked != nil:
		i, _ := slices.BinarySearch(h.ranked, v)
		share = float64(i) / float64(len(h.ranked)-1)
	default:
		share = (v - h.values.low) / (h.values.high - h.values.low)
	}
	if h.of.Map.Less {
		return 1 - share
	}
	return share
}
