package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// cutter stands between clients and a service and cuts every connection after a random number of bytes.
type cutter struct {
	listener net.Listener
	service  string
	seed     uint64
	cuts     atomic.Uint64
	whole    atomic.Bool // cut no more
	wait     sync.WaitGroup
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
		if _, err := io.CopyN(to, from, bytes); err != nil {
			return
		}
		if c.whole.Load() {
			io.Copy(to, from)
			return
		}
		c.cuts.Add(1)
	})
}

// Whatever happens to the connections, a rollout that was inserted is there once, and one that a queue gave out was given out once.
func TestOverConnectionsThatAreCutNothingIsInsertedOrDrawnTwice(t *testing.T) {
	address, stop := serve()
	defer stop()
	const producers, trainers, groups, size = 4, 3, 60, 4
	const seed = 7
	proxy, through := newCutter(t, address[len("grpc://"):], seed)
	c, err := client.Dial(context.Background(), through, client.Options{CallTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Create(context.Background(), wire.Table{Name: "lab", Sampler: "fifo", Capacity: 24 * size}); err != nil {
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
		t.Errorf("seed %d: %d rollouts of %d prompts were drawn, want %d of %d", seed, len(drawn), len(perPrompt), producers*groups*size, producers*groups)
	}
	stats, err := table.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Inserted != producers*groups*size || stats.Acknowledged != stats.Inserted || stats.Present != 0 {
		t.Errorf("seed %d: %d inserted, %d used, %d left", seed, stats.Inserted, stats.Acknowledged, stats.Present)
	}
	if proxy.cuts.Load() < 10 {
		t.Errorf("seed %d: only %d connections were cut: the test tested little", seed, proxy.cuts.Load())
	}
	if _, err := table.Waiting(0).Sample(context.Background(), rollout.Request{Size: 1}); !errors.Is(err, rollout.ErrStarved) {
		t.Errorf("seed %d: the emptied table gave %v", seed, err)
	}
}

// named returns a group of one prompt.
func named(prompt string, size int) rollout.Group {
	g := rollout.Group{Size: size}
	for i := range size {
		g.Rollouts = append(g.Rollouts, &rollout.Rollout{
			PromptID: prompt, Tokens: make([]int32, 64), Mask: ones(64), Logprobs: make([]float32, 64), Versions: make([]rollout.Version, 64),
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
