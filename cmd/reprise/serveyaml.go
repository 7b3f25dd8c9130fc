package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// yamlError says what is wrong with a YAML text as the rest of a configuration's errors do, key: value: want …, with
// the line where there are lines.
func yamlError(err error, lines bool) error {
	var found yaml.Error
	if !errors.As(err, &found) || found.GetToken() == nil {
		return err
	}
	at := found.GetToken()
	text := ""
	if lines {
		text = fmt.Sprintf("line %d: ", at.Position.Line)
	}
	var unknown *yaml.UnknownFieldError
	var kind *yaml.TypeError
	var much *yaml.OverflowError
	var shape *yaml.UnexpectedNodeTypeError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s%s: unknown key: want %s", text, at.Value, known(at.Value))
	case errors.As(err, &kind):
		return fmt.Errorf("%s%s%s: want %s", text, keyBefore(at), at.Value, kindWanted(kind.DstType))
	case errors.As(err, &shape):
		return fmt.Errorf("%s%s%s: want a %s", text, keyBefore(at), at.Value, shape.Expected.YAMLName())
	case errors.As(err, &much):
		return fmt.Errorf("%s%s%s: want a smaller number", text, keyBefore(at), at.Value)
	}
	return fmt.Errorf("%s%s", text, found.GetMessage())
}

// known names the key that was probably meant, or where the keys are told.
func known(key string) string {
	for _, k := range keysOf(reflect.TypeFor[serveConfig]()) {
		if alike(k, key) {
			return k
		}
	}
	return "one of those in docs/service.md"
}

// keysOf are the keys of a configuration and of all its parts.
func keysOf(t reflect.Type) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return keysOf(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	var keys []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			keys = append(keys, name)
		}
		if name != "-" && f.IsExported() {
			keys = append(keys, keysOf(f.Type)...)
		}
	}
	return keys
}

// alike tells whether two keys are one slip of the pen apart: a letter missing, too many, another one, or two exchanged.
func alike(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	rest, other := a[i:], b[i:]
	switch {
	case len(rest) == len(other) && len(rest) > 1 && rest[0] == other[1] && rest[1] == other[0]:
		return rest[2:] == other[2:] || rest[1:] == other[1:]
	case len(rest) == len(other):
		return rest == "" || rest[1:] == other[1:]
	}
	return len(other) == len(rest)+1 && rest == other[1:]
}

// keyBefore is the key that a value stands behind, with a colon; nothing where it stands in a list.
func keyBefore(at *token.Token) string {
	if at.Prev == nil || at.Prev.Type != token.MappingValueType || at.Prev.Prev == nil {
		return ""
	}
	return at.Prev.Prev.Value + ": "
}

// kindWanted names a kind of values as a person knows it.
func kindWanted(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "a time with its unit, such as 500ms, 30s or 5m"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "keys with values"
	}
	return "text"
}
