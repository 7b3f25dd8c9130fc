package service

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// faulty is a clock and a policy, which panic while they are broken: the clock where a table reads it under its locks.
type faulty struct{ clock, policy atomic.Bool }

func (f *faulty) now() time.Time {
	if f.clock.Load() && strings.Contains(string(debug.Stack()), ".expire(") {
		panic("the clock is broken")
	}
	return time.Now()
}

func (f *faulty) Authorize(context.Context, string, wire.Right) error {
	if f.policy.Load() {
		panic("the policy is broken")
	}
	return nil
}

func wantFault(t *testing.T, what string, err error) {
	t.Helper()
	if wire.CodeOf(err) != wire.Failed || !strings.Contains(err.Error(), "a fault in the service ended this call") {
		t.Errorf("%s: %v", what, err)
	}
}

// A panic under a table's locks ends the call. The table, the other calls and the stop go on.
func TestAttackAPanicEndsTheCallAndNotTheProcess(t *testing.T) {
	var f faulty
	v := serve(t, Options{Clock: f.now, Access: &f, Tables: []wire.Table{queueOf(16)}})
	v.fill("q", alone(4, 0)...)
	x := v.exchanger(v.client, "q")
	if _, err := x.sample(wire.SampleRequest{Size: 1}); err != nil { // on lease, so that the table reads the clock
		t.Fatal(err)
	}
	for _, broken := range []*atomic.Bool{&f.clock, &f.policy} {
		broken.Store(true)
		_, err := v.insert("q", wire.InsertRequest{}, alone(1, 0)...)
		wantFault(t, "DoPut", err)
		_, err = v.get(wire.SampleRequest{Table: "q", Size: 1})
		wantFault(t, "DoGet", err)
		_, err = try[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "q", Version: 1})
		wantFault(t, "DoAction advance", err)
		_, err = try[wire.TableInfo](v, wire.Rewind, wire.VersionRequest{Table: "q"})
		wantFault(t, "DoAction rewind", err)
		broken.Store(false)
	}
	f.clock.Store(true)
	_, err := v.exchanger(v.client, "q").sample(wire.SampleRequest{Size: 1, Prefetch: count(2)})
	wantFault(t, "DoExchange", err)
	f.clock.Store(false)
	if n := v.service.Observe().Panics; n < 9 {
		t.Errorf("%d panics counted, want at least 9", n)
	}
	v.fill("q", alone(2, 0)...)
	if b, err := v.get(wire.SampleRequest{Table: "q", Size: 4}); err != nil || len(b.draws) != 4 {
		t.Errorf("after it: %v", err)
	}
	if sum := v.stop(); sum.Left != 0 || sum.Released == 0 {
		t.Errorf("after it: %+v", sum)
	}
}

// An update looks for each rollout in each of 65,536 shards, which takes a minute for as many as this.
func TestAttackAStopCutsOffWhateverIsRunning(t *testing.T) {
	tests.LongShared(t)
	w := wire.Table{Name: "t", Options: replay.Options{Sampler: "prioritized", Shards: 65536, Capacity: 65536}}
	gone := make([]uint64, 400_000)
	for i := range gone {
		gone[i] = 1
	}
	draws := make([]wire.DrawFacts, len(gone))
	for i := range draws {
		draws[i].ID = 1
	}
	for _, c := range []struct {
		kind string
		body any
	}{
		{wire.UpdatePriorities, wire.PriorityUpdate{Table: "t", IDs: gone, Priorities: make([]float64, len(gone))}},
		{wire.ReportDraws, wire.DrawReport{Table: "t", Draws: draws}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			v := serve(t, Options{MemoryBytes: 8 << 30, Tables: []wire.Table{w}})
			if err := v.service.tables["t"].rollouts.Advance(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			v.fill("t", alone(1, 1)...)
			do[wire.TableInfo](v, wire.Rewind, wire.VersionRequest{Table: "t"}) // the rollout leaves
			answered := make(chan error, 1)
			go func() {
				_, err := try[wire.TableInfo](v, c.kind, c.body)
				answered <- err
			}()
			for v.service.requests.inFlight() == 0 {
				runtime.Gosched()
			}
			v.ended = true
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			sum, err := v.service.Stop(ended)
			if sum.Left != 1 || !errors.Is(err, context.Canceled) {
				t.Errorf("%+v, %v", sum, err)
			}
			if err := <-answered; wire.CodeOf(err) != wire.Interrupted {
				t.Errorf("the call got %v", err)
			}
			v.grpc.GracefulStop()
		})
	}
}

func TestACancelledUpdateCountsNothing(t *testing.T) {
	table, err := replay.New(replay.Options{Sampler: "prioritized", Shards: 4, Capacity: 16})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Insert(t.Context(), alone(4, 0)...); err != nil {
		t.Fatal(err)
	}
	ctx := &endsAfter{Context: t.Context(), looks: 2}
	f := rollout.Feedback{ID: 4, Tokens: 10, RatioSum: 10, RatioSquares: 10, GradNorm: rollout.Measured(2)}
	if err := table.Report(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled report: %v", err)
	}
	if e := table.Inspect().ESSByAge(); len(e) > 0 {
		t.Errorf("a cancelled report counted %v", e)
	}
}

// endsAfter is a context that has ended after a number of looks at it.
type endsAfter struct {
	context.Context
	looks int
}

func (e *endsAfter) Err() error {
	if e.looks--; e.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestAttackACheckpointEndsWithItsCall(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir(), Tables: []wire.Table{queueOf(16)}})
	v.fill("q", alone(4, 0)...)
	q := v.service.tables["q"]
	save := &wire.CheckpointRequest{Table: "q", Name: "c"}
	if _, err := v.service.checkpoint(t.Context(), q, save); err != nil {
		t.Fatal(err)
	}
	for _, run := range []func(context.Context, *table, *wire.CheckpointRequest) (any, error){
		v.service.checkpoint, v.service.restore,
	} {
		if _, err := run(&endsAfter{t.Context(), 0}, q, save); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled call: %v", err)
		}
	}
	if _, err := v.service.restore(t.Context(), q, save); err != nil {
		t.Errorf("the checkpoint before: %v", err)
	}
}

// A panic in the journal of one table ends that table's insertions, and is named; other tables go on.
func TestAPanicInAJournalStopsItsTableAlone(t *testing.T) {
	var armed atomic.Bool
	files := &disktest.Simulated{OnSync: func(path string) {
		if armed.Load() && strings.Contains(path, "bad") {
			panic("a defect")
		}
	}}
	v := serve(t, Options{Data: t.TempDir(), Disk: files, Tables: []wire.Table{{Name: "bad"}, {Name: "good"}}})
	v.fill("bad", alone(1, 0)...)
	v.fill("good", alone(1, 0)...)
	armed.Store(true)
	for range 2 {
		_, err := v.insert("bad", wire.InsertRequest{}, alone(1, 0)...)
		if wire.CodeOf(err) != wire.Failed || !strings.Contains(err.Error(), "bad.journal") ||
			!strings.Contains(err.Error(), "a fault in the program") {
			t.Errorf("an insertion into the table whose journal panicked: %v", err)
		}
	}
	v.fill("good", alone(1, 0)...)
	o := v.service.Observe()
	if o.Err == nil || !strings.Contains(o.Err.Error(), `table "bad": journal: `) || o.Panics != 0 {
		t.Errorf("the service says %v, and %d panics of calls", o.Err, o.Panics)
	}
	for _, table := range o.Tables {
		if stopped := table.Journal.Err != nil; stopped != (table.Name == "bad") {
			t.Errorf("table %s: its journal stopped: %v", table.Name, table.Journal.Err)
		}
	}
	v.ended = true
	if _, err := v.service.Stop(v.ctx); err == nil || strings.Contains(err.Error(), "good.journal") {
		t.Errorf("the stop: %v: want the error of the journal of bad", err)
	}
	v.grpc.Stop()
}
