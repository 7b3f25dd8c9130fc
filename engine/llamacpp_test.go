package engine_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/enginetest"
)

// llama.cpp's own interface gives log-probs at the sampling temperature; by OpenAI's it does not, and is refused.
func TestLlamaCPP(t *testing.T) {
	address := enginetest.StartLlamaCPP(t).Address
	prompt := []int32{504, 3575, 282, 4649, 314} // The capital of France is
	open := func(d engine.Dialect) engine.Engine {
		t.Helper()
		e, err := engine.Open(engine.Options{Dialect: d, Address: address})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	own := open(engine.LlamaCPP)
	ids, err := own.Tokenize(t.Context(), "The capital of France is")
	if err != nil || !slices.Equal(ids, prompt) {
		t.Fatalf("the text is %v, %v", ids, err)
	}
	for _, c := range []struct {
		dialect           engine.Dialect
		temperature, topP float64
		refused           string // "": it is not
	}{
		{engine.LlamaCPP, 1, 1, ""}, {engine.LlamaCPP, 0.7, 1, ""}, {engine.OpenAI, 1, 1, ""},
		{engine.OpenAI, 0.7, 1, "ignore the temperature"}, {engine.LlamaCPP, 1, 0.9, "no sampling mask"},
	} {
		r, err := engine.Probe(t.Context(), open(c.dialect), engine.Probing{Prompt: prompt,
			Sampling: engine.Sampling{Temperature: c.temperature, TopP: c.topP, MaxTokens: 8}})
		if err != nil {
			t.Fatal(err)
		}
		if said := r.Err(); (said == nil) != (c.refused == "") || said != nil && !strings.Contains(said.Error(), c.refused) {
			t.Errorf("%s at temperature %g, top-p %g: %v", r.Engine, c.temperature, c.topP, said)
		}
	}
	list, err := own.Generate(t.Context(), engine.Request{Prompt: prompt, N: 4,
		Sampling: engine.Sampling{Temperature: 0.7, TopP: 1, MaxTokens: 12, Stop: []int32{30}, Seed: 1}}) // a full stop
	if err != nil {
		t.Fatal(err)
	}
	paris := 0
	for _, c := range list {
		if at := slices.Index(c.Tokens, 30); at >= 0 && (at != len(c.Tokens)-1 || c.Finish != engine.Stopped) {
			t.Errorf("%v goes on after its end, %s", c.Tokens, c.Finish)
		}
		if c.Tokens[0] == 7042 {
			paris++
		}
	}
	if paris == 0 {
		t.Errorf("nobody knows the capital of France: %+v", list)
	}
}

// A gateway that changes what is asked of llama.cpp is refused, unless it changes the log-probs too.
func TestLlamaCPPBehindAGateway(t *testing.T) {
	address, err := url.Parse(enginetest.StartLlamaCPP(t).Address)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(address)
	var changes map[string]any
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && len(changes) > 0 {
			var body map[string]any
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			maps.Copy(body, changes)
			text, err := json.Marshal(body)
			if err != nil {
				t.Error(err)
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		}
		forward.ServeHTTP(w, r)
	}))
	defer gateway.Close()
	engines := make(map[engine.Dialect]engine.Engine)
	for _, d := range []engine.Dialect{engine.LlamaCPP, engine.OpenAI} {
		if engines[d], err = engine.Open(engine.Options{Dialect: d, Address: gateway.URL}); err != nil {
			t.Fatal(err)
		}
	}
	prompt, err := engines[engine.LlamaCPP].Tokenize(t.Context(), "Tom has 3 apples and buys 4 more. How many has he?")
	if err != nil {
		t.Fatal(err)
	}
	samplers := func(names ...string) map[string]any {
		return map[string]any{"samplers": names, "top_k": 3, "top_p": 0.8, "min_p": 0.1, "repeat_penalty": 1.3}
	}
	for _, c := range []struct {
		name    string
		changes map[string]any
		own     bool // refused by llama.cpp's own interface, whose log-probs are of what is drawn from
		openai  bool // by OpenAI's, where they are of the logits
	}{
		{"nothing", nil, false, false},
		{"top-k 3", samplers("top_k", "temperature"), true, true},
		{"top-p 0.8", samplers("temperature", "top_p"), true, true},
		{"min-p 0.1", samplers("temperature", "min_p"), false, true},
		{"a repetition penalty of 1.3", samplers("penalties", "temperature"), false, true},
		{"temperature 1.3", map[string]any{"temperature": 1.3}, true, true},
	} {
		for d, refused := range map[engine.Dialect]bool{engine.LlamaCPP: c.own, engine.OpenAI: c.openai} {
			changes = c.changes
			r, err := engine.Probe(t.Context(), engines[d], engine.Probing{Prompt: prompt,
				Sampling: engine.Sampling{Temperature: 1, TopP: 1, MaxTokens: 8}})
			if err == nil {
				err = r.Err()
			}
			if (err != nil) != refused {
				t.Errorf("%s, %s: %v", d, c.name, err)
			}
			t.Logf("%s, %s: %v", d, c.name, err)
		}
	}
}
