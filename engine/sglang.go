package engine

import (
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"strconv"

	"github.com/reprise-rl/reprise/rollout"
)

// sglang is SGLang's server, by its own interface.
type sglang struct{ *server }

type sglangRequest struct {
	InputIDs           []int32        `json:"input_ids"`
	SamplingParams     sglangSampling `json:"sampling_params"`
	ReturnLogprob      bool           `json:"return_logprob"`
	ReturnSamplingMask bool           `json:"return_sampling_mask,omitempty"`
}

func (r sglangRequest) tokens() (int, bool) {
	return r.SamplingParams.N * (len(r.InputIDs) + r.SamplingParams.MaxNewTokens), r.ReturnSamplingMask
}

type sglangSampling struct {
	N            int     `json:"n"`
	MaxNewTokens int     `json:"max_new_tokens"`
	Temperature  float64 `json:"temperature"`
	TopP         float64 `json:"top_p"`
	StopTokenIDs []int32 `json:"stop_token_ids,omitempty"`
	NoStopTrim   bool    `json:"no_stop_trim"`
	SamplingSeed *int64  `json:"sampling_seed,omitempty"`
	plain
}

// sglangAnswers is one object for n = 1, and a list of n for more.
type sglangAnswers []sglangAnswer

func (a *sglangAnswers) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() == '[' {
		return jsonv2.UnmarshalDecode(in, (*[]sglangAnswer)(a))
	}
	*a = make(sglangAnswers, 1)
	return jsonv2.UnmarshalDecode(in, &(*a)[0])
}

type sglangAnswer struct {
	Meta struct {
		FinishReason struct {
			Type string `json:"type"`
		} `json:"finish_reason"`
		// [log-prob, id, text] of each token, over the whole vocabulary
		Logprobs []sglangToken `json:"output_token_logprobs"`
		// the ids that each token could have been drawn from, and its log-prob among them
		SamplingMask     [][]int32 `json:"output_token_sampling_mask"`
		SamplingLogprobs []float32 `json:"output_token_sampling_logprobs"`
		WeightVersions   []span    `json:"weight_versions"`
	} `json:"meta_info"`
}

// sglangToken is a list of a log-prob, an id and a text.
type sglangToken struct {
	logprob float32
	id      int32
}

func (t *sglangToken) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list) < 2 {
		return fmt.Errorf("%d entries of a token: want its log-prob, id and text", len(list))
	}
	return errors.Join(json.Unmarshal(list[0], &t.logprob), json.Unmarshal(list[1], &t.id))
}

func (e *sglang) Generate(ctx context.Context, r Request) ([]Completion, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if r.Seed != 0 && r.N > 1 { // SGLang gives all n the seed itself, and they would be the same
		return each(ctx, r, func(ctx context.Context, one Request) (Completion, error) {
			list, err := e.Generate(ctx, one)
			if err != nil {
				return Completion{}, err
			}
			return list[0], nil
		})
	}
	body := sglangRequest{InputIDs: r.Prompt, ReturnLogprob: true, ReturnSamplingMask: r.TopP < 1,
		SamplingParams: sglangSampling{N: r.N, MaxNewTokens: r.MaxTokens, Temperature: r.Temperature, TopP: r.TopP,
			StopTokenIDs: r.Stop, NoStopTrim: true, plain: unchanged}}
	if r.Seed != 0 {
		body.SamplingParams.SamplingSeed = &r.Seed
	}
	var answers sglangAnswers
	if err := e.post(ctx, "/generate", body, &answers); err != nil {
		return nil, err
	}
	if len(answers) != r.N {
		return nil, fmt.Errorf("%s: %d completions came, %d were asked for", e, len(answers), r.N)
	}
	list := make([]Completion, r.N)
	for i := range answers {
		var err error
		if list[i], err = answers[i].completion(r, e.options.Initial); err == nil {
			err = e.check(&list[i])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
	}
	return list, nil
}

func (a *sglangAnswer) completion(r Request, initial rollout.Version) (c Completion, err error) {
	for _, t := range a.Meta.Logprobs {
		c.Tokens, c.Logprobs = append(c.Tokens, t.id), append(c.Logprobs, t.logprob)
	}
	if r.TopP < 1 {
		if len(a.Meta.SamplingMask) != len(c.Tokens) || len(a.Meta.SamplingLogprobs) != len(c.Tokens) {
			return c, fmt.Errorf("%d tokens with top_p %g have %d sampling masks: want SGLang 0.5.23 or newer, or "+
				"top_p 1", len(c.Tokens), r.TopP, len(a.Meta.SamplingMask))
		}
		for _, ids := range a.Meta.SamplingMask {
			c.SamplingMask.Append(ids...)
		}
		c.Logprobs = a.Meta.SamplingLogprobs
	}
	switch a.Meta.FinishReason.Type {
	case "stop":
		c.Finish = Stopped
	case "length":
		c.Finish = Length
	default:
		c.Finish = Aborted
	}
	if len(a.Meta.WeightVersions) == 0 && len(c.Tokens) > 0 {
		return c, errors.New("no weight_versions: want SGLang 0.5.23 or newer, or the dialect openai")
	}
	c.Versions, err = spread(a.Meta.WeightVersions, len(c.Tokens), initial)
	return c, err
}

func (e *sglang) Version(ctx context.Context) (rollout.Version, error) {
	var info struct {
		WeightVersion string `json:"weight_version"`
	}
	if err := e.get(ctx, "/model_info", &info); err != nil {
		return 0, err
	}
	return versionOf(info.WeightVersion, e.options.Initial), nil
}

// Load pauses by retraction. Paused in place, SGLang holds back the token that it is sampling and labels it with the
// new version, and it cannot drop the keys and values that the old weights computed.
func (e *sglang) Load(ctx context.Context, w Weights) (err error) {
	defer func() { // also if the answer to the pause is lost
		err = errors.Join(err, e.post(context.WithoutCancel(ctx), "/continue_generation", struct{}{}, nil))
	}()
	if err := e.post(ctx, "/pause_generation", map[string]string{"mode": "retract"}, nil); err != nil {
		return err
	}
	var answer struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
	err = e.post(ctx, "/update_weights_from_disk", map[string]any{"model_path": w.Folder,
		"weight_version": strconv.Itoa(int(w.Version)), "flush_cache": true}, &answer)
	if err == nil && !answer.Success {
		err = fmt.Errorf("%s: taking the weights of %s: %s", e, w.Folder, answer.Message)
	}
	return err
}

func (e *sglang) Abort(ctx context.Context) error {
	return e.post(ctx, "/abort_request", map[string]bool{"abort_all": true}, nil)
}

func (e *sglang) Health(ctx context.Context) error { return e.get(ctx, "/health", nil) }

func (e *sglang) Tokenize(ctx context.Context, text string) ([]int32, error) {
	return e.tokenize(ctx, map[string]any{"prompt": text, "add_special_tokens": false})
}
