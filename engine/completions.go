package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
)

// plain turns off what else servers do to a distribution. Where these are left out vLLM takes them from the model's
// generation_config.json, SGLang from --preferred-sampling-params, and llama.cpp has defaults of its own: tokens would
// be drawn from another distribution than the log-probs are of.
type plain struct {
	TopK              int     `json:"top_k"`
	MinP              float64 `json:"min_p"`
	RepetitionPenalty float64 `json:"repetition_penalty"`
	PresencePenalty   float64 `json:"presence_penalty"`
	FrequencyPenalty  float64 `json:"frequency_penalty"`
}

var unchanged = plain{TopK: -1, RepetitionPenalty: 1}

// completionsRequest is the body of /v1/completions. The fields after Seed are vLLM's; others ignore or refuse them.
type completionsRequest struct {
	Model       string  `json:"model,omitempty"`
	Prompt      []int32 `json:"prompt"`
	N           int     `json:"n"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	Logprobs    int     `json:"logprobs"`
	Seed        *int64  `json:"seed,omitempty"`

	plain
	StopTokenIDs         []int32 `json:"stop_token_ids,omitempty"`
	ReturnTokenIDs       bool    `json:"return_token_ids,omitempty"`
	ReturnAsTokenIDs     bool    `json:"return_tokens_as_token_ids,omitempty"`
	ReturnWeightVersions bool    `json:"return_weight_versions,omitempty"`
}

func (r completionsRequest) tokens() (int, bool) { return r.N * (len(r.Prompt) + r.MaxTokens), false }

type completionsAnswer struct {
	Choices []completionsChoice `json:"choices"`
}

type completionsChoice struct {
	Index        int     `json:"index"`
	TokenIDs     []int32 `json:"token_ids"`
	FinishReason *string `json:"finish_reason"`
	Logprobs     *struct {
		Tokens        []string        `json:"tokens"`
		TokenLogprobs []*float32      `json:"token_logprobs"`
		Content       []llamacppToken `json:"content"`
	} `json:"logprobs"`
	WeightVersions []span `json:"weight_versions"`
}

// llamacppToken is a token of a completion as llama.cpp gives it here. The others have no such list.
type llamacppToken struct {
	ID      int32    `json:"id"`
	Logprob *float32 `json:"logprob"`
}

// complete asks /v1/completions. The completions have no versions yet.
func (s *server) complete(ctx context.Context, r Request, vllm bool) ([]completionsChoice, []Completion, error) {
	if err := r.Validate(); err != nil {
		return nil, nil, err
	}
	body := completionsRequest{
		Model: s.options.Model, Prompt: r.Prompt, N: r.N, MaxTokens: r.MaxTokens, Temperature: r.Temperature,
		TopP: r.TopP, Logprobs: 1, plain: unchanged, StopTokenIDs: r.Stop, ReturnTokenIDs: true, ReturnAsTokenIDs: !vllm,
		ReturnWeightVersions: vllm,
	}
	if r.Seed != 0 {
		body.Seed = &r.Seed
	}
	var answer completionsAnswer
	if err := s.post(ctx, "/v1/completions", body, &answer); err != nil {
		return nil, nil, err
	}
	if len(answer.Choices) != r.N {
		return nil, nil, fmt.Errorf("%s: %d completions came, %d were asked for: the server must support n", s,
			len(answer.Choices), r.N)
	}
	choices, list := make([]completionsChoice, r.N), make([]Completion, r.N)
	seen := make([]bool, r.N)
	for _, choice := range answer.Choices {
		if choice.Index < 0 || choice.Index >= r.N || seen[choice.Index] {
			return nil, nil, fmt.Errorf("%s: completion %d came twice, or is none of the %d asked for", s, choice.Index,
				r.N)
		}
		seen[choice.Index] = true
		c, err := choice.completion(r.Stop)
		if err == nil {
			err = s.check(&c)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s, err)
		}
		choices[choice.Index], list[choice.Index] = choice, c
	}
	return choices, list, nil
}

// errNoIDs is returned for a server that gives text without ids: encoded again it may be other tokens.
var errNoIDs = errors.New("the completion is text without token ids, which may be encoded as other tokens: use a " +
	"server that returns ids (return_token_ids, or tokens as token_id:N)")

// errNoLogprobs is returned for a server that gives none. llama.cpp gives none for a completion that is part of a
// character.
var errNoLogprobs = errors.New("the completion has no log-probs: the server must support logprobs")

func (c *completionsChoice) completion(stop []int32) (Completion, error) {
	out := Completion{Tokens: c.TokenIDs}
	if c.Logprobs == nil {
		return out, errNoLogprobs
	}
	for _, t := range c.Logprobs.Content {
		if c.TokenIDs == nil {
			out.Tokens = append(out.Tokens, t.ID)
		}
		c.Logprobs.TokenLogprobs = append(c.Logprobs.TokenLogprobs, t.Logprob)
	}
	if out.Tokens == nil {
		var err error
		if out.Tokens, err = idsOf(c.Logprobs.Tokens); err != nil {
			return out, err
		}
	}
	for i, x := range c.Logprobs.TokenLogprobs {
		if x == nil {
			return out, fmt.Errorf("token %d has no log-prob: want one for each token", i)
		}
		out.Logprobs = append(out.Logprobs, *x)
	}
	switch {
	case c.FinishReason == nil:
		return out, errors.New("a completion has no finish_reason: want stop, length or abort")
	case *c.FinishReason == "stop":
		out.Finish = Stopped
	case *c.FinishReason == "length":
		out.Finish = Length
	default:
		out.Finish = Aborted
	}
	out.cut(stop)
	return out, nil
}

// cut ends a completion with its first stop token: servers that know no stop ids go on.
func (c *Completion) cut(stop []int32) {
	for i, t := range c.Tokens {
		for _, s := range stop {
			if t == s {
				end := i + 1
				c.Tokens, c.Logprobs, c.Finish = c.Tokens[:end], c.Logprobs[:min(end, len(c.Logprobs))], Stopped
				return
			}
		}
	}
}

// idsOf returns the ids of tokens in the form token_id:N.
func idsOf(tokens []string) ([]int32, error) {
	ids := make([]int32, len(tokens))
	for i, t := range tokens {
		text, found := strings.CutPrefix(t, "token_id:")
		id, err := strconv.ParseInt(text, 10, 32)
		if !found || err != nil {
			return nil, errNoIDs
		}
		ids[i] = int32(id)
	}
	return ids, nil
}

// vllm is vLLM's server. Its weights are taken by the endpoints of VLLM_SERVER_DEV_MODE=1.
type vllm struct{ *server }

func (e *vllm) Generate(ctx context.Context, r Request) ([]Completion, error) {
	choices, list, err := e.complete(ctx, r, true)
	if err != nil {
		return nil, err
	}
	for i := range list {
		spans := choices[i].WeightVersions
		if len(spans) == 0 && len(list[i].Tokens) > 0 {
			return nil, fmt.Errorf("%s: no weight_versions: want vLLM 0.33 or newer (return_weight_versions), or the "+
				"dialect openai", e)
		}
		if list[i].Versions, err = spread(spans, len(list[i].Tokens), e.options.Initial); err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
	}
	return list, nil
}

// devMode explains a missing endpoint.
func (e *vllm) devMode(err error) error {
	if lacks(err) {
		return fmt.Errorf("%w: start vLLM with VLLM_SERVER_DEV_MODE=1, which gives it the endpoints for weights", err)
	}
	return err
}

func (e *vllm) Version(ctx context.Context) (rollout.Version, error) {
	var info struct {
		WeightVersion *string `json:"weight_version"`
	}
	if err := e.get(ctx, "/weight_info", &info); err != nil {
		return 0, e.devMode(err)
	}
	if info.WeightVersion == nil {
		return e.options.Initial, nil
	}
	return versionOf(*info.WeightVersion, e.options.Initial), nil
}

func (e *vllm) Load(ctx context.Context, w Weights) (err error) {
	if err = e.post(ctx, "/pause?mode=keep", nil, nil); lacks(err) {
		return e.devMode(err)
	}
	defer func() { err = errors.Join(err, e.post(context.WithoutCancel(ctx), "/resume", nil, nil)) }()
	if err != nil { // its answer may be lost, so that it is paused all the same
		return err
	}
	err = e.post(ctx, "/collective_rpc", map[string]any{"method": "reload_weights",
		"kwargs": map[string]string{"weights_path": w.Folder}}, nil)
	if err != nil {
		return e.devMode(err)
	}
	return e.post(ctx, "/update_weight_version", map[string]string{
		"new_version": strconv.Itoa(int(w.Version))}, nil)
}

func (e *vllm) Abort(ctx context.Context) error {
	return e.devMode(e.post(ctx, "/abort_requests", struct{}{}, nil))
}

func (e *vllm) Health(ctx context.Context) error { return e.get(ctx, "/health", nil) }

func (e *vllm) Tokenize(ctx context.Context, text string) ([]int32, error) {
	body := map[string]any{"prompt": text, "add_special_tokens": false}
	if e.options.Model != "" {
		body["model"] = e.options.Model
	}
	return e.tokenize(ctx, body)
}

// room returns how many tokens a prompt and its completion may have, by /v1/models; 0 if the server does not say.
func (s *server) room(ctx context.Context) (int, error) {
	var answer struct {
		Data []struct {
			ID     string `json:"id"`
			Length int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := s.get(ctx, "/v1/models", &answer); err != nil {
		return 0, err
	}
	for _, m := range answer.Data {
		if m.ID == s.options.Model || len(answer.Data) == 1 {
			return m.Length, nil
		}
	}
	return 0, nil
}

// tokenize asks /tokenize, which three of the dialects have.
func (s *server) tokenize(ctx context.Context, body any) ([]int32, error) {
	var answer struct {
		Tokens []int32 `json:"tokens"`
	}
	err := s.post(ctx, "/tokenize", body, &answer)
	return answer.Tokens, err
}

// openai is any server with /v1/completions that gives ids and log-probs. It knows no versions.
type openai struct {
	*server
	weights *ownVersion
}

// Generate asks for one completion at a time: servers bound n.
func (e *openai) Generate(ctx context.Context, r Request) ([]Completion, error) {
	return e.weights.each(ctx, r, e.one)
}

func (e *openai) one(ctx context.Context, r Request) (Completion, error) {
	_, list, err := e.complete(ctx, r, false)
	if err != nil {
		return Completion{}, err
	}
	return list[0], nil
}

// firstTokens is Generate, in which a completion that is part of a character has no token: llama.cpp gives it no
// log-probs.
func (e *openai) firstTokens(ctx context.Context, r Request) ([]Completion, error) {
	return e.weights.each(ctx, r, func(ctx context.Context, one Request) (Completion, error) {
		return orPart(e.one(ctx, one))
	})
}

func (e *openai) Version(context.Context) (rollout.Version, error) { return e.weights.version(), nil }

func (e *openai) Load(ctx context.Context, w Weights) error { return e.weights.load(ctx, w) }

func (e *openai) Abort(context.Context) error {
	return fmt.Errorf("%s: abort: %w: servers of this dialect end requests whose connection is closed", e,
		errors.ErrUnsupported)
}

func (e *openai) Health(ctx context.Context) error { return e.get(ctx, "/v1/models", nil) }

func (e *openai) Tokenize(context.Context, string) ([]int32, error) {
	return nil, fmt.Errorf("%s: tokenize: %w: OpenAI's interface has no such call", e, errors.ErrUnsupported)
}
