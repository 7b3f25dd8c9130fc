package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// reading returns a stream that reads ahead in batches of two, of a new table with eight rollouts.
func reading(t *testing.T, slack int) (*client.Table, *client.Stream) {
	t.Helper()
	address, stop := serve()
	t.Cleanup(stop)
	ctx := t.Context()
	c, err := client.Dial(ctx, address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Create(ctx, wire.Table{Name: "ahead", Options: replay.Options{Capacity: 64}}); err != nil {
		t.Fatal(err)
	}
	table := c.Table("ahead")
	if _, err := table.Insert(ctx, long(8, 4)); err != nil {
		t.Fatal(err)
	}
	none := 0
	s, err := table.Stream(ctx, wire.SampleRequest{Size: 2, PrefetchSlack: slack, Prefetch: &none})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.ReadAhead()
	return table, s
}

func take(t *testing.T, next func(context.Context) (*rollout.Batch, error)) *rollout.Batch {
	t.Helper()
	b, err := next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// counted waits until the given draws were acknowledged and the given ones are on lease: what a stream sends and nobody
// answers to reaches the service when it does.
func counted(t *testing.T, table *client.Table, acknowledged, onLease int) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		st, err := table.Statistics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if int(st.Acknowledged) == acknowledged && int(st.OnLease) == onLease {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d draws were acknowledged and %d are on lease: want %d and %d", st.Acknowledged, st.OnLease,
				acknowledged, onLease)
		}
	}
}

func TestAStreamThatReadsAheadSettlesWhatWasTakenAndNothingElse(t *testing.T) {
	t.Parallel()
	table, s := reading(t, 0)
	seen := make(map[rollout.BatchID]bool)
	for range 10 {
		b := take(t, s.Next)
		if seen[b.ID] {
			t.Fatalf("batch %d came twice", b.ID)
		}
		seen[b.ID] = true
	}
	take(t, s.Exchange) // releases the tenth
	take(t, s.Next)     // acknowledges the eleventh, and is acknowledged itself
	if err := s.Acknowledge(t.Context()); err != nil {
		t.Fatal(err)
	}
	take(t, s.Next) // is not acknowledged
	_ = s.Close()
	counted(t, table, 2*(9+1+1), 0)
}

func TestABatchReadAheadIsDrawnAnewAfterAnAdvance(t *testing.T) {
	t.Parallel()
	for slack, want := range []rollout.Version{1, 0} {
		table, s := reading(t, slack)
		take(t, s.Next)
		counted(t, table, 0, 4) // the next one was drawn
		if err := table.Advance(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		b := take(t, s.Next)
		if b.Version != want {
			t.Errorf("with a slack of %d a batch of version %d came: want %d", slack, b.Version, want)
		}
		take(t, s.Next)
		counted(t, table, 4, 4) // the last one is with us, the next drawn
		_ = s.Close()
		counted(t, table, 4, 0)
	}
}

func TestATableOfAServiceDrawsByPrompt(t *testing.T) {
	address, stop := serve()
	defer stop()
	c, err := client.Dial(t.Context(), address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o := replay.Options{Capacity: 64, PromptIndex: true}
	if _, err := c.Create(t.Context(), wire.Table{Name: "lab", Options: o}); err != nil {
		t.Fatal(err)
	}
	table := c.Table("lab")
	if _, err := table.Insert(t.Context(), named("a", 4), named("b", 4)); err != nil {
		t.Fatal(err)
	}
	req := rollout.Request{Prompts: []string{"a", "nobody's", "b"}, PerPrompt: 2, Where: "reward == 1", Order: "-uses"}
	for _, draw := range []func(context.Context, rollout.Request) (*rollout.Batch, error){table.Sample, table.Lease} {
		b, err := draw(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i, draws := range b.ByPrompt() {
			if want := []int{2, 0, 2}[i]; len(draws) != want {
				t.Errorf("%s got %d, want %d", req.Prompts[i], len(draws), want)
			}
			for _, d := range draws {
				if d.Rollout.PromptID != req.Prompts[i] || d.Rollout.Reward != 1 {
					t.Errorf("%s got %+v", req.Prompts[i], d)
				}
			}
		}
	}
	s, err := table.Stream(t.Context(), wire.SampleRequest{Prompts: []string{"nobody's"}, PerPrompt: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		if b := take(t, s.Next); len(b.Draws) != 0 || len(b.PromptCounts) != 1 {
			t.Errorf("of a prompt of nobody: %+v", b)
		}
	}
}

func TestATableOfAServiceShowsItsRollouts(t *testing.T) {
	address, stop := serve()
	defer stop()
	c, err := client.Dial(t.Context(), address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o := replay.Options{Capacity: 64}
	if _, err := c.Create(t.Context(), wire.Table{Name: "lab", Options: o}); err != nil {
		t.Fatal(err)
	}
	table := c.Table("lab")
	if _, err := table.Insert(t.Context(), named("a", 4), named("b", 4)); err != nil {
		t.Fatal(err)
	}
	page, err := table.Rollouts(t.Context(), replay.Query{Text: "B", Order: "reward", Limit: 3})
	if err != nil || page.Matched != 4 || len(page.Rows) != 3 || page.Rows[0].PromptID != "b" {
		t.Errorf("found %+v, error %v", page, err)
	}
	shown, err := table.Rollout(t.Context(), 2)
	if err != nil || shown.PromptID != "a" || len(shown.Mates) != 4 || !math.IsNaN(float64(shown.Base)) {
		t.Errorf("rollout 2 is %+v, error %v: a distinct sampler has no bases", shown, err)
	}
	if _, err = table.Rollout(t.Context(), 99); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("a rollout that is not there: %v", err)
	}
	if _, err = table.Rollouts(t.Context(), replay.Query{Where: "reward"}); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("a condition that is none: %v", err)
	}
}

func TestAStreamThatReadsAheadGoesOnAfterTooFewRollouts(t *testing.T) {
	t.Parallel()
	table, s := reading(t, 0)
	many, err := table.Stream(t.Context(), wire.SampleRequest{Size: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer many.Close()
	many.ReadAhead()
	for range 2 {
		if _, err := many.Next(t.Context()); err == nil {
			t.Fatal("a batch of 16 came from 8 rollouts")
		}
	}
	if _, err := table.Insert(t.Context(), long(8, 4)); err != nil {
		t.Fatal(err)
	}
	take(t, many.Next)
	take(t, s.Next)
}

// cutter stands between clients and a service and cuts every connection after a random number of bytes.
type cutter struct {
	listener net.Listener
	service  string
	seed     uint64
	cuts     atomic.Uint64
	whole    atomic.Bool // cut no more
	wait     sync.WaitGroup
	silent   sync.RWMutex // nothing passes while it is locked, as through a cable that was pulled
}

// Write waits while the cutter is silent.
func (w throughCutter) Write(b []byte) (int, error) {
	w.silent.RLock()
	defer w.silent.RUnlock()
	return w.Conn.Write(b)
}

type throughCutter struct {
	net.Conn
	silent *sync.RWMutex
}

func newCutter(t *testing.T, service string, seed uint64) (*cutter, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, service: service, seed: seed}
	c.wait.Go(c.accept)
	t.Cleanup(func() { l.Close(); c.wait.Wait() })
	return c, "grpc+unix://" + path
}

func (c *cutter) accept() {
	for n := uint64(0); ; n++ {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.service)
		if err != nil {
			near.Close()
			continue
		}
		r := rollout.Stream(c.seed, "cut", n)
		c.pass(near, far, 3000+r.Int64N(60_000))
		c.pass(far, near, 3000+r.Int64N(60_000))
	}
}

// pass copies one direction of a connection until its bytes are used up, and closes both.
func (c *cutter) pass(from, to net.Conn, bytes int64) {
	c.wait.Go(func() {
		defer from.Close()
		defer to.Close()
		out := throughCutter{to, &c.silent}
		if _, err := io.CopyN(out, from, bytes); err != nil {
			return
		}
		if c.whole.Load() {
			io.Copy(out, from)
			return
		}
		c.cuts.Add(1)
	})
}

// Whatever happens to the connections, a rollout that was inserted is there once, and one that a queue gave out was
// given out once.
func TestNothingIsInsertedOrDrawnTwiceOverConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	address, stop := serve()
	defer stop()
	const producers, trainers, groups, size = 4, 3, 40, 4
	const seed = 7
	proxy, through := newCutter(t, address[len("grpc://"):], seed)
	c, err := client.Dial(context.Background(), through, client.Options{CallTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Create(context.Background(), wire.Table{Name: "lab", Options: replay.Options{Sampler: "fifo",
		Capacity: 24 * size}}); err != nil {
		t.Fatal(err)
	}
	table := c.Table("lab").Waiting(client.Forever)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()

	var wait sync.WaitGroup
	for p := range producers {
		wait.Go(func() {
			for i := range groups {
				if _, err := table.Insert(ctx, named(fmt.Sprintf("%d/%d", p, i), size)); err != nil {
					t.Errorf("seed %d: insert: %v", seed, err)
					cancel()
					return
				}
			}
		})
	}
	var mu sync.Mutex
	drawn := make(map[rollout.ID]string)
	var left atomic.Int64
	left.Store(producers * groups)
	for range trainers {
		wait.Go(func() {
			for left.Add(-1) >= 0 {
				b, err := table.Sample(ctx, rollout.Request{Size: size})
				if err != nil {
					t.Errorf("seed %d: sample: %v", seed, err)
					cancel()
					return
				}
				mu.Lock()
				for _, d := range b.Draws {
					if _, twice := drawn[d.ID]; twice {
						t.Errorf("seed %d: rollout %d was drawn twice", seed, d.ID)
					}
					drawn[d.ID] = d.Rollout.PromptID
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	proxy.whole.Store(true)
	perPrompt := make(map[string]int)
	for _, prompt := range drawn {
		perPrompt[prompt]++
	}
	if len(drawn) != producers*groups*size || len(perPrompt) != producers*groups {
		t.Errorf("seed %d: %d rollouts of %d prompts were drawn, want %d of %d", seed, len(drawn), len(perPrompt),
			producers*groups*size, producers*groups)
	}
	stats, err := table.Statistics(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Inserted != producers*groups*size || stats.Acknowledged != stats.Inserted || stats.Present != 0 {
		t.Errorf("seed %d: %d inserted, %d used, %d left", seed, stats.Inserted, stats.Acknowledged, stats.Present)
	}
	if proxy.cuts.Load() < 10 {
		t.Errorf("seed %d: only %d connections were cut: the test tested little", seed, proxy.cuts.Load())
	}
	if _, err := table.Waiting(0).Sample(context.Background(), rollout.Request{Size: 1}); !errors.Is(err,
		rollout.ErrStarved) {
		t.Errorf("seed %d: the emptied table gave %v", seed, err)
	}
}

// named returns a group of one prompt.
func named(prompt string, size int) rollout.Group {
	g := rollout.Group{Size: size}
	for i := range size {
		g.Rollouts = append(g.Rollouts, &rollout.Rollout{
			PromptID: prompt, Tokens: make([]int32, 64), Mask: ones(64), Logprobs: make([]float32, 64),
			Versions:    make([]rollout.Version, 64),
			Temperature: 1, TopP: 1, Reward: float32(i % 2),
		})
	}
	return g
}

func ones(n int) []uint8 {
	m := make([]uint8, n)
	for i := range m {
		m[i] = 1
	}
	return m
}
