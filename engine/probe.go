package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
)

// Lack is something that a server does not give, or gives wrongly.
type Lack struct {
	What   string `json:"what"`   // "log-probs are not at the sampling temperature"
	Remedy string `json:"remedy"` // what to do: "start vLLM with --logprobs-mode processed_logprobs"
	Lost   string `json:"lost"`   // what a run that accepts it loses: "ratios are wrong by …"
}

func (l Lack) String() string { return l.What + ": " + l.Remedy }

// Report is what [Probe] found.
type Report struct {
	Engine  string          `json:"engine"`
	Version rollout.Version `json:"version"`
	Lacks   []Lack          `json:"lacks"`
	Unknown []string        `json:"unknown"` // what the server gives no way to find out
}

// Err returns an error that names every lack with its remedy, nil if there is none.
func (r *Report) Err() error {
	if len(r.Lacks) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s does not give what a rollout needs", r.Engine)
	for _, l := range r.Lacks {
		fmt.Fprintf(&b, "; %s", l)
	}
	return errors.New(b.String())
}

// Probing says what a server is asked for.
type Probing struct {
	Sampling Sampling
	Prompt   []int32 // of the task, one token at least

	// Score gives the log-probs of the model's weights, to compare the server's with. nil: it is not compared.
	Score Score

	// Texts are encoded by the server and by Encode, and must give the same ids. nil: not looked at.
	Texts  []string
	Encode func(string) ([]int32, error)
}

// Score returns the log-prob of each of some tokens [C] as the next after a prompt, at a temperature.
type Score func(ctx context.Context, prompt, tokens []int32, temperature float64) ([]float32, error)

// Probe samples some 450 tokens from a server, and up to some thousand where these leave a doubt, and finds out what it
// gives. It returns an error if the server cannot be asked; one that answers wrongly has lacks in the report.
func Probe(ctx context.Context, e Engine, p Probing) (*Report, error) {
	if err := e.Health(ctx); err != nil {
		return nil, err
	}
	r := &Report{Engine: e.String()}
	var err error
	if r.Version, err = e.Version(ctx); err != nil {
		return nil, err
	}
	if err := r.probeRoom(ctx, e, p); err != nil {
		return nil, err
	}
	if err := r.probeSampling(ctx, e, p); err != nil {
		return nil, err
	}
	return r, r.probeTokenizer(ctx, e, p)
}

// probeRoom compares the prompt and the longest completion with the server's context.
func (r *Report) probeRoom(ctx context.Context, e Engine, p Probing) error {
	server, ok := e.(interface {
		room(context.Context) (int, error)
	})
	if !ok {
		return nil
	}
	room, err := server.room(ctx)
	switch want := len(p.Prompt) + p.Sampling.MaxTokens; {
	case lacks(err) || err == nil && room == 0:
		r.Unknown = append(r.Unknown, "how many tokens its context holds")
	case err != nil:
		return err
	case room < want:
		remedy := fmt.Sprintf("set max_tokens to %d at most, or start it with a context of %d", room-len(p.Prompt), want)
		if room <= len(p.Prompt) {
			remedy = fmt.Sprintf("start it with a context of %d", want)
		}
		r.Lacks = append(r.Lacks, Lack{What: fmt.Sprintf("its context holds %d tokens, of which the prompt takes %d, and "+
			"max_tokens is %d", room, len(p.Prompt), p.Sampling.MaxTokens), Remedy: remedy,
			Lost: "completions that want more room end early, or requests are refused"})
	}
	return nil
}

// How many tokens are drawn after a prompt: at first, and at most where that leaves a doubt.
const several, mostDraws = 64, 512

// probeSampling looks for ids, log-probs and a nucleus, and for what the log-probs are of.
func (r *Report) probeSampling(ctx context.Context, e Engine, p Probing) error {
	s := sampler{engine: e, stop: p.Sampling.Stop, temperature: p.Sampling.Temperature, topP: p.Sampling.TopP}
	some, err := e.Generate(ctx, Request{Prompt: p.Prompt, N: 16, Sampling: Sampling{Temperature: s.temperature,
		TopP: s.topP, MaxTokens: 4, Stop: s.stop}}) // more than one token: the first may be part of a character
	switch {
	case errors.Is(err, errNoIDs):
		r.Lacks = append(r.Lacks, Lack{What: "completions are text", Remedy: err.Error(),
			Lost: "text that is encoded again may be other tokens than were sampled, with other log-probs"})
		return nil
	case err != nil:
		return err
	case s.topP < 1 && some[0].SamplingMask.Len() == 0:
		r.Lacks = append(r.Lacks, Lack{What: fmt.Sprintf("no sampling mask at top_p %g", s.topP),
			Remedy: "set top_p to 1, or use SGLang, which returns the nucleus",
			Lost:   "ratios compare a log-prob within the nucleus with one over the vocabulary: they are biased"})
		return nil
	}
	list, err := s.fill(ctx, prompts(p.Prompt), several)
	if err != nil {
		return err
	}
	if raw, err := r.probeTemperature(ctx, s, p.Prompt); raw || err != nil {
		return err
	}
	if err := r.probeDraws(ctx, s, list); err != nil {
		return err
	}
	if err := r.probeReach(ctx, s, p.Prompt); err != nil {
		return err
	}
	switch {
	case p.Score == nil:
	case s.topP < 1:
		r.Unknown = append(r.Unknown, "whether its log-probs are the model's: they are compared at top_p 1 only")
	default:
		return r.probeScores(ctx, s, list, p.Score)
	}
	return nil
}

// probeTemperature finds out whether log-probs are of the sampling temperature, and reports whether they are not. At
// temperature 1 there is no difference.
func (r *Report) probeTemperature(ctx context.Context, s sampler, prompt []int32) (raw bool, err error) {
	wanted := s.temperature
	if wanted == 1 {
		return false, nil
	}
	s.topP = 1
	var pairs temperatures
	for _, at := range prompts(prompt) {
		// Where tokens are nearly certain the higher temperatures tell, where many are likely the lower ones.
		var hot *draws // at twice the temperature; nil: none
		for _, share := range []float64{2, 1, 0.5, 0.25} {
			s.temperature = share * wanted
			d := newDraws(at.prompt, at.repeats)
			if s.temperature > maxTemperature {
				continue
			}
			if err := s.draw(ctx, d, several); Refused(err) {
				hot = nil
				continue
			} else if err != nil {
				return false, err
			}
			if hot != nil {
				pairs.add(d, hot, s.temperature)
			}
			if raw, known := pairs.raw(); known {
				if raw {
					r.Lacks = append(r.Lacks, rawLogprobs(s.engine, wanted))
				}
				return raw, nil
			}
			hot = d
		}
	}
	r.Unknown = append(r.Unknown, "whether log-probs are at the sampling temperature: no two temperatures had enough "+
		"tokens in common, as where the first tokens after a prompt are certain")
	return false, nil
}

func rawLogprobs(e Engine, temperature float64) Lack {
	remedy := "set the temperature to 1, or use a server whose log-probs are of the distribution that it samples from"
	switch e.(type) {
	case *vllm:
		remedy = "start vLLM with --logprobs-mode processed_logprobs, or set the temperature to 1"
	case *sglang:
		remedy = "start SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB, or set the temperature to 1"
	}
	return Lack{What: fmt.Sprintf("its log-probs ignore the temperature, %g", temperature), Remedy: remedy,
		Lost: "the ratios of every token are wrong: they compare two temperatures"}
}

// probeTokenizer compares the server's ids of texts with ours.
func (r *Report) probeTokenizer(ctx context.Context, e Engine, p Probing) error {
	if p.Encode == nil {
		return nil
	}
	for _, text := range p.Texts {
		ours, err := p.Encode(text)
		if err != nil {
			return err
		}
		theirs, err := e.Tokenize(ctx, text)
		switch {
		case errors.Is(err, errors.ErrUnsupported) || lacks(err):
			r.Unknown = append(r.Unknown, "whether its tokenizer is the task's: the server has no /tokenize")
			return nil
		case err != nil:
			return err
		case !slices.Equal(ours, theirs):
			r.Lacks = append(r.Lacks, Lack{
				What:   fmt.Sprintf("its tokenizer makes %s of %q, the task's %s", clip(theirs), text, clip(ours)),
				Remedy: "serve the model whose tokenizer the task has",
				Lost:   "prompts and completions are read as other text than was meant"})
			return nil
		}
	}
	return nil
}

// clip returns ids as text, the first of many.
func clip(ids []int32) string {
	const most = 12
	if len(ids) > most {
		return strings.TrimSuffix(fmt.Sprint(ids[:most]), "]") + " …]"
	}
	return fmt.Sprint(ids)
}
