package sumtree

import "math"

// Min holds a value for each unit and, above them, their minima: the least is known in O(1). A unit
// of +Inf is absent. The zero value is empty and ready.
type Min struct {
	levels
	least float64 // of a Min that has units
}

// NewMin returns a Min of n units, all absent.
func NewMin(n int) *Min {
	m := &Min{}
	m.Grow(n)
	return m
}

// Len returns the number of units, absent ones too.
func (m *Min) Len() int { return m.n }

// Bytes returns the memory held, with the room that growth left.
func (m *Min) Bytes() int { return m.bytes() }

// Grow makes it hold at least n units; new ones are absent. It costs O(1) per unit, amortised.
func (m *Min) Grow(n int) {
	m.least = m.Least()
	m.grow(n, math.Inf(1), m.least)
}

// At returns the value of unit i, +Inf if it is absent.
func (m *Min) At(i int) float64 {
	m.mustHave(i)
	return m.at[0][i]
}

// Least returns the least value, +Inf if all units are absent or there are none.
func (m *Min) Least() float64 {
	if m.n == 0 {
		return math.Inf(1)
	}
	return m.least
}

// Set gives unit i a value, negative ones too; +Inf removes it. NaN panics. It costs O(log N), and far
// less as a rule: what neither was nor becomes the least of its node changes nothing above.
func (m *Min) Set(i int, v float64) {
	m.mustHave(i)
	if math.IsNaN(v) {
		badValue(i, "value", v)
	}
	for k, j := 0, i; k < m.depth; k++ {
		level := m.at[k]
		old := level[j]
		if old == v {
			return
		}
		level[j] = v
		above := &m.least
		if k+1 < m.depth {
			above = &m.at[k+1][j/width]
		}
		switch {
		case v < *above: // the new least
		case old > *above:
			return
		default: // the old least, gone
			v = nodeOf(level, j).least()
		}
		j /= width
		if k+1 == m.depth {
			m.least = v
		}
	}
}

// Refill lets values rewrite the values of all units in place, then recomputes every minimum, in O(N).
// The slice is not to be kept.
func (m *Min) Refill(values func(leaf []float64)) {
	values(m.units())
	for k := range m.depth {
		level := m.at[k]
		above := []float64{0}
		if k+1 < m.depth {
			above = m.at[k+1]
		}
		for i := 0; i < len(level); i += width {
			above[i/width] = nodeOf(level, i).least()
		}
		m.least = above[0]
	}
	if math.IsNaN(m.least) { // as every minimum with a NaN is
		for i, v := range m.units() {
			if math.IsNaN(v) {
				badValue(i, "value", v)
			}
		}
	}
}

func (a *node) least() float64 {
	return min(
		min(a[0], a[1], a[2], a[3]), min(a[4], a[5], a[6], a[7]),
		min(a[8], a[9], a[10], a[11]), min(a[12], a[13], a[14], a[15]))
}
