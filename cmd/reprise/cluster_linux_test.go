package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

var faults = flag.Int("faults", 4, "faults that TestAClusterSurvivesFaults makes")

// nodes is a cluster of three processes.
type nodes struct {
	t         *testing.T
	dir       string
	addresses []string   // of the services
	arguments [][]string // of each node
	running   []*exec.Cmd
}

func freeAddresses(t *testing.T, n int) (list []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all at the end, so that no two are the same
		list = append(list, l.Addr().String())
	}
	return list
}

func startNodes(t *testing.T, n int) *nodes {
	t.Helper()
	c := &nodes{t: t, dir: t.TempDir(), running: make([]*exec.Cmd, n)}
	at := freeAddresses(t, 2*n)
	for i := range n {
		args := []string{"serve", "--listen", at[i], "--http", "off", "--node", fmt.Sprintf("n%d", i), "--node-listen",
			at[n+i], "--domain", fmt.Sprintf("rack-%d", i), "--data", filepath.Join(c.dir, fmt.Sprint(i))}
		for _, peer := range at[n:] {
			args = append(args, "--peer", peer)
		}
		c.addresses = append(c.addresses, "grpc://"+at[i])
		c.arguments = append(c.arguments, args)
	}
	t.Cleanup(func() {
		for i := range c.running {
			c.kill(i)
		}
	})
	for i := range n {
		c.start(i)
	}
	return c
}

func (c *nodes) log(i int) string { return filepath.Join(c.dir, fmt.Sprintf("%d.log", i)) }

func (c *nodes) start(i int) {
	c.t.Helper()
	log, err := os.OpenFile(c.log(i), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close() // the process has it too
	c.running[i] = exec.Command(binary, c.arguments[i]...)
	c.running[i].Stdout, c.running[i].Stderr = log, log
	if err := c.running[i].Start(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *nodes) kill(i int) {
	if p := c.running[i]; p != nil {
		_ = p.Process.Kill()
		_ = p.Wait()
		c.running[i] = nil
	}
}

// stall stops a process, and lets it go on.
func (c *nodes) stall(i int, d time.Duration) {
	_ = c.running[i].Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	_ = c.running[i].Process.Signal(syscall.SIGCONT)
}

// connect dials all nodes, once they are up.
func (c *nodes) connect() *client.Services {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		s, err := client.DialAll(context.Background(), c.addresses, client.AllOptions{
			Options: client.Options{Patience: time.Minute}})
		if err == nil {
			c.t.Cleanup(func() { _ = s.Close() })
			return s
		}
		if time.Now().After(end) {
			c.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// books is what clients of a cluster were told.
type books struct {
	mu        sync.Mutex
	inserted  map[string]bool // prompts of acknowledged groups
	consumed  map[string]int  // rollouts by prompt, of acknowledged draws
	uncertain map[string]bool // prompts of draws of which the acknowledgement failed
	worst     time.Duration   // of an insertion
}

const clusterGroup = 2

func pairOf(prompt string) rollout.Group {
	var g rollout.Group
	for range clusterGroup {
		g.Rollouts = append(g.Rollouts, rollout.New(prompt, make([]int32, 50), rollout.Completion{
			Tokens: make([]int32, 100), Logprobs: make([]float32, 100)}))
	}
	return g
}

// insert inserts groups one after another until the context ends. Each is repeated until it is acknowledged.
func (b *books) insert(ctx context.Context, into *client.Whole, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		prompt, began := fmt.Sprintf("%s-%d", name, i), time.Now()
		for {
			_, err := into.InsertOnce(context.WithoutCancel(ctx), prompt, pairOf(prompt))
			if err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		b.mu.Lock()
		b.inserted[prompt] = true
		b.worst = max(b.worst, time.Since(began))
		b.mu.Unlock()
	}
}

// consume draws from a queue until the context ends and it is empty.
func (b *books) consume(ctx context.Context, from *client.Whole) {
	for {
		batch, err := from.Lease(context.WithoutCancel(ctx), rollout.Request{Size: 1})
		if errors.Is(err, rollout.ErrStarved) && ctx.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		err = from.Acknowledge(context.WithoutCancel(ctx), batch.ID)
		b.mu.Lock()
		for _, d := range batch.Draws {
			if err == nil {
				b.consumed[d.Rollout.PromptID]++
			} else {
				b.uncertain[d.Rollout.PromptID] = true
			}
		}
		b.mu.Unlock()
	}
}

// Whatever a node suffers, what was acknowledged is there, once, and what was consumed does not come back.
func TestAClusterSurvivesFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds; make test runs it")
	}
	c := startNodes(t, 3)
	s := c.connect()
	for _, w := range []wire.Table{
		{Name: "lab", Options: replay.Options{Capacity: 1 << 20}},
		{Name: "queue", Options: replay.Options{Capacity: 1 << 20, Sampler: replay.FIFO}},
	} {
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if _, err := s.Create(t.Context(), w); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	kept := &books{inserted: make(map[string]bool)}
	queued := &books{inserted: make(map[string]bool), consumed: make(map[string]int), uncertain: make(map[string]bool)}
	ctx, stop := context.WithCancel(t.Context())
	var inserting, consuming sync.WaitGroup
	for i := range 2 {
		inserting.Go(func() { kept.insert(ctx, s.Table("lab"), fmt.Sprint("k", i)) })
	}
	inserting.Go(func() { queued.insert(ctx, s.Table("queue"), "q") })
	drained, drain := context.WithCancel(t.Context())
	consuming.Go(func() { queued.consume(drained, s.Table("queue").Waiting(time.Second)) })

	random := rand.New(rand.NewPCG(uint64(*faults), 1))
	for range *faults {
		i, kind := random.IntN(3), random.IntN(3)
		kept.mu.Lock()
		before, n := kept.worst, len(kept.inserted)
		kept.worst = 0
		kept.mu.Unlock()
		switch kind {
		case 0:
			c.stall(i, time.Duration(1000+random.IntN(7000))*time.Millisecond)
		default:
			c.kill(i)
			time.Sleep(time.Duration(random.IntN(12000)) * time.Millisecond)
			c.start(i)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			kept.mu.Lock()
			more := len(kept.inserted) - n
			kept.mu.Unlock()
			if more > 50 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d insertions within a minute of a fault of node %d", more, i)
			}
		}
		time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
		kept.mu.Lock()
		t.Logf("fault %d of node %d: insertions took up to %v", kind, i, kept.worst.Round(time.Millisecond))
		kept.worst = max(kept.worst, before)
		kept.mu.Unlock()
	}
	stop()
	inserting.Wait()
	drain()
	consuming.Wait()

	found := make(map[string]int)
	err := s.Table("lab").Scan(t.Context(), 256, func(draws []rollout.Draw) error {
		for i := range draws {
			found[draws[i].Rollout.PromptID]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for prompt := range kept.inserted {
		if found[prompt] != clusterGroup {
			t.Errorf("group %s was acknowledged and has %d rollouts", prompt, found[prompt])
		}
		delete(found, prompt)
	}
	if len(found) > 0 {
		t.Errorf("%d groups that nobody inserted", len(found))
	}
	again := 0
	for prompt := range queued.inserted {
		n := queued.consumed[prompt]
		if queued.uncertain[prompt] && n <= clusterGroup {
			again++
		} else if n != clusterGroup {
			t.Errorf("%d rollouts of group %s were consumed", n, prompt)
		}
	}
	t.Logf("%d groups kept, %d queued; the draws of %d were acknowledged with an error; insertions took up to %v",
		len(kept.inserted), len(queued.inserted), again, kept.worst.Round(time.Millisecond))
	if t.Failed() {
		for i := range c.running {
			text, _ := os.ReadFile(c.log(i))
			t.Logf("node %d:\n%s", i, lastLines(string(text), 40))
		}
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
