package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout/option"
)

// This file is about the columns that a user declares ([Column]): their types, and the bytes in which a rollout carries
// its row of them (rollout.Rollout.Extra). Arrow's IPC of one row would take 11 to 16 times the bytes and 30 to 60
// times the time.

// extraPrefix begins the names of user-defined columns.
const extraPrefix = "x_"

// ExtraFields returns the fields of user-defined columns, all nullable. Names begin with x_ and are distinct. Types are
// bool, int8 to int64, uint8 to uint64, float16, float32, float64, utf8, binary, date32, timestamp<us> (or s, ms, ns;
// without a time zone), list<T>, fixed_size_list<T, 768>, struct<name: T, …> and map<K, V>; spaces are ignored. The
// error reports every bad column.
func ExtraFields(columns []Column) ([]arrow.Field, error) {
	var p option.Problems
	fields := AddColumns(&p, columns)
	if len(p) > 0 {
		return nil, Errorf(Invalid, "%s", p.Line())
	}
	return fields, nil
}

// AddColumns is [ExtraFields] that adds what is wrong with the columns, under the keys columns[i].name and .type.
func AddColumns(p *option.Problems, columns []Column) (fields []arrow.Field) {
	seen := map[string]bool{}
	for i, c := range columns {
		at := "columns[" + strconv.Itoa(i) + "]."
		good := strings.HasPrefix(c.Name, extraPrefix) && goodName(c.Name) && len(c.Name) > len(extraPrefix)
		p.CheckWith("", good, at+"name", strconv.Quote(clip(c.Name)),
			"%s followed by letters, digits, - _ and ., at most %d in all", extraPrefix, maxName)
		p.CheckWith("", !good || !seen[c.Name], at+"name", strconv.Quote(c.Name), "each name once")
		seen[c.Name] = true
		t, err := parseType(c.Type)
		if err != nil {
			p.Add(fmt.Errorf("%s%w", at, err))
			continue
		}
		fields = append(fields, arrow.Field{Name: c.Name, Type: t, Nullable: true})
	}
	return fields
}

// Bounds of types.
const (
	maxTypeDepth = 8       // lists, structs and maps within one another
	maxFixedSize = 1 << 16 // values in one entry of fixed-size lists: nulls take their room too
)

// parseType parses the type of a column.
func parseType(text string) (arrow.DataType, error) {
	t, err := parseNested(strings.ReplaceAll(text, " ", ""), maxTypeDepth)
	if err != nil {
		return nil, Errorf(Invalid, "type: %q: %s", clip(text), err)
	}
	return t, nil
}

// scalarTypes returns the types without parameters, and timestamps.
func scalarTypes() map[string]arrow.DataType {
	p, f, b := arrow.PrimitiveTypes, arrow.FixedWidthTypes, arrow.BinaryTypes
	return map[string]arrow.DataType{
		"bool": f.Boolean,
		"int8": p.Int8, "int16": p.Int16, "int32": p.Int32, "int64": p.Int64,
		"uint8": p.Uint8, "uint16": p.Uint16, "uint32": p.Uint32, "uint64": p.Uint64,
		"float16": f.Float16, "float32": p.Float32, "float64": p.Float64,
		"utf8": b.String, "string": b.String, "binary": b.Binary, "date32": f.Date32,
		"timestamp<s>":  &arrow.TimestampType{Unit: arrow.Second},
		"timestamp<ms>": &arrow.TimestampType{Unit: arrow.Millisecond},
		"timestamp<us>": &arrow.TimestampType{Unit: arrow.Microsecond},
		"timestamp<ns>": &arrow.TimestampType{Unit: arrow.Nanosecond},
	}
}

func parseNested(text string, depth int) (arrow.DataType, error) {
	if t, ok := scalarTypes()[text]; ok {
		return t, nil
	}
	name, inner, ok := strings.Cut(text, "<")
	inner, closed := strings.CutSuffix(inner, ">")
	if !ok || !closed {
		return nil, fmt.Errorf("%q is no type: want one such as float32, utf8, list<int64>, struct<a:int32,b:utf8>",
			clip(text))
	}
	if depth == 0 {
		return nil, fmt.Errorf("want at most %d types in one another", maxTypeDepth)
	}
	parts := splitTypes(inner)
	switch {
	case name == "list" && len(parts) == 1:
		item, err := parseNested(parts[0], depth-1)
		if err != nil {
			return nil, err
		}
		return arrow.ListOf(item), nil
	case name == "fixed_size_list" && len(parts) == 2:
		return parseFixedSizeList(parts[0], parts[1], depth)
	case name == "map" && len(parts) == 2:
		key, err := parseNested(parts[0], depth-1)
		if err != nil {
			return nil, err
		}
		value, err := parseNested(parts[1], depth-1)
		if err != nil {
			return nil, err
		}
		return arrow.MapOf(key, value), nil
	case name == "struct" && len(parts) > 0:
		return parseStruct(parts, depth)
	}
	return nil, fmt.Errorf("%q is no type: want list<T>, fixed_size_list<T,n>, struct<name:T,…>, map<K,V> or a "+
		"scalar type", clip(text))
}

func parseFixedSizeList(item, size string, depth int) (arrow.DataType, error) {
	t, err := parseNested(item, depth-1)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(size, 10, 32)
	if err != nil || n < 1 || n > maxFixedSize {
		return nil, fmt.Errorf("size %q: want a number of items from 1 to %d", clip(size), maxFixedSize)
	}
	fixed := arrow.FixedSizeListOf(int32(n), t)
	if fixedSize(fixed) > maxFixedSize {
		return nil, fmt.Errorf("fixed_size_list<%s,%s>: want at most %d items in all", clip(item), size, maxFixedSize)
	}
	return fixed, nil
}

// fixedSize returns the number of values that any entry of a type takes room for.
func fixedSize(t arrow.DataType) int {
	switch t := t.(type) {
	case *arrow.FixedSizeListType:
		return int(t.Len()) * fixedSize(t.Elem())
	case *arrow.StructType:
		sum := 0
		for _, f := range t.Fields() {
			sum += fixedSize(f.Type)
		}
		return sum
	}
	return 1
}

func parseStruct(parts []string, depth int) (arrow.DataType, error) {
	fields := make([]arrow.Field, len(parts))
	for i, part := range parts {
		name, of, ok := strings.Cut(part, ":")
		if !ok || name == "" || len(name) > maxName || strings.ContainsAny(name, "<>") {
			return nil, fmt.Errorf("%q is no field of a struct: want name:type", clip(part))
		}
		for _, f := range fields[:i] {
			if f.Name == name {
				return nil, fmt.Errorf("struct field %q: want each name once", name)
			}
		}
		t, err := parseNested(of, depth-1)
		if err != nil {
			return nil, err
		}
		fields[i] = arrow.Field{Name: name, Type: t, Nullable: true}
	}
	return arrow.StructOf(fields...), nil
}

// splitTypes splits at commas outside brackets.
func splitTypes(text string) []string {
	var parts []string
	depth, start := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '<':
			depth++
		case '>':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, text[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, text[start:])
}

// plainType formats a type as [parseType] parses it.
func plainType(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.FixedSizeListType:
		return fmt.Sprintf("fixed_size_list<%s,%d>", plainType(t.Elem()), t.Len())
	case *arrow.MapType:
		return fmt.Sprintf("map<%s,%s>", plainType(t.KeyType()), plainType(t.ItemType()))
	case *arrow.ListType:
		return "list<" + plainType(t.Elem()) + ">"
	case *arrow.StructType:
		fields := make([]string, t.NumFields())
		for i, f := range t.Fields() {
			fields[i] = f.Name + ":" + plainType(f.Type)
		}
		return "struct<" + strings.Join(fields, ",") + ">"
	case *arrow.TimestampType:
		return "timestamp<" + t.Unit.String() + ">"
	}
	return t.String()
}

// The encoding of one row: for each column that is not null the length of its name as a varint, the name, the length of
// the entry as a varint, and the entry. An entry is 0 for null, or 1 and the value: numbers as in memory, a bool as a
// byte, text as a varint of its length and its bytes, a struct as the entries of its fields. A list is a varint of its
// length, then 1 and the items as in memory where they are numbers without nulls, otherwise 0 and an entry for each
// item.

// appendExtra encodes one row.
func appendExtra(b []byte, columns []column, fields []arrow.Field, row int) []byte {
	var entry []byte
	for i := range columns {
		if columns[i].null(row) {
			continue
		}
		b = append(binary.AppendUvarint(b, uint64(len(fields[i].Name))), fields[i].Name...)
		entry = appendEntry(entry[:0], &columns[i], row)
		b = append(binary.AppendUvarint(b, uint64(len(entry))), entry...)
	}
	return b
}

// appendEntry encodes one entry, which may be null.
func appendEntry(b []byte, c *column, i int) []byte {
	if c.null(i) {
		return append(b, 0)
	}
	b = append(b, 1)
	switch t := c.typ.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		text := c.bytes(i)
		return append(binary.AppendUvarint(b, uint64(len(text))), text...)
	case *arrow.ListType, *arrow.MapType, *arrow.FixedSizeListType:
		start, end := c.list(i)
		return appendItems(binary.AppendUvarint(b, uint64(end-start)), &c.parts[0], start, end)
	case *arrow.StructType:
		for k := range c.parts {
			b = appendEntry(b, &c.parts[k], i)
		}
		return b
	case *arrow.BooleanType:
		if c.bools.get(i) {
			return append(b, 1)
		}
		return append(b, 0)
	case arrow.FixedWidthDataType:
		return append(b, c.fixed(i, i+1, t.Bytes())...)
	}
	return b
}

func appendItems(b []byte, c *column, start, end int) []byte {
	if width := plainWidth(c.typ); width > 0 && !c.anyNull(start, end) {
		return append(append(b, 1), c.fixed(start, end, width)...)
	}
	b = append(b, 0)
	for i := start; i < end; i++ {
		b = appendEntry(b, c, i)
	}
	return b
}

func (c *column) anyNull(start, end int) bool {
	if len(c.valid.b) == 0 {
		return c.absent && start < end
	}
	for i := start; i < end; i++ {
		if c.null(i) {
			return true
		}
	}
	return false
}

// plainWidth returns the bytes of an entry of a type that lies in memory as numbers, 0 for other types.
func plainWidth(t arrow.DataType) int {
	switch t := t.(type) {
	case *arrow.BooleanType, *arrow.FixedSizeListType, *arrow.StructType:
		return 0
	case arrow.FixedWidthDataType:
		return t.Bytes()
	}
	return 0
}

// findExtra returns the entry of a column in an encoded row, false if it is null.
func findExtra(b []byte, name string) ([]byte, bool, error) {
	for len(b) > 0 {
		found, rest, ok := cutCounted(b)
		entry, rest, too := cutCounted(rest)
		if !ok || !too {
			return nil, false, Errorf(Invalid, "extra columns of %d bytes are cut off", len(b))
		}
		if string(found) == name {
			return entry, true, nil
		}
		b = rest
	}
	return nil, false, nil
}

// cutCounted splits off bytes that follow a varint of their length.
func cutCounted(b []byte) (head, rest []byte, ok bool) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return nil, nil, false
	}
	return b[k : k+int(n)], b[k+int(n):], true
}

// builder builds an array from encoded entries.
type builder struct {
	typ     arrow.DataType
	n       int
	nulls   int
	valid   []byte  // bitmap
	data    []byte  // numbers, a bitmap of bools, or text
	offsets []int32 // [n+1] of text and lists
	parts   []*builder
}

func newBuilder(t arrow.DataType) *builder {
	w := &builder{typ: t}
	switch t := t.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		w.offsets = []int32{0}
	case *arrow.FixedSizeListType:
		w.parts = []*builder{newBuilder(t.Elem())}
	case arrow.ListLikeType: // lists and maps
		w.offsets, w.parts = []int32{0}, []*builder{newBuilder(t.Elem())}
	case *arrow.StructType:
		for _, f := range t.Fields() {
			w.parts = append(w.parts, newBuilder(f.Type))
		}
	}
	return w
}

// add decodes one entry, which is all of b.
func (w *builder) add(b []byte) error {
	b, err := w.decode(b)
	if err == nil && len(b) > 0 {
		err = fmt.Errorf("%d bytes are left over", len(b))
	}
	return err
}

// decode adds the first entry of b and returns the rest.
func (w *builder) decode(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, w.cutOff()
	}
	switch b[0] {
	case 0:
		w.addNull()
		return b[1:], nil
	case 1:
		w.mark(true)
		return w.decodeValue(b[1:])
	}
	return nil, fmt.Errorf("entry of a %s begins with %d", w.typ, b[0])
}

func (w *builder) decodeValue(b []byte) ([]byte, error) {
	switch t := w.typ.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		text, rest, ok := cutCounted(b)
		if !ok {
			return nil, w.cutOff()
		}
		w.data = append(w.data, text...)
		return rest, w.endEntry(len(w.data))
	case *arrow.ListType, *arrow.MapType, *arrow.FixedSizeListType:
		return w.decodeList(b)
	case *arrow.StructType:
		for _, p := range w.parts {
			var err error
			if b, err = p.decode(b); err != nil {
				return nil, err
			}
		}
		return b, nil
	case *arrow.BooleanType:
		if len(b) == 0 {
			return nil, w.cutOff()
		}
		w.addBool(b[0] == 1)
		return b[1:], nil
	case arrow.FixedWidthDataType:
		if len(b) < t.Bytes() {
			return nil, w.cutOff()
		}
		w.data = append(w.data, b[:t.Bytes()]...)
		return b[t.Bytes():], nil
	}
	return nil, fmt.Errorf("%s is no type of a column", w.typ)
}

func (w *builder) decodeList(b []byte) ([]byte, error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)) || len(b) == k {
		return nil, w.cutOff()
	}
	raw, b := b[k] == 1, b[k+1:]
	if t, ok := w.typ.(*arrow.FixedSizeListType); ok && int(n) != int(t.Len()) {
		return nil, fmt.Errorf("entry of a %s has %d items", w.typ, n)
	}
	items := w.parts[0]
	if raw {
		width := plainWidth(items.typ)
		if width == 0 || int(n) > len(b)/width {
			return nil, w.cutOff()
		}
		items.data = append(items.data, b[:int(n)*width]...)
		items.markAll(int(n))
		b = b[int(n)*width:]
	} else {
		for range n {
			var err error
			if b, err = items.decode(b); err != nil {
				return nil, err
			}
		}
	}
	if w.typ.ID() == arrow.MAP && items.nulls+items.parts[0].nulls > 0 {
		return nil, fmt.Errorf("entry of a %s has a key that is null", w.typ)
	}
	if w.offsets != nil {
		return b, w.endEntry(items.n)
	}
	return b, nil
}

func (w *builder) cutOff() error { return fmt.Errorf("entry of a %s is cut off", w.typ) }

// endEntry ends an entry of text or a list.
func (w *builder) endEntry(end int) error {
	if end > math.MaxInt32 {
		return fmt.Errorf("column has more than %d items: take fewer rows at a time", math.MaxInt32)
	}
	w.offsets = append(w.offsets, int32(end))
	return nil
}

// mark begins an entry, null or not.
func (w *builder) mark(valid bool) {
	if w.n%8 == 0 {
		w.valid = append(w.valid, 0)
	}
	if valid {
		w.valid[w.n/8] |= 1 << (w.n % 8)
	} else {
		w.nulls++
	}
	w.n++
}

// markAll begins n entries that are not null.
func (w *builder) markAll(n int) {
	for ; n > 0 && w.n%8 > 0; n-- {
		w.mark(true)
	}
	for ; n >= 8; n -= 8 {
		w.valid = append(w.valid, 0xff)
		w.n += 8
	}
	for range n {
		w.mark(true)
	}
}

// addNull adds a null, with a zero value where the type needs one.
func (w *builder) addNull() {
	w.mark(false)
	switch t := w.typ.(type) {
	case *arrow.StringType, *arrow.BinaryType, *arrow.ListType, *arrow.MapType:
		w.offsets = append(w.offsets, w.offsets[len(w.offsets)-1])
	case *arrow.FixedSizeListType:
		for range t.Len() {
			w.parts[0].addNull()
		}
	case *arrow.StructType:
		for _, p := range w.parts {
			p.addNull()
		}
	case *arrow.BooleanType:
		w.addBool(false)
	case arrow.FixedWidthDataType:
		w.data = append(w.data, make([]byte, t.Bytes())...)
	}
}

// addBool sets the value of the entry that was marked last.
func (w *builder) addBool(x bool) {
	if (w.n-1)%8 == 0 {
		w.data = append(w.data, 0)
	}
	if x {
		w.data[(w.n-1)/8] |= 1 << ((w.n - 1) % 8)
	}
}

func (w *builder) addText(text string) {
	w.mark(true)
	w.data = append(w.data, text...)
	w.offsets = append(w.offsets, int32(len(w.data)))
}

// array returns the entries. Their memory is the garbage collector's.
func (w *builder) array() arrow.ArrayData {
	buffers := []*memory.Buffer{nil}
	if w.nulls > 0 {
		buffers[0] = memory.NewBufferBytes(w.valid)
	}
	if w.offsets != nil {
		buffers = append(buffers, memory.NewBufferBytes(bytesOf(w.offsets)))
	}
	var children []arrow.ArrayData
	for _, p := range w.parts {
		children = append(children, p.array())
	}
	if len(w.parts) == 0 {
		buffers = append(buffers, memory.NewBufferBytes(w.data))
	}
	return array.NewData(w.typ, w.n, buffers, children, w.nulls, 0)
}

// column returns the entries as an opened column.
func (w *builder) column() column {
	c := column{typ: w.typ, n: w.n, values: w.data}
	if w.offsets != nil {
		c.starts, c.ends = w.offsets[:w.n], w.offsets[1:]
	}
	if t, ok := w.typ.(*arrow.FixedSizeListType); ok {
		c.setStrides(0, int(t.Len()))
	}
	if w.nulls > 0 {
		c.valid = bitmap{b: w.valid}
	}
	if w.typ.ID() == arrow.BOOL {
		c.bools = bitmap{b: w.data}
	}
	for _, p := range w.parts {
		c.parts = append(c.parts, p.column())
	}
	return c
}
