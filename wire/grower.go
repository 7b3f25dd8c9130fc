package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// grower makes an array of entries that appendEntry wrote.
type grower struct {
	typ     arrow.DataType
	n       int
	nulls   int
	valid   []byte  // bitmap
	data    []byte  // numbers, a bitmap of bools, or text
	offsets []int32 // of text and lists
	parts   []*grower
}

func newGrower(t arrow.DataType) *grower {
	g := &grower{typ: t}
	switch t := t.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		g.offsets = []int32{0}
	case *arrow.MapType:
		g.offsets, g.parts = []int32{0}, []*grower{newGrower(t.Elem())}
	case *arrow.ListType:
		g.offsets, g.parts = []int32{0}, []*grower{newGrower(t.Elem())}
	case *arrow.FixedSizeListType:
		g.parts = []*grower{newGrower(t.Elem())}
	case *arrow.StructType:
		for _, f := range t.Fields() {
			g.parts = append(g.parts, newGrower(f.Type))
		}
	}
	return g
}

// add adds one entry, all of b.
func (g *grower) add(b []byte) error {
	b, err := g.read(b)
	if err == nil && len(b) > 0 {
		err = fmt.Errorf("%d bytes are left over", len(b))
	}
	return err
}

// read adds the first entry of b and returns what follows.
func (g *grower) read(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, g.cut()
	}
	switch b[0] {
	case 0:
		g.addNull()
		return b[1:], nil
	case 1:
		g.mark(true)
		return g.value(b[1:])
	}
	return nil, fmt.Errorf("entry of a %s begins with %d", g.typ, b[0])
}

// mark notes whether the next entry is there.
func (g *grower) mark(there bool) {
	if g.n%8 == 0 {
		g.valid = append(g.valid, 0)
	}
	if there {
		g.valid[g.n/8] |= 1 << (g.n % 8)
	} else {
		g.nulls++
	}
	g.n++
}

// addNull adds a null, which takes the room of a value where the type wants it.
func (g *grower) addNull() {
	g.mark(false)
	switch t := g.typ.(type) {
	case *arrow.StringType, *arrow.BinaryType, *arrow.ListType, *arrow.MapType:
		g.offsets = append(g.offsets, g.offsets[len(g.offsets)-1])
	case *arrow.FixedSizeListType:
		for range t.Len() {
			g.parts[0].addNull()
		}
	case *arrow.StructType:
		for _, p := range g.parts {
			p.addNull()
		}
	case *arrow.BooleanType:
		g.addBool(false)
	case arrow.FixedWidthDataType:
		g.data = append(g.data, make([]byte, t.Bytes())...)
	}
}

// addBool adds the bit of the entry that was marked last.
func (g *grower) addBool(x bool) {
	if (g.n-1)%8 == 0 {
		g.data = append(g.data, 0)
	}
	if x {
		g.data[(g.n-1)/8] |= 1 << ((g.n - 1) % 8)
	}
}

// addText adds text that is not null.
func (g *grower) addText(text string) {
	g.mark(true)
	g.data = append(g.data, text...)
	g.offsets = append(g.offsets, int32(len(g.data)))
}

func (g *grower) value(b []byte) ([]byte, error) {
	switch t := g.typ.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		n, b, err := g.length(b, 1)
		if err != nil {
			return nil, err
		}
		g.data = append(g.data, b[:n]...)
		return b[n:], g.close(len(g.data))
	case *arrow.ListType, *arrow.MapType, *arrow.FixedSizeListType:
		return g.list(b)
	case *arrow.StructType:
		for _, p := range g.parts {
			var err error
			if b, err = p.read(b); err != nil {
				return nil, err
			}
		}
		return b, nil
	case *arrow.BooleanType:
		if len(b) == 0 {
			return nil, g.cut()
		}
		g.addBool(b[0] == 1)
		return b[1:], nil
	case arrow.FixedWidthDataType:
		if len(b) < t.Bytes() {
			return nil, g.cut()
		}
		g.data = append(g.data, b[:t.Bytes()]...)
		return b[t.Bytes():], nil
	}
	return nil, fmt.Errorf("%s is no type of a column", g.typ)
}

func (g *grower) cut() error { return fmt.Errorf("entry of a %s is cut off", g.typ) }

// close ends an entry of text or of a list.
func (g *grower) close(end int) error {
	if end > math.MaxInt32 {
		return fmt.Errorf("column has more than %d items: take fewer rows at a time", math.MaxInt32)
	}
	g.offsets = append(g.offsets, int32(end))
	return nil
}

// length reads a number of things that take at least size bytes each.
func (g *grower) length(b []byte, size int) (int, []byte, error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64((len(b)-k)/size) {
		return 0, nil, g.cut()
	}
	return int(n), b[k:], nil
}

// list reads the items of a list.
func (g *grower) list(b []byte) ([]byte, error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)) || len(b) == k {
		return nil, g.cut()
	}
	raw, b := b[k] == 1, b[k+1:]
	if t, ok := g.typ.(*arrow.FixedSizeListType); ok && int(n) != int(t.Len()) {
		return nil, fmt.Errorf("entry of a %s has %d items", g.typ, n)
	}
	items := g.parts[0]
	if raw {
		width := plainWidth(items.typ)
		if width == 0 || int(n) > len(b)/width {
			return nil, g.cut()
		}
		items.addPlain(b[:int(n)*width], int(n))
		b = b[int(n)*width:]
	} else {
		for range n {
			var err error
			if b, err = items.read(b); err != nil {
				return nil, err
			}
		}
	}
	if g.typ.ID() == arrow.MAP && items.nulls+items.parts[0].nulls > 0 {
		return nil, fmt.Errorf("entry of a %s has a key that is null", g.typ)
	}
	if g.offsets != nil {
		return b, g.close(items.n)
	}
	return b, nil
}

// addPlain adds n numbers.
func (g *grower) addPlain(b []byte, n int) {
	g.data = append(g.data, b...)
	for ; n > 0 && g.n%8 > 0; n-- {
		g.mark(true)
	}
	for ; n >= 8; n -= 8 {
		g.valid = append(g.valid, 0xff)
		g.n += 8
	}
	for range n {
		g.mark(true)
	}
}

// array returns what was added. Its memory is the garbage collector's.
func (g *grower) array() arrow.ArrayData {
	buffers := []*memory.Buffer{nil}
	if g.nulls > 0 {
		buffers[0] = memory.NewBufferBytes(g.valid)
	}
	if g.offsets != nil {
		buffers = append(buffers, memory.NewBufferBytes(bytesOf(g.offsets)))
	}
	var children []arrow.ArrayData
	for _, p := range g.parts {
		children = append(children, p.array())
	}
	if len(g.parts) == 0 {
		buffers = append(buffers, memory.NewBufferBytes(g.data))
	}
	return array.NewData(g.typ, g.n, buffers, children, g.nulls, 0)
}

// column returns what was added as a column.
func (g *grower) column() column {
	c := column{typ: g.typ, n: g.n, values: g.data}
	if g.offsets != nil {
		c.starts, c.ends = g.offsets[:g.n], g.offsets[1:]
	}
	if t, ok := g.typ.(*arrow.FixedSizeListType); ok {
		c.stride(0, int(t.Len()))
	}
	if g.nulls > 0 {
		c.valid = bitmap{b: g.valid}
	}
	if g.typ.ID() == arrow.BOOL {
		c.bools = bitmap{b: g.data}
	}
	for _, p := range g.parts {
		c.parts = append(c.parts, p.column())
	}
	return c
}
