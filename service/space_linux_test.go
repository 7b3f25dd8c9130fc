package service

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// large is a group whose journal needs new space.
func large() rollout.Group { return rollout.Group{Rollouts: []*rollout.Rollout{answer(1<<13, 0, 1)}} }

// While the disk is full insertions are refused, and draws of a queue and their acknowledgements go on. Once it has
// space insertions go on without a restart. Nothing acknowledged is lost, and nothing drawn comes back.
func TestAttackAFullDiskIsAnAlarmThatClearsItself(t *testing.T) {
	folder := disktest.Tiny(t, "24m")
	if folder == "" {
		return
	}
	o := Options{Data: filepath.Join(folder, "data"), DiskReserveBytes: 4 << 20}
	ballast, more := filepath.Join(folder, "ballast"), filepath.Join(folder, "more")
	v := serve(t, o)
	v.create(wire.Table{Name: "queue", Options: replay.Options{Sampler: replay.FIFO, Capacity: 1000}})
	inserted, drawn := 0, 0
	insert := func() error {
		_, err := v.insert("queue", wire.InsertRequest{}, large())
		if err == nil {
			inserted++
		}
		return err
	}
	for range 3 {
		for range 10 {
			if err := insert(); err != nil {
				t.Fatal(err)
			}
		}
		disktest.Fill(t, ballast)
		var refused error
		for refused == nil {
			refused = insert()
		}
		checkRefusal(t, refused, wire.DiskFull, o.Data, "bytes are free", "delete_checkpoint")
		if o := v.service.Observe(); !errors.Is(o.Err, wire.ErrDiskFull) || o.DiskFull == nil || o.DiskFree < 0 {
			t.Errorf("observed %v, %v, %d", o.Err, o.DiskFull, o.DiskFree)
		}
		_, err := try[any](v, wire.CreateTable, wire.Table{Name: "other"})
		checkRefusal(t, err, wire.DiskFull, o.Data)
		_, err = try[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "queue", Name: "full"})
		checkRefusal(t, err, wire.DiskFull, o.Data)
		for range 5 {
			b, err := v.get(wire.SampleRequest{Table: "queue", Size: 1, TimeoutMS: new(int64)})
			if err != nil {
				t.Fatalf("a draw on the full disk: %v", err)
			}
			drawn += len(b.draws)
		}
		next := int32(v.stats("queue").Version) + 1
		do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "queue", Version: next})
		disktest.Fill(t, more) // others take what was in reserve
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(more); err != nil {
			t.Fatal(err)
		}
		if err := insert(); err != nil {
			t.Fatalf("an insertion with space on the disk: %v", err)
		}
		if o := v.service.Observe(); o.Err != nil {
			t.Errorf("observed %v", o.Err)
		}
	}
	v.stop()
	w := serve(t, o)
	if st := w.stats("queue"); st.Present != inserted-drawn {
		t.Errorf("after a restart %d rollouts are there, want %d less %d", st.Present, inserted, drawn)
	}
}

// Draws and acknowledgements that find even the reserve taken are refused until there is space.
func TestAttackADiskWithoutItsReserveLosesNothing(t *testing.T) {
	folder := disktest.Tiny(t, "24m")
	if folder == "" {
		return
	}
	o := Options{Data: filepath.Join(folder, "data"), DiskReserveBytes: 4 << 20}
	ballast := filepath.Join(folder, "ballast")
	v := serve(t, o)
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: replay.Uniform, Capacity: 1000}})
	disktest.Fill(t, ballast)
	if err := os.Remove(v.service.space.path()); err != nil {
		t.Fatal(err)
	}
	disktest.Fill(t, filepath.Join(folder, "more"))
	inserted, err := 0, error(nil)
	for err == nil {
		inserted++
		_, err = v.insert("a", wire.InsertRequest{BatchID: fmt.Sprint(inserted)}, large())
	}
	checkRefusal(t, err, wire.DiskFull)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for err != nil { // the journal tries again a moment later
		if _, err = v.insert("a", wire.InsertRequest{BatchID: fmt.Sprint(inserted)}, large()); err != nil {
			checkRefusal(t, err, wire.DiskFull)
			runtime.Gosched()
		}
	}
	v.stop()
	w := serve(t, o)
	if n := w.stats("a").Present; n != inserted {
		t.Errorf("after a restart %d rollouts are there, want %d, the one in doubt once", n, inserted)
	}
}

// A service starts on a full disk, with its tables, and takes insertions once there is space.
func TestAServiceStartsOnAFullDisk(t *testing.T) {
	folder := disktest.Tiny(t, "24m")
	if folder == "" {
		return
	}
	o := Options{Data: filepath.Join(folder, "data"), DiskReserveBytes: 4 << 20}
	v := serve(t, o)
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(3, 0)...)
	v.stop()
	ballast := filepath.Join(folder, "ballast")
	if err := os.Remove(v.service.space.path()); err != nil {
		t.Fatal(err)
	}
	disktest.Fill(t, ballast)
	v = serve(t, o)
	if n := v.stats("a").Present; n != 3 {
		t.Errorf("%d rollouts are there", n)
	}
	_, err := v.insert("a", wire.InsertRequest{}, alone(1, 0)...)
	checkRefusal(t, err, wire.DiskFull, o.Data)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	v.fill("a", alone(1, 0)...)
}

// Checkpoints do not fill the disk: they leave what journals need.
func TestAttackCheckpointsLeaveSpaceToJournals(t *testing.T) {
	folder := disktest.Tiny(t, "48m")
	if folder == "" {
		return
	}
	o := Options{Data: filepath.Join(folder, "data"), DiskReserveBytes: 4 << 20, MaxCheckpoints: math.MaxInt}
	v := serve(t, o)
	v.create(wire.Table{Name: "greedy"})
	v.create(wire.Table{Name: "modest"})
	for range 20 {
		v.fill("greedy", large())
	}
	var err error
	for name := 'a'; err == nil; name++ {
		_, err = try[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "greedy", Name: string(name)})
	}
	checkRefusal(t, err, wire.DiskFull, "delete_checkpoint", o.Data)
	for range 20 {
		v.fill("modest", large())
	}
	list := do[wire.CheckpointList](v, wire.ListCheckpoints, wire.TableRequest{Table: "greedy"}).Checkpoints
	for _, c := range list {
		do[any](v, wire.DeleteCheckpoint, wire.CheckpointRequest{Table: "greedy", Name: c.Name})
	}
	do[any](v, wire.Checkpoint, wire.CheckpointRequest{Table: "modest", Name: "a"})
	if len(list) < 3 {
		t.Errorf("listed %+v", list)
	}
}
