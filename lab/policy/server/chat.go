package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf/jinja"
)

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	Messages             json.RawMessage       `json:"messages"`
	Tools                json.RawMessage       `json:"tools"`
	ToolChoice           json.RawMessage       `json:"tool_choice"`
	ResponseFormat       struct{ Type string } `json:"response_format"`
	N                    *int                  `json:"n"`
	MaxTokens            *int                  `json:"max_tokens"`
	MaxCompletionTokens  *int                  `json:"max_completion_tokens"`
	Temperature          *float64              `json:"temperature"`
	TopP                 *float64              `json:"top_p"`
	Seed                 *int64                `json:"seed"`
	Stop                 json.RawMessage       `json:"stop"`
	Logprobs             bool                  `json:"logprobs"`
	ReturnTokenIDs       bool                  `json:"return_token_ids"`
	ReturnWeightVersions bool                  `json:"return_weight_versions"`
	Stream               bool                  `json:"stream"`
	StreamOptions        struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	ids   []int32
	tools bool // the policy may call some
	stop  []string
}

// readChat reads a request and renders its messages.
func (s *Server) readChat(r *http.Request) (*chatRequest, error) {
	if s.noChat != nil {
		return nil, &badRequest{fmt.Errorf("the model has no chat template: %w: or start the server with --chat-template",
			s.noChat)}
	}
	var body chatRequest
	if err := read(r, &body); err != nil {
		return nil, err
	}
	list, err := messagesOf(body.Messages)
	if err != nil {
		return nil, &badRequest{err}
	}
	if body.stop, err = stopsOf(body.Stop); err != nil {
		return nil, &badRequest{err}
	}
	if kind := body.ResponseFormat.Type; kind != "" && kind != "text" {
		return nil, &badRequest{fmt.Errorf("response_format: %.40q: want text: sampling is not constrained", kind)}
	}
	var tools any
	switch choice := string(body.ToolChoice); choice {
	case "", "null", `"auto"`:
		if len(body.Tools) > 0 {
			if tools, err = jinja.Decode(body.Tools); err != nil {
				return nil, &badRequest{fmt.Errorf("tools: %w", err)}
			}
		}
	case `"none"`:
	default:
		return nil, &badRequest{fmt.Errorf("tool_choice: %.40s: want auto or none: sampling is not constrained", choice)}
	}
	body.tools = tools != nil
	if body.ids, err = s.chat.Messages(list, tools); err != nil {
		return nil, &badRequest{err}
	}
	return &body, nil
}

// messagesOf decodes messages as chat templates expect them: contents are texts, and arguments of calls are objects.
func messagesOf(text json.RawMessage) ([]any, error) {
	decoded, err := jinja.Decode(text)
	list, ok := decoded.([]any)
	if err != nil || !ok || len(list) == 0 {
		return nil, errors.New("messages: want a list of one message or more")
	}
	for i := range list {
		m, ok := list[i].(jinja.Dict)
		if _, hasRole := m.Get("role").(string); !ok || !hasRole {
			return nil, fmt.Errorf("messages[%d]: want an object with a role", i)
		}
		for j := range m {
			switch m[j].Key {
			case "content":
				m[j].Value, err = textOf(m[j].Value)
			case "tool_calls":
				err = decodeArguments(m[j].Value)
			}
			if err != nil {
				return nil, fmt.Errorf("messages[%d].%s: %w", i, m[j].Key, err)
			}
		}
	}
	return list, nil
}

// textOf returns the text of a content: itself, or its parts.
func textOf(content any) (any, error) {
	parts, ok := content.([]any)
	if !ok {
		return content, nil
	}
	var texts []string
	for _, part := range parts {
		p, _ := part.(jinja.Dict)
		text, ok := p.Get("text").(string)
		if !ok || p.Get("type") != "text" {
			return nil, fmt.Errorf("a part of type %.40q: want text alone", fmt.Sprint(p.Get("type")))
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), nil
}

// decodeArguments replaces the arguments of calls, which are texts of JSON, by what they say.
func decodeArguments(calls any) error {
	list, ok := calls.([]any)
	if !ok {
		return nil // null
	}
	for _, call := range list {
		c, _ := call.(jinja.Dict)
		f, _ := c.Get("function").(jinja.Dict)
		for i := range f {
			text, ok := f[i].Value.(string)
			if f[i].Key != "arguments" || !ok {
				continue
			}
			said, err := jinja.Decode([]byte(cmp.Or(text, "{}")))
			if err != nil {
				return fmt.Errorf("arguments %.60q: %w: want JSON", text, err)
			}
			f[i].Value = said
		}
	}
	return nil
}

func stopsOf(text json.RawMessage) (list []string, err error) {
	var one string
	switch {
	case len(text) == 0 || string(text) == "null":
		return nil, nil
	case json.Unmarshal(text, &one) == nil:
		list = []string{one}
	case json.Unmarshal(text, &list) != nil:
		return nil, errors.New("stop: want a text, or a list of texts")
	}
	if len(list) > 16 || slices.ContainsFunc(list, func(s string) bool { return s == "" || len(s) > 1000 }) {
		return nil, errors.New("stop: want at most 16 texts of 1 to 1000 bytes")
	}
	return list, nil
}

// askChat returns what a chat asks the model for.
func (s *Server) askChat(b *chatRequest) ask {
	sampling := policy.Sampling{Temperature: or(b.Temperature, 1), TopP: or(b.TopP, 1), Stop: s.chat.Stop(),
		MaxTokens: or(b.MaxCompletionTokens, or(b.MaxTokens, s.model.Config().MaxPositionEmbeddings))}
	if len(b.stop) > 0 {
		longest := len(slices.MaxFunc(b.stop, func(a, b string) int { return len(a) - len(b) }))
		sampling.Ends = func(turn []int32) bool {
			latest := s.chat.Decode(turn[max(0, len(turn)-longest-4):]) // no token of a text is shorter than a byte
			return slices.ContainsFunc(b.stop, func(stop string) bool { return strings.Contains(latest, stop) })
		}
	}
	return ask{prompt: prompt{ids: b.ids}, n: or(b.N, 1), seed: b.Seed, sampling: sampling}
}

// What models put around a call of a tool.
const (
	callOpens  = "<tool_call>"
	callCloses = "</tool_call>"
)

// message is what the policy said, as an agent reads it.
type message struct {
	content string
	calls   []map[string]any
}

// read returns the message of a turn's text. Calls that are not a name with an object of arguments stay text.
func (b *chatRequest) read(text string) (m message) {
	for _, stop := range b.stop {
		text, _, _ = strings.Cut(text, stop)
	}
	m.content = text
	if !b.tools {
		return m
	}
	before, rest, found := strings.Cut(text, callOpens)
	for found {
		var inside string
		inside, rest, _ = strings.Cut(rest, callCloses)
		var call struct {
			Name      string
			Arguments json.RawMessage
		}
		if json.Unmarshal([]byte(inside), &call) != nil || call.Name == "" || !bytes.HasPrefix(call.Arguments,
			[]byte("{")) {
			return message{content: text}
		}
		m.calls = append(m.calls, map[string]any{"id": fmt.Sprint("call_", requests.Add(1)), "type": "function",
			"index": len(m.calls), "function": map[string]string{"name": call.Name, "arguments": string(call.Arguments)}})
		_, rest, found = strings.Cut(rest, callOpens)
	}
	if len(m.calls) > 0 {
		m.content = strings.TrimRight(before, " \n\t\r")
	}
	return m
}

// wire returns a message's fields; its finish is that of the turn unless it calls tools.
func (m message) wire(finish string) (fields map[string]any, ends string) {
	fields = map[string]any{"role": "assistant", "content": m.content}
	if len(m.calls) == 0 {
		return fields, finish
	}
	if fields["tool_calls"] = m.calls; m.content == "" {
		fields["content"] = nil
	}
	if finish == stopped {
		finish = "tool_calls"
	}
	return fields, finish
}

// choice returns the part of a choice that is not the message, of an answer or of the last event of one.
func (s *Server) choice(b *chatRequest, i int, tokens []int32, logprobs []float32) map[string]any {
	c := map[string]any{"index": i, "logprobs": nil, "finish_reason": nil}
	if b.ReturnTokenIDs {
		c["token_ids"] = tokens
	}
	if b.Logprobs {
		content := []any{}
		for j, name := range s.names(tokens, false) {
			content = append(content, map[string]any{"token": name, "logprob": logprobs[j], "bytes": []byte(nil),
				"top_logprobs": []any{}})
		}
		c["logprobs"] = map[string]any{"content": content}
	}
	return c
}

// chatAnswer returns an answer's fields beside its choices.
func (s *Server) chatAnswer(object string) map[string]any {
	return map[string]any{"id": fmt.Sprintf("chatcmpl-%s-%d", s.name, requests.Add(1)), "object": object,
		"created": time.Now().Unix(), "model": filepath.Base(s.folder)}
}

func usage(prompt, completion int) map[string]int {
	return map[string]int{"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
}

// chatCompletions answers OpenAI's chats.
func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) {
	b, err := s.readChat(r)
	if err != nil {
		write(w, nil, err)
		return
	}
	if b.Stream {
		s.streamChat(w, r, b)
		return
	}
	ids, outputs, err := s.answer(r, s.askChat(b))
	if err != nil {
		write(w, nil, err)
		return
	}
	answer, written := s.chatAnswer("chat.completion"), 0
	choices := make([]any, len(outputs))
	for i, o := range outputs {
		written += len(o.tokens)
		c := s.choice(b, i, o.tokens, o.logprobs)
		c["message"], c["finish_reason"] = b.read(s.chat.Decode(o.tokens)).wire(o.finish)
		if b.ReturnWeightVersions {
			c["weight_versions"] = o.spans
		}
		choices[i] = c
	}
	if b.ReturnTokenIDs {
		answer["prompt_token_ids"] = ids
	}
	answer["choices"], answer["usage"] = choices, usage(len(ids), written)
	write(w, answer, nil)
}

// streamed is a completion of a streamed answer: what of it was sent.
type streamed struct {
	tokens int
	text   int // bytes of its text
}

// streamChat answers with events: of each completion its tokens as they come, with the text that they add, and at the
// end the calls that it makes.
func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, b *chatRequest) {
	progress := make(chan struct{}, 1)
	a := s.askChat(b)
	a.progress = progress
	list, err := s.start(r.Context(), b.ids, a)
	if err != nil {
		write(w, nil, err)
		return
	}
	defer s.wake() // the loop frees the rows of a client that is gone
	w.Header().Set("Content-Type", "text/event-stream")
	base, sent := s.chatAnswer("chat.completion.chunk"), make([]streamed, len(list))
	send := func(fields map[string]any, choices ...any) error {
		event := map[string]any{"choices": append([]any{}, choices...)}
		for _, m := range []map[string]any{base, fields} {
			for k, v := range m {
				event[k] = v
			}
		}
		text, err := json.Marshal(event)
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", text)
		}
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		return err
	}
	first := map[string]any{}
	if b.ReturnTokenIDs {
		first["prompt_token_ids"] = b.ids
	}
	written := 0
	err = send(first, map[string]any{"index": 0, "delta": map[string]string{"role": "assistant", "content": ""},
		"finish_reason": nil, "logprobs": nil})
	for open := len(list); open > 0 && err == nil; {
		select {
		case <-progress:
		case <-r.Context().Done():
			return
		}
		for i, q := range list {
			var done bool
			var c map[string]any
			if c, done, err = s.delta(b, q, i, &sent[i]); err != nil {
				break
			}
			if c != nil {
				err = send(nil, c)
			}
			if done {
				open--
				written += sent[i].tokens
				list[i] = nil
			}
		}
	}
	if err == nil && b.StreamOptions.IncludeUsage {
		err = send(map[string]any{"usage": usage(len(b.ids), written)})
	}
	if err != nil {
		text, _ := json.Marshal(map[string]any{"error": map[string]any{"message": err.Error(), "code": statusOf(err)}})
		fmt.Fprintf(w, "data: %s\n\n", text)
		return
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// delta returns the choice of what a completion has more than was sent of it, nil if that is nothing, and whether it
// has ended. q is nil once that was told.
func (s *Server) delta(b *chatRequest, q *sequence, i int, sent *streamed) (c map[string]any, done bool, err error) {
	if q == nil {
		return nil, false, nil
	}
	tokens, logprobs, done, err := s.soFar(q)
	if err != nil || !done && len(tokens) == sent.tokens {
		return nil, done, err
	}
	c = s.choice(b, i, tokens[sent.tokens:], logprobs[sent.tokens:])
	sent.tokens = len(tokens)
	text := s.chat.Decode(tokens)
	delta := map[string]any{}
	if done {
		m := b.read(text)
		_, c["finish_reason"] = m.wire(q.finish)
		text = m.content
		if len(m.calls) > 0 {
			delta["tool_calls"] = m.calls
		}
		if b.ReturnWeightVersions {
			s.mu.Lock()
			labels := slices.Clone(s.labels)
			s.mu.Unlock()
			c["weight_versions"] = s.output(q, labels).spans
		}
	} else {
		text = text[:b.sure(text)]
	}
	if len(text) > sent.text {
		delta["content"] = text[sent.text:]
		sent.text = len(text)
	}
	c["delta"] = delta
	return c, done, nil
}

// sure returns how much of an unfinished text will stay as it is: not what may be part of a character, of a call, of a
// text that ends the turn, or white space before a call.
func (b *chatRequest) sure(text string) int {
	n := len(text)
	for strings.HasSuffix(text[:n], string(utf8.RuneError)) {
		n -= len(string(utf8.RuneError))
	}
	marks := b.stop
	if b.tools {
		marks = append([]string{callOpens}, marks...)
	}
	for _, mark := range marks {
		if at := strings.Index(text[:n], mark); at >= 0 {
			n = at
			continue
		}
		for k := min(len(mark)-1, n); k > 0; k-- {
			if strings.HasSuffix(text[:n], mark[:k]) {
				n -= k
				break
			}
		}
	}
	if b.tools {
		n = len(strings.TrimRight(text[:n], " \n\t\r"))
	}
	return n
}
