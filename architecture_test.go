package reprise

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/reprise-rl/reprise"

// mayImport is the house rule: the packages of this module that each part may import. Folders below a part follow its
// rule and may import the part and one another. Everyone may import [shared].
func mayImport() map[string][]string {
	return map[string][]string{
		"internal":       nil,
		"rollout/option": nil,
		"configs":        nil,
		"benchmarks":     {"rollout", "replay", "wire", "client", "lab/results"},
		"examples":       {"lab/run", "lab/results", "lab/task"},

		"rollout":   nil,
		"advantage": nil,
		"replay":    {"rollout", "advantage"},
		"wire":      {"rollout", "replay"},
		"client":    {"rollout", "replay", "wire"},
		"engine":    {"rollout"},

		"service/journal":  {"rollout", "wire", "replay"},
		"service/cluster":  {"wire", "service/journal"},
		"service":          {"rollout", "advantage", "replay", "wire", "service/journal", "service/cluster"},
		"service/transfer": {"rollout", "replay", "wire", "client", "service/journal", "service"},

		"lab/results":   nil,
		"lab/design":    nil,
		"lab/task":      {"rollout"},
		"lab/objective": nil,
		"lab/backend":   nil,
		"lab/policy":    {"rollout", "advantage", "lab/objective", "lab/task", "lab/backend"},
		"lab/pipeline":  {"rollout", "advantage", "lab/task"},
		"lab/sim":       {"lab/pipeline", "replay", "rollout", "lab/task"},
		"lab/report":    {"lab/results", "lab/design", "lab/sim"},
		"lab/board":     {"lab/report", "lab/results", "replay", "rollout"}, // the latter two for the page of a run's rollouts
		"lab/capture":   {"rollout", "replay", "engine", "wire", "client"},
		"lab/worker":    {"rollout", "lab/task", "lab/policy", "engine", "wire", "client"},
		"lab/run": {"lab/pipeline", "lab/policy", "replay", "lab/task", "lab/objective", "advantage", "rollout",
			"lab/results", "wire", "client", "engine", "lab/design"},
		"lab/study": {"lab/run", "lab/objective", "lab/policy", "replay", "lab/design", "lab/results", "lab/task", "configs"},
	}
}

// wings are the library, which other programs import, the service and the laboratory. The library knows neither of the
// others, and these do not know one another: they meet in cmd.
func wing(part string) string {
	switch top, _, _ := strings.Cut(part, "/"); top {
	case "service", "lab":
		return top
	case "cmd", "benchmarks", "examples", "configs":
		return "outside"
	}
	return "library"
}

// shared lists the parts that everyone may import.
func shared() []string { return []string{"rollout/option", "internal"} }

// onlyStandard lists the parts that import the standard library and nothing else, but for what exceptions allow.
func onlyStandard() []string {
	return []string{"rollout/option", "configs", "internal", "rollout", "advantage", "lab/results", "lab/design", "lab/task"}
}

// exceptions are the packages of such parts that may import these packages all the same.
func exceptions() map[string][]string {
	return map[string][]string{
		module + "/lab/task/search": {"github.com/blevesearch/go-porterstemmer", "github.com/clipperhouse/uax29/v2/words"},
		module + "/lab/results":     {"gonum.org/v1/gonum/stat/distuv"},
		module + "/internal/settings": {"github.com/goccy/go-yaml", "github.com/goccy/go-yaml/ast",
			"github.com/goccy/go-yaml/parser"},
	}
}

// neverTensors lists the parts that must not reach gomlx, by however many steps.
func neverTensors() []string {
	return []string{"rollout/option", "internal", "rollout", "advantage", "replay", "wire", "client", "engine",
		"service", "service/journal", "service/cluster", "service/transfer", "lab/results", "lab/design", "lab/task",
		"lab/pipeline", "lab/worker", "lab/capture", "lab/sim", "lab/report", "lab/board"}
}

// narrower lists packages that may import less of this module than their part: sim and clients divide without a table.
func narrower() map[string][]string {
	return map[string][]string{module + "/replay/parted": {"rollout"}}
}

// goPackage is what the go command says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
	GoFiles    []string
	Standard   bool
}

// workspace returns patterns of the packages of all modules that go.work joins.
func workspace(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("go.work")
	if err != nil {
		t.Fatal(err)
	}
	patterns := []string{"./..."}
	for _, m := range regexp.MustCompile(`(?m)^\t(\./\w+)$`).FindAllStringSubmatch(string(text), -1) {
		patterns = append(patterns, m[1]+"/...")
	}
	return patterns
}

// listPackages returns the packages of all modules, without those that have only tests.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Imports,Deps,GoFiles,Standard"},
		workspace(t)...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			list = append(list, p)
		}
	}
}

// part returns the part that a package of this module belongs to: the longest path of a rule that it is below, or its
// top folder.
func part(path string) (string, bool) {
	below, ok := strings.CutPrefix(path, module+"/")
	top, _, _ := strings.Cut(below, "/")
	for p := range mayImport() {
		if (below == p || strings.HasPrefix(below, p+"/")) && len(p) > len(top) {
			top = p
		}
	}
	return top, ok
}

func TestTheWingsMeetInTheProgramOnly(t *testing.T) {
	for _, p := range listPackages(t) {
		from, ok := part(p.ImportPath)
		if !ok || wing(from) == "outside" {
			continue
		}
		for _, d := range p.Deps {
			to, ours := part(d)
			if ours && wing(to) != wing(from) && wing(to) != "library" && to != "configs" {
				t.Errorf("%s of the %s reaches %s of the %s", p.ImportPath, wing(from), d, wing(to))
			}
		}
	}
}

// What other programs get with the library and the service is what these need: no tensors or command line.
func TestTheLibrarysModuleNeedsNothingOfTheLaboratory(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"gomlx", "kong", "mpb", module + "/"} {
		if strings.Contains(string(text), path) {
			t.Errorf("go.mod requires %s", path)
		}
	}
}

// The root has what other programs import and what a visitor looks for.
func TestTheRootHasFewFolders(t *testing.T) {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	folders := make(map[string]bool)
	for path := range strings.Lines(string(out)) {
		if top, _, below := strings.Cut(path, "/"); below && !strings.HasPrefix(top, ".") {
			folders[top] = true
		}
	}
	if len(folders) > 16 {
		t.Errorf("%d folders at the root, want 16 at most: %v", len(folders), slices.Sorted(maps.Keys(folders)))
	}
}

func TestPartsImportOnlyWhatTheyMay(t *testing.T) {
	rules := mayImport()
	for _, p := range listPackages(t) {
		from, ok := part(p.ImportPath)
		if !ok {
			continue
		}
		if from == "cmd" {
			if slices.ContainsFunc(p.Deps, func(d string) bool { return strings.HasPrefix(d, module+"/benchmarks/") }) {
				t.Errorf("%s reaches benchmarks: they are never in the shipped program", p.ImportPath)
			}
			continue
		}
		allowed, known := rules[from]
		if !known {
			t.Errorf("%s: no rule says what %s may import: add one here and in ARCHITECTURE.md", p.ImportPath, from)
		}
		for _, i := range p.Imports {
			if only, ok := narrower()[p.ImportPath]; ok {
				if to, ours := part(i); ours && !slices.Contains(only, to) {
					t.Errorf("%s imports %s: it may import %v", p.ImportPath, i, only)
				}
			}
			if to, ours := part(i); ours && to != from && !slices.Contains(shared(), to) &&
				!slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may import %v", p.ImportPath, i, from, allowed)
			}
			if slices.Contains(onlyStandard(), from) && strings.Contains(strings.Split(i, "/")[0], ".") &&
				!strings.HasPrefix(i, module) && !slices.Contains(exceptions()[p.ImportPath], i) {
				t.Errorf("%s imports %s: %s keeps to the standard library", p.ImportPath, i, from)
			}
		}
		for _, d := range p.Deps {
			if slices.Contains(neverTensors(), from) && strings.HasPrefix(d, "github.com/gomlx/") {
				t.Errorf("%s reaches %s: %s must do without tensors", p.ImportPath, d, from)
			}
		}
	}
}

func TestImportRulesHaveNoCycle(t *testing.T) {
	rules := mayImport()
	state := map[string]int{} // 1: being visited, 2: done
	var visit func(string)
	visit = func(p string) {
		if state[p] == 1 {
			t.Fatalf("the rules let %s import itself", p)
		}
		if state[p] == 2 {
			return
		}
		state[p] = 1
		for _, d := range rules[p] {
			visit(d)
		}
		state[p] = 2
	}
	for _, p := range slices.Sorted(maps.Keys(rules)) {
		visit(p)
	}
}

func TestEveryPackageHasOneDoc(t *testing.T) {
	for _, p := range listPackages(t) {
		var docs []string
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				docs = append(docs, name)
			}
		}
		if len(docs) != 1 {
			t.Errorf("%s: package docs in %v: want exactly one", p.ImportPath, docs)
		}
	}
}

// picture returns the layers of ARCHITECTURE.md's picture, the top one first: the parts before the description of each
// line.
func picture(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```picture\n")
	block, _, closed := strings.Cut(block, "\n```")
	if !found || !closed {
		t.Fatal("ARCHITECTURE.md has no block ```picture")
	}
	var layers [][]string
	for line := range strings.Lines(block) {
		parts, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "   ")
		layers = append(layers, strings.Fields(parts))
	}
	return layers
}

func TestThePictureOfTheHouseIsTrue(t *testing.T) {
	layer := make(map[string]int)
	for i, parts := range picture(t) {
		for _, p := range parts {
			if _, twice := layer[p]; twice {
				t.Errorf("the picture shows %s twice", p)
			}
			layer[p] = i
		}
	}
	seen := make(map[string]bool)
	for _, p := range listPackages(t) {
		from, ok := part(p.ImportPath)
		if !ok {
			continue
		}
		seen[from] = true
		if _, shown := layer[from]; !shown {
			t.Errorf("the picture in ARCHITECTURE.md lacks %s", from)
		}
		for _, i := range p.Imports {
			if to, ours := part(i); ours && to != from && layer[to] <= layer[from] {
				t.Errorf("%s imports %s, which the picture in ARCHITECTURE.md does not show below it", p.ImportPath, to)
			}
		}
	}
	for p := range layer {
		if !seen[p] {
			t.Errorf("the picture shows %s, which is no part", p)
		}
	}
}

// filesInText and testsInText match the paths of Go files and the tests that documents name.
var (
	filesInText = regexp.MustCompile("`([a-z]+(?:/[a-z]+)*/[a-z_]+\\.go)`")
	testsInText = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testsInCode = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)`)
)

func TestDocumentsNameFilesAndTestsThatExist(t *testing.T) {
	tests := make(map[string]bool)
	if err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testsInCode.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, "ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range filesInText.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
		for _, name := range testsInText.FindAllString(string(text), -1) {
			if !tests[name] {
				t.Errorf("%s names the test %s, which does not exist", path, name)
			}
		}
	}
}
