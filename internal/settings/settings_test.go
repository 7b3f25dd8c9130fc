package settings_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/rollout/option"
)

type unit string

func (unit) Values() []string { return []string{"row", "group"} }

type limit struct {
	Rate  float64 `json:"rate"`
	Grant float64 `json:"grant" default:"600"`
}

type column struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

type table struct {
	Capacity int      `json:"capacity"`
	Unit     unit     `json:"unit"`
	Beta     *float64 `json:"beta"`
	Limit    *limit   `json:"limit"`
	Columns  []column `json:"columns"`
}

type config struct {
	Name   string         `yaml:"name"`
	Seed   uint64         `yaml:"seed"`
	Every  time.Duration  `yaml:"every"`
	Hosts  []string       `yaml:"hosts"`
	Task   map[string]any `yaml:"task"`
	Table  table          `yaml:"table"`
	Tables []table        `yaml:"tables"`
	On     bool           `yaml:"on"`
}

func read(t *testing.T, text string, c config) (config, error) {
	t.Helper()
	return c, settings.Reader{}.YAML([]byte(text), &c)
}

func TestWhatIsGivenReplacesWhatAStructHolds(t *testing.T) {
	given := config{Seed: 3, Task: map[string]any{"name": "a", "size": 1}, Table: table{Capacity: 9, Unit: "row"}}
	c, err := read(t, "name: 007\nevery: 30s\nhosts: [a, 8]\ntask: {size: 2}\n"+
		"table: {unit: group, beta: 0, limit: {rate: 1e1}}\ntables:\n- capacity: 5\n  columns: [{name: x, size: 1}, {name: y}]\n- null\nseed:\n", given)
	zero := 0.0
	want := config{Name: "007", Seed: 3, Every: 30 * time.Second, Hosts: []string{"a", "8"},
		Task:   map[string]any{"name": "a", "size": uint64(2)},
		Table:  table{Capacity: 9, Unit: "group", Beta: &zero, Limit: &limit{10, 600}},
		Tables: []table{{Capacity: 5, Columns: []column{{"x", 1}, {Name: "y"}}}, {}}}
	if err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("%v: got\n%+v, want\n%+v", err, c, want)
	}
	if given.Task["size"] != 1 {
		t.Error("the mapping that was given has changed")
	}
}

func TestEveryProblemIsReportedWithItsKeyAndLine(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\nseed: -1\nevery: 5\non: maybe\n": "line 3: every: 5: want a time with its unit, such as 500ms, 30s " +
			"or 5m\nline 4: on: maybe: want true or false\nline 2: seed: -1: want a whole number, 0 or more",
		"table:\n  capcity: 4\n  colour: red\ntabels: []\n": "line 4: tabels: unknown key: want tables\n" +
			"line 2: table.capcity: unknown key: want table.capacity\n" +
			"line 3: table.colour: unknown key: want one of capacity, unit, beta, limit, columns",
		"tables: [{capacity: 1.5}, {unit: [1], limit: 3}]": "line 1: tables[0].capacity: 1.5: want a whole number\n" +
			"line 1: tables[1].limit: 3: want a mapping with rate, grant\n" +
			"line 1: tables[1].unit: [1]: want row or group",
		"tables:\n- capacity: 1\n- columns:\n  - {nam: x}\n": "line 4: tables[1].columns[0].nam: unknown key: want " +
			"tables[1].columns[0].name",
		"tables: 3\ntask: 3\nhosts: {}": "line 3: hosts: map[]: want a list\nline 1: tables: 3: want a list of mappings " +
			"with capacity, unit, beta, limit, columns\nline 2: task: 3: want a mapping",
		"capacity: 4":                "line 1: capacity: unknown key: want table.capacity or tables.capacity",
		"seed: 99999999999999999999": "line 1: seed: 99999999999999999999: want a smaller number",
		"[1]":                        "line 1: ",
		"name: a\nname: b\n":         "line 2: mapping key \"name\" already defined",
		"name: [":                    "line 1: ",
		"table: {unit: &u [row]}\ntables: [*u]\n": "line 1: table.unit: [row]: want row or group\n" +
			"line 2: tables[0]: [row]: want",
	} {
		if _, err := read(t, text, config{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got\n%v, want\n%s", text, err, want)
		}
	}
}

func TestJSONIsReadStrictly(t *testing.T) {
	var c table
	err := settings.Reader{}.JSON([]byte(`{"capacity": "5", "unit": 3, "beta": "x", "limit": {"rat": 1}}`), &c)
	want := "beta: \"x\": want a number\ncapacity: \"5\": want a whole number\nlimit.rat: unknown key: want limit.rate"
	if fmt.Sprint(err) != want {
		t.Errorf("got\n%v, want\n%s", err, want)
	}
	for _, text := range []string{"", "3", "{} {}", `{"capacity": 1`} {
		if err := (settings.Reader{}).JSON([]byte(text), &c); err == nil || errors.As(err, new(*option.Error)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAssignmentsReachKeysInSections(t *testing.T) {
	var c config
	err := settings.Reader{}.Assign([]string{"table.capacity=4", "name=x=y", "hosts=[a, b]"}, &c)
	if err != nil || c.Table.Capacity != 4 || c.Name != "x=y" || len(c.Hosts) != 2 {
		t.Errorf("%v: %+v", err, c)
	}
	err = settings.Reader{}.Assign([]string{"table.capacity=x", "size", "table.hosts=1", "seed=[", "name.x=1"}, &c)
	for _, want := range []string{"table.capacity: x: want a whole number", `--set "size": want key=value`,
		"table.hosts: unknown key: want hosts", `--set seed: "[" is not valid YAML`, "name: map[x:1]: want text"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from\n%v", want, err)
		}
	}
}

func TestOtherNamesAndKeysThatAreNotToBeGiven(t *testing.T) {
	r := settings.Reader{Synonyms: map[string]string{"buffer_size": "table.capacity", "colour": "unit"},
		Elsewhere: func(key string) bool { return key == "table.columns" }}
	var c config
	for key, want := range map[string]string{"buffer_size": "want table.capacity",
		"colour": "want table.unit or tables.unit", "table.column": "want tables.columns", "table.x": "want one of capacity, unit, beta, limit"} {
		if err := r.Assign([]string{key + "=1"}, &c); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", key, err, want)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	var c config
	err := settings.Reader{Hidden: true}.YAML([]byte("seed: s3cret\ntask: [s3cret]\nnam: s3cret"), &c)
	if err == nil || strings.Contains(err.Error(), "s3cret") ||
		!strings.Contains(err.Error(), "nam: unknown key: want name") {
		t.Error(err)
	}
	if err := (settings.Reader{Hidden: true}).YAML([]byte("name: [s3cret"), &c); err == nil ||
		strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

func TestSoManyProblemsAreReported(t *testing.T) {
	var c config
	err := settings.Reader{}.JSON([]byte(`{"tables": [`+strings.Repeat(`{"x": 1}, `, 1000)+`{}]}`), &c)
	if n := len(option.Each(err)); n != 100 {
		t.Errorf("%d problems", n)
	}
}

// Whatever is written, it is read or refused; what is read can be read again.
func FuzzYAML(f *testing.F) {
	f.Add("name: a\ntables:\n- {capacity: 1, columns: [{name: x}]}\n")
	f.Add("a: &a [*a]\n<<: *a\n")
	f.Add("task: {x: .nan}\nevery: 1h\nseed: 0x10\nhosts: [1, true, null]\n")
	f.Fuzz(func(t *testing.T, text string) {
		var c config
		if err := (settings.Reader{}).YAML([]byte(text), &c); err != nil && err.Error() == "" {
			t.Errorf("%q is refused without a word", text)
		}
	})
}
