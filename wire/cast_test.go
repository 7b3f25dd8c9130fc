package wire

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// fullRows is four rows of every column, in the schema's types.
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
		"images":       {"list<binary>", `[["aGFsbG8="], [], null, ["d2VsdA==", "IQ=="]]`},
		"text":         {"utf8", `["a", "a longer text than twelve bytes", null, "größer als zwölf Bytes"]`},
		"meta":         {"map<utf8,utf8>", `[[{"key": "a", "value": "1"}], [], null, [{"key": "a", "value": "2"}, {"key": "b", "value": "3"}]]`},
	} {
		columns[name] = values(t, c[0], c[1])
	}
	return columns
}

func list(t arrow.DataType) arrow.DataType { return arrow.ListOf(t) }

// otherTypes are the types that a column may come in beside its own.
func otherTypes() map[string][]arrow.DataType {
	var ints, floats, lists, fractions, small []arrow.DataType
	for _, t := range []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64} {
		ints = append(ints, t, list(t), arrow.LargeListOf(t), arrow.ListViewOf(t), arrow.LargeListViewOf(t))
	}
	for _, t := range []arrow.DataType{arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64} {
		small = append(small, list(t), arrow.LargeListOf(t))
	}
	for _, t := range []arrow.DataType{arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64} {
		floats = append(floats, t)
		fractions = append(fractions, list(t), arrow.LargeListOf(t), arrow.ListViewOf(t))
	}
	for _, t := range ints {
		if t.ID() != arrow.INT8 && t.ID() != arrow.INT16 && t.ID() != arrow.INT32 && t.ID() != arrow.INT64 {
			lists = append(lists, t)
		}
	}
	utf8s := []arrow.DataType{arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}}
	turn := func(i, f arrow.DataType) arrow.DataType {
		return list(arrow.StructOf(arrow.Field{Name: "done", Type: arrow.FixedWidthTypes.Boolean}, arrow.Field{Name: "end", Type: i},
			arrow.Field{Name: "start", Type: i}, arrow.Field{Name: "reward", Type: f}))
	}
	pairs := list(arrow.StructOf(arrow.Field{Name: "key", Type: arrow.BinaryTypes.LargeString}, arrow.Field{Name: "value", Type: arrow.BinaryTypes.StringView}))
	return map[string][]arrow.DataType{
		"tokens": append(small, lists...), "mask": append(small, lists...), "versions": lists,
		"logprobs": fractions, "advantages": fractions, "values": append(fractions, lists...), "ref_logprobs": fractions,
		"temperature": floats, "reward": floats, "advantage": append(floats, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int8),
		"top_p":     {arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int32},
		"group":     {arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint16},
		"prompt_id": utf8s, "text": utf8s,
		"turns":  {turn(arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64), turn(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int64)},
		"images": {list(arrow.BinaryTypes.LargeBinary), list(arrow.BinaryTypes.BinaryView), arrow.LargeListOf(arrow.BinaryTypes.Binary)},
		"meta":   {pairs, arrow.MapOf(arrow.BinaryTypes.LargeString, arrow.BinaryTypes.String)},
	}
}

// asJSON is what an array holds, for another type to be made of.
func asJSON(t testing.TB, a arrow.Array) string {
	t.Helper()
	b, err := a.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\n", "")
}

func TestColumnsOfOtherTypesComeToTheSameRollouts(t *testing.T) {
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

func TestBoolsStandForOnesAndZeros(t *testing.T) {
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
	if err != nil || !got[0].Rollouts[0].Truncated || got[1].Rollouts[0].Truncated || got[2].Rollouts[0].Reward != 1 || got[3].Rollouts[0].Reward != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFixedSizeListsOfOneLengthAreLists(t *testing.T) {
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
	want := &rollout.Rollout{Tokens: []int32{3, 4}, Mask: []uint8{1, 1}, Logprobs: []float32{-2, -3}, Versions: []rollout.Version{2, 3},
		Values: []float32{1, 2}, Reward: 2, Temperature: 1, TopP: 1}
	if got := groups[1].Rollouts[0]; !reflect.DeepEqual(got, want) || groups[0].Rollouts[0].Values != nil {
		t.Errorf("got %+v", got)
	}
}

func TestDictsThatBecameStructsAreMaps(t *testing.T) {
	columns := fourRows(t)
	meta := arrow.StructOf(arrow.Field{Name: "task", Type: arrow.BinaryTypes.String, Nullable: true}, arrow.Field{Name: "level", Type: arrow.BinaryTypes.LargeString, Nullable: true})
	columns["meta"] = valuesOf(t, meta, `[{"task": "maths", "level": "3"}, {"task": "", "level": null}, null, {"task": null, "level": null}]`)
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

func TestOwnColumnsAreConvertedToTheirDeclaredTypes(t *testing.T) {
	fields := extraFields(t, Column{"x_score", "float32"}, Column{"x_ids", "list<int32>"}, Column{"x_tags", "map<utf8,int8>"}, Column{"x_pair", "struct<a:int32,b:utf8>"})
	columns := fourRows(t)
	columns["x_score"] = values(t, "float64", `[0.5, null, 2, 3]`)
	columns["x_ids"] = values(t, "list<int64>", `[[1, 2], null, [], [3]]`)
	columns["x_pair"] = values(t, "struct<b:utf8>", `[{"b": "x"}, null, {"b": null}, {"b": "y"}]`)
	groups, _, err := Groups(batch(t, columns), fields)
	if err != nil {
		t.Fatal(err)
	}
	columns["x_score"] = values(t, "float32", `[0.5, null, 2, 3]`)
	columns["x_ids"] = values(t, "list<int32>", `[[1, 2], null, [], [3]]`)
	columns["x_pair"] = values(t, "struct<a:int32,b:utf8>", `[{"b": "x"}, null, {"b": null}, {"b": "y"}]`)
	want, _, err := Groups(batch(t, columns), fields)
	if err != nil || !reflect.DeepEqual(groups, want) {
		t.Fatalf("%v: %s", err, difference(groups, want))
	}
	if groups[1].Rollouts[0].Extra != nil {
		t.Errorf("a row of nulls takes %d bytes", len(groups[1].Rollouts[0].Extra))
	}
	rec, err := Rows(groups, fields)
	if err != nil {
		t.Fatal(err)
	}
	if got := asJSON(t, rec.Column(rec.Schema().FieldIndices("x_pair")[0])); got != `[{"a":null,"b":"x"},null,{"a":null,"b":null},{"a":null,"b":"y"}]` {
		t.Errorf("the structs come back as %s", got)
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

func TestInfinityAndNaNAreLeftToValidation(t *testing.T) {
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
