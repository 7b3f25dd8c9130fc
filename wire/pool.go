package wire

import (
	"math/bits"
	"runtime"
	"sync"
	"unsafe"
)

// Pool is an Arrow allocator that reuses freed memory until the garbage collector takes it. Memory is aligned to 64
// bytes and not cleared. The zero Pool is ready for use by any number of goroutines and must not be copied.
type Pool struct {
	// classes hold memory of 64, 80, 96, 112, 128, 160, … bytes: four sizes to an octave, so that at most a fifth is
	// wasted.
	classes [4 * (maxShift - minShift)]sync.Pool
}

// Sizes from 2^minShift to 2^maxShift are pooled. Larger ones are the garbage collector's.
const (
	minShift = 6
	maxShift = 32
	quarters = 4
)

// alignment is what Arrow recommends for memory.
const alignment = 64

// class returns the class of a size and the size of its members, false for sizes that are not pooled.
func class(size int) (int, int, bool) {
	if size > 1<<maxShift-1<<(maxShift-3) || size < 0 {
		return 0, 0, false
	}
	n := uint(max(size, 1<<minShift) - 1)
	shift := uint(bits.Len(n)) - 3 // a quarter of the power of two below
	step := n>>shift + 1           // 5 to 8 of them
	if size <= 1<<minShift {
		return 0, 1 << minShift, true
	}
	return int(shift+2-minShift)*quarters + int(step) - quarters, int(step) << shift, true
}

// Allocate returns size bytes of any content.
func (p *Pool) Allocate(size int) []byte {
	if size == 0 {
		return nil
	}
	i, capacity, ok := class(size)
	if !ok {
		return make([]byte, size)
	}
	if first, _ := p.classes[i].Get().(*byte); first != nil {
		return unsafe.Slice(first, capacity)[:size]
	}
	return aligned(capacity)[:size]
}

// aligned returns new memory that begins at a multiple of the alignment.
func aligned(size int) []byte {
	b := make([]byte, size+alignment-8)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % alignment
	if skip > alignment-8 { // only tiny allocations may begin at an odd address
		b = make([]byte, size+alignment)
		skip = -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % alignment
	}
	return b[skip : int(skip)+size : int(skip)+size]
}

// Reallocate returns memory of another size with the content of b, which it frees.
func (p *Pool) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) && size > cap(b)/2 {
		return b[:size]
	}
	grown := p.Allocate(size)
	copy(grown, b)
	p.Free(b)
	return grown
}

// Free takes memory of Allocate back. Nobody may use it any more.
func (p *Pool) Free(b []byte) {
	b = b[:cap(b)]
	i, capacity, ok := class(len(b))
	if ok && capacity == len(b) {
		p.classes[i].Put(unsafe.SliceData(b))
	}
}

// partBytes is how many bytes a goroutine must move to be worth starting: some tens of microseconds of work.
const partBytes = 256 << 10

// InParts calls work for disjoint parts of [0, n) and returns when all are done. It uses several goroutines if enough
// bytes are moved to pay for them.
func InParts(n int, bytes int64, work func(from, to int)) {
	parts := min(runtime.GOMAXPROCS(0), int(min(bytes/partBytes, 64)), n)
	if parts <= 1 {
		work(0, n)
		return
	}
	var all sync.WaitGroup
	for i := 1; i < parts; i++ {
		all.Go(func() { work(i*n/parts, (i+1)*n/parts) })
	}
	work(0, n/parts)
	all.Wait()
}
