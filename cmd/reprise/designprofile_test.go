package main

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/design"
)

func TestAProfileIsAJSONArrayOrANumberOnEachLine(t *testing.T) {
	want := []float64{1, 1.25, 0, 3e2}
	for _, text := range []string{"[1, 1.25, 0, 3e2]", "\n [1,1.25,\n0,300]\n", "1\n1.25\n0\n300", "# measured\n\n 1 # fresh\r\n1.25\n0\n3e2\n\n"} {
		if got, err := parseProfile([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestAWrongProfileIsRefusedByPlace(t *testing.T) {
	for text, want := range map[string][]string{
		"":                {"no numbers"},
		"[]":              {"no numbers"},
		"# nothing":       {"no numbers"},
		"1\ntwo\n":        {`line 2: "two": want one number on each line`},
		"1\n1, 2":         {`line 2: "1, 2": want one number`},
		"\n1\n\n-2\nNaN":  {"line 4, staleness 1: -2: want a variance", "line 5, staleness 2: NaN: want"},
		"Inf":             {"line 1, staleness 0: +Inf: want"},
		"0\n1":            {"line 1, staleness 0: 0: want at least 1e-300"},
		"[0, 1]":          {"staleness 0: 0: want at least 1e-300"},
		"[1, null]":       {"staleness 1: null: want"},
		"[1, -1, -2]":     {"staleness 1: -1", "staleness 2: -2"},
		"[1":              {"JSON array"},
		`[1, "two"]`:      {"JSON array"},
		"[1] 2":           {"JSON array"},
		"[1e400]":         {"JSON array"},
		"[1, 1e301]":      {"staleness 1: 1e+301: want a variance, 0 to 1e+300"},
		`{"sigma2": [1]}`: {"line 1"},
	} {
		_, err := parseProfile([]byte(text))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %q", text, err, w)
			}
		}
	}
	long := strings.Repeat("1\n", mostProfile+1)
	if _, err := parseProfile([]byte(long)); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("%d numbers: %v", mostProfile+1, err)
	}
}

func FuzzParseProfile(f *testing.F) {
	for _, seed := range []string{"[1, 2]", "1\n2 # two\n", "", "[null]", "0x1p-3\n1_0", "[1e308, 1e308]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseProfile(text)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without words")
			}
			return
		}
		var lines strings.Builder
		for i, v := range list {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || list[0] == 0 {
				t.Fatalf("staleness %d: %v was taken", i, v)
			}
			fmt.Fprintln(&lines, v)
		}
		again, err := parseProfile([]byte(lines.String()))
		if err != nil || !reflect.DeepEqual(again, list) {
			t.Fatalf("%v reads back as %v, %v", list, again, err)
		}
		if _, err := design.NewTable(list); err != nil {
			t.Fatalf("%v was taken, but is no table: %v", list, err)
		}
	})
}
