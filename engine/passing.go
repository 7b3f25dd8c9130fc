package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/reprise-rl/reprise/rollout/option"
)

// The calls of OpenAI's interface that a [Gateway] passes on.
const (
	ChatPath        = "/v1/chat/completions"
	CompletionsPath = "/v1/completions"
)

// Gateway passes calls of agents on to a server, and finds in its answers what the server sampled. Its methods may be
// called concurrently.
type Gateway struct {
	server *server
	Engine Engine // the same server
}

// OpenGateway returns the gateway to a server, whose dialect must be vllm: the chats of the others have no ids,
// log-probs or versions while they stream. It does not connect: see [Gateway.Probe].
func OpenGateway(o Options) (*Gateway, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Dialect != VLLM {
		return nil, &option.Error{Key: "engine", Value: string(o.Dialect) + "+" + o.Address,
			Want: "vllm+http://HOST:PORT, " +
				"of vLLM or reprise engine serve: streamed chats of other servers lack the ids or the versions of tokens"}
	}
	v := &vllm{server: newServer(o)}
	return &Gateway{v.server, v}, nil
}

func (g *Gateway) String() string { return g.server.String() }

// Probe finds out whether calls can be recorded, see [Probe], and which model the server has if none was named.
func (g *Gateway) Probe(ctx context.Context, s Sampling) (*Report, error) {
	if g.server.options.Model == "" {
		var answer struct {
			Data []struct{ ID string } `json:"data"`
		}
		if err := g.server.get(ctx, "/v1/models", &answer); err != nil {
			return nil, err
		}
		if len(answer.Data) != 1 {
			return nil, fmt.Errorf("%s serves %d models: name one (--name)", g, len(answer.Data))
		}
		g.server.options.Model = answer.Data[0].ID
	}
	prompt := []int32{5, 6, 7, 8} // of any vocabulary
	p, err := g.NewPassing(CompletionsPath, []byte(`{"prompt": [5, 6, 7, 8], "max_tokens": 1}`), s)
	if err != nil {
		return nil, err
	}
	answer, err := g.Send(ctx, p)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return nil, g.server.refused(CompletionsPath, answer)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxOther))
	if err == nil {
		_, err = p.Read(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g, err)
	}
	made, err := p.Recorded()
	if err == nil && !slices.Equal(made[0].Prompt, prompt) {
		err = fmt.Errorf("%s: of a prompt of ids %v it says that they are %s", g, prompt, clip(made[0].Prompt))
	}
	if err != nil {
		return nil, err
	}
	s.MaxTokens = 1
	report, err := Probe(ctx, g.Engine, Probing{Sampling: s, Prompt: prompt})
	if err == nil {
		err = report.Err()
	}
	return report, err
}

// Send sends a call. An answer with an error's status is returned as any other.
func (g *Gateway) Send(ctx context.Context, p *Passing) (*http.Response, error) {
	return g.do(ctx, http.MethodPost, p.path, p.body)
}

// Models asks for the server's models, as agents do.
func (g *Gateway) Models(ctx context.Context) (*http.Response, error) {
	return g.do(ctx, http.MethodGet, "/v1/models", nil)
}

func (g *Gateway) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := g.server.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	answer, err := g.server.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w: %w", g, path, errLost, err)
	}
	if answer.StatusCode/100 == 3 {
		defer answer.Body.Close()
		return nil, g.server.refused(path, answer)
	}
	return answer, nil
}

// Passing is an agent's call on its way. It belongs to one goroutine.
type Passing struct {
	Stream bool // the answer comes as events

	// Untrained is why the tokens of the answer have no known distribution and must not be learned from, such as
	// "response_format: …"; "": they may be.
	Untrained string
	// Replaced has the settings of the agent's that the gateway replaced, such as "temperature 0".
	Replaced []string

	server *server
	path   string
	body   []byte
	hidden []string // fields of choices that the agent did not ask for

	id      string // of the answer
	prompt  []int32
	choices int // that were asked for
	made    map[int]*passed
}

// passed is a completion that is on its way.
type passed struct {
	prompt   []int32
	tokens   []int32
	logprobs []float32
	versions []span
	finish   string
}

// Recorded is a completion that passed, with the prompt that the server made of the call's messages.
type Recorded struct {
	Prompt []int32
	Completion
}

// NewPassing returns an agent's call with what has to be asked for to record it. Its tokens are drawn at the
// temperature and top_p of s, and nothing else changes their distribution, whatever the agent asks for: a rollout has
// one distribution. What cannot be replaced without changing the answer's meaning is left, and named in Untrained.
func (g *Gateway) NewPassing(path string, text []byte, s Sampling) (*Passing, error) {
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("the body: %w: want one JSON object", err)
	}
	p := &Passing{server: g.server, path: path, made: make(map[int]*passed)}
	var asked struct {
		Stream bool `json:"stream"`
		Echo   bool `json:"echo"`
		Beam   bool `json:"use_beam_search"`
		N      *int `json:"n"`
	}
	if err := json.Unmarshal(text, &asked); err != nil {
		return nil, fmt.Errorf("the body: %w", err)
	}
	p.Stream, p.choices = asked.Stream, 1
	if asked.N != nil {
		p.choices = *asked.N
	}
	var problems option.Problems
	problems.Check(!asked.Echo, "echo", asked.Echo, "false: the prompt would be recorded as sampled")
	problems.Check(!asked.Beam, "use_beam_search", asked.Beam, "false: its tokens are not sampled")
	problems.Check(p.choices >= 1 && p.choices <= maxChoices, "n", p.choices, "1 to %d: ask for more in several calls",
		maxChoices)
	var several []json.RawMessage
	if json.Unmarshal(fields["prompt"], &several) == nil && len(several) > 0 {
		var id int32
		problems.Check(json.Unmarshal(several[0], &id) == nil, "prompt", "several", "one text, or one list of token ids")
	}
	problems.Check(path != ChatPath || given(fields["messages"]), "messages", "missing", "a list of messages")
	problems.Check(path != CompletionsPath || given(fields["prompt"]), "prompt", "missing",
		"a text or a list of token ids")
	if err := problems.Err(); err != nil {
		return nil, err
	}
	p.replace(fields, s)
	p.Untrained = untrained(fields)
	p.ask(fields)
	fields["model"], _ = json.Marshal(g.server.options.Model)
	var err error
	p.body, err = marshal(fields)
	return p, err
}

// ask asks for what a rollout needs, and notes what of it the agent does not want.
func (p *Passing) ask(fields map[string]json.RawMessage) {
	wanted := func(name string) bool { return given(fields[name]) && string(fields[name]) != "false" }
	if !wanted("return_token_ids") {
		p.hidden = append(p.hidden, "prompt_token_ids", "token_ids")
	}
	if !wanted("return_weight_versions") {
		p.hidden = append(p.hidden, "weight_versions")
	}
	if !wanted("logprobs") {
		p.hidden = append(p.hidden, "logprobs")
		fields["logprobs"] = json.RawMessage("1")
		if p.path == ChatPath {
			fields["logprobs"], fields["top_logprobs"] = json.RawMessage("true"), json.RawMessage("0")
		}
	}
	fields["return_token_ids"], fields["return_weight_versions"] = json.RawMessage("true"), json.RawMessage("true")
}

// given reports whether a field is there and not null.
func given(field json.RawMessage) bool { return len(field) > 0 && string(field) != "null" }

// replace sets what decides the distribution.
func (p *Passing) replace(fields map[string]json.RawMessage, s Sampling) {
	set := map[string]any{"temperature": s.Temperature, "top_p": s.TopP, "top_k": unchanged.TopK, "min_p": unchanged.MinP,
		"repetition_penalty": unchanged.RepetitionPenalty, "presence_penalty": unchanged.PresencePenalty,
		"frequency_penalty": unchanged.FrequencyPenalty}
	if p.path == ChatPath {
		set["include_reasoning"] = true // without it vLLM gives no ids of a reasoning model's tokens
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		want, _ := json.Marshal(set[name])
		if had := fields[name]; given(had) && !sameNumber(had, want) {
			p.Replaced = append(p.Replaced, fmt.Sprintf("%s %.20s", name, had))
		}
		fields[name] = want
	}
}

// sameNumber reports whether two JSON values are the same, as 1 and 1.0 are.
func sameNumber(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

// steering are fields by which tokens are drawn from a distribution that the log-probs may not be of: some engines
// apply them before and others after these are taken, and the learner knows of none.
var steering = []string{"allowed_token_ids", "bad_words", "guided_choice", "guided_grammar", "guided_json",
	"guided_regex",
	"logit_bias", "logits_processors", "min_tokens", "structured_outputs", "structural_tag", "thinking_token_budget",
	"vllm_xargs"} // of logits processors that the server was given

// untrained returns the first field that steers sampling.
func untrained(fields map[string]json.RawMessage) string {
	for _, name := range steering {
		switch string(fields[name]) {
		case "", "null", "{}", "[]", "0", `""`:
		default:
			return name
		}
	}
	var format struct{ Type string }
	if json.Unmarshal(fields["response_format"], &format) == nil && format.Type != "" && format.Type != "text" {
		return "response_format"
	}
	switch choice := string(fields["tool_choice"]); choice {
	case "", "null", `"auto"`, `"none"`:
		return ""
	}
	return "tool_choice"
}

// passedAnswer is what is read of an answer, or of an event of one: of chats, of completions, or of both.
type passedAnswer struct {
	ID             string         `json:"id"`
	PromptTokenIDs []int32        `json:"prompt_token_ids"`
	Choices        []passedChoice `json:"choices"`
}

type passedChoice struct {
	Index          int     `json:"index"`
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	TokenIDs       []int32 `json:"token_ids"`
	FinishReason   *string `json:"finish_reason"`
	Logprobs       *struct {
		TokenLogprobs []*float32 `json:"token_logprobs"`
		Content       []struct {
			Logprob *float32 `json:"logprob"`
		} `json:"content"`
	} `json:"logprobs"`
	WeightVersions []span `json:"weight_versions"`
}

// Read takes the answer, or the next event of a streamed one without its "data: ", and returns it as the agent would
// have got it from the server.
func (p *Passing) Read(text []byte) ([]byte, error) {
	var answer passedAnswer
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("the answer is not what %s gives: %w: is another server there?", p.server.options.Dialect,
			err)
	}
	if p.id == "" {
		p.id = answer.ID
	}
	if len(answer.PromptTokenIDs) > 0 {
		p.prompt = answer.PromptTokenIDs
	}
	for _, c := range answer.Choices {
		if err := p.add(c); err != nil {
			return nil, err
		}
	}
	return p.without(text)
}

// maxChoices bounds the completions of one call, each of which is recorded with the prompt.
const maxChoices = 16

func (p *Passing) add(c passedChoice) error {
	if c.Index < 0 || c.Index >= maxChoices {
		return fmt.Errorf("choice %d: want 0 to %d", c.Index, maxChoices-1)
	}
	m := p.made[c.Index]
	if m == nil {
		m = &passed{}
		p.made[c.Index] = m
	}
	if len(c.PromptTokenIDs) > 0 {
		m.prompt = c.PromptTokenIDs
	}
	m.tokens = append(m.tokens, c.TokenIDs...)
	m.versions = append(m.versions, c.WeightVersions...)
	if c.FinishReason != nil {
		m.finish = *c.FinishReason
	}
	if c.Logprobs == nil {
		return nil
	}
	for _, t := range c.Logprobs.Content {
		c.Logprobs.TokenLogprobs = append(c.Logprobs.TokenLogprobs, t.Logprob)
	}
	for _, x := range c.Logprobs.TokenLogprobs {
		if x == nil {
			return fmt.Errorf("token %d has no log-prob: want one for each token", len(m.logprobs))
		}
		m.logprobs = append(m.logprobs, *x)
	}
	return nil
}

// without leaves out of an answer what the agent did not ask for.
func (p *Passing) without(text []byte) ([]byte, error) {
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	var choices []map[string]json.RawMessage
	if given(answer["choices"]) {
		if err := json.Unmarshal(answer["choices"], &choices); err != nil {
			return nil, err
		}
	}
	if slices.Contains(p.hidden, "prompt_token_ids") {
		delete(answer, "prompt_token_ids")
	}
	for _, c := range choices {
		for _, name := range p.hidden {
			delete(c, name)
		}
	}
	if choices != nil {
		var err error
		if answer["choices"], err = marshal(choices); err != nil {
			return nil, err
		}
	}
	return marshal(answer)
}

// marshal is json.Marshal without escapes that the server did not write.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// ID returns the id of the answer, "" before it began.
func (p *Passing) ID() string { return p.id }

// Prompt returns the ids of the prompt once the answer has begun, nil if the server gives none then.
func (p *Passing) Prompt() []int32 {
	if first := p.made[0]; len(p.prompt) == 0 && first != nil {
		return first.prompt
	}
	return p.prompt
}

// Done reports whether every completion that was asked for has ended.
func (p *Passing) Done() bool {
	for _, m := range p.made {
		if m.finish == "" {
			return false
		}
	}
	return len(p.made) == p.choices
}

// errUnfinished is the error of an answer that ended in the middle.
var errUnfinished = errors.New("the answer ended before its finish_reason")

// Recorded returns the completions of the whole answer, with all that a rollout needs.
func (p *Passing) Recorded() ([]Recorded, error) {
	list := make([]Recorded, len(p.made))
	if len(list) != p.choices {
		return nil, fmt.Errorf("%s%s: %d choices came, %d were asked for", p.server, p.path, len(list), p.choices)
	}
	for i := range list {
		m := p.made[i]
		if m == nil {
			return nil, fmt.Errorf("%s%s: %d choices came without choice %d", p.server, p.path, len(list), i)
		}
		var err error
		if list[i], err = p.recorded(m); err != nil {
			return nil, fmt.Errorf("%s%s: choice %d: %w", p.server, p.path, i, err)
		}
	}
	return list, nil
}

func (p *Passing) recorded(m *passed) (r Recorded, err error) {
	r = Recorded{m.prompt, Completion{Tokens: m.tokens, Logprobs: m.logprobs}}
	if len(r.Prompt) == 0 {
		r.Prompt = p.prompt
	}
	switch m.finish {
	case "":
		return r, errUnfinished
	case "stop", "tool_calls", "function_call":
		r.Finish = Stopped
	case "length":
		r.Finish = Length
	default:
		r.Finish = Aborted
	}
	if len(r.Prompt) == 0 {
		return r, errors.New("no prompt_token_ids: want vLLM 0.33 or newer, or reprise engine serve")
	}
	if err := p.server.check(&r.Completion); err != nil {
		return r, err
	}
	for i, t := range r.Prompt {
		if t < 0 {
			return r, fmt.Errorf("token %d of the prompt has id %d: want 0 or more", i, t)
		}
	}
	if len(m.versions) == 0 && len(r.Tokens) > 0 {
		return r, errors.New("no weight_versions: want vLLM 0.33 or newer, or reprise engine serve")
	}
	r.Versions, err = spread(m.versions, len(r.Tokens), p.server.options.Initial)
	return r, err
}
