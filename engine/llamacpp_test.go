package engine_test

import (
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
