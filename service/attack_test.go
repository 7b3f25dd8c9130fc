package service

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestAttackTwoServicesOnOneFolderAreRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first := serve(t, Options{Data: data})
	_, err := New(Options{Data: data, Logger: quiet()})
	if err == nil || !strings.Contains(err.Error(), data) ||
		!strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Fatalf("a second service on the folder: %v", err)
	}
	first.stop()
	serve(t, Options{Data: data})
}

func TestAttackNothingIsAcknowledgedIntoAJournalTakenAway(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(2, 0)...)
	if err := os.RemoveAll(v.service.journalPath("a")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := v.insert("a", wire.InsertRequest{}, alone(1, 0)...)
		checkRefusal(t, err, wire.Failed, v.service.journalPath("a"))
	}
	if o := v.service.Observe(); o.Err == nil {
		t.Error("the service calls itself healthy")
	}
	// The remedy that the error names.
	do[wire.CheckpointAnswer](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "saved"})
	n := v.stats("a").Present
	if n < 2 || n > 3 {
		t.Errorf("%d rollouts are in the table: 2 were acknowledged, 1 may be in doubt", n)
	}
	if saved, err := v.get(wire.SampleRequest{Table: "a", Export: true}); err != nil || len(saved.draws) != n {
		t.Errorf("an export has %d rollouts of %d, and %v", len(saved.draws), n, err)
	}
	if n == 3 { // a batch with the one in doubt
		_, err := v.get(wire.SampleRequest{Table: "a", Size: 3})
		checkRefusal(t, err, wire.Failed, v.service.journalPath("a"))
	}
	v.ended = true // its stop tells of the journal
	if _, err := v.service.Stop(v.ctx); err == nil {
		t.Error("stopping tells of no error")
	}
	v.grpc.Stop()
	w := serve(t, Options{Data: v.service.options.Data})
	w.create(wire.Table{Name: "a"})
	if i := do[wire.TableInfo](w, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "saved"}); i.Present < 2 {
		t.Errorf("restored %+v", i)
	}
}

// A byte of a journal that changes on the disk is reported while the service runs, with the remedy.
func TestAttackADamagedJournalIsReportedByTheScrub(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir(), ScrubInterval: time.Millisecond})
	v.create(wire.Table{Name: "a"})
	marked := answer(4, 0, 1)
	marked.Text = "the oldest of all rollouts"
	v.fill("a", rollout.Group{Rollouts: []*rollout.Rollout{marked}})
	v.fill("a", alone(100, 0)...)
	journalOf := func() *wire.JournalStatistics { return v.stats("a").Journal }
	if j := journalOf(); j.Damage > 0 {
		t.Fatalf("of an intact journal: %+v", j)
	}
	segments, err := filepath.Glob(filepath.Join(v.service.journalPath("a"), "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	scrub := func() []string {
		return do[wire.ScrubAnswer](v, wire.Scrub, wire.TableRequest{Table: "a"}).Copies[0].Damage
	}
	if found := scrub(); len(found) > 0 {
		t.Errorf("asked to read an intact journal: %v", found)
	}
	f, err := os.OpenFile(segments[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(f)
	if err == nil {
		_, err = f.WriteAt([]byte("T"), int64(bytes.Index(content, []byte(marked.Text))))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for journalOf().Damage == 0 {
	}
	if found := scrub(); len(found) != 1 || !strings.Contains(found[0], filepath.Base(segments[0])+", offset ") {
		t.Errorf("asked to read a damaged journal: %v", found)
	}
	found := v.service.Observe().Tables[0].Journal.Stats.Damage[0].String()
	if !strings.Contains(found, filepath.Base(segments[0])+", offset ") {
		t.Errorf("found %s", found)
	}
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "a", Name: "saved"}) // the remedy
	do[any](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "saved"})
	if j := journalOf(); j.Damage > 0 || j.VerifiedAge < 0 {
		t.Errorf("restored: %+v", j)
	}
	v.stop()
	if n := serve(t, Options{Data: v.service.options.Data}).stats("a").Present; n != 101 {
		t.Errorf("%d rollouts are there after a restart", n)
	}
}

func TestAttackCheckpointsWithoutEndAreRefused(t *testing.T) {
	data := t.TempDir()
	v := serve(t, Options{Data: data, MaxCheckpoints: 2, MaxCheckpointBytes: 1 << 20})
	v.create(wire.Table{Name: "a"})
	v.create(wire.Table{Name: "b"})
	save := func(table, name string) error {
		_, err := try[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: table, Name: name})
		return err
	}
	v.fill("a", alone(2, 0)...)
	for _, name := range []string{"1", "2", "1"} { // saved again it replaces the one that is there
		if err := save("a", name); err != nil {
			t.Fatal(err)
		}
	}
	checkRefusal(t, save("a", "3"), wire.Invalid, "max_checkpoints", "delete_checkpoint")
	if err := save("b", "1"); err != nil {
		t.Errorf("another table: %v", err)
	}
	do[any](v, wire.DeleteCheckpoint, wire.CheckpointRequest{Table: "a", Name: "1"})
	if err := save("a", "3"); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
	for range 10 {
		v.fill("a", rollout.Group{Rollouts: []*rollout.Rollout{answer(1<<14, 0, 1)}})
	}
	checkRefusal(t, save("a", "3"), wire.Invalid, "max_checkpoint_bytes", "delete_checkpoint")
	files, err := os.ReadDir(filepath.Join(data, "checkpoints", "a"))
	if err != nil || len(files) != 2 {
		t.Errorf("the refused one left %v, %v", files, err)
	}
	if i := do[wire.TableInfo](v, wire.Restore, wire.CheckpointRequest{Table: "a", Name: "3"}); i.Present != 2 {
		t.Errorf("the one that it would have replaced has %+v", i)
	}
}
