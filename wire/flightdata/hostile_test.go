package flightdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func stringReader(s string) io.Reader { return strings.NewReader(s) }

// message is FlightData of a header and a body.
func message(header, body []byte) []byte {
	b := appendField(nil, headerField, header)
	return appendField(b, bodyField, body)
}

// reading returns the error that reading messages ends with.
func reading(messages ...[]byte) error {
	r := NewReader(&script{messages}, Options{MaxBytes: 1 << 20})
	for {
		if _, err := r.Next(); err != nil {
			return err
		}
	}
}

func TestMessagesThatContradictThemselvesAreRefused(t *testing.T) {
	good := messages(t, rows(t))
	var m incoming
	m.maxBytes = 1 << 20
	(&script{good[1:]}).RecvMsg(&m)
	body := m.body.Bytes()
	for want, s := range map[string][][]byte{
		"it comes before a schema":       {good[1]},
		"it is a second schema":          {good[0], good[0]},
		"tells of a body of":             {good[0], message(m.header, body[:len(body)-8])},
		"it has a body and no header":    {good[0], appendField(nil, bodyField, body)},
		"its header is empty":            {message(make([]byte, 8), nil)},
		"its header points beyond":       {message([]byte{255, 255, 255, 127}, nil)},
		"a field is cut off":             {good[0][:len(good[0])-1]},
		"a field is of wire type":        {[]byte{0x0b}},
		"it is a dictionary, and no col": {good[0], dictionary(t)},
	} {
		if err := reading(s...); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := reading(appendField(nil, headerField, make([]byte, maxHeader+1))); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("a large header: %v", err)
	}
	if err := reading(protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 7), good[0], good[1]); err != io.EOF {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestBuffersThatOverlapAreRefused(t *testing.T) {
	good := messages(t, rows(t))
	m := incoming{maxBytes: 1 << 20}
	(&script{good[1:]}).RecvMsg(&m)
	s, err := check(m.header, m.body, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	// Where a buffer stands in the header, the whole body is put.
	as := func(e extent) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(e.offset)), uint64(e.length))
	}
	for _, e := range s.buffers {
		if e.offset == 0 || e.length == 0 {
			continue
		}
		header := bytes.Replace(m.header, as(e), as(extent{0, int64(m.body.Len())}), 1)
		if err := reading(good[0], message(header, m.body.Bytes())); err == nil || !strings.Contains(err.Error(), "its buffers overlap") {
			t.Errorf("buffer of %d bytes from %d on: %v", e.length, e.offset, err)
		}
	}
}

// dictionary is the message of one.
func dictionary(t *testing.T) []byte {
	a, _, err := array.FromJSON(memory.DefaultAllocator, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, stringReader(`["a"]`))
	if err != nil {
		t.Fatal(err)
	}
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "a", Type: a.DataType()}}, nil), []arrow.Array{a}, 1)
	return messages(t, rec)[1]
}

// flatWriter writes flatbuffers from front to back: offsets are set when what they lead to is written.
type flatWriter struct{ b []byte }

// vtable writes the sizes and places that a table begins with, and then where it itself begins.
func (w *flatWriter) vtable(places ...uint16) {
	at := len(w.b)
	for _, p := range places {
		w.b = binary.LittleEndian.AppendUint16(w.b, p)
	}
	for len(w.b)%4 != 0 {
		w.b = append(w.b, 0)
	}
	w.word(len(w.b) - at)
}

// word writes a number and returns where it stands.
func (w *flatWriter) word(x int) int {
	w.b = binary.LittleEndian.AppendUint32(w.b, uint32(x))
	return len(w.b) - 4
}

// lead makes offsets lead to a position.
func (w *flatWriter) lead(to int, offsets ...int) {
	for _, at := range offsets {
		binary.LittleEndian.PutUint32(w.b[at:], uint32(to-at))
	}
}

// bomb is the header of a schema whose one field has two children which are one and the same field, and so on for so many levels:
// read one by one they are 2 to the power of that.
func bomb(levels int) []byte {
	w := &flatWriter{}
	root := w.word(0)
	w.vtable(10, 16, 0, 4, 8) // a message: type and offset of its header
	w.lead(len(w.b)-4, root)
	w.word(int(schemaKind))
	header := w.word(0)
	w.word(0)
	w.vtable(8, 8, 0, 4) // a schema: its fields
	w.lead(len(w.b)-4, header)
	fields := w.word(0)
	w.lead(w.word(1), fields)
	offsets := []int{w.word(0)}
	for level := range levels {
		w.vtable(18, 16, 0, 0, 4, 8, 0, 12, 0) // a field: type, children
		w.lead(len(w.b)-4, offsets...)
		w.word(13) // a struct
		typ, children := w.word(0), w.word(0)
		w.vtable(4, 4)
		w.lead(len(w.b)-4, typ)
		if level == levels-1 {
			w.lead(w.word(0), children)
			break
		}
		w.lead(w.word(2), children)
		offsets = []int{w.word(0), w.word(0)}
	}
	return w.b
}

func TestSchemasThatMultiplyThemselvesAreRefused(t *testing.T) {
	if err := reading(message(bomb(5), nil)); err != io.EOF {
		t.Errorf("a small schema of the kind: %v", err)
	}
	for _, levels := range []int{20, 31, 40, 10_000} {
		if err := reading(message(bomb(levels), nil)); err == nil || !strings.Contains(err.Error(), "its schema has more than") {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
}
