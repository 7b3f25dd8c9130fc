package flightdata

import (
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/mem"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// script is a stream that brings messages as they lie, in pieces.
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

// recorder keeps messages as they go out.
type recorder struct{ messages [][]byte }

func (r *recorder) SendMsg(m any) error {
	b, err := m.(*outgoing).marshal()
	r.messages = append(r.messages, b.Materialize())
	b.Free()
	return err
}

// WritePayload lets Arrow's own writer write, which can compress and knows dictionaries.
func (r *recorder) WritePayload(p ipc.Payload) error {
	m, err := envelope{}.encode(&p, func() {})
	if err != nil {
		return err
	}
	return r.SendMsg(m)
}

func (r *recorder) Start() error { return nil }
func (r *recorder) Close() error { return nil }

func ownColumns(t testing.TB) []arrow.Field {
	t.Helper()
	fields, err := wire.ExtraFields([]wire.Column{{Name: "x_list", Type: "list<float32>"}, {Name: "x_pair", Type: "struct<a:int8,b:utf8>"}, {Name: "x_map", Type: "map<utf8,int64>"}})
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// rows is a small batch to insert with something in every column.
func rows(t testing.TB) arrow.RecordBatch {
	t.Helper()
	x := &rollout.Rollout{PromptID: "p", Tokens: []int32{1, 2}, Mask: []uint8{0, 1}, Logprobs: []float32{0, -1}, Versions: []rollout.Version{-1, 0},
		Temperature: 1, TopP: 1, Turns: []rollout.Turn{{Start: 0, End: 2}}, Values: []float32{1, 2}, Images: [][]byte{{1, 2, 3}}, Text: "text", Meta: map[string]string{"a": "b"}}
	rec, err := wire.Rows([]rollout.Group{{Rollouts: []*rollout.Rollout{x, x}}, {Rollouts: []*rollout.Rollout{x}}}, ownColumns(t))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// messages is what a writer sends for a batch.
func messages(t testing.TB, rec arrow.RecordBatch, o ...ipc.Option) [][]byte {
	t.Helper()
	r := &recorder{}
	w := ipc.NewWriterWithPayloadWriter(r, append(o, ipc.WithSchema(rec.Schema()))...)
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	return r.messages
}

// inViews is a batch of dictionaries and views.
func inViews(t testing.TB) arrow.RecordBatch {
	t.Helper()
	types := map[string]arrow.DataType{
		"prompt_id": &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, "text": arrow.BinaryTypes.StringView,
		"tokens": arrow.ListViewOf(arrow.PrimitiveTypes.Int64), "mask": arrow.LargeListOf(arrow.FixedWidthTypes.Boolean),
		"logprobs": arrow.FixedSizeListOf(1, arrow.PrimitiveTypes.Float64), "version": arrow.PrimitiveTypes.Int64, "reward": arrow.PrimitiveTypes.Float64,
	}
	content := map[string]string{"prompt_id": `["a", "b", "a"]`, "text": `["a text of more than twelve bytes", "b", null]`, "tokens": `[[1], [2], [3]]`,
		"mask": `[[true], [true], [true]]`, "logprobs": `[[-1], [-2], [-3]]`, "version": `[0, 0, 0]`, "reward": `[1, 2, 3]`}
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

// readScript reads all messages and makes rollouts of the batches: it must end without a panic, whatever they hold.
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
	extra := ownColumns(t)
	refused, read := 0, 0
	for _, rec := range []arrow.RecordBatch{rows(t), inViews(t)} {
		for _, o := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
			whole := messages(t, rec, o...)
			if n, err := readScript(t, extra, whole); n != 1 || err != io.EOF {
				t.Fatalf("the whole message: %d batches, %v", n, err)
			}
			for k := range whole {
				step := 1
				if o != nil || len(whole[k]) > most {
					step = 7
				}
				for at := 0; at < len(whole[k]); at += step {
					for _, flip := range []byte{0x01, 0xff} {
						s := append([][]byte(nil), whole...)
						s[k] = append([]byte(nil), whole[k]...)
						s[k][at] ^= flip
						if _, err := readScript(t, extra, s); err == io.EOF {
							read++
						} else {
							refused++
						}
					}
				}
			}
		}
	}
	if refused == 0 || read == 0 {
		t.Errorf("%d refused, %d read", refused, read)
	}
}
