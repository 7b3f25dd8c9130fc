package wire

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

// someColumns returns columns of every type that a table may declare.
func someColumns() []Column {
	return []Column{
		{"x_flag", "bool"}, {"x_small", "int8"}, {"x_short", "int16"}, {"x_int", "int32"}, {"x_long", "int64"},
		{"x_byte", "uint8"}, {"x_word", "uint16"}, {"x_dword", "uint32"}, {"x_big", "uint64"},
		{"x_half", "float16"}, {"x_float", "float32"}, {"x_double", "float64"},
		{"x_text", "utf8"}, {"x_bytes", "binary"}, {"x_day", "date32"}, {"x_time", "timestamp<us>"},
		{"x_list", "list<float32>"}, {"x_flags", "list<bool>"}, {"x_texts", "list<utf8>"},
		{"x_matrix", "list<list<int64>>"},
		{"x_vector", "fixed_size_list<float32, 3>"}, {"x_pair", "struct<a: int32, b: utf8, c: list<int8>>"},
		{"x_map", "map<utf8, int64>"},
		{"x_nested", "list<struct<k: utf8, v: fixed_size_list<int16, 2>>>"},
	}
}

func extraFields(t testing.TB, columns ...Column) []arrow.Field {
	t.Helper()
	fields, err := ExtraFields(columns)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// growRandom adds a random entry, sometimes null.
func growRandom(r *rand.Rand, g *builder) {
	if r.IntN(6) == 0 {
		g.addNull()
		return
	}
	switch t := g.typ.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		g.addText([]string{"", "a", "größer", "日本語 text"}[r.IntN(4)])
	case *arrow.ListType, *arrow.MapType:
		g.mark(true)
		for range r.IntN(5) {
			if t.ID() == arrow.MAP {
				g.parts[0].mark(true)
				g.parts[0].parts[0].addText(fmt.Sprint(r.Uint32()))
				growRandom(r, g.parts[0].parts[1])
				continue
			}
			growRandom(r, g.parts[0])
		}
		g.offsets = append(g.offsets, int32(g.parts[0].n))
	case *arrow.FixedSizeListType:
		g.mark(true)
		for range t.Len() {
			growRandom(r, g.parts[0])
		}
	case *arrow.StructType:
		g.mark(true)
		for _, p := range g.parts {
			growRandom(r, p)
		}
	case *arrow.BooleanType:
		g.mark(true)
		g.addBool(r.IntN(2) == 0)
	case arrow.FixedWidthDataType:
		g.mark(true)
		for range t.Bytes() {
			g.data = append(g.data, byte(r.Uint32()))
		}
	}
}

// withExtra gives rollouts random user-defined columns, encoded as insertions encode them.
func withExtra(r *rand.Rand, groups []rollout.Group, fields []arrow.Field) {
	for _, g := range groups {
		for _, x := range g.Rollouts {
			var columns []column
			for _, f := range fields {
				w := newBuilder(f.Type)
				growRandom(r, w)
				columns = append(columns, w.column())
			}
			x.Extra = appendExtra(nil, columns, fields, 0)
		}
	}
}

func TestUserColumnsAreConvertedToTheirDeclaredTypes(t *testing.T) {
	fields := extraFields(t, Column{"x_score", "float32"}, Column{"x_ids", "list<int32>"},
		Column{"x_tags", "map<utf8,int8>"}, Column{"x_pair", "struct<a:int32,b:utf8>"})
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

func TestTruncatedUserColumnsAreAnError(t *testing.T) {
	fields := extraFields(t, someColumns()...)
	schema := sampleSchema(t, nil, fields...)
	draws := randomDraws(rand.New(rand.NewPCG(5, 5)), 1, fields)
	whole := draws[0].Rollout.Extra
	failed := 0
	for n := range whole {
		draws[0].Rollout.Extra = whole[:n]
		rec, err := new(Gatherer).Batch(draws, schema)
		if err != nil {
			failed++
			continue
		}
		if _, err := Draws(rec, fields); err != nil {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	if failed < len(whole)/2 {
		t.Errorf("%d of %d cuts were found", failed, len(whole))
	}
}

func TestTypesSurviveParsingAndFormatting(t *testing.T) {
	for _, c := range someColumns() {
		dt, err := parseType(c.Type)
		if err != nil {
			t.Errorf("%s: %v", c.Type, err)
			continue
		}
		if got, want := plainType(dt), strings.ReplaceAll(c.Type, " ", ""); got != want {
			t.Errorf("%s is written as %s", want, got)
		}
	}
	for text, want := range map[string]string{
		"":                        "is no type",
		"int7":                    `"int7" is no type`,
		"list":                    "is no type",
		"list<>":                  "is no type",
		"list<int8":               "is no type",
		"list<int8,int8>":         "is no type",
		"map<utf8>":               "is no type",
		"struct<a>":               "want name:type",
		"struct<a:int8,a:int8>":   "want each name once",
		"fixed_size_list<int8,0>": "want a number of items from 1 to 65536",
		"fixed_size_list<fixed_size_list<int8,300>,300>":               "want at most 65536 items in all",
		strings.Repeat("list<", 9) + "int8" + strings.Repeat(">", 9):   "want at most 8 types in one another",
		strings.Repeat("list<", 9e3) + "int8" + strings.Repeat(">", 9): "want at most 8 types in one another",
	} {
		if _, err := parseType(text); CodeOf(err) != Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", clip(text), err, want)
		}
	}
}

func TestAllBadColumnsAreReportedAtOnce(t *testing.T) {
	_, err := ExtraFields([]Column{{"mine", "int8"}, {"x_a", "int7"}, {"x_a", "int8"}, {"x_", "int8"},
		{"x_good", "int8"}})
	for _, want := range []string{"columns[0].name: \"mine\": want x_", "columns[1].type: \"int7\"",
		"columns[2].name: \"x_a\": want each name once", "columns[3].name: \"x_\""} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "columns[4]") {
		t.Error(err)
	}
}

func FuzzParseType(f *testing.F) {
	for _, c := range someColumns() {
		f.Add(c.Type)
	}
	f.Fuzz(func(t *testing.T, text string) {
		dt, err := parseType(text)
		if err != nil {
			return
		}
		again, err := parseType(plainType(dt))
		if err != nil || plainType(again) != plainType(dt) {
			t.Fatalf("%q is written as %q, which is %v, %v", text, plainType(dt), again, err)
		}
	})
}

// FuzzExtra decodes arbitrary bytes as the user-defined columns of a rollout.
func FuzzExtra(f *testing.F) {
	fields := extraFields(f, someColumns()...)
	schema := InsertSchema(fields...)
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		groups := randomGroups(r, 1)
		withExtra(r, groups, fields)
		f.Add(groups[0].Rollouts[0].Extra)
	}
	f.Fuzz(func(t *testing.T, extra []byte) {
		groups := randomGroups(rand.New(rand.NewPCG(2, 2)), 1)
		groups[0].Rollouts[0].Extra = extra
		rec, err := new(Gatherer).Rows(groups, schema)
		if err != nil {
			return
		}
		if _, _, err := Groups(rec, fields); err != nil && len(extra) < 1<<20 {
			if CodeOf(err) != Invalid {
				t.Fatal(err)
			}
		}
		rec.Release()
	})
}
