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
