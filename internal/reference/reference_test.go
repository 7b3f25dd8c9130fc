package reference

import (
	"strings"
	"testing"
)

type Inner struct {
	Depth int `json:"depth"` // levels [2]
}

type options struct {
	Inner
	Size int     `json:"size"` // rows
	Beta float64 `yaml:"beta" json:"b"`
	More *Inner  `json:"inner"` // more of it [none]
	// Long is what is said above the field [no limit].
	Long   string `json:"long"`
	Hidden int    `json:"-"`
}

func TestTableHasKeysDefaultsAndMeanings(t *testing.T) {
	w := &Writer{Root: "../.."}
	w.Table(options{Size: 7})
	if w.Err() == nil || !strings.Contains(w.Err().Error(), "beta has no comment") {
		t.Errorf("err = %v, want that beta has no comment", w.Err())
	}
	for _, row := range []string{
		"| `depth` | `2` | levels |", "| `size` | `7` | rows |", "| `inner` | none | more of it |",
		"| `inner.depth` | `2` | levels |",
		"| `long` | no limit | what is said above the field |",
	} {
		if !strings.Contains(w.String(), row) {
			t.Errorf("%s is missing from\n%s", row, w.String())
		}
	}
	if strings.Contains(w.String(), "Hidden") {
		t.Error("a field without a key is shown")
	}
}
