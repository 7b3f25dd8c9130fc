package engine

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/rollout"
)

// llamacpp is llama.cpp's server, by its own interface. It knows no versions and takes no weights.
type llamacpp struct {
	*server
	weights *ownVersion
}

// llamacppRequest leaves the two steps of sampling that rollouts account for, in their order. Anything else that is on
// by default would change the distribution unseen.
type llamacppRequest struct {
	Prompt        []int32  `json:"prompt"`
	NPredict      int      `json:"n_predict"`
	Temperature   float64  `json:"temperature"`
	TopP          float64  `json:"top_p"`
	Samplers      []string `json:"samplers"`
	NProbs        int      `json:"n_probs"`
	PostSampling  bool     `json:"post_sampling_probs"` // otherwise they ignore the temperature
	ReturnTokens  bool     `json:"return_tokens"`
	CachePrompt   bool     `json:"cache_prompt"`
	Seed          *int64   `json:"seed,omitempty"`
	RepeatPenalty float64  `json:"repeat_penalty"`
	TopK          int      `json:"top_k"`
	MinP          float64  `json:"min_p"`
}

func (r llamacppRequest) tokens() (int, bool) { return len(r.Prompt) + r.NPredict, false }

type llamacppAnswer struct {
	Tokens        []int32 `json:"tokens"`
	StopType      string  `json:"stop_type"`
	Probabilities []struct {
		ID   int32   `json:"id"`
		Prob float64 `json:"prob"`
	} `json:"completion_probabilities"`
}

// Generate asks for each completion by itself, which the server decodes in one batch.
func (e *llamacpp) Generate(ctx context.Context, r Request) ([]Completion, error) {
	return e.weights.each(ctx, r, e.one)
}

// ErrPartial is returned for a completion of which llama.cpp gives no log-prob.
var ErrPartial = errors.New("a completion begins with part of a character, whose log-prob llama.cpp leaves out: " +
	"sample it again, or use another engine")

func (e *llamacpp) one(ctx context.Context, r Request) (c Completion, err error) {
	for range 4 {
		if c, err = e.once(ctx, r); !errors.Is(err, ErrPartial) {
			break
		}
		if r.Seed != 0 { // the same again would begin with the same token
			r.Seed += 1 << 20
		}
	}
	return c, err
}

func (e *llamacpp) once(ctx context.Context, r Request) (Completion, error) {
	body := llamacppRequest{Prompt: r.Prompt, NPredict: r.MaxTokens, Temperature: r.Temperature, TopP: r.TopP,
		Samplers: []string{"temperature"}, NProbs: 1, PostSampling: true, ReturnTokens: true, CachePrompt: true,
		RepeatPenalty: 1}
	if r.TopP < 1 {
		body.Samplers = append(body.Samplers, "top_p")
	}
	if r.Seed != 0 {
		body.Seed = &r.Seed
	}
	var answer llamacppAnswer
	if err := e.post(ctx, "/completion", body, &answer); err != nil {
		return Completion{}, err
	}
	c := Completion{Tokens: answer.Tokens, Finish: Aborted}
	switch answer.StopType {
	case "limit":
		c.Finish = Length
	case "eos", "word":
		c.Finish = Stopped
	}
	if len(answer.Probabilities) == 0 && len(c.Tokens) > 1 {
		return c, fmt.Errorf("%s: no probabilities: want a server with return_tokens, n_probs and post_sampling_probs", e)
	}
	for i, p := range answer.Probabilities {
		if i >= len(c.Tokens) || p.ID != c.Tokens[i] {
			break
		}
		c.Logprobs = append(c.Logprobs, float32(math.Log(p.Prob)))
	}
	if n := len(c.Logprobs); n < len(c.Tokens) {
		// llama.cpp leaves out tokens that do not complete a character: the completion ends before the first.
		if c.Tokens, c.Finish = c.Tokens[:n], Length; n == 0 {
			return c, fmt.Errorf("%s: %w", e, ErrPartial)
		}
	}
	c.cut(r.Stop)
	if err := e.check(&c); err != nil {
		return c, fmt.Errorf("%s: %w", e, err)
	}
	return c, nil
}

// firstTokens does not sample again what is part of a character, which would make other tokens likelier: such a
// completion has no token.
func (e *llamacpp) firstTokens(ctx context.Context, r Request) ([]Completion, error) {
	return e.weights.each(ctx, r, func(ctx context.Context, one Request) (Completion, error) {
		return orPart(e.once(ctx, one))
	})
}

// orPart returns a completion without a token in place of the error of one that is part of a character.
func orPart(c Completion, err error) (Completion, error) {
	if errors.Is(err, ErrPartial) || errors.Is(err, errNoLogprobs) {
		return Completion{Finish: Length}, nil
	}
	return c, err
}

func (e *llamacpp) Version(context.Context) (rollout.Version, error) { return e.weights.version(), nil }

func (e *llamacpp) Load(ctx context.Context, w Weights) error { return e.weights.load(ctx, w) }

func (e *llamacpp) Abort(context.Context) error {
	return fmt.Errorf("%s: abort: %w: llama.cpp ends requests whose connection is closed", e, errors.ErrUnsupported)
}

func (e *llamacpp) Health(ctx context.Context) error { return e.get(ctx, "/health", nil) }

// room returns the context of a slot: the server divides its own among them.
func (e *llamacpp) room(ctx context.Context) (int, error) {
	var answer struct {
		Defaults struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	err := e.get(ctx, "/props", &answer)
	return answer.Defaults.Context, err
}

func (e *llamacpp) Tokenize(ctx context.Context, text string) ([]int32, error) {
	return e.tokenize(ctx, map[string]any{"content": text, "add_special": false, "parse_special": true})
}
