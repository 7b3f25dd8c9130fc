package policy

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/policy/hf"
)

// nearestBFloat16 finds the nearest bfloat16 by comparing distances, which float64 holds exactly.
func nearestBFloat16(v float32) float32 {
	below := math.Float32frombits(math.Float32bits(v) &^ 0xffff) // toward 0
	above := math.Float32frombits(math.Float32bits(below) + 1<<16)
	limit := float64(above)
	if math.IsInf(limit, 0) { // the next number if the exponent went on
		limit = math.Copysign(math.Ldexp(1, 128), float64(v))
	}
	down, up := math.Abs(float64(v)-float64(below)), math.Abs(limit-float64(v))
	if down < up || down == up && math.Float32bits(below)>>16&1 == 0 {
		return below
	}
	return above
}

func TestBFloat16IsTheNearestAndOfTwoTheEven(t *testing.T) {
	bits := func(b uint32) float32 { return math.Float32frombits(b) }
	for _, c := range []struct{ in, want uint32 }{
		{0x3f808000, 0x3f800000}, {0x3f818000, 0x3f820000}, // ties, down and up to even
		{0x3f808001, 0x3f810000}, {0x3f817fff, 0x3f810000}, // next to ties
		{0xbf818000, 0xbf820000}, {0x3fff8000, 0x40000000}, // negative; into the next exponent
		{0, 0}, {0x80000000, 0x80000000}, {0x00008000, 0}, {0x00018000, 0x00020000}, {1, 0}, // zeros, subnormal
		{0x7f7f7fff, 0x7f7f0000}, {0x7f7f8000, 0x7f800000}, {0x7f800000, 0x7f800000}, // largest, beyond it, infinite
	} {
		got := []float32{bits(c.in)}
		roundBFloat16(got)
		if b := math.Float32bits(got[0]); b != c.want || math.Float32bits(nearestBFloat16(bits(c.in))) != c.want &&
			c.in != 0x7f800000 {
			t.Errorf("%08x (%g) becomes %08x, want %08x", c.in, bits(c.in), b, c.want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 16))
	for range 200_000 {
		v := bits(rng.Uint32())
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			continue
		}
		got := []float32{v}
		if roundBFloat16(got); got[0] != nearestBFloat16(v) {
			t.Fatalf("%g becomes %g, want %g", v, got[0], nearestBFloat16(v))
		}
	}
}

func TestInt8IsOnTheGridOfItsChannelAndWithinHalfAStep(t *testing.T) {
	const out, in = 200, 37
	rng := rand.New(rand.NewPCG(2, 16))
	before := make([]float32, out*in)
	for i := range before {
		before[i] = float32(rng.NormFloat64() * math.Pow(10, float64(i/in%60-40))) // down to subnormal channels
	}
	clear(before[3*in : 4*in]) // a channel of zeros
	// A channel whose step is 1, with ties.
	copy(before[5*in:], []float32{-127, 0.5, 1.5, -2.5, 126.5, 0.49})
	clear(before[5*in+6 : 6*in])
	after := slices.Clone(before)
	roundInt8(after, in)
	for o := range out {
		row, rounded := before[o*in:(o+1)*in], after[o*in:(o+1)*in]
		step := float64(0)
		for _, v := range row {
			step = max(step, math.Abs(float64(v))/127)
		}
		for i, v := range row {
			smallest := float64(math.SmallestNonzeroFloat32) // what float32 itself cannot hold
			slack := 1e-7*math.Abs(float64(v)) + smallest/2
			if d := math.Abs(float64(v) - float64(rounded[i])); d > step/2*(1+1e-12)+slack {
				t.Fatalf("channel %d: %g becomes %g, further than half a step of %g", o, v, rounded[i], step)
			}
			if q := float64(rounded[i]) / step; step > 1e-30 && (math.Abs(q-math.Round(q)) > 1e-4 || math.Abs(q) > 127.01) {
				t.Fatalf("channel %d: %g becomes %g, %g steps: want a whole number to 127", o, v, rounded[i], q)
			}
		}
		again := slices.Clone(rounded)
		if roundInt8(again, in); step > 1e-30 && !slices.Equal(again, rounded) {
			t.Fatalf("channel %d: rounding a second time changes it", o)
		}
	}
	if got := after[5*in : 5*in+6]; !slices.Equal(got, []float32{-127, 0, 2, -2, 126, 0}) {
		t.Errorf("ties become %v", got)
	}
}

func TestRoundingChangesTheTensorsThatEnginesQuantise(t *testing.T) {
	for name, c := range map[string]bool{"tied": true, "own head": false} {
		config := withTower()
		config.ModelType, config.HeadDim = hf.Qwen3, 6 // has every kind of tensor
		config.ValueHead, config.TieWordEmbeddings, config.AttentionBias = true, c, true
		m := newTestModel(t, config)
		w := randomWeights(t, m, 5).WithVersion(9)
		exact, err := w.Flat()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []Precision{"", Full} {
			if same, err := m.Round(w, p); same != w || err != nil {
				t.Errorf("%s: %q makes a copy: %v", name, p, err)
			}
		}
		for p, rounded := range map[Precision]func(tensor string, dims int) bool{
			BFloat16: func(string, int) bool { return true },
			Int8: func(tensor string, dims int) bool {
				return strings.HasSuffix(tensor, "proj.weight") && dims == 2
			},
		} {
			low, err := m.Round(w, p)
			if err != nil {
				t.Fatal(err)
			}
			flat, err := low.Flat()
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range m.config.Specs() {
				if changed := !reflect.DeepEqual(flat[i], exact[i]); changed != rounded(s.Name, len(s.Shape)) {
					t.Errorf("%s, %s: %s changed: %t", name, p, s.Name, changed)
				}
			}
			if low.Version != 9 {
				t.Errorf("the copy has version %d, want that of the weights, 9", low.Version)
			}
		}
		if after, err := w.Flat(); err != nil || !reflect.DeepEqual(after, exact) {
			t.Errorf("rounding changed the weights themselves: %v", err)
		}
	}
	if _, err := newTestModel(t, withTower()).Round(nil, "fp8"); err == nil ||
		err.Error() != "round weights: precision: fp8: want float32, bfloat16 or int8" {
		t.Errorf("fp8: %v", err)
	}
}
