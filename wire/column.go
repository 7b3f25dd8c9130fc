package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"

	"github.com/reprise-rl/reprise/rollout"
)

// column is an Arrow array after [openColumn] checked it: it has the wanted type, and every offset lies within what it
// points into, whatever the sender wrote. The value of a null entry is undefined.
type column struct {
	typ     arrow.DataType
	n       int
	absent  bool     // every entry is null: the column is missing or of type null
	valid   bitmap   // one bit per entry; empty: none is null
	values  []byte   // numbers, text or binary
	bools   bitmap   // of type bool, instead of values
	starts  []int32  // [n] of lists, within the child; of text and binary, within values
	ends    []int32  // [n]
	parts   []column // child of a list, fields of a struct, key and value of a map
	shifted bool     // entries do not follow one another: starts and ends are not one array of offsets
}

// bitmap is a bitmap that may begin within a byte.
type bitmap struct {
	b  []byte
	at int // first bit
}

func (b bitmap) get(i int) bool { i += b.at; return b.b[i>>3]>>(i&7)&1 == 1 }

func (c *column) null(i int) bool { return c.absent || len(c.valid.b) > 0 && !c.valid.get(i) }

// bytes returns an entry of text or binary.
func (c *column) bytes(i int) []byte { return c.values[c.starts[i]:c.ends[i]:c.ends[i]] }

// flag returns an entry of type bool, false if it is null.
func (c *column) flag(i int) bool { return !c.null(i) && c.bools.get(i) }

// list returns the range of a list's items in its child, an empty one for null.
func (c *column) list(i int) (start, end int) {
	if c.null(i) {
		return 0, 0
	}
	return int(c.starts[i]), int(c.ends[i])
}

// length returns the number of items of an entry.
func (c *column) length(i int) int { start, end := c.list(i); return end - start }

// fixed returns the bytes of entries [start, end), each width bytes long.
func (c *column) fixed(start, end, width int) []byte { return c.values[start*width : end*width] }

// entry returns one entry of a numeric column, which need not be aligned.
func entry[T any](c *column, i int) T {
	var x T
	size := sizeOf[T]()
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&x)), size), c.values[i*size:(i+1)*size])
	return x
}

// scalar returns one entry of a numeric column, or otherwise if it is null.
func scalar[T any](c *column, i int, otherwise T) T {
	if c.null(i) {
		return otherwise
	}
	return entry[T](c, i)
}

func sizeOf[T any]() int {
	var x T
	return int(unsafe.Sizeof(x))
}

// typed returns bytes as numbers: the same memory if it is aligned, otherwise a copy.
func typed[T any](b []byte) []T {
	var x T
	n := len(b) / sizeOf[T]()
	if n == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(x) == 0 {
		return unsafe.Slice((*T)(p), n)
	}
	aligned := make([]T, n)
	copy(bytesOf(aligned), b)
	return aligned
}

// bytesOf returns the memory of numbers.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sizeOf[T]())
}

// fault is a problem with one entry of a column, or with the whole column (index wholeColumn).
type fault struct {
	index  int
	path   string // below the entry: [17], .start
	value  string
	remedy string
}

const wholeColumn = -1

func badEntry(i int, remedy, format string, args ...any) *fault {
	return &fault{i, "", fmt.Sprintf(format, args...), remedy}
}

func badColumn(remedy, format string, args ...any) *fault {
	return badEntry(wholeColumn, remedy, format, args...)
}

func mismatch(found, want arrow.DataType) *fault {
	return badColumn("give "+plainType(want), "of type %s", clip(found.String()))
}

func broken(format string, args ...any) *fault {
	return badColumn("write it with an Arrow library", "broken: "+format, args...)
}

// inList turns the fault of a list's child into that of the list.
func (f *fault) inList(c *column) *fault {
	if f.index == wholeColumn {
		return f
	}
	for i := range c.n {
		if start, end := c.list(i); start <= f.index && f.index < end {
			return &fault{i, "[" + strconv.Itoa(f.index-start) + "]" + f.path, f.value, f.remedy}
		}
	}
	return &fault{wholeColumn, f.path, f.value, f.remedy}
}

// inStruct turns the fault of a field into that of its struct.
func (f *fault) inStruct(field string) *fault {
	return &fault{f.index, "." + field + f.path, f.value, f.remedy}
}

// err returns the fault as an error that names the column.
func (f *fault) err(name string) error {
	if f.index == wholeColumn {
		return Errorf(Invalid, "column %s%s is %s: %s", clip(name), f.path, f.value, f.remedy)
	}
	return &rollout.FieldError{Row: f.index, Field: name + f.path, Value: f.value, Remedy: f.remedy}
}

// span is a range of entries [start, end). Only entries in live spans are checked and converted: the others lie under
// nulls or between lists, and may hold anything.
type span struct{ start, end int }

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

// openColumn checks an array and converts it to the wanted type. Arrays that have it already are not copied. Nulls are
// refused if the column is required. The array may come from the network unchecked.
func openColumn(d arrow.ArrayData, want arrow.DataType, live []span, required bool) (column, *fault) {
	c := column{typ: want, n: d.Len()}
	if d.Len() < 0 || d.Offset() < 0 || d.Offset() > math.MaxInt-d.Len() {
		return c, broken("%d entries from %d on", d.Len(), d.Offset())
	}
	if d.Len() > maxRows && weightless(d.DataType()) {
		return c, badColumn("insert fewer rows at a time", "of %d entries that take no bytes", d.Len())
	}
	if d.DataType().ID() == arrow.NULL {
		c.absent = true
	} else if f := c.openValidity(d); f != nil {
		return c, f
	}
	if f := c.checkNulls(live, required); f != nil || c.absent {
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
			f = c.checkLengths(int(want.Len()), live)
		}
	case *arrow.MapType:
		f = c.openMap(d, want, live)
	case *arrow.StructType:
		f = c.openStruct(d, want, live)
	case *arrow.BooleanType:
		f = c.openBools(d, live)
	default:
		f = c.openNumbers(d, live)
	}
	return c, f
}

// weightless reports whether entries of a type take no bytes, so that a small message could hold any number of them.
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

func (c *column) openValidity(d arrow.ArrayData) *fault {
	b := buffer(d, 0)
	if d.NullN() == 0 || c.n == 0 || len(b) == 0 {
		return nil
	}
	if !holdsBits(b, d.Offset(), c.n) {
		return broken("a validity bitmap of %d bytes for %d entries", len(b), c.n)
	}
	c.valid = bitmap{b, d.Offset()}
	return nil
}

func holdsBits(b []byte, offset, n int) bool { return int64(len(b)) >= (int64(offset)+int64(n)+7)/8 }

// checkNulls refuses nulls among live entries of a required column. It drops the bitmap if there are none.
func (c *column) checkNulls(live []span, required bool) *fault {
	if !c.absent && len(c.valid.b) == 0 {
		return nil
	}
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if !c.null(i) {
				continue
			}
			if required {
				return badEntry(i, "give a value", "null")
			}
			return nil
		}
	}
	if !c.absent {
		c.valid = bitmap{}
	}
	return nil
}

// nonNull leaves null entries out of live spans.
func (c *column) nonNull(live []span) []span {
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

// buffer returns a buffer's bytes, none if it is missing.
func buffer(d arrow.ArrayData, i int) []byte {
	buffers := d.Buffers()
	if i >= len(buffers) || buffers[i] == nil {
		return nil
	}
	return buffers[i].Bytes()
}

// entries returns n entries of a buffer from offset on, false if the buffer is too short.
func entries(b []byte, offset, n, width int) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	if offset > len(b)/width || n > len(b)/width-offset {
		return nil, false
	}
	return b[offset*width : (offset+n)*width], true
}

// numbers returns n numbers of buffer i from the array's offset on, false if the buffer is too short.
func numbers[T any](d arrow.ArrayData, i, n int) ([]T, bool) {
	b, ok := entries(buffer(d, i), d.Offset(), n, sizeOf[T]())
	return typed[T](b), ok
}

// openBools opens bools, or numbers that are 0 and 1.
func (c *column) openBools(d arrow.ArrayData, live []span) *fault {
	if d.DataType().ID() == arrow.BOOL {
		return c.openBits(d)
	}
	small := column{typ: arrow.PrimitiveTypes.Uint8, n: c.n, valid: c.valid}
	if f := small.openNumbers(d, live); f != nil {
		if f.index == wholeColumn {
			return mismatch(d.DataType(), c.typ)
		}
		return f
	}
	packed := make([]byte, (c.n+7)/8)
	for _, s := range c.nonNull(live) {
		for i := s.start; i < s.end; i++ {
			if small.values[i] > 1 {
				return badEntry(i, "give true or false, or 1 or 0", "%d", small.values[i])
			}
			packed[i>>3] |= small.values[i] << (i & 7)
		}
	}
	c.bools = bitmap{b: packed}
	return nil
}

func (c *column) openBits(d arrow.ArrayData) *fault {
	b := buffer(d, 1)
	if c.n > 0 && !holdsBits(b, d.Offset(), c.n) {
		return broken("%d bytes for %d bools", len(b), c.n)
	}
	c.bools = bitmap{b, d.Offset()}
	return nil
}

// openStruct opens the wanted fields in any order. Missing ones are null.
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
			return badColumn("leave it out"+suggestion(f.Name, want.Fields()), "unknown").inStruct(clip(f.Name))
		}
		if at, _ := found.FieldIdx(f.Name); at != i {
			return badColumn("give each field once", "there twice").inStruct(clip(f.Name))
		}
	}
	live = c.nonNull(live)
	c.parts = make([]column, want.NumFields())
	for i, f := range want.Fields() {
		at, ok := found.FieldIdx(f.Name)
		if !ok {
			c.parts[i] = column{typ: f.Type, n: c.n, absent: true}
			if !f.Nullable && slices.ContainsFunc(live, func(s span) bool { return s.start < s.end }) {
				return badColumn("give "+plainType(f.Type), "missing").inStruct(f.Name)
			}
			continue
		}
		part, fault := openField(d, at, f, live)
		if fault != nil {
			return fault.inStruct(f.Name)
		}
		c.parts[i] = part
	}
	return nil
}

// openField opens a field of a struct. Its entries begin at the struct's offset.
func openField(d arrow.ArrayData, at int, f arrow.Field, live []span) (column, *fault) {
	child := d.Children()[at]
	if d.Offset() > child.Len() || d.Len() > child.Len()-d.Offset() {
		return column{}, broken("%d entries where the struct has %d", child.Len(), d.Len())
	}
	return openColumn(sliced{child, d.Offset(), d.Len()}, f.Type, live, !f.Nullable)
}

// sliced is n entries of an array from one on.
type sliced struct {
	arrow.ArrayData
	from, n int
}

func (s sliced) Offset() int { return s.ArrayData.Offset() + s.from }
func (s sliced) Len() int    { return s.n }

// retyped is an array under another type of the same layout.
type retyped struct {
	arrow.ArrayData
	typ arrow.DataType
}

func (r retyped) DataType() arrow.DataType { return r.typ }

// openList opens lists of any layout: list, large_list, fixed_size_list, map and the views.
func (c *column) openList(d arrow.ArrayData, elem arrow.DataType, live []span, itemsRequired bool) *fault {
	if len(d.Children()) != 1 {
		return mismatch(d.DataType(), c.typ)
	}
	child := d.Children()[0]
	if child.Len() > math.MaxInt32 {
		return badColumn("insert fewer rows at a time", "of %d items", child.Len())
	}
	if f := c.openRanges(d, child.Len()); f != nil {
		return f
	}
	part, f := openColumn(child, elem, c.liveItems(live), itemsRequired)
	if f != nil {
		return f.inList(c)
	}
	c.parts = []column{part}
	return nil
}

// openRanges finds the range of each list in its child, which has limit items.
func (c *column) openRanges(d arrow.ArrayData, limit int) *fault {
	switch t := d.DataType().(type) {
	case *arrow.ListType, *arrow.MapType:
		return openOffsets[int32](c, d, limit)
	case *arrow.LargeListType:
		return openOffsets[int64](c, d, limit)
	case *arrow.ListViewType:
		return openViews[int32](c, d, limit)
	case *arrow.LargeListViewType:
		return openViews[int64](c, d, limit)
	case *arrow.FixedSizeListType:
		size := int(t.Len())
		if size < 0 || size > 0 && (c.n > limit/size || d.Offset() > limit/size-c.n) {
			return broken("%d items for %d entries of %d", limit, c.n, size)
		}
		c.setStrides(d.Offset(), size)
		return nil
	}
	return mismatch(d.DataType(), c.typ)
}

// openOffsets checks that offsets ascend and stay below limit.
func openOffsets[T int32 | int64](c *column, d arrow.ArrayData, limit int) *fault {
	if c.n == 0 {
		return nil
	}
	found, ok := numbers[T](d, 1, c.n+1)
	if !ok {
		return broken("%d bytes of offsets for %d entries", len(buffer(d, 1)), c.n)
	}
	var last T
	for i, x := range found {
		if x < last || int64(x) > int64(limit) {
			return broken("offset %d is %d, of %d", i, x, limit)
		}
		last = x
	}
	offsets, narrow := any(found).([]int32)
	if !narrow {
		offsets = make([]int32, len(found))
		for i, x := range found {
			offsets[i] = int32(x)
		}
	}
	c.starts, c.ends = offsets[:c.n:c.n], offsets[1:]
	return nil
}

// openViews opens lists that may lie anywhere in their child. No two may show the same item: a small message could
// otherwise become a large one.
func openViews[T int32 | int64](c *column, d arrow.ArrayData, limit int) *fault {
	starts, ok := numbers[T](d, 1, c.n)
	sizes, too := numbers[T](d, 2, c.n)
	if !ok || !too {
		return broken("too few offsets and sizes for %d entries", c.n)
	}
	c.starts, c.ends, c.shifted = make([]int32, c.n), make([]int32, c.n), true
	var shown []int // lists with items
	for i, start := range starts {
		if c.null(i) {
			continue
		}
		at, size := int64(start), int64(sizes[i])
		if at < 0 || size < 0 || at > int64(limit) || size > int64(limit)-at {
			return broken("entry %d is %d items from %d on, of %d", i, size, at, limit)
		}
		c.starts[i], c.ends[i] = int32(at), int32(at+size)
		if size > 0 {
			shown = append(shown, i)
		}
	}
	slices.SortStableFunc(shown, func(i, j int) int { return cmp.Compare(c.starts[i], c.starts[j]) })
	for k := 1; k < len(shown); k++ {
		if i := shown[k]; c.starts[i] < c.ends[shown[k-1]] {
			return badEntry(i, "give lists, not views", "a view of items that others show too")
		}
	}
	return nil
}

// setStrides lays out lists of one length. first is the number of lists that precede them in the child.
func (c *column) setStrides(first, size int) {
	c.starts, c.ends, c.shifted = make([]int32, c.n), make([]int32, c.n), true
	for i := range c.n {
		c.starts[i] = int32((first + i) * size)
		c.ends[i] = c.starts[i] + int32(size)
	}
}

// liveItems returns the items of lists that are live and not null.
func (c *column) liveItems(live []span) []span {
	var spans []span
	for _, s := range live {
		if s.start == s.end {
			continue
		}
		if len(c.valid.b) == 0 && !c.shifted {
			spans = extend(spans, int(c.starts[s.start]), int(c.ends[s.end-1]))
			continue
		}
		for i := s.start; i < s.end; i++ {
			start, end := c.list(i)
			spans = extend(spans, start, end)
		}
	}
	return spans
}

// checkLengths refuses lists whose length is not n.
func (c *column) checkLengths(n int, live []span) *fault {
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if !c.null(i) && c.length(i) != n {
				return badEntry(i, fmt.Sprintf("give %d items", n), "a list of %d", c.length(i))
			}
		}
	}
	return nil
}

// openMap opens a map, a list of structs of key and value, or a struct whose non-null fields are the entries: pa.table
// makes structs of dicts.
func (c *column) openMap(d arrow.ArrayData, want *arrow.MapType, live []span) *fault {
	pairOf := func(key, value arrow.DataType, nullable bool) *arrow.StructType {
		return arrow.StructOf(arrow.Field{Name: "key", Type: key}, arrow.Field{Name: "value", Type: value,
			Nullable: nullable})
	}
	pair := pairOf(want.KeyType(), want.ItemType(), want.ItemField().Nullable)
	if s, ok := d.DataType().(*arrow.StructType); ok && want.KeyType().ID() == arrow.STRING {
		return c.openDicts(d, s, pair, live)
	}
	// the names of a map's fields do not matter
	if m, ok := d.DataType().(*arrow.MapType); ok && len(d.Children()) == 1 {
		d = withChild{d, retyped{d.Children()[0], pairOf(m.KeyType(), m.ItemType(), true)}}
	}
	return c.openList(d, pair, live, true)
}

// withChild is a list with another child.
type withChild struct {
	arrow.ArrayData
	child arrow.ArrayData
}

func (w withChild) Children() []arrow.ArrayData { return []arrow.ArrayData{w.child} }

// openDicts makes a map of each struct. Null fields are left out.
func (c *column) openDicts(d arrow.ArrayData, found *arrow.StructType, pair *arrow.StructType, live []span) *fault {
	if len(d.Children()) != found.NumFields() {
		return broken("%d fields of %d", len(d.Children()), found.NumFields())
	}
	live = c.nonNull(live)
	fields := make([]column, found.NumFields())
	for i, f := range found.Fields() {
		value := arrow.Field{Name: f.Name, Type: pair.Field(1).Type, Nullable: true}
		part, fault := openField(d, i, value, live)
		if fault != nil {
			return fault.inStruct(clip(f.Name))
		}
		fields[i] = part
	}
	keys, values := newBuilder(pair.Field(0).Type), newBuilder(pair.Field(1).Type)
	c.starts, c.ends = make([]int32, c.n), make([]int32, c.n)
	for i := range c.n {
		c.starts[i] = int32(keys.n)
		for k := range fields {
			if c.null(i) || fields[k].null(i) {
				continue
			}
			keys.addText(found.Field(k).Name)
			if err := values.add(appendEntry(nil, &fields[k], i)); err != nil {
				return broken("%v", err)
			}
		}
		c.ends[i] = int32(keys.n)
		if len(keys.data) > maxSharedText {
			return badEntry(i, "insert fewer rows at a time", "more than %d bytes of names", maxSharedText)
		}
	}
	c.parts = []column{{typ: pair, n: keys.n, parts: []column{keys.column(), values.column()}}}
	return nil
}

// maxSharedText bounds how far text may grow beyond its column, in bytes, where entries share it through a dictionary,
// views or field names: a small message could otherwise become a large one.
const maxSharedText = 64 << 20

// openText opens text or binary of any layout: 32 or 64 bits, views, dictionaries.
func (c *column) openText(d arrow.ArrayData, live []span) *fault {
	text := c.typ.ID() == arrow.STRING
	f := c.openBytes(d, live, text)
	if f != nil || !text {
		return f
	}
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if !c.null(i) && !utf8.Valid(c.bytes(i)) {
				return badEntry(i, "give valid text, or bytes in a column of type binary", "not UTF-8")
			}
		}
	}
	return nil
}

func (c *column) openBytes(d arrow.ArrayData, live []span, text bool) *fault {
	switch id := d.DataType().ID(); {
	case id == arrow.STRING || id == arrow.BINARY && !text:
		c.values = buffer(d, 2)
		return openOffsets[int32](c, d, min(len(c.values), math.MaxInt32))
	case id == arrow.LARGE_STRING || id == arrow.LARGE_BINARY && !text:
		c.values = buffer(d, 2)
		return openOffsets[int64](c, d, min(len(c.values), math.MaxInt32))
	case id == arrow.STRING_VIEW || id == arrow.BINARY_VIEW && !text:
		return c.openTextViews(d, live)
	case id == arrow.DICTIONARY:
		// Dictionary returns a pointer in an interface, which is not nil where the pointer is.
		if dictionary, ok := d.Dictionary().(*array.Data); ok && dictionary != nil {
			return c.openDictionary(d, dictionary, live)
		}
	}
	return mismatch(d.DataType(), c.typ)
}

// openDictionary points every entry at its word.
func (c *column) openDictionary(d, dictionary arrow.ArrayData, live []span) *fault {
	t, ok := d.DataType().(*arrow.DictionaryType)
	if !ok || dictionary.DataType().ID() == arrow.DICTIONARY {
		return mismatch(d.DataType(), c.typ)
	}
	words, f := openColumn(dictionary, c.typ, []span{{0, dictionary.Len()}}, false)
	if f != nil {
		return badColumn(f.remedy, "of a dictionary that is %s", f.value)
	}
	index := column{typ: arrow.PrimitiveTypes.Int64, n: c.n, valid: c.valid}
	if f := index.openNumbers(retyped{d, t.IndexType}, live); f != nil {
		return f
	}
	at := typed[int64](index.values)
	c.values, c.starts, c.ends, c.shifted = words.values, make([]int32, c.n), make([]int32, c.n), true
	sum := 0
	for _, s := range c.nonNull(live) {
		for i := s.start; i < s.end; i++ {
			if at[i] < 0 || at[i] >= int64(words.n) || words.null(int(at[i])) {
				return badEntry(i, "give a word that is there and not null", "word %d of a dictionary of %d", at[i],
					words.n)
			}
			c.starts[i], c.ends[i] = words.starts[at[i]], words.ends[at[i]]
			if sum += int(c.ends[i] - c.starts[i]); sum > len(words.values)+maxSharedText {
				return badEntry(i, "insert fewer rows at a time", "more text than %d bytes", sum)
			}
		}
	}
	return nil
}

// openTextViews gathers text that lies in several buffers.
func (c *column) openTextViews(d arrow.ArrayData, live []span) *fault {
	views, ok := entries(buffer(d, 1), d.Offset(), c.n, 16)
	if !ok {
		return broken("%d bytes for %d views", len(buffer(d, 1)), c.n)
	}
	limit := len(views) + maxSharedText
	for i := 2; i < len(d.Buffers()); i++ {
		limit += len(buffer(d, i))
	}
	c.starts, c.ends, c.shifted = make([]int32, c.n), make([]int32, c.n), true
	for _, s := range c.nonNull(live) {
		for i := s.start; i < s.end; i++ {
			text, ok := viewed(d, views[16*i:16*i+16])
			if !ok {
				return broken("view %d points beyond its buffers", i)
			}
			if len(c.values)+len(text) > min(limit, math.MaxInt32) {
				return badEntry(i, "insert fewer rows at a time", "more text than %d bytes", limit)
			}
			c.starts[i] = int32(len(c.values))
			c.values = append(c.values, text...)
			c.ends[i] = int32(len(c.values))
		}
	}
	return nil
}

// viewed returns the text of a view of 16 bytes: a length, then up to 12 bytes of text, or four bytes of it, a buffer
// and an offset.
func viewed(d arrow.ArrayData, view []byte) ([]byte, bool) {
	word := func(i int) int { return int(int32(binary.NativeEndian.Uint32(view[4*i:]))) }
	n := word(0)
	if n < 0 {
		return nil, false
	}
	if n <= 12 {
		return view[4 : 4+n], true
	}
	which, at := word(2), word(3)
	if which < 0 || at < 0 || which >= len(d.Buffers())-2 {
		return nil, false
	}
	b := buffer(d, 2+which)
	if at > len(b) || n > len(b)-at {
		return nil, false
	}
	return b[at : at+n], true
}

// openNumbers opens numbers, dates and times. Numbers of other types are converted; a value that the wanted type cannot
// hold is refused, but a double becomes the nearest float32 unless that is infinite.
func (c *column) openNumbers(d arrow.ArrayData, live []span) *fault {
	if sameBytes(d.DataType(), c.typ) {
		b, ok := entries(buffer(d, 1), d.Offset(), c.n, c.typ.(arrow.FixedWidthDataType).Bytes())
		if !ok {
			return broken("%d bytes for %d entries of %s", len(buffer(d, 1)), c.n, plainType(c.typ))
		}
		c.values = b
		return nil
	}
	switch c.typ.ID() {
	case arrow.INT8:
		return castTo[int8](c, d, live)
	case arrow.INT16:
		return castTo[int16](c, d, live)
	case arrow.INT32:
		return castTo[int32](c, d, live)
	case arrow.INT64:
		return castTo[int64](c, d, live)
	case arrow.UINT8:
		return castTo[uint8](c, d, live)
	case arrow.UINT16:
		return castTo[uint16](c, d, live)
	case arrow.UINT32:
		return castTo[uint32](c, d, live)
	case arrow.UINT64:
		return castTo[uint64](c, d, live)
	case arrow.FLOAT32:
		return castTo[float32](c, d, live)
	case arrow.FLOAT64:
		return castTo[float64](c, d, live)
	}
	return mismatch(d.DataType(), c.typ)
}

// sameBytes reports whether values of two types have the same bytes: the types are equal, or times of one unit in UTC
// or without a zone.
func sameBytes(found, want arrow.DataType) bool {
	t, ok := found.(*arrow.TimestampType)
	u, too := want.(*arrow.TimestampType)
	if ok && too {
		return t.Unit == u.Unit && (t.TimeZone == "" || t.TimeZone == "UTC")
	}
	return arrow.TypeEqual(found, want)
}

type number interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

func castTo[D number](c *column, d arrow.ArrayData, live []span) *fault {
	switch d.DataType().ID() {
	case arrow.INT8:
		return cast[D, int8](c, d, live)
	case arrow.INT16:
		return cast[D, int16](c, d, live)
	case arrow.INT32:
		return cast[D, int32](c, d, live)
	case arrow.INT64:
		return cast[D, int64](c, d, live)
	case arrow.UINT8:
		return cast[D, uint8](c, d, live)
	case arrow.UINT16:
		return cast[D, uint16](c, d, live)
	case arrow.UINT32:
		return cast[D, uint32](c, d, live)
	case arrow.UINT64:
		return cast[D, uint64](c, d, live)
	case arrow.FLOAT32:
		return cast[D, float32](c, d, live)
	case arrow.FLOAT64:
		return cast[D, float64](c, d, live)
	case arrow.FLOAT16:
		if isFloat[D]() {
			return castHalves[D](c, d, live)
		}
	case arrow.BOOL:
		return castBools[D](c, d, live)
	}
	return mismatch(d.DataType(), c.typ)
}

// cast converts live entries that are not null. The others stay 0.
func cast[D, S number](c *column, d arrow.ArrayData, live []span) *fault {
	src, ok := numbers[S](d, 1, c.n)
	if !ok {
		return broken("%d bytes for %d entries of %s", len(buffer(d, 1)), c.n, d.DataType())
	}
	dst := make([]D, c.n)
	for _, s := range c.nonNull(live) {
		if i := convert(dst[s.start:s.end], src[s.start:s.end]); i >= 0 {
			i += s.start
			return badEntry(i, "give a value that fits "+plainType(c.typ), "%s", formatNumber(src[i]))
		}
	}
	c.values = bytesOf(dst)
	return nil
}

func castHalves[D number](c *column, d arrow.ArrayData, live []span) *fault {
	src, ok := numbers[float16.Num](d, 1, c.n)
	if !ok {
		return broken("%d bytes for %d entries of float16", len(buffer(d, 1)), c.n)
	}
	dst := make([]D, c.n)
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			dst[i] = D(src[i].Float32())
		}
	}
	c.values = bytesOf(dst)
	return nil
}

func castBools[D number](c *column, d arrow.ArrayData, live []span) *fault {
	if f := c.openBits(d); f != nil {
		return f
	}
	dst := make([]D, c.n)
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if c.bools.get(i) {
				dst[i] = 1
			}
		}
	}
	c.values, c.bools = bytesOf(dst), bitmap{}
	return nil
}

// convert converts numbers one by one and returns the index of the first that does not fit, -1 if all do.
func convert[D, S number](dst []D, src []S) int {
	switch {
	case isFloat[D]() && isFloat[S]():
		for i, x := range src {
			y := D(x)
			if math.IsInf(float64(y), 0) && !math.IsInf(float64(x), 0) {
				return i
			}
			dst[i] = y
		}
	case isFloat[D]():
		most := exactUpTo(sizeOf[D]())
		for i, x := range src {
			if float64(x) > most || float64(x) < -most {
				return i
			}
			dst[i] = D(x)
		}
	case isFloat[S]():
		most := exactUpTo(sizeOf[S]())
		for i, x := range src {
			y := D(x)
			if S(y) != x || float64(x) > most || float64(x) < -most {
				return i
			}
			dst[i] = y
		}
	default:
		for i, x := range src {
			y := D(x)
			if S(y) != x || (y < 0) != (x < 0) {
				return i
			}
			dst[i] = y
		}
	}
	return -1
}

func isFloat[T number]() bool { return T(1)/T(2) != 0 }

// exactUpTo returns the greatest n such that a float of the given bytes holds all whole numbers from -n to n.
func exactUpTo(size int) float64 {
	if size == 4 {
		return 1 << 24
	}
	return 1 << 53
}

func formatNumber[T number](x T) string {
	if isFloat[T]() {
		return strconv.FormatFloat(float64(x), 'g', -1, 64)
	}
	return fmt.Sprint(x)
}
