package flightdata

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// loader makes arrays of the nodes and buffers of a record batch, in the order of Arrow's format. It copies nothing: the buffers
// are slices of the body. Type by type it knows what has no dictionary.
type loader struct {
	shape *shape
	body  *memory.Buffer
	err   error
}

// load returns the record batch. It panics, as Arrow does, where arrays contradict their types.
func load(schema *arrow.Schema, s *shape, body *memory.Buffer) (arrow.RecordBatch, error) {
	l := &loader{shape: s, body: body}
	columns := make([]arrow.Array, 0, schema.NumFields())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for _, f := range schema.Fields() {
		d := l.array(f.Type)
		if l.err != nil {
			return nil, l.err
		}
		if int64(d.Len()) != s.rows {
			return nil, malformed("column %s has %d entries in a batch of %d rows", f.Name, d.Len(), s.rows)
		}
		columns = append(columns, array.MakeFromData(d))
		d.Release()
	}
	return array.NewRecordBatch(schema, columns, s.rows), nil
}

// node takes the next node.
func (l *loader) node() node {
	if len(l.shape.nodes) == 0 {
		l.fail("it has fewer arrays than its schema")
		return node{}
	}
	n := l.shape.nodes[0]
	l.shape.nodes = l.shape.nodes[1:]
	return n
}

// buffer takes the next buffer.
func (l *loader) buffer() *memory.Buffer {
	if len(l.shape.buffers) == 0 {
		l.fail("it has fewer buffers than its schema")
		return nil
	}
	e := l.shape.buffers[0]
	l.shape.buffers = l.shape.buffers[1:]
	if e.length == 0 || l.err != nil {
		return memory.NewBufferBytes(nil)
	}
	return memory.SliceBuffer(l.body, int(e.offset), int(e.length))
}

func (l *loader) fail(text string) {
	if l.err == nil {
		l.err = malformed("%s", text)
	}
}

// array takes the next array, whatever it is made of.
func (l *loader) array(t arrow.DataType) arrow.ArrayData {
	n := l.node()
	if t.ID() == arrow.NULL {
		return array.NewData(t, int(n.length), []*memory.Buffer{nil}, nil, int(n.length), 0)
	}
	buffers := []*memory.Buffer{l.buffer()}
	if n.nulls == 0 {
		release(buffers)
		buffers[0] = nil
	}
	for range bufferCount(t) {
		buffers = append(buffers, l.buffer())
	}
	var children []arrow.ArrayData
	if nested, ok := t.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			children = append(children, l.array(f.Type))
		}
	}
	d := array.NewData(t, int(n.length), buffers, children, int(n.nulls), 0)
	release(buffers)
	for _, c := range children {
		c.Release()
	}
	return d
}

func release(buffers []*memory.Buffer) {
	for _, b := range buffers {
		if b != nil {
			b.Release()
		}
	}
}

// bufferCount is the number of buffers of an array beside its bitmap of nulls.
func bufferCount(t arrow.DataType) int {
	switch t.(type) {
	case *arrow.StructType, *arrow.FixedSizeListType:
		return 0
	case *arrow.BinaryType, *arrow.StringType, *arrow.LargeBinaryType, *arrow.LargeStringType, *arrow.ListViewType, *arrow.LargeListViewType:
		return 2
	}
	return 1
}

// recovered turns a panic of Arrow's code into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = malformed("%s", fmt.Sprint(p))
	}
}
