package rollout

import (
	"encoding/binary"
	"unsafe"
)

// word is what a per-token slice holds: four bytes.
type word interface{ ~int32 | ~float32 }

// littleEndian tells whether memory has the order of the binary form, so that words are copied as they lie.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// memoryOf returns the bytes that a slice of words lies in.
func memoryOf[T word](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}

// wordsOf returns memory, aligned to four bytes, as words.
func wordsOf[T word](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// appendWords appends a number of words and the words.
func appendWords[T word](b []byte, s []T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	at := len(b)
	b = append(b, memoryOf(s)...)
	if !littleEndian() {
		turnWords(b[at:])
	}
	return b
}

// turnWords changes words in place between the order of memory and that of the binary form. On a little-endian machine it
// changes nothing, and nobody calls it.
func turnWords(b []byte) {
	for ; len(b) >= 4; b = b[4:] {
		binary.LittleEndian.PutUint32(b, binary.NativeEndian.Uint32(b))
	}
}

// block is the memory of a rollout's per-token slices: one allocation.
type block struct{ free []byte }

// newBlock has room for so many bytes, with what alignment may cost.
func newBlock(bytes int) block {
	return block{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint32, (bytes+3)/4)))), (bytes+3)/4*4)}
}

// take copies bytes into the block; none is nil.
func (k *block) take(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	n := copy(k.free, b)
	head := k.free[:n:n]
	k.free = k.free[n:]
	return head
}

// takeWords copies words of the binary form into the block, which must be aligned to four bytes there; none is nil.
func takeWords[T word](k *block, b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	head := k.take(b)
	if !littleEndian() {
		turnWords(head)
	}
	return wordsOf[T](head)
}
