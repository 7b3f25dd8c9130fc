package sumtree

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// mustBeLeast fails unless m has these values, and at each level their minima.
func mustBeLeast(t *testing.T, m *Min, values []float64) {
	t.Helper()
	if m.Len() != len(values) {
		t.Fatalf("%d units, want %d", m.Len(), len(values))
	}
	least := math.Inf(1)
	for i, v := range values {
		if m.At(i) != v {
			t.Fatalf("value %v of unit %d, want %v", m.At(i), i, v)
		}
		least = min(least, v)
	}
	if m.Least() != least {
		t.Fatalf("least %v, want %v", m.Least(), least)
	}
	for k := 1; k < m.depth; k++ {
		for g := range len(m.at[k-1]) / width {
			if want := slices.Min(m.at[k-1][g*width:][:width]); m.at[k][g] != want {
				t.Fatalf("level %d: node %d has least %v, but above stands %v", k-1, g, want, m.at[k][g])
			}
		}
	}
	for k := range m.depth {
		for _, v := range m.at[k][len(values):] {
			if !math.IsInf(v, 1) {
				t.Fatalf("level %d: %v is past the units", k, v)
			}
		}
		values = values[:(len(values)+width-1)/width]
	}
}

func TestMinAgreesWithALinearModel(t *testing.T) {
	for seed := range uint64(20) {
		r := stream(seed)
		m, values := &Min{}, []float64{}
		// Few different values, so that several are the least at once.
		value := func() float64 {
			if r.IntN(3) == 0 {
				return math.Inf(1)
			}
			return float64(r.IntN(40)) - 20
		}
		for range 3000 {
			switch op := r.IntN(100); {
			case op < 50 && len(values) > 0:
				i, v := r.IntN(len(values)), value()
				m.Set(i, v)
				values[i] = v
			case op < 85 && len(values) > 0:
				// Take away the least, so that it rises through all levels.
				i := slices.Index(values, slices.Min(values))
				v := value() + 5
				m.Set(i, v)
				values[i] = v
			case op < 90:
				n := min(len(values)+r.IntN(4+len(values)/8)-1, maxUnits)
				m.Grow(n)
				for len(values) < n {
					values = append(values, math.Inf(1))
				}
			case op < 92:
				m.Refill(func(leaf []float64) {
					for i := range leaf {
						leaf[i] = value()
					}
					copy(values, leaf)
				})
			}
			if r.IntN(10) == 0 {
				mustBeLeast(t, m, values)
			}
		}
		if len(values) < maxUnits/2 {
			t.Errorf("seed %d: it grew to %d units only", seed, len(values))
		}
	}
}

func TestMinGrowsAcrossLevels(t *testing.T) {
	for _, n := range []int{0, 1, 16, 256, 4096} {
		m, values := NewMin(n), slices.Repeat([]float64{math.Inf(1)}, n)
		for i := range values {
			values[i] = float64(n - i)
			m.Set(i, values[i])
		}
		for range 3 {
			m.Grow(m.Len() + 1)
			values = append(values, math.Inf(1))
			mustBeLeast(t, m, values)
		}
		m.Grow(20 * m.Len())
		for len(values) < m.Len() {
			values = append(values, math.Inf(1))
		}
		mustBeLeast(t, m, values)
		if m.Bytes() < 8*m.Len() {
			t.Errorf("%d bytes for %d units", m.Bytes(), m.Len())
		}
	}
}

func TestMistakesWithMinPanic(t *testing.T) {
	for name, mistake := range map[string]func(){
		"set past the end":  func() { NewMin(20).Set(20, 1) },
		"set NaN":           func() { NewMin(20).Set(2, math.NaN()) },
		"at past the end":   func() { NewMin(20).At(20) },
		"at of an empty":    func() { (&Min{}).At(0) },
		"refill with a NaN": func() { NewMin(20).Refill(func(leaf []float64) { leaf[17] = math.NaN() }) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("nothing happened")
				}
			}()
			mistake()
		})
	}
}

func ExampleMin() {
	m := NewMin(3)
	m.Set(0, 0.5)
	m.Set(2, 0.25)
	fmt.Println(m.Least())
	m.Set(2, math.Inf(1)) // gone
	fmt.Println(m.Least(), m.At(1))
	// Output:
	// 0.25
	// 0.5 +Inf
}
