package capture_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/capture"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	engines "github.com/reprise-rl/reprise/lab/policy/server"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/server"
	"github.com/reprise-rl/reprise/wire"
)

const template = `{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{{ eos_token }}` +
	`{% else %}{{ m.content }}={% endif %}{% endfor %}`

// makeModel writes a small model with random weights into a folder.
func makeModel(t testing.TB) (folder string, m *policy.Model, w *policy.Weights) {
	t.Helper()
	tok, err := hf.NewCharTokenizer("0123456789+= ")
	if err != nil {
		t.Fatal(err)
	}
	m, err = policy.NewModel(hf.Config{
		ModelType: hf.Llama, VocabSize: tok.VocabSize(), HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 1,
		NumAttentionHeads: 2, NumKeyValueHeads: 1, MaxPositionEmbeddings: 192, TieWordEmbeddings: true,
		BOSTokenID: hf.NoToken, EOSTokenIDs: []int{1}, PadTokenID: 0,
	})
	if err == nil {
		w, err = m.Initial(1)
	}
	folder = filepath.Join(t.TempDir(), "model")
	if err == nil {
		err = m.Save(folder, w, tok)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder, m, w
}

// serveEngine serves a model of its own, and returns its address.
func serveEngine(t testing.TB) (address string, m *policy.Model, w *policy.Weights) {
	t.Helper()
	folder, m, w := makeModel(t)
	s, err := engines.New(folder, engines.Options{Rows: 8, Template: template})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		web.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return web.URL, m, w
}

// serveTable serves a table.
func serveTable(t testing.TB, change func(*wire.Table)) *client.Table {
	t.Helper()
	return serveTableTo(t, change, client.Options{RetryFor: -1})
}

func serveTableTo(t testing.TB, change func(*wire.Table), o client.Options) *client.Table {
	t.Helper()
	definition := wire.Table{Name: "agents"}
	definition.Capacity = 4096
	if change != nil {
		change(&definition)
	}
	config := server.Config{Listen: "127.0.0.1:0", HTTP: "off"}
	config.SetTable(definition)
	s, err := server.Start(t.Context(), config.WithDefaults(), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), s.Addresses.GRPC, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Stop() })
	return c.Table("agents")
}

func usual() capture.Options {
	return capture.Options{Group: 1, Temperature: 1, Deadline: time.Hour, Memory: 64 << 20, Poll: 5 * time.Millisecond}
}

// agent calls a capture.
type agent struct {
	t       testing.TB
	capture *capture.Capture
	url     string
}

// start starts a capture in front of an engine. The returned function stops it.
func start(t testing.TB, o capture.Options, address string, table *client.Table) (*agent, func()) {
	t.Helper()
	g, err := engine.OpenGateway(engine.Options{Dialect: engine.VLLM, Address: address})
	if err != nil {
		t.Fatal(err)
	}
	c, err := capture.New(o, g, table, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err == nil {
		err = c.Prepare(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(c.Handler())
	stop := sync.OnceFunc(func() {
		web.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &agent{t, c, web.URL}, stop
}

// ask sends a body, and returns the answer's status, header and body.
func (a *agent) ask(method, path string, body any, headers ...string) (int, http.Header, string) {
	a.t.Helper()
	text, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			a.t.Fatal(err)
		}
		text = string(b)
	}
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(text))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(got)
}

type fields = map[string]any

func message(role, content string) fields { return fields{"role": role, "content": content} }

// said is what an agent reads of an answer.
type said struct {
	id, session, text, finish string
	tokens                    int
}

// chat asks for the next message of a conversation.
func (a *agent) chat(session string, more fields, messages ...fields) said {
	a.t.Helper()
	body := fields{"model": "any", "messages": messages, "max_tokens": 6, "stream_options": fields{"include_usage": true}}
	for k, v := range more {
		body[k] = v
	}
	headers := []string{capture.SessionHeader, session}
	if session == "" {
		headers = nil
	}
	status, header, text := a.ask("POST", "/v1/chat/completions", body, headers...)
	if status != 200 {
		a.t.Fatalf("%d: %s", status, text)
	}
	if strings.Contains(text, "token_ids") || strings.Contains(text, "weight_versions") || strings.Contains(text,
		`"logprob":`) {
		a.t.Errorf("the agent gets what it did not ask for: %s", text)
	}
	s := said{session: header.Get(capture.SessionHeader)}
	if body["stream"] != true {
		s.add(a.t, text)
		return s
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if event, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event != "[DONE]" {
			s.add(a.t, event)
		}
	}
	if !strings.HasSuffix(text, "data: [DONE]\n\n") {
		a.t.Errorf("the events end with %q", text)
	}
	return s
}

func (s *said) add(t testing.TB, text string) {
	type content struct{ Content string }
	var answer struct {
		ID      string
		Choices []struct {
			Message, Delta content
			FinishReason   string `json:"finish_reason"`
		}
		Usage struct {
			Tokens int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	s.id, s.tokens = answer.ID, s.tokens+answer.Usage.Tokens
	for _, c := range answer.Choices {
		s.text += c.Message.Content + c.Delta.Content
		s.finish += c.FinishReason
	}
}

// reward ends a session, and returns the answer's status.
func (a *agent) reward(session string, body any) (int, capture.Outcome) {
	a.t.Helper()
	status, _, text := a.ask("POST", "/sessions/"+session+"/reward", body)
	var o capture.Outcome
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		a.t.Fatalf("%s: %v", text, err)
	}
	return status, o
}

// held returns what a table holds.
func held(t testing.TB, table *client.Table) (list []*rollout.Rollout) {
	t.Helper()
	err := table.Scan(t.Context(), 64, func(draws []rollout.Draw) error {
		for _, d := range draws {
			list = append(list, d.Rollout)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// checkLogprobs compares the log-probs of a rollout with the model's.
func checkLogprobs(t *testing.T, m *policy.Model, w *policy.Weights, r *rollout.Rollout) {
	t.Helper()
	scores, err := m.Score(t.Context(), w, []policy.Input{{Tokens: r.Tokens}}, float64(r.Temperature))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range scores[0].Logprobs {
		if r.Mask[i] == 1 && math.Abs(float64(r.Logprobs[i]-want)) > 1e-3 || r.Mask[i] == 0 && r.Logprobs[i] != 0 {
			t.Fatalf("token %d, mask %d: log-prob %g, the model's is %g", i, r.Mask[i], r.Logprobs[i], want)
		}
	}
}

// trained returns how many tokens of rollouts are learned from.
func trained(list []*rollout.Rollout) (n int) {
	for _, r := range list {
		n += bytes.Count(r.Mask, []byte{1})
	}
	return n
}

func TestCallsOfASessionBecomeTheTurnsOfARollout(t *testing.T) {
	address, m, w := serveEngine(t)
	var before []*rollout.Rollout
	for _, stream := range []bool{false, true} {
		table := serveTable(t, nil)
		a, _ := start(t, usual(), address, table)
		more := fields{"stream": stream, "seed": 5, "temperature": 0.1} // whose temperature is not followed
		ask := message("user", "1+2")
		one := a.chat("mine", more, ask)
		two := a.chat("mine", more, ask, message("assistant", one.text), message("tool", "3"))
		if one.session != "mine" || two.session != "mine" || one.finish == "" || one.tokens == 0 {
			t.Errorf("the agent got %+v, %+v", one, two)
		}
		status, o := a.reward(two.id, fields{"reward": 0.5, "task": "sum"})
		if status != 200 || o.State != capture.Inserted || len(o.Rollouts) != 1 || o.Session != "mine" || o.Calls != 2 {
			t.Fatalf("%d: %+v", status, o)
		}
		list := held(t, table)
		if len(list) != 1 || len(list[0].Turns) != 2 || list[0].Reward != 0.5 || list[0].PromptID != "sum" ||
			list[0].Turns[1].Reward != 0.5 || !list[0].Turns[1].Done || trained(list) != one.tokens+two.tokens {
			t.Fatalf("the table holds %+v", list)
		}
		checkLogprobs(t, m, w, list[0])
		if stream && !slices.Equal(list[0].Tokens, before[0].Tokens) {
			t.Errorf("streamed, the tokens are %v, at once %v", list[0].Tokens, before[0].Tokens)
		}
		before = list
		if s := a.capture.Stats(); s.Calls != 2 || s.Branches != 0 || s.Replaced != 2 || s.Sessions != 0 || s.Memory != 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestARewrittenHistoryIsARolloutOfItsOwn(t *testing.T) {
	address, m, w := serveEngine(t)
	table := serveTable(t, nil)
	a, _ := start(t, usual(), address, table)
	ask := message("user", "1+2")
	one := a.chat("s", nil, ask)
	two := a.chat("s", nil, ask, message("assistant", "rewritten 12"[10:]), message("user", "3"))
	three := a.chat("s", fields{"n": 2, "max_tokens": 4}, ask, message("assistant", one.text), message("user", "4"))
	if status, o := a.reward("s", fields{"reward": 1}); status != 200 || len(o.Rollouts) != 3 {
		t.Fatalf("%d: %+v", status, o)
	}
	list := held(t, table)
	if trained(list) != one.tokens+two.tokens+three.tokens {
		t.Errorf("%d tokens are learned from, %d + %d + %d were sampled", trained(list), one.tokens, two.tokens,
			three.tokens)
	}
	for _, r := range list {
		checkLogprobs(t, m, w, r)
		if r.Reward != 1 || r.Meta["session"] != "s" || r.PromptID != list[0].PromptID {
			t.Errorf("%+v", r)
		}
	}
	if list[1].Meta["branch_of"] != "0" || list[1].Meta["shared_tokens"] != "4" {
		t.Errorf("the second rollout has meta %v, want the 4 tokens of 1+2= of the first", list[1].Meta)
	}
}

func TestSessionsWithoutANameAreToldApartByTheirTokens(t *testing.T) {
	address, _, _ := serveEngine(t)
	table := serveTable(t, nil)
	a, _ := start(t, usual(), address, table)
	var first []said
	for seed := 1; len(first) < 2; seed++ {
		s := a.chat("", fields{"seed": seed}, message("user", "1+2"))
		// A text may lack what was sampled: the padding token, for example.
		if s.finish == "length" && len(s.text) == s.tokens && (len(first) == 0 || s.text != first[0].text) {
			first = append(first, s)
		}
	}
	if first[0].session == first[1].session || first[0].session == "" {
		t.Fatalf("sessions %q and %q", first[0].session, first[1].session)
	}
	for i := range first {
		next := a.chat("", nil, message("user", "1+2"), message("assistant", first[i].text), message("user", fmt.Sprint(i)))
		if next.session != first[i].session {
			t.Errorf("session %q went on as %q", first[i].session, next.session)
		}
	}
	same := [2]said{a.chat("", fields{"seed": 9}, message("user", "3")), a.chat("", fields{"seed": 9}, message("user",
		"3"))}
	next := a.chat("", nil, message("user", "3"), message("assistant", same[0].text), message("user", "5"))
	if same[0].text != same[1].text || next.session == same[0].session || next.session == same[1].session {
		t.Errorf("what two sessions said alike goes on in one of them: %+v, %+v", same, next)
	}
	status, o := a.reward(first[0].id, fields{"reward": 1})
	if status != 200 || o.Session != first[0].session {
		t.Errorf("%d: %+v", status, o)
	}
	if status, _, text := a.ask("POST", "/sessions/other/v1/chat/completions", fields{"messages": []fields{message("user",
		"1")}, "max_tokens": 2}); status != 200 {
		t.Errorf("%d: %s", status, text)
	}
	if status, o := a.reward("other", fields{"reward": 0}); status != 200 || o.Session != "other" {
		t.Errorf("a session in the address: %d: %+v", status, o)
	}
}

func TestAGroupEntersOnceItIsWhole(t *testing.T) {
	address, _, _ := serveEngine(t)
	table := serveTable(t, func(d *wire.Table) { d.GroupSize = 2 })
	o := usual()
	o.Group = 2
	a, _ := start(t, o, address, table)
	for i, task := range []string{"x", "y", "x"} {
		name := fmt.Sprint("s", i)
		a.chat(name, nil, message("user", fmt.Sprint(i)))
		status, got := a.reward(name, fields{"reward": i, "task": task})
		if i < 2 && (status != 202 || got.State != capture.Waiting || got.Have != 1 || got.Want != 2) ||
			i == 2 && (status != 200 || got.State != capture.Inserted) {
			t.Fatalf("%s: %d: %+v", name, status, got)
		}
	}
	list := held(t, table)
	if len(list) != 2 || list[0].PromptID != "x" || list[1].PromptID != "x" || list[0].Reward+list[1].Reward != 2 {
		t.Errorf("the table holds %+v", list)
	}
	a.chat("split", nil, message("user", "1"))
	a.chat("split", nil, message("user", "2"))
	if status, _, text := a.ask("POST", "/sessions/split/reward", fields{"reward": 1}); status != 422 ||
		!strings.Contains(text, "--latest") {
		t.Errorf("a session of two rollouts in a table of groups: %d: %s", status, text)
	}
}

func TestARewardIsGivenOnce(t *testing.T) {
	address, _, _ := serveEngine(t)
	table := serveTable(t, nil)
	a, _ := start(t, usual(), address, table)
	a.chat("s", nil, message("user", "1"))
	a.chat("t", nil, message("user", "1"))
	for range 2 {
		if status, o := a.reward("s", fields{"reward": 1}); status != 200 || o.State != capture.Inserted {
			t.Errorf("%d: %+v", status, o)
		}
	}
	call := fields{"messages": []fields{message("user", "1")}}
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		text         string
	}{
		{"POST", "/sessions/s/reward", fields{"reward": 2}, 409, "in the table with reward 1"},
		{"POST", "/sessions/s/v1/chat/completions", call, 409, "has ended"},
		{"POST", "/sessions/none/reward", fields{"reward": 2}, 404, "X-Reprise-Session"},
		{"GET", "/sessions/s", "", 200, `"state":"inserted"`},
		{"GET", "/sessions/t", "", 200, `"state":"open"`},
		{"DELETE", "/sessions/t", "", 200, `"state":"discarded"`},
		{"POST", "/sessions/t/reward", fields{"reward": 2}, 410, "the client ended it"},
	} {
		if status, _, text := a.ask(c.method, c.path, c.body); status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s %s: %d: %s, want %d and %q", c.method, c.path, status, text, c.status, c.text)
		}
	}
	if n := len(held(t, table)); n != 1 {
		t.Errorf("%d rollouts", n)
	}
}

// A capture that ends without a word has its sessions in its folder: those with calls go on, and a group that was or
// was not inserted is in the table once.
func TestSessionsSurviveInTheFolder(t *testing.T) {
	address, _, _ := serveEngine(t)
	table := serveTable(t, nil)
	o := usual()
	o.Group, o.Data = 2, t.TempDir()
	a, stop := start(t, o, address, table)
	ask := message("user", "1+2")
	open := a.chat("open", nil, ask)
	a.chat("x1", nil, ask)
	if status, got := a.reward("x1", fields{"reward": 1}); status != 202 || got.Kept != "on disk" {
		t.Fatalf("%d: %+v", status, got)
	}
	stop()
	a, stop = start(t, o, address, table)
	a.chat("open", nil, ask, message("assistant", open.text), message("user", "4"))
	for range 2 {
		if status, got := a.reward("open", fields{"reward": 0}); status != 200 || got.Calls != 2 || len(got.Rollouts) != 1 {
			t.Fatalf("%d: %+v", status, got)
		}
		stop()
		a, stop = start(t, o, address, table) // and the outcome is remembered
	}
	if list := held(t, table); len(list) != 2 || len(list[0].Turns)+len(list[1].Turns) != 3 {
		t.Errorf("the table holds %+v", list)
	}
	a.chat("y1", nil, ask)
	if status, got := a.reward("y1", fields{"reward": 1, "task": "y"}); status != 202 {
		t.Fatalf("%d: %+v", status, got)
	}
	stop()
	for want, change := range map[string]func(*capture.Options){
		"group: 3: want 2, with":                    func(o *capture.Options) { o.Group = 3 },
		"temperature: 0.5: want 1, with":            func(o *capture.Options) { o.Temperature = 0.5 },
		"latest: true: want false, with":            func(o *capture.Options) { o.Latest = true },
		"table: other: want agents, with":           func(o *capture.Options) { o.Table = "other" },
		"wait in " + o.Data + ", or another --data": func(o *capture.Options) { o.Group = 3 },
	} {
		other := o
		change(&other)
		if _, err := capture.New(other, nil, table, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	start(t, o, address, table)
	if _, err := capture.New(o, nil, table, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(),
		"pid") {
		t.Errorf("a second capture of the folder: %v", err)
	}
}

// prepare makes a capture in front of an engine, and returns why it cannot begin.
func prepare(t *testing.T, o capture.Options, address string, table *client.Table) error {
	t.Helper()
	g, err := engine.OpenGateway(engine.Options{Dialect: engine.VLLM, Address: address})
	if err != nil {
		t.Fatal(err)
	}
	c, err := capture.New(o, g, table, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Prepare(t.Context())
}

func TestATableOfStepsIsRefusedBeforeAnyCall(t *testing.T) {
	address, _, _ := serveEngine(t)
	table := serveTable(t, func(d *wire.Table) { d.Unit = replay.UnitStep })
	if err := prepare(t, usual(), address, table); err == nil ||
		!strings.Contains(err.Error(), "unit: step: want rollout or group") {
		t.Errorf("%v", err)
	}
}

func TestNothingEntersATableThatPrepareRefused(t *testing.T) {
	address, _, _ := serveEngine(t)
	o := usual()
	o.Data = t.TempDir()
	if err := os.MkdirAll(filepath.Join(o.Data, "sessions"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{"begin":{"id":"a","uid":"u"}}` + "\n" + `{"pieces":[{"branch":0,"parent":-1,"context":[1],"tokens":[2],` +
		`"logprobs":[-1],"versions":[0],"first":true}]}` + "\n" + `{"reward":{"reward":1,"order":3}}` + "\n"
	if err := os.WriteFile(filepath.Join(o.Data, "sessions", "a.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table := serveTable(t, func(d *wire.Table) { d.GroupSize = 2 })
	if err := prepare(t, o, address, table); err == nil || !strings.Contains(err.Error(), "group: 1: want 2") {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(filepath.Join(o.Data, "ended.jsonl")); err == nil {
		t.Errorf("the session has ended: %s", text)
	}
}

func TestAGroupAboveTheLargestMessageIsDiscardedWithTheReason(t *testing.T) {
	address, _, _ := serveEngine(t)
	a, _ := start(t, usual(), address, serveTableTo(t, nil, client.Options{RetryFor: -1, MaxMessageBytes: 2 << 10}))
	a.chat("large", fields{"n": 16, "max_tokens": 100}, message("user", "1"))
	status, _, text := a.ask("POST", "/sessions/large/reward", fields{"reward": 1})
	if status != 410 || !strings.Contains(text, "discarded: ") || !strings.Contains(text, "max_message_bytes") {
		t.Errorf("%d: %s", status, text)
	}
}

func TestASessionWithoutItsRewardIsLostByNameAndCounted(t *testing.T) {
	address, _, _ := serveEngine(t)
	table := serveTable(t, nil)
	o := usual()
	o.Deadline = 50 * time.Millisecond
	a, _ := start(t, o, address, table)
	a.chat("gone", nil, message("user", "1"))
	done := make(chan error, 1)
	go func() { done <- a.capture.Run(t.Context()) }()
	tests.Until(t, "the session is lost", func() bool { return a.capture.Stats().Lost == 1 })
	if status, _, text := a.ask("POST", "/sessions/gone/reward", fields{"reward": 1}); status != 410 ||
		!strings.Contains(text, "no call and no reward for 50ms") {
		t.Errorf("%d: %s", status, text)
	}
	if _, _, text := a.ask("GET", "/metrics", ""); !strings.Contains(text, "reprise_capture_lost_sessions_total 1") {
		t.Errorf("metrics: %s", text)
	}
}

func TestMemoryIsBoundedAndComesBack(t *testing.T) {
	address, _, _ := serveEngine(t)
	table := serveTable(t, nil)
	o := usual()
	o.Memory = 1 << 20
	a, _ := start(t, o, address, table)
	var names []string
	for i := 0; ; i++ {
		if i > 5000 {
			t.Fatal("nothing was refused")
		}
		name := fmt.Sprint("s", i)
		status, header, text := a.ask("POST", "/v1/completions", fields{"prompt": []int{3, 4, 5}, "max_tokens": 1},
			capture.SessionHeader, name)
		if status == 503 {
			if !strings.Contains(text, "--memory") || header.Get("Retry-After") == "" {
				t.Errorf("%s", text)
			}
			break
		}
		if status != 200 {
			t.Fatalf("%d: %s", status, text)
		}
		names = append(names, name)
	}
	if s := a.capture.Stats(); s.Memory > o.Memory || s.Refused != 1 || len(names) < 100 {
		t.Errorf("%d sessions, %+v", len(names), s)
	}
	for _, name := range names {
		if status, got := a.reward(name, fields{"reward": 1}); status != 200 {
			t.Fatalf("%d: %+v", status, got)
		}
	}
	if s := a.capture.Stats(); s.Memory != 0 || s.Sessions != 0 {
		t.Errorf("%+v", s)
	}
	if status, _, text := a.ask("POST", "/v1/completions", `{"prompt": "1", "x": "`+strings.Repeat("a",
		2<<20)+`"}`); status != 503 {
		t.Errorf("a body above the memory: %d: %.200s", status, text)
	}
}

// A short call may make a session grow by its prompt once for each answer.
func TestACallIsRefusedForWhatItsAnswersWouldHold(t *testing.T) {
	event := fields{"id": "x", "prompt_token_ids": slices.Repeat([]int{1}, 10_000), "choices": []fields{}}
	for i := range 16 {
		event["choices"] = append(event["choices"].([]fields), fields{"index": i, "finish_reason": "stop",
			"token_ids": []int{1}, "logprobs": fields{"content": []fields{{"logprob": -1}}},
			"weight_versions": []fields{{"version": "0", "start": 0, "end": 1}}})
	}
	address, _, _ := serveEngine(t)
	o := usual()
	o.Memory = 1 << 20 // 16 branches of 10,000 tokens take more
	a, _ := start(t, o, fault(t, address, func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(event)
	}), serveTable(t, nil))
	status, _, text := a.ask("POST", "/v1/chat/completions", fields{"messages": []fields{message("user", "1")}, "n": 16})
	if status != 503 || !strings.Contains(text, "--memory") {
		t.Errorf("%d: %.300s", status, text)
	}
	if s := a.capture.Stats(); s.Calls != 0 || s.Sessions != 0 || s.Memory != 0 || s.Refused != 1 {
		t.Errorf("%+v", s)
	}
}

func TestBadCallsAreRefusedByName(t *testing.T) {
	address, _, _ := serveEngine(t)
	a, _ := start(t, usual(), address, serveTable(t, nil))
	good := fields{"messages": []fields{message("user", "1")}, "max_tokens": 1}
	with := func(key string, v any) fields {
		return fields{"messages": good["messages"], "max_tokens": 1, key: v}
	}
	for name, c := range map[string]struct {
		path    string
		body    any
		status  int
		text    string
		headers []string
	}{
		"no JSON":       {"/v1/chat/completions", "{", 400, "the body", nil},
		"no messages":   {"/v1/chat/completions", fields{}, 400, "messages", nil},
		"other content": {"/v1/chat/completions", good, 415, "application/json", []string{"Content-Type", "text/plain"}},
		"echo":          {"/v1/completions", fields{"prompt": "1", "echo": true}, 400, "echo", nil},
		"prompts":       {"/v1/completions", fields{"prompt": []string{"1", "2"}}, 400, "prompt", nil},
		"n":             {"/v1/chat/completions", with("n", 0), 400, "n: 0", nil},
		"many answers":  {"/v1/chat/completions", with("n", 17), 400, "n: 17: want 1 to 16", nil},
		"the engine's": {"/v1/chat/completions", with("response_format", fields{"type": "json_object"}), 400,
			"response_format", nil},
		"a long name": {"/v1/chat/completions", good, 400, "session", []string{capture.SessionHeader,
			strings.Repeat("a", 300)}},
		"two names": {"/sessions/a/v1/chat/completions", good, 400, "names session", []string{capture.SessionHeader,
			"b"}},
		"another path":   {"/v1/embeddings", good, 404, "/v1/chat/completions", nil},
		"no reward":      {"/sessions/a/reward", fields{}, 400, "reward: missing", nil},
		"a large reward": {"/sessions/a/reward", fields{"reward": 1e10}, 400, "-1e9 to 1e9", nil},
		"a typo":         {"/sessions/a/reward", fields{"reward": 1, "tasks": "x"}, 400, "tasks", nil},
	} {
		status, _, text := a.ask("POST", c.path, c.body, c.headers...)
		if status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d: %s, want %d and %q", name, status, text, c.status, c.text)
		}
	}
	if s := a.capture.Stats(); s.Calls != 0 || s.Sessions != 0 || s.Memory != 0 {
		t.Errorf("%+v", s)
	}
}

// fault is an engine whose chats go wrong.
func fault(t *testing.T, good string, chat http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		again, err := http.NewRequestWithContext(r.Context(), r.Method, good+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := http.DefaultClient.Do(again)
		if err != nil {
			return // the test is over
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		io.Copy(w, answer.Body)
	})
	mux.HandleFunc("/v1/chat/completions", chat)
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	return web.URL
}

func TestWhatAnEngineGivesWrongIsNotRecorded(t *testing.T) {
	address, _, _ := serveEngine(t)
	event := func(text string) string { return "data: " + text + "\n\n" }
	elsewhere := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere = true }))
	defer other.Close()
	for name, c := range map[string]struct {
		stream bool
		answer http.HandlerFunc
		status int
		text   string
	}{
		"no ids": {false, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"id": "x", "choices": [{"index": 0, "message": {"content": "4"}, "finish_reason": "stop"}]}`)
		}, 502, "prompt_token_ids"},
		"a wrong log-prob": {false, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w,
				`{"id": "x", "prompt_token_ids": [1], "choices": [{"index": 0, "finish_reason": "stop", "token_ids": [1],
				"logprobs": {"content": [{"logprob": 2}]}, "weight_versions": [{"version": "0", "start": 0, "end": 1}]}]}`)
		}, 502, "log-prob 2"},
		"an end in the middle": {true, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w,
				event(`{"id": "x", "prompt_token_ids": [1], "choices": [{"index": 0, "delta": {"content": "4"}}]}`))
		}, 200, "before its finish_reason"},
		"a redirection": {false, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, 502, "redirects"},
		"escape codes": {false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "\x1b[31mred") }, 502,
			"not what vllm"},
		"its own error": {false, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(429)
			io.WriteString(w, `{"error": {"message": "later"}}`)
		}, 429, "later"},
	} {
		a, _ := start(t, usual(), fault(t, address, c.answer), serveTable(t, nil))
		status, _, text := a.ask("POST", "/sessions/s/v1/chat/completions", fields{"messages": []fields{message("user",
			"1")},
			"stream": c.stream})
		if status != c.status || !strings.Contains(text, c.text) || strings.Contains(text, "\x1b") {
			t.Errorf("%s: %d: %q, want %d and %q", name, status, text, c.status, c.text)
		}
		if s := a.capture.Stats(); s.Calls != 0 || s.Sessions != 0 || s.Memory != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if elsewhere {
		t.Error("a redirection was followed")
	}
}

// Of calls whose sampling is steered nothing is learned from, and agents get their answers all the same.
func TestSteeredCallsAreContext(t *testing.T) {
	address, _, _ := serveEngine(t)
	table := serveTable(t, nil)
	a, _ := start(t, usual(), address, table)
	ask := message("user", "1+2")
	one := a.chat("s", fields{"logit_bias": fields{"4": 1}}, ask)
	if status, _, text := a.ask("POST", "/sessions/s/reward", fields{"reward": 1}); status != 422 {
		t.Errorf("%d: %s", status, text)
	}
	two := a.chat("s", nil, ask, message("assistant", one.text), message("user", "3"))
	if status, o := a.reward("s", fields{"reward": 1}); status != 200 {
		t.Fatalf("%d: %+v", status, o)
	}
	if list := held(t, table); trained(list) != two.tokens || a.capture.Stats().Untrained != 1 {
		t.Errorf("the table holds %+v", list)
	}
}
