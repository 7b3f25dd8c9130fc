package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
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
	return t.Render(map[string]any{"messages": messages(), "bos_token": "<s>", "add_generation_prompt": true,
		"strftime_now": Func(func(...string) (string, error) { return "today", nil }),
		"raise_exception": Func(func(args ...string) (string, error) {
			return "", errors.New(strings.Join(args, " "))
		})})
}

type golden struct {
	Template, Error string
	Want            *string
}

func readGolden(t testing.TB, file string) (rows []golden) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &rows)
	}
	if err != nil || len(rows) < 40 {
		t.Fatalf("%s: %d templates, %v", file, len(rows), err)
	}
	return rows
}

// check compares a rendering with transformers'. refusal is in our error where there must be one.
func (g golden) check(t *testing.T, refusal string) {
	t.Helper()
	got, err := render(g.Template)
	switch {
	case g.Want == nil && (err == nil || !strings.Contains(err.Error(), refusal)):
		t.Errorf("%s: %q, %v, want the error %q; transformers': %s", g.Template, got, err, refusal, g.Error)
	case g.Want != nil && (err != nil || got != *g.Want):
		t.Errorf("%s\n got %q, %v\nwant %q", g.Template, got, err, *g.Want)
	}
}

func TestTemplatesRenderAsWithTransformers(t *testing.T) {
	refusals := map[string]string{
		"{{ missing }}|{{ missing.attribute }}":                   `"missing", which is not defined, has no attribute`,
		"{{ 'a' | nofilter }}":                                    "filter nofilter is not supported",
		"{{ raise_exception('no') }}":                             "line 1: no",
		"{{ 1 / 0 }}":                                             "division by zero",
		"{{ 'a' + 1 }}":                                           `"a" + 1: want numbers, or texts to join`,
		"{{ messages.append(1) }}":                                `"append", which is not defined, cannot be called`,
		"{{ messages | tojson(nothing=1) }}":                      "filter tojson has an argument nothing: want ensure_ascii",
		"{{ 'a' | replace('a', new='b', nothing=1) }}":            "filter replace has an argument nothing: want old, new",
		"{{ 'a'.upper(1) }}":                                      "upper has too many arguments: want none",
		"{{ 'a' | upper(1) }}":                                    "filter upper has too many arguments: want none",
		"{{ [1] | map(attribute='a', nothing=1) | list }}":        "filter map has an argument nothing",
		"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(nothing=1) }}": "macro f has an argument nothing: want a",
		"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=1) }}":    "macro f has the argument a twice",
	}
	for _, g := range readGolden(t, filepath.Join("testdata", "golden.json")) {
		if g.Want == nil && refusals[g.Template] == "" {
			t.Errorf("%s: name the words of the error", g.Template)
		}
		g.check(t, refusals[g.Template])
	}
}

func TestOtherTemplatesRenderAsWithTransformers(t *testing.T) {
	file := os.Getenv("REPRISE_TEMPLATES")
	if file == "" {
		t.Skip("REPRISE_TEMPLATES names no file that testdata/golden.py made of templates")
	}
	for _, g := range readGolden(t, file) {
		g.check(t, "")
	}
}

func TestWorkSizeAndNestingAreBounded(t *testing.T) {
	tests.Long(t)
	deep := func(open, shut string) string { return strings.Repeat(open, 30000) + "1" + strings.Repeat(shut, 30000) }
	grow := "{% set ns = namespace(x=X) %}{% for i in range(60) %}{% set ns.x = Y %}{% endfor %}"
	doubled := strings.NewReplacer("X", "[1]", "Y", "[ns.x, ns.x]").Replace(grow)
	// called by itself 200 times deep, with the call at the bottom of a chain that is thousands of links long
	recursive := func(link string) string {
		return "{% macro f() %}{{ f()" + strings.Repeat(link, 120000/len(link)) + " }}{% endmacro %}{{ f() }}"
	}
	var pairs strings.Builder
	for i := range 9999 {
		fmt.Fprintf(&pairs, "'%d':1,", i)
	}
	dictionary := "{% set d = {" + pairs.String() + "} %}"
	for name, source := range map[string]string{
		"a chain of or":         recursive(" or f()"),
		"a chain of and":        recursive(" and 1"),
		"a chain of ~":          recursive("~1"),
		"a chain of powers":     recursive("**1"),
		"a chain of filters":    recursive("|d"),
		"a chain of tests":      recursive(" is odd"),
		"a chain of names":      recursive(".a"),
		"a chain of items":      recursive("[0]"),
		"a chain of calls":      recursive("()"),
		"a chain of ifs":        recursive(" if 1"),
		"empty turns":           "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
		"filtered turns":        "{% set r = range(99999) %}{% for i in r %}{% for j in r if 0 %}{% endfor %}{% endfor %}",
		"a large dictionary":    "{% for i in range(9999) %}" + dictionary + "{% endfor %}",
		"a copied dictionary":   dictionary + "{% for i in range(9999) %}{% set e = dict(d, a=1) %}{% endfor %}",
		"a product beyond 2^53": "{{ 9007199254740991 * 2 }}",
		"a sum beyond 2^53":     "{{ 9007199254740991 + 1 }}",
		"a number beyond 2^53":  "{{ 9007199254740992 }}",
		"a text beyond 2^53":    "{{ '9007199254740993' | int }}",
		"loops":                 "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
		"a range":               "{% for i in range(1000000000) %}{% endfor %}",
		"a text":                "{{ 'a' * 1000000000 }}",
		"a product":             "{{ ('a' * 1000000) * 9000000000000 }}",
		"a doubled text":        strings.NewReplacer("X", "'a'", "Y", "ns.x ~ ns.x").Replace(grow),
		"a replaced text":       strings.NewReplacer("X", "'a'", "Y", "ns.x.replace('a', 'aaaaaaaaaa')").Replace(grow),
		"a doubled list":        strings.NewReplacer("X", "[1]", "Y", "ns.x + ns.x").Replace(grow),
		"a shared list":         doubled + "{{ ns.x }}",
		"shared equality":       doubled + "{{ ns.x == [ns.x[0], ns.x[0]] }}",
		"a deep list":           strings.NewReplacer("60", "5000", "X", "1", "Y", "[ns.x]").Replace(grow) + "{{ ns.x|tojson }}",
		"an indent":             "{{ [1]|tojson(indent=1000000000) }}",
		"output":                "{% for i in range(99999) %}{{ messages[0] }}" + strings.Repeat("a", 9999) + "{% endfor %}",
		"recursion":             "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"mutual recursion":      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
		"brackets":              "{{ " + deep("(", ")") + " }}",
		"lists":                 "{{ " + deep("[", "]") + " }}",
		"signs":                 "{{ " + strings.Repeat("-", 30000) + "1 }}",
		"negations":             "{{ " + strings.Repeat("not ", 30000) + "1 }}",
		"conditions":            "{{ " + strings.Repeat("1 if 0 else ", 9000) + "1 }}",
		"blocks":                strings.Repeat("{% if 1 %}", 9000),
		"branches":              "{% if 0 %}" + strings.Repeat("{% elif 0 %}", 9000) + "{% endif %}",
		"source":                strings.Repeat("a", maxSource+1),
		"a zero step":           "{% for i in range(0, 9, 0) %}{% endfor %}",
		"a huge number":         "{{ 9999999999999999999999 }}",
		"a large power":         "{{ 10 ** 300 }}",
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
	for _, g := range readGolden(f, filepath.Join("testdata", "golden.json")) {
		f.Add(g.Template)
	}
	f.Fuzz(func(t *testing.T, source string) {
		const bound = 9 * time.Second // go test -fuzz ends an input after 10 without a word
		defer time.AfterFunc(bound, func() { panic(fmt.Sprintf("%q is rendered for more than %v", source, bound)) }).Stop()
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
