package hf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// Tensor is a named array of weights, row-major. Linear weights are [out, in], as in the file.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32 // as many as the product of Shape
}

// elements returns the product of shape, whose dimensions are known to be sane.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// maxHeader bounds the JSON header of a file, in bytes, as the format's reference reader does.
const maxHeader = 100_000_000

// ioChunk is how many elements are read or written at once, so that a file's bytes are never in memory as a whole.
const ioChunk = 1 << 18

// entry is a tensor's place in a safetensors file.
type entry struct {
	name  string
	dtype string
	shape []int
	begin int64 // offset of the first byte in the file
	end   int64
}

// readHeader reads the directory of a safetensors file of the given size, in file order. The format is 8 bytes
// little-endian length n, n bytes of JSON, data. It accepts what the reference reader accepts: the tensors tile the
// data without hole, overlap or remainder, each is as large as its shape and dtype say, and their names differ.
func readHeader(r io.ReaderAt, size int64) ([]entry, error) {
	var prefix [8]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("file has %d bytes: want at least the 8 of the header's length", size)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > maxHeader || n > uint64(size-8) {
		return nil, fmt.Errorf("header length is %d: want at most %d, and %d bytes follow it; the file is damaged or "+
			"no safetensors file",
			n, maxHeader, size-8)
	}
	raw := make([]byte, n)
	if _, err := r.ReadAt(raw, 8); err != nil {
		return nil, fmt.Errorf("read header of %d bytes: %w", n, err)
	}
	entries, err := parseHeader(raw, uint64(size)-8-n)
	for i := range entries {
		entries[i].begin += 8 + int64(n)
		entries[i].end += 8 + int64(n)
	}
	return entries, err
}

// parseHeader reads the JSON of a header. Offsets in the result count from the start of the data.
func parseHeader(raw []byte, dataSize uint64) ([]entry, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("header is not a JSON object; the file is damaged or no safetensors file")
	}
	var entries []entry
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("parse header: %w", err)
		}
		name := tok.(string) // the decoder allows only strings here
		if seen[name] {
			return nil, fmt.Errorf("header names %q twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			err = dec.Decode(&map[string]string{})
		} else {
			var e entry
			e, err = parseEntry(dec, name, dataSize)
			entries = append(entries, e)
		}
		if err != nil {
			return nil, fmt.Errorf("header entry %q: %w", name, err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("parse header: %w", err)
	}
	if rest := bytes.TrimSpace(raw[dec.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("header has %d bytes after its JSON object", len(rest))
	}
	return entries, sortAndCheckTiling(entries, dataSize)
}

// parseEntry reads one entry of a header.
func parseEntry(dec *json.Decoder, name string, dataSize uint64) (entry, error) {
	var j struct {
		DType   string   `json:"dtype"`
		Shape   []uint64 `json:"shape"`
		Offsets []uint64 `json:"data_offsets"`
	}
	if err := dec.Decode(&j); err != nil {
		return entry{}, err
	}
	size := dtypeSize(j.DType)
	if size == 0 {
		return entry{}, fmt.Errorf("dtype is %q: not a dtype of the format", j.DType)
	}
	if len(j.Offsets) != 2 || j.Offsets[0] > j.Offsets[1] || j.Offsets[1] > dataSize {
		return entry{}, fmt.Errorf("data_offsets is %d: want begin <= end <= %d, the bytes of data",
			j.Offsets, dataSize)
	}
	e := entry{name: name, dtype: j.DType, shape: make([]int, len(j.Shape)), begin: int64(j.Offsets[0]),
		end: int64(j.Offsets[1])}
	for i, d := range j.Shape {
		e.shape[i] = int(d)
		hi, lo := bits.Mul64(size, d)
		if hi != 0 || lo > 1<<62 || d > 1<<62 {
			return entry{}, fmt.Errorf("shape %d is larger than any file", j.Shape)
		}
		size = lo
	}
	if size != j.Offsets[1]-j.Offsets[0] {
		return entry{}, fmt.Errorf("shape %d of %s takes %d bytes but data_offsets %d span %d",
			j.Shape, j.DType, size, j.Offsets, j.Offsets[1]-j.Offsets[0])
	}
	return e, nil
}

// sortAndCheckTiling sorts entries into file order and checks that they tile the data.
func sortAndCheckTiling(entries []entry, dataSize uint64) error {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	at := int64(0)
	for _, e := range entries {
		if e.begin != at {
			return fmt.Errorf("header entry %q: data begins at %d, the tensor before ends at %d: want neither hole "+
				"nor overlap", e.name, e.begin, at)
		}
		at = e.end
	}
	if uint64(at) != dataSize {
		return fmt.Errorf("tensors end at %d of %d bytes of data; the file is damaged", at, dataSize)
	}
	return nil
}

// read loads the tensor.
func (e entry) read(r io.ReaderAt) (Tensor, error) {
	if e.dtype != "F32" && e.dtype != "F16" && e.dtype != "BF16" {
		return Tensor{}, fmt.Errorf("tensor %q has dtype %s: want F32, F16 or BF16; convert the checkpoint",
			e.name, e.dtype)
	}
	t := Tensor{Name: e.name, Shape: e.shape, Data: make([]float32, elements(e.shape))}
	width := int(dtypeSize(e.dtype))
	buf := make([]byte, min(ioChunk, len(t.Data))*width)
	for from := 0; from < len(t.Data); from += ioChunk {
		to := min(from+ioChunk, len(t.Data))
		b := buf[:(to-from)*width]
		if _, err := r.ReadAt(b, e.begin+int64(from*width)); err != nil {
			return Tensor{}, fmt.Errorf("read tensor %q: %w", e.name, err)
		}
		widen(t.Data[from:to], b, e.dtype)
	}
	return t, nil
}

// dtypeSize returns the bytes of an element of each dtype of the format, 0 for an unknown one.
func dtypeSize(dtype string) uint64 {
	switch dtype {
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0":
		return 1
	case "I16", "U16", "F16", "BF16":
		return 2
	case "I32", "U32", "F32":
		return 4
	case "I64", "U64", "F64", "C64":
		return 8
	}
	return 0
}

// widen converts little-endian F32, F16 or BF16 elements to float32; src holds as many as dst.
func widen(dst []float32, src []byte, dtype string) {
	for i := range dst {
		switch dtype {
		case "F32":
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		case "F16":
			dst[i] = fromF16(binary.LittleEndian.Uint16(src[2*i:]))
		case "BF16":
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	}
}

// fromF16 widens an IEEE 754 half exactly, subnormals, infinities and NaN payloads included.
func fromF16(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp == 0: // zero or subnormal: frac * 2^-24, exact in float32
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(v))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// writeSafetensors writes tensors as F32 in the order given. Like the reference writer it pads the header with spaces
// to 8 bytes.
func writeSafetensors(w io.Writer, tensors []Tensor) error {
	var head bytes.Buffer
	head.WriteString(`{"__metadata__":{"format":"pt"}`)
	at := 0
	for _, t := range tensors {
		name, err := json.Marshal(t.Name)
		if err != nil {
			return fmt.Errorf("name of tensor %q: %w", t.Name, err)
		}
		shape, err := json.Marshal(append([]int{}, t.Shape...)) // [], never null
		if err != nil {
			return fmt.Errorf("shape of tensor %q: %w", t.Name, err)
		}
		end := at + 4*len(t.Data)
		fmt.Fprintf(&head, `,%s:{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}`, name, shape, at, end)
		at = end
	}
	head.WriteByte('}')
	for head.Len()%8 != 0 {
		head.WriteByte(' ')
	}
	if err := binary.Write(w, binary.LittleEndian, uint64(head.Len())); err != nil {
		return err
	}
	if _, err := head.WriteTo(w); err != nil {
		return err
	}
	for _, t := range tensors {
		for part := range slices.Chunk(t.Data, ioChunk) {
			if err := binary.Write(w, binary.LittleEndian, part); err != nil {
				return err
			}
		}
	}
	return nil
}
