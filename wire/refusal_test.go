package wire

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

func TestWhatDoesNotFitIsRefusedWithRowAndRemedy(t *testing.T) {
	for _, c := range []struct{ name, typ, json, want string }{
		{"tokens", "list<int64>", `[[1, 2], [3, 4, 2147483648], [6, 7], [8, 9]]`, "row 1: tokens[2] is 2147483648: give a value that fits int32"},
		{"tokens", "list<uint32>", `[[1, 2], [3, 4, 5], [6, 4294967295], [8, 9]]`, "row 2: tokens[1] is 4294967295: give a value that fits int32"},
		{"tokens", "list<float64>", `[[1, 2], [3, 4.5, 5], [6, 7], [8, 9]]`, "row 1: tokens[1] is 4.5: give a value that fits int32"},
		{"tokens", "list<int32>", `[[1, 2], null, [6, 7], [8, 9]]`, "row 1: tokens is null: give a value"},
		{"tokens", "list<int32>", `[[1, 2], [3, 4, 5], [6, null], [8, 9]]`, "row 2: tokens[1] is null: give a value"},
		{"mask", "list<int64>", `[[0, 1], [0, 1, 1], [0, 256], [1, 1]]`, "row 2: mask[1] is 256: give a value that fits uint8"},
		{"mask", "list<int8>", `[[0, 1], [0, -1, 1], [0, 1], [1, 1]]`, "row 1: mask[1] is -1: give a value that fits uint8"},
		{"logprobs", "list<float64>", `[[0, -1], [0, -1e39, 0], [0, -2], [-1, -3]]`, "row 1: logprobs[1] is -1e+39: give a value that fits float32"},
		{"reward", "float64", `[1, 2, 3, 1e300]`, "row 3: reward is 1e+300: give a value that fits float32"},
		{"reward", "int64", `[1, 2, 3, 16777217]`, "row 3: reward is 16777217: give a value that fits float32"},
		{"reward", "float32", `[1, null, 3, 4]`, "row 1: reward is null: give a value"},
		{"group", "int64", `[1, 2, -3, 4]`, "row 2: group is -3: give a value that fits uint64"},
		{"group", "float64", `[1, 2, 0.5, 4]`, "row 2: group is 0.5: give a value that fits uint64"},
		{"group", "float64", `[1, 2, 18446744073709551616, 4]`, "row 2: group is 1.8446744073709552e+19: give a value that fits uint64"},
		{"versions", "list<int32>", `[null, [1, 1, 1], null, null]`, "row 1: version is given beside versions: give one of the two"},
		{"version", "int32", `[7, null, 9, 0]`, "row 1: versions is null: give the version of each token, -1 where mask is 0, or one for all as version"},
		{"version", "int64", `[7, 8, 9999999999, 0]`, "row 2: version is 9999999999: give a value that fits int32"},
		{"turns", "list<struct<start:int64,end:int64>>", `[null, [{"start": 0, "end": 1}, {"start": 1, "end": 5000000000}], null, null]`, "row 1: turns[1].end is 5000000000: give a value that fits int32"},
		{"turns", "list<struct<start:int64,end:int64>>", `[null, [{"start": null, "end": 1}], null, null]`, "row 1: turns[0].start is null: give a value"},
		{"truncated", "int64", `[0, 1, 2, 0]`, "row 2: truncated is 2: give true or false, or 1 or 0"},
		{"images", "list<binary>", `[null, null, ["IQ==", null], null]`, "row 2: images[1] is null: give a value"},
	} {
		columns := fourRows(t)
		columns[c.name] = values(t, c.typ, c.json)
		groups, order, err := Groups(batch(t, columns), nil)
		var field *rollout.FieldError
		if err == nil || err.Error() != c.want || !errors.As(err, &field) || !errors.Is(err, rollout.ErrInvalid) || groups != nil || order != nil {
			t.Errorf("%s as %s: got %v, want %s", c.name, c.typ, err, c.want)
		}
	}
}

func TestColumnsThatCannotBeAreRefusedByName(t *testing.T) {
	fields := extraFields(t, Column{"x_mine", "int8"})
	for _, c := range []struct{ name, typ, json, want string }{
		{"tokens", "list<utf8>", `[["a"], ["b"], ["c"], ["d"]]`, "column tokens is of type utf8: give int32"},
		{"tokens", "int32", `[1, 2, 3, 4]`, "column tokens is of type int32: give list<int32>"},
		{"reward", "utf8", `["1", "2", "3", "4"]`, "column reward is of type utf8: give float32"},
		{"text", "binary", `["aGFsbG8=", "aGFsbG8=", "aGFsbG8=", "aGFsbG8="]`, "column text is of type binary: give utf8"},
		{"turns", "list<struct<start:int32,end:int32,rewrad:int8>>", `[null, null, null, null]`, "column turns.rewrad is unknown: leave it out; did you mean reward?"},
		{"turns", "list<struct<start:int32>>", `[[{"start": 1}], null, null, null]`, "column turns.end is missing: give int32"},
		{"logprob", "list<float32>", `[null, null, null, null]`, "column logprob is unknown: leave it out, or name it x_… and declare it in the table's columns; did you mean logprobs?"},
		{"x_mime", "int8", `[1, 2, 3, 4]`, "column x_mime is not one of the table's: declare it in the table's columns, or leave it out; did you mean x_mine?"},
		{"probability", "float64", `[1, 2, 3, 4]`, "column probability is what sampling adds: leave it out"},
		{"x_mine", "int64", `[1, 2, 300, 4]`, "row 2: x_mine is 300: give a value that fits int8"},
	} {
		columns := fourRows(t)
		columns[c.name] = values(t, c.typ, c.json)
		_, _, err := Groups(batch(t, columns), fields)
		if err == nil || err.Error() != c.want || CodeOf(err) != Invalid {
			t.Errorf("%s as %s: got %v, want %s", c.name, c.typ, err, c.want)
		}
	}
	for _, name := range []string{"tokens", "mask", "logprobs", "version", "reward"} {
		columns := fourRows(t)
		delete(columns, name)
		if _, _, err := Groups(batch(t, columns), nil); err == nil || !strings.HasPrefix(err.Error(), "column "+name) || !strings.Contains(err.Error(), "missing: give ") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// madeOf is an array of buffers of numbers as they are, right or wrong.
func madeOf(t arrow.DataType, n int, child arrow.Array, buffers ...[]int32) arrow.Array {
	all := []*memory.Buffer{nil}
	for _, b := range buffers {
		all = append(all, memory.NewBufferBytes(bytesOf(b)))
	}
	return array.MakeFromData(array.NewData(t, n, all, []arrow.ArrayData{child.Data()}, 0, 0))
}

func TestArraysThatContradictThemselvesAreRefused(t *testing.T) {
	items, words := values(t, "int32", `[1, 2, 3, 4]`), values(t, "utf8", `["a", null, "c"]`)
	lists, views := list(arrow.PrimitiveTypes.Int32), arrow.ListViewOf(arrow.PrimitiveTypes.Int32)
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	for want, c := range map[string]struct {
		name  string
		array arrow.Array
	}{
		"column tokens is broken: offset 2 is 1, of 4":                                        {"tokens", madeOf(lists, 4, items, []int32{0, 2, 1, 3, 4})},
		"column tokens is broken: offset 4 is 5, of 4":                                        {"tokens", madeOf(lists, 4, items, []int32{0, 1, 2, 3, 5})},
		"column tokens is broken: offset 0 is -1, of 4":                                       {"tokens", madeOf(lists, 4, items, []int32{-1, 1, 2, 3, 4})},
		"column tokens is broken: 16 bytes of offsets for 4 entries":                          {"tokens", madeOf(lists, 4, items, []int32{0, 1, 2, 3})},
		"row 2: tokens is a view of items that others show too: give lists, not views":        {"tokens", madeOf(views, 4, items, []int32{0, 0, 1, 2}, []int32{2, 2, 1, 2})},
		"column tokens is broken: entry 3 is 2 items from 3 on, of 4":                         {"tokens", madeOf(views, 4, items, []int32{0, 0, 1, 3}, []int32{1, 0, 1, 2})},
		"column tokens is broken: too few offsets and sizes for 4 entries":                    {"tokens", madeOf(views, 4, items, []int32{0, 0, 1, 3}, []int32{1, 0, 1})},
		"row 3: text is word 3 of a dictionary of 3: give a word that is there and not null":  {"text", array.NewDictionaryArray(dictionary, values(t, "int32", `[0, 2, 0, 3]`), values(t, "utf8", `["a", "b", "c"]`))},
		"row 2: text is word 1 of a dictionary of 3: give a word that is there and not null":  {"text", array.NewDictionaryArray(dictionary, values(t, "int32", `[0, 2, 1, 0]`), words)},
		"row 1: text is word -1 of a dictionary of 3: give a word that is there and not null": {"text", array.NewDictionaryArray(dictionary, values(t, "int32", `[0, -1, 1, 0]`), words)},
		"column values has 3 entries, the record batch 4 rows":                                {"values", values(t, "list<float32>", `[null, null, null]`)},
	} {
		columns := fourRows(t)
		columns[c.name] = c.array
		rec := loose{batch(t, fourRows(t)), columns}
		if _, _, err := Groups(rec, nil); err == nil || !strings.HasPrefix(err.Error(), want) || CodeOf(err) != Invalid {
			t.Errorf("%s: got %v, want %s", c.name, err, want)
		}
	}
}

// loose is a record batch whose columns nobody has compared with its schema.
type loose struct {
	arrow.RecordBatch
	columns map[string]arrow.Array
}

func (l loose) names() []string { return slices.Sorted(maps.Keys(l.columns)) }

func (l loose) Column(i int) arrow.Array { return l.columns[l.names()[i]] }

func (l loose) Schema() *arrow.Schema {
	var fields []arrow.Field
	for _, name := range l.names() {
		fields = append(fields, arrow.Field{Name: name, Type: l.columns[name].DataType(), Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.AppendValues([]string{"a", "b\xff", "c", "d"}, nil)
	for _, name := range []string{"text", "prompt_id"} {
		columns := fourRows(t)
		columns[name] = b.NewArray()
		b.AppendValues([]string{"a", "b\xff", "c", "d"}, nil)
		if _, _, err := Groups(batch(t, columns), nil); err == nil || err.Error() != "row 1: "+name+" is not UTF-8: give valid text, or bytes in a column of type binary" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
