package wire

import (
	"fmt"
	"strconv"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

// column is an Arrow array that has been looked at: its type is the wanted one, and every offset lies within what it points into,
// whatever the sender wrote. What is null is not to be asked for its value.
type column struct {
	typ     arrow.DataType
	n       int
	absent  bool   // every entry is null: no such column, or one of type null
	valid   bitmap // of the entries; of no bytes: none is null
	values  []byte
	bools   bitmap   // of type bool, instead of values
	starts  []int32  // [n] of lists, within the child; of text and binary, within values
	ends    []int32  // [n]
	parts   []column // the child of a list, the fields of a struct, key and value of a map
	shifted bool     // starts and ends are not offsets that follow one another
}

// bitmap is bitmap that begin that begins somewhere within a byte.
type bitmap struct {
	b  []byte
	at int
}

func (b bitmap) get(i int) bool { i += b.at; return b.b[i>>3]>>(i&7)&1 == 1 }

func (c *column) null(i int) bool {
	return c.absent || len(c.valid.b) > 0 && !c.valid.get(i)
}

// bytes returns an entry of text or binary.
func (c *column) bytes(i int) []byte { return c.values[c.starts[i]:c.ends[i]:c.ends[i]] }

// list returns where an entry of a list lies in its child; nothing where it is null.
func (c *column) list(i int) (start, end int) {
	if c.null(i) {
		return 0, 0
	}
	return int(c.starts[i]), int(c.ends[i])
}

// length is the number of items of an entry.
func (c *column) length(i int) int { start, end := c.list(i); return end - start }

// fixed returns the bytes of items [start, end), each of so many bytes.
func (c *column) fixed(start, end, width int) []byte { return c.values[start*width : end*width] }

// words returns all entries of a numeric column. They share its memory where that is aligned.
func words[T any](c *column) []T { return typed[T](c.values) }

// entry returns one entry of a numeric column, wherever it lies.
func entry[T any](c *column, i int) T {
	var x T
	size := int(unsafe.Sizeof(x))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&x)), size), c.values[i*size:(i+1)*size])
	return x
}

// typed returns memory as numbers: itself where it is aligned, and a copy where it is not.
func typed[T any](b []byte) []T {
	var x T
	n := len(b) / int(unsafe.Sizeof(x))
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
	var x T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(x)))
}

// fault is what is wrong with a column: with one entry of it, or with the whole (index wholeColumn).
type fault struct {
	index  int
	path   string // below the entry: [17], .start
	value  string
	remedy string
}

const wholeColumn = -1

// within is the fault one level up: that of a list's entry whose items begin and end as told.
func (f *fault) within(c *column) *fault {
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

// below is the fault of a field as that of its struct.
func (f *fault) below(field string) *fault {
	return &fault{f.index, "." + field + f.path, f.value, f.remedy}
}

// of is the fault as an error of a column with a name.
func (f *fault) of(name string) error {
	if f.index == wholeColumn {
		return Errorf(Invalid, "column %s%s is %s: %s", clip(name), f.path, f.value, f.remedy)
	}
	return &rollout.FieldError{Row: f.index, Field: name + f.path, Value: f.value, Remedy: f.remedy}
}

func mismatch(found, want arrow.DataType) *fault {
	return &fault{wholeColumn, "", "of type " + clip(found.String()), "give " + plainType(want)}
}

func broken(format string, args ...any) *fault {
	return &fault{wholeColumn, "", "broken: " + fmt.Sprintf(format, args...), "write it with an Arrow library"}
}

// plainType is the name of a type as ParseType reads it.
func plainType(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.FixedSizeListType:
		return fmt.Sprintf("fixed_size_list<%s,%d>", plainType(t.Elem()), t.Len())
	case *arrow.MapType:
		return fmt.Sprintf("map<%s,%s>", plainType(t.KeyType()), plainType(t.ItemType()))
	case *arrow.ListType:
		return "list<" + plainType(t.Elem()) + ">"
	case *arrow.StructType:
		text := "struct<"
		for i, f := range t.Fields() {
			if i > 0 {
				text += ","
			}
			text += f.Name + ":" + plainType(f.Type)
		}
		return text + ">"
	case *arrow.TimestampType:
		return "timestamp<" + t.Unit.String() + ">"
	}
	return t.String()
}
