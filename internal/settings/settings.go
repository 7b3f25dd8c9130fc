// Package settings reads settings into the structs that define them (package rollout/option): from YAML, from JSON, and
// from assignments key=value.
//
// Reading is strict. Unlike a decoder that ends at its first problem it reports all of them, each an [*option.Error]
// with its full key: unknown keys with the one that was probably meant, and values of a wrong kind. What is given
// replaces what a struct holds, and what is not stays. A section that a pointer leads to begins with its defaults.
// What it leaves to others: ranges, and how settings fit one another.
package settings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Reader reads settings. The zero value is ready to use.
type Reader struct {
	Synonyms  map[string]string     // names that other programs use, to keys; with their section where it matters
	Elsewhere func(key string) bool // keys that are not to be given, and so never suggested; nil: none
	Hidden    bool                  // errors show no values, which may be secrets

	problems *option.Problems // found so far
	root     reflect.Type     // whose keys are suggested
	section  string           // of the root
	source   *source          // nil: no text, or one of JSON
	strict   bool             // text is no number, as in JSON; to this YAML 1e-8 is text
}

// maxProblems bounds what is reported of one text: whoever sends it may have written anything.
const maxProblems = 100

// YAML reads a mapping, and says in which lines the problems are. An empty text changes nothing.
func (r Reader) YAML(text []byte, into any) error {
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		var found yaml.Error
		if errors.As(err, &found) && found.GetToken() != nil {
			message := found.GetMessage()
			if r.Hidden {
				message = "not valid YAML"
			}
			return fmt.Errorf("line %d: %s", found.GetToken().Position.Line, message)
		}
		return errors.New("not a YAML mapping")
	}
	r.source = &source{text: text}
	return r.Tree("", tree, into)
}

// JSON reads an object.
func (r Reader) JSON(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree map[string]any
	if err := decoder.Decode(&tree); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value: want one object")
	}
	r.strict = true
	return r.Tree("", tree, into)
}

// Assign reads assignments such as replay.capacity=2048, whose values are YAML, one after the other.
func (r Reader) Assign(assignments []string, into any) error {
	var problems option.Problems
	for _, a := range assignments {
		key, value, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			problems.Add(fmt.Errorf("--set %q: want key=value, for example replay.capacity=2048", a))
			continue
		}
		tree := make(map[string]any)
		if err := Set(tree, key, value); err != nil {
			problems.Add(fmt.Errorf("--set %w", err))
			continue
		}
		problems.Add(r.Tree("", tree, into))
	}
	return problems.Err()
}

// Set puts a value, written as YAML, into a tree under a key with dots.
func Set(tree map[string]any, key, value string) error {
	var parsed any
	if err := yaml.Unmarshal([]byte(value), &parsed); err != nil {
		return fmt.Errorf("%s: %q is not valid YAML: try quoting it", key, value)
	}
	path := strings.Split(key, ".")
	for _, section := range path[:len(path)-1] {
		below, ok := tree[section].(map[string]any)
		if tree[section] != nil && !ok {
			return fmt.Errorf("%s: given as a value too", key)
		}
		if !ok {
			below = make(map[string]any)
			tree[section] = below
		}
		tree = below
	}
	last := path[len(path)-1]
	if _, taken := tree[last]; taken {
		return fmt.Errorf("%s: given twice", key)
	}
	tree[last] = parsed
	return nil
}

// Tree reads a mapping that stands in a section, "" for none, into the struct that into points to.
func (r Reader) Tree(section string, tree map[string]any, into any) error {
	var problems option.Problems
	v := reflect.ValueOf(into).Elem()
	r.problems, r.root, r.section = &problems, v.Type(), section
	r.tree(place{key: section}, tree, v)
	return problems.Err()
}

// place is where a value stands.
type place struct {
	key  string // with dots and [i]
	path []any  // keys and indices from the top of the source
}

func (p place) below(key string) place {
	return place{strings.TrimPrefix(p.key+"."+key, "."), append(slices.Clip(p.path), key)}
}

func (p place) item(i int) place {
	return place{p.key + "[" + strconv.Itoa(i) + "]", append(slices.Clip(p.path), i)}
}

// wrong reports a value.
func (r Reader) wrong(at place, value any, want string) {
	if r.Hidden {
		value = "a value that is not shown"
	} else if text := fmt.Sprint(value); len(text) > 80 {
		value = strings.ToValidUTF8(text[:80], "") + "…"
	}
	r.add(at, &option.Error{Key: at.key, Value: value, Want: want})
}

// add reports a problem.
func (r Reader) add(at place, err error) {
	if r.full() {
		return
	}
	if line := r.source.line(at.path); line > 0 {
		err = fmt.Errorf("line %d: %w", line, err)
	}
	r.problems.Add(err)
}

func (r Reader) full() bool { return len(*r.problems) >= maxProblems }

func (r Reader) tree(at place, tree map[string]any, into reflect.Value) {
	fields := make(map[string]option.Field)
	for f := range option.Fields(into) {
		fields[f.Key] = f
	}
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if f, known := fields[key]; known {
			r.value(at.below(key), tree[key], f.Value)
		} else if !r.full() {
			want, meant := r.suggest(at, key, into.Type())
			r.add(at.below(key), &option.Error{Key: at.below(key).key, Value: "unknown key", Want: want, Meant: meant})
		}
	}
}

// value sets a field.
func (r Reader) value(at place, given any, field reflect.Value) {
	switch kind := field.Type(); {
	case given == nil: // "key:" with nothing behind it
	case kind.Kind() == reflect.Pointer:
		fresh := reflect.New(kind.Elem())
		if kind.Elem().Kind() == reflect.Struct {
			option.Fill(fresh.Interface())
		}
		r.value(at, given, fresh.Elem())
		field.Set(fresh)
	case kind.Kind() == reflect.Struct:
		if tree, ok := given.(map[string]any); ok {
			r.tree(at, tree, field)
			return
		}
		r.wrong(at, given, r.kindOf(kind))
	case kind == reflect.TypeFor[map[string]any](): // which others read
		tree, ok := given.(map[string]any)
		if !ok {
			r.wrong(at, given, r.kindOf(kind))
			return
		}
		merged := maps.Clone(field.Interface().(map[string]any))
		if merged == nil {
			merged = make(map[string]any)
		}
		maps.Copy(merged, tree)
		field.Set(reflect.ValueOf(merged))
	case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct:
		list, ok := given.([]any)
		if !ok {
			r.wrong(at, given, r.kindOf(kind))
			return
		}
		fresh := reflect.MakeSlice(kind, len(list), len(list))
		for i, item := range list {
			r.value(at.item(i), item, fresh.Index(i))
		}
		field.Set(fresh)
	default:
		r.leaf(at, given, field)
	}
}

// leaf sets a field that holds no struct.
func (r Reader) leaf(at place, given any, field reflect.Value) {
	kind := field.Kind()
	number := kind >= reflect.Int && kind <= reflect.Float64 && kind != reflect.Uintptr
	_, text := given.(string)
	_, own := reflect.New(field.Type()).Interface().(interface{ UnmarshalYAML([]byte) error })
	duration := field.Type() == reflect.TypeFor[time.Duration]()
	given = plain(given)
	switch x, float := given.(float64); {
	case r.strict && text && number && !own && !duration:
		r.wrong(at, strconv.Quote(given.(string)), r.kindOf(field.Type()))
		return
	case float && kind >= reflect.Int && kind <= reflect.Uint64 && !own && x != math.Trunc(x):
		r.wrong(at, given, r.kindOf(field.Type()))
		return
	case kind == reflect.String && !text && !own:
		if _, list := given.([]any); !list {
			given = cmp.Or[any](r.source.scalar(at.path), given)
		}
	}
	fresh := reflect.New(field.Type())
	written, err := yaml.Marshal(given)
	if err == nil {
		err = yaml.UnmarshalWithOptions(written, fresh.Interface(), yaml.DisallowUnknownField())
	}
	var overflow *yaml.OverflowError
	switch {
	case errors.As(err, &overflow) && !strings.HasPrefix(fmt.Sprint(given), "-"):
		r.wrong(at, given, "a smaller number")
	case err != nil:
		r.wrong(at, given, r.kindOf(field.Type()))
	default:
		field.Set(fresh.Elem())
	}
}

// plain returns a number of JSON as one of Go.
func plain(given any) any {
	n, ok := given.(json.Number)
	if !ok {
		return given
	}
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
		return u
	}
	x, err := n.Float64()
	if err != nil {
		return n.String()
	}
	return x
}

// kindOf names a type of values in the user's words.
func (r Reader) kindOf(t reflect.Type) string {
	if w, ok := reflect.Zero(t).Interface().(interface{ Want() string }); ok {
		return w.Want()
	}
	if e, ok := reflect.Zero(t).Interface().(option.Enumerated); ok {
		return option.List(e.Values())
	}
	if t == reflect.TypeFor[time.Duration]() {
		return "a time with its unit, such as 500ms, 30s or 5m"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.Struct {
			return "a list of mappings with " + strings.Join(Keys(e), ", ")
		}
		return "a list"
	case reflect.Struct:
		return "a mapping with " + strings.Join(Keys(t), ", ")
	case reflect.Map:
		return "a mapping"
	}
	return "text"
}

// Keys returns the keys of a struct.
func Keys(t reflect.Type) (keys []string) {
	for f := range option.Fields(reflect.Zero(t)) {
		keys = append(keys, f.Key)
	}
	return keys
}

// EveryKey returns the keys of a struct and of the structs in it that may be given, with their sections.
func (r Reader) EveryKey(section string, t reflect.Type) (keys []string) {
	for f := range option.Fields(reflect.Zero(t)) {
		full := strings.TrimPrefix(section+"."+f.Key, ".")
		of := f.Type
		if of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		switch {
		case r.Elsewhere != nil && r.Elsewhere(full):
		case of.Kind() == reflect.Struct && f.Type.Kind() == reflect.Struct:
			keys = append(keys, r.EveryKey(full, of)...)
		case of.Kind() == reflect.Struct:
			keys = append(append(keys, full), r.EveryKey(full, of)...)
		default:
			keys = append(keys, full)
		}
	}
	return keys
}

// suggest says which keys the user of an unknown one may have meant, or else which its section has; meant is the only
// one that it may be. Keys of the section itself come first, as others have such names too.
func (r Reader) suggest(at place, key string, t reflect.Type) (want, meant string) {
	possible := r.EveryKey(r.section, r.root)
	if now := r.Synonyms[key]; slices.Contains(possible, now) {
		return now, now
	} else if now != "" && !strings.Contains(now, ".") {
		key = now
	}
	own := slices.DeleteFunc(Keys(t), func(key string) bool {
		return r.Elsewhere != nil && r.Elsewhere(at.below(key).key)
	})
	near := make([]string, len(own))
	for i, key := range own {
		near[i] = at.below(key).key
	}
	for _, fits := range []func(last string) bool{
		func(last string) bool { return last == key }, func(last string) bool { return words.OneTypoApart(last, key) },
	} {
		for _, among := range [][]string{near, possible} {
			switch found := named(among, fits); len(found) {
			case 0:
			case 1:
				return found[0], found[0]
			default:
				return strings.Join(found, " or "), ""
			}
		}
	}
	return "one of " + strings.Join(own, ", "), ""
}

// named returns the keys whose last part fits.
func named(keys []string, fits func(last string) bool) (found []string) {
	for _, full := range keys {
		if fits(full[strings.LastIndex(full, ".")+1:]) {
			found = append(found, full)
		}
	}
	return found
}
