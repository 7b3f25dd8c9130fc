// Package reference writes what people read of settings from the structs that define them (package rollout/option):
// keys, defaults and ranges from their tags, values from their types, and meanings from the comments in the source.
// Tests use it to keep docs/reference.md and Python's keyword arguments true.
package reference

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/rollout/option"
)

// module is the import path of the repository's root.
const module = "github.com/reprise-rl/reprise"

// Writer writes sections of a reference page, and [Writer.Python] a module. Root is the repository's root folder, where
// it reads the source.
type Writer struct {
	Root     string
	Skip     []string                                // keys to leave out of the next tables
	comments map[string]map[string]map[string]string // by package path, type and field
	out      strings.Builder
	err      error
}

// String returns the page so far, and Err the first error.
func (w *Writer) String() string { return w.out.String() }

// Err returns the first error.
func (w *Writer) Err() error { return w.err }

// Text writes a paragraph or a heading.
func (w *Writer) Text(format string, args ...any) {
	fmt.Fprintf(&w.out, format+"\n\n", args...)
}

// Table writes the keys of a struct, embedded structs included, as a Markdown table. A key's default is its value in
// defaults unless that is zero, then that of its tag, then what its comment names in brackets at the end. A key that
// holds a struct gets a row for each key of that struct, after a dot.
func (w *Writer) Table(defaults any) {
	w.out.WriteString("| key | default | meaning |\n|---|---|---|\n")
	w.rows("", reflect.ValueOf(defaults))
	w.out.WriteString("\n")
}

func (w *Writer) rows(prefix string, v reflect.Value) {
	for f := range option.Fields(v) {
		if !slices.Contains(w.Skip, prefix+f.Key) {
			w.row(prefix, f)
		}
	}
}

// row writes one key, or those of the struct it holds.
func (w *Writer) row(prefix string, f option.Field) {
	meaning, standard := w.meaning(f)
	if kind := pointed(f.Type); kind.Kind() == reflect.Struct && w.isOurs(kind) {
		v := f.Value
		if v.Kind() == reflect.Pointer {
			v = reflect.New(kind).Elem()
		}
		if meaning != "" && standard != "" {
			fmt.Fprintf(&w.out, "| `%s` | %s | %s |\n", prefix+f.Key, cell(standard), cell(meaning))
		}
		w.rows(prefix+f.Key+".", v)
		return
	}
	if meaning == "" {
		w.fail(fmt.Errorf("%s has no comment: say what it means", prefix+f.Key))
	}
	given := strings.ReplaceAll(fmt.Sprint(reflect.Indirect(f.Value)), "\n", `\n`)
	switch {
	case !f.Value.IsZero() && len(given) > 60:
		standard = "built in"
	case !f.Value.IsZero():
		standard = "`" + given + "`"
	case standard == "" && (given == "" || given == "<invalid Value>" || given == "[]" || given == "map[]"):
		standard = "none"
	case standard == "":
		standard = "`" + given + "`"
	case !strings.Contains(standard, " "):
		standard = "`" + standard + "`"
	}
	fmt.Fprintf(&w.out, "| `%s` | %s | %s |\n", prefix+f.Key, cell(standard), cell(meaning))
}

// meaning returns what a field means, with the values that it may have, and what it stands for if it is not given.
func (w *Writer) meaning(f option.Field) (meaning, standard string) {
	meaning = w.comment(f)
	if at := strings.LastIndex(meaning, " ["); at >= 0 && strings.HasSuffix(meaning, "]") {
		meaning, standard = meaning[:at], strings.TrimSuffix(meaning[at+2:], "]")
	}
	standard = cmp.Or(f.Tag.Get("default"), standard)
	if values := f.Values(); values != nil {
		meaning += ": " + option.List(values)
	} else if r, ok := f.Range(); ok && r.Brief() != "" {
		meaning += "; " + r.Brief()
	}
	return meaning, standard
}

// pointed returns the type that a pointer leads to, or the type itself.
func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func (w *Writer) isOurs(t reflect.Type) bool { return strings.HasPrefix(t.PkgPath(), module) }

func (w *Writer) fail(err error) { w.err = cmp.Or(w.err, err) }

// comment returns what the source says of a field: the comment above it, or the one behind it, on one line.
func (w *Writer) comment(f option.Field) string {
	w.load(f.Of.PkgPath())
	fields := w.comments[f.Of.PkgPath()][f.Of.Name()]
	if pkg, name, ok := strings.Cut(fields[definedAs], " "); ok {
		w.load(pkg)
		fields = w.comments[pkg][name]
	}
	return fields[f.Name]
}

// definedAs is the entry of a type that is defined as a struct of another package: its package and name.
const definedAs = "="

// importPath returns the path that a file imports under a name.
func importPath(file *ast.File, name string) string {
	for _, i := range file.Imports {
		if path := strings.Trim(i.Path.Value, `"`); strings.HasSuffix(path, "/"+name) {
			return path
		}
	}
	return ""
}

// load reads the comments of a package, once.
func (w *Writer) load(pkg string) {
	if w.comments == nil {
		w.comments = make(map[string]map[string]map[string]string)
	}
	if w.comments[pkg] == nil {
		types, err := readComments(filepath.Join(w.Root, strings.TrimPrefix(pkg, module)))
		w.fail(err)
		w.comments[pkg] = types
	}
}

func readComments(folder string) (map[string]map[string]string, error) {
	types := make(map[string]map[string]string)
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, cmp.Or(err, error(&fs.PathError{Op: "read the source", Path: folder, Err: fs.ErrNotExist}))
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			switch of := spec.Type.(type) {
			case *ast.StructType:
				types[spec.Name.Name] = fieldComments(of)
			case *ast.SelectorExpr: // type Settings dataset.Settings
				types[spec.Name.Name] = map[string]string{definedAs: importPath(file, fmt.Sprint(of.X)) + " " + of.Sel.Name}
			}
			return true
		})
	}
	return types, nil
}

func fieldComments(s *ast.StructType) map[string]string {
	fields := make(map[string]string)
	for _, f := range s.Fields.List {
		text := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
		for _, name := range f.Names {
			if f.Comment == nil { // "GroupSize is the number of …" above the field
				text = strings.TrimSuffix(strings.TrimPrefix(text, name.Name+" is "), ".")
			}
			fields[name.Name] = text
		}
	}
	return fields
}
