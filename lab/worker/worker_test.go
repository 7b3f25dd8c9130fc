package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/bits"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	engines "github.com/reprise-rl/reprise/lab/policy/server"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/worker"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/server"
	"github.com/reprise-rl/reprise/wire"
)

// makeTask makes a task with a tokenizer for it.
func makeTask(t *testing.T, name string, settings ...string) (task.Task, *hf.Tokenizer) {
	t.Helper()
	made, err := run.NewTask(name, settings, 1)
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := hf.NewCharTokenizer(made.(task.Alphabet).Characters())
	if err != nil {
		t.Fatal(err)
	}
	return made, tokenizer
}

// newTable serves a table with groups of 4.
func newTable(t *testing.T, change func(*wire.Table)) *client.Table {
	t.Helper()
	table, _ := serveTable(t, "", change)
	return table
}

// serveTable serves a table until the returned function is called, kept in dir unless that is "".
func serveTable(t *testing.T, dir string, change func(*wire.Table)) (*client.Table, func()) {
	t.Helper()
	definition := wire.Table{Name: "math", GroupSize: 4}
	definition.Capacity = 4096
	if change != nil {
		change(&definition)
	}
	config := server.Config{Listen: "127.0.0.1:0", HTTP: "off"}
	config.Data = dir
	config.SetTable(definition)
	s, err := server.Start(t.Context(), config.WithDefaults(), "test", slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), s.Addresses.GRPC, client.Options{RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { c.Close(); s.Stop() })
	t.Cleanup(stop)
	return c.Table("math"), stop
}

// nextGrant returns the number of the next grant, which names the prompt.
func nextGrant(t *testing.T, table *client.Table) uint64 {
	t.Helper()
	grant, err := table.Start(t.Context(), 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Abandon(t.Context(), grant.Grant, 1); err != nil {
		t.Fatal(err)
	}
	return grant.Grant + 1
}

func options() worker.Options {
	return worker.Options{Group: 4, InFlight: 16, Positions: 128, Seed: 1, Poll: 5 * time.Millisecond, Pause: time.Millisecond,
		Sampling: engine.Sampling{Temperature: 1, TopP: 1, MaxTokens: 6}}
}

// work runs a worker until it has done its groups.
func work(
	t *testing.T, o worker.Options, made task.Task, c *hf.Tokenizer, list []engine.Engine, table *client.Table,
) worker.Stats {
	t.Helper()
	w, err := worker.New(o, made, c, list, table, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.Stats()
}

// held returns what a table holds.
func held(t *testing.T, table *client.Table) (list []rollout.Draw) {
	t.Helper()
	err := table.Scan(t.Context(), 64, func(draws []rollout.Draw) error {
		list = append(list, draws...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// policyEngine serves a small random policy.
func policyEngine(t *testing.T, c *hf.Tokenizer) (*policy.Model, []*policy.Weights, string) {
	t.Helper()
	model, err := policy.NewModel(hf.Config{
		ModelType: hf.Llama, VocabSize: c.VocabSize(), HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 2,
		NumAttentionHeads: 2, NumKeyValueHeads: 1, MaxPositionEmbeddings: 128, TieWordEmbeddings: true,
		BOSTokenID: c.BOS(), EOSTokenIDs: []int{int(c.EOS()[0])}, PadTokenID: c.Pad(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var weights []*policy.Weights
	for v := range 4 {
		w, err := model.Initial(uint64(v + 1))
		if err != nil {
			t.Fatal(err)
		}
		flat, err := w.Flat()
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range flat { // logits far from uniform
			for i := range tensor {
				tensor[i] *= 2
			}
		}
		if w, err = model.NewWeights(rollout.Version(v), flat); err != nil {
			t.Fatal(err)
		}
		weights = append(weights, w)
	}
	folder := filepath.Join(t.TempDir(), "model")
	if err := model.Save(folder, weights[0], c); err != nil {
		t.Fatal(err)
	}
	s, err := engines.New(folder, engines.Options{Rows: 8})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		web.Close()
		s.Close()
	})
	return model, weights, web.URL
}

func open(t *testing.T, dialect engine.Dialect, address string) engine.Engine {
	t.Helper()
	e, err := engine.Open(engine.Options{Dialect: dialect, Address: address})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A worker plays tasks of one turn and of several with real servers. What it inserts has the ids of the prompts, the
// log-probs of the model, and the rewards of the task.
func TestWorkersPlayTasksWithServers(t *testing.T) {
	for _, play := range []struct {
		task     string
		settings []string
		turns    bool
	}{{"arithmetic", nil, false}, {"frozenlake", []string{"max_steps=4"}, true}} {
		made, c := makeTask(t, play.task, play.settings...)
		model, weights, address := policyEngine(t, c)
		table := newTable(t, nil)
		o := options()
		o.Groups = 12
		o.Sampling.Temperature = 0.8
		first := nextGrant(t, table)
		s := work(t, o, made, c, []engine.Engine{open(t, engine.VLLM, address), open(t, engine.SGLang, address)}, table)
		list := held(t, table)
		if s.Groups != 12 || s.Rollouts != 48 || len(list) != 48 {
			t.Fatalf("%s: %d groups of %d rollouts, the table holds %d, want 12 of 4", play.task, s.Groups, s.Rollouts,
				len(list))
		}
		prompts := make(map[string]task.Prompt)
		for i := range uint64(12) {
			p := made.Train(first + i)
			prompts[p.ID] = p
		}
		var completions int64
		for _, e := range s.Engines {
			completions += e.Completions
			if (e.Completions == 0) != (e.BusySeconds == 0) || e.Outstanding != 0 || e.Failures != 0 {
				t.Errorf("%s: %+v", play.task, e)
			}
		}
		turns := int64(0)
		reward := 0.0
		for _, d := range list {
			r := d.Rollout
			p, ok := prompts[r.PromptID]
			if !ok {
				t.Fatalf("%s: prompt %s is none of the first 12", play.task, r.PromptID)
			}
			ids, _ := c.Encode(p.Text)
			if n := len(ids); !slices.Equal(r.Tokens[:n], ids) || r.Mask[n] != 1 || r.Mask[n-1] != 0 {
				t.Errorf("%s: %v begins with another prompt than %v", play.task, r.Tokens, ids)
			}
			in := policy.Input{Tokens: r.Tokens, Mask: r.Mask}
			scores, err := model.Score(t.Context(), weights[0], []policy.Input{in}, 0.8)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range r.Mask {
				if m == 1 && math.Abs(float64(scores[0].Logprobs[i]-r.Logprobs[i])) > 1e-3 {
					t.Fatalf("%s: token %d has log-prob %g, the model says %g", play.task, i, r.Logprobs[i], scores[0].Logprobs[i])
				}
			}
			if play.turns {
				turns += int64(len(r.Turns))
				sum := float32(0)
				for _, turn := range r.Turns {
					sum += turn.Reward
				}
				if len(r.Turns) == 0 || r.Reward != sum || r.Meta[task.MetaSuccess] == "" {
					t.Errorf("%s: turns %v, reward %g, meta %v", play.task, r.Turns, r.Reward, r.Meta)
				}
			} else {
				turns++
				if want := made.(task.Verifier).Verify(p, r.Text).Reward; r.Reward != want {
					t.Errorf("%q to %q has reward %g, want %g", r.Text, p.Text, r.Reward, want)
				}
			}
			reward += float64(r.Reward) / 48
		}
		// each probe samples some, too
		if probes := int64(2 * 32); completions < turns || completions > turns+4*probes || math.Abs(s.Reward-reward) > 1e-6 {
			t.Errorf("%s: %d completions for %d turns; mean reward %g, want %g", play.task, completions, turns, s.Reward, reward)
		}
	}
}

// Versions that a trainer publishes reach the engines, also one that is away meanwhile.
func TestEnginesTakePublishedWeights(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	model, weights, address := policyEngine(t, c)
	table := newTable(t, nil)
	dir := filepath.Join(t.TempDir(), "weights")
	var gone atomic.Bool
	target := http.DefaultTransport
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gone.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", strings.TrimPrefix(address, "http://")
		answer, err := target.RoundTrip(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		io.Copy(w, answer.Body)
	}))
	defer proxy.Close()
	o := options()
	o.Weights = dir
	_, _, other := policyEngine(t, c)
	list := []engine.Engine{open(t, engine.SGLang, proxy.URL), open(t, engine.VLLM, other)}
	w, err := worker.New(o, made, c, list, table, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for v := rollout.Version(1); v < 4; v++ {
		gone.Store(v == 2)
		if _, err := engine.Publish(dir, v, 2, func(folder string) error {
			return model.Save(folder, weights[v], c)
		}); err != nil {
			t.Fatal(err)
		}
		if err := table.Advance(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		tests.Until(t, fmt.Sprintf("version %d", v), func() bool {
			s := w.Stats()
			return s.Version == v && (gone.Load() || s.Engines[0].Version == v) && s.Engines[1].Version == v
		})
		before := w.Stats().Groups
		tests.Until(t, "groups with it", func() bool { return w.Stats().Groups > before+8 })
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	counts := make(map[rollout.Version]int)
	for _, d := range held(t, table) {
		for i, v := range d.Rollout.Versions {
			if d.Rollout.Mask[i] == 1 {
				counts[v]++
			}
		}
	}
	for v := rollout.Version(1); v < 4; v++ {
		if counts[v] == 0 {
			t.Errorf("no token of version %d: %v", v, counts)
		}
	}
	if s := w.Stats(); s.Engines[0].Failures == 0 || s.Engines[1].Loads < 3 || s.Generating != 0 || s.Inserting != 0 {
		t.Errorf("%+v", s)
	}
}

// scripted is an engine whose answers a test makes, but for the probe's first tokens. Its tokens say which request they
// are of.
type scripted struct {
	name     string
	generate func(context.Context, engine.Request) ([]engine.Completion, error)
}

func (s scripted) Generate(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
	if probes(r) {
		return even(r.N), nil
	}
	return s.generate(ctx, r)
}

// probes reports whether a probe asks for first tokens.
func probes(r engine.Request) bool { return r.N == 16 && r.MaxTokens == 1 }

// even has one token of eight in each completion.
func even(n int) []engine.Completion {
	list := completions(n, 1)
	for i := range list {
		list[i].Tokens[0], list[i].Logprobs[0] = int32(i%8), float32(-math.Log(8))
	}
	return list
}
func (s scripted) Version(context.Context) (rollout.Version, error) { return 0, nil }
func (s scripted) Load(context.Context, engine.Weights) error       { return nil }
func (s scripted) Abort(context.Context) error                      { return nil }
func (s scripted) Health(context.Context) error                     { return nil }
func (s scripted) Tokenize(context.Context, string) ([]int32, error) {
	return nil, errors.ErrUnsupported
}
func (s scripted) String() string { return s.name }

// completion has n tokens of a version.
func completion(n int, v rollout.Version, finish engine.Finish) engine.Completion {
	return engine.Completion{Tokens: slices.Repeat([]int32{5}, n), Logprobs: slices.Repeat([]float32{-1}, n),
		Versions: slices.Repeat([]rollout.Version{v}, n), Finish: finish}
}

func completions(n, tokens int) []engine.Completion {
	list := make([]engine.Completion, n)
	for i := range list {
		list[i] = completion(tokens, 0, engine.Stopped)
	}
	return list
}

// Requests that fail are repeated, by other engines where there are some, and nothing enters twice or is missing.
func TestFailuresAreRepeatedAndCountedOnce(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	table := newTable(t, nil)
	var mu sync.Mutex
	stream := rollout.Stream(1, "failures", 0)
	var list []engine.Engine
	for i := range 3 {
		name := fmt.Sprint("engine ", i)
		list = append(list, scripted{name, func(_ context.Context, r engine.Request) ([]engine.Completion, error) {
			mu.Lock()
			defer mu.Unlock()
			switch x := stream.Float64(); {
			case r.N == 16: // the probe's
			case x < 0.2:
				return nil, fmt.Errorf("connection reset: %w", engine.ErrUnavailable)
			case x < 0.25:
				return nil, errors.New("500: out of memory")
			}
			return completions(r.N, 3), nil
		}})
	}
	o := options()
	o.Groups = 100
	s := work(t, o, made, c, list, table)
	prompts := make(map[string]int)
	for _, d := range held(t, table) {
		prompts[d.Rollout.PromptID]++
	}
	failures := int64(0)
	for _, e := range s.Engines {
		failures += e.Failures
	}
	if s.Groups != 100 || s.Rollouts != 400 || len(held(t, table)) != 400 || failures < 10 {
		t.Errorf("%d groups, %d rollouts, %d failures; the table holds %d", s.Groups, s.Rollouts, failures,
			len(held(t, table)))
	}
}

// A request goes to the engine that has the fewest completions to make: one that answers nothing soon gets no more.
func TestRequestsAreBalanced(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	var list []engine.Engine
	hang := make(chan struct{}) // from when the slow one answers no more
	for _, name := range []string{"slow", "fast"} {
		list = append(list, scripted{name, func(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
			select {
			case <-hang:
				if name == "slow" {
					<-ctx.Done()
				}
			default:
			}
			return completions(r.N, 3), ctx.Err()
		}})
	}
	o := options()
	o.InFlight = 32
	w, err := worker.New(o, made, c, list, newTable(t, nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	made100 := func() { // groups, so that the requests of before have ended
		before := w.Stats().Groups
		tests.Until(t, "100 groups", func() bool { return w.Stats().Groups >= before+100 })
	}
	for i := range list { // an engine that is ready alone is asked for everything
		tests.Until(t, "ready engines", func() bool { return w.Stats().Engines[i].Ready })
	}
	made100()
	close(hang)
	made100()
	if n := w.Stats().Engines[0].Outstanding; n > 16 {
		t.Errorf("the slow engine has %d completions to make, more than half of those in flight", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// A completion that an engine aborts goes on where it ended, and its tokens keep the versions that made them.
func TestAbortedCompletionsGoOn(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	table := newTable(t, nil)
	prompt := 0
	e := scripted{"aborting", func(_ context.Context, r engine.Request) ([]engine.Completion, error) {
		list := completions(r.N, 2)
		switch {
		case r.N == 4:
			prompt = len(r.Prompt)
			list[1], list[2] = completion(2, 0, engine.Aborted), completion(0, 0, engine.Aborted)
		case r.N == 1 && len(r.Prompt) == prompt+2:
			if r.MaxTokens != 4 {
				t.Errorf("after 2 of 6 tokens %d were asked for", r.MaxTokens)
			}
			list[0] = completion(3, 0, engine.Aborted)
		case r.N == 1 && len(r.Prompt) == prompt+5:
			list[0] = completion(1, 0, engine.Aborted) // the last that there is room for
		}
		return list, nil
	}}
	o := options()
	o.Groups, o.InFlight = 1, 4
	s := work(t, o, made, c, []engine.Engine{e}, table)
	var lengths []int
	truncated := 0
	for _, d := range held(t, table) {
		lengths = append(lengths, len(d.Rollout.Tokens)-prompt)
		if d.Rollout.Truncated {
			truncated++
		}
	}
	slices.Sort(lengths)
	if !slices.Equal(lengths, []int{2, 2, 2, 6}) || truncated != 1 || s.Continued != 2 {
		t.Errorf("completions of %v tokens, %d truncated, %d continued, want 2, 2, 2 and 6, 1 and 2", lengths, truncated,
			s.Continued)
	}
}

// With a budget no request asks for more tokens. What is not finished then goes on from there with the weights of that
// time, the longest up to its limit, and keeps the log-probs that it was drawn with.
func TestCompletionsGoOnWhenTheyHaveSpentTheirBudget(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	table := newTable(t, nil)
	if err := table.Advance(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	prompt := 0
	e := scripted{"scripted", func(_ context.Context, r engine.Request) ([]engine.Completion, error) {
		if r.N == 4 {
			prompt = len(r.Prompt)
		}
		if r.N != 16 && r.MaxTokens > 2 { // 16: the probe's
			t.Errorf("%d tokens were asked for with a budget of 2", r.MaxTokens)
		}
		list := completions(r.N, 1)
		if r.N == 4 { // 1, 2, 3 and 5 tokens
			list[1], list[2], list[3] = completion(2, 0, engine.Stopped), completion(2, 0, engine.Length),
				completion(2, 0, engine.Length)
			list[2].Tokens[1] = 6
		}
		if at := len(r.Prompt) - prompt; r.N == 1 {
			list[0] = completion(min(2, r.MaxTokens), rollout.Version(at/2), engine.Length)
			if r.Prompt[prompt+1] == 6 {
				list[0] = completion(1, 1, engine.Stopped)
			}
			list[0].Logprobs[0] = -float32(at)
		}
		return list, nil
	}}
	o := options()
	o.Groups, o.InFlight, o.TokenBudget, o.Sampling.MaxTokens = 1, 4, 2, 5
	s := work(t, o, made, c, []engine.Engine{e}, table)
	var got []string
	for _, d := range held(t, table) {
		r := d.Rollout
		got = append(got, fmt.Sprint(r.Versions[prompt:], r.Logprobs[prompt:], r.Truncated))
	}
	slices.Sort(got)
	want := []string{"[0 0 1 1 2] [-1 -1 -2 -1 -4] true", "[0 0 1] [-1 -1 -2] false", "[0 0] [-1 -1] false",
		"[0] [-1] false"}
	if slices.Sort(want); !slices.Equal(got, want) || s.Continued != 2 {
		t.Errorf("%d completions went on, versions, log-probs and whether truncated are\n%s\nwant 2 and\n%s", s.Continued,
			strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Groups that take longer than the deadline are given back to the gate and counted.
func TestStragglersAreCut(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	table := newTable(t, func(w *wire.Table) { w.Gate = &wire.Gate{RolloutsPerUpdate: 1000} })
	var mu sync.Mutex
	requests := 0
	e := scripted{"slow", func(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
		mu.Lock()
		requests++
		slow := r.N == 4 && requests%5 == 0
		mu.Unlock()
		if slow {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return completions(r.N, 3), nil
	}}
	o := options()
	o.Groups, o.Deadline = 40, 100*time.Millisecond
	s := work(t, o, made, c, []engine.Engine{e}, table)
	if s.Cut < 5 || s.Groups != 40-s.Cut || len(held(t, table)) != 4*int(s.Groups) {
		t.Errorf("%d groups of 40 were cut and %d inserted; the table holds %d rollouts", s.Cut, s.Groups,
			len(held(t, table)))
	}
	stats, err := table.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Gate.Outstanding != 0 {
		t.Errorf("%d rollouts are still granted", stats.Gate.Outstanding)
	}
}

// With OldestFirst groups enter in the order of their start, whatever they take; else a group that is finished enters.
func TestOldestFirst(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	for _, oldestFirst := range []bool{true, false} {
		table := newTable(t, nil)
		first := nextGrant(t, table)
		prompt, err := c.Encode(made.Train(first).Text)
		if err != nil {
			t.Fatal(err)
		}
		var others atomic.Int64
		e := scripted{"uneven", func(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
			if r.N == 4 && slices.Equal(r.Prompt, prompt) { // the first group takes until others are finished
				for finished := false; !finished && ctx.Err() == nil; {
					n, err := table.Len(ctx)
					finished = err != nil || n > 0 || oldestFirst && others.Load() >= 3
				}
			} else if r.N == 4 {
				others.Add(1)
			}
			return completions(r.N, 3), ctx.Err()
		}}
		o := options()
		o.Groups, o.OldestFirst = 20, oldestFirst
		work(t, o, made, c, []engine.Engine{e}, table)
		var order []string
		draws := held(t, table)
		slices.SortFunc(draws, func(a, b rollout.Draw) int { return int(a.ID) - int(b.ID) })
		for _, d := range draws {
			order = append(order, d.Rollout.PromptID)
		}
		order = slices.Compact(order)
		var want []string
		for i := range uint64(20) {
			want = append(want, made.Train(first+i).ID)
		}
		if slices.Equal(order, want) != oldestFirst {
			t.Errorf("oldest first %t: %v", oldestFirst, order)
		}
	}
}

// A trainer that is slow holds the workers back: nothing is generated that is too stale when its turn comes, nothing is
// thrown away, and long rollouts are learned from as often as they are generated.
func TestSlowTrainersHoldWorkersBack(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	const batch, staleness, updates = 16, 2, 40
	table := newTable(t, func(w *wire.Table) {
		w.Sampler, w.MaxStaleness = "fifo", staleness
		w.Gate = &wire.Gate{RolloutsPerUpdate: batch, MaxStaleness: staleness}
	})
	type request struct {
		longest  int // tokens of a completion
		finished chan struct{}
	}
	var mu sync.Mutex
	stream := rollout.Stream(1, "lengths", 0)
	version := rollout.Version(0)
	generated := make(map[int]int)
	var outstanding []request
	e := scripted{"lengths", func(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
		list, own := make([]engine.Completion, r.N), request{finished: make(chan struct{})}
		mu.Lock()
		for i := range list {
			n := 1 + int(math.Min(20, math.Exp(stream.NormFloat64()+1)))
			list[i] = completion(n, version, engine.Stopped)
			if own.longest = max(own.longest, n); r.N == 4 {
				generated[n]++
			}
		}
		outstanding = append(outstanding, own)
		mu.Unlock()
		select {
		case <-own.finished:
		case <-ctx.Done():
		}
		return list, ctx.Err()
	}}
	finishShortest := func() {
		mu.Lock()
		defer mu.Unlock()
		if len(outstanding) > 0 {
			slices.SortStableFunc(outstanding, func(a, b request) int { return a.longest - b.longest })
			close(outstanding[0].finished)
			outstanding = outstanding[1:]
		}
	}
	o := options()
	o.InFlight, o.OldestFirst, o.Sampling.MaxTokens = 64, true, 64
	w, err := worker.New(o, made, c, []engine.Engine{e}, table, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	trained := make(map[int]int)
	for v := range rollout.Version(updates) {
		// The trainer learns until the workers have generated whatever they may.
		most := int64(batch * (v + staleness + 1))
		tests.Until(t, fmt.Sprintf("%d rollouts at version %d", most, v), func() bool {
			finishShortest()
			return w.Stats().Rollouts >= most
		})
		b, err := table.Sample(t.Context(), rollout.Request{Size: batch})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range b.Draws {
			if d.Staleness > staleness {
				t.Errorf("update %d: a rollout is %d versions old", v, d.Staleness)
			}
			n := 0
			for _, m := range d.Rollout.Mask {
				n += int(m)
			}
			trained[n]++
		}
		if s := w.Stats(); s.Rollouts > most || s.Generating > 0 {
			t.Errorf("version %d: %d rollouts and %d groups under way, %d could be used", v, s.Rollouts, s.Generating, most)
		}
		mu.Lock()
		version = v + 1
		mu.Unlock()
		if err := table.Advance(t.Context(), v+1); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := table.Statistics(t.Context())
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	if s := w.Stats(); s.TooOld != 0 || stats.Evicted[rollout.EvictedByStaleness] != 0 || s.GateSeconds == 0 {
		t.Errorf("%d rollouts were too old, %v left; %.2f s at the gate", s.TooOld, stats.Evicted, s.GateSeconds)
	}
	// What was generated and not trained on is the last (staleness + 1) batches at most.
	for n, g := range generated {
		if trained[n] > g {
			t.Errorf("%d rollouts of %d tokens were trained on, %d generated", trained[n], n, g)
		}
	}
	if a, b := meanOf(trained), meanOf(generated); math.Abs(a-b) > 0.06*b {
		t.Errorf("rollouts that were trained on have %.2f tokens in the mean, those generated %.2f", a, b)
	}
}

func meanOf(counts map[int]int) float64 {
	sum, n := 0, 0
	for v, c := range counts {
		sum, n = sum+v*c, n+c
	}
	return float64(sum) / float64(n)
}

// raw gives the same log-probs at any temperature.
type raw struct{ scripted }

func (e raw) Generate(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
	if !probes(r) {
		return e.scripted.Generate(ctx, r)
	}
	list := even(r.N)
	for i := range list { // a half, a quarter, an eighth and two sixteenths
		rank := bits.TrailingZeros(uint(i + 1))
		list[i].Tokens[0], list[i].Logprobs[0] = int32(rank), float32(-float64(min(rank+1, 4))*math.Ln2)
	}
	return list, nil
}

// An engine that lacks what rollouts need ends the worker, unless that is accepted; then the stats say so.
func TestEnginesThatLackSomethingAreRefused(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	e := raw{scripted{"raw", func(_ context.Context, r engine.Request) ([]engine.Completion, error) {
		return completions(r.N, 3), nil
	}}}
	o := options()
	o.Groups, o.Sampling.Temperature = 2, 0.7
	table := newTable(t, nil)
	w, err := worker.New(o, made, c, []engine.Engine{e}, table, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ignore the temperature, 0.7") {
		t.Errorf("the error is %v", err)
	}
	o.Degraded = true
	if s := work(t, o, made, c, []engine.Engine{e}, table); len(s.Engines[0].Lacks) != 1 || s.Groups != 2 {
		t.Errorf("%+v", s)
	}
}

// Prompts that leave no room for a completion are left out; a task that begins with one is refused.
func TestPromptsThatAreTooLongAreLeftOut(t *testing.T) {
	made, c := makeTask(t, "arithmetic", "max=1000")
	table := newTable(t, nil)
	e := scripted{"any", func(_ context.Context, r engine.Request) ([]engine.Completion, error) {
		return completions(r.N, 1), nil
	}}
	first, err := c.Encode(made.Train(0).Text)
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Groups, o.Positions, o.Sampling.MaxTokens = 60, len(first)+1, 1
	o.Degraded = true
	s := work(t, o, made, c, []engine.Engine{e}, table)
	if s.TooLong == 0 && len(first) < 8 || s.Groups+s.TooLong != 60 || len(held(t, table)) != 4*int(s.Groups) {
		t.Errorf("%d groups were too long and %d inserted of 60; prompts have up to 8 tokens, %d fit", s.TooLong, s.Groups,
			o.Positions-1)
	}
	o.Positions = len(first)
	w, err := worker.New(o, made, c, []engine.Engine{e}, table, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "want fewer than the") {
		t.Errorf("a first prompt that is too long: %v", err)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	table := newTable(t, nil)
	e := []engine.Engine{scripted{"any", nil}}
	for want, change := range map[string]func(*worker.Options){
		"group: 0":       func(o *worker.Options) { o.Group = 0 },
		"in_flight: 3":   func(o *worker.Options) { o.InFlight = 3 },
		"positions: 1":   func(o *worker.Options) { o.Positions = 1 },
		"deadline: -1":   func(o *worker.Options) { o.Deadline = -1 },
		"temperature: 0": func(o *worker.Options) { o.Sampling.Temperature = 0 },
		"top_p: 2":       func(o *worker.Options) { o.Sampling.TopP = 2 },
		"max_tokens: 0":  func(o *worker.Options) { o.Sampling.MaxTokens = 0 },
	} {
		o := options()
		change(&o)
		_, err := worker.New(o, made, c, e, table, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
	o := options()
	o.Group, o.InFlight = 8, 8
	w, err := worker.New(o, made, c, e, table, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "group: 8: want 4") {
		t.Errorf("another group size than the table's: %v", err)
	}
	images, _ := run.NewTask("frozenlake", []string{"images=true"}, 1)
	if _, err := worker.New(options(), images, c, e, table, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a task with images was taken")
	}
}

// game is a task of one turn as an environment.
type game struct {
	task.Task
	task.Demonstrator
	task.FewShot
}

func (game) MaxTurns() int                                   { return 1 }
func (g game) Reset(p task.Prompt, seed uint64) task.Episode { return task.Begin(g.Task, p, seed) }

// With examples a turn ends where a model that goes on by itself begins the next question.
func TestTurnsOfExamplesEndAtTheNextQuestion(t *testing.T) {
	made, err := run.NewTask("arithmetic", []string{"examples=2", "operations=[add]"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := hf.NewCharTokenizer(made.(task.Alphabet).Characters() + "\n")
	if err != nil {
		t.Fatal(err)
	}
	turn, err := c.EncodePart("46\n\n7+8=15\n\n")
	if err != nil {
		t.Fatal(err)
	}
	var prompt atomic.Pointer[[]int32] // of the latest request; several are under way at a time
	e := scripted{"rambling", func(_ context.Context, r engine.Request) ([]engine.Completion, error) {
		list := completions(r.N, len(turn))
		for i := range list {
			copy(list[i].Tokens, turn)
		}
		prompt.Store(&r.Prompt)
		return list, nil
	}}
	o := options()
	o.Groups, o.InFlight, o.Sampling.MaxTokens = 1, 4, 64
	for _, played := range []task.Task{made, game{made, made.(task.Demonstrator), made.(task.FewShot)}} {
		table := newTable(t, nil)
		work(t, o, played, c, []engine.Engine{e}, table)
		if text := c.Decode(*prompt.Load()); strings.Count(text, "\n\n") != 2 || !strings.HasSuffix(text, "=") {
			t.Errorf("the prompt is %q, want two examples before the question", text)
		}
		list := held(t, table)
		if len(list) != 4 {
			t.Errorf("the table holds %d rollouts, want 4", len(list))
		}
		for _, d := range list {
			r := d.Rollout
			n := 0
			for _, m := range r.Mask {
				n += int(m)
			}
			if n != len("46\n\n") || r.Text != "46" || r.Truncated || len(r.Logprobs) != len(r.Tokens) {
				t.Errorf("%T: %d tokens were kept of %q, text %q, truncated %t", played, n, c.Decode(turn), r.Text, r.Truncated)
			}
		}
	}
}

// reused is an engine that has weights of an earlier run, and fails its first requests.
type reused struct {
	scripted
	loaded *atomic.Int32
}

func (e reused) Version(context.Context) (rollout.Version, error) {
	return rollout.Version(e.loaded.Load()), nil
}

func (e reused) Load(_ context.Context, w engine.Weights) error {
	e.loaded.Store(int32(w.Version))
	return nil
}

// An engine that has a version of another run, above the table's, takes this run's before its first request.
func TestAnEngineOfAnotherRunTakesTheWeights(t *testing.T) {
	made, c := makeTask(t, "arithmetic")
	dir := t.TempDir()
	if _, err := engine.Publish(dir, 0, 2, func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	e := reused{loaded: new(atomic.Int32)}
	e.loaded.Store(40)
	e.name = "reused"
	e.generate = func(_ context.Context, r engine.Request) ([]engine.Completion, error) {
		list := completions(r.N, 3)
		for i := range list {
			list[i].Versions = slices.Repeat([]rollout.Version{rollout.Version(e.loaded.Load())}, 3)
		}
		return list, nil
	}
	o := options()
	o.Groups, o.Weights = 4, dir
	w, err := worker.New(o, made, c, []engine.Engine{e}, newTable(t, nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	tests.Until(t, "the groups", func() bool { return w.Stats().Groups == 4 })
	stop()
	if err := <-ended; err != nil || e.loaded.Load() != 0 {
		t.Errorf("%v; the engine has version %d", err, e.loaded.Load())
	}
}
