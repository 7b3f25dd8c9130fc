package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

var (
	faults    = flag.Int("faults", 10, "faults of TestAClusterSurvivesFaults; TestHistoriesUnderFaults… makes a fifth")
	faultSeed = flag.Uint64("fault-seed", 1, "which faults those tests make")
)

// nodes is a cluster of processes, each in a network namespace of its own where the machine has namespaces.
type nodes struct {
	t         *testing.T
	dir       string
	addresses []string   // of the services
	arguments [][]string // of each node
	running   []*exec.Cmd
	single    []*client.Client // of ask
	net       *network         // nil: on loopback, where nothing can be cut
	drives    []*drive         // nil: no disk can lose its power
	kept      *ledger          // of table lab, once endure has made it
}

func startNodes(t *testing.T, n int, network *network, options ...string) *nodes {
	t.Helper()
	c := newNodes(t, n, network, options...)
	for i := range n {
		c.start(i)
	}
	return c
}

func newNodes(t *testing.T, n int, network *network, options ...string) *nodes {
	t.Helper()
	c := &nodes{t: t, dir: t.TempDir(), running: make([]*exec.Cmd, n), net: network,
		single: make([]*client.Client, n)}
	at := nettest.FreeAddresses(t, 2*n)
	if network != nil {
		for i := range n {
			at[i], at[n+i] = network.host(i)+":7447", network.host(i)+":6222"
		}
	}
	for i := range n {
		args := []string{"serve", "--listen", at[i], "--http", "off", "--node", fmt.Sprintf("n%d", i), "--node-listen",
			at[n+i], "--domain", fmt.Sprintf("rack-%d", i), "--data", filepath.Join(c.dir, fmt.Sprint(i))}
		for _, peer := range at[n:] {
			args = append(args, "--peer", peer)
		}
		args = append(args, options...)
		c.addresses = append(c.addresses, "grpc://"+at[i])
		c.arguments = append(c.arguments, args)
	}
	t.Cleanup(func() {
		for i := range c.running {
			c.kill(i)
		}
	})
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
	command := append([]string{binary}, c.arguments[i]...)
	if c.net != nil {
		command = c.net.in(i, command...)
	}
	c.running[i] = exec.Command(command[0], command[1:]...)
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

// A fault is what a node suffers for a time.
type fault struct {
	name string
	make func(c *nodes, i int, d time.Duration)
}

var (
	killed = fault{"killed", func(c *nodes, i int, d time.Duration) {
		c.kill(i)
		time.Sleep(d)
		c.start(i)
	}}
	stopped = fault{"stopped", func(c *nodes, i int, d time.Duration) {
		_ = c.running[i].Process.Signal(syscall.SIGTERM)
		_ = c.running[i].Wait()
		time.Sleep(d)
		c.start(i)
	}}
	stalled = fault{"stalled", func(c *nodes, i int, d time.Duration) {
		_ = c.running[i].Process.Signal(syscall.SIGSTOP)
		time.Sleep(d)
		_ = c.running[i].Process.Signal(syscall.SIGCONT)
	}}
	unplugged = fault{"unplugged", func(c *nodes, i int, d time.Duration) {
		c.net.plug(i, "down")
		time.Sleep(d)
		c.net.plug(i, "up")
	}}
	// Clients still reach the nodes of the faults below.
	pairCut = fault{"cut off from the next node", func(c *nodes, i int, d time.Duration) {
		next := (i + 1) % len(c.running)
		c.cutFor(d, [2]int{i, next}, [2]int{next, i})
	}}
	isolated = fault{"cut off from all nodes", func(c *nodes, i int, d time.Duration) {
		a, b := (i+1)%len(c.running), (i+2)%len(c.running)
		c.cutFor(d, [2]int{i, a}, [2]int{a, i}, [2]int{i, b}, [2]int{b, i})
	}}
	muted = fault{"mute to the next node", func(c *nodes, i int, d time.Duration) {
		c.cutFor(d, [2]int{i, (i + 1) % len(c.running)})
	}}
	mutedToAll = fault{"mute to all nodes", func(c *nodes, i int, d time.Duration) {
		c.cutFor(d, [2]int{i, (i + 1) % len(c.running)}, [2]int{i, (i + 2) % len(c.running)})
	}}
	deaf = fault{"deaf to all nodes", func(c *nodes, i int, d time.Duration) {
		c.cutFor(d, [2]int{(i + 1) % len(c.running), i}, [2]int{(i + 2) % len(c.running), i})
	}}
)

// faultsOf returns the faults that a node can suffer here: without networks of their own no link can be cut.
func faultsOf(n *network) []fault {
	kinds := []fault{killed, stopped, stalled}
	if n != nil {
		kinds = append(kinds, unplugged, pairCut, isolated, muted, mutedToAll, deaf)
	}
	return kinds
}

// cutFor drops what the first node of each link sends to the second.
func (c *nodes) cutFor(d time.Duration, links ...[2]int) {
	for _, l := range links {
		c.net.cut(l[0], l[1])
	}
	time.Sleep(d)
	for _, l := range links {
		c.net.heal(l[0], l[1])
	}
}

// ask asks one node, and no other, for the number of rollouts of a table.
func (c *nodes) ask(ctx context.Context, i int, table string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if c.single[i] == nil {
		one, err := client.Dial(ctx, c.addresses[i], client.Options{RetryFor: time.Millisecond})
		if err != nil {
			return 0, err
		}
		c.t.Cleanup(func() { _ = one.Close() })
		c.single[i] = one
	}
	info, err := c.single[i].Table(table).Info(ctx)
	return info.Present, err
}

// connect dials all nodes, once they are up.
func (c *nodes) connect() *client.Services {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		s, err := client.DialAll(context.Background(), c.addresses, client.AllOptions{
			Options: client.Options{RetryFor: time.Minute}, Logger: slog.New(slog.DiscardHandler)})
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

// ledger is what clients of a cluster were told.
type ledger struct {
	mu        sync.Mutex
	inserted  map[string][]rollout.ID // of acknowledged groups, by prompt
	consumed  map[string]int          // rollouts by prompt, of acknowledged draws
	uncertain map[string]bool         // prompts of draws of which the acknowledgement failed
	worst     time.Duration           // of an insertion
	owner     atomic.Int64            // the node that answered watch last
	stale     []string                // answers that lack what was acknowledged before the question
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

// count returns how many groups were acknowledged.
func (b *ledger) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.inserted)
}

// slowest returns how long an insertion took at most since the last call.
func (b *ledger) slowest() (d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, b.worst = b.worst, 0
	return d
}

// insert inserts groups one after another until the context ends. Each is repeated until it is acknowledged.
func (b *ledger) insert(ctx context.Context, into *client.PartedTable, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		prompt, began := fmt.Sprintf("%s-%d", name, i), time.Now()
		for {
			ids, err := into.InsertOnce(context.WithoutCancel(ctx), prompt, pairOf(prompt))
			if err == nil {
				b.mu.Lock()
				b.inserted[prompt] = ids
				b.mu.Unlock()
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		b.mu.Lock()
		b.worst = max(b.worst, time.Since(began))
		b.mu.Unlock()
		time.Sleep(20 * time.Millisecond) // the faults are the load, and a large table takes long to read
	}
}

// watch asks a node for the table's size until the context ends: it may refuse, but what was acknowledged must be in
// its answer.
func (b *ledger) watch(ctx context.Context, c *nodes, i int, table string) {
	for ctx.Err() == nil {
		b.mu.Lock()
		least := clusterGroup * len(b.inserted)
		b.mu.Unlock()
		present, err := c.ask(ctx, i, table)
		if err == nil {
			b.owner.Store(int64(i))
		}
		if err == nil && present < least {
			b.mu.Lock()
			b.stale = append(b.stale, fmt.Sprintf("node %d answered %d, %d were acknowledged", i, present, least))
			b.mu.Unlock()
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// consume draws from a queue until the context has ended and the queue is empty, with nothing on lease: a draw whose
// answer was lost goes back when its lease ends, after a minute.
func (b *ledger) consume(ctx context.Context, from *client.PartedTable) {
	drain, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(3*time.Minute, stop) })()
	for drain.Err() == nil {
		batch, err := from.Lease(context.WithoutCancel(ctx), rollout.Request{Size: 1})
		if errors.Is(err, rollout.ErrStarved) && ctx.Err() != nil {
			if s, err := from.Statistics(context.WithoutCancel(ctx)); err == nil && len(s.Down) == 0 && s.OnLease == 0 && s.Present == 0 {
				return
			}
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

// Whatever a node suffers, what was acknowledged is there, once, nobody answers without it, and what was consumed does
// not come back. The owner's node is killed, stopped, stalled and cut off, and each pair of nodes is cut; then it is
// left to chance.
func TestAClusterSurvivesFaults(t *testing.T) {
	tests.Long(t)
	if !inNamespace(t) {
		return
	}
	network := newNetwork(t, 3)
	c := startNodes(t, 3, network)
	kinds := faultsOf(network)
	random := rand.New(rand.NewPCG(*faultSeed, 1))
	c.endure(*faults, random, func(k, owner int) (fault, int, time.Duration) {
		switch pairs := k - len(kinds); {
		case k < len(kinds):
			return kinds[k], owner, 8 * time.Second
		case pairs < 3 && network != nil:
			return pairCut, pairs, 8 * time.Second
		}
		return kinds[random.IntN(len(kinds))], random.IntN(3), time.Duration(random.IntN(12000)) * time.Millisecond
	})
}

// faultsATable is how many faults the same table suffers. A new owner reads its log, which grows meanwhile.
const faultsATable = 50

// endure has clients insert, draw and count during several faults, and compares what they were told with what is there.
// Next says what the k-th fault is, which node suffers it and for how long.
func (c *nodes) endure(times int, random *rand.Rand, next func(k, owner int) (fault, int, time.Duration)) {
	c.t.Helper()
	s := c.connect()
	var waits []time.Duration
	for from := 0; from < times; from += faultsATable {
		waits = append(waits, c.endureOn(s, from, min(from+faultsATable, times), random, next)...)
	}
	slices.Sort(waits)
	within := func(d time.Duration) int { n, _ := slices.BinarySearch(waits, d+1); return n }
	c.t.Logf("%d faults: insertions took up to 5 s in %d, up to 10 s in %d, and up to %v", len(waits),
		within(5*time.Second), within(10*time.Second), slices.Max(append(waits, 0)).Round(time.Millisecond))
	for i := range c.running {
		if text, err := os.ReadFile(c.log(i)); err != nil || strings.Contains(string(text), "panic") {
			c.t.Errorf("a call panicked on node %d: %v", i, err)
		}
	}
	if c.t.Failed() {
		c.showLogs()
	}
}

// endureOn makes the faults from one number up to another on a new table and a new queue. It returns how long an
// insertion took at most during each.
func (c *nodes) endureOn(
	s *client.Services, from, to int, random *rand.Rand, next func(k, owner int) (fault, int, time.Duration),
) (waits []time.Duration) {
	t := c.t
	t.Helper()
	lab, queue := fmt.Sprintf("lab-%d", from), fmt.Sprintf("queue-%d", from)
	for parts, w := range map[int]wire.Table{
		1: {Name: lab, Options: replay.Options{Capacity: 1 << 20}},
		3: {Name: queue, Options: replay.Options{Capacity: 1 << 20, Sampler: replay.FIFO}},
	} {
		tests.Until(t, "a table", func() bool {
			_, err := s.CreateParts(t.Context(), w, parts)
			return err == nil
		})
	}
	kept := &ledger{inserted: make(map[string][]rollout.ID)}
	c.kept = kept
	queued := &ledger{inserted: make(map[string][]rollout.ID), consumed: make(map[string]int),
		uncertain: make(map[string]bool)}
	ctx, stop := context.WithCancel(t.Context())
	var inserting, consuming sync.WaitGroup
	for i := range 2 {
		inserting.Go(func() { kept.insert(ctx, s.Table(lab), fmt.Sprint("k", i)) })
	}
	for i := range c.running {
		inserting.Go(func() { kept.watch(ctx, c, i, lab) })
	}
	inserting.Go(func() { queued.insert(ctx, s.Table(queue), "q") })
	drained, drain := context.WithCancel(t.Context())
	consuming.Go(func() { queued.consume(drained, s.Table(queue).Waiting(time.Second)) })

	resume := func(from int, after string) {
		for end := time.Now().Add(2 * time.Minute); kept.count() < from+50; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				c.showLogs()
				t.Fatalf("no 50 insertions within two minutes of %s", after)
			}
		}
	}
	resume(0, "the start")
	for k := from; k < to; k++ {
		f, i, d := next(k, int(kept.owner.Load()))
		kept.slowest()
		n := kept.count()
		f.make(c, i, d)
		resume(n, fmt.Sprintf("the end of a fault: node %d %s for %v", i, f.name, d))
		time.Sleep(time.Duration(random.Int64N(1 + int64(d)/2)))
		took := kept.slowest()
		waits = append(waits, took)
		t.Logf("%3d: node %d %s for %v: insertions took up to %v", k+1, i, f.name, d, took.Round(time.Millisecond))
		if took > 10*time.Second {
			c.showLogs()
		}
	}
	stop()
	inserting.Wait()
	drain()
	consuming.Wait()

	kept.checkKept(t, s.Table(lab))
	again := queued.checkConsumed(t)
	t.Logf("%d groups kept, %d queued; the draws of %d were acknowledged with an error", len(kept.inserted),
		len(queued.inserted), again)
	for _, name := range []string{lab, queue} {
		if err := s.Drop(t.Context(), name); err != nil {
			t.Errorf("drop %s: %v", name, err)
		}
	}
	return waits
}

// checkKept checks that a table has each group that was acknowledged, once, under the ids that were given, and no
// other.
func (b *ledger) checkKept(t *testing.T, table *client.PartedTable) {
	t.Helper()
	if len(b.stale) > 0 {
		t.Errorf("%d stale answers: %s", len(b.stale), b.stale[0])
	}
	found := make(map[rollout.ID]string)
	err := table.Scan(t.Context(), 256, func(draws []rollout.Draw) error {
		for i := range draws {
			if other, twice := found[draws[i].ID]; twice {
				t.Errorf("rollouts of groups %s and %s have id %d", other, draws[i].Rollout.PromptID, draws[i].ID)
			}
			found[draws[i].ID] = draws[i].Rollout.PromptID
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for prompt, ids := range b.inserted {
		for _, id := range ids {
			if found[id] != prompt {
				t.Errorf("group %s was acknowledged with id %d, which %q has", prompt, id, found[id])
			}
			delete(found, id)
		}
	}
	if len(found) > 0 {
		t.Errorf("%d rollouts that nobody inserted", len(found))
	}
}

// checkConsumed checks that each group was consumed once. It returns of how many groups the acknowledgement failed.
func (b *ledger) checkConsumed(t *testing.T) (again int) {
	t.Helper()
	for prompt := range b.inserted {
		n := b.consumed[prompt]
		if b.uncertain[prompt] && n <= clusterGroup {
			again++
		} else if n != clusterGroup {
			t.Errorf("%d rollouts of group %s were consumed", n, prompt)
		}
	}
	return again
}

// Before a node's disk is full insertions are refused on all nodes. One whose disk other programs fill to the last byte
// ends, the other two go on, and it comes back.
func TestAClusterWaitsForANodeWithAFullDisk(t *testing.T) {
	tests.Long(t)
	t.Setenv(runProgram, "") // the test runs itself
	tiny := disktest.Tiny(t, "200m")
	if tiny == "" {
		return
	}
	t.Setenv(runProgram, "1")
	config := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(config, []byte("disk_reserve_bytes: 8388608\nmax_message_bytes: 8388608\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startNodes(t, 3, nil, "--config", config)
	c.kill(1)
	c.arguments[1] = append(c.arguments[1], "--data", filepath.Join(tiny, "data"))
	c.start(1)
	s := c.connect()
	if _, err := s.CreateParts(t.Context(), wire.Table{Name: "lab"}, 1); err != nil {
		t.Fatal(err)
	}
	lab, next := s.Table("lab").Waiting(0), 0
	var refused error
	insert := func() bool {
		_, refused = lab.InsertOnce(t.Context(), fmt.Sprint(next), pairOf(fmt.Sprint(next)))
		if refused == nil {
			next++
		}
		return refused == nil
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				c.showLogs()
				t.Fatalf("waited for %s: %v", what, refused)
			}
		}
	}
	until("an insertion", insert)
	ballast, more := filepath.Join(tiny, "ballast"), filepath.Join(tiny, "more")
	if err := disk.Reserve(ballast, disk.Free(tiny)-12<<20); err != nil {
		t.Fatal(err)
	}
	until("a refusal", func() bool { return !insert() && errors.Is(refused, wire.ErrDiskFull) })
	if folder := filepath.Join(tiny, "data"); !strings.Contains(refused.Error(), folder) {
		t.Errorf("the refusal does not name %s: %v", folder, refused)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	until("an insertion with space on the disk", insert)

	disktest.Fill(t, ballast)
	until("the node's copies to end", func() bool {
		disktest.Fill(t, more) // what was in reserve, too
		text, err := os.ReadFile(c.log(1))
		return err == nil && strings.Contains(string(text), "copies have ended")
	})
	until("an insertion without the node", insert)
	for _, path := range []string{ballast, more} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	c.kill(1)
	c.start(1)
	until("the node to be back", func() bool {
		_, err := c.ask(t.Context(), 1, "lab")
		return err == nil || wire.AddressOf(err) != ""
	})
	until("an insertion with the node", insert)
	if n, err := lab.Len(t.Context()); err != nil || n != clusterGroup*next {
		t.Errorf("%d rollouts are there, %v; want %d", n, err, clusterGroup*next)
	}
}

func (c *nodes) showLogs() {
	for i := range c.running {
		text, _ := os.ReadFile(c.log(i))
		c.t.Logf("node %d:\n%s", i, lastLines(string(text), 40))
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
