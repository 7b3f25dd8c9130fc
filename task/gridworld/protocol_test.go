package gridworld

import (
	"slices"
	"strings"
	"testing"
)

func compass(format string, perTurn int) Protocol {
	return Protocol{Format: format, Names: []string{"Left", "Down", "Right", "Up"}, PerTurn: perTurn}
}

func TestTurnsAreReadStrictly(t *testing.T) {
	for _, c := range []struct {
		format  string
		perTurn int
		text    string
		want    []int // nil: no actions
	}{
		{Terse, 1, "L", []int{0}},
		{Terse, 1, "U", []int{3}},
		{Terse, 1, "LL", nil},
		{Terse, 3, "LUR", []int{0, 3, 2}},
		{Terse, 3, "LURD", nil},
		{Terse, 3, "", nil},
		{Terse, 3, "l", nil},
		{Terse, 3, " L", nil},
		{Terse, 3, "LX", nil},
		{Terse, 5, "Left", nil},
		{Terse, 3, "\xff", nil},
		{Terse, 3, "Ł", nil},
		{Words, 1, "<answer>Left</answer>", []int{0}},
		{Words, 1, "I go down, so <answer> \n uP\t</answer>.", []int{3}},
		{Words, 1, "<answer>Left, Up</answer>", nil},
		{Words, 2, "<answer>Left, Up</answer>", []int{0, 3}},
		{Words, 2, "<answer>left up</answer>", []int{0, 3}},
		{Words, 2, "<answer>left up left</answer>", nil},
		{Words, 2, "<answer></answer>", nil},
		{Words, 2, "<answer>L</answer>", nil},
		{Words, 2, "<answer>jump</answer>", nil},
		{Words, 2, "<answer>left; up</answer>", nil},
		{Words, 1, "<answer>Left</answer> no, <answer>Right</answer>", []int{2}},
		{Words, 1, "<answer>Left</answer> no, <answer>Right", []int{0}},
		{Words, 1, "<answer>Left<answer>Right</answer>", []int{2}},
		{Words, 1, "Left", nil},
		{Words, 1, "</answer>Left<answer>", nil},
		{Words, 1, "<answer>Left", nil},
		{Words, 1, "<answer>\xff</answer>", nil},
	} {
		got, ok := compass(c.format, c.perTurn).Parse(c.text)
		if ok != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s, up to %d, %q: %v, %v, want %v", c.format, c.perTurn, c.text, got, ok, c.want)
		}
	}
}

func TestActionsAreReadAsTheyAreWritten(t *testing.T) {
	for _, format := range []string{Terse, Words} {
		p := compass(format, 2)
		for a, text := range p.Actions() {
			if got, ok := p.Parse(text); !ok || !slices.Equal(got, []int{a}) {
				t.Errorf("%q: %v", text, got)
			}
			for b := range p.Names {
				if got, ok := p.Parse(p.Write(a, b)); !ok || !slices.Equal(got, []int{a, b}) {
					t.Errorf("%q: %v", p.Write(a, b), got)
				}
			}
		}
	}
	for n, want := range []string{1: "<answer>Left</answer>", 3: "<answer>Left, Down</answer>"} {
		if want == "" {
			continue
		}
		if r := compass(Words, n).Request(); !strings.HasSuffix(r, want) {
			t.Errorf("%d per turn: %q gives no form", n, r)
		}
	}
}

func FuzzParsedTurnsCanBeWrittenAgain(f *testing.F) {
	for _, text := range []string{"L", "LDRU", "<answer>Left</answer>", "<answer>up,up\nleft</answer>", "</answer><answer>", "\xff"} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, perTurn int) {
		for _, format := range []string{Terse, Words} {
			p := compass(format, 1+(perTurn&7))
			actions, ok := p.Parse(text)
			if ok != (len(actions) > 0) || len(actions) > p.PerTurn {
				t.Fatalf("%q: %v, %v of up to %d", text, actions, ok, p.PerTurn)
			}
			if again, _ := p.Parse(p.Write(actions...)); ok && !slices.Equal(actions, again) {
				t.Errorf("%q: %v, written and read %v", text, actions, again)
			}
			if ok && format == Terse && p.Write(actions...) != text {
				t.Errorf("%q is read as %v", text, actions)
			}
		}
	})
}
