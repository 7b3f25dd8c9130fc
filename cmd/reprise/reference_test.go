package main

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/configs"
	"github.com/reprise-rl/reprise/internal/reference"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/task/catalog"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/service/server"
	"github.com/reprise-rl/reprise/wire"
)

var writeReference = flag.Bool("write-reference", false,
	"write docs/reference.md and Python's definition.py and methods.py anew")

// Where what the code says is written.
const (
	referencePath = "../../docs/reference.md"
	pythonPath    = "../../python/src/reprise/definition.py"
	methodsPath   = "../../python/src/reprise/methods.py"
)

func TestReferenceListsEveryKey(t *testing.T) {
	w := &reference.Writer{Root: "../.."}
	w.Text("# Configuration keys")
	w.Text("Generated from the code (`go test ./cmd/reprise -run Reference -write-reference`). Every key of a run " +
		"can be set in a YAML\nfile (`reprise train -c FILE`) or by `--set section.key=value`; every key of a " +
		"service in its YAML file (`reprise serve -c FILE`).")
	w.Text("## Run")
	c := reflect.ValueOf(run.Default())
	var top []string
	for i := range c.NumField() {
		section, _, _ := strings.Cut(c.Type().Field(i).Tag.Get("yaml"), ",")
		if section == "" || section == "task" {
			continue
		}
		if c.Field(i).Kind() != reflect.Struct {
			top = append(top, section)
			continue
		}
		w.Text("### %s", section)
		w.Skip = nil
		if section == "replay" { // other sections decide these
			w.Skip = []string{"shards", "group_size", "advantage", "vocab", "max_tokens", "seed", "lease_seconds"}
		}
		w.Table(c.Field(i).Interface())
	}
	if got := strings.Join(top, " "); got != "name seed" {
		t.Errorf("the keys outside sections are %s: describe the new one in this test", got)
	}
	w.Text("### seed")
	w.Text("`seed` (1) seeds everything random, the initial weights included. `name` is shown in reports.")
	w.Skip = nil
	w.Text("## Tasks")
	w.Text("`task.name` chooses the task; its other keys are those of the task. docs/tasks.md describes them.")
	for _, name := range catalog.Names() {
		settings, err := catalog.Settings(name)
		if err != nil {
			t.Fatal(err)
		}
		settings.Resolve()
		w.Text("### task %s", name)
		w.Table(reflect.ValueOf(settings).Elem().Interface())
	}
	w.Text("## Service")
	w.Table(server.Config{}.WithDefaults())
	w.Text("## Tables")
	w.Text("A table in `tables:` of the service's file, in `--table key=value,…`, in the body of `create_table`, and " +
		"as Python's\nkeyword arguments. The keys of `replay` in a run are the same, but for those that other sections of " +
		"a run decide.")
	w.Table(wire.Table{})
	w.Text("### Sources")
	w.Text("The keys of each entry of `sources`; see [Composed batches](replay.md#composed-batches).")
	w.Table(replay.Source{})
	w.Text("## Expressions")
	w.Text("`priority`, `order`, `score` and `pin` of a table, `where` and `order` of [draws by " +
		"prompt](replay.md#draws-by-prompt),\nand `where` and `weight` of a source are expressions over a rollout; a " +
		"source's `share` is one over the table's\n`version` alone. They have numbers, `true` and `false`, " +
		"`+ - * / %% **`, comparisons, `and`, `or`, `not` (or `&&`, `||`,\n`!`), `a ? b : c`, the functions `" +
		strings.Join(formula.Functions(), "`, `") +
		"`, and these columns:")
	columns := func(list [][2]string) string {
		var rows strings.Builder
		for _, c := range list {
			fmt.Fprintf(&rows, "\n| `%s` | %s |", c[0], c[1])
		}
		return "| column | meaning |\n|---|---|" + rows.String()
	}
	w.Text("%s", columns(formula.Columns())+"\n| `meta.NAME`, `meta[\"NAME\"]` | the number that "+
		"its `meta` has under that name |")
	w.Text("`keep`, `score`, `interval` and `skip` of [prompt replay](replay.md#prompts-by-expression) are over a prompt, " +
		"with\nthese columns:")
	w.Text("%s", columns(formula.PromptColumns()))
	w.Text("A comparison with a number that is not known is false, but for `!=`, and `known(x)` tells; in an order it " +
		"comes\nlast. " + fmt.Sprintf("At most %d bytes and %d numbers, columns, operators and calls.", formula.MaxBytes,
		formula.MaxNodes))
	if err := w.Err(); err != nil {
		t.Error(err)
	}
	compareWith(t, referencePath, strings.TrimRight(w.String(), "\n")+"\n")
}

func TestReferenceOfPythonHasEveryKeyOfATable(t *testing.T) {
	w := &reference.Writer{Root: "../.."}
	w.Python(wire.Table{}, []reference.Class{
		{Name: "Limiter", Doc: "Holds the draws per inserted rollout near a ratio: the side that runs ahead waits.",
			Of: wire.Limiter{}},
		{Name: "Gate", Doc: "Limits how many groups generators start, so that rollouts are not too stale when they are " +
			"used (`Table.start`).", Of: wire.Gate{}},
		{Name: "Prompts", Doc: "Prompt replay for the table (`Table.prompts_next`).", Of: prompts.Options{}},
		{Name: "Source", Doc: "A part of each batch, drawn before the sampler draws the rest.", Of: replay.Source{}},
	}, map[string]string{"columns": "Mapping[str, str]", "share": "float | str"})
	if err := w.Err(); err != nil {
		t.Error(err)
	}
	compareWith(t, pythonPath, w.String())
}

// Python's create takes the methods that a table makes: those with other keys of a table than sampler and capacity, or
// with prompts that it chooses. What a generator or trainer has to do is told beside them.
func TestReferenceOfPythonHasTheMethodsOfTables(t *testing.T) {
	known := make(map[string]bool)
	for f := range option.Fields(reflect.ValueOf(wire.Table{})) {
		known[f.Key] = true
	}
	w := &reference.Writer{Root: "../.."}
	var list []reference.Method
	for _, m := range configs.Methods() {
		var sections yaml.MapSlice
		if err := yaml.UnmarshalWithOptions(m.Text, &sections, yaml.UseOrderedMap()); err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		method := reference.Method{Name: m.Name, Title: m.Title, Source: m.Source}
		plain, skips := true, false
		for _, section := range sections {
			for _, k := range mapping(section.Value).(reference.Mapping) {
				switch key := k.Key; {
				case section.Key == "learner" && key == "advantage": // which tables take at insertion
					method.Keys = append(method.Keys, k)
				case section.Key == "prompts":
					method.Prompts = append(method.Prompts, k)
					plain, skips = false, skips || key == "skip"
				case section.Key != "replay" || !known[key]:
					method.Trainer = append(method.Trainer, reference.Entry{Key: section.Key.(string) + "." + key, Value: k.Value})
				case key != "capacity" || k.Value != uint64(0):
					method.Keys = append(method.Keys, k)
					plain = plain && (key == "sampler" || key == "capacity")
				}
			}
		}
		if m.Needs == "" && !plain && !skips { // tables do not skip prompts
			list = append(list, method)
		}
	}
	w.PythonMethods(list)
	if err := w.Err(); err != nil {
		t.Error(err)
	}
	compareWith(t, methodsPath, w.String())
}

// mapping returns a value of YAML as that of a reference.
func mapping(value any) any {
	switch v := value.(type) {
	case yaml.MapSlice:
		var m reference.Mapping
		for _, k := range v {
			m = append(m, reference.Entry{Key: k.Key.(string), Value: mapping(k.Value)})
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, each := range v {
			list[i] = mapping(each)
		}
		return list
	}
	return value
}

// compareWith compares a file with what the code says, after writing it if that was asked for.
func compareWith(t *testing.T, path, text string) {
	t.Helper()
	if *writeReference {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if there, err := os.ReadFile(path); err != nil || string(there) != text {
		t.Errorf("%s is not what the code says (%v): run go test ./cmd/reprise -run Reference -write-reference", path,
			err)
	}
}
