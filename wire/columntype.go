package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// ExtraFields returns the fields of a table's own columns, all nullable. It reports every column that is none: each name begins
// with x_ and stands once, each type is as [ParseType] reads it.
func ExtraFields(columns []Column) ([]arrow.Field, error) {
	var fields []arrow.Field
	var problems []string
	seen := map[string]bool{}
	for i, c := range columns {
		at := "columns[" + strconv.Itoa(i) + "]"
		switch {
		case !strings.HasPrefix(c.Name, extraPrefix) || !goodName(c.Name) || len(c.Name) == len(extraPrefix):
			problems = append(problems, fmt.Sprintf("%s.name: %q: want %s and then letters, digits, - _ and ., at most %d in all", at, clip(c.Name), extraPrefix, maxName))
		case seen[c.Name]:
			problems = append(problems, fmt.Sprintf("%s.name: %q: want each name once", at, c.Name))
		}
		seen[c.Name] = true
		t, err := ParseType(c.Type)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s.%s", at, err))
			continue
		}
		fields = append(fields, arrow.Field{Name: c.Name, Type: t, Nullable: true})
	}
	if len(problems) > 0 {
		return nil, Errorf(Invalid, "%s", strings.Join(problems, "; "))
	}
	return fields, nil
}

// scalarTypes are the types that a name alone says.
func scalarTypes() map[string]arrow.DataType {
	return map[string]arrow.DataType{
		"bool": arrow.FixedWidthTypes.Boolean,
		"int8": arrow.PrimitiveTypes.Int8, "int16": arrow.PrimitiveTypes.Int16, "int32": arrow.PrimitiveTypes.Int32, "int64": arrow.PrimitiveTypes.Int64,
		"uint8": arrow.PrimitiveTypes.Uint8, "uint16": arrow.PrimitiveTypes.Uint16, "uint32": arrow.PrimitiveTypes.Uint32, "uint64": arrow.PrimitiveTypes.Uint64,
		"float16": arrow.FixedWidthTypes.Float16, "float32": arrow.PrimitiveTypes.Float32, "float64": arrow.PrimitiveTypes.Float64,
		"utf8": arrow.BinaryTypes.String, "string": arrow.BinaryTypes.String, "binary": arrow.BinaryTypes.Binary,
		"date32":       arrow.FixedWidthTypes.Date32,
		"timestamp<s>": &arrow.TimestampType{Unit: arrow.Second}, "timestamp<ms>": &arrow.TimestampType{Unit: arrow.Millisecond},
		"timestamp<us>": &arrow.TimestampType{Unit: arrow.Microsecond}, "timestamp<ns>": &arrow.TimestampType{Unit: arrow.Nanosecond},
	}
}

// maxTypeDepth is how deep lists, structs and maps may stand in one another.
const maxTypeDepth = 8

// ParseType reads the type of a column: bool, int8 to int64, uint8 to uint64, float16, float32, float64, utf8, binary, date32,
// timestamp<us> (or s, ms, ns; without a time zone), list<T>, fixed_size_list<T, 768>, struct<name: T, …> and map<K, V>. Spaces do
// not matter.
func ParseType(text string) (arrow.DataType, error) {
	t, err := parseType(strings.ReplaceAll(text, " ", ""), maxTypeDepth)
	if err != nil {
		return nil, Errorf(Invalid, "type: %q: %s", clip(text), err)
	}
	return t, nil
}

func parseType(text string, depth int) (arrow.DataType, error) {
	if t, ok := scalarTypes()[text]; ok {
		return t, nil
	}
	name, inner, ok := strings.Cut(text, "<")
	inner, closed := strings.CutSuffix(inner, ">")
	if !ok || !closed {
		return nil, fmt.Errorf("%q is no type: want one such as float32, utf8, list<int64>, struct<a:int32,b:utf8>", clip(text))
	}
	if depth == 0 {
		return nil, fmt.Errorf("want at most %d types in one another", maxTypeDepth)
	}
	parts := splitTypes(inner)
	switch {
	case name == "list" && len(parts) == 1:
		item, err := parseType(parts[0], depth-1)
		if err != nil {
			return nil, err
		}
		return arrow.ListOf(item), nil
	case name == "fixed_size_list" && len(parts) == 2:
		return fixedSizeList(parts[0], parts[1], depth)
	case name == "map" && len(parts) == 2:
		key, err := parseType(parts[0], depth-1)
		if err != nil {
			return nil, err
		}
		value, err := parseType(parts[1], depth-1)
		if err != nil {
			return nil, err
		}
		return arrow.MapOf(key, value), nil
	case name == "struct" && len(parts) > 0:
		return structOf(parts, depth)
	}
	return nil, fmt.Errorf("%q is no type: want list<T>, fixed_size_list<T,n>, struct<name:T,…>, map<K,V> or a scalar type", clip(text))
}

func fixedSizeList(item, size string, depth int) (arrow.DataType, error) {
	t, err := parseType(item, depth-1)
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

// maxFixedSize is how many values one entry of lists of fixed size may have: nulls take their room too.
const maxFixedSize = 1 << 16

// fixedSize is how many values an entry of a type takes room for, whatever it holds.
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

func structOf(parts []string, depth int) (arrow.DataType, error) {
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
		t, err := parseType(of, depth-1)
		if err != nil {
			return nil, err
		}
		fields[i] = arrow.Field{Name: name, Type: t, Nullable: true}
	}
	return arrow.StructOf(fields...), nil
}

// splitTypes splits at the commas that stand within no brackets.
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
