package report

import (
	"cmp"
	"math"

	"gonum.org/v1/plot"

	"github.com/reprise-rl/reprise/internal/words"
)

// axis is one axis of a chart.
type axis struct {
	title    string
	low      float64
	high     float64
	ticks    plot.Ticker
	gridless bool
	log      bool // base-10 logarithmic; both ends are above 0
}

// extent is the range of the values added so far.
type extent struct{ low, high float64 }

// nothing is the extent before any value.
func nothing() extent { return extent{math.Inf(1), math.Inf(-1)} }

func (e *extent) add(v float64) {
	if !math.IsNaN(v) {
		e.low, e.high = min(e.low, v), max(e.high, v)
	}
}

// holds reports whether a value lies within, up to rounding.
func (e extent) holds(v float64) bool {
	slack := (e.high - e.low) * 1e-9
	return v >= e.low-slack && v <= e.high+slack
}

// empty reports whether no value was added.
func (e extent) empty() bool { return e.low > e.high }

// padded returns the extent with a share of it added at both ends. A single value gets room around it.
func (e extent) padded(share float64) extent {
	if e.empty() {
		return extent{0, 1}
	}
	room := (e.high - e.low) * share
	if room == 0 {
		room = cmp.Or(math.Abs(e.high)*0.1, 1)
	}
	return extent{e.low - room, e.high + room}
}

// ticks marks an axis at multiples of 1, 2 or 5 times a power of ten.
type ticks struct {
	about   int
	integer bool // no steps below 1
}

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	if !(high > low) || math.IsInf(high-low, 0) {
		return []plot.Tick{{Value: low, Label: words.Amount(low)}}
	}
	step := niceStep((high - low) / float64(t.about))
	if t.integer {
		step = max(1, step)
	}
	var marks []plot.Tick
	first, last := math.Ceil(low/step-1e-9), math.Floor(high/step+1e-9)
	for k := range int(last-first) + 1 { // counted from 0: far from 0 a step may be too small to add to
		v := (first + float64(k)) * step
		marks = append(marks, plot.Tick{Value: v, Label: words.Tick(v, step)})
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

// logTicks marks a logarithmic axis. Labels stand at 1, 2 and 5 times powers of ten, at fewer values on long axes, and
// at round numbers on axes too short for powers. Marks without a label stand between powers of ten.
type logTicks struct {
	about   int
	integer bool // none between whole numbers
}

// Ticks implements plot.Ticker. Both ends are above 0.
func (t logTicks) Ticks(low, high float64) []plot.Tick {
	if !(high > low) || math.IsInf(high, 0) {
		return []plot.Tick{{Value: low, Label: words.Amount(low)}}
	}
	labelled := t.labelled(low, high)
	if len(labelled) < 3 {
		return ticks(t).Ticks(low, high)
	}
	named := make(map[float64]bool)
	var marks []plot.Tick
	for _, v := range labelled {
		named[v] = true
		marks = append(marks, plot.Tick{Value: v, Label: words.Amount(v)})
	}
	between := []int{1}
	if math.Log10(high/low) <= 6 { // beyond, nine marks to a power are a smear
		between = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	}
	for _, v := range powers(low, high, between) {
		if !named[v] {
			marks = append(marks, plot.Tick{Value: v})
		}
	}
	return marks
}

// labelled returns the densest choice of round values that fits.
func (t logTicks) labelled(low, high float64) []float64 {
	for _, mantissas := range [][]int{{1, 2, 5}, {1, 3}, {1}} {
		if values := powers(low, high, mantissas); len(values) <= t.about+2 {
			return values
		}
	}
	every := powers(low, high, []int{1})
	stride := (len(every) + t.about - 1) / t.about
	var values []float64
	for i := 0; i < len(every); i += stride {
		values = append(values, every[i])
	}
	return values
}

// powers returns, in ascending order, the powers of ten times each of the mantissas that lie on the axis.
func powers(low, high float64, mantissas []int) []float64 {
	const slack = 1e-9 // ends that are such values themselves
	var values []float64
	for p := math.Floor(math.Log10(low)); p <= math.Ceil(math.Log10(high)); p++ {
		for _, m := range mantissas {
			v := float64(m) * math.Pow(10, p)
			if v >= low*(1-slack) && v <= high*(1+slack) {
				values = append(values, v)
			}
		}
	}
	return values
}
