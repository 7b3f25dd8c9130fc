package reprise

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	beginOfWay = regexp.MustCompile(`(?m)^\*\*[^*]+\*\*(?: \((\d+) files\))?`)
	// nameInText matches what may be a name of Go: a word, or a type and its method or field. Keys of a configuration have
	// an underscore or a lower-case word after a dot.
	nameInText = regexp.MustCompile("`([A-Za-z]+(?:\\.[A-Z][A-Za-z]*)?)`")
)

// Whoever follows one of ARCHITECTURE.md's ways finds each name in one of the files that the way names, and as many
// files as it says.
func TestTheWaysThroughTheCodeAreAsTold(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, ways, _ := strings.Cut(string(text), "\n## Three ways through the code\n")
	ways, _, _ = strings.Cut(ways, "\n## ")
	begins := beginOfWay.FindAllStringSubmatchIndex(ways, -1)
	told := 0
	for i, begin := range begins {
		if begin[2] < 0 { // what lies beside a way
			continue
		}
		told++
		end := len(ways)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		way := ways[begin[0]:end]
		title := strings.SplitN(way, "**", 3)[1]
		files := make(map[string]bool)
		declared := make(map[string]bool)
		for _, m := range filesInText.FindAllStringSubmatch(way, -1) {
			if !files[m[1]] {
				files[m[1]] = true
				declare(t, declared, m[1])
			}
		}
		if want, _ := strconv.Atoi(ways[begin[2]:begin[3]]); len(files) != want {
			t.Errorf("%s: the way names %d files and says %d", title, len(files), want)
		}
		for _, m := range nameInText.FindAllStringSubmatch(way, -1) {
			of, name, ok := strings.Cut(m[1], ".")
			if !ok {
				name = of
			} else if _, err := os.Stat(of); err == nil { // a package says where its name is
				continue
			}
			if !declared[name] {
				t.Errorf("%s: none of the way's files declares %s", title, m[1])
			}
		}
	}
	if told != 3 {
		t.Errorf("%d ways are told, want 3", told)
	}
}

// declare adds the functions, methods, types and fields that a file declares.
func declare(t *testing.T, declared map[string]bool, path string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			declared[n.Name.Name] = true
			return false
		case *ast.TypeSpec:
			declared[n.Name.Name] = true
		case *ast.Field: // of a struct or an interface
			for _, name := range n.Names {
				declared[name.Name] = true
			}
		}
		return true
	})
}
