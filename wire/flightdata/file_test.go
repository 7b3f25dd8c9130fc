package flightdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// stockFile is a file as Arrow's own writer makes it, of batches with these numbers.
func stockFile(t testing.TB, options []ipc.Option, batches ...[]int64) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	var out bytes.Buffer
	w, err := ipc.NewFileWriter(&out, append(options, ipc.WithSchema(schema))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, numbers := range batches {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.AppendValues(numbers, nil)
		rec := array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, int64(len(numbers)))
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// numbersIn reads a file to its end.
func numbersIn(file []byte) (numbers []int64, err error) {
	r, err := NewFileReader(bytes.NewReader(file), int64(len(file)), Options{})
	if err != nil {
		return nil, err
	}
	for {
		frame, err := r.Next()
		if errors.Is(err, io.EOF) {
			return numbers, nil
		}
		if err != nil {
			return numbers, err
		}
		numbers = append(numbers, frame.Batch.Column(0).(*array.Int64).Int64Values()...)
		frame.Batch.Release()
	}
}

func TestFilesOfArrowsWriterAreRead(t *testing.T) {
	for name, options := range map[string][]ipc.Option{"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}} {
		got, err := numbersIn(stockFile(t, options, []int64{1, 2}, []int64{3}, []int64{4, 5, 6}))
		if err != nil || len(got) != 6 || got[0] != 1 || got[5] != 6 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := numbersIn(stockFile(t, nil)); err != nil || len(got) != 0 {
		t.Errorf("a file without batches: %v, %v", got, err)
	}
}

func TestMessagesThatTheFooterDoesNotListAreIgnored(t *testing.T) {
	file := stockFile(t, nil, []int64{1}, []int64{2})
	at := bytes.Index(file, []byte{0xff, 0xff, 0xff, 0xff})
	copy(file[at:], []byte{4, 0, 0, 0, 0xf2, 0xff, 0xff, 0xff}) // the stream's schema; the footer has another
	if got, err := numbersIn(file); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestMessagesMustMatchTheFooter(t *testing.T) {
	file := stockFile(t, nil, []int64{1}, []int64{2})
	footer := int(binary.LittleEndian.Uint32(file[len(file)-10:]))
	from := len(file) - 10 - footer
	table := &flat{b: file[from : len(file)-10]}
	first, n := table.vector(table.follow(0), 3, 24)
	if n != 2 || table.err != nil {
		t.Fatalf("%d batches, %v", n, table.err)
	}
	schema := bytes.Index(file, []byte{0xff, 0xff, 0xff, 0xff})
	second := file[from+first+24:]
	for name, offset := range map[string]uint64{"a schema": uint64(schema), "nothing": uint64(len(file)),
		"before the file": 1 << 63} {
		kept := binary.LittleEndian.Uint64(second)
		binary.LittleEndian.PutUint64(second, offset)
		if _, err := numbersIn(file); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("a batch that is %s: %v", name, err)
		}
		binary.LittleEndian.PutUint64(second, kept)
	}
	copy(second, file[from+first:][:24])
	if got, err := numbersIn(file); err != nil || len(got) != 2 || got[1] != 1 {
		t.Errorf("a batch listed twice, where another of its size is left out: %v, %v", got, err)
	}
}

func TestABatchListedTwiceIsRefused(t *testing.T) {
	file := stockFile(t, nil, make([]int64, 1000), []int64{1})
	footer := file[len(file)-10-int(binary.LittleEndian.Uint32(file[len(file)-10:])):]
	table := &flat{b: footer}
	first, _ := table.vector(table.follow(0), 3, 24)
	copy(footer[first+24:], footer[first:first+24])
	if got, err := numbersIn(file); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("%d numbers, %v", len(got), err)
	}
}

func TestTruncatedFilesAreRefused(t *testing.T) {
	file := stockFile(t, nil, []int64{1, 2, 3})
	for n := range file {
		if _, err := numbersIn(file[:n]); !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("the first %d of %d bytes: %v", n, len(file), err)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add(stockFile(f, nil, []int64{1, 2, 3}))
	f.Add(stockFile(f, []ipc.Option{ipc.WithLZ4()}, []int64{1, 2, 3}, make([]int64, 100)))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewFileReader(bytes.NewReader(file), int64(len(file)), Options{MaxBytes: 1 << 20})
		for err == nil {
			var frame Frame
			if frame, err = r.Next(); err == nil {
				frame.Batch.Release()
			}
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, rollout.ErrInvalid) && !bytes.Contains([]byte(err.Error()),
			[]byte("decompressed")) {
			t.Errorf("%v", err)
		}
	})
}
