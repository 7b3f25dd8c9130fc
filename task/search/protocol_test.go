package search

import (
	"strings"
	"testing"
)

func TestTurnsAreParsedByFormat(t *testing.T) {
	for _, c := range []struct {
		format, text string
		kind         Kind
		body         string
	}{
		{Terse, "?kova eats", Query, "kova eats"},
		{Terse, "=rus", Answer, "rus"},
		{Terse, "  = rus \nand more", Answer, "rus"},
		{Terse, "\n?q", Query, "q"},
		{Terse, "?=x", Query, "=x"},
		{Terse, "=?x", Answer, "?x"},
		{Terse, "?", Nothing, ""},
		{Terse, "= ", Nothing, ""},
		{Terse, "=\nrus", Nothing, ""},
		{Terse, "", Nothing, ""},
		{Terse, "rus", Nothing, ""},
		{Terse, "x?q", Nothing, ""},
		{Terse, "<answer>x</answer>", Nothing, ""},

		{Words, "<search>a b</search>", Query, "a b"},
		{Words, "I think\n<answer> x\ny </answer> done", Answer, "x\ny"},
		{Words, "<answer>x</answer><search>y</search>", Answer, "x"},
		{Words, "<search>y</search><answer>x</answer>", Query, "y"},
		{Words, "<search>y<answer>x</answer>", Answer, "x"},
		{Words, "<search>y <answer>x</answer></search>", Query, "y <answer>x</answer>"},
		{Words, "</search><search>y</search>", Query, "y"},
		{Words, "<search>y", Nothing, ""},
		{Words, "<search> </search><answer>x</answer>", Nothing, ""}, // the first turn counts
		{Words, "<SEARCH>y</SEARCH>", Nothing, ""},
		{Words, "?q", Nothing, ""},
		{Words, "", Nothing, ""},
	} {
		kind, body := NewProtocol(c.format).Parse(c.text)
		if kind != c.kind || body != c.body {
			t.Errorf("%s %q: %d %q, want %d %q", c.format, c.text, kind, body, c.kind, c.body)
		}
	}
}

func TestAnswersOfTheEnvironmentAreWritten(t *testing.T) {
	terse, words := NewProtocol(Terse), NewProtocol(Words)
	for want, got := range map[string]string{
		"\na b\nc\n": terse.Found([]string{"a b", "c"}),
		"\n-\n":      terse.Found(nil),
		"\n!\n":      terse.Refused(false),
		"\n=\n":      terse.Refused(true),
		"\n<information>\n(1) a b\n(2) c\n</information>\n":                         words.Found([]string{"a b", "c"}),
		"\n<information>\nNothing was found.\n</information>\n":                     words.Found(nil),
		"\nThere are no searches left. Write the answer as <answer>...</answer>.\n": words.Refused(true),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("?kova eats\n=x")
	f.Add("<search>a</search><answer>b</answer>")
	f.Add("<search><answer></search>\xff</answer>")
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []string{Terse, Words} {
			p := NewProtocol(format)
			kind, body := p.Parse(text)
			if (kind == Nothing) != (body == "") || !strings.Contains(text, body) || strings.TrimSpace(body) != body {
				t.Fatalf("%s %q: %d %q", format, text, kind, body)
			}
			if kind == Nothing {
				continue
			}
			if again, same := p.Parse(p.Write(kind, body)); again != kind || same != body {
				t.Fatalf("%s %q: %d %q, written and read again %d %q", format, text, kind, body, again, same)
			}
		}
	})
}
