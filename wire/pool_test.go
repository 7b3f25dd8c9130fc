package wire

import (
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestPooledMemoryIsAlignedAndHasTheRequestedSize(t *testing.T) {
	var p Pool
	last, wide := 0, 0
	for size := 1; size < 1<<18; size++ {
		i, capacity, ok := class(size)
		if !ok || capacity < size || capacity > max(64, size+size/4+1) || i < last || i > last+1 || i == last &&
			i > 0 && capacity != wide {
			t.Fatalf("%d bytes are of class %d with %d", size, i, capacity)
		}
		last, wide = i, capacity
	}
	for _, size := range []int{0, 1, 63, 64, 65, 1000, 1 << 20, 3<<20 + 1} {
		b := p.Allocate(size)
		if len(b) != size || size > 0 && address(b)%alignment != 0 {
			t.Errorf("%d bytes: %d at %x", size, len(b), address(b))
		}
		for i := range b {
			b[i] = byte(i)
		}
		b = p.Reallocate(2*size, b)
		for i := range size {
			if b[i] != byte(i) {
				t.Fatalf("%d bytes: byte %d changed", size, i)
			}
		}
		p.Free(b)
	}
	if _, _, ok := class(1 << 40); ok {
		t.Error("memory of a terabyte is pooled")
	}
	if i, _, ok := class(1<<maxShift - 1<<(maxShift-3)); !ok || i != len(p.classes)-1 {
		t.Errorf("the largest class is %d of %d", i, len(p.classes))
	}
}

func TestInPartsCoversTheRangeOnce(t *testing.T) {
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

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
