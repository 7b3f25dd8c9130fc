package reference

import (
	"strings"
	"testing"
)

type Inner struct {
	Depth int `json:"depth"` // levels [2]
}

type Tone string

func (Tone) Values() []string { return []string{"dark", "light"} }

type keys struct {
	Name  string  `json:"name"`
	Least int     `json:"least"`                                                     // that must be given
	Tone  Tone    `json:"tone,omitempty" default:"dark"`                             // of the paint
	Share float64 `json:"share,omitempty" default:"0.5" range:"(0, 1]"`              // of the whole
	Rows  *int    `json:"rows,omitempty" default:"no limit" range:"[0, 2147483647]"` // at once
	Inner *Inner  `json:"inner,omitempty"`                                           // more of it [none]
	Own   []int   `json:"own,omitempty"`                                             // by name [none]
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

func TestPythonHasEveryKeyWithItsTypeAndDoc(t *testing.T) {
	w := &Writer{Root: "../.."}
	w.Python(keys{}, []Class{{"Inner", "More of it.", Inner{}}}, map[string]string{"own": "Mapping[str, int]"})
	if w.Err() != nil {
		t.Error(w.Err())
	}
	for _, part := range []string{
		"Tone = Literal[\"dark\", \"light\"]\n",
		"class Inner(Options):\n    \"\"\"More of it.\n\n    Attributes:\n        depth: levels [2]\n    \"\"\"\n\n" +
			"    depth: int | None = None\n",
		"    least: int\n    tone: Tone | None = None\n    share: float | None = None\n    rows: int | None = None\n" +
			"    inner: Inner | None = None\n    own: Mapping[str, int] = field(default_factory=dict)\n",
		"    share: float\n    \"\"\"Of the whole; above 0, at most 1 [0.5].\"\"\"\n",
		"    rows: int\n    \"\"\"At once [no limit].\"\"\"\n",
		"            tone: of the paint: dark or light [dark]\n", "            max_size: another name for capacity\n",
	} {
		if !strings.Contains(w.String(), part) {
			t.Errorf("%s is missing from\n%s", part, w.String())
		}
	}
	if strings.Contains(w.String(), "    name: str\n") {
		t.Error("the name of a table is a key")
	}
}
