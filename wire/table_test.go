package wire

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func TestVersionsMayBeInfinite(t *testing.T) {
	for text, want := range map[string]float64{`"inf"`: math.Inf(1), `12`: 12, `0.5`: 0.5} {
		var v Versions
		if err := json.Unmarshal([]byte(text), &v); err != nil || float64(v) != want {
			t.Errorf("%s is %v, %v", text, v, err)
		}
		if b, err := json.Marshal(v); err != nil || string(b) != text {
			t.Errorf("%v is written as %s, %v", v, b, err)
		}
	}
	for text, want := range map[string]float64{"inf": math.Inf(1), ".inf": math.Inf(1), "7": 7} {
		var p Priority
		if err := yaml.Unmarshal([]byte("age_decay: "+text), &p); err != nil || float64(p.AgeDecay) != want {
			t.Errorf("%s is %v, %v", text, p.AgeDecay, err)
		}
	}
	for _, text := range []string{`"much"`, `NaN`, `-inf`, `1e999`, ``} {
		var v Versions
		if err := v.read(text); err == nil || !strings.Contains(err.Error(), "give a number, or inf") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestATableSurvivesJSON(t *testing.T) {
	want := Table{Name: "lab", Capacity: 10, Sampler: "prioritized", Priority: &Priority{Exponent: 0.6, AgeDecay: Versions(math.Inf(1))},
		Limiter: &Limiter{SamplesPerInsert: 2, ErrorBuffer: 100}, Gate: &Gate{RolloutsPerUpdate: 64}, Prompts: &Prompts{Fraction: 0.5}, Columns: []Column{{"x_a", "int8"}}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Table
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(got)
	if string(again) != string(b) || !math.IsInf(float64(got.Priority.AgeDecay), 1) || got.Limiter.ErrorBuffer != 100 {
		t.Errorf("got %s, want %s", again, b)
	}
}

func TestNamesOfTablesAreNamesOfFiles(t *testing.T) {
	for _, name := range []string{"a", "table-1", "Math.v2_x", strings.Repeat("a", 128)} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", "a b", "größe", "a\x00", strings.Repeat("a", 129)} {
		if err := CheckName(name); CodeOf(err) != Invalid || !strings.Contains(err.Error(), "want 1 to 128 letters") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestTypesAreReadAndWrittenAlike(t *testing.T) {
	for _, c := range someColumns() {
		dt, err := ParseType(c.Type)
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
		if _, err := ParseType(text); CodeOf(err) != Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", clip(text), err, want)
		}
	}
}

func TestAllBadColumnsAreReportedAtOnce(t *testing.T) {
	_, err := ExtraFields([]Column{{"mine", "int8"}, {"x_a", "int7"}, {"x_a", "int8"}, {"x_", "int8"}, {"x_good", "int8"}})
	for _, want := range []string{"columns[0].name: \"mine\": want x_", "columns[1].type: \"int7\"", "columns[2].name: \"x_a\": want each name once", "columns[3].name: \"x_\""} {
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
		dt, err := ParseType(text)
		if err != nil {
			return
		}
		again, err := ParseType(plainType(dt))
		if err != nil || plainType(again) != plainType(dt) {
			t.Fatalf("%q is written as %q, which is %v, %v", text, plainType(dt), again, err)
		}
	})
}

func TestPooledMemoryIsAlignedAndOfItsSize(t *testing.T) {
	var p Pool
	last, wide := 0, 0
	for size := 1; size < 1<<18; size++ {
		i, capacity, ok := class(size)
		if !ok || capacity < size || capacity > max(64, size+size/4+1) || i < last || i > last+1 || i == last && i > 0 && capacity != wide {
			t.Fatalf("%d bytes are of class %d with %d", size, i, capacity)
		}
		last, wide = i, capacity
	}
	for _, size := range []int{0, 1, 63, 64, 65, 1000, 1 << 20, 3<<20 + 1} {
		b := p.Allocate(size)
		if len(b) != size || size > 0 && address(b)%alignment != 0 {
			t.Errorf("%d bytes: %d at %x", size, len(b), address(b))
		}
		for i := range b {
			b[i] = byte(i)
		}
		b = p.Reallocate(2*size, b)
		for i := range size {
			if b[i] != byte(i) {
				t.Fatalf("%d bytes: byte %d changed", size, i)
			}
		}
		p.Free(b)
	}
	if _, _, ok := class(1 << 40); ok {
		t.Error("memory of a terabyte is pooled")
	}
	if i, _, ok := class(1<<maxShift - 1<<(maxShift-3)); !ok || i != len(p.classes)-1 {
		t.Errorf("the largest class is %d of %d", i, len(p.classes))
	}
}
