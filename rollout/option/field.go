package option

import (
	"encoding"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Field is a key of a struct of options. The struct is the one definition of its keys: a field's yaml or json tag
// spells the key, its type is that of the values, its comment says what it means, and two more tags say
//
//   - default: what a field that is not given, zero or nil, stands for: a value, or words if it is none ("no limit");
//   - range: the numbers allowed, as an interval: [0, 1), (0, 100], [0.001, inf];
//   - values: the words allowed, with spaces between them, where the type of the field has more.
//
// [Fill] and [Problems.CheckFields] act on them. Package internal/reference writes documents by them, and
// internal/settings reads by the keys.
type Field struct {
	Key   string
	Value reflect.Value
	Of    reflect.Type // the struct that has the field
	reflect.StructField
}

// Enumerated is a type of which the values are few words, such as a table's sampler.
type Enumerated interface{ Values() []string }

// Values returns the words that the field may have, nil if they are not few.
func (f Field) Values() []string {
	if tag, ok := f.Tag.Lookup("values"); ok {
		return strings.Fields(tag)
	}
	if e, few := reflect.Zero(f.Type).Interface().(Enumerated); few {
		return e.Values()
	}
	return nil
}

// Fields yields the fields of a struct that have a key, those of embedded structs included.
func Fields(of reflect.Value) iter.Seq[Field] {
	return func(yield func(Field) bool) { fields(of, yield) }
}

func fields(of reflect.Value, yield func(Field) bool) bool {
	for _, m := range membersOf(of.Type()) {
		value := of.FieldByIndex(m.Index)
		switch {
		case m.inline:
			if !fields(value, yield) {
				return false
			}
		case !yield(Field{m.key, value, of.Type(), m.StructField}):
			return false
		}
	}
	return true
}

// member is a field of a struct that has a key, or whose fields are the struct's.
type member struct {
	key    string
	inline bool
	reflect.StructField
}

var members sync.Map // []member by reflect.Type: reading tags takes longer than all else of a look at a struct

func membersOf(of reflect.Type) []member {
	if list, ok := members.Load(of); ok {
		return list.([]member)
	}
	var list []member
	for f := range of.Fields() {
		if key, inline := KeyOf(f); inline || key != "" {
			list = append(list, member{key, inline, f})
		}
	}
	members.Store(of, list)
	return list
}

// KeyOf returns the key of a field, empty if it has none, or that the fields of its struct belong to the struct around.
func KeyOf(f reflect.StructField) (key string, inline bool) {
	tag := f.Tag.Get("yaml")
	if tag == "" {
		tag = f.Tag.Get("json")
	}
	key, rest, _ := strings.Cut(tag, ",")
	switch {
	case key == "-" || !f.IsExported():
		return "", false
	case rest == "inline" || f.Anonymous && key == "":
		return "", true
	}
	return key, false
}

// Fill sets the fields of a struct, given by its pointer, that are not given and whose default is a value. Structs
// below it stay as they are.
func Fill(options any) {
	for f := range Fields(reflect.ValueOf(options).Elem()) {
		if v, ok := f.Default(); ok && f.Value.IsZero() {
			f.Value.Set(v)
		}
	}
}

// Default returns what the field stands for if it is not given; false if that is no value.
func (f Field) Default() (reflect.Value, bool) {
	text, ok := f.Tag.Lookup("default")
	if !ok {
		return reflect.Value{}, false
	}
	p := reflect.New(f.Type)
	v := p.Elem()
	if f.Type.Kind() == reflect.Pointer {
		v.Set(reflect.New(f.Type.Elem()))
		v = v.Elem()
	}
	return p.Elem(), parse(text, v)
}

func parse(text string, into reflect.Value) bool {
	if u, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text)) == nil
	}
	switch {
	case into.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		into.SetInt(int64(d))
		return err == nil
	case into.CanInt():
		n, err := strconv.ParseInt(text, 10, into.Type().Bits())
		into.SetInt(n)
		return err == nil
	case into.CanUint():
		n, err := strconv.ParseUint(text, 10, into.Type().Bits())
		into.SetUint(n)
		return err == nil
	case into.CanFloat():
		x, err := strconv.ParseFloat(text, into.Type().Bits())
		into.SetFloat(x)
		return err == nil
	case into.Kind() == reflect.String:
		into.SetString(text)
		e, few := into.Interface().(Enumerated)
		return few && slices.Contains(e.Values(), text)
	}
	return false
}

// CheckFields reports each field that is given and out of its range, or none of the words of its type, unless its key
// is wrong already. Those that skip chooses are left out; nil chooses none.
func (p *Problems) CheckFields(options any, skip func(Field) bool) {
	for f := range Fields(reflect.ValueOf(options)) {
		v := reflect.Indirect(f.Value)
		if !v.IsValid() || skip != nil && skip(f) || p.Has(f.Key) || p.mistyped(f.Key, v.Interface()) {
			continue
		}
		if values := f.Values(); values != nil {
			p.Check(slices.Contains(values, v.String()), f.Key, v.Interface(), "%s", List(values))
		} else if r, ok := f.Range(); ok {
			p.Check(r.holds(v), f.Key, v.Interface(), "%s", r)
		}
	}
}

// Range is an interval of numbers.
type Range struct {
	low, high         float64
	openLow, openHigh bool
	zero              string // what 0 stands for, if that is in words
	whole             bool
}

// Range returns the range of the field's tag, false if it has none.
func (f Field) Range() (r Range, ok bool) {
	tag, ok := f.Tag.Lookup("range")
	if !ok {
		return r, false
	}
	kind := f.Type.Kind()
	if kind == reflect.Pointer {
		kind = f.Type.Elem().Kind()
	}
	r.whole = kind >= reflect.Int && kind <= reflect.Uint64
	if _, value := f.Default(); !value {
		r.zero = f.Tag.Get("default")
	}
	low, high, two := strings.Cut(tag, ", ")
	if !two || len(low) < 2 || len(high) < 2 {
		panic(fmt.Sprintf("%s: range %q is no interval", f.Name, tag)) // a mistake of the program
	}
	r.openLow, r.openHigh = low[0] == '(', high[len(high)-1] == ')'
	var errs [2]error
	r.low, errs[0] = strconv.ParseFloat(low[1:], 64)
	r.high, errs[1] = strconv.ParseFloat(high[:len(high)-1], 64)
	if errs[0] != nil || errs[1] != nil {
		panic(fmt.Sprintf("%s: range %q is no interval of numbers", f.Name, tag))
	}
	return r, true
}

func (r Range) holds(v reflect.Value) bool {
	var x float64
	switch {
	case v.CanInt():
		x = float64(v.Int())
	case v.CanUint():
		x = float64(v.Uint())
	default:
		x = v.Float()
	}
	return (x > r.low || !r.openLow && x == r.low) && (x < r.high || !r.openHigh && x == r.high)
}

// Brief writes the range in words for a document, "" if it is what one expects: bounds that only a computer has are
// left out, and so is what 0 stands for.
func (r Range) Brief() string {
	r.zero = ""
	if r.high >= math.MaxInt32 && r.openHigh || r.high < math.Inf(1) && r.high >= math.MaxInt32 {
		r.high, r.openHigh, r.whole = math.Inf(1), true, true
	}
	if r.high == math.Inf(1) && (r.low == 0 && !r.openLow && r.openHigh || r.low == math.Inf(-1)) {
		return ""
	}
	return r.String()
}

// String writes the range in words: "0 (no limit) to 64", "above 0, at most 100", "0.001 or more, or inf".
func (r Range) String() string {
	low, high := r.number(r.low), r.number(r.high)
	if r.zero != "" && r.low == 0 {
		low += " (" + r.zero + ")"
	}
	infinite := math.IsInf(r.high, 1)
	finite := ""
	if infinite && r.openHigh && !r.whole {
		finite = ", finite"
	}
	switch {
	case infinite && math.IsInf(r.low, -1):
		return "a number"
	case infinite && r.openLow:
		return "above " + low + finite
	case infinite && !r.openHigh && !r.whole:
		return low + " or more, or inf"
	case infinite:
		return low + " or more" + finite
	case r.openLow && r.openHigh:
		return "above " + low + ", below " + high
	case r.openLow:
		return "above " + low + ", at most " + high
	case r.openHigh:
		return "at least " + low + ", below " + high
	}
	return low + " to " + high
}

func (r Range) number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// List writes words as a choice: "fifo or positive".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
