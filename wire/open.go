package wire

import (
	"math"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

// span is entries [start, end) of a column that are looked at; the others lie under nulls or in gaps and may hold anything.
type span struct{ start, end int }

// total is the number of entries in spans.
func total(live []span) int {
	n := 0
	for _, s := range live {
		n += s.end - s.start
	}
	return n
}

// open looks at an array of any type that the wanted one can be made of. Arrays of the wanted type are not copied. Nulls are refused
// if the column is required.
//
// It trusts nothing: arrays may come from the network as they are.
func open(d arrow.ArrayData, want arrow.DataType, live []span, required bool) (column, *fault) {
	c := column{typ: want, n: d.Len()}
	if d.Len() < 0 || d.Offset() < 0 || d.Offset() > math.MaxInt-d.Len() {
		return c, broken("%d entries from %d on", d.Len(), d.Offset())
	}
	if d.Len() > maxRows && weightless(d.DataType()) {
		return c, &fault{wholeColumn, "", "of " + count(d.Len()) + " entries that take no room", "insert fewer rows at a time"}
	}
	if d.DataType().ID() == arrow.NULL {
		c.absent = true
	} else if f := c.openValidity(d); f != nil {
		return c, f
	}
	if f := c.refuseNulls(live, required); f != nil || c.absent {
		return c, f
	}
	var f *fault
	switch want := want.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		f = c.openText(d, live)
	case *arrow.ListType:
		f = c.openList(d, want.Elem(), live, !want.ElemField().Nullable)
	case *arrow.FixedSizeListType:
		f = c.openList(d, want.Elem(), live, !want.ElemField().Nullable)
		if f == nil {
			f = c.wantLength(int(want.Len()), live)
		}
	case *arrow.MapType:
		f = c.openMap(d, want, live)
	case *arrow.StructType:
		f = c.openStruct(d, want, live)
	case *arrow.BooleanType:
		f = c.openBools(d, live)
	default:
		f = c.openFixed(d, live)
	}
	return c, f
}

// weightless tells whether entries of a type take no bytes, so that a small message could hold any number of them.
func weightless(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.NullType:
		return true
	case *arrow.FixedSizeListType:
		return t.Len() == 0 || weightless(t.Elem())
	case *arrow.StructType:
		return !slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return !weightless(f.Type) })
	}
	return false
}

// openValidity finds the bitmap of nulls.
func (c *column) openValidity(d arrow.ArrayData) *fault {
	if d.NullN() == 0 || c.n == 0 || len(d.Buffers()) == 0 || d.Buffers()[0] == nil {
		return nil
	}
	b := d.Buffers()[0].Bytes()
	if len(b) == 0 {
		return nil
	}
	if int64(len(b)) < (int64(d.Offset())+int64(c.n)+7)/8 {
		return broken("%d bytes say which of %d entries are null", len(b), c.n)
	}
	c.valid = bitmap{b, d.Offset()}
	return nil
}

// refuseNulls finds the first null among the entries that are looked at. Where there is none, the bitmap is forgotten.
func (c *column) refuseNulls(live []span, required bool) *fault {
	if !c.absent && len(c.valid.b) == 0 {
		return nil
	}
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if !c.null(i) {
				continue
			}
			if required {
				return &fault{i, "", "null", "give a value"}
			}
			return nil
		}
	}
	if !c.absent {
		c.valid = bitmap{}
	}
	return nil
}

// buffer returns a buffer's bytes; none is empty.
func buffer(d arrow.ArrayData, i int) []byte {
	buffers := d.Buffers()
	if i >= len(buffers) || buffers[i] == nil {
		return nil
	}
	return buffers[i].Bytes()
}

// numbers returns n entries of a buffer of fixed width from the array's offset on, false if the buffer ends before.
func numbers[T any](d arrow.ArrayData, i, n, width int) ([]T, bool) {
	b, ok := entries(buffer(d, i), d.Offset(), n, width)
	return typed[T](b), ok
}

func entries(b []byte, offset, n, width int) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	if offset > len(b)/width || n > len(b)/width-offset {
		return nil, false
	}
	return b[offset*width : (offset+n)*width], true
}

// openFixed opens numbers and whatever else has a fixed width.
func (c *column) openFixed(d arrow.ArrayData, live []span) *fault {
	if !sameFixed(d.DataType(), c.typ) {
		return c.cast(d, live)
	}
	width := c.typ.(arrow.FixedWidthDataType).Bytes()
	b, ok := entries(buffer(d, 1), d.Offset(), c.n, width)
	if !ok {
		return broken("%d bytes for %d entries of %s", len(buffer(d, 1)), c.n, plainType(c.typ))
	}
	c.values = b
	return nil
}

// sameFixed tells whether two types have the same bytes: the same type, or times of one unit that are of UTC or of no zone.
func sameFixed(a, b arrow.DataType) bool {
	t, ok := a.(*arrow.TimestampType)
	u, too := b.(*arrow.TimestampType)
	if ok && too {
		return t.Unit == u.Unit && (t.TimeZone == "" || t.TimeZone == "UTC")
	}
	return arrow.TypeEqual(a, b)
}

// openBools opens bools, or numbers that are 0 and 1.
func (c *column) openBools(d arrow.ArrayData, live []span) *fault {
	if d.DataType().ID() == arrow.BOOL {
		return c.openBitmap(d)
	}
	small := column{typ: arrow.PrimitiveTypes.Uint8, n: c.n, valid: c.valid}
	if f := small.openFixed(d, live); f != nil {
		if f.index == wholeColumn {
			return mismatch(d.DataType(), c.typ)
		}
		return f
	}
	packed := make([]byte, (c.n+7)/8)
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if c.null(i) {
				continue
			}
			if small.values[i] > 1 {
				return &fault{i, "", count(int(small.values[i])), "give true or false, or 1 or 0"}
			}
			packed[i>>3] |= small.values[i] << (i & 7)
		}
	}
	c.bools = bitmap{b: packed}
	return nil
}

func (c *column) openBitmap(d arrow.ArrayData) *fault {
	b := buffer(d, 1)
	if c.n > 0 && int64(len(b)) < (int64(d.Offset())+int64(c.n)+7)/8 {
		return broken("%d bytes for %d bools", len(b), c.n)
	}
	c.bools = bitmap{b, d.Offset()}
	return nil
}

// openStruct opens the wanted fields wherever they stand; those that are missing are null.
func (c *column) openStruct(d arrow.ArrayData, want *arrow.StructType, live []span) *fault {
	found, ok := d.DataType().(*arrow.StructType)
	if !ok {
		return mismatch(d.DataType(), want)
	}
	if len(d.Children()) != found.NumFields() {
		return broken("%d fields of %d", len(d.Children()), found.NumFields())
	}
	for i, f := range found.Fields() {
		if _, known := want.FieldByName(f.Name); !known {
			return (&fault{wholeColumn, "", "unknown", "leave it out" + suggestion(f.Name, want.Fields())}).below(clip(f.Name))
		}
		if at, _ := found.FieldIdx(f.Name); at != i {
			return (&fault{wholeColumn, "", "there twice", "give each field once"}).below(clip(f.Name))
		}
	}
	live = c.liveFields(live)
	c.parts = make([]column, want.NumFields())
	for i, f := range want.Fields() {
		at, ok := found.FieldIdx(f.Name)
		if !ok {
			c.parts[i] = column{typ: f.Type, n: c.n, absent: true}
			if !f.Nullable && total(live) > 0 {
				return (&fault{wholeColumn, "", "missing", "give " + plainType(f.Type)}).below(f.Name)
			}
			continue
		}
		part, fault := openField(d, at, f, live)
		if fault != nil {
			return fault.below(f.Name)
		}
		c.parts[i] = part
	}
	return nil
}

// openField opens a field of a struct, which begins where the struct does.
func openField(d arrow.ArrayData, at int, f arrow.Field, live []span) (column, *fault) {
	child := d.Children()[at]
	if d.Offset() > child.Len() || d.Len() > child.Len()-d.Offset() {
		return column{}, broken("%d entries where the struct has %d", child.Len(), d.Len())
	}
	return open(sliced{child, d.Offset(), d.Len()}, f.Type, live, !f.Nullable)
}

// liveFields is what of a struct's fields is looked at: not what lies under its nulls.
func (c *column) liveFields(live []span) []span {
	if len(c.valid.b) == 0 {
		return live
	}
	var spans []span
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if !c.null(i) {
				spans = extend(spans, i, i+1)
			}
		}
	}
	return spans
}

// extend adds entries to spans.
func extend(spans []span, start, end int) []span {
	if n := len(spans); n > 0 && spans[n-1].end == start {
		spans[n-1].end = end
		return spans
	}
	if start == end {
		return spans
	}
	return append(spans, span{start, end})
}

// sliced is n entries of an array from one on.
type sliced struct {
	arrow.ArrayData
	from, n int
}

func (s sliced) Offset() int { return s.ArrayData.Offset() + s.from }
func (s sliced) Len() int    { return s.n }

// checkUTF8 refuses text that others could not read.
func (c *column) checkUTF8(live []span) *fault {
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if !c.null(i) && !utf8.Valid(c.bytes(i)) {
				return &fault{i, "", "not UTF-8", "give valid text, or bytes in a column of type binary"}
			}
		}
	}
	return nil
}
