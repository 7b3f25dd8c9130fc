package service

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestACheckpointRestoresEverything(t *testing.T) {
	data := t.TempDir()
	v := serve(t, Options{Data: data})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: "uniform", GroupSize: 4},
		Gate: &wire.Gate{RolloutsPerUpdate: 16, MaxStaleness: 1}, Prompts: &prompts.Options{}})
	v.fill("a", group(4, 0), group(4, 0))
	do[any](v, wire.PromptsReport, wire.PromptResults{Table: "a",
		Results: []wire.PromptResult{{Prompt: wire.Prompt{ID: "half"}, Correct: 2, Total: 4}}})
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
	do[any](v, wire.PromptsReport, wire.PromptResults{Table: "a",
		Results: []wire.PromptResult{{Prompt: wire.Prompt{ID: "other"}, Correct: 2, Total: 4}}})

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

// What was given between a checkpoint and its restore is not given again: who still knows an id would mean another
// rollout, or another batch.
func TestARestoredTableGivesNoIDTwice(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(2, 0)...)
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	ids, batches := make(map[uint64]bool), make(map[uint64]bool)
	for range 3 {
		for range 2 {
			for _, id := range v.fill("a", alone(2, 0)...) {
				if ids[id] {
					t.Errorf("rollout %d is given twice", id)
				}
				ids[id] = true
			}
			b, err := v.get(wire.SampleRequest{Table: "a", Size: 1})
			if err != nil || batches[b.Batch] {
				t.Errorf("batch %d is given twice, or %v", b.Batch, err)
			}
			batches[b.Batch] = true
		}
		do[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
	}
}

func TestAttackACheckpointOfOtherColumnsIsRefused(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	with := func(kind string) wire.Table {
		return wire.Table{Name: "a", Columns: []wire.Column{{Name: "x_a", Type: kind}}}
	}
	v.create(with("float64"))
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	restore := func(w wire.Table) error {
		do[any](v, wire.DropTable, wire.TableRequest{Table: "a"})
		v.create(w)
		_, err := try[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
		return err
	}
	checkRefusal(t, restore(with("int64")), wire.Invalid, "columns: [{x_a int64}]: want [{x_a float64}]")
	checkRefusal(t, restore(wire.Table{Name: "a"}), wire.Invalid, "columns: []: want [{x_a float64}]")
	if err := restore(with("float64")); err != nil {
		t.Error(err)
	}
}

func TestAttackLeasesInACheckpointDoNotLockTheirRollouts(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: replay.FIFO, LeaseSeconds: 366 * 24 * 3600}})
	v.fill("a", alone(2, 0)...)
	x := v.exchanger(v.client, "a")
	v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0), RequestID: "mine"})
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	do[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
	if s := v.stats("a"); s.OnLease != 0 || s.Returned != 2 {
		t.Errorf("after the restore %+v", s)
	}
	b, err := v.get(wire.SampleRequest{Table: "a", Size: 2, TimeoutMS: ms(0)})
	if err != nil || len(b.draws) != 2 {
		t.Errorf("after the restore: %v", err)
	}
}

// A checkpoint is restored if the tables' memory has room for it beside what it replaces.
func TestAttackARestoreBeyondTheMemoryIsRefused(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(4, 0)...)
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	m := &v.service.tableMemory
	free := m.most - m.held.Load()
	m.add(free)
	_, err := try[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
	checkRefusal(t, err, wire.TooLarge, `"one"`, "free for tables", "memory_bytes")
	m.add(-free)
	held := m.held.Load()
	do[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
	if now := m.held.Load(); now != held {
		t.Errorf("after a restore of the same contents the tables hold %d bytes, before %d", now, held)
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
	for at := 0; at < len(whole); at += tests.Count(5, 53) { // no byte may be changed, and none left out
		bad := slices.Clone(whole)
		bad[at] ^= 0x10
		if at%3 == 0 {
			bad = whole[:at]
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

func TestACheckpointRemovesWhatACrashLeft(t *testing.T) {
	data := t.TempDir()
	v := serve(t, Options{Data: data})
	v.create(wire.Table{Name: "a"})
	save := func() { do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"}) }
	save()
	folder := filepath.Join(data, "checkpoints", "a")
	if err := os.WriteFile(filepath.Join(folder, "one"+checkpointSuffix+".123"+unfinished), []byte("half"),
		0o600); err != nil {
		t.Fatal(err)
	}
	save()
	if files, err := os.ReadDir(folder); err != nil || len(files) != 1 || files[0].Name() != "one"+checkpointSuffix {
		t.Errorf("the folder has %v, %v", files, err)
	}
}

func TestCheckpointsAreListedAndDeleted(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(2, 0)...)
	list := func(table string) (names []string) {
		list := do[wire.CheckpointList](v, wire.ListCheckpoints, wire.TableRequest{Table: table})
		for _, c := range list.Checkpoints {
			if c.FileBytes == 0 || c.Saved.IsZero() {
				t.Errorf("listed %+v", c)
			}
			names = append(names, c.Name)
		}
		return names
	}
	for _, name := range []string{"two", "one", "two"} {
		do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: name})
	}
	if names := list("a"); !slices.Equal(names, []string{"one", "two"}) || list("b") != nil {
		t.Errorf("listed %v, of another table %v", names, list("b"))
	}
	do[any](v, wire.DropTable, wire.TableRequest{Table: "a"}) // they outlive it
	do[any](v, wire.DeleteCheckpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	if names := list("a"); !slices.Equal(names, []string{"two"}) {
		t.Errorf("after one was deleted %v", names)
	}
	_, err := try[any](v, wire.DeleteCheckpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	checkRefusal(t, err, wire.NotFound, "want one of its checkpoints")
	for _, name := range []string{"", "..", "../a", "a/b"} {
		_, err := try[any](v, wire.DeleteCheckpoint, wire.CheckpointRequest{Table: "a", Name: name})
		checkRefusal(t, err, wire.Invalid, "checkpoint")
		_, err = try[any](v, wire.DeleteCheckpoint, wire.CheckpointRequest{Table: name, Name: "two"})
		checkRefusal(t, err, wire.Invalid, "table")
	}
}

// A checkpoint takes its snapshots one after another, while insertions go on.
func TestARestoredGateCountsInsertionsBetweenTheSnapshots(t *testing.T) {
	inBubble(t, wire.Table{Name: "a", Gate: &wire.Gate{RolloutsPerUpdate: 8, MaxStaleness: 1}},
		func(t *testing.T, table *table) {
			var b bytes.Buffer
			table.mustInsert(t, alone(4, 0)...)
			if err := table.gateSnapshot().write(&b); err != nil {
				t.Fatal(err)
			}
			table.mustInsert(t, alone(6, 0)...)
			if err := table.rollouts.Snapshot(&b); err != nil {
				t.Fatal(err)
			}
			table.mustInsert(t, alone(2, 0)...)
			if err := table.readState(&b); err != nil {
				t.Fatal(err)
			}
			if s := table.gate.Load().State(table.now(), 0); s.Started != 10 ||
				table.rollouts.ServiceView().Flow().Present != 10 {
				t.Errorf("started are %d, present %d; want 10", s.Started, table.rollouts.ServiceView().Flow().Present)
			}
		})
}

func TestARestoreForgetsReportIDs(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: "prioritized"}})
	id := v.fill("a", alone(1, 0)...)[0]
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	report := wire.DrawReport{Table: "a", RequestID: "step 1",
		Draws: []wire.DrawFacts{{ID: id, Tokens: 4, RatioSum: 4, RatioSquares: 4}}}
	for range 2 {
		do[any](v, wire.ReportDraws, report)
		do[any](v, wire.ReportDraws, report)
		if tokens := v.stats("a").ESSByAge[0].Tokens; tokens != 4 {
			t.Errorf("%v tokens were reported, want 4", tokens)
		}
		do[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
	}
}
