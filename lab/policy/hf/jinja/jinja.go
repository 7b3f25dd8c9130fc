// Package jinja renders chat templates: the part of the Jinja language that they use, as transformers renders it, with
// trim_blocks, lstrip_blocks, loop controls and immutable values.
//
// [Parse] reads a template and [Template.Render] renders it. A template may come from anywhere: it reads what it is
// given and nothing else, and its size, nesting and work are bounded. It may use the statements if, for, set, macro,
// generation, break and continue, and expressions with the usual operators, methods, filters and tests. Parse refuses
// other statements. Another filter, method or test is an error only if it is reached, so that the branches for tools
// need not be understood.
//
// Lists and tuples are one type, as are a tuple's and a list's texts. Integers of 2^53 or more are an error.
package jinja

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of a template.
const (
	maxSource    = 128 << 10 // bytes
	maxWork      = 1 << 24   // expressions and statements evaluated, and bytes of values made, in one rendering
	bytesOfValue = 16
	tooLarge     = 1 << 53 // integers are smaller, so that floats compare and compute them exactly
)

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct{ body []statement }

// Dict is a dictionary in its order. Keys are distinct.
type Dict []Pair

// Pair is a key and its value.
type Pair struct {
	Key   string
	Value any
}

// Func is a function that templates may call with strings.
type Func func(args ...string) (string, error)

// failure is what ends parsing or rendering.
type failure struct{ error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// catch makes an error of a failure.
func catch(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = f.error
	default:
		panic(f)
	}
}

// Parse reads a template.
func Parse(source string) (t *Template, err error) {
	defer catch(&err)
	if len(source) > maxSource {
		return nil, fmt.Errorf("%d bytes: want at most %d", len(source), maxSource)
	}
	p := &parser{tokens: lex(source)}
	body, _ := p.body()
	return &Template{body}, nil
}

// Render returns the text of a template for variables, whose values are nil, bool, int, float64, string, []any, [Dict]
// or [Func].
func (t *Template) Render(variables map[string]any) (rendered string, err error) {
	defer catch(&err)
	r := &rendering{left: maxWork, scope: &scope{vars: map[string]any{}}}
	r.scope.vars["namespace"] = function(newNamespace)
	r.scope.vars["range"] = function(rangeOf)
	r.scope.vars["dict"] = function(newDict)
	for name, v := range variables {
		if f, ok := v.(Func); ok {
			v = function(f.call)
		}
		r.scope.vars[name] = v
	}
	r.scope = &scope{map[string]any{}, r.scope}
	r.run(t.body)
	return r.out.String(), nil
}

// call is the function as templates call it.
func (f Func) call(r *rendering, a arguments) any {
	var texts []string
	for _, v := range r.unnamed(a) {
		texts = append(texts, r.str(v))
	}
	result, err := f(texts...)
	if err != nil {
		r.fail("%w", err)
	}
	return result
}

// rendering is one use of a template.
type rendering struct {
	out   strings.Builder
	scope *scope
	left  int // of the work
	depth int
	line  int // of the latest statement
}

// scope is the variables of a template, a loop's turn or a macro's call.
type scope struct {
	vars  map[string]any
	outer *scope
}

// Values besides those of [Template.Render].
type (
	undefined string                              // the name of what is not defined
	namespace map[string]any                      // the one value that changes
	function  func(r *rendering, a arguments) any // also a macro, and a method with its value
	loop      struct {
		items []any
		index int
	}
)

var errTooMuch = errors.New("the template works too long or makes too large values")

func (r *rendering) fail(format string, args ...any) {
	fail("line %d: "+format, append([]any{r.line}, args...)...)
}

// charge takes work from what is left.
func (r *rendering) charge(n int) {
	if n < 0 || n > r.left {
		r.fail("%w", errTooMuch)
	}
	r.left -= n
}

// nest counts a level of nesting until the function returned is called.
func (r *rendering) nest() func() {
	if r.depth++; r.depth > maxDepth {
		r.fail("values or calls nested more than %d deep", maxDepth)
	}
	return func() { r.depth-- }
}

// enter begins a scope, until the function returned is called.
func (r *rendering) enter() func() {
	outer := r.scope
	r.scope = &scope{map[string]any{}, outer}
	return func() { r.scope = outer }
}

func (r *rendering) run(body []statement) signal {
	for _, s := range body {
		if stop := s(r); stop != proceed {
			return stop
		}
	}
	return proceed
}

func (r *rendering) write(s string) signal {
	r.charge(len(s))
	r.out.WriteString(s)
	return proceed
}

// capture returns what statements write.
func (r *rendering) capture(body []statement) string {
	defer r.nest()()
	defer r.enter()()
	outer := r.out
	r.out = strings.Builder{}
	defer func() { r.out = outer }()
	r.run(body)
	return r.out.String()
}

func (r *rendering) lookup(name string) any {
	for s := r.scope; s != nil; s = s.outer {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return undefined(name)
}

// assign sets one variable, or several to the elements of a list.
func (r *rendering) assign(names []string, v any) {
	if len(names) == 1 {
		r.scope.vars[names[0]] = v
		return
	}
	list := r.list(v)
	if len(list) != len(names) {
		r.fail("%d values for %d names", len(list), len(names))
	}
	for i, name := range names {
		r.scope.vars[name] = list[i]
	}
}

// all evaluates expressions to a list.
func (r *rendering) all(of []expression) []any {
	r.charge(len(of) * bytesOfValue)
	list := make([]any, len(of))
	for i, e := range of {
		list[i] = e(r)
	}
	return list
}

// bind returns arguments by the names of their parameters, and refuses any that have none.
func (r *rendering) bind(called string, a arguments, parameters ...string) bound {
	names := cmp.Or(strings.Join(parameters, ", "), "none")
	if len(a.list) > len(parameters) {
		r.fail("%s has too many arguments: want %s", called, names)
	}
	r.charge((1 + len(a.named)) * len(parameters))
	b := make(bound, len(a.list)+len(a.named))
	for i, v := range a.list {
		b[parameters[i]] = v
	}
	for _, p := range a.named {
		if !slices.Contains(parameters, p.Key) {
			r.fail("%s has an argument %s: want %s", called, p.Key, names)
		}
		if _, twice := b[p.Key]; twice {
			r.fail("%s has the argument %s twice", called, p.Key)
		}
		b[p.Key] = p.Value
	}
	return b
}

// unnamed returns arguments that must have no names.
func (r *rendering) unnamed(a arguments) []any {
	if len(a.named) > 0 {
		r.fail("argument %s: want it without its name", a.named[0].Key)
	}
	return a.list
}

// bound are arguments by the names of their parameters.
type bound map[string]any

// or returns an argument, or a default if it is not given.
func (b bound) or(name string, otherwise any) any {
	if v, given := b[name]; given {
		return v
	}
	return otherwise
}

// want returns an argument that must be given.
func (r *rendering) want(b bound, name string) any {
	v, given := b[name]
	if !given {
		r.fail("argument %s is missing", name)
	}
	return v
}

// text returns an argument that must be a string.
func (r *rendering) text(b bound, name string) string {
	s, ok := r.want(b, name).(string)
	if !ok {
		r.fail("argument %s: %s: want a string", name, r.describe(b[name]))
	}
	return s
}

func (r *rendering) call(f any, a arguments) any {
	callable, ok := f.(function)
	if !ok {
		r.fail("%s cannot be called", r.describe(f))
	}
	return callable(r, a)
}

// attribute returns v.name.
func (r *rendering) attribute(v any, name string) any {
	if m := r.method(v, name); m != nil {
		return m
	}
	switch v := v.(type) {
	case undefined:
		r.fail("%s has no attribute %s", r.describe(v), name)
	case Dict:
		if value, ok := r.get(v, name); ok {
			return value
		}
	case namespace:
		if value, ok := v[name]; ok {
			return value
		}
	case loop:
		return v.attribute(name)
	}
	return undefined(name)
}

// attribute returns loop.name.
func (l loop) attribute(name string) any {
	last := len(l.items) - 1
	switch name {
	case "index":
		return l.index + 1
	case "index0":
		return l.index
	case "revindex":
		return last - l.index + 1
	case "revindex0":
		return last - l.index
	case "first":
		return l.index == 0
	case "last":
		return l.index == last
	case "length":
		return last + 1
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1]
		}
	case "nextitem":
		if l.index < last {
			return l.items[l.index+1]
		}
	}
	return undefined("loop." + name)
}

func (r *rendering) get(d Dict, key string) (any, bool) {
	r.charge(len(d))
	for _, p := range d {
		if p.Key == key {
			return p.Value, true
		}
	}
	return nil, false
}

// with returns a dictionary, which must be the caller's own, with another value of a key.
func (r *rendering) with(d Dict, key string, v any) Dict {
	r.charge(len(d))
	for i := range d {
		if d[i].Key == key {
			d[i].Value = v
			return d
		}
	}
	return append(d, Pair{key, v})
}

// item returns v[key].
func (r *rendering) item(v, key any) any {
	if s, ok := key.(string); ok {
		if d, ok := v.(Dict); ok {
			if value, ok := r.get(d, s); ok {
				return value
			}
		}
		return r.attribute(v, s)
	}
	if u, ok := v.(undefined); ok {
		r.fail("%s has no items", r.describe(u))
	}
	if i, ok := key.(int); ok {
		var list []any
		switch v.(type) {
		case string, []any:
			list = r.list(v)
		}
		if i < 0 {
			i += len(list)
		}
		if i >= 0 && i < len(list) {
			return list[i]
		}
	}
	return undefined(r.str(key))
}

// slice returns v[from:to:step] of a string or a list.
func (r *rendering) slice(v any, bounds [3]any) any {
	list := r.list(v)
	n := len(list)
	step := 1
	if bounds[2] != nil {
		step = r.integer(bounds[2])
	}
	if step == 0 {
		r.fail("a slice has step 0")
	}
	least, most := 0, n
	if step < 0 {
		least, most = -1, n-1
	}
	bound := func(i, otherwise int) int {
		if bounds[i] == nil {
			return otherwise
		}
		at := r.integer(bounds[i])
		if at < 0 {
			at += n
		}
		return min(max(at, least), most)
	}
	from, to := bound(0, least), bound(1, most)
	if step < 0 {
		from, to = bound(0, most), bound(1, least)
	}
	var out []any
	for at := from; step > 0 && at < to || step < 0 && at > to; at += step {
		out = append(out, list[at])
		if step > n || step < -n {
			break
		}
	}
	r.charge(len(out) * bytesOfValue)
	if _, ok := v.(string); ok {
		return r.join(out, "")
	}
	return out
}

func newNamespace(r *rendering, a arguments) any {
	space := namespace{}
	for _, p := range r.dict(a) {
		space[p.Key] = p.Value
	}
	return space
}

func newDict(r *rendering, a arguments) any { return r.dict(a) }

// dict returns a dictionary, if one is given, with the values that are named.
func (r *rendering) dict(a arguments) Dict {
	var d Dict
	if len(a.list) > 0 {
		given, ok := a.list[0].(Dict)
		if !ok || len(a.list) > 1 {
			r.fail("dict or namespace: want at most one dictionary, and named values")
		}
		r.charge(len(given) * bytesOfValue)
		d = slices.Clone(given)
	}
	for _, p := range a.named {
		d = r.with(d, p.Key, p.Value)
	}
	return d
}

func rangeOf(r *rendering, a arguments) any {
	bounds := []int{0, 0, 1} // from, to, step
	switch len(r.unnamed(a)) {
	case 1:
		bounds[1] = r.integer(a.list[0])
	case 2, 3:
		for i, v := range a.list {
			bounds[i] = r.integer(v)
		}
	default:
		r.fail("range has %d arguments: want 1 to 3", len(a.list))
	}
	from, to, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		r.fail("range has step 0")
	}
	var list []any
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		r.charge(bytesOfValue)
		list = append(list, i)
	}
	return list
}
