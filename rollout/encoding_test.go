package rollout

import (
	"bytes"
	"encoding/gob"
	"reflect"
	"testing"
)

func TestARolloutSurvivesItsBinaryForm(t *testing.T) {
	zero := float32(0)
	given := good()
	given.Advantage = &zero // a zero that gob alone would lose
	for _, r := range []*Rollout{good(), given, {}} {
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

func TestEveryCutOfARolloutIsRefused(t *testing.T) {
	b, err := good().MarshalBinary()
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
	b, err := good().MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
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
	})
}
