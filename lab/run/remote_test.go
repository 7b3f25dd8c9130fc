package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// tableModes are those of modes that differ in what is asked of a table: the short tests, which run under the race
// detector, take a few of them.
func tableModes() []string {
	if testing.Short() {
		return []string{"queue", "groups by priority"}
	}
	return []string{
		"default", "queue", "chunks of tokens", "slow rewards", "turns", "positive", "a line for a full queue",
		"four trainers", "priorities, mixed",
		"groups by priority", "gradient norms", "ESS held", "prompts replayed", "critic's stored values",
		"filled at the same time", "off-policy, reference swapped", "fresh by version", "old rollouts of prompts",
	}
}

// A run whose table is a service's writes what it would have written with a table of its own, and so it does when it is
// stopped or dies on the way and goes on.
func TestRunsOnAServiceWriteTheBytesOfRunsOnTheirOwnTable(t *testing.T) {
	tests.LongShared(t)
	l := newLab(t)
	for _, name := range tableModes() {
		assignments, known := modes()[name]
		if !known {
			t.Fatalf("there is no mode %q", name)
		}
		t.Run(name, func(t *testing.T) {
			table := strings.NewReplacer(" ", "-", ",", "", "'", "", "+", "p").Replace(name)
			c := small(t, assignments...)
			own := filepath.Join(t.TempDir(), "own")
			train(t, c, own)
			remote := filepath.Join(t.TempDir(), "remote")
			train(t, l.elsewhere(c, table), remote)
			sameRuns(t, remote, own)

			stopped := filepath.Join(t.TempDir(), "stopped")
			interrupt(t, l.elsewhere(c, table+".stopped"), stopped, 6)
			crashes := []string{"default", "queue", "prompts replayed", "critic's stored values", "old rollouts of prompts"}
			if !testing.Short() && slices.Contains(crashes, name) {
				die(t, stopped, 17, func(ctx context.Context, hooks Hooks) (*results.Summary, error) {
					return Resume(ctx, c, stopped, hooks)
				})
			}
			resume(t, c, stopped)
			sameRuns(t, stopped, own)
		})
	}
}

func TestARunOutlivesARestartOfItsService(t *testing.T) {
	tests.LongShared(t)
	for name, assignments := range map[string][]string{
		"default": nil, "queue": modes()["queue"], "priorities, mixed": modes()["priorities, mixed"],
	} {
		if testing.Short() && name != "queue" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			c := small(t, assignments...)
			own, remote := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "remote")
			train(t, c, own)
			var restarts []chan error
			sum, err := Train(context.Background(), l.elsewhere(c, "lab"), begin(t, c), remote,
				Hooks{OnUpdate: func(u results.Update) {
					if u.Update == 5 || u.Update == 11 {
						l.halt()
						opened := make(chan error, 1)
						restarts = append(restarts, opened)
						go func() { opened <- l.open() }() // while the run is trying
					}
				}})
			for _, opened := range restarts {
				if err := <-opened; err != nil {
					t.Error(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if sum.Ended != "budget" || len(restarts) != 2 {
				t.Errorf("ended by %s after %d restarts", sum.Ended, len(restarts))
			}
			if name == "queue" { // other samplers draw by where rollouts stand, which a journal does not keep
				sameRuns(t, remote, own)
			}
		})
	}
}

func TestARunOnATableInPartsIsTheSameAgainAndWhenItIsResumed(t *testing.T) {
	tests.Long(t)
	l, m := newLab(t), newLab(t)
	c := small(t, "replay.sampler=prioritized", "replay.retention=fifo")
	inParts := func(table string) Config {
		return c.WithBuffer(Remote{Address: l.address(table) + "," + m.address(table)})
	}
	var folders []string
	for i := range 2 {
		folders = append(folders, filepath.Join(t.TempDir(), "whole"))
		train(t, inParts(fmt.Sprint("whole", i)), folders[i])
	}
	sameRuns(t, folders[0], folders[1])
	stopped := filepath.Join(t.TempDir(), "stopped")
	interrupt(t, inParts("stopped"), stopped, 6)
	resume(t, c, stopped)
	sameRuns(t, stopped, folders[0])
	for _, part := range []*lab{l, m} {
		if stats, err := part.table("whole0").Statistics(t.Context()); err != nil || stats.Inserted == 0 ||
			stats.Acknowledged == 0 {
			t.Errorf("a part had %d rollouts inserted and %d drawn, %v", stats.Inserted, stats.Acknowledged, err)
		}
	}
}

// The service's part of a checkpoint and the run's do not come into being at one moment: whichever whole checkpoint a
// crash between them leaves, its table is there.
func TestTheTableOfTheCheckpointBeforeIsKeptWhileTheNextIsMade(t *testing.T) {
	l, c, ctx := newLab(t), small(t), context.Background()
	r, err := openRemote(ctx, Remote{Address: l.address("lab"), Run: "r"}, c.replayOptions(100), "dir", true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	first, second, third := t.TempDir(), t.TempDir(), t.TempDir()
	at := func(v rollout.Version) {
		t.Helper()
		if stats, err := r.table.Statistics(ctx); err != nil || stats.Version != int32(v) || r.version != v {
			t.Fatalf("the table is at version %d, the run at %d, want %d: %v", stats.Version, r.version, v, err)
		}
	}
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	try(r.save(ctx, first))
	try(r.Advance(ctx, 1))
	try(r.save(ctx, second)) // and the run dies before its own part is in place
	try(r.restore(ctx, first))
	at(0)
	try(r.Advance(ctx, 2))
	try(r.save(ctx, third)) // in the place of the second
	try(r.restore(ctx, first))
	at(0)
	try(r.restore(ctx, third))
	at(2)
	if err := r.restore(ctx, second); err == nil || !strings.Contains(err.Error(), "has saved") {
		t.Errorf("a checkpoint that was overwritten came back: %v", err)
	}
}

// Connections that break change nothing: insertions, draws and reports are made once.
func TestARunOverConnectionsThatBreakWritesTheSameBytes(t *testing.T) {
	tests.LongShared(t)
	for name, assignments := range map[string][]string{
		"queue": modes()["queue"], "ESS held": append(modes()["ESS held"], "budget.updates=40"),
		"groups by priority": modes()["groups by priority"],
	} {
		if testing.Short() && name != "groups by priority" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.halt()
			var connections atomic.Uint64
			r := rollout.Stream(5, name, 0)
			l.cuts = func() int64 { connections.Add(1); return 20_000 + r.Int64N(60_000) }
			l.start()
			c := small(t, assignments...)
			own, remote := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "remote")
			train(t, c, own)
			train(t, l.elsewhere(c, "lab"), remote)
			sameRuns(t, remote, own)
			if n := connections.Load(); n < 4 {
				t.Errorf("the run took %d connections: the test tested little", n)
			}
		})
	}
}

func TestARunWithoutItsServiceSaysHowToContinue(t *testing.T) {
	tests.LongShared(t)
	l := newLab(t)
	c := small(t)
	own, dir := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "remote")
	train(t, c, own)
	remote := c.WithBuffer(Remote{Address: l.address("lab"), Options: client.Options{RetryFor: 100 * time.Millisecond}})
	_, err := Train(context.Background(), remote, begin(t, c), dir, Hooks{OnUpdate: func(u results.Update) {
		if u.Update == 9 {
			l.halt()
		}
	}})
	if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "reprise train --resume --out "+dir) ||
		!strings.Contains(err.Error(), l.socket) {
		t.Fatalf("without its service the run said: %v", err)
	}
	if _, err := Resume(context.Background(), c, dir, Hooks{}); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("resumed without its service: %v", err)
	}
	l.start()
	resume(t, c, dir)
	sameRuns(t, dir, own)
}

func TestARunDoesNotBeginOnATableThatIsInUse(t *testing.T) {
	tests.Long(t)
	l := newLab(t)
	c := small(t)
	first := filepath.Join(t.TempDir(), "first")
	train(t, l.elsewhere(c, "lab"), first)
	second := filepath.Join(t.TempDir(), "second")
	if err := l.elsewhere(c, "lab").ReachBuffer(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("before the run: %v", err)
	}
	if err := l.elsewhere(c, "other").ReachBuffer(context.Background()); err != nil {
		t.Errorf("a table that is not there yet: %v", err)
	}
	_, err := Train(context.Background(), l.elsewhere(c, "lab"), begin(t, c), second, Hooks{})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the run: %v", err)
	}
	if _, err := os.Stat(second); err == nil {
		t.Error("the run that did not begin left a folder")
	}
	other := small(t, "replay.capacity=64")
	_, err = Train(context.Background(), l.elsewhere(other, "lab"), begin(t, other), second, Hooks{})
	if !errors.Is(err, wire.ErrExists) || !strings.Contains(err.Error(), "capacity") ||
		!strings.Contains(err.Error(), "--force") {
		t.Errorf("a run with another table: %v", err)
	}
	forced := c.WithBuffer(Remote{Address: l.address("lab"), Replace: true})
	if err := forced.ReachBuffer(context.Background()); err != nil {
		t.Errorf("by force, before the run: %v", err)
	}
	train(t, forced, second)
	sameRuns(t, second, first)
}

func TestARunRefusesAServiceWithoutCheckpoints(t *testing.T) {
	l := newLab(t)
	l.halt()
	l.data = ""
	l.start()
	c := l.elsewhere(small(t), "lab")
	dir := filepath.Join(t.TempDir(), "run")
	early := c.ReachBuffer(context.Background())
	_, late := Train(context.Background(), c, begin(t, c), dir, Hooks{})
	for _, err := range []error{early, late} {
		if err == nil || !strings.Contains(err.Error(), "keeps nothing") || !strings.Contains(err.Error(), "--data") {
			t.Errorf("%v", err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the run that did not begin left a folder")
	}
}

func TestARunNoticesThatAnotherProgramUsesItsTable(t *testing.T) {
	tests.Long(t)
	for name, meddle := range map[string]func(*testing.T, *client.Table){
		"inserts": func(t *testing.T, table *client.Table) {
			if _, err := table.Insert(context.Background(), rollout.Group{Rollouts: []*rollout.Rollout{{
				Tokens: []int32{1, 2}, Mask: []uint8{0, 1}, Logprobs: []float32{0, -1},
				Versions: []rollout.Version{-1, 0}, Temperature: 1, TopP: 1,
			}}}); err != nil {
				t.Fatal(err)
			}
		},
		"advances": func(t *testing.T, table *client.Table) {
			if err := table.Advance(context.Background(), 1000); err != nil {
				t.Fatal(err)
			}
		},
	} {
		l := newLab(t)
		c := small(t)
		dir := filepath.Join(t.TempDir(), "run")
		table := l.table("lab")
		_, err := Train(context.Background(), l.elsewhere(c, "lab"), begin(t, c), dir,
			Hooks{OnUpdate: func(u results.Update) {
				if u.Update == 8 {
					meddle(t, table)
				}
			}})
		if err == nil || !strings.Contains(err.Error(), "another program uses it too") ||
			!strings.Contains(err.Error(), "--resume") {
			t.Errorf("another program %s: the run said %v", name, err)
			continue
		}
		resume(t, c, dir) // from the checkpoint, in which nobody meddled
		own := filepath.Join(t.TempDir(), "own")
		train(t, c, own)
		sameRuns(t, dir, own)
	}
}

func TestAResumedRunFindsItsServiceAtANewAddress(t *testing.T) {
	l := newLab(t)
	c := small(t)
	dir := filepath.Join(t.TempDir(), "run")
	interrupt(t, l.elsewhere(c, "lab"), dir, 6)
	l.halt()
	l.socket += "2"
	l.start()
	if _, err := Resume(context.Background(), l.elsewhere(c, "lab"), dir, Hooks{}); err != nil {
		t.Fatal(err)
	}
	read, err := readRemote(dir)
	if err != nil || read.Address != l.address("lab") || !strings.HasPrefix(read.Run, "run-run-") {
		t.Errorf("the folder says %+v, %v", read, err)
	}
	own := filepath.Join(t.TempDir(), "own")
	interrupt(t, c, own, 6)
	if _, err := Resume(context.Background(), l.elsewhere(c, "lab"), own, Hooks{}); err == nil ||
		!strings.Contains(err.Error(), "leave it out") {
		t.Errorf("a run with a table of its own went on at a service: %v", err)
	}
}

func TestAComparisonHasNoSharedTable(t *testing.T) {
	c := small(t).WithBuffer(Remote{Address: "grpc://127.0.0.1/lab"})
	if err := (Comparison{Config: c, Seeds: 1}).Validate(); err == nil || !strings.Contains(err.Error(), "--compare") {
		t.Errorf("%v", err)
	}
}

func TestCheckpointsAtAServiceAreNamedAfterTheRun(t *testing.T) {
	seen := make(map[string]bool)
	for range 100 {
		r := Remote{}.withRunName("/tmp/My run: 2 (ünicode)!")
		if err := wire.CheckName(r.Run + "-0"); err != nil || !strings.HasPrefix(r.Run, "run-My-run--2---nicode") ||
			seen[r.Run] {
			t.Fatalf("%q: %v", r.Run, err)
		}
		seen[r.Run] = true
		if r.withRunName("/elsewhere") != r {
			t.Fatal("a run that has a name was given another")
		}
	}
	if err := wire.CheckName(Remote{}.withRunName(strings.Repeat("long", 100)).Run + "-0"); err != nil {
		t.Error(err)
	}
}

func TestARunOnAServiceLeavesNoGoroutine(t *testing.T) {
	tests.LongShared(t)
	l := newLab(t)
	c := small(t, "warmup.steps=0")
	train(t, c, filepath.Join(t.TempDir(), "warm")) // what the backend keeps running
	before := runtime.NumGoroutine()
	train(t, l.elsewhere(c, "lab"), filepath.Join(t.TempDir(), "run"))
	l.halt()
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
}

// lab is a service in this process that can be stopped and started again, as a new one over the same data.
type lab struct {
	t      testing.TB
	data   string
	socket string
	cuts   func() int64 // bytes after which a connection is cut; nil: none is
	stop   func()       // nil: it is stopped
}

func newLab(t testing.TB) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab") // short: the path of a socket may not be long
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, data: filepath.Join(dir, "data"), socket: filepath.Join(dir, "s")}
	t.Cleanup(func() { l.halt(); os.RemoveAll(dir) })
	l.start()
	return l
}

func (l *lab) start() {
	l.t.Helper()
	if err := l.open(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) open() error {
	s, err := service.New(service.Options{Data: l.data, Sync: journal.Off, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", l.socket)
	if err != nil {
		return err
	}
	if l.cuts != nil {
		listener = cutting{listener, l.cuts}
	}
	g := grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(g)
	done := make(chan struct{})
	go func() { defer close(done); g.Serve(listener) }()
	l.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if _, err := s.Stop(ctx); err != nil {
			l.t.Errorf("stop the service: %v", err)
		}
		g.Stop()
		<-done
	})
	return nil
}

// cutting is a listener whose connections break after some bytes.
type cutting struct {
	net.Listener
	after func() int64
}

func (c cutting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b := &breaking{Conn: conn}
	b.left.Store(c.after())
	return b, nil
}

type breaking struct {
	net.Conn
	left atomic.Int64 // bytes, in both directions
}

func (b *breaking) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	return n, errors.Join(err, b.passed(n))
}

func (b *breaking) Write(p []byte) (int, error) {
	if err := b.passed(len(p)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}

func (b *breaking) passed(n int) error {
	if b.left.Add(-int64(n)) < 0 {
		b.Close()
		return net.ErrClosed
	}
	return nil
}

func (l *lab) halt() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

// address is that of a table.
func (l *lab) address(table string) string { return "grpc+unix://" + l.socket + "/" + table }

// table connects to a table until the test ends.
func (l *lab) table(name string) *client.Table {
	l.t.Helper()
	c, err := client.Dial(context.Background(), "grpc+unix://"+l.socket, client.Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	return c.Table(name)
}

// elsewhere returns the configuration with its table in the lab.
func (l *lab) elsewhere(c Config, table string) Config {
	return c.WithBuffer(Remote{Address: l.address(table)})
}
