package hf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// maxHeader bounds the JSON header of a file, in bytes, as the format's reference reader does.
const maxHeader = 100_000_000

// stored says where a tensor lies in its file.
type stored struct {
	name  string
	dtype string
	shape []int
	begin int64 // offset of the first byte in the file
	end   int64
}

// header is the directory of one safetensors file.
type header struct {
	tensors []stored // in file order
	meta    map[string]string
}

// readHeader reads and checks the directory of a file of the given size. The format's layout:
// 8 bytes little-endian length n, n bytes of JSON, data. It accepts what the reference reader
// accepts: the tensors tile the data without hole, overlap or remainder, each as large as its shape
// and dtype say, under different names.
func readHeader(r io.ReaderAt, size int64) (*header, error) {
	var prefix [8]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("file has %d bytes: want at least the 8 of the header's length", size)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > maxHeader || n > uint64(size-8) {
		return nil, fmt.Errorf("header length is %d: want at most %d, and %d bytes follow it; the file is damaged or no safetensors file",
			n, maxHeader, size-8)
	}
	raw := make([]byte, n)
	if _, err := r.ReadAt(raw, 8); err != nil {
		return nil, fmt.Errorf("read header of %d bytes: %w", n, err)
	}
	h, err := parseHeader(raw, uint64(size)-8-n)
	if err != nil {
		return nil, err
	}
	for i := range h.tensors {
		h.tensors[i].begin += 8 + int64(n)
		h.tensors[i].end += 8 + int64(n)
	}
	return h, nil
}

// parseHeader reads the JSON of a header; offsets in the result count from the start of the data.
func parseHeader(raw []byte, dataSize uint64) (*header, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("header is not a JSON object; the file is damaged or no safetensors file")
	}
	h := &header{}
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("parse header: %w", err)
		}
		name := tok.(string) // the decoder lets only strings stand here
		if seen[name] {
			return nil, fmt.Errorf("header names %q twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			err = dec.Decode(&h.meta)
		} else {
			err = h.add(dec, name, dataSize)
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
	return h, h.checkTiling(dataSize)
}

// add reads one entry of a header.
func (h *header) add(dec *json.Decoder, name string, dataSize uint64) error {
	var e struct {
		DType   string   `json:"dtype"`
		Shape   []uint64 `json:"shape"`
		Offsets []uint64 `json:"data_offsets"`
	}
	if err := dec.Decode(&e); err != nil {
		return err
	}
	size := dtypeSize(e.DType)
	if size == 0 {
		return fmt.Errorf("dtype is %q: not a dtype of the format", e.DType)
	}
	if len(e.Offsets) != 2 || e.Offsets[0] > e.Offsets[1] || e.Offsets[1] > dataSize {
		return fmt.Errorf("data_offsets is %d: want begin <= end <= %d, the bytes of data", e.Offsets, dataSize)
	}
	s := stored{name: name, dtype: e.DType, shape: make([]int, len(e.Shape)), begin: int64(e.Offsets[0]), end: int64(e.Offsets[1])}
	for i, d := range e.Shape {
		s.shape[i] = int(d)
		hi, lo := bits.Mul64(size, d)
		if hi != 0 || lo > 1<<62 || d > 1<<62 {
			return fmt.Errorf("shape %d is larger than any file", e.Shape)
		}
		size = lo
	}
	if size != e.Offsets[1]-e.Offsets[0] {
		return fmt.Errorf("shape %d of %s takes %d bytes but data_offsets %d span %d",
			e.Shape, e.DType, size, e.Offsets, e.Offsets[1]-e.Offsets[0])
	}
	h.tensors = append(h.tensors, s)
	return nil
}

// checkTiling sorts the tensors into file order and checks that they tile the data.
func (h *header) checkTiling(dataSize uint64) error {
	slices.SortFunc(h.tensors, func(a, b stored) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	at := int64(0)
	for _, s := range h.tensors {
		if s.begin != at {
			return fmt.Errorf("header entry %q: data begins at %d, the tensor before ends at %d: want neither hole nor overlap", s.name, s.begin, at)
		}
		at = s.end
	}
	if uint64(at) != dataSize {
		return fmt.Errorf("tensors end at %d of %d bytes of data; the file is damaged", at, dataSize)
	}
	return nil
}

// read loads one tensor, which the caller knows to be wanted and of a sane shape.
func (s stored) read(r io.ReaderAt) (Tensor, error) {
	switch s.dtype {
	case "F32", "F16", "BF16":
	default:
		return Tensor{}, fmt.Errorf("tensor %q has dtype %s: want F32, F16 or BF16; convert the checkpoint", s.name, s.dtype)
	}
	t := Tensor{Name: s.name, Shape: s.shape, Data: make([]float32, elements(s.shape))}
	width := int(dtypeSize(s.dtype))
	const chunk = 1 << 18 // elements, so that the file's bytes are never in memory as a whole
	buf := make([]byte, min(chunk, len(t.Data))*width)
	for from := 0; from < len(t.Data); from += chunk {
		to := min(from+chunk, len(t.Data))
		b := buf[:(to-from)*width]
		if _, err := r.ReadAt(b, s.begin+int64(from*width)); err != nil {
			return Tensor{}, fmt.Errorf("read tensor %q: %w", s.name, err)
		}
		decode(t.Data[from:to], b, s.dtype)
	}
	return t, nil
}

// writeSafetensors writes tensors as F32 in the order given, with the header padded by spaces to
// 8 bytes, as the reference writer does.
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
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(head.Len()))); err != nil {
		return err
	}
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	var buf []byte
	for _, t := range tensors {
		for part := range slices.Chunk(t.Data, 1<<18) {
			var err error
			if buf, err = binary.Append(buf[:0], binary.LittleEndian, part); err != nil {
				return err
			}
			if _, err := w.Write(buf); err != nil {
				return err
			}
		}
	}
	return nil
}
