package report

import (
	"math"

	"gonum.org/v1/plot"
)

// logTicks marks a logarithmic axis: at 1, 2 and 5 times powers of ten where that is about as many labels as asked for, at fewer where the
// axis is long, and at round numbers where it spans so little that no powers would be left. Between powers of ten stand marks without a label.
type logTicks struct{ about int }

// Ticks implements plot.Ticker. Both ends are above 0.
func (t logTicks) Ticks(low, high float64) []plot.Tick {
	if !(high > low) || math.IsInf(high, 0) {
		return []plot.Tick{{Value: low, Label: short(low, 0)}}
	}
	labelled := t.labelled(low, high)
	if len(labelled) < 3 {
		return ticks{about: t.about}.Ticks(low, high)
	}
	named := make(map[float64]bool)
	var marks []plot.Tick
	for _, v := range labelled {
		named[v] = true
		marks = append(marks, plot.Tick{Value: v, Label: short(v, 0)})
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

// powers returns, in ascending order, what lies within the axis of powers of ten times each of the mantissas.
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
