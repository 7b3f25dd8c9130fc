package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"sync/atomic"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// maxBody bounds a request, in bytes: a prompt that fills the model's positions fits, in the form of a list.
func (s *Server) maxBody() int64 { return 1<<20 + 16*int64(s.model.Config().MaxPositionEmbeddings) }

// Handler returns the interfaces of the server. Fields that they do not have are ignored, as by the servers they belong
// to.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(*http.Request) (any, error){
		"GET /health":      func(*http.Request) (any, error) { return map[string]string{"status": "ok"}, s.Err() },
		"GET /v1/models":   s.models,
		"POST /tokenize":   s.tokenize,
		"POST /detokenize": s.detokenize,

		// vLLM
		"POST /v1/completions":        s.completions,
		"POST /pause":                 s.vllmPause,
		"POST /resume":                s.resume,
		"POST /collective_rpc":        s.collective,
		"POST /update_weight_version": s.updateVersion,
		"GET /weight_info":            s.weightInfo,
		"POST /abort_requests":        s.abortAll,

		// SGLang
		"POST /generate":                 s.sglangGenerate,
		"GET /model_info":                s.weightInfo,
		"POST /pause_generation":         s.sglangPause,
		"POST /continue_generation":      s.resume,
		"POST /update_weights_from_disk": s.updateFromDisk,
		"POST /abort_request":            s.abortAll,

		// llama.cpp
		"POST /completion": s.llamaCompletion,
		"GET /props":       s.props,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, s.maxBody())
			answer, err := handle(r)
			write(w, answer, err)
		})
	}
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, s.maxBody())
		s.chatCompletions(w, r)
	})
	return mux
}

// Err returns the error that ended the server's work, nil while it works.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func write(w http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		status = statusOf(err)
		answer = map[string]any{"error": map[string]any{"message": err.Error(), "code": status}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client is gone
}

func statusOf(err error) int {
	var setting *option.Error
	var bad *badRequest
	switch {
	case errors.Is(err, errPaused), errors.Is(err, errBusy), errors.Is(err, errClosed):
		return http.StatusServiceUnavailable
	case errors.As(err, &setting), errors.As(err, &bad):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// badRequest is an error of the client's.
type badRequest struct{ error }

// read decodes a body of JSON.
func read(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return &badRequest{fmt.Errorf("the body of %s: %w", r.URL.Path, err)}
	}
	return nil
}

func (s *Server) models(*http.Request) (any, error) {
	return map[string]any{"object": "list", "data": []any{map[string]any{"id": filepath.Base(s.folder),
		"object": "model", "max_model_len": s.model.Config().MaxPositionEmbeddings}}}, nil
}

// props says how many tokens a completion and its prompt may have, as llama.cpp does.
func (s *Server) props(*http.Request) (any, error) {
	return map[string]any{"default_generation_settings": map[string]any{
		"n_ctx": s.model.Config().MaxPositionEmbeddings}}, nil
}

// tokenize takes a text as prompt, as vLLM and SGLang do, or as content, as llama.cpp does.
func (s *Server) tokenize(r *http.Request) (any, error) {
	var body struct{ Prompt, Content string }
	if err := read(r, &body); err != nil {
		return nil, err
	}
	ids, err := s.tokenizer.Encode(body.Prompt + body.Content)
	if err != nil {
		return nil, &badRequest{err}
	}
	return map[string]any{"tokens": ids, "count": len(ids), "max_model_len": s.model.Config().MaxPositionEmbeddings}, nil
}

func (s *Server) detokenize(r *http.Request) (any, error) {
	var body struct{ Tokens []int32 }
	if err := read(r, &body); err != nil {
		return nil, err
	}
	text := s.tokenizer.Decode(body.Tokens)
	return map[string]string{"prompt": text, "text": text, "content": text}, nil
}

// prompt is a text, or token ids.
type prompt struct {
	text string
	ids  []int32
}

func (p *prompt) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &p.ids) == nil {
		return nil
	}
	if json.Unmarshal(b, &p.text) == nil {
		return nil
	}
	return errors.New("a prompt: want one text, or one list of token ids")
}

func (s *Server) idsOf(p prompt) ([]int32, error) {
	if p.ids != nil {
		return p.ids, nil
	}
	ids, err := s.tokenizer.Encode(p.text)
	if err != nil {
		return nil, &badRequest{err}
	}
	return ids, nil
}

// or returns what was given, or a default.
func or[T any](given *T, usual T) T {
	if given != nil {
		return *given
	}
	return usual
}

// ask is what the dialects' requests have in common.
type ask struct {
	prompt    prompt
	n         int
	seed      *int64
	sampling  policy.Sampling // with the request's own stop tokens
	ignoreEOS bool            // do not add the model's
	stream    bool
	progress  chan<- struct{} // has a value whenever a completion has more tokens; nil: nobody looks
}

// answer decodes what was asked for. It returns the prompt's ids and the outputs.
func (s *Server) answer(r *http.Request, a ask) ([]int32, []output, error) {
	if a.stream {
		return nil, nil, &badRequest{errors.New("stream: true: want false: answers of this path come whole")}
	}
	ids, err := s.idsOf(a.prompt)
	if err != nil {
		return nil, nil, err
	}
	list, labels, err := s.generate(r.Context(), ids, a)
	if err != nil {
		return nil, nil, err
	}
	outputs := make([]output, len(list))
	for i, q := range list {
		outputs[i] = s.output(q, labels)
	}
	return ids, outputs, nil
}

// output is the part of a sequence that was generated.
type output struct {
	tokens   []int32
	logprobs []float32
	mask     rollout.IDLists // of all tokens, the prompt's included
	from     int
	spans    []span
	text     string
	finish   string
}

// span is tokens [start, end) of an output that one version of the weights drew.
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

func (s *Server) output(q *sequence, labels []string) output {
	row, from := q.row, min(q.row.Prompt, len(q.row.Tokens))
	o := output{tokens: row.Tokens[from:], logprobs: row.Logprobs[from:], mask: row.SamplingMask, from: from,
		spans: []span{}, finish: q.finish}
	o.text = s.tokenizer.Decode(o.tokens)
	for i := range o.tokens {
		label := labels[row.Versions[from+i]]
		if n := len(o.spans); n > 0 && o.spans[n-1].Version == label {
			o.spans[n-1].End = i + 1
			continue
		}
		o.spans = append(o.spans, span{label, i, i + 1})
	}
	return o
}

// vLLM.

var requests atomic.Uint64 // numbers answers

func (s *Server) completions(r *http.Request) (any, error) {
	var body struct {
		Prompt               prompt   `json:"prompt"`
		N                    *int     `json:"n"`
		MaxTokens            *int     `json:"max_tokens"`
		Temperature          *float64 `json:"temperature"`
		TopP                 *float64 `json:"top_p"`
		Seed                 *int64   `json:"seed"`
		Logprobs             *int     `json:"logprobs"`
		StopTokenIDs         []int32  `json:"stop_token_ids"`
		IgnoreEOS            bool     `json:"ignore_eos"`
		ReturnTokenIDs       bool     `json:"return_token_ids"`
		ReturnAsTokenIDs     bool     `json:"return_tokens_as_token_ids"`
		ReturnWeightVersions bool     `json:"return_weight_versions"`
		Stream               bool     `json:"stream"`
	}
	if err := read(r, &body); err != nil {
		return nil, err
	}
	ids, outputs, err := s.answer(r, ask{prompt: body.Prompt, n: or(body.N, 1), seed: body.Seed, stream: body.Stream,
		ignoreEOS: body.IgnoreEOS, sampling: policy.Sampling{Temperature: or(body.Temperature, 1), TopP: or(body.TopP, 1),
			MaxTokens: or(body.MaxTokens, 16), Stop: body.StopTokenIDs}})
	if err != nil {
		return nil, err
	}
	var choices []any
	written := 0
	for i, o := range outputs {
		written += len(o.tokens)
		choice := map[string]any{"index": i, "text": o.text, "finish_reason": o.finish, "logprobs": nil}
		if body.Logprobs != nil {
			choice["logprobs"] = map[string]any{"tokens": s.names(o.tokens, body.ReturnAsTokenIDs),
				"token_logprobs": o.logprobs}
		}
		if body.ReturnTokenIDs {
			choice["token_ids"], choice["prompt_token_ids"] = o.tokens, ids
		}
		if body.ReturnWeightVersions {
			choice["weight_versions"] = o.spans
		}
		choices = append(choices, choice)
	}
	return map[string]any{"id": fmt.Sprintf("cmpl-%s-%d", s.name, requests.Add(1)), "object": "text_completion",
		"model": filepath.Base(s.folder), "choices": choices, "usage": map[string]int{"prompt_tokens": len(ids),
			"completion_tokens": written, "total_tokens": len(ids) + written}}, nil
}

// names returns tokens as text, or as token_id:N.
func (s *Server) names(tokens []int32, ids bool) []string {
	list := make([]string, len(tokens))
	for i, t := range tokens {
		if ids {
			list[i] = fmt.Sprint("token_id:", t)
		} else {
			list[i] = s.tokenizer.Decode(tokens[i : i+1])
		}
	}
	return list
}

func (s *Server) vllmPause(r *http.Request) (any, error) {
	var err error
	switch mode := r.URL.Query().Get("mode"); mode {
	case "abort", "":
		if err = s.pauseFor(r.Context(), draining, false); err == nil {
			err = s.Abort(r.Context())
		}
	case "wait":
		err = s.drain(r.Context())
	case "keep": // vLLM computes the keys and values again, unless told not to
		err = s.pauseFor(r.Context(), frozen, r.URL.Query().Get("clear_cache") != "false")
	default:
		err = &badRequest{fmt.Errorf("mode: %s: want abort, wait or keep", mode)}
	}
	return map[string]string{"status": "paused"}, err
}

func (s *Server) resume(r *http.Request) (any, error) {
	return map[string]string{"status": "resumed"}, s.pauseFor(r.Context(), running, false)
}

// collective is how vLLM takes weights from a folder: its workers' own method.
func (s *Server) collective(r *http.Request) (any, error) {
	var body struct {
		Method string
		Kwargs map[string]string
	}
	if err := read(r, &body); err != nil {
		return nil, err
	}
	folder := body.Kwargs["weights_path"]
	if body.Method != "reload_weights" || folder == "" {
		return nil, &badRequest{fmt.Errorf("method: %s: want reload_weights with weights_path", body.Method)}
	}
	return map[string]any{"results": []any{nil}}, s.Load(r.Context(), folder, "")
}

func (s *Server) updateVersion(r *http.Request) (any, error) {
	var body struct {
		NewVersion *string `json:"new_version"`
	}
	if err := read(r, &body); err != nil {
		return nil, err
	}
	if body.NewVersion == nil {
		return nil, &badRequest{errors.New("new_version: missing: want the version of the weights")}
	}
	return map[string]any{"success": true, "new_version": *body.NewVersion}, s.Label(r.Context(), *body.NewVersion)
}

func (s *Server) weightInfo(*http.Request) (any, error) {
	return map[string]string{"weight_version": s.version(), "model_path": s.folder}, nil
}

func (s *Server) abortAll(r *http.Request) (any, error) {
	return map[string]string{"status": "aborted"}, s.Abort(r.Context())
}

// SGLang.

func (s *Server) sglangGenerate(r *http.Request) (any, error) {
	var body struct {
		Text           *string `json:"text"`
		InputIDs       []int32 `json:"input_ids"`
		SamplingParams struct {
			N            *int     `json:"n"`
			MaxNewTokens *int     `json:"max_new_tokens"`
			Temperature  *float64 `json:"temperature"`
			TopP         *float64 `json:"top_p"`
			StopTokenIDs []int32  `json:"stop_token_ids"`
			IgnoreEOS    bool     `json:"ignore_eos"`
			SamplingSeed *int64   `json:"sampling_seed"`
		} `json:"sampling_params"`
		ReturnLogprob      bool `json:"return_logprob"`
		ReturnSamplingMask bool `json:"return_sampling_mask"`
		Stream             bool `json:"stream"`
	}
	if err := read(r, &body); err != nil {
		return nil, err
	}
	p := body.SamplingParams
	n := or(p.N, 1)
	ids, outputs, err := s.answer(r, ask{prompt: prompt{or(body.Text, ""), body.InputIDs}, n: n, seed: p.SamplingSeed,
		stream: body.Stream, ignoreEOS: p.IgnoreEOS, sampling: policy.Sampling{Temperature: or(p.Temperature, 1),
			TopP: or(p.TopP, 1), MaxTokens: or(p.MaxNewTokens, 128), Stop: p.StopTokenIDs}})
	if err != nil {
		return nil, err
	}
	answers := make([]any, n)
	for i, o := range outputs {
		meta := map[string]any{"id": fmt.Sprint(requests.Add(1)), "finish_reason": map[string]string{"type": o.finish},
			"prompt_tokens": len(ids), "completion_tokens": len(o.tokens), "weight_version": s.version(),
			"weight_versions": o.spans}
		if body.ReturnLogprob {
			tokens := []any{}
			for j, t := range o.tokens {
				tokens = append(tokens, []any{o.logprobs[j], t, nil})
			}
			meta["output_token_logprobs"] = tokens
		}
		if body.ReturnSamplingMask {
			masks := [][]int32{}
			for j := range o.tokens {
				if o.mask.Len() > 0 {
					masks = append(masks, o.mask.At(o.from+j))
				}
			}
			meta["output_token_sampling_mask"], meta["output_token_sampling_logprobs"] = masks, o.logprobs
		}
		answers[i] = map[string]any{"text": o.text, "output_ids": o.tokens, "meta_info": meta}
	}
	if n == 1 {
		return answers[0], nil
	}
	return answers, nil
}

func (s *Server) sglangPause(r *http.Request) (any, error) {
	var body struct{ Mode string }
	if err := read(r, &body); err != nil {
		return nil, err
	}
	var err error
	switch body.Mode {
	case "abort", "":
		if err = s.pauseFor(r.Context(), frozen, false); err == nil {
			err = s.Abort(r.Context())
		}
	case "in_place":
		err = s.pauseFor(r.Context(), frozen, false)
	case "retract":
		err = s.pauseFor(r.Context(), frozen, true)
	default:
		err = &badRequest{fmt.Errorf("mode: %s: want abort, retract or in_place", body.Mode)}
	}
	return map[string]string{"status": "ok"}, err
}

func (s *Server) updateFromDisk(r *http.Request) (any, error) {
	var body struct {
		ModelPath     string `json:"model_path"`
		WeightVersion string `json:"weight_version"`
	}
	if err := read(r, &body); err != nil {
		return nil, err
	}
	if body.ModelPath == "" {
		return nil, &badRequest{errors.New("model_path: missing: want the folder of the weights")}
	}
	if err := s.Load(r.Context(), body.ModelPath, body.WeightVersion); err != nil {
		return map[string]any{"success": false, "message": err.Error()}, nil
	}
	return map[string]any{"success": true, "message": "Succeeded to update model weights."}, nil
}

// llama.cpp.

func (s *Server) llamaCompletion(r *http.Request) (any, error) {
	var body struct {
		Prompt       prompt   `json:"prompt"`
		NPredict     *int     `json:"n_predict"`
		Temperature  *float64 `json:"temperature"`
		TopP         *float64 `json:"top_p"`
		Seed         *int64   `json:"seed"`
		NProbs       int      `json:"n_probs"`
		PostSampling bool     `json:"post_sampling_probs"`
		ReturnTokens bool     `json:"return_tokens"`
		IgnoreEOS    bool     `json:"ignore_eos"`
		Stream       bool     `json:"stream"`
	}
	if err := read(r, &body); err != nil {
		return nil, err
	}
	if body.NProbs > 0 && !body.PostSampling {
		return nil, &badRequest{errors.New("post_sampling_probs: false: want true: others are not kept")}
	}
	predict := or(body.NPredict, -1)
	if predict < 0 {
		predict = s.model.Config().MaxPositionEmbeddings
	}
	ids, outputs, err := s.answer(r, ask{prompt: body.Prompt, n: 1, seed: body.Seed, stream: body.Stream,
		ignoreEOS: body.IgnoreEOS, sampling: policy.Sampling{Temperature: or(body.Temperature, 1),
			TopP: or(body.TopP, 1), MaxTokens: predict}})
	if err != nil {
		return nil, err
	}
	o := outputs[0]
	kind := map[string]string{stopped: "eos", length: "limit", aborted: "none"}[o.finish]
	answer := map[string]any{"content": o.text, "stop": true, "tokens_predicted": len(o.tokens),
		"tokens_evaluated": len(ids), "stop_type": kind}
	if body.ReturnTokens {
		answer["tokens"] = o.tokens
	}
	if body.NProbs > 0 {
		probs := []any{}
		for i, t := range o.tokens {
			probs = append(probs, map[string]any{"id": t, "token": s.tokenizer.Decode(o.tokens[i : i+1]),
				"prob": math.Exp(float64(o.logprobs[i]))})
		}
		answer["completion_probabilities"] = probs
	}
	return answer, nil
}
