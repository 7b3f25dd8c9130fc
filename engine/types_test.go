package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// exchange is a call that a client makes: what it sends, and what it reads of the answer.
type exchange struct {
	Method string            `json:"method"`
	Path   string            `json:"path"`
	Query  map[string]string `json:"query"`
	Sends  *shape            `json:"sends"`
	Reads  *shape            `json:"reads"`

	body []byte
}

// shape is the form of a JSON value.
type shape struct {
	Kind   string            `json:"kind"`             // object, array, string, integer, number, boolean or own
	Fields map[string]*shape `json:"fields,omitempty"` // of an object
	Of     *shape            `json:"of,omitempty"`     // the elements of an array
	Value  string            `json:"value,omitempty"`  // of a string that is sent
	Type   string            `json:"type,omitempty"`   // the Go type, of one that decodes itself
	Only   string            `json:"only,omitempty"`   // the server that it is read of, if that is another
}

// onlyOf has the servers whose answers alone have fields of these types, in bodies that several share.
var onlyOf = map[reflect.Type]string{reflect.TypeFor[[]llamacppToken](): "llamacpp"}

// optional has the optional fields of the bodies seen so far, and whether one had them.
type optional map[string]bool

// shapeOf returns the form of what a value is sent as, or of what is read into its type if the value is zero.
func (o optional) shapeOf(v reflect.Value, sent bool) *shape {
	t := v.Type()
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) && t.Kind() != reflect.Slice {
		return &shape{Kind: "own", Type: t.String()}
	}
	element := func(t reflect.Type) reflect.Value { return reflect.New(t).Elem() }
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return o.shapeOf(element(t.Elem()), sent)
		}
		return o.shapeOf(v.Elem(), sent)
	case reflect.Slice:
		return &shape{Kind: "array", Of: o.shapeOf(element(t.Elem()), sent)}
	case reflect.Map:
		s := &shape{Kind: "object", Fields: make(map[string]*shape)}
		for k, x := range v.Seq2() {
			s.Fields[k.String()] = o.shapeOf(x, sent)
		}
		return s
	case reflect.Struct:
		s := &shape{Kind: "object", Fields: make(map[string]*shape)}
		for _, f := range reflect.VisibleFields(t) {
			if f.Anonymous {
				continue
			}
			name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			field := v.FieldByIndex(f.Index)
			if sent && strings.Contains(rest, "omitempty") {
				key := fmt.Sprint(t, ".", name)
				o[key] = o[key] || !field.IsZero()
				if field.IsZero() {
					continue
				}
			}
			s.Fields[name] = o.shapeOf(field, sent)
			s.Fields[name].Only = onlyOf[f.Type]
		}
		return s
	case reflect.Bool:
		return &shape{Kind: "boolean"}
	case reflect.String:
		return &shape{Kind: "string", Value: v.String()}
	case reflect.Float32, reflect.Float64:
		return &shape{Kind: "number"}
	}
	return &shape{Kind: "integer"}
}

// self is a method of every engine, whose server it returns.
func (s *server) self() *server { return s }

// exchanges returns the calls that a dialect's client makes, with everything set that a request can have.
func (o optional) exchanges(t *testing.T, d Dialect, more ...Request) (list []exchange) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"success": true}`)
	}))
	defer web.Close()
	e, err := Open(Options{Dialect: d, Address: web.URL, Model: "model", Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	e.(interface{ self() *server }).self().observe = func(method, path string, body, result any) {
		mu.Lock()
		defer mu.Unlock()
		u, err := url.Parse(path)
		if err != nil {
			t.Error(err) // not Fatal: clients call from goroutines of their own
			return
		}
		x := exchange{Method: method, Path: u.Path, Query: make(map[string]string)}
		for k, v := range u.Query() {
			x.Query[k] = v[0]
		}
		if body != nil {
			x.Sends = o.shapeOf(reflect.ValueOf(body), true)
			if x.body, err = json.Marshal(body); err != nil {
				t.Error(err)
			}
		}
		if result != nil {
			x.Reads = o.shapeOf(reflect.Zero(reflect.TypeOf(result)), false)
		}
		if !slices.ContainsFunc(list, func(y exchange) bool { return reflect.DeepEqual(x, y) }) {
			list = append(list, x)
		}
	}
	if more == nil {
		more = []Request{{Prompt: []int32{1}, N: 1,
			Sampling: Sampling{Temperature: 0.7, TopP: 0.9, MaxTokens: 8, Stop: []int32{2}, Seed: 3}}}
		// What the server answered is not looked at.
		_, _ = e.Version(t.Context())
		_ = e.Load(t.Context(), Weights{Version: 1, Folder: "/weights"})
		_ = e.Abort(t.Context())
		_ = e.Health(t.Context())
		_, _ = e.Tokenize(t.Context(), "text")
		_, _ = e.(interface {
			room(context.Context) (int, error)
		}).room(t.Context())
	}
	for _, r := range more {
		_, _ = e.Generate(t.Context(), r)
	}
	if len(list) == 0 {
		t.Fatalf("%s: the client sends nothing", d)
	}
	return list
}

// What servers do to a distribution unless told otherwise is turned off, in every dialect.
func TestNothingElseChangesTheDistribution(t *testing.T) {
	for _, d := range Dialects() {
		for _, x := range make(optional).exchanges(t, d, Request{Prompt: []int32{1}, N: 1,
			Sampling: Sampling{Temperature: 0.7, TopP: 1, MaxTokens: 8}}) {
			var body map[string]any
			if err := json.Unmarshal(x.body, &body); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"top_k": -1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
				"frequency_penalty": 0.0}
			switch d {
			case SGLang:
				body = body["sampling_params"].(map[string]any)
			case LlamaCPP:
				want = map[string]any{"samplers": []any{"temperature"}}
			}
			for name, value := range want {
				if got, given := body[name]; !given || !reflect.DeepEqual(got, value) {
					t.Errorf("%s: %s is %v: want %v", d, name, got, value)
				}
			}
		}
	}
}

// SGLang gives all n completions of a request its seed, so each is asked for with its own.
func TestCompletionsOfASeedDiffer(t *testing.T) {
	var seeds []int64
	for _, x := range make(optional).exchanges(t, SGLang, Request{Prompt: []int32{1}, N: 3,
		Sampling: Sampling{Temperature: 1, TopP: 1, MaxTokens: 8, Seed: 7}}) {
		var body sglangRequest
		if err := json.Unmarshal(x.body, &body); err != nil {
			t.Fatal(err)
		}
		if p := body.SamplingParams; p.N != 1 || p.SamplingSeed == nil {
			t.Fatalf("%s: want one completion and a seed", x.body)
		}
		seeds = append(seeds, *body.SamplingParams.SamplingSeed)
	}
	slices.Sort(seeds)
	if !slices.Equal(seeds, []int64{7, 8, 9}) {
		t.Errorf("seeds %v, want 7, 8 and 9", seeds)
	}
}

// What is sent and read exists in the published wheels, with a type that goes with ours.
func TestPublishedTypes(t *testing.T) {
	o := make(optional)
	calls := make(map[Dialect][]exchange)
	for _, d := range Dialects() {
		calls[d] = o.exchanges(t, d)
	}
	for _, path := range []string{ChatPath, CompletionsPath} { // what a gateway adds to calls of agents
		p := passing(t, path, `{"messages": [{}], "prompt": "x"}`)
		var sent map[string]any
		if err := json.Unmarshal(p.body, &sent); err != nil {
			t.Fatal(err)
		}
		delete(sent, "messages")
		if path == ChatPath {
			delete(sent, "prompt")
		}
		for name, v := range sent {
			if x, ok := v.(float64); ok && x == math.Trunc(x) {
				sent[name] = int(x)
			}
		}
		calls[VLLM] = append(calls[VLLM], exchange{Method: http.MethodPost, Path: path, Query: map[string]string{},
			Sends: o.shapeOf(reflect.ValueOf(sent), true)})
	}
	for field, given := range o {
		if !given {
			t.Errorf("no request has %s: set it in exchanges, so that it is checked", field)
		}
	}
	python := os.Getenv("REPRISE_TYPES")
	if python == "" {
		t.Skip("the wheels are not looked at: make test-engine-types does that")
	}
	text, err := json.Marshal(map[Dialect][]exchange{VLLM: calls[VLLM], SGLang: calls[SGLang]})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/published.py")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
}
