package journal

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/faults"
	"github.com/reprise-rl/reprise/replay"
)

// faulty is a disk whose files panic when they are written to or synced.
type faulty struct {
	disk.Files
	writes, syncs atomic.Bool
}

type faultyFile struct {
	disk.File
	of *faulty
}

func (f *faulty) Open(path string, flags int) (disk.File, error) {
	file, err := f.Files.Open(path, flags)
	return faultyFile{file, f}, err
}

func (f faultyFile) WriteAt(b []byte, at int64) (int, error) {
	if f.of.writes.Load() {
		panic("a defect of a write")
	}
	return f.File.WriteAt(b, at)
}

func (f faultyFile) Sync() error {
	if f.of.syncs.Load() {
		panic("a defect of a sync")
	}
	return f.File.Sync()
}

// A panic in a goroutine of a journal stops that journal by an error with its path, and nothing else. What was
// acknowledged is in the log.
func TestAPanicStopsOneJournalAndNotTheProcess(t *testing.T) {
	for name, of := range map[string]struct {
		sync  Sync
		plant func(f *faulty, blob *atomic.Bool)
		part  string
	}{
		"cutting": {Always, func(_ *faulty, blob *atomic.Bool) { blob.Store(true) }, "cutting the table: "},
		"writing": {Always, func(f *faulty, _ *atomic.Bool) { f.writes.Store(true) }, "writing: "},
		"syncing": {Interval, func(f *faulty, _ *atomic.Bool) { f.syncs.Store(true) }, "writing: "},
	} {
		t.Run(name, func(t *testing.T) {
			o := in(t)
			f := &faulty{Files: o.Disk}
			var blob atomic.Bool
			var log bytes.Buffer
			o.Disk, o.Sync, o.Logger = f, of.sync, slog.New(slog.NewTextHandler(&log, nil))
			kind := replay.Options{Capacity: 64}
			table := newTable(t, kind)
			random := rand.New(rand.NewPCG(1, 2))
			j := create(t, o, table)
			j.Attach("faulty", func() ([]byte, error) {
				if blob.Load() {
					panic("a defect of a save")
				}
				return nil, nil
			})
			insert := func() {
				_, err := table.Insert(t.Context(), aGroup(random, 2, 8, 0))
				must(t, err)
			}
			insert()
			must(t, j.Flush(t.Context()))
			of.plant(f, &blob)
			insert()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 2 { // the error stays
				err := j.Flush(ctx)
				if fault := new(faults.Error); !errors.As(err, &fault) || !strings.Contains(err.Error(), o.Path) ||
					!strings.Contains(err.Error(), of.part) || !strings.Contains(err.Error(), "a defect of a ") {
					t.Fatalf("a journal that panicked: %v", err)
				}
			}
			if j.Stats().Err == nil || j.Close() == nil {
				t.Error("the journal does not say that it stopped")
			}
			if !strings.Contains(log.String(), "a journal panicked") || !strings.Contains(log.String(), "fault_test.go") {
				t.Errorf("the log has no stack: %s", log.String())
			}
			o.Disk = f.Files
			again, found, _ := reopen(t, o, kind)
			if n := statsOf(found).Present; n != 2 && n != 4 { // what was not acknowledged may be there
				t.Errorf("%d rollouts are back, want the 2 that were acknowledged, or all 4", n)
			}
			must(t, again.Close())
		})
	}
}

// Also in the goroutines that encode and decode beside each other.
func TestAPanicBesideOthersBecomesAnError(t *testing.T) {
	for _, workers := range []int{1, 4} {
		var done atomic.Int64
		err := sideBySide("testing", workers, 100, func(_, i int) error {
			switch i {
			case 7:
				return errors.New("an error")
			case 50:
				panic("a defect")
			}
			done.Add(1)
			return nil
		})
		if fault := new(faults.Error); !errors.As(err, &fault) || fault.Found != "a defect" ||
			workers > 1 && done.Load() < 50 {
			t.Errorf("%d workers: %v after %d calls", workers, err, done.Load())
		}
	}
}
