package replay

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// Workers insert, trainers sample and lease, one advances, one looks on: run with -race. Afterwards the books
// balance, and no rollout of a queue was delivered twice.
func TestConcurrentUseKeepsTheBooks(t *testing.T) {
	for _, o := range []Options{
		{Capacity: 64, Shards: 2, Sampler: FIFO},
		{Capacity: 64, Shards: 2, Sampler: Distinct, MaxStaleness: 3, MaxUses: 4},
		{Capacity: 64, Shards: 2, Sampler: Epoch, Retention: KeepPositive, PositiveFraction: 0.25},
	} {
		t.Run(string(o.Sampler), func(t *testing.T) {
			table := mustNew(t, o)
			var workers, trainers sync.WaitGroup
			stop, room := make(chan struct{}), make(chan struct{})
			for w := range 3 {
				workers.Go(func() { work(t, table, uint64(w), room) })
			}
			for shard := range 2 {
				trainers.Go(func() { train(t, table, shard, room, stop) })
			}
			trainers.Go(func() { watch(t, table) })
			workers.Wait()
			close(stop)
			trainers.Wait()
			balance(t, table.Stats(), 0)
		})
	}
}

// work inserts groups; refused by a full queue, it waits for a trainer to say that there may be room.
func work(t *testing.T, table *Table, seed uint64, room <-chan struct{}) {
	random := rollout.Stream(seed, "work", 0)
	for range 200 {
		g := someGroup(random, 1+random.IntN(4), table.Version())
		for {
			_, err := table.Insert(ctx, g)
			if err == nil {
				break
			}
			if !errors.Is(err, rollout.ErrFull) {
				t.Error(err)
				return
			}
			<-room
		}
	}
}

// train samples, leases, acknowledges and releases until told to stop.
func train(t *testing.T, table *Table, shard int, room chan<- struct{}, stop <-chan struct{}) {
	seen := map[rollout.ID]bool{}
	use := func(b *rollout.Batch) {
		for _, d := range b.Draws {
			if table.options.Sampler.Consumes() && seen[d.ID] {
				t.Errorf("rollout %d was delivered twice", d.ID)
			}
			seen[d.ID] = true
		}
	}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case room <- struct{}{}:
		default:
			runtime.Gosched()
		}
		req := rollout.Request{Size: 4, Shard: shard}
		if n%2 == 0 {
			if b, err := table.Sample(ctx, req); err == nil {
				use(b)
			} else if !errors.Is(err, rollout.ErrStarved) {
				t.Error(err)
			}
			continue
		}
		b, err := table.Lease(ctx, req)
		if err != nil {
			continue
		}
		if n%3 == 0 {
			err = table.Release(b.ID)
		} else {
			use(b)
			err = table.Acknowledge(b.ID)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// watch advances the table, snapshots it and reads its statistics.
func watch(t *testing.T, table *Table) {
	for v := rollout.Version(1); v <= 100; v++ {
		err := table.Advance(ctx, v)
		if v%32 == 0 {
			err = errors.Join(err, table.Snapshot(io.Discard))
		}
		if err != nil {
			t.Error(err)
		}
		runtime.Gosched()
		s := table.Stats()
		if s.Present > table.options.Capacity {
			t.Errorf("%d present", s.Present)
		}
	}
}
