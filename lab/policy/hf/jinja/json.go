package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Decode returns a JSON value as templates take it: objects keep the order of their keys, and of two equal keys the
// last counts.
func Decode(text []byte) (any, error) {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	v, err := decode(in, 0)
	if err != nil {
		return nil, err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the JSON value")
	}
	return v, nil
}

func decode(in *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("values are nested more than %d deep", maxDepth)
	}
	token, err := in.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		if n, err := strconv.Atoi(t.String()); err == nil {
			return n, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			list := []any{}
			for in.More() {
				v, err := decode(in, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err = in.Token()
			return list, err
		}
		dict := Dict{}
		for in.More() {
			key, err := in.Token()
			if err != nil {
				return nil, err
			}
			v, err := decode(in, depth+1)
			if err != nil {
				return nil, err
			}
			dict = dict.with(key.(string), v)
		}
		_, err = in.Token()
		return dict, err
	}
	return token, nil // a text, a bool or nil
}

// with returns the dictionary with a key set.
func (d Dict) with(key string, v any) Dict {
	if at := slices.IndexFunc(d, func(p Pair) bool { return p.Key == key }); at >= 0 {
		d[at].Value = v
		return d
	}
	return append(d, Pair{key, v})
}

// Get returns the value of a key, nil if there is none.
func (d Dict) Get(key string) any {
	for _, p := range d {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}
