package search

import (
	"strings"
	"testing"
	"unicode"

	"github.com/reprise-rl/reprise/lab/task"
)

func TestTurnsAreParsedByFormat(t *testing.T) {
	for _, c := range []struct {
		format, text string
		kind         kind
		body         string
	}{
		{task.Terse, "?kova eats", query, "kova eats"},
		{task.Terse, "=rus", answer, "rus"},
		{task.Terse, "  = rus \nand more", answer, "rus"},
		{task.Terse, "\n?q", query, "q"},
		{task.Terse, "?=x", query, "=x"},
		{task.Terse, "=?x", answer, "?x"},
		{task.Terse, "?", invalid, ""},
		{task.Terse, "= ", invalid, ""},
		{task.Terse, "=\nrus", invalid, ""},
		{task.Terse, "", invalid, ""},
		{task.Terse, "rus", invalid, ""},
		{task.Terse, "x?q", invalid, ""},
		{task.Terse, "<answer>x</answer>", invalid, ""},

		{task.Words, "<search>a b</search>", query, "a b"},
		{task.Words, "I think\n<answer> x\ny </answer> done", answer, "x\ny"},
		{task.Words, "<answer>x</answer><search>y</search>", answer, "x"},
		{task.Words, "<search>y</search><answer>x</answer>", query, "y"},
		{task.Words, "<search>y<answer>x</answer>", answer, "x"},
		{task.Words, "<search>y <answer>x</answer></search>", query, "y <answer>x</answer>"},
		{task.Words, "</search><search>y</search>", query, "y"},
		{task.Words, "<search>y", invalid, ""},
		{task.Words, "<search> </search><answer>x</answer>", invalid, ""}, // the first turn counts
		{task.Words, "<SEARCH>y</SEARCH>", invalid, ""},
		{task.Words, "?q", invalid, ""},
		{task.Words, "", invalid, ""},
	} {
		kind, body := protocol{c.format}.parse(c.text)
		if kind != c.kind || body != c.body {
			t.Errorf("%s %q: %d %q, want %d %q", c.format, c.text, kind, body, c.kind, c.body)
		}
	}
}

func TestRepliesToTurns(t *testing.T) {
	terse, words := protocol{task.Terse}, protocol{task.Words}
	for want, got := range map[string]string{
		"\na b\nc\n": terse.results([]string{"a b", "c"}),
		"\n-\n":      terse.results(nil),
		"\n!\n":      terse.refusal(false),
		"\n=\n":      terse.refusal(true),
		"\n<information>\n(1) a b\n(2) c\n</information>\n": words.results([]string{"a b",
			"c"}),
		"\n<information>\nNothing was found.\n</information>\n":                     words.results(nil),
		"\nThere are no searches left. Write the answer as <answer>...</answer>.\n": words.refusal(true),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The right sides are what SQuAD's evaluation script makes of the left ones.
func TestAnswersAreNormalisedAsSQuADDoes(t *testing.T) {
	for answer, want := range map[string]string{
		"":                       "",
		"The Cat":                "cat",
		"a  an\tthe\n":           "",
		"theatre another Anna":   "theatre another anna",
		"the-cat":                "thecat", // punctuation goes first
		"U.S.A.":                 "usa",
		"St. John's (the elder)": "st johns elder",
		"3,000.50":               "300050",
		"half–a–mile":            "half– –mile", // not punctuation of ASCII, but the end of a word
		"é the É":                "é é",
		"théa":                   "théa",
		"the²":                   "the²", // a number goes on with the word
		"_a_":                    "",
		"A":                      "",
		"x\u00a0the\u2003y":      "x y",
		"x\x1cy":                 "x y",
		"«the»":                  "« »",
		"`~!@#$%^&*()_+-=":       "",
		"[]{}|;':\",./<>?\\":     "",
		"日本 a 日本":                "日本 日本",
	} {
		if got := normalize(answer); got != want {
			t.Errorf("%q: %q, want %q", answer, got, want)
		}
	}
}

func TestAnswersMatchAfterNormalisation(t *testing.T) {
	for _, c := range []struct {
		answer string
		right  []string
		want   bool
	}{
		{"the Rhine", []string{"Danube", "Rhine."}, true},
		{"Rhine river", []string{"Rhine"}, false},
		{"Rhin", []string{"Rhine"}, false},
		{"308", []string{"308"}, true},
		{"", []string{"x"}, false},
		{"x", nil, false},
		{"the", []string{"A"}, false}, // nothing is left of either
		{"...", []string{"A"}, false},
		{" a ", []string{"A"}, true},
		{"x", []string{"A"}, false},
	} {
		if got := matches(c.answer, c.right); got != c.want {
			t.Errorf("%q for %q: %v", c.answer, c.right, got)
		}
	}
}

func TestPassagesContainAnswersAsWholeWords(t *testing.T) {
	const passage = "In 1867 the Panthers' defense, led by Short, won."
	for answer, want := range map[string]bool{
		"Short": true, "the Panthers": true, "led by short won": true, "In": true, "won": true,
		"hort": false, "Shor": false, "186": false, "the": false, "": false, "won in": false,
	} {
		if got := contains(passage, []string{"elsewhere", answer}); got != want {
			t.Errorf("%q: %v", answer, got)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	f.Add("The cat's the—a! thé")
	f.Add("\xff a\x1dan\u00a0")
	f.Fuzz(func(t *testing.T, answer string) {
		got := normalize(answer)
		if strings.ContainsAny(got, punctuation) || strings.Contains(got, "  ") || strings.TrimSpace(got) != got {
			t.Fatalf("%q became %q", answer, got)
		}
		for _, word := range strings.FieldsFunc(got,
			func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
			if word == "a" || word == "an" || word == "the" {
				t.Fatalf("%q became %q, with an article", answer, got)
			}
		}
		if again := normalize(got); again != got {
			t.Fatalf("%q became %q and then %q", answer, got, again)
		}
		if answer != "" && !matches(answer, []string{answer}) {
			t.Fatalf("%q does not match itself", answer)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("?kova eats\n=x")
	f.Add("<search>a</search><answer>b</answer>")
	f.Add("<search><answer></search>\xff</answer>")
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []string{task.Terse, task.Words} {
			p := protocol{format}
			kind, body := p.parse(text)
			if (kind == invalid) != (body == "") || !strings.Contains(text, body) || strings.TrimSpace(body) != body {
				t.Fatalf("%s %q: %d %q", format, text, kind, body)
			}
			if kind == invalid {
				continue
			}
			if again, same := p.parse(p.write(kind, body)); again != kind || same != body {
				t.Fatalf("%s %q: %d %q, written and read again %d %q", format, text, kind, body, again, same)
			}
		}
	})
}
