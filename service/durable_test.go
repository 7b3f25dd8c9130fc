package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestTablesAreThereAgainAfterARestart(t *testing.T) {
	for _, sync := range []journal.Sync{journal.Always, journal.Interval, journal.Off} {
		t.Run(string(sync), func(t *testing.T) {
			data := t.TempDir()
			v := serve(t, Options{Data: data, Sync: sync})
			v.create(wire.Table{Name: "a", Sampler: "prioritized", Gate: &wire.Gate{RolloutsPerUpdate: 16}, Prompts: &wire.Prompts{}})
			v.create(wire.Table{Name: "q.2", Sampler: "fifo", Unit: "step"})
			v.fill("q.2", alone(3, 0)...)
			first, err := v.insert("a", wire.InsertRequest{BatchID: "one"}, alone(8, 0)...)
			if err != nil {
				t.Fatal(err)
			}
			do[any](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 1})
			do[any](v, wire.PromptsReport, wire.PromptResults{Table: "a", Results: []wire.PromptResult{{Prompt: wire.Prompt{ID: "half"}, Correct: 2, Total: 4}}})
			if _, err := v.get(wire.SampleRequest{Table: "a", Size: 4}); err != nil {
				t.Fatal(err)
			}
			if _, err := v.get(wire.SampleRequest{Table: "q.2", Size: 2}); err != nil {
				t.Fatal(err)
			}
			before := v.stats("a")
			sum := v.stop()
			if sum.Tables != 2 || sum.Durable != 2 || sum.Rollouts != 9 || !strings.Contains(sum.String(), "2 tables with 9 rollouts") {
				t.Errorf("summary %+v: %s", sum, sum)
			}
			w := serve(t, Options{Data: data, Sync: sync, Tables: []wire.Table{{Name: "q.2", Sampler: "fifo", Unit: "step"}}})
			after := w.stats("a")
			if after.Present != 8 || after.Version != 1 || after.Acknowledged != 4 || after.Inserted != before.Inserted {
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
	_, err := New(Options{Data: data, Logger: quiet(), Tables: []wire.Table{{Name: "a", Capacity: 8}}})
	checkRefusal(t, err, wire.Exists, "capacity is 8, the table's is 4096")
	if err := os.Rename(filepath.Join(data, "tables", "a.journal"), filepath.Join(data, "tables", "b.journal")); err != nil {
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

func TestACheckpointBringsEverythingBack(t *testing.T) {
	data := t.TempDir()
	v := serve(t, Options{Data: data})
	v.create(wire.Table{Name: "a", Sampler: "uniform", GroupSize: 4, Gate: &wire.Gate{RolloutsPerUpdate: 16, MaxStaleness: 1}, Prompts: &wire.Prompts{}})
	v.fill("a", group(4, 0), group(4, 0))
	do[any](v, wire.PromptsReport, wire.PromptResults{Table: "a", Results: []wire.PromptResult{{Prompt: wire.Prompt{ID: "half"}, Correct: 2, Total: 4}}})
	saved := do[wire.CheckpointAnswer](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	if saved.Present != 8 || saved.FileBytes == 0 || saved.Name != "one" {
		t.Errorf("saved %+v", saved)
	}
	draw := func(v *served, request string) []rollout.ID {
		t.Helper()
		b, err := v.get(wire.SampleRequest{Table: "a", Size: 6, UseAtDraw: true, RequestID: request})
		if err != nil {
			t.Fatal(err)
		}
		var ids []rollout.ID
		for _, d := range b.draws {
			ids = append(ids, d.ID)
		}
		return ids
	}
	first := draw(v, "1")
	x := v.exchanger(v.client, "a")
	held := v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0)})
	v.fill("a", group(4, 0))
	do[any](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 5})
	do[any](v, wire.PromptsReport, wire.PromptResults{Table: "a", Results: []wire.PromptResult{{Prompt: wire.Prompt{ID: "other"}, Correct: 2, Total: 4}}})

	restored := do[wire.TableInfo](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
	if restored.Present != 8 || restored.Version != 0 {
		t.Errorf("restored %+v", restored)
	}
	// A crash now finds what was restored: the answer promised it.
	crashed := t.TempDir()
	if err := os.CopyFS(crashed, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if s := serve(t, Options{Data: crashed}).stats("a"); s.Present != 8 || s.Version != 0 || s.Gate.Started != 8 {
		t.Errorf("after a crash %+v", s)
	}
	if s := v.stats("a"); s.Gate.Started != 8 || s.Prompts.Held != 1 || s.Drawn != 0 {
		t.Errorf("restored statistics %+v", s)
	}
	if again := draw(v, "1"); !slices.Equal(again, first) {
		t.Errorf("after the restore the draws are %v, were %v", again, first)
	}
	if _, err := x.sample(wire.SampleRequest{Acknowledge: []uint64{held.Batch}}); !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("a lease of before the restore: %v", err)
	}
	// What was restored is what the journal has.
	v.stop()
	w := serve(t, Options{Data: data})
	if s := w.stats("a"); s.Present != 8 || s.Drawn != 6 || s.Version != 0 || s.Gate.Started != 8 {
		t.Errorf("after a restart %+v", s)
	}
	do[any](w, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
	if again := draw(w, "1"); !slices.Equal(again, first) {
		t.Errorf("after a restart and the restore the draws are %v, were %v", again, first)
	}
}

func TestACheckpointIsRefusedWithTheReason(t *testing.T) {
	data := t.TempDir()
	v := serve(t, Options{Data: data})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(2, 0)...)
	_, err := try[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "none"})
	checkRefusal(t, err, wire.NotFound, `"none"`)
	for _, name := range []string{"", "..", "../a", "a/b"} {
		_, err = try[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: name})
		checkRefusal(t, err, wire.Invalid, "checkpoint")
	}
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	file := filepath.Join(data, "checkpoints", "a", "one.table")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole { // no byte may be changed, and none left out
		bad := slices.Clone(whole)
		bad[at] ^= 0x10
		if at%17 == 0 {
			bad = whole[:at]
		}
		if at%7 != 0 && at%17 != 0 {
			continue
		}
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := try[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"}); err == nil {
			t.Fatalf("a checkpoint damaged at byte %d of %d was restored", at, len(whole))
		}
	}
	if s := v.stats("a"); s.Present != 2 {
		t.Errorf("a refused restore left %d rollouts", s.Present)
	}
	w := serve(t, Options{})
	w.create(wire.Table{Name: "a"})
	_, err = try[any](w, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	checkRefusal(t, err, wire.Invalid, "--data")
}

func TestAStopDrainsReleasesAndFlushes(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "q", Sampler: "fifo", Capacity: 8})
	v.fill("q", alone(8, 0)...)
	x := v.exchanger(v.client, "q")
	v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0)})
	rec := rows(t, alone(1, 0)...)
	defer rec.Release()
	p := v.putter(v.client, "q", rec.Schema())
	p.send(rec, wire.InsertRequest{})
	v.until("an insertion waits, and the sample is over", func(o TableView) bool { return o.InsertsWaiting == 1 && v.service.work.left() == 1 })
	sum, err := v.service.Stop(v.ctx)
	if err != nil || sum.Drained != 1 || sum.Left != 0 || sum.Released != 1 || sum.Rollouts != 8 {
		t.Errorf("summary %+v, %v", sum, err)
	}
	_, err = p.answer()
	checkRefusal(t, err, wire.Closing, "stopping")
	_, err = x.sample(wire.SampleRequest{Size: 1})
	checkRefusal(t, err, wire.Closing, "stopping")
	_, err = v.insert("q", wire.InsertRequest{}, alone(1, 0)...)
	checkRefusal(t, err, wire.Closing, "stopping")
	if o := v.service.Observe(); !o.Stopping || o.Err != nil {
		t.Errorf("stopping %v, error %v", o.Stopping, o.Err)
	}
	if again, err := v.service.Stop(v.ctx); err != nil || again != sum {
		t.Errorf("stopped again: %+v, %v", again, err)
	}
}

func TestAStopThatRunsOutOfTimeSaysSo(t *testing.T) {
	s, err := New(Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.work.begin(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sum, err := s.Stop(ctx)
	if !errors.Is(err, context.Canceled) || sum.Left != 1 || !strings.Contains(sum.String(), "1 cut off") {
		t.Errorf("summary %+v, %v", sum, err)
	}
	s.work.end()
}

func TestAJournalThatFailsEndsTheStreamWithTheReason(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a"})
	table, err := v.service.table("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := table.journal.Close(); err != nil { // as if the disk had gone: nothing can be promised any more
		t.Fatal(err)
	}
	_, err = v.insert("a", wire.InsertRequest{}, alone(1, 0)...)
	checkRefusal(t, err, wire.Failed, "journal")
}
