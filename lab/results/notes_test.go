package results

import (
	"slices"
	"strings"
	"testing"
)

func TestNotesAreReadAsTheyWereWritten(t *testing.T) {
	n, err := NewNotes(" ablation, lr-sweep  ablation\n", " <b>good</b>\r\nuntil \"200\" ")
	if err != nil {
		t.Fatal(err)
	}
	text, err := n.Text()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseNotes(text)
	if err != nil || !slices.Equal(got.Tags, []string{"ablation", "lr-sweep"}) || got.Note != "<b>good</b>\nuntil \"200\"" {
		t.Errorf("read %+v, %v", got, err)
	}
	if !(&Notes{}).Empty() || got.Empty() {
		t.Error("notes are empty if nothing is said")
	}
}

func TestNotesOutOfBoundsAreRefused(t *testing.T) {
	many := strings.Repeat("x", 41)
	for want, made := range map[string][2]string{"tags: 21: want": {"a b c d e f g h i j k l m n o p q r s t u", ""},
		"tags: \"" + many: {many, ""}, "note: 10001 letters: want": {"", strings.Repeat("n", 10_001)},
		"tags: \"\\xff": {"\xff", ""}} {
		if _, err := NewNotes(made[0], made[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", made, err, want)
		}
	}
	for _, text := range []string{"", "{}", `{"format":1,"tags":["a b"],"note":""}`, `{"format":2,"tags":[],"note":""}`,
		`{"format":1,"tags":[],"note":"","more":1}`} {
		if _, err := ParseNotes([]byte(text)); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}

func FuzzNotes(f *testing.F) {
	f.Add([]byte(`{"format":1,"tags":["a"],"note":"b"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := ParseNotes(text)
		if err != nil {
			return
		}
		again, err := n.Text()
		if err != nil {
			t.Fatal(err)
		}
		if m, err := ParseNotes(again); err != nil || m.Note != n.Note || !slices.Equal(m.Tags, n.Tags) {
			t.Errorf("%s is read as %+v, and written as %s: %v", text, n, again, err)
		}
	})
}
