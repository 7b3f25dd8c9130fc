package capture

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/words"
)

// Headers by which an agent says whose its calls are. The answer has that of the session, also if the agent named none.
const (
	SessionHeader = "X-Reprise-Session"
	TaskHeader    = "X-Reprise-Task"
	GroupHeader   = "X-Reprise-Group"
)

// Bounds, in bytes.
const (
	maxBody   = 32 << 20  // of a call
	maxAnswer = 256 << 20 // of the engine
	maxEvent  = 16 << 20  // of a streamed answer
	maxReward = 64 << 10  // body of a reward
	maxError  = 64 << 10  // body of an engine's error
)

// Handler returns the interface for agents: OpenAI's below /v1, and below /sessions/NAME/v1 for agents that can only be
// given another base URL.
func (c *Capture) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, prefix := range []string{"", "/sessions/{session}"} {
		for _, path := range []string{engine.ChatPath, engine.CompletionsPath} {
			mux.HandleFunc("POST "+prefix+path, func(w http.ResponseWriter, r *http.Request) {
				if err := c.call(w, r, path); err != nil {
					writeError(w, err)
				}
			})
		}
		mux.HandleFunc("GET "+prefix+"/v1/models", c.models)
	}
	mux.HandleFunc("POST /sessions/{session}/reward", c.answer(func(r *http.Request) (Outcome, error) {
		if !isJSON(r) {
			return Outcome{}, errNoJSON
		}
		var body rewardRequest
		in := json.NewDecoder(io.LimitReader(r.Body, maxReward))
		in.DisallowUnknownFields()
		if err := in.Decode(&body); err != nil {
			return Outcome{}, refuse(http.StatusBadRequest,
				`the body: %v: want {"reward": 1}, with "task" and "group" at will`,
				err)
		}
		return c.Reward(r.Context(), r.PathValue("session"), body)
	}))
	mux.HandleFunc("GET /sessions/{session}", c.answer(func(r *http.Request) (Outcome, error) {
		s, over, err := c.session(r.PathValue("session"))
		if s != nil {
			return c.state(s), nil
		}
		return over, err
	}))
	mux.HandleFunc("DELETE /sessions/{session}", c.answer(func(r *http.Request) (Outcome, error) {
		return c.Discard(r.PathValue("session"))
	}))
	mux.Handle("GET /metrics", c.metrics())
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, refuse(http.StatusNotFound, "%s %.100q: want POST /v1/chat/completions or /v1/completions, GET "+
			"/v1/models, "+
			"POST /sessions/NAME/reward, GET or DELETE /sessions/NAME, or GET /metrics", r.Method, r.URL.Path))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(timed{w, c.silence.agent}, r) })
}

var errNoJSON = refuse(http.StatusUnsupportedMediaType, "Content-Type: want application/json")

// answer writes what became of a session: with status 202 while it is not decided.
func (c *Capture) answer(handle func(*http.Request) (Outcome, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, err := handle(r)
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if o.State == Waiting || o.State == Inserting {
			w.WriteHeader(http.StatusAccepted)
		}
		_ = json.NewEncoder(w).Encode(o) // the client is gone
	}
}

// failure is an error as OpenAI's clients read it.
func failure(err error) []byte {
	text, _ := json.Marshal(map[string]any{"error": map[string]any{"message": words.Printable(err.Error()),
		"type": "reprise_capture", "code": statusOf(err)}})
	return text
}

func writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(status)
	_, _ = w.Write(failure(err))
}

// models passes on the engine's models.
func (c *Capture) models(w http.ResponseWriter, r *http.Request) {
	answer, err := c.gateway.Models(r.Context())
	if err != nil {
		writeError(w, refuse(http.StatusBadGateway, "%v", err))
		return
	}
	pass(w, answer)
}

// pass writes an answer that is not recorded.
func pass(w http.ResponseWriter, answer *http.Response) {
	defer answer.Body.Close()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(answer.Body, maxError))
}

// call passes an agent's call on and records it. An error is returned if nothing was written yet.
func (c *Capture) call(w http.ResponseWriter, r *http.Request, path string) error {
	if !isJSON(r) {
		return errNoJSON
	}
	n := named{r.PathValue("session"), r.Header.Get(TaskHeader), r.Header.Get(GroupHeader)}
	if header := r.Header.Get(SessionHeader); n.session == "" {
		n.session = header
	} else if header != "" && header != n.session {
		return refuse(http.StatusBadRequest, "%s: %.60q: the address names session %q", SessionHeader, header, n.session)
	}
	if err := n.check(); err != nil {
		return err
	}
	h := &held{memory: &c.memory}
	defer h.free()
	text, err := c.readAll(r.Body, h, maxBody)
	if err != nil {
		return err
	}
	p, err := c.gateway.NewPassing(path, text, engine.Sampling{Temperature: c.options.Temperature, TopP: 1})
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	var s *session // of a call that names none: once the engine has made tokens of its prompt
	if n.session != "" {
		if s, err = c.enter(n, nil); err != nil {
			return err
		}
	}
	x := &exchange{c: c, w: w, r: r, p: p, named: n, session: s, held: h}
	defer x.end()
	ctx, watch := c.watch(r.Context(), p.Stream)
	defer watch.end()
	answer, err := c.gateway.Send(ctx, p)
	if err != nil {
		return refuse(http.StatusBadGateway, "%v", err)
	}
	answer.Body = watch.body(answer.Body)
	defer answer.Body.Close()
	switch {
	case answer.StatusCode/100 != 2:
		x.over = true // there is nothing to record
		pass(w, answer)
		return nil
	case p.Stream:
		return x.stream(answer.Body)
	}
	return x.whole(answer.Body)
}

// readAll reads a body, as long as there is memory for it and what is made of it.
func (c *Capture) readAll(body io.Reader, h *held, most int) ([]byte, error) {
	const copies = 4
	var text bytes.Buffer
	for part := int64(64 << 10); ; part = min(2*part, 8<<20) {
		if !h.grow(copies * part) {
			return nil, c.full()
		}
		n, err := io.CopyN(&text, body, part)
		switch {
		case text.Len() > most:
			return nil, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes: want fewer", most)
		case errors.Is(err, io.EOF):
			h.memory.give(copies * (part - n))
			h.bytes -= copies * (part - n)
			return text.Bytes(), nil
		case err != nil:
			return nil, refuse(http.StatusBadRequest, "reading the body: %v", err)
		}
	}
}

// exchange is a call whose answer is under way.
type exchange struct {
	c       *Capture
	w       http.ResponseWriter
	r       *http.Request
	p       *engine.Passing
	named   named
	session *session
	held    *held
	began   bool // the answer's header is written
	over    bool // it is recorded, or there is nothing to record
}

// begin finds the session, and names it in the answer's header.
func (x *exchange) begin() (err error) {
	if x.session == nil {
		if x.session, err = x.c.enter(x.named, x.p.Prompt()); err != nil {
			return err
		}
	}
	x.w.Header().Set(SessionHeader, x.session.id)
	return nil
}

// end lets go of the session.
func (x *exchange) end() {
	if !x.over {
		x.c.count(func(s *Stats) { s.Broken++ })
	}
	if x.session != nil {
		x.c.leaveCall(x.session)
	}
}

// record records the whole answer.
func (x *exchange) record() error {
	list, err := x.p.Recorded()
	if err != nil {
		return refuse(http.StatusBadGateway, "the call was not recorded: %v", err)
	}
	if err := x.c.record(x.session, x.p, list, x.held); err != nil {
		return err
	}
	x.over = true
	return nil
}

// whole passes on an answer that comes at once.
func (x *exchange) whole(body io.Reader) error {
	text, err := x.c.readAll(body, x.held, maxAnswer)
	if err != nil {
		if statusOf(err) == http.StatusBadRequest {
			return refuse(http.StatusBadGateway, "the engine's answer ended early: %v", err)
		}
		return err
	}
	out, err := x.p.Read(text)
	if err != nil {
		return refuse(http.StatusBadGateway, "%v", err)
	}
	if err = x.begin(); err == nil {
		err = x.record()
	}
	if err != nil {
		return err
	}
	x.w.Header().Set("Content-Type", "application/json")
	_, _ = x.w.Write(out) // the client is gone: what it asked for is recorded all the same
	return nil
}

// stream passes on an answer as its events come. It is recorded with its last token, before the agent has that.
func (x *exchange) stream(body io.Reader) error {
	in := bufio.NewScanner(body)
	in.Buffer(make([]byte, 0, 64<<10), maxEvent)
	for in.Scan() {
		text, isData := bytes.CutPrefix(in.Bytes(), []byte("data:"))
		if !isData {
			continue // the blank lines between events, and comments that keep a connection open
		}
		if err := x.event(bytes.TrimSpace(text)); err != nil {
			return x.fail(err)
		}
	}
	if err := in.Err(); err != nil {
		return x.fail(refuse(http.StatusBadGateway, "the engine's answer ended early: %v", err))
	}
	if !x.over {
		return x.fail(refuse(http.StatusBadGateway, "the engine's answer ended before its finish_reason"))
	}
	return nil
}

func (x *exchange) event(text []byte) error {
	if string(text) != "[DONE]" {
		each := int64(1)
		if !x.began {
			each = 4 // it has the ids of the prompt, which take more than their digits
		}
		if !x.held.grow(each * int64(len(text))) {
			return x.c.full()
		}
		var err error
		if text, err = x.p.Read(text); err != nil {
			return refuse(http.StatusBadGateway, "%v", err)
		}
	}
	if !x.began {
		if err := x.begin(); err != nil {
			return err
		}
		x.w.Header().Set("Content-Type", "text/event-stream")
		x.w.Header().Set("Cache-Control", "no-cache")
		x.began = true
	}
	if !x.over && x.p.Done() {
		if err := x.record(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(x.w, "data: %s\n\n", text)
	if err == nil {
		err = http.NewResponseController(x.w).Flush()
	}
	if err != nil {
		return fmt.Errorf("the agent is gone: %w", err)
	}
	return nil
}

// fail ends an answer: with an event of its own once it has begun.
func (x *exchange) fail(err error) error {
	if !x.began {
		return err
	}
	_, _ = fmt.Fprintf(x.w, "data: %s\n\n", failure(err))
	_ = http.NewResponseController(x.w).Flush()
	return nil
}
