package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/reprise-rl/reprise/wire"
)

// maxJSON is how long a request may be; a million priorities fit.
const maxJSON = 64 << 20

// maxValues is how many commas a request may have: lists take many times the memory of their text, {}, most of all.
const maxValues = 4 << 20

// valueBytes is about what a value of a list takes while the list grows, large from how many bytes on a request is weighed.
const (
	valueBytes = 200
	large      = 1 << 20
)

// admitJSON waits until what a request comes to may be in memory.
func (s *Service) admitJSON(ctx context.Context, text []byte) (give func(), err error) {
	if len(text) < large {
		return func() {}, nil
	}
	taken, err := s.incoming.take(ctx, int64(len(text))+valueBytes*int64(bytes.Count(text, []byte{','})))
	return func() { s.incoming.give(taken) }, err
}

// maxID is how long the ids that clients choose may be, in bytes: tables remember many of them.
const maxID = 1024

// checkID refuses an id that is too long to be remembered.
func checkID(key, id string) error {
	if len(id) > maxID {
		return wire.Errorf(wire.Invalid, "%s: %q… has %d bytes: want at most %d", key, id[:32], len(id), maxID)
	}
	return nil
}

// readJSON reads a request, of which what says where it stood. Nothing stands for an empty one. Unknown fields and what follows
// are refused by name.
func readJSON[T any](what string, text []byte, into *T) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if len(text) > maxJSON {
		return wire.Errorf(wire.TooLarge, "%s: %d bytes: want at most %d", what, len(text), maxJSON)
	}
	if n := bytes.Count(text, []byte{','}); n > maxValues {
		return wire.Errorf(wire.TooLarge, "%s: about %d values: want at most %d; send them in several requests", what, n, maxValues)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return refuseJSON(what, err, reflect.TypeFor[T]())
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return wire.Errorf(wire.Invalid, "%s: more than one JSON value: want one object", what)
	}
	return nil
}

func refuseJSON(what string, err error, of reflect.Type) error {
	var mistyped *json.UnmarshalTypeError
	var broken *json.SyntaxError
	switch {
	case errors.As(err, &mistyped) && mistyped.Field != "":
		return wire.Errorf(wire.Invalid, "%s: %s: %s: want %s", what, mistyped.Field, mistyped.Value, kindName(mistyped.Type))
	case errors.As(err, &mistyped):
		return wire.Errorf(wire.Invalid, "%s: %s: want an object with the fields %s", what, mistyped.Value, fieldNames(of))
	case errors.As(err, &broken):
		return wire.Errorf(wire.Invalid, "%s: no JSON at byte %d (%s): want an object with the fields %s", what, broken.Offset, err, fieldNames(of))
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return wire.Errorf(wire.Invalid, "%s: %s: unknown field: want fields among %s", what, name, fieldNames(of))
	}
	return wire.Errorf(wire.Invalid, "%s: %s: want an object with the fields %s", what, err, fieldNames(of))
}

// kindName is a type in words.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case reflect.Uint64, reflect.Uint32, reflect.Uint:
		return "a whole number, 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// fieldNames lists the JSON fields of a struct.
func fieldNames(t reflect.Type) string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// writeJSON is an answer as JSON.
func writeJSON(answer any) ([]byte, error) {
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, wire.Errorf(wire.Failed, "writing the answer: %s", err)
	}
	return text, nil
}
