package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

func TestTablesAreThereAgainAfterARestart(t *testing.T) {
	for _, sync := range []journal.Sync{journal.Always, journal.Interval, journal.Off} {
		t.Run(string(sync), func(t *testing.T) {
			data := t.TempDir()
			v := serve(t, Options{Data: data, Sync: sync})
			v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: "prioritized"},
				Gate: &wire.Gate{RolloutsPerUpdate: 16}, Prompts: &prompts.Options{}})
			v.create(wire.Table{Name: "q.2", Options: replay.Options{Sampler: "fifo", Unit: "step"}})
			v.fill("q.2", alone(3, 0)...)
			first, err := v.insert("a", wire.InsertRequest{BatchID: "one"}, alone(8, 0)...)
			if err != nil {
				t.Fatal(err)
			}
			do[any](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 1})
			do[any](v, wire.PromptsReport, wire.PromptResults{Table: "a",
				Results: []wire.PromptResult{{Prompt: wire.Prompt{ID: "half"}, Correct: 2, Total: 4}}})
			if _, err := v.get(wire.SampleRequest{Table: "a", Size: 4}); err != nil {
				t.Fatal(err)
			}
			if _, err := v.get(wire.SampleRequest{Table: "q.2", Size: 2}); err != nil {
				t.Fatal(err)
			}
			before := v.stats("a")
			sum := v.stop()
			if sum.Tables != 2 || sum.Durable != 2 || sum.Rollouts != 9 ||
				!strings.Contains(sum.String(), "2 tables with 9 rollouts") {
				t.Errorf("summary %+v: %s", sum, sum)
			}
			w := serve(t, Options{Data: data, Sync: sync, Tables: []wire.Table{{Name: "q.2",
				Options: replay.Options{Sampler: "fifo", Unit: "step"}}}})
			after := w.stats("a")
			if after.Present != 8 || after.Version != 1 || after.Acknowledged != 4 ||
				after.Inserted != before.Inserted {
				t.Errorf("after the restart %+v", after)
			}
			if after.Gate.Started != 8 || after.Gate.Allowed != 32 || after.Prompts.Held != 1 {
				t.Errorf("gate %+v, prompts %+v", after.Gate, after.Prompts)
			}
			again, err := w.insert("a", wire.InsertRequest{BatchID: "one"}, alone(8, 0)...)
			if err != nil || !slices.Equal(again.IDs, first.IDs) {
				t.Errorf("a repeat after the restart: %v, %v", again.IDs, err)
			}
			b, err := w.get(wire.SampleRequest{Table: "q.2", Size: 1})
			if err != nil || b.draws[0].ID != 3 {
				t.Errorf("the queue gives %v, %v; want rollout 3", b.draws, err)
			}
		})
	}
}

func TestATableWithAnotherDefinitionIsNotOpenedSilently(t *testing.T) {
	data := t.TempDir()
	v := serve(t, Options{Data: data, Tables: []wire.Table{{Name: "a"}}})
	v.stop()
	_, err := New(Options{Data: data, Logger: quiet(),
		Tables: []wire.Table{{Name: "a", Options: replay.Options{Capacity: 8}}}})
	checkRefusal(t, err, wire.Exists, "capacity is 8, the table's is 4096")
	if err := os.Rename(filepath.Join(data, "tables", "a.journal"),
		filepath.Join(data, "tables", "b.journal")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Data: data, Logger: quiet()}); err == nil || !strings.Contains(err.Error(), `table "a"`) {
		t.Errorf("a journal under another name: %v", err)
	}
}

func TestADroppedTableStaysGone(t *testing.T) {
	data := t.TempDir()
	v := serve(t, Options{Data: data})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(2, 0)...)
	do[any](v, wire.DropTable, wire.TableRequest{Table: "a"})
	v.stop()
	w := serve(t, Options{Data: data})
	if o := w.service.Observe(); len(o.Tables) != 0 {
		t.Errorf("after a restart there are %d tables", len(o.Tables))
	}
}

// crashed returns a service that finds what would be on disk if the power were lost now.
func (v *served) crashed() *served {
	v.t.Helper()
	data := v.t.TempDir()
	if err := os.CopyFS(data, os.DirFS(v.service.options.Data)); err != nil {
		v.t.Fatal(err)
	}
	return serve(v.t, Options{Data: data})
}

// What a queue gave out is acknowledged by a request that finds nothing more, too, and its answer says so.
func TestWhatAStarvedRequestAcknowledgesStaysConsumedAfterACrash(t *testing.T) {
	for name, req := range map[string]wire.SampleRequest{
		"implied":  {Size: 2, Prefetch: count(0), TimeoutMS: ms(0)},
		"by name":  {Size: 2, Prefetch: count(0), TimeoutMS: ms(0), Acknowledge: []uint64{1}},
		"prefetch": {Size: 2, Prefetch: count(1), TimeoutMS: ms(0)},
	} {
		t.Run(name, func(t *testing.T) {
			v := serve(t, Options{Data: t.TempDir(), Interval: time.Hour})
			v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo"}})
			v.fill("q", alone(3, 0)...)
			x := v.exchanger(v.client, "q")
			v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0)})
			if _, err := x.sample(req); !errors.Is(err, rollout.ErrStarved) {
				t.Fatalf("asking for 2 of the 1 left: %v", err)
			}
			if s := v.crashed().stats("q"); s.Present != 1 || s.Acknowledged != 2 {
				t.Errorf("after a crash %d are present and %d acknowledged, want 1 and 2", s.Present, s.Acknowledged)
			}
		})
	}
}

// A queue's batch by request id that was acknowledged before a crash is not answered with other rollouts after it, and
// one that was not is delivered again, with its name.
func TestAttackARequestOfAQueueThatIsRepeatedAfterACrashGetsNoOtherRollouts(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir(), Interval: time.Hour})
	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: "fifo"}})
	v.fill("q", alone(6, 0)...)
	x := v.exchanger(v.client, "q")
	first := wire.SampleRequest{Size: 2, Prefetch: count(0), RequestID: "first"}
	b := v.mustSample(x, first)
	if _, err := x.sample(wire.SampleRequest{Acknowledge: []uint64{b.Batch}}); err != nil {
		t.Fatal(err)
	}
	if again := v.mustSample(v.exchanger(v.client, "q"), first); again.Batch != b.Batch || !again.Repeated ||
		again.draws[0].ID != b.draws[0].ID {
		t.Errorf("the repeat is %+v, want batch %d and its name", again.BatchInfo, b.Batch)
	}
	second := wire.SampleRequest{Size: 2, Prefetch: count(0), RequestID: "second"}
	lost := v.mustSample(x, second)
	after := v.crashed()
	y := after.exchanger(after.client, "q")
	if _, err := y.sample(first); !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("the acknowledged request got %v", err)
	}
	if again := after.mustSample(y, second); again.Repeated || again.draws[0].ID != lost.draws[0].ID ||
		!again.draws[0].Redelivered {
		t.Errorf("what was not acknowledged came as %+v, %+v", again.BatchInfo, again.draws[0])
	}
}

// What a draw, an export or a checkpoint shows is on disk, though its insertion was not answered yet: or a crash would
// undo the insertion, and its repeat would bring the same rollouts under other ids.
func TestAttackWhatIsShownIsThereAfterACrash(t *testing.T) {
	show := map[string]func(v *served) error{
		"a leased batch": func(v *served) error {
			v.mustSample(v.exchanger(v.client, "q"), wire.SampleRequest{Size: 2, Prefetch: count(0)})
			return nil
		},
		"a prefetched batch": func(v *served) error {
			v.mustSample(v.exchanger(v.client, "q"), wire.SampleRequest{Size: 2})
			return nil
		},
		"a batch used at draw": func(v *served) error {
			_, err := v.get(wire.SampleRequest{Table: "q", Size: 2, UseAtDraw: true, RequestID: "r"})
			return err
		},
		"an export": func(v *served) error {
			_, err := v.get(wire.SampleRequest{Table: "q", Export: true})
			return err
		},
		"a checkpoint": func(v *served) error {
			_, err := try[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "q", Name: "one"})
			return err
		},
	}
	for what, show := range show {
		for _, sampler := range []replay.Sampler{replay.FIFO, replay.Uniform} {
			t.Run(fmt.Sprintf("%s, %s", what, sampler), func(t *testing.T) {
				v := serve(t, Options{Data: t.TempDir(), Interval: time.Hour})
				v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: sampler}})
				q, err := v.service.table("q")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := q.rollouts.ServiceView().InsertOnce(t.Context(), "unanswered", alone(2, 0)...); err != nil {
					t.Fatal(err)
				}
				q.lines.rolloutsChanged()
				if err := show(v); err != nil {
					t.Fatal(err)
				}
				after := v.crashed()
				if s := after.stats("q"); s.Inserted != 2 {
					t.Errorf("after a crash %d of the 2 were inserted", s.Inserted)
				}
				again, err := after.insert("q", wire.InsertRequest{BatchID: "unanswered"}, alone(2, 0)...)
				if err != nil || len(again.IDs) != 2 || again.IDs[0] != 1 {
					t.Errorf("the insertion's repeat got %v, %v", again.IDs, err)
				}
			})
		}
	}
}

// Ids that a crash made unknown are passed over. That needs a write, so a table on a full disk gives none until there
// is space.
func TestATableRecoveredOnAFullDiskGivesIDsOnceThereIsSpace(t *testing.T) {
	d := new(disktest.Simulated)
	o := Options{Data: t.TempDir(), Disk: d, Sync: journal.Interval, Interval: time.Hour, DiskReserveBytes: 1}
	v := serve(t, o)
	v.create(wire.Table{Name: "a"})
	q, err := v.service.table("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.journal.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	lost := v.fill("a", alone(9, 0)...) // acknowledged, and lost with what was not synced
	v.stop()
	d.Fill(true)
	o.Disk = d
	w := serve(t, o)
	if s := w.stats("a"); s.Present != 0 {
		t.Fatalf("%d rollouts survived the loss of power: the test needs them lost", s.Present)
	}
	if _, err := w.insert("a", wire.InsertRequest{BatchID: "again"}, alone(2, 0)...); wire.CodeOf(err) != wire.DiskFull {
		t.Errorf("an insertion while the disk is full: %v", err)
	}
	restarted, err := w.service.table("a")
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Minute) // far less than the interval between writes
	defer cancel()
	if err := restarted.journal.CommitUpTo(soon, rollout.ID(lost[8])+1); !errors.Is(err, journal.ErrNoSpace) {
		t.Errorf("what waits for a write while the disk is full: %v", err)
	}
	d.Fill(false)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // the journal tries again after a pause
		answer, err := w.insert("a", wire.InsertRequest{BatchID: "again"}, alone(2, 0)...)
		if err == nil {
			if answer.IDs[0] <= lost[8] {
				t.Errorf("ids %v are given, and those lost were %v", answer.IDs, lost)
			}
			break
		}
		if wire.CodeOf(err) != wire.DiskFull || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestJournalsAreFoundInFoldersOfAnyName(t *testing.T) {
	data := filepath.Join(t.TempDir(), "runs [1]*?")
	v := serve(t, Options{Data: data})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(2, 0)...)
	v.stop()
	if s := serve(t, Options{Data: data}).stats("a"); s.Present != 2 {
		t.Errorf("%d rollouts are there again, want 2", s.Present)
	}
}

func TestAttackCreatorsAtOnceDoNotPassMaxTables(t *testing.T) {
	v := serve(t, Options{MaxTables: 3, Data: t.TempDir()})
	var group sync.WaitGroup
	var created atomic.Int32
	for i := range 16 {
		group.Go(func() {
			_, err := try[any](v, wire.CreateTable, wire.Table{Name: fmt.Sprint("t", i)})
			if err == nil {
				created.Add(1)
			} else if !strings.Contains(err.Error(), "max_tables") {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := created.Load(); n != 3 {
		t.Errorf("%d tables were created with max_tables 3", n)
	}
}
