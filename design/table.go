package design

import (
	"fmt"
	"math"
	"slices"
)

// Table is noise measured at whole staleness 0, 1, 2, …. Its Mean interpolates the cumulative sum linearly, so that sigma2 is constant
// within a version and Mean at a whole horizon is the plain average ([ER] appendix C.2.3). It says nothing of horizons beyond its
// length: to take the last value as lasting for ever would promise that ever larger buffers cost nothing.
type Table struct {
	sigma2 []float64 // by staleness
	sums   []float64 // sums[k] = sigma2[0] + … + sigma2[k-1]
}

// NewTable returns the profile with the given sigma2 at staleness 0, 1, 2, …. The values need not ascend, but must be finite, at least 0,
// and above 0 at staleness 0.
func NewTable(sigma2 []float64) (*Table, error) {
	if len(sigma2) == 0 {
		return nil, fmt.Errorf("profile: nothing: want sigma2 at staleness 0, 1, 2, …")
	}
	t := &Table{slices.Clone(sigma2), make([]float64, len(sigma2)+1)}
	for s, v := range sigma2 {
		if !(v >= 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("profile: sigma2(%d) is %v: want a finite number of at least 0", s, v)
		}
		t.sums[s+1] = t.sums[s] + v
	}
	if sigma2[0] == 0 {
		return nil, fmt.Errorf("profile: sigma2(0) is 0: want more; rollouts of the current policy have noise too")
	}
	if math.IsInf(t.sums[len(sigma2)], 0) {
		return nil, fmt.Errorf("profile: the sum of sigma2 overflows: want smaller numbers; their unit does not matter")
	}
	return t, nil
}

// Values returns sigma2 at staleness 0, 1, 2, …, a copy.
func (t *Table) Values() []float64 { return slices.Clone(t.sigma2) }

// Mean implements [Profile], for x in [1, Reach].
func (t *Table) Mean(x float64) float64 {
	if !(x >= 1 && x <= t.Reach()) {
		return math.NaN()
	}
	k := int(x)
	if k == len(t.sigma2) {
		return t.sums[k] / x
	}
	return (t.sums[k] + (x-float64(k))*t.sigma2[k]) / x
}

// At implements [Profile]: constant within a version.
func (t *Table) At(s float64) float64 {
	if !(s >= 0 && s < t.Reach()) {
		return math.NaN()
	}
	return t.sigma2[int(s)]
}

// Reach implements [Profile]: the number of values.
func (t *Table) Reach() float64 { return float64(len(t.sigma2)) }

func (t *Table) validate() error {
	if t == nil || len(t.sigma2) == 0 {
		return fmt.Errorf("profile: an empty table: want one made by NewTable")
	}
	return nil
}
