package option_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout/option"
)

type colour string

func (colour) Values() []string { return []string{"red", "green", "blue"} }

type Shade struct {
	Dark float64 `json:"dark" default:"0.5" range:"[0, 1)"`
}

type paint struct {
	Shade
	Colour colour   `json:"colour,omitempty" default:"green"`
	Litres int      `json:"litres" default:"no limit" range:"[0, 100]"`
	Coats  *int     `json:"coats" default:"2" range:"[1, 9]"`
	Gloss  float32  `yaml:"gloss" json:"shine" range:"(0, inf)"`
	Seed   uint64   `json:"seed" default:"7"`
	Thin   *float64 `json:"thin" range:"[-inf, inf]"`
	Hidden int      `json:"-"`
}

func TestAFieldHasItsKeyDefaultAndRange(t *testing.T) {
	var keys []string
	for f := range option.Fields(reflect.ValueOf(paint{})) {
		keys = append(keys, f.Key)
	}
	if want := []string{"dark", "colour", "litres", "coats", "gloss", "seed", "thin"}; !slices.Equal(keys, want) {
		t.Errorf("keys %v, want %v", keys, want)
	}
	p := paint{Colour: "red"}
	option.Fill(&p)
	if p.Dark != 0.5 || p.Colour != "red" || p.Litres != 0 || *p.Coats != 2 || p.Seed != 7 || p.Thin != nil {
		t.Errorf("filled: %+v", p)
	}
}

func TestFieldsOutOfTheirRangeAreReportedInTheWordsOfTheirTags(t *testing.T) {
	two, nan := 0, math.NaN()
	for want, p := range map[string]paint{
		"dark: 1: want at least 0, below 1":                     {Shade: Shade{1}, Gloss: 1},
		"dark: NaN: want at least 0, below 1":                   {Shade: Shade{nan}, Gloss: 1},
		"colour: pink: want red, green or blue":                 {Colour: "pink", Gloss: 1},
		"litres: -1: want 0 (no limit) to 100":                  {Litres: -1, Gloss: 1},
		"coats: 0: want 1 to 9":                                 {Coats: &two, Gloss: 1},
		"gloss: 0: want above 0, finite":                        {},
		"gloss: +Inf: want above 0, finite":                     {Gloss: float32(math.Inf(1))},
		"thin: NaN: want a number":                              {Thin: &nan, Gloss: 1},
		"colour: x: want red, green or blue\nlitres: 101: want": {Colour: "x", Litres: 101, Gloss: 1},
	} {
		if p.Colour == "" {
			p.Colour = "red"
		}
		var problems option.Problems
		problems.CheckFields(p, nil)
		if got := fmt.Sprint(problems.Err()); !strings.HasPrefix(got, want) ||
			strings.Count(got, "\n") != strings.Count(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRangesInWords(t *testing.T) {
	for tag, want := range map[string]string{
		"[0, 1]": "0 to 1", "(0, 1]": "above 0, at most 1", "(0, 1)": "above 0, below 1", "[0.001, inf]": "0.001 or more, " +
			"or inf", "[1, inf)": "1 or more, finite", "(0, inf)": "above 0, finite", "[-inf, inf]": "a number",
	} {
		f := option.Field{StructField: reflect.StructField{Type: reflect.TypeFor[float64](),
			Tag: reflect.StructTag(`range:"` + tag + `"`)}}
		if r, ok := f.Range(); !ok || r.String() != want {
			t.Errorf("%s in words is %q, want %q", tag, r, want)
		}
	}
}

// What a key that is wrong by itself, or a mistyped one, makes of others is not told.
func TestChecksOfSeveralKeysNeedEachToBeRight(t *testing.T) {
	var p option.Problems
	p.Check(false, "batch", 0, "1 or more")
	p.CheckWith("batch", false, "capacity", 7, "at least batch (0)")
	p.CheckWith("trainers", false, "capacity", 7, "a multiple of the 2 trainers")
	p.CheckWith("capacity", false, "group", 9, "at most the capacity") // which is right by itself
	p.Add(&option.Error{Key: "size", Value: "unknown key", Want: "limit", Meant: "limit"})
	p.CheckWith("", false, "limit", 0, "1 or more")
	p.AddNew(&option.Error{Key: "batch", Value: 0, Want: "what it stands for"})
	p.In("section", func(p *option.Problems) { p.Check(false, "key", 1, "2") })
	p.In("section", func(p *option.Problems) { p.CheckWith("key", false, "other", 1, "2") })
	want := "batch: 0: want 1 or more; capacity: 7: want a multiple of the 2 trainers; group: 9: want at most the " +
		"capacity; size: unknown key: want limit; section.key: 1: want 2"
	if got := p.Line(); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if !p.Has("capacity") || p.Has("trainers", "other") {
		t.Error("Has does not tell which keys have problems")
	}
}
