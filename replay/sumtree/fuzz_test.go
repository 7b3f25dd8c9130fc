package sumtree

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// FuzzTree does any sequence of operations with any weights. Sums must add up in their order, and a draw
// must fall on a unit that has a weight.
func FuzzTree(f *testing.F) {
	f.Add([]byte("\x00\x20\x01\x05\x00\x00\x00\x00\x00\x00\xf0\x3f\x02\x00\x00\x00\x00\x00\x00\xe0\x3f"))
	f.Add([]byte("\x00\xff\x00\xff\x00\xff\x01\x10\x01\x00\x00\x00\x00\x00\x00\x00\x04\x03\x03\x80\x02\x01\x02\x03\x04\x05\x06\x07\x08"))
	f.Fuzz(func(t *testing.T, program []byte) {
		next := func(n int) uint64 {
			var b [8]byte
			program = program[copy(b[:n], program):]
			return binary.LittleEndian.Uint64(b[:])
		}
		// Two to a thousand weights may add up to less than an overflow.
		weight := func() float64 {
			w := math.Abs(math.Float64frombits(next(8)))
			if !(w < 0x1p1000) {
				return 0
			}
			return w
		}
		tree, m := &Tree{}, model{}
		largest := 0.0
		for len(program) > 0 {
			switch op := next(1) % 5; {
			case op == 0:
				n := min(len(m)+int(next(1)), 2000)
				tree.Grow(n)
				m = append(m, make(model, n-len(m))...)
			case op == 1 && len(m) > 0:
				i, w := int(next(2))%len(m), weight()
				tree.Set(i, w)
				m[i] = w
			case op == 2:
				w, every := weight(), 1+int(next(1))
				tree.Refill(func(leaf []float64) {
					for i := range leaf {
						leaf[i] = 0
						if i%every == 0 {
							leaf[i] = w
						}
					}
					copy(m, leaf)
				})
			case op == 3:
				if k := int(int16(next(2))); math.Ldexp(largest, k) < 0x1p1000 {
					tree.Scale(k)
					for i := range m {
						m[i] = math.Ldexp(m[i], k)
					}
				}
			case op == 4 && m.total() > 0:
				u := []float64{float64(next(8)) * 0x1p-64 * m.total(), m.total(), m.total() * (1 - 0x1p-53)}
				out := make([]int32, len(u))
				tree.FindAll(slices.Clone(u), out)
				for i, unit := range out {
					if !(m[unit] > 0) {
						t.Fatalf("find %v of %v: unit %d of weight 0", u[i], m.total(), unit)
					}
					before, rounding := m[:unit].total(), 1e-14*m.total()
					if u[i] < before-rounding || u[i] > before+m[unit]+rounding {
						t.Fatalf("find %v: unit %d of [%v, %v)", u[i], unit, before, before+m[unit])
					}
				}
			}
			largest = 0
			for _, w := range m {
				largest = max(largest, w)
			}
		}
		m.mustAgree(t, tree)
	})
}

// FuzzMin does any sequence of operations with any values.
func FuzzMin(f *testing.F) {
	f.Add([]byte("\x00\x20\x01\x05\x00\x00\x00\x00\x00\x00\xf0\x3f\x02\x00\x00\x00\x00\x00\x00\xe0\x3f"))
	f.Fuzz(func(t *testing.T, program []byte) {
		next := func(n int) uint64 {
			var b [8]byte
			program = program[copy(b[:n], program):]
			return binary.LittleEndian.Uint64(b[:])
		}
		m, values := &Min{}, []float64{}
		for len(program) > 0 {
			switch op := next(1) % 8; {
			case op == 0:
				n := min(len(values)+int(next(1)), 2000)
				m.Grow(n)
				for len(values) < n {
					values = append(values, math.Inf(1))
				}
			case op == 1:
				m.Refill(func(leaf []float64) {
					slices.Reverse(leaf)
					slices.Reverse(values)
				})
			case len(values) > 0:
				i := int(next(2)) % len(values)
				v := math.Float64frombits(next(8))
				if math.IsNaN(v) {
					v = math.Inf(1)
				}
				m.Set(i, v)
				values[i] = v
			}
			mustBeLeast(t, m, values)
		}
	})
}
