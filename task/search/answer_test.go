package search

import (
	"strings"
	"testing"
	"unicode"
)

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
		if got := Normalize(answer); got != want {
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
		if got := Matches(c.answer, c.right); got != c.want {
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
		if got := Contains(passage, []string{"elsewhere", answer}); got != want {
			t.Errorf("%q: %v", answer, got)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	f.Add("The cat's the—a! thé")
	f.Add("\xff a\x1dan\u00a0")
	f.Fuzz(func(t *testing.T, answer string) {
		got := Normalize(answer)
		if strings.ContainsAny(got, punctuation) || strings.Contains(got, "  ") || strings.TrimSpace(got) != got {
			t.Fatalf("%q became %q", answer, got)
		}
		for _, word := range strings.FieldsFunc(got, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
			if word == "a" || word == "an" || word == "the" {
				t.Fatalf("%q became %q, with an article", answer, got)
			}
		}
		if again := Normalize(got); again != got {
			t.Fatalf("%q became %q and then %q", answer, got, again)
		}
		if answer != "" && !Matches(answer, []string{answer}) {
			t.Fatalf("%q does not match itself", answer)
		}
	})
}
