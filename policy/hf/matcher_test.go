package hf

import (
	"slices"
	"testing"
)

// The words are those of Hugging Face's Split with the same pattern: white space is Unicode's, and
// the last of a run goes with the word after it only if it is an ASCII space, by the pattern.
func TestGPT2PatternDividesAsTheLibraryDoes(t *testing.T) {
	m, err := newMatcher(gpt2Pattern)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		"":                    nil,
		"a\u3000\u3000.":      {"a", "\u3000", "\u3000", "."},
		"a\u2003\u0085b":      {"a", "\u2003", "\u0085", "b"},
		"x  \u00a0 y \u2028":  {"x", "  \u00a0", " y", " \u2028"},
		".\u202f!":            {".", "\u202f", "!"},
		"she's  12.5\n\n  ok": {"she", "'s", " ", " 12", ".", "5", "\n\n ", " ok"},
	} {
		var got []string
		for _, p := range m.divide(text) {
			if !p.match {
				t.Errorf("%q: %q is outside the matches", text, p.text)
			}
			got = append(got, p.text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is divided into %q, want %q", text, got, want)
		}
	}
}
