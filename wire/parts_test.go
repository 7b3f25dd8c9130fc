package wire

import (
	"sync/atomic"
	"testing"
)

func TestPartsAreAllOfItAndNothingTwice(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 64} {
		for _, bytes := range []int64{0, partBytes, 2 * partBytes, 1 << 40} {
			done := make([]atomic.Int32, n)
			InParts(n, bytes, func(from, to int) {
				for i := from; i < to; i++ {
					done[i].Add(1)
				}
			})
			for i := range done {
				if times := done[i].Load(); times != 1 {
					t.Errorf("of %d with %d bytes, %d was done %d times", n, bytes, i, times)
				}
			}
		}
	}
}

func TestMemoryThatIsNotClearedIsOfTheSizeAsked(t *testing.T) {
	for _, n := range []int{0, 1, 3, 4096, 100_000} {
		b := uncleared(n)
		if len(b) != n {
			t.Fatalf("%d words: want %d", len(b), n)
		}
		for i := range b {
			b[i] = int32(i)
		}
	}
}
