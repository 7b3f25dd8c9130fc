package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// rowGroupBytes is the payload of a row group, the part of a Parquet file that is held in memory until it is complete.
const rowGroupBytes = 32 << 20

// parquetWriter writes record batches to a Parquet file.
type parquetWriter struct {
	to    *pqarrow.FileWriter
	bytes int64 // of the row group so far
}

func newParquetWriter(to io.Writer, schema *arrow.Schema) (rowWriter, error) {
	// A dictionary would hold one NaN for all and takes time to build where nothing repeats; zstd finds what repeats.
	for _, f := range schema.Fields() {
		if hasSeconds(f.Type) {
			return nil, fmt.Errorf("column %s: %s: Parquet has no times in seconds: leave the column out (--columns), or "+
				"export as jsonl or arrow", f.Name, f.Type)
		}
	}
	w, err := pqarrow.NewFileWriter(schema, to, parquet.NewWriterProperties(parquet.WithDictionaryDefault(false),
		parquet.WithStats(false), parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1)),
		pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	return &parquetWriter{to: w}, nil
}

// hasSeconds reports whether a type has times in seconds, which would come back in milliseconds.
func hasSeconds(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.TimestampType:
		return t.Unit == arrow.Second
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return hasSeconds(f.Type) })
	}
	return false
}

func (w *parquetWriter) write(rec arrow.RecordBatch) (err error) {
	defer recovered(&err) // the library panics on some faults of its sink
	if w.bytes+payload(rec) > rowGroupBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.bytes += payload(rec)
	return w.to.WriteBuffered(rec)
}

func (w *parquetWriter) held() int64 { return w.bytes }

// flush ends the row group.
func (w *parquetWriter) flush() (err error) {
	defer recovered(&err)
	w.bytes = 0
	return w.to.NewBufferedRowGroupChecked()
}

func (w *parquetWriter) close() (err error) {
	defer recovered(&err)
	return w.to.Close()
}

// payload returns about how many bytes a record batch takes in memory.
func payload(rec arrow.RecordBatch) int64 {
	total := int64(0)
	for _, c := range rec.Columns() {
		total += int64(c.Data().SizeInBytes())
	}
	return total
}

// recovered turns a panic into an error: the library panics where it meets what it did not expect.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = errors.Join(*err, fmt.Errorf("damaged, or not supported: %v", p))
	}
}

// openParquet reads what the end of a Parquet file says of it. It drops the schema that writers of Arrow add: Parquet's
// own says enough, and the library takes any amount of memory for a damaged one.
func openParquet(from parquet.ReaderAtSeeker) (r *file.Reader, err error) {
	defer recovered(&err)
	size, err := from.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if r, err = file.NewParquetReader(from); err != nil {
		return nil, err
	}
	r.MetaData().FileMetaData.KeyValueMetadata = nil
	return r, checkChunks(r.MetaData(), size)
}

// checkChunks requires that the columns lie within the file. The library follows them in goroutines, whose panics end
// the process.
func checkChunks(m *metadata.FileMetaData, size int64) error {
	for number := range m.NumRowGroups() {
		g := m.RowGroup(number)
		for i := range g.NumColumns() {
			c, err := g.ColumnChunk(i)
			if err != nil {
				return err
			}
			start := c.DataPageOffset()
			if c.HasDictionaryPage() && c.DictionaryPageOffset() > 0 {
				start = min(start, c.DictionaryPageOffset())
			}
			if n := c.TotalCompressedSize(); start < 0 || n < 0 || start > size-n || c.NumValues() < 0 ||
				c.TotalUncompressedSize() < 0 {
				return fmt.Errorf("damaged: column %d of row group %d is %d bytes from %d on, in a file of %d", i, number, n,
					start, size)
			}
		}
	}
	return nil
}

// parquetRows is how many rows of a Parquet file are read at a time.
const parquetRows = 256

// readParquet passes on the record batches of a Parquet file.
func readParquet(from parquet.ReaderAtSeeker, yield func(arrow.RecordBatch) bool) (err error) {
	defer recovered(&err)
	opened, err := openParquet(from)
	if err != nil {
		return err
	}
	r, err := pqarrow.NewFileReader(opened, pqarrow.ArrowReadProperties{BatchSize: parquetRows},
		memory.DefaultAllocator)
	if err != nil {
		return err
	}
	batches, err := r.GetRecordReader(context.Background(), nil, nil)
	if err != nil {
		return err
	}
	defer batches.Release()
	rows := int64(0)
	for batches.Next() {
		rows += batches.RecordBatch().NumRows()
		if !yield(batches.RecordBatch()) {
			return nil
		}
	}
	switch err := batches.Err(); {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case rows != opened.NumRows(): // the library takes the end of a damaged column for the end of the file
		return fmt.Errorf("damaged: it has %d rows, of which %d can be read", opened.NumRows(), rows)
	}
	return nil
}

// portableSchema returns the schema with lists of structs of key and value in place of maps, which Hugging Face's
// datasets does not read, and with lists in place of those of fixed size, of which Parquet's library writes no nulls.
func portableSchema(s *arrow.Schema) *arrow.Schema {
	fields := make([]arrow.Field, s.NumFields())
	for i, f := range s.Fields() {
		fields[i] = portableField(f)
	}
	metadata := s.Metadata()
	return arrow.NewSchema(fields, &metadata)
}

func portableField(f arrow.Field) arrow.Field {
	switch t := f.Type.(type) {
	case *arrow.MapType:
		pair := arrow.StructOf(portableField(t.KeyField()), portableField(t.ItemField()))
		f.Type = arrow.ListOfNonNullable(pair)
	case *arrow.ListType:
		f.Type = arrow.ListOfField(portableField(t.ElemField()))
	case *arrow.FixedSizeListType:
		f.Type = arrow.ListOfField(portableField(t.ElemField()))
	case *arrow.StructType:
		fields := make([]arrow.Field, t.NumFields())
		for i := range fields {
			fields[i] = portableField(t.Field(i))
		}
		f.Type = arrow.StructOf(fields...)
	}
	return f
}

// portable returns a record batch under its portable schema. Most of its memory is the same.
func portable(rec arrow.RecordBatch, schema *arrow.Schema) (_ arrow.RecordBatch, err error) {
	defer recovered(&err) // of concatenating
	columns := make([]arrow.Array, 0, rec.NumCols())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i, c := range rec.Columns() {
		d := retyped(c.Data(), schema.Field(i).Type)
		columns = append(columns, array.MakeFromData(d))
		d.Release()
	}
	return array.NewRecordBatch(schema, columns, rec.NumRows()), nil
}

func retyped(d arrow.ArrayData, t arrow.DataType) arrow.ArrayData {
	if _, fixed := d.DataType().(*arrow.FixedSizeListType); fixed {
		d = variable(d)
		defer d.Release()
	}
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, child := range d.Children() {
		switch t := t.(type) {
		case *arrow.StructType:
			children[i] = retyped(child, t.Field(i).Type)
		case arrow.ListLikeType:
			children[i] = retyped(child, t.Elem())
		}
	}
	defer func() {
		for _, c := range children {
			c.Release()
		}
	}()
	return array.NewData(t, d.Len(), d.Buffers(), children, d.NullN(), d.Offset())
}

// variable returns lists of a fixed size as lists that may have any. A null one has no items.
func variable(d arrow.ArrayData) arrow.ArrayData {
	fixed := array.NewFixedSizeListData(d)
	defer fixed.Release()
	offsets := make([]int32, 1, fixed.Len()+1)
	valid := memory.NewResizableBuffer(memory.DefaultAllocator)
	defer valid.Release()
	valid.Resize(int(bitutil.BytesForBits(int64(fixed.Len()))))
	var runs []run
	for i := range fixed.Len() {
		start, end := fixed.ValueOffsets(i)
		if fixed.IsNull(i) {
			end = start
		}
		bitutil.SetBitTo(valid.Bytes(), i, fixed.IsValid(i))
		offsets = append(offsets, offsets[i]+int32(end-start))
		if n := len(runs); n > 0 && runs[n-1].to == start {
			runs[n-1].to = end
		} else if start < end {
			runs = append(runs, run{start, end})
		}
	}
	items := slicesOf(fixed.ListValues(), runs)
	defer items.Release()
	t := arrow.ListOfField(d.DataType().(*arrow.FixedSizeListType).ElemField())
	buffers := []*memory.Buffer{valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}
	return array.NewData(t, fixed.Len(), buffers, []arrow.ArrayData{items.Data()}, fixed.NullN(), 0)
}

// slicesOf returns the runs of an array, one after another.
func slicesOf(a arrow.Array, runs []run) arrow.Array {
	if len(runs) == 0 {
		return array.NewSlice(a, 0, 0)
	}
	parts := make([]arrow.Array, len(runs))
	for i, r := range runs {
		parts[i] = array.NewSlice(a, r.from, r.to)
		defer parts[i].Release()
	}
	joined, err := array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		panic(err)
	}
	return joined
}
