package wire

import (
	"math/bits"
	"sync"
	"unsafe"
)

// Pool is an Arrow allocator that keeps what is freed for whoever asks next, as long as the garbage collector lets it. Memory is
// aligned to 64 bytes and not zeroed. The zero Pool is ready; any number of goroutines may use it. It must not be copied.
type Pool struct {
	// classes hold memory of sizes 64, 80, 96, 112, 128, 160, …: four to an octave, so that at most a fifth lies idle.
	classes [4 * (maxShift - minShift)]sync.Pool
}

// Sizes from 2^minShift to 2^maxShift are pooled. Larger ones are the garbage collector's.
const (
	minShift = 6
	maxShift = 32
	quarters = 4
)

// class returns the class of a size and the size of its members; false for sizes that are not pooled.
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

// alignment is what Arrow advises for memory.
const alignment = 64

// aligned returns memory that begins at a multiple of the alignment.
func aligned(size int) []byte {
	b := make([]byte, size+alignment-8)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % alignment
	if skip > alignment-8 {
		// Only memory of a few bytes may begin at an odd place.
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

// Free takes back what Allocate gave. Nobody may use it any more.
func (p *Pool) Free(b []byte) {
	b = b[:cap(b)]
	i, capacity, ok := class(len(b))
	if ok && capacity == len(b) {
		p.classes[i].Put(unsafe.SliceData(b))
	}
}
