package results

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestParseErrorsNameLineFieldAndValue(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", "{\"update\":1,\"lost\":2}\n", `line 1: json: unknown field "lost"`},
		{"updates out of order", "{\"update\":3}\n{\"update\":3}\n", "line 2: update: 3: want more than 3"},
		{"update 0", "{\"update\":0}\n", "line 1: update: 0: want 1 or more"},
		{"share out of range", "{\"update\":1,\"ess\":1.5}\n", "line 1: ess: 1.5: want 0 to 1"},
		{"success out of range", "{\"update\":1,\"success\":1.5}\n", "line 1: success: 1.5: want 0 to 1"},
		{"invalid out of range", "{\"update\":1,\"invalid\":-1}\n", "line 1: invalid: -1: want 0 to 1"},
		{"negative turns", "{\"update\":1,\"turns\":-1}\n", "line 1: turns: -1: want 0 or more"},
		{"negative clock", "{\"update\":1,\"clock\":-2}\n", "line 1: clock: -2: want 0 or more"},
		{"negative table", "{\"update\":1,\"table_size\":-2}\n", "table_size: -2"},
		{"empty line", "{\"update\":1}\n\n", "line 2: not a JSON object"},
		{"null", "null\n", "line 1: not a JSON object"},
		{"two values", "{\"update\":1}{}\n", "line 1: more than one JSON value"},
		{"NaN", "{\"update\":1,\"loss\":NaN}\n", "line 1: "},
		{"a torn line within", "{\"update\":1}\n{\"upda\n{\"update\":3}\n", "line 2: "},
	} {
		_, err := parseUpdates([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

func TestParsingEvaluationsChecksOrderAndRanges(t *testing.T) {
	const ok = "{\"problems\":4,\"compute\":2,\"grid\":2,\"pass1\":0.5}\n"
	for _, c := range []struct{ name, text, want string }{
		{"compute falls", ok + "{\"problems\":4,\"compute\":1,\"grid\":3}\n", "line 2: compute: 1: want 2 or more"},
		{"no problems", "{\"problems\":0}\n", "line 1: problems: 0: want 1 or more"},
		{"pass1 above 1", "{\"problems\":4,\"pass1\":1.01}\n", "line 1: pass1: 1.01"},
		{"k above samples", "{\"problems\":4,\"samples\":4,\"pass_at\":[{\"k\":8,\"rate\":1}]}\n",
			"pass_at.k: 8: want 1 to 4"},
		{"invalid above 1", "{\"problems\":4,\"invalid\":2}\n", "line 1: invalid: 2: want 0 to 1"},
		{"negative turns", "{\"problems\":4,\"turns\":-2}\n", "line 1: turns: -2: want 0 or more"},
		{"rate above 1", "{\"problems\":4,\"samples\":8,\"pass_at\":[{\"k\":8,\"rate\":2}]}\n", "pass_at.rate: 2"},
	} {
		_, err := ParseEvals([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	if _, err := ParseEvals([]byte(ok + ok)); err != nil {
		t.Error(err)
	}
	if _, err := ParseTimings([]byte("{\"update\":1,\"learn\":-1}\n")); err == nil ||
		!strings.Contains(err.Error(), "learn: -1") {
		t.Errorf("negative time: error %v", err)
	}
}

func TestANumberThatWasNotMeasuredStaysUnknown(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if Num(v).Known() {
			t.Errorf("Num(%v) has a value", v)
		}
	}
	got, err := parseUpdates([]byte("{\"update\":1,\"loss\":null,\"entropy\":0}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if u := got[0]; u.Loss.Known() || u.ESS.Known() || !u.Entropy.Known() || !math.IsNaN(u.Loss.Float()) {
		t.Errorf("null, absent and 0 read as %+v, %+v, %+v", u.Loss, u.ESS, u.Entropy)
	}
	var line bytes.Buffer
	encode := json.NewEncoder(&line)
	for _, e := range []Eval{{}, {Reward: Num(0), Turns: Num(0)}} {
		if err := encode.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	none, zero, _ := strings.Cut(line.String(), "\n")
	if strings.Contains(none, "reward") || !strings.Contains(zero, `"reward":0,"turns":0}`) {
		t.Errorf("rewards that are unknown, and 0, are written as\n%s\n%s", none, zero)
	}
	measured := map[string]float64{"loss": 0, "kl": math.NaN()}
	if !Named(measured, "loss").Known() || Named(measured, "kl").Known() || Named(measured, "ess").Known() {
		t.Error("a name not measured, or measured as NaN, has a value, or a measured 0 has none")
	}
}

// FuzzParseUpdates holds what parses to come back the same after writing and reading.
func FuzzParseUpdates(f *testing.F) {
	f.Add([]byte("{\"update\":1,\"loss\":null}\n{\"update\":2,\"loss\":1e-300,\"other\":{\"x\":3}}\n{\"upd"))
	f.Add([]byte("{\"update\":1,\"clock\":0.30000000000000004,\"Entropy\":5}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := parseUpdates(text)
		if err != nil {
			return
		}
		roundTrip(t, lines, parseUpdates)
	})
}

func FuzzParseEvals(f *testing.F) {
	f.Add([]byte("{\"problems\":4,\"samples\":8,\"pass_at\":[{\"k\":8,\"rate\":1}],\"pass1\":0.5}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := ParseEvals(text)
		if err != nil {
			return
		}
		roundTrip(t, lines, ParseEvals)
	})
}

func roundTrip[T any](t *testing.T, lines []T, parse func([]byte) ([]T, error)) {
	var b bytes.Buffer
	for _, line := range lines {
		text, err := encode(line, "")
		if err != nil {
			t.Fatalf("read but not writable: %v", err)
		}
		b.Write(text)
	}
	again, err := parse(b.Bytes())
	if err != nil {
		t.Fatalf("written but not readable: %v\n%s", err, b.Bytes())
	}
	if len(again) != len(lines) {
		t.Fatalf("wrote %d lines, read %d", len(lines), len(again))
	}
	for i := range lines {
		one, _ := encode(lines[i], "")
		two, _ := encode(again[i], "")
		if !bytes.Equal(one, two) {
			t.Fatalf("line %d changed from\n%sto\n%s", i+1, one, two)
		}
	}
}
