// Package option says what a setting is, and what is wrong with one.
//
// The struct of a package's options is the one definition of its keys: [Field] says how. Every package that takes
// options reports each problem as an [*Error] that names the key, the value and what is allowed. [Problems] collects
// them, so that a user sees all of them at once and none that follows from another, and [Under] puts a section before
// their keys when one package's options are part of another's configuration. What it leaves to others: decoding, and
// the options.
package option

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Error is one setting out of its range.
type Error struct {
	Key   string // as a configuration spells it, sections included: replay.max_staleness
	Value any    // as given
	Want  string // what is allowed: "0 (no limit) or more"
	Meant string // of a key that there is not, the one that was probably meant, and so not given; "" if unknown

	relation bool // between keys, each of which may be right by itself
}

// Error reads: replay.max_staleness: -1: want 0 (no limit) or more
func (e *Error) Error() string {
	value := fmt.Sprint(e.Value)
	if value == "" {
		value = `""`
	}
	return fmt.Sprintf("%s: %s: want %s", e.Key, value, e.Want)
}

// At returns the error under another key.
func (e *Error) At(key string) *Error {
	moved := *e
	moved.Key = key
	return &moved
}

// Problems collects what is wrong with a set of options. The zero value has none.
type Problems []error

// Check adds an [*Error] unless ok.
func (p *Problems) Check(ok bool, key string, value any, want string, args ...any) {
	if !ok {
		*p = append(*p, &Error{Key: key, Value: value, Want: fmt.Sprintf(want, args...)})
	}
}

// CheckWith is Check of a key against others, which are given with spaces between them. If the key or one of them is
// wrong by itself, nothing is said of what may only follow from that.
func (p *Problems) CheckWith(others string, ok bool, key string, value any, want string, args ...any) {
	if keys := append(strings.Fields(others), key); !ok && !p.has(keys, false) && !p.mistyped(key, value) {
		*p = append(*p, &Error{Key: key, Value: value, Want: fmt.Sprintf(want, args...), relation: true})
	}
}

// Has reports whether one of the problems is of one of the keys.
func (p *Problems) Has(keys ...string) bool { return p.has(keys, true) }

func (p *Problems) has(keys []string, relations bool) bool {
	return slices.ContainsFunc(*p, func(err error) bool {
		var problem *Error
		return errors.As(err, &problem) && slices.Contains(keys, problem.Key) && (relations || !problem.relation)
	})
}

// mistyped reports whether a key has its zero value because it was probably meant by one that there is not.
func (p Problems) mistyped(key string, value any) bool {
	if v := reflect.ValueOf(value); v.IsValid() && !v.IsZero() {
		return false
	}
	return slices.ContainsFunc(p, func(err error) bool {
		var problem *Error
		return errors.As(err, &problem) && problem.Meant == key
	})
}

// Add adds errors, joined ones one by one, and leaves nil out.
func (p *Problems) Add(errs ...error) {
	for _, err := range errs {
		*p = append(*p, Each(err)...)
	}
}

// AddNew is Add, but skips errors of keys that were reported before: of a value that could not be read, checks see what
// stands in for it.
func (p *Problems) AddNew(errs ...error) {
	before := *p
	for _, err := range Each(errors.Join(errs...)) {
		var problem *Error
		if !errors.As(err, &problem) || !before.has([]string{problem.Key}, false) &&
			!before.mistyped(problem.Key, problem.Value) {
			*p = append(*p, err)
		}
	}
}

// In lets check add the problems of a section, whose keys it spells without. It finds those that the section has. If
// the section itself was malformed, check is not called.
func (p *Problems) In(section string, check func(p *Problems)) {
	if p.Has(section) {
		return
	}
	var own Problems
	for _, err := range *p {
		var problem *Error
		if errors.As(err, &problem) {
			if key, below := strings.CutPrefix(problem.Key, section+"."); below {
				moved := problem.At(key)
				moved.Meant = strings.TrimPrefix(problem.Meant, section+".")
				own = append(own, moved)
			}
		}
	}
	found := len(own)
	check(&own)
	p.Add(Under(section, own[found:].Err()))
}

// Line returns the problems in one line.
func (p Problems) Line() string { return strings.ReplaceAll(p.Err().Error(), "\n", "; ") }

// Err returns the problems joined, nil if there are none.
func (p Problems) Err() error { return errors.Join(p...) }

// Each returns the errors that [errors.Join] joined, err alone if it is not joined, none if it is nil.
func Each(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, Each(e)...)
		}
		return all
	}
	return []error{err}
}

// Under puts "section." before the key of each [*Error] in err. Other errors are wrapped as they are.
func Under(section string, err error) error {
	var all []error
	for _, e := range Each(err) {
		var problem *Error
		if errors.As(e, &problem) {
			e = problem.At(section + "." + problem.Key)
		} else {
			e = fmt.Errorf("%s: %w", section, e)
		}
		all = append(all, e)
	}
	return errors.Join(all...)
}

// Difference is one key at which two sets of options differ.
type Difference struct {
	Key  string // sections included, as in [Error]
	A, B string // both values as JSON; "none" where a set lacks the key
}

// Differences compares two sets of options by their JSON forms and returns the keys that differ, in order. A type that
// cannot be written as JSON is a mistake of the program, and panics.
func Differences(a, b any) []Difference {
	x, y := flatten(a), flatten(b)
	keys := maps.Clone(x)
	maps.Copy(keys, y)
	var list []Difference
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if x[key] != y[key] {
			list = append(list, Difference{key, cmp.Or(x[key], "none"), cmp.Or(y[key], "none")})
		}
	}
	return list
}

// flatten returns the leaves of a value's JSON object under dotted keys. A list is one leaf.
func flatten(v any) map[string]string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	leaves := make(map[string]string)
	var walk func(prefix string, text json.RawMessage)
	walk = func(prefix string, text json.RawMessage) {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil || object == nil {
			leaves[strings.TrimSuffix(prefix, ".")] = string(text)
			return
		}
		for key, value := range object {
			walk(prefix+key+".", value)
		}
	}
	walk("", text)
	delete(leaves, "") // of a value that is no object
	return leaves
}
