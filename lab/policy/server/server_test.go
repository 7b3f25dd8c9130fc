package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/lab/policy/server"
	"github.com/reprise-rl/reprise/rollout"
)

const positions = 192

// models writes folders of one model with several weights.
func models(t *testing.T, n int) (folders []string, model *policy.Model, weights []*policy.Weights, tok *hf.Tokenizer) {
	t.Helper()
	tok, err := hf.NewCharTokenizer("0123456789+= ")
	if err != nil {
		t.Fatal(err)
	}
	model, err = policy.NewModel(hf.Config{
		ModelType: hf.Llama, VocabSize: tok.VocabSize(), HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 2,
		NumAttentionHeads: 2, NumKeyValueHeads: 1, MaxPositionEmbeddings: positions, TieWordEmbeddings: true,
		BOSTokenID: hf.NoToken, EOSTokenIDs: []int{1}, PadTokenID: 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		w, err := model.Initial(uint64(i + 1))
		if err != nil {
			t.Fatal(err)
		}
		flat, err := w.Flat()
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range flat { // logits far from uniform
			for j := range tensor {
				tensor[j] *= 4
			}
		}
		if w, err = model.NewWeights(rollout.Version(i), flat); err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(t.TempDir(), "model")
		if err := model.Save(folder, w, tok); err != nil {
			t.Fatal(err)
		}
		folders, weights = append(folders, folder), append(weights, w)
	}
	return folders, model, weights, tok
}

// serve serves a folder and returns its engines by dialect. between is called before each request, nil: nothing is.
func serve(
	t *testing.T, folder string, o server.Options, between func(*http.Request),
) (*server.Server, map[engine.Dialect]engine.Engine, string) {
	t.Helper()
	s, err := server.New(folder, o)
	if err != nil {
		t.Fatal(err)
	}
	handler := s.Handler()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if between != nil {
			between(r)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		web.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	engines := make(map[engine.Dialect]engine.Engine)
	for _, d := range engine.Dialects() {
		if engines[d], err = engine.Open(engine.Options{Dialect: d, Address: web.URL}); err != nil {
			t.Fatal(err)
		}
	}
	return s, engines, web.URL
}

func score(
	t *testing.T, m *policy.Model, w *policy.Weights, prompt []int32, c *engine.Completion, temperature float64,
) []float32 {
	t.Helper()
	in := policy.Input{Tokens: slices.Concat(prompt, c.Tokens)}
	if c.SamplingMask.Len() > 0 {
		for range prompt {
			in.SamplingMask.Append()
		}
		for i := range c.Tokens {
			in.SamplingMask.Append(c.SamplingMask.At(i)...)
		}
	}
	scores, err := m.Score(t.Context(), w, []policy.Input{in}, temperature)
	if err != nil {
		t.Fatal(err)
	}
	return scores[0].Logprobs[len(prompt):]
}

// What a server sampled has the log-probs of the model at the request's temperature, in every dialect.
func TestEveryDialectGivesIDsAndTheirLogprobs(t *testing.T) {
	folders, model, weights, tok := models(t, 1)
	_, engines, _ := serve(t, folders[0], server.Options{Rows: 4}, nil)
	prompt, err := tok.Encode("12+34=")
	if err != nil {
		t.Fatal(err)
	}
	for dialect, e := range engines {
		for _, temperature := range []float64{1, 0.6} {
			for _, topP := range []float64{1, 0.8} {
				if topP < 1 && dialect != engine.SGLang {
					continue // they return no nucleus
				}
				list, err := e.Generate(t.Context(), engine.Request{Prompt: prompt, N: 6,
					Sampling: engine.Sampling{Temperature: temperature, TopP: topP, MaxTokens: 20, Stop: []int32{5}, Seed: 3}})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range list {
					last := c.Tokens[len(c.Tokens)-1]
					if ended := last == 5 || last == 1; ended != (c.Finish == engine.Stopped) ||
						slices.Contains(c.Tokens[:len(c.Tokens)-1], 5) || !ended && len(c.Tokens) != 20 {
						t.Errorf("%s: %v ended by %s", e, c.Tokens, c.Finish)
					}
					if (topP < 1) != (c.SamplingMask.Len() == len(c.Tokens)) {
						t.Errorf("%s: %d tokens with top-p %g have %d masks", e, len(c.Tokens), topP, c.SamplingMask.Len())
					}
					for i, want := range score(t, model, weights[0], prompt, &c, temperature) {
						if math.Abs(float64(c.Logprobs[i]-want)) > 1e-4 || c.Versions[i] != 0 {
							t.Fatalf("%s at %g: token %d has log-prob %g at version %d, want %g at 0", e, temperature, i,
								c.Logprobs[i], c.Versions[i], want)
						}
					}
				}
			}
		}
	}
}

// While completions are decoded the weights change: each token has the version that sampled it, and the log-prob under
// that version's weights. Rounding makes up to 0.003 of it where logits are so far from uniform, another version more
// than 0.1 in 97 tokens of 100.
func TestTokensHaveTheVersionThatSampledThem(t *testing.T) {
	folders, model, weights, tok := models(t, 3)
	prompt, err := tok.Encode("1+")
	if err != nil {
		t.Fatal(err)
	}
	for _, dialect := range []engine.Dialect{engine.VLLM, engine.SGLang} {
		t.Run(string(dialect), func(t *testing.T) {
			s, engines, _ := serve(t, folders[0], server.Options{Rows: 2}, nil)
			e := engines[dialect]
			seen := 0
			for range 300 {
				loaded := make(chan error, 1)
				go func() {
					var err error
					for v := 1; v < 3 && err == nil; v++ {
						err = e.Load(context.Background(), engine.Weights{Version: rollout.Version(v), Folder: folders[v]})
					}
					loaded <- err
				}()
				list, err := e.Generate(t.Context(), engine.Request{Prompt: prompt, N: 8,
					Sampling: engine.Sampling{Temperature: 1, TopP: 1, MaxTokens: positions}})
				if err := errors.Join(err, <-loaded); err != nil {
					t.Fatal(err)
				}
				for _, c := range list {
					if !slices.IsSorted(c.Versions) {
						t.Fatalf("versions %v", c.Versions)
					}
					seen = max(seen, len(slices.Compact(slices.Clone(c.Versions))))
					for v, w := range weights {
						for i, want := range score(t, model, w, prompt, &c, 1) {
							if c.Versions[i] == rollout.Version(v) && math.Abs(float64(c.Logprobs[i]-want)) > 1e-2 {
								t.Fatalf("token %d of version %d has log-prob %g, want %g", i, v, c.Logprobs[i], want)
							}
						}
					}
				}
				if v, err := e.Version(t.Context()); err != nil || v != 2 {
					t.Fatalf("the server has version %d, %v", v, err)
				}
				if seen > 1 {
					return
				}
				if err := s.Load(t.Context(), folders[0], "default"); err != nil {
					t.Fatal(err)
				}
			}
			t.Error("no completion was decoded by two versions: the test shows nothing")
		})
	}
}

// Probe passes servers that give everything, and refuses what would be wrong, with the remedy.
func TestProbe(t *testing.T) {
	folders, _, _, tok := models(t, 1)
	ignore := false // the server ignores the temperature
	_, engines, _ := serve(t, folders[0], server.Options{}, func(r *http.Request) {
		if ignore && r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			body = regexp.MustCompile(`"temperature":[0-9.]+`).ReplaceAll(body, []byte(`"temperature":1`))
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
	})
	prompt, err := tok.Encode("12+34=")
	if err != nil {
		t.Fatal(err)
	}
	for dialect, e := range engines {
		probe := func(topP float64, encode func(string) ([]int32, error)) *engine.Report {
			t.Helper()
			r, err := engine.Probe(t.Context(), e, engine.Probing{Prompt: prompt,
				Sampling: engine.Sampling{Temperature: 0.7, TopP: topP, MaxTokens: 8}, Texts: []string{"1+1=2"}, Encode: encode})
			if err != nil {
				t.Fatalf("%s: %v", e, err)
			}
			return r
		}
		refused := func(r *engine.Report, part string) {
			t.Helper()
			if err := r.Err(); err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %q", e, err, part)
			}
		}
		ignore = false
		r, err := engine.Probe(t.Context(), e, engine.Probing{Prompt: prompt,
			Sampling: engine.Sampling{Temperature: 0.7, TopP: 1, MaxTokens: 4096}})
		if err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		refused(r, "max_tokens is 4096: set max_tokens to ")
		if r := probe(1, tok.Encode); r.Err() != nil || (len(r.Unknown) > 0) != (dialect == engine.OpenAI) {
			t.Errorf("%s: refused %v, unknown %v", e, r.Err(), r.Unknown)
		}
		if dialect == engine.SGLang {
			if r := probe(0.9, nil); r.Err() != nil {
				t.Error(r.Err())
			}
		} else {
			refused(probe(0.9, nil), "top_p to 1")
		}
		if dialect != engine.OpenAI {
			refused(probe(1, func(string) ([]int32, error) { return []int32{9}, nil }), "tokenizer")
		}
		ignore = true
		refused(probe(1, nil), map[engine.Dialect]string{engine.VLLM: "--logprobs-mode processed_logprobs",
			engine.SGLang: "SGLANG_RETURN_ORIGINAL_LOGPROB", engine.LlamaCPP: "ignore the temperature, 0.7",
			engine.OpenAI: "ignore the temperature, 0.7"}[dialect])
	}
}

// Requests that come, go and are aborted, while weights change and the server pauses, all end; rows are not lost.
func TestRequestsComeAndGo(t *testing.T) {
	folders, _, _, tok := models(t, 2)
	s, engines, _ := serve(t, folders[0], server.Options{Rows: 3, MaxWaiting: 64}, nil)
	prompt, err := tok.Encode("9")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all, disturbing sync.WaitGroup
	disturbing.Go(func() {
		random := rollout.Stream(1, "disturb", 0)
		for v := 1; ctx.Err() == nil; v++ {
			var err error
			switch random.IntN(3) {
			case 0:
				err = s.Abort(ctx)
			default:
				of := []engine.Dialect{engine.VLLM, engine.SGLang}[v%2]
				err = engines[of].Load(ctx, engine.Weights{Version: rollout.Version(v), Folder: folders[v%2]})
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
		}
	})
	ended := make(map[engine.Finish]int)
	var mu sync.Mutex
	for client := range 8 {
		all.Go(func() {
			random := rollout.Stream(2, "client", uint64(client))
			for range 12 {
				e := engines[engine.Dialects()[random.IntN(4)]]
				limited, cancel := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(400))*time.Millisecond)
				list, err := e.Generate(limited, engine.Request{Prompt: prompt, N: 1 + random.IntN(4),
					Sampling: engine.Sampling{Temperature: 1, TopP: 1, MaxTokens: 1 + random.IntN(60)}})
				if err != nil && !errors.Is(err, engine.ErrUnavailable) && limited.Err() == nil {
					t.Error(err)
				}
				cancel()
				mu.Lock()
				for _, c := range list {
					ended[c.Finish]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	stop()
	disturbing.Wait()
	// The last pause was perhaps cut off, and comes after its own end.
	if err := engines[engine.VLLM].Load(t.Context(), engine.Weights{Folder: folders[0]}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", ended)
	for range 6 { // every row works
		if _, err := engines[engine.VLLM].Generate(t.Context(), engine.Request{Prompt: prompt, N: 3,
			Sampling: engine.Sampling{Temperature: 1, TopP: 1, MaxTokens: 4}}); err != nil {
			t.Fatal(err)
		}
	}
	if ended[engine.Length] == 0 {
		t.Error("no completion came to its end")
	}
}

// chat asks for a chat, and returns its answer, or its events.
func chat(t *testing.T, address, body string) (list []chatPart) {
	t.Helper()
	answer, err := http.Post(address+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("%d: %s: %v", answer.StatusCode, text, err)
	}
	if events, streamed := strings.CutSuffix(string(text), "data: [DONE]\n\n"); streamed {
		text = []byte(strings.ReplaceAll(events, "data: ", ""))
	}
	for in := json.NewDecoder(bytes.NewReader(text)); ; {
		var part chatPart
		if err := in.Decode(&part); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		list = append(list, part)
	}
}

// chatPart is an answer, or an event of one.
type chatPart struct {
	Prompt  []int32 `json:"prompt_token_ids"`
	Choices []struct {
		Index          int
		Message, Delta struct{ Content string }
		Finish         string  `json:"finish_reason"`
		IDs            []int32 `json:"token_ids"`
		Logprobs       struct{ Content []struct{ Logprob float32 } }
		Versions       []any `json:"weight_versions"`
	}
	Usage struct {
		Tokens int `json:"completion_tokens"`
	}
}

// chatted is a completion put together from all parts.
type chatted struct {
	text, finish string
	ids          []int32
	logprobs     []float32
	versions     int
}

func together(list []chatPart) (prompt []int32, tokens int, made map[int]*chatted) {
	made = make(map[int]*chatted)
	for _, part := range list {
		prompt, tokens = append(prompt, part.Prompt...), tokens+part.Usage.Tokens
		for _, c := range part.Choices {
			if made[c.Index] == nil {
				made[c.Index] = &chatted{}
			}
			m := made[c.Index]
			m.text, m.finish = m.text+c.Message.Content+c.Delta.Content, m.finish+c.Finish
			m.ids, m.versions = append(m.ids, c.IDs...), m.versions+len(c.Versions)
			for _, l := range c.Logprobs.Content {
				m.logprobs = append(m.logprobs, l.Logprob)
			}
		}
	}
	return prompt, tokens, made
}

// A streamed chat has the tokens, log-probs and text of one that comes whole, in several events, and both have the ids
// of the rendered messages.
func TestAStreamedChatSaysWhatAWholeOneSays(t *testing.T) {
	folders, model, weights, tok := models(t, 1)
	_, _, address := serve(t, folders[0], server.Options{Template: "{% for m in messages %}{{ m.content }}" +
		"{% if m.role == 'assistant' %}{{ eos_token }}{% else %}={% endif %}{% endfor %}"}, nil)
	body := func(stream bool) string {
		return fmt.Sprintf(`{"messages": [{"role": "user", "content": "1+2"}, {"role": "assistant", "content": "3"},
			{"role": "tool", "content": "4"}], "n": 3, "max_tokens": 20, "seed": 7, "logprobs": true, "stop": ["7"],
			"return_token_ids": true, "return_weight_versions": true, "stream": %v,
			"stream_options": {"include_usage": true}}`, stream)
	}
	prompt, tokens, want := together(chat(t, address, body(false)))
	events := chat(t, address, body(true))
	streamedPrompt, streamedTokens, got := together(events)
	before, err := tok.Encode("1+2=3")
	after, err2 := tok.Encode("4=")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	ids := slices.Concat(before, []int32{1}, after)
	if !slices.Equal(prompt, ids) || !slices.Equal(streamedPrompt, ids) {
		t.Errorf("prompts %v and %v, want %v", prompt, streamedPrompt, ids)
	}
	if !reflect.DeepEqual(got, want) || streamedTokens != tokens || len(got) != 3 || len(events) < 5 {
		t.Errorf("%d events say %+v, %d tokens; whole it is %+v, %d", len(events), got, streamedTokens, want, tokens)
	}
	for _, m := range want {
		c := engine.Completion{Tokens: m.ids}
		for i, x := range score(t, model, weights[0], ids, &c, 1) {
			if math.Abs(float64(m.logprobs[i]-x)) > 1e-3 {
				t.Fatalf("token %d has log-prob %g, want %g", i, m.logprobs[i], x)
			}
		}
		if strings.Contains(m.text, "7") || m.versions == 0 || m.finish == "" {
			t.Errorf("%+v", m)
		}
	}
}

// Bad requests are refused with the field, the value and the remedy, and their status.
func TestBadRequestsAreRefused(t *testing.T) {
	folders, _, _, _ := models(t, 1)
	_, engines, address := serve(t, folders[0], server.Options{MaxWaiting: 4}, nil)
	for _, c := range []struct {
		path, body string
		status     int
		part       string
	}{
		{"/v1/completions", `{"prompt": [1, 99]}`, 400, "token 1 is 99"},
		{"/v1/completions", `{"prompt": []}`, 400, "prompt: 0 tokens"},
		{"/v1/completions", `{"prompt": [2], "n": 9}`, 400, "n: 9"},
		{"/v1/completions", `{"prompt": [2], "stream": true}`, 400, "stream"},
		{"/v1/completions", `{"prompt": {}}`, 400, "list of token ids"},
		{"/v1/completions", `{`, 400, "the body"},
		{"/generate", `{"input_ids": [2], "sampling_params": {"temperature": -1}}`, 400, "temperature: -1"},
		{"/completion", `{"prompt": [2], "n_probs": 1}`, 400, "post_sampling_probs"},
		{"/pause?mode=later", `{}`, 400, "abort, wait or keep"},
		{"/pause_generation", `{"mode": "later"}`, 400, "in_place"},
		{"/collective_rpc", `{"method": "exit"}`, 400, "reload_weights"},
		{"/update_weights_from_disk", `{}`, 400, "model_path"},
		{"/update_weight_version", `{}`, 400, "new_version"},
		{"/v1/completions", `{"prompt": "` + strings.Repeat("1", 17<<20) + `"}`, 400, "too large"},
		{"/tokenize", `{"prompt": "x"}`, 400, "x"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "1"}]}`, 400, "--chat-template"},
	} {
		answer, err := http.Post(address+c.path, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != c.status || !strings.Contains(string(text), c.part) || !json.Valid(text) {
			t.Errorf("%s %.60s: status %d, %s: want %d and %q", c.path, c.body, answer.StatusCode, text, c.status, c.part)
		}
	}
	err := engines[engine.SGLang].Load(t.Context(), engine.Weights{Version: 1, Folder: "/nowhere"})
	if err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("weights of a folder that is not there: %v", err)
	}
	for _, d := range []engine.Dialect{engine.LlamaCPP, engine.OpenAI} {
		err := engines[d].Load(t.Context(), engine.Weights{Version: 1, Folder: folders[0]})
		if err == nil || !strings.Contains(err.Error(), "want a command") {
			t.Errorf("%s: %v", d, err)
		}
	}
}
