package jinja

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// truth is Python's.
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case Dict:
		return len(v) > 0
	}
	return true
}

// describe names a value in an error.
func (r *rendering) describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case undefined:
		return fmt.Sprintf("%q, which is not defined,", string(v))
	case bool, int, float64:
		return fmt.Sprint(v)
	case string:
		return fmt.Sprintf("%.40q", v)
	case []any:
		return "a list"
	case Dict:
		return "a dictionary"
	case namespace:
		return "a namespace"
	case loop:
		return "loop"
	}
	return "a function"
}

// str is Python's str.
func (r *rendering) str(v any) string {
	switch v := v.(type) {
	case undefined:
		return ""
	case string:
		return v
	}
	return r.encode(v, pythonText)
}

// notation is how values are spelled.
type notation struct {
	none, yes, no string
	quote         func(string) string
	indent        string // of a level; empty: one line
	comma         string
}

var pythonText = notation{"None", "True", "False", pythonQuote, "", ", "}

// encode spells a value.
func (r *rendering) encode(v any, n notation) string {
	var b strings.Builder
	r.encodeTo(&b, v, n, "\n")
	return b.String()
}

func (r *rendering) encodeTo(b *strings.Builder, v any, n notation, line string) {
	defer r.nest()()
	before := b.Len()
	inner, outer := "", ""
	if n.indent != "" {
		inner, outer = line+n.indent, line
	}
	switch v := v.(type) {
	case nil:
		b.WriteString(n.none)
	case bool:
		b.WriteString(map[bool]string{true: n.yes, false: n.no}[v])
	case int:
		b.WriteString(strconv.Itoa(v))
	case float64:
		b.WriteString(floatText(v))
	case string:
		b.WriteString(n.quote(v))
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(n.comma)
			}
			b.WriteString(inner)
			r.encodeTo(b, item, n, inner)
		}
		if len(v) > 0 {
			b.WriteString(outer)
		}
		b.WriteByte(']')
	case Dict:
		b.WriteByte('{')
		for i, p := range v {
			if i > 0 {
				b.WriteString(n.comma)
			}
			b.WriteString(inner + n.quote(p.Key) + ": ")
			r.encodeTo(b, p.Value, n, inner)
		}
		if len(v) > 0 {
			b.WriteString(outer)
		}
		b.WriteByte('}')
	default:
		r.fail("%s has no text", r.describe(v))
	}
	r.charge(b.Len() - before)
}

// floatText is Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	case f == math.Trunc(f) && math.Abs(f) < 1e16:
		return strconv.FormatFloat(f, 'f', 1, 64)
	case math.Abs(f) >= 1e-4 && math.Abs(f) < 1e16:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'e', -1, 64)
}

// pythonQuote is Python's repr of a string, but for characters that are not printable.
func pythonQuote(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	return quote + strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, quote, `\`+quote).Replace(s) + quote
}

// jsonQuote is json.dumps of a string with ensure_ascii false.
func jsonQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c < ' ':
			if i := strings.IndexRune("\b\f\n\r\t", c); i >= 0 {
				b.WriteString(`\` + "bfnrt"[i:i+1])
			} else {
				fmt.Fprintf(&b, `\u%04x`, c)
			}
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// list returns the elements of a value: characters of a string, keys of a dictionary.
func (r *rendering) list(v any) []any {
	switch v := v.(type) {
	case undefined:
		return nil
	case []any:
		return v
	case string:
		r.charge(len(v) * bytesOfValue)
		list := make([]any, 0, len(v))
		for _, c := range v {
			list = append(list, string(c))
		}
		return list
	case Dict:
		r.charge(len(v) * bytesOfValue)
		list := make([]any, len(v))
		for i, p := range v {
			list[i] = p.Key
		}
		return list
	}
	r.fail("%s has no elements", r.describe(v))
	return nil
}

// integer returns an int or a bool as a number.
func (r *rendering) integer(v any) int {
	switch v := v.(type) {
	case int:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	}
	r.fail("%s: want an integer", r.describe(v))
	return 0
}

// number returns the value of a number.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	case bool:
		return map[bool]float64{true: 1}[v], true
	}
	return 0, false
}

// equal is Python's ==.
func (r *rendering) equal(a, b any) bool {
	defer r.nest()()
	r.charge(1)
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case string:
		b, ok := b.(string)
		r.charge(min(len(a), len(b)))
		return ok && a == b
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, r.equal)
	case Dict:
		b, ok := b.(Dict)
		if !ok || len(a) != len(b) {
			return false
		}
		for _, p := range a {
			if v, has := r.get(b, p.Key); !has || !r.equal(p.Value, v) {
				return false
			}
		}
		return true
	}
	return false
}

// order compares numbers or strings.
func (r *rendering) order(a, b any) int {
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return cmp.Compare(x, y)
		}
	}
	x, ok1 := a.(string)
	y, ok2 := b.(string)
	if !ok1 || !ok2 {
		r.fail("%s and %s have no order", r.describe(a), r.describe(b))
	}
	r.charge(min(len(x), len(y)))
	return strings.Compare(x, y)
}

// contains is the operator in.
func (r *rendering) contains(v, in any) bool {
	switch in := in.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			r.fail("%s in a string: want a string", r.describe(v))
		}
		r.charge(len(in))
		return strings.Contains(in, s)
	case Dict:
		s, ok := v.(string)
		_, has := r.get(in, s)
		return ok && has
	}
	return slices.ContainsFunc(r.list(in), func(item any) bool { return r.equal(v, item) })
}

// compare applies an operator of comparison.
func (r *rendering) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(a, b)
	case "not in":
		return !r.contains(a, b)
	case "<":
		return r.order(a, b) < 0
	case "<=":
		return r.order(a, b) <= 0
	case ">":
		return r.order(a, b) > 0
	}
	return r.order(a, b) >= 0
}

// operate applies an operator of two values.
func (r *rendering) operate(op string, a, b any) any {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok && op == "+" {
			return r.join([]any{x, y}, "")
		}
		if n, ok := b.(int); ok && op == "*" {
			r.chargeTimes(len(x), n)
			return strings.Repeat(x, max(n, 0))
		}
	case []any:
		if y, ok := b.([]any); ok && op == "+" {
			r.charge((len(x) + len(y)) * bytesOfValue)
			return slices.Concat(x, y)
		}
	}
	if op == "~" {
		return r.join([]any{a, b}, "")
	}
	x, ok1 := number(a)
	y, ok2 := number(b)
	if !ok1 || !ok2 {
		r.fail("%s %s %s: want numbers, or texts to join", r.describe(a), op, r.describe(b))
	}
	var f float64
	switch op {
	case "+":
		f = x + y
	case "-":
		f = x - y
	case "*":
		f = x * y
	case "**":
		f = math.Pow(x, y)
	default:
		if y == 0 {
			r.fail("division by zero")
		}
		f = x / y
		if op == "//" {
			f = math.Floor(f)
		} else if op == "%" {
			f = x - y*math.Floor(x/y)
		}
	}
	_, floatA := a.(float64)
	_, floatB := b.(float64)
	if floatA || floatB || op == "/" || op == "**" && y < 0 {
		return f
	}
	if math.Abs(f) > 1<<53 {
		r.fail("a number is beyond 2^53")
	}
	return int(f)
}

// chargeTimes charges for n copies of a size.
func (r *rendering) chargeTimes(size, n int) {
	if n > 0 && size > r.left/n {
		r.charge(r.left + 1)
	}
	r.charge(size * max(n, 0))
}

// join joins the texts of values.
func (r *rendering) join(list []any, separator string) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = r.str(v)
		r.charge(len(texts[i]) + len(separator))
	}
	return strings.Join(texts, separator)
}

// sorted returns a dictionary of named values, in the order of their names.
func (r *rendering) sorted(named map[string]any) Dict {
	var d Dict
	for _, k := range slices.Sorted(maps.Keys(named)) {
		d = append(d, Pair{k, named[k]})
	}
	return d
}

// method returns a method of a value, nil if it has none of that name.
func (r *rendering) method(v any, name string) any {
	switch v := v.(type) {
	case string:
		if m := stringMethods()[name]; m != nil {
			return function(func(r *rendering, a arguments) any {
				r.charge(len(v) * 2)
				return m(r, v, a)
			})
		}
	case Dict:
		switch name {
		case "get":
			return function(func(r *rendering, a arguments) any {
				key, _ := a.or(0, "key", nil).(string)
				if value, ok := r.get(v, key); ok {
					return value
				}
				return a.or(1, "default", nil)
			})
		case "keys", "values", "items":
			return function(func(r *rendering, _ arguments) any { return r.items(v, name) })
		}
	}
	return nil
}

// items returns the keys, the values or both of a dictionary.
func (r *rendering) items(d Dict, which string) []any {
	r.charge(3 * len(d) * bytesOfValue)
	list := make([]any, len(d))
	for i, p := range d {
		switch which {
		case "keys":
			list[i] = p.Key
		case "values":
			list[i] = p.Value
		default:
			list[i] = []any{p.Key, p.Value}
		}
	}
	return list
}

// stringMethods returns the methods of strings.
func stringMethods() map[string]func(r *rendering, s string, a arguments) any {
	return map[string]func(r *rendering, s string, a arguments) any{
		"strip":      func(r *rendering, s string, a arguments) any { return r.strip(s, a, true, true) },
		"lstrip":     func(r *rendering, s string, a arguments) any { return r.strip(s, a, true, false) },
		"rstrip":     func(r *rendering, s string, a arguments) any { return r.strip(s, a, false, true) },
		"upper":      func(_ *rendering, s string, _ arguments) any { return strings.ToUpper(s) },
		"lower":      func(_ *rendering, s string, _ arguments) any { return strings.ToLower(s) },
		"capitalize": func(_ *rendering, s string, _ arguments) any { return capitalize(s) },
		"title":      func(_ *rendering, s string, _ arguments) any { return title(s) },
		"startswith": func(r *rendering, s string, a arguments) any { return r.anyOf(s, a, strings.HasPrefix) },
		"endswith":   func(r *rendering, s string, a arguments) any { return r.anyOf(s, a, strings.HasSuffix) },
		"split":      (*rendering).split,
		"replace":    (*rendering).replace,
		"find": func(r *rendering, s string, a arguments) any {
			before, _, found := strings.Cut(s, r.textAt(a, 0, "sub"))
			if !found {
				return -1
			}
			return utf8.RuneCountInString(before)
		},
		"count": func(r *rendering, s string, a arguments) any { return strings.Count(s, r.textAt(a, 0, "sub")) },
		"join":  func(r *rendering, s string, a arguments) any { return r.join(r.list(a.or(0, "", nil)), s) },
		"removeprefix": func(r *rendering, s string, a arguments) any {
			return strings.TrimPrefix(s, r.textAt(a, 0, "prefix"))
		},
		"removesuffix": func(r *rendering, s string, a arguments) any {
			return strings.TrimSuffix(s, r.textAt(a, 0, "suffix"))
		},
	}
}

// textAt returns an argument that must be a string.
func (r *rendering) textAt(a arguments, i int, name string) string {
	v := a.or(i, name, nil)
	s, ok := v.(string)
	if !ok {
		r.fail("argument %s: %s: want a string", name, r.describe(v))
	}
	return s
}

// strip removes characters, by default white space, from the ends of a text.
func (r *rendering) strip(s string, a arguments, left, right bool) string {
	cutset := " \t\n\r\f\v\x1c\x1d\x1e\x1f\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008" +
		"\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
	if a.or(0, "chars", nil) != nil {
		cutset = r.textAt(a, 0, "chars")
		r.chargeTimes(len(s), utf8.RuneCountInString(cutset))
	}
	if left {
		s = strings.TrimLeft(s, cutset)
	}
	if right {
		s = strings.TrimRight(s, cutset)
	}
	return s
}

// anyOf applies a test of two strings to one string, or several in a list.
func (r *rendering) anyOf(s string, a arguments, test func(s, part string) bool) bool {
	parts, ok := a.or(0, "", nil).([]any)
	if !ok {
		parts = []any{r.textAt(a, 0, "")}
	}
	for _, p := range parts {
		if part, ok := p.(string); ok && test(s, part) {
			return true
		}
	}
	return false
}

// split divides a text at a separator, at white space without one, at most so many times.
func (r *rendering) split(s string, a arguments) any {
	r.charge(len(s) * bytesOfValue)
	most := r.integer(a.or(1, "maxsplit", -1))
	var parts []string
	switch separator := a.or(0, "sep", nil).(type) {
	case nil:
		if most >= 0 {
			r.fail("split: maxsplit without a separator is not supported")
		}
		parts = strings.Fields(s)
	case string:
		if separator == "" {
			r.fail("split: the separator is empty")
		}
		parts = strings.SplitN(s, separator, max(most, -2)+1)
		if most < 0 {
			parts = strings.Split(s, separator)
		}
	default:
		r.fail("split: %s: want a string", r.describe(separator))
	}
	list := make([]any, len(parts))
	for i, p := range parts {
		list[i] = p
	}
	return list
}

func (r *rendering) replace(s string, a arguments) any {
	old, with := r.textAt(a, 0, "old"), r.textAt(a, 1, "new")
	n := r.integer(a.or(2, "count", -1))
	places := strings.Count(s, old)
	if n >= 0 {
		places = min(places, n)
	}
	r.chargeTimes(len(with), places)
	return strings.Replace(s, old, with, n)
}

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + strings.ToLower(s[n:])
}

// title capitalizes each word.
func title(s string) string {
	words := strings.SplitAfter(s, " ")
	for i, w := range words {
		words[i] = capitalize(w)
	}
	return strings.Join(words, "")
}

// filter applies a filter.
func (r *rendering) filter(name string, v any, a arguments) any {
	switch name {
	case "trim", "strip":
		s := r.str(v)
		r.charge(len(s))
		return r.strip(s, a, true, true)
	case "upper", "lower", "capitalize", "title", "replace":
		s := r.str(v)
		r.charge(2 * len(s))
		return stringMethods()[name](r, s, a)
	case "string", "safe":
		return r.str(v)
	case "length", "count":
		if s, ok := v.(string); ok {
			r.charge(len(s))
			return utf8.RuneCountInString(s)
		}
		return len(r.list(v))
	case "default", "d":
		if _, missing := v.(undefined); missing || truth(a.or(1, "boolean", false)) && !truth(v) {
			return a.or(0, "default_value", "")
		}
		return v
	case "list":
		return r.list(v)
	case "items":
		d, ok := v.(Dict)
		if _, missing := v.(undefined); !ok && !missing {
			r.fail("items of %s: want a dictionary", r.describe(v))
		}
		return r.items(d, name)
	case "first":
		return r.item(r.list(v), 0)
	case "last":
		return r.item(r.list(v), -1)
	case "reverse":
		return r.slice(v, [3]any{nil, nil, -1})
	case "join":
		list := r.list(v)
		if attribute := a.or(1, "attribute", nil); attribute != nil {
			list = r.apply(list, func(item any) any { return r.item(item, attribute) })
		}
		return r.join(list, r.str(a.or(0, "d", "")))
	case "tojson":
		return r.json(v, a)
	case "int":
		return r.convert(v, a)
	case "map":
		return r.mapped(v, a)
	case "select", "reject", "selectattr", "rejectattr":
		return r.selected(name, v, a)
	}
	r.fail("filter %s is not supported", name)
	return nil
}

// apply returns the results of a function.
func (r *rendering) apply(list []any, f func(any) any) []any {
	r.charge(len(list) * bytesOfValue)
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

// json is json.dumps as transformers calls it.
func (r *rendering) json(v any, a arguments) string {
	n := notation{"null", "true", "false", jsonQuote, "", ", "}
	if indent := a.or(1, "indent", nil); indent != nil { // transformers' first argument is ensure_ascii
		width := r.integer(indent)
		r.charge(width)
		n.indent, n.comma = strings.Repeat(" ", width), ","
	}
	return r.encode(v, n)
}

// convert is the filter int.
func (r *rendering) convert(v any, a arguments) any {
	if f, ok := number(v); ok && math.Abs(f) <= 1<<53 {
		return int(f)
	}
	if s, ok := v.(string); ok {
		if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
			return n
		}
	}
	return a.or(0, "default", 0)
}

// mapped is the filter map: an attribute or a filter of each element.
func (r *rendering) mapped(v any, a arguments) any {
	if attribute, ok := a.named["attribute"]; ok {
		return r.apply(r.list(v), func(item any) any {
			value := r.item(item, attribute)
			if _, missing := value.(undefined); missing {
				return a.or(1, "default", value)
			}
			return value
		})
	}
	name := r.textAt(a, 0, "filter")
	return r.apply(r.list(v), func(item any) any { return r.filter(name, item, arguments{a.list[min(1, len(a.list)):], a.named}) })
}

// selected is the filters select, reject, selectattr and rejectattr: the elements that pass a test, or do not.
func (r *rendering) selected(filter string, v any, a arguments) any {
	of := func(item any) any { return item }
	if strings.HasSuffix(filter, "attr") {
		attribute := a.or(0, "attribute", nil)
		of = func(item any) any { return r.item(item, attribute) }
		a.list = a.list[min(1, len(a.list)):]
	}
	test := truth
	if len(a.list) > 0 {
		name := r.textAt(a, 0, "test")
		test = func(v any) bool { return r.test(name, v, arguments{a.list[min(1, len(a.list)):], a.named}) }
	}
	list := r.list(v)
	r.charge(len(list) * bytesOfValue)
	return slices.DeleteFunc(slices.Clone(list), func(item any) bool {
		return test(of(item)) == strings.HasPrefix(filter, "reject")
	})
}

// test applies a test.
func (r *rendering) test(name string, v any, a arguments) bool {
	_, missing := v.(undefined)
	_, isInt := v.(int)
	_, isFloat := v.(float64)
	_, isText := v.(string)
	_, isList := v.([]any)
	_, isDict := v.(Dict)
	switch name {
	case "defined":
		return !missing
	case "undefined":
		return missing
	case "none":
		return v == nil
	case "true":
		return v == true
	case "false":
		return v == false
	case "boolean":
		return v == true || v == false
	case "string":
		return isText
	case "integer":
		return isInt
	case "float":
		return isFloat
	case "number":
		return isInt || isFloat || v == true || v == false
	case "mapping":
		return isDict
	case "sequence", "iterable":
		return isText || isList || isDict || missing
	case "callable":
		_, ok := v.(function)
		return ok
	case "odd", "even":
		return (r.integer(v)%2 == 0) == (name == "even")
	case "divisibleby":
		return r.operate("%", r.integer(v), a.or(0, "num", nil)) == 0
	}
	comparisons := map[string]string{"eq": "==", "equalto": "==", "==": "==", "ne": "!=", "in": "in", "lt": "<",
		"lessthan": "<", "le": "<=", "gt": ">", "greaterthan": ">", "ge": ">="}
	op, ok := comparisons[name]
	if !ok {
		r.fail("test %s is not supported", name)
	}
	return r.compare(op, v, a.or(0, "other", undefined("")))
}
