package rollout

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"math"
	"reflect"
	"slices"
	"testing"
	"unsafe"
)

func TestARolloutSurvivesItsBinaryForm(t *testing.T) {
	zero := float32(0)
	given := good()
	given.Advantage = &zero // a zero that gob alone would lose
	for _, r := range []*Rollout{good(), given, fromEngine(), {}} {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(r); err != nil {
			t.Fatal(err)
		}
		var got Rollout
		if err := gob.NewDecoder(&b).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(&got, r) {
			t.Errorf("got %+v, want %+v", got, *r)
		}
	}
}

// Rollouts as builds before wrote them, without and with what engines add, and in the compact form.
func TestFormsHaveNotChanged(t *testing.T) {
	const rest = "0000803f0000803f0000803f0000000000000000000178"
	want := New("p", []int32{5}, Completion{Tokens: []int32{6}, Logprobs: []float32{-1}, Version: 3, Reward: 1})
	want.Extra = []byte("x")
	for i, written := range []string{
		"0201700205000000060000000200010200000000000080bf02ffffffff03000000" + rest,
		"0301700205000000060000000200010200000000000080bf02ffffffff03000000" + rest + "000000",
		"0406017002050000000600000001" + "0200000000000080bf" + "03000000" + rest,
	} {
		b, err := hex.DecodeString(written)
		if err != nil {
			t.Fatal(err)
		}
		var got Rollout
		if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(&got, want) {
			t.Fatalf("got %+v, %v", got, err)
		}
		again := got.AppendCompact(nil)
		if i == 0 {
			again, err = got.MarshalBinary()
		}
		if err != nil || b[0] != engineFormat && !bytes.Equal(again, b) {
			t.Errorf("written as %x, %v", again, err)
		}
	}
}

// Mask and versions take no room where a prompt has one completion of one version, and survive where they are others.
func TestMasksAndVersionsAreWrittenWholeWhereTheyMustBe(t *testing.T) {
	const n = 100
	for name, c := range map[string]struct {
		change func(*Rollout)
		bytes  int // a token
	}{
		"one turn":                    {func(*Rollout) {}, 8},
		"no prompt":                   {func(r *Rollout) { r.Mask[0], r.Versions[0] = 1, 7 }, 8},
		"two versions":                {func(r *Rollout) { r.Versions[n-1] = 8 }, 12},
		"a version in the prompt":     {func(r *Rollout) { r.Versions[0] = 7 }, 12},
		"no version":                  {func(r *Rollout) { r.Versions = nil }, 8},
		"fewer versions":              {func(r *Rollout) { r.Versions = r.Versions[:n-1] }, 12},
		"two turns":                   {func(r *Rollout) { r.Mask[n/2], r.Versions[n/2] = 0, NoVersion }, 13},
		"a mask that ends early":      {func(r *Rollout) { r.Mask[n-1] = 0 }, 13},
		"nothing that was generated":  {func(r *Rollout) { clear(r.Mask) }, 13},
		"no mask":                     {func(r *Rollout) { r.Mask = nil }, 12},
		"a mask for some":             {func(r *Rollout) { r.Mask = r.Mask[:n/2] }, 13},
		"a mask of something else":    {func(r *Rollout) { r.Mask[n-1] = 2 }, 13},
		"nothing but versions":        {func(r *Rollout) { r.Tokens, r.Mask, r.Logprobs = nil, nil, nil }, 4},
		"a mask and versions, no ids": {func(r *Rollout) { r.Tokens = nil }, 9},
	} {
		r := New("p", make([]int32, 1), Completion{Tokens: make([]int32, n-1), Logprobs: make([]float32, n-1), Version: 7})
		r.Mask, r.Versions = slices.Clone(r.Mask), slices.Clone(r.Versions)
		c.change(r)
		b := r.AppendCompact(nil)
		var got Rollout
		if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(&got, r) {
			t.Errorf("%s: got %+v, want %+v, %v", name, got, r, err)
		}
		if got := len(b); got < c.bytes*n-n/2 || got > c.bytes*n+50 {
			t.Errorf("%s: %d tokens take %d bytes: want %d each", name, n, got, c.bytes)
		}
	}
}

func TestAFormThatContradictsItselfIsRefused(t *testing.T) {
	whole := New("p", []int32{5}, Completion{Tokens: []int32{6}, Logprobs: []float32{-1}}).AppendCompact(nil)
	for what, c := range map[string]struct{ at, value int }{
		"flags that there are not": {1, 8 | int(whole[1])}, "one version without one turn": {1, int(oneVersion)},
		"a prompt of all tokens": {13, 2}, "a prompt of more": {13, 3},
	} {
		b := bytes.Clone(whole)
		if b[13] != 1 {
			t.Fatalf("the prompt's length is not at 13: %x", b)
		}
		b[c.at] = byte(c.value)
		if err := new(Rollout).UnmarshalBinary(b); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func TestEveryCutOfARolloutIsRefused(t *testing.T) {
	b, err := fromEngine().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if (&Rollout{}).UnmarshalBinary(b[:n]) == nil {
			t.Errorf("%d of %d bytes were accepted", n, len(b))
		}
	}
	if (&Rollout{}).UnmarshalBinary(append(b, 0)) == nil {
		t.Error("a byte too many was accepted")
	}
	b[0]++
	if (&Rollout{}).UnmarshalBinary(b) == nil {
		t.Error("an unknown format was accepted")
	}
}

// FuzzUnmarshal looks for input that panics, and for rollouts whose binary form is not stable.
func FuzzUnmarshal(f *testing.F) {
	for _, r := range []*Rollout{good(), fromEngine()} {
		b, err := r.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(New("p", []int32{5}, Completion{Tokens: []int32{6}, Logprobs: []float32{-1}}).AppendCompact(nil))
	f.Add(fromEngine().AppendCompact(nil))
	f.Add([]byte{rolloutFormat, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Histogram
		if h.UnmarshalBinary(b) == nil {
			h.Mean()
		}
		var r Rollout
		if r.UnmarshalBinary(b) != nil {
			return
		}
		once, err := r.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var again Rollout
		if err := again.UnmarshalBinary(once); err != nil {
			t.Fatal(err)
		}
		if twice, _ := again.MarshalBinary(); !bytes.Equal(once, twice) {
			t.Fatal("the binary form is not stable")
		}
		if err := again.UnmarshalBinary(r.AppendCompact(nil)); err != nil {
			t.Fatal(err)
		}
		if twice, _ := again.MarshalBinary(); !bytes.Equal(once, twice) {
			t.Fatal("the compact form gives another rollout")
		}
	})
}

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
		// Big-endian machines swap; on this one a swap must change nothing.
		swapped := bytes.Clone(want[7:])
		swapWords(swapped, 4)
		if littleEndian() && !bytes.Equal(swapped, want[7:]) {
			t.Errorf("swapping changed %x to %x", want[7:], swapped)
		}
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
	r := &Rollout{Tokens: make([]int32, 1000), Mask: make([]uint8, 1000), Logprobs: make([]float32, 1000),
		Versions: make([]Version, 1000), Values: make([]float32, 1000), RoutedExperts: make([]uint16, 3000)}
	for range 1000 {
		r.SamplingMask.Append(7)
	}
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
	for name, spare := range map[string]int{"tokens": cap(got.Tokens) - 1000, "mask": cap(got.Mask) - 1000,
		"versions": cap(got.Versions) - 1000, "experts": cap(got.RoutedExperts) - 3000} {
		if spare != 0 {
			t.Errorf("%s could grow into its neighbour by %d", name, spare)
		}
	}
}

func TestExpertsAreWrittenLittleEndian(t *testing.T) {
	want := []byte{2, 0x34, 0x12, 0xff, 0}
	if got := appendWords(nil, []uint16{0x1234, 0xff}); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	swapped := bytes.Clone(want[1:])
	swapWords(swapped, 2)
	if littleEndian() && !bytes.Equal(swapped, want[1:]) {
		t.Errorf("swapping changed %x to %x", want[1:], swapped)
	}
}

func BenchmarkBinaryForm(b *testing.B) {
	r := &Rollout{Tokens: make([]int32, 4096), Mask: make([]uint8, 4096), Logprobs: make([]float32, 4096),
		Versions: make([]Version, 4096)}
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
