package report

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// ticks marks an axis at multiples of 1, 2 or 5 times a power of ten, about as many as asked for.
type ticks struct {
	about   int
	integer bool // no steps below 1
}

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	if !(high > low) || math.IsInf(high-low, 0) {
		return []plot.Tick{{Value: low, Label: short(low, 0)}}
	}
	step := niceStep((high - low) / float64(t.about))
	if t.integer {
		step = max(1, step)
	}
	var marks []plot.Tick
	first, last := math.Ceil(low/step-1e-9), math.Floor(high/step+1e-9)
	for k := range int(last-first) + 1 { // counted from 0: far from 0 a step may be too small to add to
		v := (first + float64(k)) * step
		marks = append(marks, plot.Tick{Value: v, Label: short(v, step)})
	}
	return marks
}

// niceStep returns the 1, 2 or 5 times a power of ten that is nearest to raw by ratio.
func niceStep(raw float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	switch m := raw / power; {
	case m < math.Sqrt2:
		return power
	case m < math.Sqrt(10):
		return 2 * power
	case m < math.Sqrt(50):
		return 5 * power
	default:
		return 10 * power
	}
}

// short writes a number with the digits that a step of that size calls for, thousands as k and
// millions as M. A step of 0 asks for three significant digits.
func short(v, step float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0:
		return "−" + short(-v, step)
	}
	unit, suffix := 1.0, ""
	switch {
	case v >= 1e12 || v < 1e-4:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case v >= 1e9:
		unit, suffix = 1e9, "G"
	case v >= 1e6:
		unit, suffix = 1e6, "M"
	case v >= 1e4:
		unit, suffix = 1e3, "k"
	}
	v /= unit
	trim := unit > 1 || step == 0
	if step == 0 {
		step = math.Pow(10, math.Floor(math.Log10(v))-2) * unit
	}
	digits := max(0, int(math.Ceil(-math.Log10(step/unit)-1e-9)))
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if trim && strings.Contains(text, ".") { // 1.50M and 2.00M would be noise
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + suffix
}

// grouped writes a whole number with commas between thousands.
func grouped(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	digits := strconv.FormatFloat(math.Round(math.Abs(v)), 'f', 0, 64)
	var b strings.Builder
	if v < 0 {
		b.WriteString("−")
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
