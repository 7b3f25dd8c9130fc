package service

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

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
			v.create(wire.Table{Name: "q", Sampler: "fifo"})
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

func TestCheckpointsLeaveNothingOfOnesThatACrashCutOff(t *testing.T) {
	data := t.TempDir()
	v := serve(t, Options{Data: data})
	v.create(wire.Table{Name: "a"})
	save := func() { do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"}) }
	save()
	folder := filepath.Join(data, "checkpoints", "a")
	if err := os.WriteFile(filepath.Join(folder, unfinished+"123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	save()
	if files, err := os.ReadDir(folder); err != nil || len(files) != 1 || files[0].Name() != "one"+checkpointSuffix {
		t.Errorf("the folder has %v, %v", files, err)
	}
}

// A checkpoint takes its snapshots one after another, while insertions go on.
func TestARestoredGateCountsWhatCameBetweenTheSnapshots(t *testing.T) {
	within(t, wire.Table{Name: "a", Gate: &wire.Gate{RolloutsPerUpdate: 8, MaxStaleness: 1}}, func(t *testing.T, table *table) {
		var b bytes.Buffer
		table.mustInsert(t, alone(4, 0)...)
		if err := table.gateImage().write(&b); err != nil {
			t.Fatal(err)
		}
		table.mustInsert(t, alone(6, 0)...)
		if err := table.store.Snapshot(&b); err != nil {
			t.Fatal(err)
		}
		table.mustInsert(t, alone(2, 0)...)
		if err := table.load(&b); err != nil {
			t.Fatal(err)
		}
		if s := table.gate.Load().State(table.now(), 0); s.Started != 10 || table.store.Len() != 10 {
			t.Errorf("started are %d, present %d; want 10", s.Started, table.store.Len())
		}
	})
}

func TestAReportOfBeforeIsTakenAgainAfterARestoration(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a", Sampler: "prioritized"})
	id := v.fill("a", alone(1, 0)...)[0]
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "one"})
	report := wire.DrawReport{Table: "a", RequestID: "step 1", Draws: []wire.DrawFacts{{ID: id, Tokens: 4, RatioSum: 4, RatioSquares: 4}}}
	for range 2 {
		do[any](v, wire.ReportDraws, report)
		do[any](v, wire.ReportDraws, report)
		if tokens := v.stats("a").ESSByAge[0].Tokens; tokens != 4 {
			t.Errorf("%v tokens were reported, want 4", tokens)
		}
		do[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "one"})
	}
}

func TestAnAcknowledgedBatchIsNotAcknowledgedAgain(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(4, 0)...)
	x := v.exchanger(v.client, "a")
	for range 4 {
		v.mustSample(x, wire.SampleRequest{Size: 1, Prefetch: count(0)})
	}
	table, err := v.service.table("a")
	if err != nil {
		t.Fatal(err)
	}
	if n := table.meter.lapsed.Load(); n != 0 {
		t.Errorf("%d acknowledgements came too late", n)
	}
}
