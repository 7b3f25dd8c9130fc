package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// logger shows what nodes log where REPRISE_TEST_LOG is set.
func logger(node string) *slog.Logger {
	if os.Getenv("REPRISE_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil)).With("on", node)
}

// memoryHost is a host that keeps its tables in memory, with their journals in the cluster.
type memoryHost struct {
	mu   sync.Mutex
	open map[string]*served
	full error // of DiskFull
}

type served struct {
	*replay.Table
	journal *journal.Journal
}

func (h *memoryHost) Open(name string, _ []byte, log journal.Log) error {
	j, table, _, err := journal.OpenIn(log, journal.Options{}, func() (*replay.Table, error) {
		return replay.New(replay.Options{Capacity: 1 << 16})
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[name] = &served{table, j}
	return nil
}

func (h *memoryHost) Close(name string) {
	h.mu.Lock()
	s := h.open[name]
	delete(h.open, name)
	h.mu.Unlock()
	if s != nil {
		_ = s.journal.Close() // its error is that of a lost log
	}
}

func (h *memoryHost) Counts(name string) (c wire.Counts) {
	if s := h.get(name); s != nil {
		c.Present = s.ServiceView().Flow().Present
	}
	return c
}

func (h *memoryHost) DiskFull() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.full
}

func (h *memoryHost) get(name string) *served {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[name]
}

// trio is three nodes on this machine.
type trio struct {
	t       testing.TB
	options []Options
	nodes   []*Node // nil: down
	hosts   []*memoryHost
	ids     map[rollout.ID]int // groups by the ids that their rollouts got
}

func startTrio(t testing.TB) *trio {
	c := &trio{t: t, nodes: make([]*Node, 3), hosts: make([]*memoryHost, 3), ids: make(map[rollout.ID]int)}
	ports := nettest.FreeAddresses(t, 3)
	for i, at := range ports {
		c.options = append(c.options, Options{Node: fmt.Sprintf("n%d", i), Listen: at, Peers: ports,
			Domain: fmt.Sprintf("rack-%d", i), Data: t.TempDir(), Logger: logger(fmt.Sprintf("n%d", i))})
	}
	var all sync.WaitGroup
	for i := range c.nodes {
		all.Go(func() { c.start(i) })
	}
	all.Wait()
	t.Cleanup(func() {
		for i := range c.nodes {
			if c.nodes[i] != nil {
				c.nodes[i].leave()
			}
		}
	})
	return c
}

func (c *trio) start(i int) {
	if err := c.tryStart(i); err != nil {
		c.t.Error(err)
	}
}

func (c *trio) tryStart(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c.hosts[i] = &memoryHost{open: make(map[string]*served)}
	n, err := New(c.options[i])
	if err == nil {
		n.tables.pause = 2 * time.Second
		err = n.Start(ctx, fmt.Sprintf("grpc://n%d", i), c.hosts[i])
	}
	if err == nil {
		c.nodes[i] = n
	}
	return err
}

// kill ends a node without a word to the others.
func (c *trio) kill(i int) {
	c.nodes[i].server.Shutdown()
	c.nodes[i].leave()
	c.nodes[i] = nil
}

func (c *trio) any() *Node {
	for _, n := range c.nodes {
		if n != nil {
			return n
		}
	}
	c.t.Fatal("no node is up")
	return nil
}

// owner returns the node that serves a table, and the table. It waits for one.
func (c *trio) owner(name string) (int, *served) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if i, s := c.serving(name); s != nil {
			return i, s
		}
	}
	c.t.Fatalf("nobody serves %s", name)
	return 0, nil
}

// serving returns the node that serves a table now, and the table: nil if none does.
func (c *trio) serving(name string) (int, *served) {
	for i, n := range c.nodes {
		if n == nil || !n.Valid() {
			continue
		}
		if s := c.hosts[i].get(name); s != nil {
			return i, s
		}
	}
	return 0, nil
}

func aGroup(i int) rollout.Group {
	var g rollout.Group
	for range 2 {
		g.Rollouts = append(g.Rollouts, rollout.New(fmt.Sprint(i), []int32{1, 2}, rollout.Completion{
			Tokens: []int32{3, int32(i)}, Logprobs: []float32{-1, -1}}))
	}
	return g
}

func create(t testing.TB, n *Node, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := n.Create(ctx, name, []byte("definition"))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// insert inserts groups under their number until they are acknowledged, and returns how long the last took.
func (c *trio) insert(name string, i int) time.Duration {
	c.t.Helper()
	began := time.Now()
	for time.Since(began) < time.Minute {
		at, s := c.owner(name)
		err := c.give(s, i)
		if err == nil {
			err = s.journal.Commit(context.Background())
		}
		if err == nil && c.nodes[at].Valid() {
			return time.Since(began)
		}
		if err != nil && !errors.Is(err, journal.ErrClosed) {
			time.Sleep(20 * time.Millisecond)
		}
	}
	c.t.Fatalf("insertion %d is not acknowledged", i)
	return 0
}

// give inserts a group under its number into the table of a node, and checks that no other group got its ids.
func (c *trio) give(s *served, i int) error {
	ids, err := s.ServiceView().InsertOnce(context.Background(), fmt.Sprint(i), aGroup(i))
	for _, id := range ids {
		if before, ok := c.ids[id]; ok && before != i {
			c.t.Errorf("group %d got the id %d, which group %d had", i, id, before)
		}
		c.ids[id] = i
	}
	return err
}

// prompts returns how often each group is in a table.
func (s *served) prompts() map[string]int {
	counts := make(map[string]int)
	s.JournalView().Track() // the next cut holds everything
	for _, k := range s.JournalView().Cut().Inserted {
		counts[k.Rollout.PromptID]++
	}
	return counts
}

func TestLogsThatNoTableHasAreDeleted(t *testing.T) {
	tests.Long(t)
	c := startTrio(t)
	create(t, c.any(), "lab")
	stray := jetstream.StreamConfig{Name: tablePrefix + "stray", Subjects: []string{"stray"}}
	if _, err := c.any().directory.js.CreateStream(t.Context(), stray); err != nil { // and nothing else, as if it was interrupted
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := c.any().directory.js.Stream(t.Context(), stray.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the log is still there")
		}
	}
	c.insert("lab", 0)
}

// deaf loses one message, then refuses some because nobody leads, and then loses one answer. It loses all requests to
// delete a stream.
type deaf struct {
	jetstream.JetStream
	message, answer bool // it has been lost
	refusals        int  // to come
}

func (d *deaf) Publish(ctx context.Context, subject string, text []byte, options ...jetstream.PublishOpt) (
	*jetstream.PubAck, error) {
	if !d.message {
		d.message = true
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if d.refusals > 0 {
		d.refusals--
		return nil, &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}
	}
	ack, err := d.JetStream.Publish(ctx, subject, text, options...)
	if err == nil && !d.answer {
		d.answer = true
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return ack, err
}

func (d *deaf) DeleteStream(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// A call takes as long as requests that are lost between nodes take to be sent again, not as long as the client waits.
func TestTablesAreCreatedAndDroppedWhereRequestsAreLost(t *testing.T) {
	tests.Long(t)
	c := startTrio(t)
	whole := c.any()
	with := func(d deaf) *Node {
		d.JetStream = whole.directory.js
		lossy := &directory{js: &d, replicas: 3}
		if err := lossy.find(t.Context()); err != nil {
			t.Fatal(err)
		}
		return &Node{options: whole.options, log: whole.log, directory: lossy, tables: whole.tables,
			wake: make(chan struct{}, 1), resend: 2 * time.Second}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := with(deaf{refusals: 2}).Create(ctx, "lab", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	c.insert("lab", 0)
	logs := []string{c.placed("lab").Log}
	if err := with(deaf{message: true, answer: true, refusals: 2}).Drop(ctx, "lab"); err != nil {
		t.Error(err)
	}
	create(t, whole, "lab")
	logs = append(logs, c.placed("lab").Log)
	unheard, dropped := with(deaf{}), make(chan error, 1)
	go func() { dropped <- unheard.Drop(ctx, "lab") }()
	tests.Until(t, "the drop", func() bool { return c.placed("lab").Log != logs[1] })
	create(t, whole, "lab") // before the drop is tried again: it is not this table that it drops
	if err := <-dropped; !errors.Is(err, wire.ErrNotFound) {
		t.Error(err)
	}
	clear(c.ids) // the new table gives them again
	c.insert("lab", 1)
	for _, log := range logs {
		gone := func() bool {
			_, err := whole.directory.js.Stream(ctx, log)
			return errors.Is(err, jetstream.ErrStreamNotFound)
		}
		if !within(time.Minute, gone) {
			t.Errorf("the log %s is there still", log)
		}
	}
}

func TestACallThatTheNodesDoNotAnswerEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, tries, began := &Node{resend: resendTime}, 0, time.Now()
		lost := func(ctx context.Context) error {
			tries++
			<-ctx.Done()
			return ctx.Err()
		}
		err := n.decide(t.Context(), "lab", lost)
		if !errors.Is(err, wire.ErrInterrupted) || !strings.Contains(err.Error(), `table "lab"`) || tries != 3 {
			t.Errorf("%d tries: %v", tries, err)
		}
		if took := time.Since(began); took != decideTime {
			t.Errorf("it took %v", took)
		}
		refused := wire.Errorf(wire.NotFound, "table lab: there is none")
		if err := n.decide(t.Context(), "lab", func(context.Context) error { return refused }); !errors.Is(err, refused) {
			t.Errorf("a refusal became %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.decide(ctx, "lab", lost); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's deadline became %v", err)
		}
	})
}

func TestAllNodesLearnThatADiskIsFull(t *testing.T) {
	tests.Long(t)
	c := startTrio(t)
	for _, full := range []error{errors.New("3 bytes are free"), nil} {
		c.hosts[1].mu.Lock()
		c.hosts[1].full = full
		c.hosts[1].mu.Unlock()
		for i, n := range c.nodes {
			for end := time.Now().Add(time.Minute); (n.DiskFull() == nil) != (full == nil); time.Sleep(beatTime / 10) {
				if time.Now().After(end) {
					t.Fatalf("node %d says %v", i, n.DiskFull())
				}
			}
			err, risks := n.DiskFull(), strings.Join(n.View().Risks, "")
			if full != nil && (!errors.Is(err, wire.ErrDiskFull) || err.Error() != "node n1: "+full.Error() ||
				!strings.Contains(risks, err.Error())) || full == nil && strings.Contains(risks, "refused") {
				t.Errorf("node %d says %v, and names the risks %s", i, err, risks)
			}
		}
	}
}

func TestANodeThatHasNotJoinedSendsCallersElsewhere(t *testing.T) {
	at := nettest.FreeAddresses(t, 3)
	n, err := New(Options{Node: "n0", Listen: at[0], Peers: at, Domain: "rack-0", Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Locate(t.Context(), "lab"); !errors.Is(err, wire.ErrElsewhere) {
		t.Errorf("asked where a table is: %v", err)
	}
	if err := n.Create(t.Context(), "lab", nil); err == nil {
		t.Error("a table was created")
	}
}

func TestATableSurvivesTheLossOfEachNodeInTurn(t *testing.T) {
	tests.Long(t)
	c := startTrio(t)
	create(t, c.any(), "lab")
	next := 0
	insert := func(n int) (worst time.Duration) {
		for range n {
			worst = max(worst, c.insert("lab", next))
			next++
		}
		return worst
	}
	insert(20)
	var given []rollout.Rewards // late ones, acknowledged
	for i := range 3 {
		at, s := c.owner("lab")
		r := rollout.Rewards{RequestID: fmt.Sprint("judge-", i), By: "judge", IDs: []rollout.ID{rollout.ID(2*i + 1)},
			Values: []float32{float32(i+1) / 4}}
		if _, err := s.Reward(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := s.journal.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		given = append(given, r)
		if err := c.give(s, next+1); err != nil { // it is not committed, and comes again after the next
			t.Fatal(err)
		}
		c.kill(at)
		t.Logf("the owner was killed: insertions took up to %v", insert(20).Round(time.Millisecond))
		_, s = c.owner("lab")
		for _, r := range given { // the next owner has each once, and answers a repetition as before
			done, err := s.Reward(t.Context(), r)
			held, _ := s.Inspect().Get(r.IDs[0])
			if labels := s.Inspect().Labels(r.IDs[0]); err != nil || done.Rewarded != 1 || len(labels) != 1 ||
				held.Rollout.Reward != r.Values[0] {
				t.Errorf("after the reward %+v the next owner has %+v, labels %+v, %v", r, held.Rollout, labels, err)
			}
		}
		c.start(at)
	}
	_, s := c.owner("lab")
	counts := s.prompts()
	for i := range next {
		if counts[fmt.Sprint(i)] != 2 {
			t.Errorf("group %d has %d rollouts", i, counts[fmt.Sprint(i)])
		}
	}
	if len(counts) != next {
		t.Errorf("%d groups of %d: %v", len(counts), next, slices.Sorted(maps.Keys(counts)))
	}
}

// A node whose folder is lost is refused under its name before its server could vote; one of another name takes its
// place, and then each of the others may be lost.
func TestANodeThatLostItsFolderIsReplaced(t *testing.T) {
	tests.Long(t)
	c := startTrio(t)
	create(t, c.any(), "lab")
	for i := range 20 {
		c.insert("lab", i)
	}
	lost, _ := c.owner("lab")
	c.kill(lost)
	empty := func(want string) {
		t.Helper()
		o := c.options[lost]
		o.Data = t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		n, err := New(o)
		if err == nil {
			err = n.Start(ctx, "grpc://empty", c.hosts[lost])
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("an empty folder under the name of a lost node: %v; want %s", err, want)
		}
		if _, err := os.Stat(filepath.Join(o.Data, copiesFolder, "jetstream")); err == nil {
			t.Fatal("a server that votes has run there")
		}
	}
	empty("cluster.replaces: " + c.options[lost].Node)
	others := []int{(lost + 1) % 3, (lost + 2) % 3}
	c.kill(others[0])
	c.kill(others[1])
	empty("too few of the nodes")
	var back sync.WaitGroup
	for _, i := range others {
		back.Go(func() { c.start(i) })
	}
	back.Wait()
	c.options[lost].Replaces, c.options[lost].Node = c.options[lost].Node, "n3"
	c.options[lost].Data = t.TempDir()
	c.start(lost)
	if t.Failed() {
		return
	}
	for at := range 3 { // each of them has all copies
		c.insert("lab", 20+at)
		c.awaitWhole()
		c.kill(at)
		c.insert("lab", 23+at)
		c.start(at)
	}
	_, s := c.owner("lab")
	if counts := s.prompts(); len(counts) != 26 {
		t.Errorf("%d groups of 26", len(counts))
	}
}

// whole reports whether all three nodes have copies of all streams, and they are current.
func (c *trio) whole() bool {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	names := c.any().directory.js.StreamNames(ctx)
	for name := range names.Name() {
		stream, err := c.any().directory.js.Stream(ctx, name)
		if err != nil {
			return false
		}
		info := stream.CachedInfo().Cluster
		if info == nil || info.Leader == "" || len(info.Replicas) != 2 ||
			slices.ContainsFunc(info.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline }) {
			return false
		}
	}
	return names.Err() == nil
}
