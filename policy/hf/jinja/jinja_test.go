package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func messages() []any {
	return []any{
		Dict{{"role", "user"}, {"content", " a\n"}},
		Dict{{"role", "assistant"}, {"content", "é<b>\"x\""}},
	}
}

// render parses and renders a template for the messages.
func render(source string) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(map[string]any{"messages": messages(), "raise_exception": Func(func(args ...string) (string, error) {
		return "", errors.New(strings.Join(args, " "))
	})})
}

type golden struct {
	Template, Error string
	Want            *string
}

func readGolden(t testing.TB) (rows []golden) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden.json"))
	if err == nil {
		err = json.Unmarshal(b, &rows)
	}
	if err != nil || len(rows) < 40 {
		t.Fatalf("%d templates, %v", len(rows), err)
	}
	return rows
}

func TestTemplatesRenderAsWithTransformers(t *testing.T) {
	for _, g := range readGolden(t) {
		got, err := render(g.Template)
		switch {
		case g.Want == nil && err == nil:
			t.Errorf("%s: %q, want an error: %s", g.Template, got, g.Error)
		case g.Want != nil && (err != nil || got != *g.Want):
			t.Errorf("%s\n got %q, %v\nwant %q", g.Template, got, err, *g.Want)
		}
	}
}

func TestWorkSizeAndNestingAreBounded(t *testing.T) {
	deep := func(open, shut string) string { return strings.Repeat(open, 30000) + "1" + strings.Repeat(shut, 30000) }
	grow := "{% set ns = namespace(x=X) %}{% for i in range(60) %}{% set ns.x = Y %}{% endfor %}"
	doubled := strings.NewReplacer("X", "[1]", "Y", "[ns.x, ns.x]").Replace(grow)
	for name, source := range map[string]string{
		"loops":            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
		"a range":          "{% for i in range(1000000000) %}{% endfor %}",
		"a text":           "{{ 'a' * 1000000000 }}",
		"a product":        "{{ ('a' * 1000000) * 9000000000000 }}",
		"a doubled text":   strings.NewReplacer("X", "'a'", "Y", "ns.x ~ ns.x").Replace(grow),
		"a replaced text":  strings.NewReplacer("X", "'a'", "Y", "ns.x.replace('a', 'aaaaaaaaaa')").Replace(grow),
		"a doubled list":   strings.NewReplacer("X", "[1]", "Y", "ns.x + ns.x").Replace(grow),
		"a shared list":    doubled + "{{ ns.x }}",
		"shared equality":  doubled + "{{ ns.x == [ns.x[0], ns.x[0]] }}",
		"a deep list":      strings.NewReplacer("60", "5000", "X", "1", "Y", "[ns.x]").Replace(grow) + "{{ ns.x|tojson }}",
		"an indent":        "{{ [1]|tojson(indent=1000000000) }}",
		"output":           "{% for i in range(99999) %}{{ messages[0] }}" + strings.Repeat("a", 9999) + "{% endfor %}",
		"recursion":        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"mutual recursion": "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
		"brackets":         "{{ " + deep("(", ")") + " }}",
		"lists":            "{{ " + deep("[", "]") + " }}",
		"signs":            "{{ " + strings.Repeat("-", 30000) + "1 }}",
		"negations":        "{{ " + strings.Repeat("not ", 30000) + "1 }}",
		"conditions":       "{{ " + strings.Repeat("1 if 0 else ", 9000) + "1 }}",
		"blocks":           strings.Repeat("{% if 1 %}", 9000),
		"branches":         "{% if 0 %}" + strings.Repeat("{% elif 0 %}", 9000) + "{% endif %}",
		"source":           strings.Repeat("a", maxSource+1),
		"a zero step":      "{% for i in range(0, 9, 0) %}{% endfor %}",
		"a huge number":    "{{ 9999999999999999999999 }}",
		"a large power":    "{{ 10 ** 300 }}",
	} {
		if got, err := render(source); err == nil {
			t.Errorf("%s: %.100q", name, got)
		}
	}
	long := "{{ 1" + strings.Repeat(" + 1", 20000) + " }}"
	if got, err := render(long); err != nil || got != "20001" {
		t.Errorf("a long sum is %.40q, %v", got, err)
	}
}

func TestErrorsNameTheLineAndWhatIsMeant(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% include 'x' %}":                "line 2: tag include: want one of if, for, set",
		"{% if x %}":                          "line 1: the template ends before endif",
		"{{ 1":                                "line 1: a tag has no }}",
		"{{ 'a }}":                            "line 1: a string has no end",
		"{# a":                                "line 1: a comment has no #}",
		"\n\n{{ ; }}":                         `line 3: ";" is no part of an expression`,
		"\n{{ x.y }}":                         `line 2: "x", which is not defined, has no attribute y`,
		"{{ messages | frobnicate }}":         "line 1: filter frobnicate is not supported",
		"{{ 1 is frobnicated }}":              "line 1: test frobnicated is not supported",
		"{{ messages[0].frobnicate() }}":      `line 1: "frobnicate", which is not defined, cannot be called`,
		"{% for a, b in [[1]] %}{% endfor %}": "line 1: 1 values for 2 names",
		"{% set x.y = 1 %}":                   "line 1: x is no namespace",
	} {
		if _, err := render(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, g := range readGolden(f) {
		f.Add(g.Template)
	}
	f.Fuzz(func(t *testing.T, source string) {
		first, err1 := render(source)
		if second, err2 := render(source); first != second || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Errorf("%q, %v, then %q, %v", first, err1, second, err2)
		}
	})
}

func ExampleTemplate_Render() {
	t, err := Parse("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}<assistant>")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Render(map[string]any{"messages": []any{Dict{{"role", "user"}, {"content", "2 + 3?  "}}}}))
	// Output:
	// <user>2 + 3?
	// <assistant> <nil>
}
