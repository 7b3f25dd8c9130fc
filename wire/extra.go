package wire

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
)

// A rollout carries the columns of the user's own as bytes (rollout.Rollout.Extra): for each that is not null a varint of the length of
// its name, the name, a varint of the length of the entry, and the entry. An entry is 0 for null, else 1 and the value as its
// type says: numbers are as in memory, a bool is a byte, text and lists begin with a varint of their length, and after it the
// items of a list with 1 where they follow as numbers without nulls.

// appendExtra appends the entries of one row.
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

// findExtra returns the entry of a column, false if it is null.
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

// cutCounted splits what begins with a varint of its length off b.
func cutCounted(b []byte) (head, rest []byte, ok bool) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return nil, nil, false
	}
	return b[k : k+int(n)], b[k+int(n):], true
}

// appendEntry appends one entry, null or not.
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

// appendItems appends items of a list: numbers without nulls as they lie.
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

// anyNull tells whether one of the entries from start to end is null.
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

// plainWidth is the width of a type whose entries lie as numbers in memory, 0 for others.
func plainWidth(t arrow.DataType) int {
	switch t := t.(type) {
	case *arrow.BooleanType, *arrow.FixedSizeListType, *arrow.StructType:
		return 0
	case arrow.FixedWidthDataType:
		return t.Bytes()
	}
	return 0
}
