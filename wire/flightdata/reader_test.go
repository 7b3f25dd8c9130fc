package flightdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func stringReader(s string) io.Reader { return strings.NewReader(s) }

// message returns FlightData of a header and a body.
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

func TestInconsistentMessagesAreRefused(t *testing.T) {
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
		if err := reading(s...); err == nil || !strings.Contains(err.Error(), want) ||
			!errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := reading(appendField(nil, headerField, make([]byte, maxHeader+1))); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("a large header: %v", err)
	}
	if err := reading(protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 7), good[0],
		good[1]); err != io.EOF {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestOverlappingBuffersAreRefused(t *testing.T) {
	good := messages(t, rows(t))
	m := incoming{maxBytes: 1 << 20}
	(&script{good[1:]}).RecvMsg(&m)
	s, err := readHeader(m.header, m.body, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	// Where a buffer stands in the header, the whole body is put.
	as := func(e extent) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(e.offset)),
			uint64(e.length))
	}
	for _, e := range s.buffers {
		if e.offset == 0 || e.length == 0 {
			continue
		}
		header := bytes.Replace(m.header, as(e), as(extent{0, int64(m.body.Len())}), 1)
		if err := reading(good[0], message(header, m.body.Bytes())); err == nil ||
			!strings.Contains(err.Error(), "its buffers overlap") {
			t.Errorf("buffer of %d bytes from %d on: %v", e.length, e.offset, err)
		}
	}
}

// A negative count would turn into a negative amount of memory, for which a service panics.
func TestNegativeCountsAreRefused(t *testing.T) {
	good := messages(t, rows(t))
	m := incoming{maxBytes: 1 << 20}
	(&script{good[1:]}).RecvMsg(&m)
	f := &flat{b: m.header}
	batch := f.child(f.follow(0), 2)
	arrays, _ := f.vector(batch, 1, 16)
	buffers, _ := f.vector(batch, 2, 16)
	for _, c := range []struct {
		want string // with the count in place of %d
		at   int
	}{
		{"it has length %d: want 0 or more rows", f.field(batch, 0)},
		{"array 0 has %d entries", arrays},
		{"%d of them null", arrays + 8},
		{"buffer 0 is 0 bytes from %d on", buffers},
		{"buffer 0 is %d bytes", buffers + 8},
	} {
		for _, count := range []int64{-1, math.MinInt64} {
			header := bytes.Clone(m.header)
			binary.LittleEndian.PutUint64(header[c.at:], uint64(count))
			err, want := reading(good[0], message(header, m.body.Bytes())), fmt.Sprintf(c.want, count)
			if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
}

// dictionary returns the message of a dictionary.
func dictionary(t *testing.T) []byte {
	a, _, err := array.FromJSON(memory.DefaultAllocator, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8,
		ValueType: arrow.BinaryTypes.String}, stringReader(`["a"]`))
	if err != nil {
		t.Fatal(err)
	}
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "a", Type: a.DataType()}}, nil),
		[]arrow.Array{a}, 1)
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

// bomb is the header of a schema whose one field has two children which are one and the same field, and so on for so
// many levels: read one by one they are 2 to the power of that.
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

func TestSchemasWithExponentialFieldsAreRefused(t *testing.T) {
	if err := reading(message(bomb(5), nil)); err != io.EOF {
		t.Errorf("a small schema of the kind: %v", err)
	}
	for _, levels := range []int{20, 31, 40, 10_000} {
		if err := reading(message(bomb(levels), nil)); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
}

// script is a stream of raw messages, each in pieces.
type script struct{ messages [][]byte }

func (s *script) RecvMsg(m any) error {
	if len(s.messages) == 0 {
		return io.EOF
	}
	b := s.messages[0]
	s.messages = s.messages[1:]
	cut := len(b) / 2
	m.(*incoming).unmarshal(mem.BufferSlice{mem.SliceBuffer(b[:cut]), mem.SliceBuffer(nil), mem.SliceBuffer(b[cut:])})
	return nil
}

// recorder records sent messages.
type recorder struct{ messages [][]byte }

func (r *recorder) SendMsg(m any) error {
	b, err := m.(*outgoing).marshal()
	r.messages = append(r.messages, b.Materialize())
	b.Free()
	return err
}

// WritePayload lets Arrow's own writer write, which can compress and knows dictionaries.
func (r *recorder) WritePayload(p ipc.Payload) error {
	m, err := newOutgoing(nil, nil, &p, func() {})
	if err != nil {
		return err
	}
	return r.SendMsg(m)
}

func (r *recorder) Start() error { return nil }

func (r *recorder) Close() error { return nil }

func ownColumns(t testing.TB) []arrow.Field {
	t.Helper()
	fields, err := wire.ExtraFields([]wire.Column{{Name: "x_list", Type: "list<float32>"},
		{Name: "x_pair", Type: "struct<a:int8,b:utf8>"}, {Name: "x_map", Type: "map<utf8,int64>"}})
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// rows returns a small insertion with every column.
func rows(t testing.TB) arrow.RecordBatch {
	t.Helper()
	x := &rollout.Rollout{PromptID: "p", Tokens: []int32{1, 2}, Mask: []uint8{0, 1}, Logprobs: []float32{0, -1},
		Versions:    []rollout.Version{-1, 0},
		Temperature: 1, TopP: 1, Turns: []rollout.Turn{{Start: 0, End: 2}}, Values: []float32{1, 2},
		Images: [][]byte{{1, 2, 3}}, Text: "text", Meta: map[string]string{"a": "b"}}
	rec, err := wire.Rows([]rollout.Group{{Rollouts: []*rollout.Rollout{x, x}}, {Rollouts: []*rollout.Rollout{x}}},
		ownColumns(t))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// messages returns what a writer sends for a batch.
func messages(t testing.TB, rec arrow.RecordBatch, o ...ipc.Option) [][]byte {
	t.Helper()
	r := &recorder{}
	w := ipc.NewWriterWithPayloadWriter(r, append(o, ipc.WithSchema(rec.Schema()))...)
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	return r.messages
}

// inViews returns a batch of dictionaries and views.
func inViews(t testing.TB) arrow.RecordBatch {
	t.Helper()
	types := map[string]arrow.DataType{
		"prompt_id": &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		"text":      arrow.BinaryTypes.StringView,
		"tokens":    arrow.ListViewOf(arrow.PrimitiveTypes.Int64),
		"mask":      arrow.LargeListOf(arrow.FixedWidthTypes.Boolean),
		"logprobs":  arrow.FixedSizeListOf(1, arrow.PrimitiveTypes.Float64), "version": arrow.PrimitiveTypes.Int64,
		"reward": arrow.PrimitiveTypes.Float64,
	}
	content := map[string]string{"prompt_id": `["a", "b", "a"]`,
		"text": `["a text of more than twelve bytes", "b", null]`, "tokens": `[[1], [2], [3]]`,
		"mask": `[[true], [true], [true]]`, "logprobs": `[[-1], [-2], [-3]]`, "version": `[0, 0, 0]`,
		"reward": `[1, 2, 3]`}
	var fields []arrow.Field
	var columns []arrow.Array
	for _, name := range []string{"prompt_id", "text", "tokens", "mask", "logprobs", "version", "reward"} {
		a, _, err := array.FromJSON(memory.DefaultAllocator, types[name], stringReader(content[name]))
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, arrow.Field{Name: name, Type: types[name], Nullable: true})
		columns = append(columns, a)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 3)
}

// readScript reads all messages and decodes the batches. It must not panic, whatever they hold.
func readScript(t testing.TB, extra []arrow.Field, messages [][]byte) (batches int, err error) {
	r := NewReader(&script{messages}, Options{MaxBytes: 1 << 20, Allocator: new(wire.Pool)})
	for {
		f, err := r.Next()
		if err != nil {
			return batches, err
		}
		if f.Batch == nil {
			continue
		}
		batches++
		if groups, order, err := wire.Groups(f.Batch, extra); err == nil {
			n := 0
			for _, g := range groups {
				_ = g.Validate(rollout.Limits{})
				n += len(g.Rollouts)
			}
			if n != int(f.Batch.NumRows()) || len(order) != n {
				t.Fatalf("%d rollouts of %d rows", n, f.Batch.NumRows())
			}
		}
		if drawn, err := wire.Draws(f.Batch, extra); err == nil && len(drawn) != int(f.Batch.NumRows()) {
			t.Fatalf("%d draws of %d rows", len(drawn), f.Batch.NumRows())
		}
		f.Batch.Release()
	}
}

// FuzzReader changes messages at will: at one place in one of them, and by what the fuzzer makes of the last.
func FuzzReader(f *testing.F) {
	extra := ownColumns(f)
	var scripts [][][]byte
	for _, rec := range []arrow.RecordBatch{rows(f), inViews(f)} {
		for _, o := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
			scripts = append(scripts, messages(f, rec, o...))
		}
	}
	for i, s := range scripts {
		for k, m := range s {
			f.Add(uint8(i), uint8(k), m)
		}
	}
	f.Fuzz(func(t *testing.T, which, place uint8, message []byte) {
		s := append([][]byte(nil), scripts[int(which)%len(scripts)]...)
		s[int(place)%len(s)] = message
		readScript(t, extra, s)
	})
}

func TestChangedBytesAreReadOrRefused(t *testing.T) {
	// Bytes of headers are changed one by one, those of bodies and of compressed messages here and there.
	const most = 1200
	stride := 1
	if testing.Short() {
		stride = 3
	}
	extra := ownColumns(t)
	refused, read := 0, 0
	for _, rec := range []arrow.RecordBatch{rows(t), inViews(t)} {
		for _, o := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
			whole := messages(t, rec, o...)
			if n, err := readScript(t, extra, whole); n != 1 || err != io.EOF {
				t.Fatalf("the whole message: %d batches, %v", n, err)
			}
			for k := range whole {
				step := stride
				if o != nil || len(whole[k]) > most {
					step *= 7
				}
				for at := 0; at < len(whole[k]); at += step {
					s := append([][]byte(nil), whole...)
					s[k] = append([]byte(nil), whole[k]...)
					s[k][at] ^= []byte{0x01, 0xff}[at/step%2]
					if _, err := readScript(t, extra, s); err == io.EOF {
						read++
					} else {
						refused++
					}
				}
			}
		}
	}
	if refused == 0 || read == 0 {
		t.Errorf("%d refused, %d read", refused, read)
	}
}

// A vector of metadata may be shared by all fields of a schema: what comes of it is bounded all the same.
func TestAttackMetadataSharedByManyFields(t *testing.T) {
	const pairs = 10_000
	// a table with one field, a vector of pairs, all of which are one table without fields
	b := binary.LittleEndian.AppendUint16(nil, 6) // the table's vtable
	b = binary.LittleEndian.AppendUint16(b, 8)
	b = binary.LittleEndian.AppendUint16(b, 4)
	b = binary.LittleEndian.AppendUint16(b, 4) // the pair's vtable
	table := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(table)) // to its vtable, backwards
	b = binary.LittleEndian.AppendUint32(b, 4)             // to the vector
	b = binary.LittleEndian.AppendUint32(b, pairs)
	end := len(b) + 4*pairs
	for len(b) < end {
		b = binary.LittleEndian.AppendUint32(b, uint32(end-len(b)))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(end-6))

	f := &flat{b: b}
	for range maxFields {
		f.metadata(table, 0)
	}
	if !errors.Is(f.err, rollout.ErrInvalid) || f.strings > 2*len(b) {
		t.Errorf("%d strings were read of %d bytes: %v", f.strings, len(b), f.err)
	}
	once := &flat{b: b}
	if once.metadata(table, 0); once.err != nil || once.strings != 2*pairs {
		t.Errorf("%d strings, %v", once.strings, once.err)
	}
}

func TestASchemaIsKeptUntilTheReaderIsClosed(t *testing.T) {
	var asked []int64
	released := 0
	o := Options{Keep: func(bytes int64, _ bool) (func(), error) {
		asked = append(asked, bytes)
		return func() { released++ }, nil
	}}
	r := NewReader(&script{messages(t, rows(t))}, o)
	frame, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	frame.Release()
	if len(asked) != 1 || asked[0] < fieldBytes || released != 0 {
		t.Errorf("asked for %v, gave back %d times", asked, released)
	}
	r.Close()
	if released != 1 {
		t.Errorf("after Close it was given back %d times", released)
	}
}
