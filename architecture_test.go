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
		"option":     nil,
		"configs":    nil,
		"internal":   nil,
		"rollout":    nil,
		"advantage":  nil,
		"results":    nil,
		"design":     nil,
		"task":       {"rollout"},
		"objective":  nil,
		"policy":     {"rollout", "advantage", "objective", "task"},
		"replay":     {"rollout", "advantage"},
		"engine":     {"rollout"},
		"worker":     {"rollout", "task", "policy", "engine", "wire", "client"},
		"pipeline":   {"rollout", "advantage", "task"},
		"sim":        {"pipeline", "replay", "rollout", "task"},
		"report":     {"results", "design", "sim"},
		"board":      {"report", "results", "service"},
		"wire":       {"rollout", "replay"},
		"journal":    {"rollout", "wire", "replay"},
		"cluster":    {"wire", "journal"},
		"service":    {"rollout", "advantage", "replay", "wire", "journal", "cluster"},
		"client":     {"rollout", "replay", "wire"},
		"transfer":   {"rollout", "replay", "wire", "journal", "service", "client"},
		"benchmarks": {"rollout", "replay", "wire", "client", "results"},
		"run": {"pipeline", "policy", "replay", "task", "objective", "advantage", "rollout", "results",
			"wire", "client", "engine", "design"},
		"study":    {"run", "objective", "policy", "replay", "design", "results", "task"},
		"examples": {"run", "results", "task"},
	}
}

// shared lists the parts that everyone may import.
func shared() []string { return []string{"option", "internal"} }

// onlyStandard lists the parts that import the standard library and nothing else, but for what exceptions allow.
func onlyStandard() []string {
	return []string{"option", "configs", "internal", "rollout", "advantage", "results", "design", "task"}
}

// exceptions are the packages of such parts that may import modules all the same, by what their paths begin with.
func exceptions() map[string]string {
	return map[string]string{module + "/task/search": "github.com/blevesearch/bleve",
		module + "/results": "gonum.org/v1/gonum/stat"}
}

// neverTensors lists the parts that must not reach gomlx, by however many steps.
func neverTensors() []string {
	return []string{"option", "internal", "rollout", "advantage", "results", "design", "task", "replay", "pipeline",
		"engine", "worker", "sim", "report", "board", "wire", "journal", "service", "client", "transfer"}
}

// narrower lists packages that may import less of this module than their part: sim and clients divide without a table.
func narrower() map[string][]string {
	return map[string][]string{module + "/replay/split": {"rollout"}}
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

// listPackages returns the packages of this module, without those that have only tests.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Deps,GoFiles,Standard", "./...").Output()
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

// part returns the top folder of a package of this module.
func part(path string) (string, bool) {
	below, ok := strings.CutPrefix(path, module+"/")
	top, _, _ := strings.Cut(below, "/")
	return top, ok
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
			except, ok := exceptions()[p.ImportPath]
			if slices.Contains(onlyStandard(), from) && strings.Contains(strings.Split(i, "/")[0], ".") &&
				!strings.HasPrefix(i, module) &&
				!(ok && strings.HasPrefix(i, except)) {
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
	for _, path := range append(paths, "ARCHITECTURE.md", "README.md", "CONTRIBUTING.md") {
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
