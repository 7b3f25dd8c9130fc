package rollout

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"reflect"
	"testing"
	"unsafe"
)

// appendEach is the binary form of words as it is defined: number by number, little-endian.
func appendEach(b []byte, s []float32) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	for _, x := range s {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func TestWordsAreWrittenLittleEndian(t *testing.T) {
	for n := range 20 {
		s := make([]float32, n)
		for i := range s {
			s[i] = float32(i*i) - 7.25
		}
		want := appendEach([]byte("before"), s)
		if got := appendWords([]byte("before"), s); !bytes.Equal(got, want) {
			t.Errorf("%v is written as %x, want %x", s, got, want)
		}
		// The way of machines with another order: on this one it must change nothing, twice.
		turned := bytes.Clone(want[7:])
		turnWords(turned)
		if littleEndian() && !bytes.Equal(turned, want[7:]) {
			t.Errorf("turning changed %x to %x", want[7:], turned)
		}
	}
}

func TestTheFormWithoutExtraColumnsIsStillRead(t *testing.T) {
	// What format 1 wrote of good().
	b, err := hex.DecodeString(formatOne)
	if err != nil {
		t.Fatal(err)
	}
	var r Rollout
	if err := r.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&r, good()) {
		t.Errorf("got %+v, want %+v", r, *good())
	}
	again, err := r.MarshalBinary()
	if err != nil || again[0] != 2 || !bytes.Equal(again[1:len(again)-1], b[1:]) || again[len(again)-1] != 0 {
		t.Errorf("it is written as %x, %v", again, err)
	}
	// A byte after it is no Extra, but too much.
	if r.UnmarshalBinary(append(b, 0)) == nil {
		t.Error("a byte too many was accepted")
	}
}

func TestExtraColumnsTravelWithTheRollout(t *testing.T) {
	r := conversation()
	before := r.Bytes()
	r.Extra = []byte("opaque")
	if r.Bytes() != before+6 {
		t.Errorf("6 bytes more count as %d", r.Bytes()-before)
	}
	b, err := r.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var got Rollout
	if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(&got, r) {
		t.Errorf("got %+v, %v", got, err)
	}
	clear(b)
	if string(got.Extra) != "opaque" || got.PromptID != r.PromptID || !reflect.DeepEqual(&got, r) {
		t.Error("the rollout shares memory with its binary form")
	}
	steps, fault := r.Steps()
	if fault != nil {
		t.Fatal(fault)
	}
	for i, s := range steps {
		if string(s.Extra) != "opaque" {
			t.Errorf("step %d has %q", i, s.Extra)
		}
	}
}

func TestARolloutIsReadIntoOneBlock(t *testing.T) {
	r := &Rollout{Tokens: make([]int32, 1000), Mask: make([]uint8, 1000), Logprobs: make([]float32, 1000), Versions: make([]Version, 1000), Values: make([]float32, 1000)}
	b, err := r.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var got Rollout
	if n := testing.AllocsPerRun(20, func() {
		if err := got.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
	}); n > 3 {
		t.Errorf("reading takes %v allocations", n)
	}
	if unsafe.SliceData(got.Logprobs) != (*float32)(unsafe.Pointer(unsafe.Add(unsafe.Pointer(&got.Tokens[0]), 4000))) {
		t.Error("the slices do not follow one another")
	}
	for name, spare := range map[string]int{"tokens": cap(got.Tokens) - 1000, "mask": cap(got.Mask) - 1000, "versions": cap(got.Versions) - 1000} {
		if spare != 0 {
			t.Errorf("%s could grow into its neighbour by %d", name, spare)
		}
	}
}

func BenchmarkBinaryForm(b *testing.B) {
	r := &Rollout{Tokens: make([]int32, 4096), Mask: make([]uint8, 4096), Logprobs: make([]float32, 4096), Versions: make([]Version, 4096)}
	form, err := r.MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(form)))
		dst := make([]byte, 0, len(form))
		for b.Loop() {
			if _, err := r.AppendBinary(dst); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(form)))
		b.ReportAllocs()
		for b.Loop() {
			var x Rollout
			if err := x.UnmarshalBinary(form); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// formatOne is good() as format 1 wrote it.
const formatOne = "0103322b32050500000006000000070000000800000009000000050000010101050000000000000000000000bf00000000000000c005ffffffffffffffff0300000003000000050000000000803f0000803f0000803f000200000000030000000000003f0003000000050000000000000001000500000000000000000000803f0000803f0000803f050000000000000000cdcccc3dcdcc4c3e9a99993e050000000000000000cdccccbecdccccbd000040c00102010204666f757201056d6f64656c0474696e79"
