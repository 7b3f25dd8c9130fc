package rollout

import (
	"math"
	"testing"
)

func TestASpanSumsUpThePolicysTokens(t *testing.T) {
	// good() has versions 3, 3, 5: mean 11/3 = 3.67, so at version 7 the mean staleness is 10/3.
	r := good()
	s := r.Span()
	if s != (Span{Least: 3, Greatest: 5, Sum: 11, Tokens: 3}) || r.Version() != 3 {
		t.Fatalf("got %+v, version %d", s, r.Version())
	}
	if got := s.MeanStaleness(7); math.Abs(got-10.0/3) > 1e-12 {
		t.Errorf("mean staleness at 7 is %v", got)
	}
	if s.MeanCeil() != 4 {
		t.Errorf("mean rounded up is %d", s.MeanCeil())
	}
	none := (&Rollout{Tokens: []int32{1}, Mask: []uint8{0}, Versions: []Version{-1}}).Span()
	if none.Least != NoVersion || none.Greatest != NoVersion || none.MeanCeil() != NoVersion || none.MeanStaleness(3) != 0 {
		t.Errorf("without policy tokens: %+v", none)
	}
}

func TestMeanStalenessRoundsDownToAVersion(t *testing.T) {
	random := Stream(3, "span", 0)
	for range 1000 {
		s := Span{Tokens: 1 + random.IntN(5)}
		for range s.Tokens {
			s.Sum += int64(random.IntN(9))
		}
		v := Version(8 + random.IntN(5))
		if got, want := v-s.MeanCeil(), Version(math.Floor(s.MeanStaleness(v))); got != want {
			t.Fatalf("%+v at %d: %d, want %d", s, v, got, want)
		}
	}
}

func TestBytesCountThePayload(t *testing.T) {
	// good(): prompt 3, text 4, mask 5, 2 turns of 13, scalars 13, tokens, logprobs, versions,
	// advantages, values and ref_logprobs 6 x 20, images 2, meta 5 + 4.
	if got, want := good().Bytes(), int64(3+4+5+26+13+120+2+9); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	r := good()
	r.Advantage = new(float32)
	if r.Bytes() != good().Bytes()+4 {
		t.Error("a given advantage is not counted")
	}
}

func TestStreamsAreReproducibleAndApart(t *testing.T) {
	draw := func(seed uint64, purpose string, index uint64) uint64 { return Stream(seed, purpose, index).Uint64() }
	first := draw(1, "a", 2)
	if draw(1, "a", 2) != first {
		t.Error("the same stream gave other numbers")
	}
	for name, other := range map[string]uint64{"seed": draw(2, "a", 2), "purpose": draw(1, "b", 2), "index": draw(1, "a", 3)} {
		if other == first {
			t.Errorf("another %s gave the same numbers", name)
		}
	}
}
