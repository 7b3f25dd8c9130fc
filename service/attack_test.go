package service

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/wire"
)

func TestAttackTwoServicesOnOneFolderAreRefused(t *testing.T) {
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
	if err := os.Remove(v.service.journalPath("a")); err != nil {
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
	if n := v.stats("a").Present; n < 2 || n > 3 {
		t.Errorf("%d rollouts are in the table: 2 were acknowledged, 1 may be in doubt", n)
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
