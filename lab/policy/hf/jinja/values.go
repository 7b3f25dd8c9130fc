package jinja

import (
	"cmp"
	"fmt"
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
	return r.exact(f)
}

// exact returns a number without its fraction as an integer.
func (r *rendering) exact(f float64) int {
	if math.Abs(f) >= tooLarge {
		r.fail("the integer %.17g is too large: want less than 2^53", f)
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

// method returns a method of a value, nil if it has none of that name.
func (r *rendering) method(v any, name string) any {
	switch v := v.(type) {
	case string:
		if m, parameters := stringMethod(name); m != nil {
			return function(func(r *rendering, a arguments) any {
				r.charge(len(v) * 2)
				return m(r, v, r.bind(name, a, parameters...))
			})
		}
	case Dict:
		switch name {
		case "get":
			return function(func(r *rendering, a arguments) any {
				b := r.bind(name, a, "key", "default")
				if key, ok := r.want(b, "key").(string); ok {
					if value, ok := r.get(v, key); ok {
						return value
					}
				}
				return b["default"]
			})
		case "keys", "values", "items":
			return function(func(r *rendering, a arguments) any {
				r.bind(name, a)
				return r.items(v, name)
			})
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

// stringMethod returns a method of strings and its parameters, nil if there is none of that name.
func stringMethod(name string) (call func(r *rendering, s string, b bound) any, parameters []string) {
	switch name {
	case "strip", "lstrip", "rstrip":
		return func(r *rendering, s string, b bound) any {
			return r.strip(s, b, name != "rstrip", name != "lstrip")
		}, []string{"chars"}
	case "upper":
		return func(_ *rendering, s string, _ bound) any { return strings.ToUpper(s) }, nil
	case "lower":
		return func(_ *rendering, s string, _ bound) any { return strings.ToLower(s) }, nil
	case "capitalize":
		return func(_ *rendering, s string, _ bound) any { return capitalize(s) }, nil
	case "startswith":
		return func(r *rendering, s string, b bound) any { return r.anyOf(s, b, strings.HasPrefix) }, []string{"part"}
	case "endswith":
		return func(r *rendering, s string, b bound) any { return r.anyOf(s, b, strings.HasSuffix) }, []string{"part"}
	case "split":
		return (*rendering).split, []string{"sep", "maxsplit"}
	case "replace":
		return (*rendering).replace, []string{"old", "new", "count"}
	case "find":
		return func(r *rendering, s string, b bound) any {
			before, _, found := strings.Cut(s, r.text(b, "part"))
			if !found {
				return -1
			}
			return utf8.RuneCountInString(before)
		}, []string{"part"}
	case "count":
		return func(r *rendering, s string, b bound) any { return strings.Count(s, r.text(b, "part")) }, []string{"part"}
	case "join":
		return func(r *rendering, s string, b bound) any {
			return r.join(r.list(r.want(b, "list")), s)
		}, []string{"list"}
	case "removeprefix":
		return func(r *rendering, s string, b bound) any {
			return strings.TrimPrefix(s, r.text(b, "part"))
		}, []string{"part"}
	case "removesuffix":
		return func(r *rendering, s string, b bound) any {
			return strings.TrimSuffix(s, r.text(b, "part"))
		}, []string{"part"}
	}
	return nil, nil
}

// strip removes characters, by default white space, from the ends of a text.
func (r *rendering) strip(s string, b bound, left, right bool) string {
	cutset := " \t\n\r\f\v\x1c\x1d\x1e\x1f\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008" +
		"\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
	if b["chars"] != nil {
		cutset = r.text(b, "chars")
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
func (r *rendering) anyOf(s string, b bound, test func(s, part string) bool) bool {
	parts, ok := b["part"].([]any)
	if !ok {
		parts = []any{r.text(b, "part")}
	}
	for _, p := range parts {
		if part, ok := p.(string); ok && test(s, part) {
			return true
		}
	}
	return false
}

// split divides a text at a separator, at white space without one, at most a number of times.
func (r *rendering) split(s string, b bound) any {
	r.charge(len(s) * bytesOfValue)
	most := r.integer(b.or("maxsplit", -1))
	var parts []string
	switch separator := b["sep"].(type) {
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

func (r *rendering) replace(s string, b bound) any {
	old, with := r.text(b, "old"), r.text(b, "new")
	n := r.integer(b.or("count", -1))
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

// filter applies a filter.
func (r *rendering) filter(name string, v any, a arguments) any {
	bind := func(parameters ...string) bound { return r.bind("filter "+name, a, parameters...) }
	switch name {
	case "trim":
		s := r.str(v)
		r.charge(len(s))
		return r.strip(s, bind("chars"), true, true)
	case "upper", "lower", "capitalize", "replace":
		s := r.str(v)
		r.charge(2 * len(s))
		m, parameters := stringMethod(name)
		return m(r, s, bind(parameters...))
	case "default", "d":
		b := bind("default_value", "boolean")
		if _, missing := v.(undefined); missing || truth(b["boolean"]) && !truth(v) {
			return b.or("default_value", "")
		}
		return v
	case "join":
		list, b := r.list(v), bind("d", "attribute")
		if attribute := b["attribute"]; attribute != nil {
			list = r.apply(list, func(item any) any { return r.path(item, attribute, nil) })
		}
		return r.join(list, r.str(b.or("d", "")))
	case "tojson":
		return r.json(v, bind("ensure_ascii", "indent"))
	case "int":
		return r.convert(v, bind("default"))
	case "map":
		return r.mapped(v, a)
	case "select", "reject", "selectattr", "rejectattr":
		return r.selected(name, v, a)
	}
	result := r.convertTo(name, v)
	bind()
	return result
}

// convertTo applies a filter that has no arguments.
func (r *rendering) convertTo(name string, v any) any {
	switch name {
	case "string", "safe":
		return r.str(v)
	case "length", "count":
		if s, ok := v.(string); ok {
			r.charge(len(s))
			return utf8.RuneCountInString(s)
		}
		return len(r.list(v))
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

// path returns what filters call an attribute: a.0.b of v is v.a[0].b. What is not defined on the way is otherwise,
// unless that is nil.
func (r *rendering) path(v, attribute, otherwise any) any {
	steps := []any{attribute}
	if text, ok := attribute.(string); ok {
		r.charge(len(text))
		steps = nil
		for _, part := range strings.Split(text, ".") {
			if i, err := strconv.Atoi(part); err == nil {
				steps = append(steps, i)
			} else {
				steps = append(steps, part)
			}
		}
	}
	for _, s := range steps {
		v = r.item(v, s)
		if _, missing := v.(undefined); missing && otherwise != nil {
			v = otherwise
		}
	}
	return v
}

// json is json.dumps as transformers calls it.
func (r *rendering) json(v any, b bound) string {
	if truth(b["ensure_ascii"]) {
		r.fail("filter tojson: ensure_ascii is not supported")
	}
	n := notation{"null", "true", "false", jsonQuote, "", ", "}
	if indent := b["indent"]; indent != nil {
		width := r.integer(indent)
		r.charge(width)
		n.indent, n.comma = strings.Repeat(" ", width), ","
	}
	return r.encode(v, n)
}

// convert is the filter int.
func (r *rendering) convert(v any, b bound) any {
	f, ok := number(v)
	if s, text := v.(string); text {
		r.charge(len(s))
		var err error
		f, err = strconv.ParseFloat(strings.TrimSpace(s), 64)
		ok = err == nil
	}
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return b.or("default", 0)
	}
	return r.exact(f)
}

// mapped is the filter map: an attribute or a filter of each element.
func (r *rendering) mapped(v any, a arguments) any {
	if len(a.list) == 0 {
		b := r.bind("filter map", arguments{named: a.named}, "attribute", "default")
		attribute := r.want(b, "attribute")
		return r.apply(r.list(v), func(item any) any { return r.path(item, attribute, b["default"]) })
	}
	name, a := r.forward(a)
	return r.apply(r.list(v), func(item any) any { return r.filter(name, item, a) })
}

// forward returns the filter or test that a filter's first argument names, and the arguments for it.
func (r *rendering) forward(a arguments) (string, arguments) {
	name, ok := a.list[0].(string)
	if !ok {
		r.fail("%s: want the name of a filter or a test", r.describe(a.list[0]))
	}
	return name, arguments{a.list[1:], a.named}
}

// selected is the filters select, reject, selectattr and rejectattr: the elements that pass a test, or do not.
func (r *rendering) selected(filter string, v any, a arguments) any {
	of := func(item any) any { return item }
	if strings.HasSuffix(filter, "attr") {
		if len(a.list) == 0 {
			r.fail("filter %s has no attribute", filter)
		}
		attribute := a.list[0]
		of = func(item any) any { return r.path(item, attribute, nil) }
		a.list = a.list[1:]
	}
	test := truth
	if len(a.list) > 0 {
		name, a := r.forward(a)
		test = func(v any) bool { return r.test(name, v, a) }
	} else {
		r.unnamed(a)
	}
	list := r.list(v)
	r.charge(len(list) * bytesOfValue)
	return slices.DeleteFunc(slices.Clone(list), func(item any) bool {
		return test(of(item)) == strings.HasPrefix(filter, "reject")
	})
}

// test applies a test.
func (r *rendering) test(name string, v any, a arguments) bool {
	bind := func(parameters ...string) bound { return r.bind("test "+name, a, parameters...) }
	if op := comparison(name); op != "" {
		return r.compare(op, v, r.want(bind("other"), "other"))
	}
	if name == "divisibleby" {
		return r.operate("%", r.integer(v), r.want(bind("num"), "num")) == 0
	}
	result := r.is(name, v)
	bind()
	return result
}

// is applies a test that has no arguments.
func (r *rendering) is(name string, v any) bool {
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
	}
	r.fail("test %s is not supported", name)
	return false
}

// comparison returns the operator that a test stands for, empty if it is another test.
func comparison(test string) string {
	switch test {
	case "eq", "equalto", "==":
		return "=="
	case "ne":
		return "!="
	case "in":
		return "in"
	case "lt", "lessthan":
		return "<"
	case "le":
		return "<="
	case "gt", "greaterthan":
		return ">"
	case "ge":
		return ">="
	}
	return ""
}
