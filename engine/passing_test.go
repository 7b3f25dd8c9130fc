package engine

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

func passing(t testing.TB, path, body string) *Passing {
	t.Helper()
	g, err := OpenGateway(Options{Dialect: VLLM, Address: "http://127.0.0.1:1", Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.NewPassing(path, []byte(body), Sampling{Temperature: 0.7, TopP: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestACallAsksForWhatARolloutNeeds(t *testing.T) {
	p := passing(t, ChatPath,
		`{"model": "gpt", "messages": [{"role": "user", "content": "<a>"}], "temperature": 0, "top_p": 1.0,
		"frequency_penalty": 0.5, "tools": [], "unknown": {"b": 1, "a": 2}}`)
	var sent map[string]any
	if err := json.Unmarshal(p.body, &sent); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": "<a>"}},
		"tools":   []any{},
		"unknown": map[string]any{"b": 1.0, "a": 2.0}, "temperature": 0.7, "top_p": 1.0, "top_k": -1.0, "min_p": 0.0,
		"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "include_reasoning": true,
		"logprobs": true, "top_logprobs": 0.0, "return_token_ids": true, "return_weight_versions": true}
	if !reflect.DeepEqual(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	if !slices.Equal(p.Replaced, []string{"frequency_penalty 0.5", "temperature 0"}) || p.Untrained != "" {
		t.Errorf("replaced %q, untrained %q", p.Replaced, p.Untrained)
	}
	for field, steers := range map[string]bool{
		`"logit_bias": {"4": 1}`: true, `"logit_bias": {}`: false, `"response_format": {"type": "json_object"}`: true,
		`"response_format": {"type": "text"}`: false, `"tool_choice": "required"`: true, `"tool_choice": "auto"`: false,
		`"tool_choice": {"type": "function"}`: true, `"min_tokens": 3`: true, `"structured_outputs": null`: false,
		`"guided_json": "{}"`: true, `"vllm_xargs": {"a": 1}`: true, `"stop": ["x"]`: false,
	} {
		if p := passing(t, CompletionsPath, `{"prompt": "x", `+field+`}`); (p.Untrained != "") != steers {
			t.Errorf("%s: untrained is %q", field, p.Untrained)
		}
	}
}

// What comes in one answer or in events is the same completion, and the agent reads what the server would have given it
// alone.
func TestAnAnswerIsRecordedWholeOrInEvents(t *testing.T) {
	const meta = `"token_ids": [%s], "logprobs": {"content": [%s]}`
	whole := fmt.Sprintf(`{"id": "x", "prompt_token_ids": [1, 2], "choices": [{"index": 0, "message": {"content": "<b>"},
		"finish_reason": "tool_calls", "weight_versions": [{"version": "3", "start": 0, "end": 1}, {"version": "4",
			"start": 1,
		"end": 3}], `+meta+`}]}`, "7, 8, 9", `{"logprob": -1}, {"logprob": -2}, {"logprob": 0}`)
	events := []string{
		`{"id": "x", "prompt_token_ids": [1, 2], "choices": [{"index": 0, "delta": {"role": "assistant"}}]}`,
		fmt.Sprintf(`{"id": "x", "choices": [{"index": 0, "delta": {"content": "<"}, `+meta+`}]}`, "7", `{"logprob": -1}`),
		fmt.Sprintf(`{"id": "x", "choices": [{"index": 0, "delta": {"content": "b>"}, "finish_reason": "tool_calls",
			"weight_versions": [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 3}], `+meta+`}]}`,
			"8, 9", `{"logprob": -2}, {"logprob": 0}`),
		`{"id": "x", "choices": [], "usage": {"total_tokens": 5}}`,
	}
	want := Recorded{[]int32{1, 2}, Completion{Tokens: []int32{7, 8, 9}, Logprobs: []float32{-1, -2, 0},
		Versions: []rollout.Version{3, 4, 4}, Finish: Stopped}}
	for name, texts := range map[string][]string{"whole": {whole}, "events": events} {
		p := passing(t, ChatPath, `{"messages": [{}]}`)
		for i, text := range texts {
			if i > 0 && p.Done() != (i > 2) {
				t.Errorf("%s: after %d events it is done: %v", name, i, p.Done())
			}
			got, err := p.Read([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if s := string(got); strings.Contains(s, "token_ids") || strings.Contains(s, "logprob") ||
				strings.Contains(s, "weight_versions") || !strings.Contains(s, `"id":"x"`) || strings.Contains(s, `\u003c`) {
				t.Errorf("%s: the agent gets %s", name, s)
			}
		}
		list, err := p.Recorded()
		if err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], want) || p.ID() != "x" {
			t.Errorf("%s: %+v, %v, want %+v", name, list, err, want)
		}
	}
	p := passing(t, ChatPath,
		`{"messages": [{}], "logprobs": true, "return_token_ids": true, "return_weight_versions": true}`)
	got, err := p.Read([]byte(whole))
	var read, sent any
	if err == nil {
		err = json.Unmarshal(got, &read)
	}
	if err == nil {
		err = json.Unmarshal([]byte(whole), &sent)
	}
	if err != nil || !reflect.DeepEqual(read, sent) {
		t.Errorf("an agent that asks for everything gets %s, %v", got, err)
	}
}

func FuzzAnswersThatPass(f *testing.F) {
	f.Add([]byte(`{"id": "x", "prompt_token_ids": [1], "choices": [{"index": 0, "token_ids": [1], ` +
		`"finish_reason": "stop", "logprobs": {"content": [{"logprob": -1}]}, ` +
		`"weight_versions": [{"version": "0", "start": 0, "end": 1}]}]}`))
	f.Add([]byte(`{"choices": [{"index": 1, "prompt_token_ids": [-1], "logprobs": {"token_logprobs": [null]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := passing(t, ChatPath, `{"messages": [{}]}`)
		for range 2 {
			if out, err := p.Read(text); err != nil {
				return
			} else if !json.Valid(out) {
				t.Fatalf("%q", out)
			}
		}
		list, err := p.Recorded()
		if err != nil {
			return
		}
		for _, r := range list {
			if len(r.Tokens) != len(r.Logprobs) || len(r.Tokens) != len(r.Versions) || len(r.Prompt) == 0 {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func FuzzCallsThatPass(f *testing.F) {
	f.Add(`{"messages": [{}], "temperature": null, "stream": true, "n": 2}`)
	f.Add(`{"prompt": [[1]], "tool_choice": {}, "response_format": 3}`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := OpenGateway(Options{Dialect: VLLM, Address: "http://127.0.0.1:1", Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{ChatPath, CompletionsPath} {
			p, err := g.NewPassing(path, []byte(text), Sampling{Temperature: 1, TopP: 1})
			if err == nil && !json.Valid(p.body) {
				t.Fatalf("%q", p.body)
			}
		}
	})
}
