package wire

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// fullRows returns four rows of every column in the schema's types.
func fullRows(t testing.TB) map[string]arrow.Array {
	columns := fourRows(t)
	delete(columns, "version")
	for name, c := range map[string][2]string{
		"versions":     {"list<int32>", `[[-1, 7], [-1, 8, 8], [-1, 9], [0, 1]]`},
		"prompt_id":    {"utf8", `["first", "second", "first", "größer"]`},
		"group":        {"uint64", `[3, 1, 3, 2]`},
		"temperature":  {"float32", `[1, 0.5, 2, 1]`},
		"top_p":        {"float32", `[1, 1, 1, 1]`},
		"truncated":    {"bool", `[true, false, false, true]`},
		"turns":        {"list<struct<start:int32,end:int32,reward:float32,done:bool>>", `[null, [{"start": 1, "end": 2, "reward": 1, "done": false}, {"start": 2, "end": 3, "reward": 0, "done": true}], [], null]`},
		"advantage":    {"float32", `[1, null, 0, -1]`},
		"advantages":   {"list<float32>", `[[0, 1], null, [0, 2], null]`},
		"values":       {"list<float32>", `[null, [1, 2, 3], null, [4, 5]]`},
		"ref_logprobs": {"list<float32>", `[[0, -1], [0, -1, -2], [0, -3], [-4, -5]]`},
		"sampling_mask": {"list<list<int32>>",
			`[[[], [2]], null, [[], [5, 7, 9]], [[1, 8], []]]`},
		"routed_experts": {"list<uint16>", `[[0, 1, 2, 3], null, [7, 65535], null]`},
		"images":         {"list<binary>", `[["aGFsbG8="], [], null, ["d2VsdA==", "IQ=="]]`},
		"text":           {"utf8", `["a", "a longer text than twelve bytes", null, "größer als zwölf Bytes"]`},
		"meta": {"map<utf8,utf8>",
			`[[{"key": "a", "value": "1"}], [], null, [{"key": "a", "value": "2"}, {"key": "b", "value": "3"}]]`},
	} {
		columns[name] = values(t, c[0], c[1])
	}
	return columns
}

func list(t arrow.DataType) arrow.DataType { return arrow.ListOf(t) }

// otherTypes returns types that each column accepts beside its own.
func otherTypes() map[string][]arrow.DataType {
	var ints, floats, lists, fractions, small []arrow.DataType
	for _, t := range []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16,
		arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64} {
		ints = append(ints, t, list(t), arrow.LargeListOf(t), arrow.ListViewOf(t), arrow.LargeListViewOf(t))
	}
	for _, t := range []arrow.DataType{arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16,
		arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64} {
		small = append(small, list(t), arrow.LargeListOf(t))
	}
	for _, t := range []arrow.DataType{arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32,
		arrow.PrimitiveTypes.Float64} {
		floats = append(floats, t)
		fractions = append(fractions, list(t), arrow.LargeListOf(t), arrow.ListViewOf(t))
	}
	for _, t := range ints {
		if t.ID() != arrow.INT8 && t.ID() != arrow.INT16 && t.ID() != arrow.INT32 && t.ID() != arrow.INT64 {
			lists = append(lists, t)
		}
	}
	utf8s := []arrow.DataType{arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}}
	turn := func(i, f arrow.DataType) arrow.DataType {
		return list(arrow.StructOf(arrow.Field{Name: "done", Type: arrow.FixedWidthTypes.Boolean},
			arrow.Field{Name: "end", Type: i},
			arrow.Field{Name: "start", Type: i}, arrow.Field{Name: "reward", Type: f}))
	}
	pairs := list(arrow.StructOf(arrow.Field{Name: "key", Type: arrow.BinaryTypes.LargeString},
		arrow.Field{Name: "value", Type: arrow.BinaryTypes.StringView}))
	return map[string][]arrow.DataType{
		"tokens": append(small, lists...), "mask": append(small, lists...), "versions": lists,
		"logprobs": fractions, "advantages": fractions, "values": append(fractions, lists...),
		"ref_logprobs": fractions,
		"sampling_mask": {list(list(arrow.PrimitiveTypes.Int64)), list(arrow.LargeListOf(arrow.PrimitiveTypes.Uint8)),
			list(arrow.ListViewOf(arrow.PrimitiveTypes.Int32)), arrow.ListViewOf(list(arrow.PrimitiveTypes.Uint16)),
			arrow.LargeListOf(list(arrow.PrimitiveTypes.Float64))},
		"routed_experts": append(small[2:], list(arrow.PrimitiveTypes.Int32),
			arrow.LargeListViewOf(arrow.PrimitiveTypes.Int64)),
		"temperature": floats, "reward": floats, "advantage": append(floats, arrow.PrimitiveTypes.Int64,
			arrow.PrimitiveTypes.Int8),
		"top_p": {arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int32},
		"group": {arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Int8,
			arrow.PrimitiveTypes.Uint16},
		"prompt_id": utf8s, "text": utf8s,
		"turns": {turn(arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64),
			turn(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int64)},
		"images": {list(arrow.BinaryTypes.LargeBinary), list(arrow.BinaryTypes.BinaryView),
			arrow.LargeListOf(arrow.BinaryTypes.Binary)},
		"meta": {pairs, arrow.MapOf(arrow.BinaryTypes.LargeString, arrow.BinaryTypes.String)},
	}
}

func TestOtherColumnTypesDecodeToTheSameRollouts(t *testing.T) {
	want, _, err := Groups(batch(t, fullRows(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, types := range otherTypes() {
		for _, dt := range types {
			columns := fullRows(t)
			columns[name] = valuesOf(t, dt, asJSON(t, columns[name]))
			got, _, err := Groups(batch(t, columns), nil)
			if err != nil {
				t.Errorf("%s as %s: %v", name, dt, err)
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s as %s: %s", name, dt, difference(got, want))
			}
			// The same among other rows.
			if dt.ID() == arrow.LIST_VIEW || dt.ID() == arrow.LARGE_LIST_VIEW {
				continue
			}
			two := []arrow.Array{columns[name], columns[name]}
			if whole, err := array.Concatenate(two, memory.DefaultAllocator); err == nil {
				columns[name] = array.NewSlice(whole, 4, 8)
				if got, _, err := Groups(batch(t, columns), nil); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s as a slice of %s: %v", name, dt, err)
				}
			}
		}
	}
}

func TestBoolsConvertToNumbersAndBack(t *testing.T) {
	columns := fourRows(t)
	want, _, _ := Groups(batch(t, columns), nil)
	columns["mask"] = values(t, "list<bool>", `[[false, true], [false, true, true], [false, true], [true, true]]`)
	got, _, err := Groups(batch(t, columns), nil)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a mask of bools: %v", err)
	}
	columns["truncated"] = values(t, "int64", `[1, 0, 0, 1]`)
	columns["reward"] = values(t, "bool", `[true, false, true, false]`)
	got, _, err = Groups(batch(t, columns), nil)
	if err != nil || !got[0].Rollouts[0].Truncated || got[1].Rollouts[0].Truncated || got[2].Rollouts[0].Reward != 1 ||
		got[3].Rollouts[0].Reward != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFixedSizeListsDecodeAsLists(t *testing.T) {
	two := func(t arrow.DataType) arrow.DataType { return arrow.FixedSizeListOf(2, t) }
	columns := map[string]arrow.Array{
		"tokens":   valuesOf(t, two(arrow.PrimitiveTypes.Int64), `[[1, 2], [3, 4]]`),
		"mask":     valuesOf(t, two(arrow.PrimitiveTypes.Uint8), `[[0, 1], [1, 1]]`),
		"logprobs": valuesOf(t, two(arrow.PrimitiveTypes.Float64), `[[0, -1], [-2, -3]]`),
		"versions": valuesOf(t, two(arrow.PrimitiveTypes.Int32), `[[-1, 1], [2, 3]]`),
		"values":   valuesOf(t, two(arrow.PrimitiveTypes.Float32), `[null, [1, 2]]`),
		"reward":   values(t, "float64", `[1, 2]`),
	}
	groups, _, err := Groups(batch(t, columns), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &rollout.Rollout{Tokens: []int32{3, 4}, Mask: []uint8{1, 1}, Logprobs: []float32{-2, -3},
		Versions: []rollout.Version{2, 3},
		Values:   []float32{1, 2}, Reward: 2, Temperature: 1, TopP: 1}
	if got := groups[1].Rollouts[0]; !reflect.DeepEqual(got, want) || groups[0].Rollouts[0].Values != nil {
		t.Errorf("got %+v", got)
	}
}

func TestStructsDecodeAsMaps(t *testing.T) {
	columns := fourRows(t)
	meta := arrow.StructOf(arrow.Field{Name: "task", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "level", Type: arrow.BinaryTypes.LargeString, Nullable: true})
	columns["meta"] = valuesOf(t, meta,
		`[{"task": "maths", "level": "3"}, {"task": "", "level": null}, null, {"task": null, "level": null}]`)
	groups, _, err := Groups(batch(t, columns), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]string{{"task": "maths", "level": "3"}, {"task": ""}, nil, nil} {
		if got := groups[i].Rollouts[0].Meta; !reflect.DeepEqual(got, want) {
			t.Errorf("row %d has %v, want %v", i, got, want)
		}
	}
}

func TestDoublesAreRoundedToTheNearestFloat(t *testing.T) {
	columns := fourRows(t)
	columns["reward"] = values(t, "float64", `[0.1, -0.3, 3.4028234663852886e38, 1e-46]`)
	groups, _, err := Groups(batch(t, columns), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{0.1, -0.3, math.MaxFloat32, 0} {
		if got := groups[i].Rollouts[0].Reward; got != want {
			t.Errorf("row %d: %v, want %v", i, got, want)
		}
	}
}

func TestInfinityAndNaNDecodeAndFailValidation(t *testing.T) {
	columns := fourRows(t)
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	b.AppendValues([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0}, nil)
	columns["reward"] = b.NewArray()
	groups, _, err := Groups(batch(t, columns), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range groups[:3] {
		if err := g.Validate(rollout.Limits{}); err == nil || !strings.Contains(err.Error(), "reward") {
			t.Errorf("row %d: %v", i, err)
		}
	}
}

func TestValuesThatDoNotFitAreRefusedWithRowAndRemedy(t *testing.T) {
	for _, c := range []struct{ name, typ, json, want string }{
		{"tokens", "list<int64>", `[[1, 2], [3, 4, 2147483648], [6, 7], [8, 9]]`,
			"row 1: tokens[2] is 2147483648: give a value that fits int32"},
		{"tokens", "list<uint32>", `[[1, 2], [3, 4, 5], [6, 4294967295], [8, 9]]`,
			"row 2: tokens[1] is 4294967295: give a value that fits int32"},
		{"tokens", "list<float64>", `[[1, 2], [3, 4.5, 5], [6, 7], [8, 9]]`,
			"row 1: tokens[1] is 4.5: give a value that fits int32"},
		{"tokens", "list<int32>", `[[1, 2], null, [6, 7], [8, 9]]`, "row 1: tokens is null: give a value"},
		{"tokens", "list<int32>", `[[1, 2], [3, 4, 5], [6, null], [8, 9]]`, "row 2: tokens[1] is null: give a value"},
		{"mask", "list<int64>", `[[0, 1], [0, 1, 1], [0, 256], [1, 1]]`,
			"row 2: mask[1] is 256: give a value that fits uint8"},
		{"mask", "list<int8>", `[[0, 1], [0, -1, 1], [0, 1], [1, 1]]`,
			"row 1: mask[1] is -1: give a value that fits uint8"},
		{"logprobs", "list<float64>", `[[0, -1], [0, -1e39, 0], [0, -2], [-1, -3]]`,
			"row 1: logprobs[1] is -1e+39: give a value that fits float32"},
		{"reward", "float64", `[1, 2, 3, 1e300]`, "row 3: reward is 1e+300: give a value that fits float32"},
		{"reward", "int64", `[1, 2, 3, 16777217]`, "row 3: reward is 16777217: give a value that fits float32"},
		{"reward", "float32", `[1, null, 3, 4]`, "row 1: reward is null: give a value"},
		{"group", "int64", `[1, 2, -3, 4]`, "row 2: group is -3: give a value that fits uint64"},
		{"group", "float64", `[1, 2, 0.5, 4]`, "row 2: group is 0.5: give a value that fits uint64"},
		{"group", "float64", `[1, 2, 18446744073709551616, 4]`, "row 2: group is 1.8446744073709552e+19: give a " +
			"value that fits uint64"},
		{"versions", "list<int32>", `[null, [1, 1, 1], null, null]`, "row 1: version is given beside versions: give " +
			"one of the two"},
		{"version", "int32", `[7, null, 9, 0]`, "row 1: versions is null: give the version of each token, -1 where " +
			"mask is 0, or one for all as version"},
		{"version", "int64", `[7, 8, 9999999999, 0]`, "row 2: version is 9999999999: give a value that fits int32"},
		{"turns", "list<struct<start:int64,end:int64>>",
			`[null, [{"start": 0, "end": 1}, {"start": 1, "end": 5000000000}], null, null]`, "row 1: turns[1].end is " +
				"5000000000: give a value that fits int32"},
		{"turns", "list<struct<start:int64,end:int64>>", `[null, [{"start": null, "end": 1}], null, null]`,
			"row 1: turns[0].start is null: give a value"},
		{"truncated", "int64", `[0, 1, 2, 0]`, "row 2: truncated is 2: give true or false, or 1 or 0"},
		{"images", "list<binary>", `[null, null, ["IQ==", null], null]`, "row 2: images[1] is null: give a value"},
		{"sampling_mask", "list<list<int64>>", `[null, null, [[], [3, 5000000000]], null]`,
			"row 2: sampling_mask[1][1] is 5000000000: give a value that fits int32"},
		{"sampling_mask", "list<list<int32>>", `[null, [[], [3, null], []], null, null]`,
			"row 1: sampling_mask[1][1] is null: give a value"},
		{"sampling_mask", "list<list<int32>>", `[null, [[], [3]], null, null]`,
			"row 1: length of sampling_mask is 2: give one entry per token, 3"},
		{"sampling_mask", "list<fixed_size_list<int32,1>>", `[[[1]], null, null, null]`,
			"row 0: length of sampling_mask is 1: give one entry per token, 2"},
		{"routed_experts", "list<int32>", `[null, null, null, [0, 70000]]`,
			"row 3: routed_experts[1] is 70000: give a value that fits uint16"},
	} {
		columns := fourRows(t)
		columns[c.name] = values(t, c.typ, c.json)
		groups, order, err := Groups(batch(t, columns), nil)
		var field *rollout.FieldError
		if err == nil || err.Error() != c.want || !errors.As(err, &field) || !errors.Is(err, rollout.ErrInvalid) ||
			groups != nil || order != nil {
			t.Errorf("%s as %s: got %v, want %s", c.name, c.typ, err, c.want)
		}
	}
}

func TestBadColumnsAreRefusedByName(t *testing.T) {
	fields := extraFields(t, Column{"x_mine", "int8"})
	for _, c := range []struct{ name, typ, json, want string }{
		{"tokens", "list<utf8>", `[["a"], ["b"], ["c"], ["d"]]`, "column tokens is of type utf8: give int32"},
		{"tokens", "int32", `[1, 2, 3, 4]`, "column tokens is of type int32: give list<int32>"},
		{"reward", "utf8", `["1", "2", "3", "4"]`, "column reward is of type utf8: give float32"},
		{"text", "binary", `["aGFsbG8=", "aGFsbG8=", "aGFsbG8=", "aGFsbG8="]`,
			"column text is of type binary: give utf8"},
		{"turns", "list<struct<start:int32,end:int32,rewrad:int8>>", `[null, null, null, null]`,
			"column turns.rewrad is unknown: leave it out; did you mean reward?"},
		{"turns", "list<struct<start:int32>>", `[[{"start": 1}], null, null, null]`,
			"column turns.end is missing: give int32"},
		{"logprob", "list<float32>", `[null, null, null, null]`, "column logprob is unknown: leave it out, or name " +
			"it x_… and declare it in the table's columns; did you mean logprobs?"},
		{"x_mime", "int8", `[1, 2, 3, 4]`, "column x_mime is not one of the table's: declare it in the table's " +
			"columns, or leave it out; did you mean x_mine?"},
		{"probability", "float64", `[1, 2, 3, 4]`, "column probability is output only, added by sampling: leave it out"},
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
		if _, _, err := Groups(batch(t, columns), nil); err == nil || !strings.HasPrefix(err.Error(), "column "+name) ||
			!strings.Contains(err.Error(), "missing: give ") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// madeOf returns an array of unchecked buffers.
func madeOf(t arrow.DataType, n int, child arrow.Array, buffers ...[]int32) arrow.Array {
	all := []*memory.Buffer{nil}
	for _, b := range buffers {
		all = append(all, memory.NewBufferBytes(bytesOf(b)))
	}
	return array.MakeFromData(array.NewData(t, n, all, []arrow.ArrayData{child.Data()}, 0, 0))
}

func TestInconsistentArraysAreRefused(t *testing.T) {
	items, words := values(t, "int32", `[1, 2, 3, 4]`), values(t, "utf8", `["a", null, "c"]`)
	lists, views := list(arrow.PrimitiveTypes.Int32), arrow.ListViewOf(arrow.PrimitiveTypes.Int32)
	nested := func(outer arrow.DataType, o []int32, inner ...[]int32) arrow.Array {
		return madeOf(outer, 4, madeOf(outer.(arrow.ListLikeType).Elem(), 3, items, inner...), o)
	}
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	for want, c := range map[string]struct {
		name  string
		array arrow.Array
	}{
		"column tokens is broken: offset 2 is 1, of 4": {"tokens",
			madeOf(lists, 4, items, []int32{0, 2, 1, 3, 4})},
		"column tokens is broken: offset 4 is 5, of 4": {"tokens",
			madeOf(lists, 4, items, []int32{0, 1, 2, 3, 5})},
		"column tokens is broken: offset 0 is -1, of 4": {"tokens",
			madeOf(lists, 4, items, []int32{-1, 1, 2, 3, 4})},
		"column tokens is broken: 16 bytes of offsets for 4 entries": {"tokens",
			madeOf(lists, 4, items, []int32{0, 1, 2, 3})},
		"row 0: tokens is a view of items that others show too: give lists, not views": {"tokens",
			madeOf(views, 4, items, []int32{2, 1, 0, 0}, []int32{2, 2, 0, 1})},
		// As many items as there are, but of one image many times.
		"row 1: images is a view of items that others show too: give lists, not views": {"images",
			madeOf(arrow.ListViewOf(arrow.BinaryTypes.Binary), 4, values(t, "binary", `["aGFsbG8=", "", "", ""]`),
				[]int32{0, 0, 0, 0}, []int32{1, 1, 1, 1})},
		"column sampling_mask is broken: offset 3 is 4, of 3": {"sampling_mask",
			nested(list(lists), []int32{0, 2, 2, 4, 4}, []int32{0, 1, 2, 3})},
		"column sampling_mask is broken: offset 2 is 5, of 4": {"sampling_mask",
			nested(list(lists), []int32{0, 2, 2, 2, 3}, []int32{0, 1, 5, 5})},
		"column sampling_mask is broken: offset 2 is 0, of 4": {"sampling_mask",
			nested(list(lists), []int32{0, 2, 2, 2, 3}, []int32{0, 1, 0, 4})},
		"row 0: sampling_mask[1] is a view of items that others show too: give lists, not views": {"sampling_mask",
			nested(list(views), []int32{0, 2, 2, 2, 3}, []int32{0, 1, 2}, []int32{2, 2, 1})},
		"column tokens is broken: entry 3 is 2 items from 3 on, of 4": {"tokens",
			madeOf(views, 4, items, []int32{0, 0, 1, 3}, []int32{1, 0, 1, 2})},
		"column tokens is broken: too few offsets and sizes for 4 entries": {"tokens",
			madeOf(views, 4, items, []int32{0, 0, 1, 3}, []int32{1, 0, 1})},
		"row 3: text is word 3 of a dictionary of 3: give a word that is there and not null": {"text",
			array.NewDictionaryArray(dictionary, values(t, "int32", `[0, 2, 0, 3]`),
				values(t, "utf8", `["a", "b", "c"]`))},
		"row 2: text is word 1 of a dictionary of 3: give a word that is there and not null": {"text",
			array.NewDictionaryArray(dictionary, values(t, "int32", `[0, 2, 1, 0]`), words)},
		"row 1: text is word -1 of a dictionary of 3: give a word that is there and not null": {"text",
			array.NewDictionaryArray(dictionary, values(t, "int32", `[0, -1, 1, 0]`), words)},
		"column values has 3 entries, the record batch 4 rows": {"values",
			values(t, "list<float32>", `[null, null, null]`)},
	} {
		columns := fourRows(t)
		columns[c.name] = c.array
		rec := loose{batch(t, fourRows(t)), columns}
		if _, _, err := Groups(rec, nil); err == nil || !strings.HasPrefix(err.Error(), want) ||
			CodeOf(err) != Invalid {
			t.Errorf("%s: got %v, want %s", c.name, err, want)
		}
	}
}

// loose is a record batch whose columns need not match its schema.
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

func TestInvalidUTF8IsRefused(t *testing.T) {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.AppendValues([]string{"a", "b\xff", "c", "d"}, nil)
	for _, name := range []string{"text", "prompt_id"} {
		columns := fourRows(t)
		columns[name] = b.NewArray()
		b.AppendValues([]string{"a", "b\xff", "c", "d"}, nil)
		if _, _, err := Groups(batch(t, columns), nil); err == nil ||
			err.Error() != "row 1: "+name+" is not UTF-8: give valid text, or bytes in a column of type binary" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hostile changes an array's buffers, lengths and offsets, as an untrusted sender could.
func hostile(d arrow.ArrayData, next func() int) arrow.ArrayData {
	buffers := make([]*memory.Buffer, len(d.Buffers()))
	for i, b := range d.Buffers() {
		if b == nil {
			continue
		}
		changed := append([]byte(nil), b.Bytes()...)
		switch next() % 8 {
		case 0:
			changed = changed[:next()%(len(changed)+1)]
		case 1:
			changed = nil
		case 2, 3, 4:
			if len(changed) > 0 {
				changed[next()%len(changed)] ^= byte(next())
			}
		}
		buffers[i] = memory.NewBufferBytes(changed)
	}
	length, nulls, offset := d.Len(), d.NullN(), d.Offset()
	switch next() % 16 {
	case 0:
		length = next() * next()
	case 1:
		nulls = array.UnknownNullCount
	case 2:
		offset = next()
	}
	var children []arrow.ArrayData
	for _, c := range d.Children() {
		children = append(children, hostile(c, next))
	}
	if words, _ := d.Dictionary().(*array.Data); words != nil {
		dictionary := hostile(words, next).(*array.Data)
		if next()%16 == 0 {
			dictionary = nil
		}
		return array.NewDataWithDictionary(d.DataType(), length, buffers, nulls, offset, dictionary)
	}
	return array.NewData(d.DataType(), length, buffers, children, nulls, offset)
}

// FuzzOpen opens damaged arrays of every type, as that type and as others. If one opens, all of its entries must be
// readable.
func FuzzOpen(f *testing.F) {
	var arrays []arrow.Array
	rows, others := fullRows(f), otherTypes()
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		arrays = append(arrays, rows[name])
		for _, dt := range others[name] {
			arrays = append(arrays, valuesOf(f, dt, asJSON(f, rows[name])))
		}
	}
	var wanted []arrow.DataType
	for _, field := range append(InsertSchema().Fields(), extraFields(f, someColumns()...)...) {
		wanted = append(wanted, field.Type)
	}
	for i := range uint64(500) {
		r := rand.New(rand.NewPCG(i, 7))
		b := make([]byte, 60)
		for k := range b {
			b[k] = byte(r.Uint32())
		}
		f.Add(uint16(i), uint16(i%uint64(len(wanted))), b)
	}
	f.Fuzz(func(t *testing.T, which, want uint16, changes []byte) {
		next := func() int {
			if len(changes) == 0 {
				return 7
			}
			x := int(changes[0])
			changes = changes[1:]
			return x
		}
		d := hostile(arrays[int(which)%len(arrays)].Data(), next)
		if d.Len() > maxRows {
			return
		}
		c, fault := openColumn(d, wanted[int(want)%len(wanted)], []span{{0, d.Len()}}, next()%2 == 0)
		if fault != nil {
			_ = fault.err("column").Error()
			return
		}
		g := newBuilder(c.typ)
		for i := range c.n {
			if err := g.add(appendEntry(nil, &c, i)); err != nil {
				t.Fatalf("entry %d of %s was opened and is not read back: %v", i, c.typ, err)
			}
		}
		array.MakeFromData(g.array()).Release()
	})
}
