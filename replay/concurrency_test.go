package replay

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// Workers insert, trainers sample and lease, one advances, one looks on: run with -race. Afterwards the counts add up,
// and no rollout of a queue was delivered twice.
func TestConcurrentUseKeepsTheBooks(t *testing.T) {
	for _, o := range []Options{
		{Capacity: 64, Shards: 2, Sampler: FIFO},
		{Capacity: 64, Shards: 2, Sampler: Distinct, MaxStaleness: 3, MaxUses: 4, PromptIndex: true},
		{Capacity: 64, Shards: 2, Sampler: Unseen, MaxUses: 4, Sources: slices.Concat(someSources()[:3], someSources()[4:])},
		{Capacity: 64, Shards: 2, MaxUses: 4, Sources: promptSources()},
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
			balance(t, statsOf(table), 0)
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
		if table.options.PromptIndex && n%5 < 2 {
			req = rollout.Request{Prompts: []string{fmt.Sprint("p", n%1000), fmt.Sprint("p", (n+1)%1000)}, PerPrompt: 2,
				Shard: shard, Order: "-uses"}
		}
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
			err = table.Release(ctx, b.ID)
		} else {
			use(b)
			err = table.Acknowledge(ctx, b.ID)
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
		s := statsOf(table)
		if s.Present > table.options.Capacity {
			t.Errorf("%d present", s.Present)
		}
	}
}

// The whole show, a minute of it with the race detector:
//
//	go test -race -gcflags=all=-d=checkptr=0 ./replay -run Concurrent -concurrent 60s
var concurrentFor = flag.Duration("concurrent", time.Second, "how long TestConcurrentInsertionAndSamplingBalance "+
	"runs each table")

// Eight goroutines insert rollouts of 1,000 tokens and eight draw batches of 64 and update them, the first of these
// moves the version on, and one looks on: run with -race. Every draw is of a rollout as it was inserted, probabilities
// add up to 1 at any moment, and afterwards the counts are what the goroutines counted themselves.
func TestConcurrentInsertionAndSamplingBalance(t *testing.T) {
	tests.LongShared(t)
	decaying := prioritizedOptions()
	// 0.05: the scale moves every 55 versions
	decaying.AgeDecay, decaying.ImportanceNorm, decaying.Entry = 0.05, ByTable, EnterMax
	for name, o := range map[string]Options{
		"one shard":  {Capacity: 1024},
		"two shards": withPriorities(decaying, Options{Capacity: 1024, Shards: 2, MaxStaleness: 20, MaxUses: 16}),
	} {
		t.Run(name, func(t *testing.T) {
			o.Sampler = Prioritized
			s := &show{t: t, table: mustNew(t, o), tokens: longGroups(1)[0].Rollouts[0], look: make(chan struct{}),
				stop: make(chan struct{})}
			var inserting, rest sync.WaitGroup
			for i := range concurrentWorkers {
				inserting.Go(func() { s.insert(rollout.Stream(uint64(i), "insert", 0)) })
				rest.Go(func() { s.train(i) })
			}
			rest.Go(s.watch)
			time.AfterFunc(*concurrentFor, func() { close(s.stop) })
			inserting.Wait()
			rest.Wait()
			s.balance()
		})
	}
}

// show is goroutines at one table, which count for themselves.
type show struct {
	t      *testing.T
	table  *Table
	tokens *rollout.Rollout // of which all others are copies
	look   chan struct{}    // a version was made
	stop   chan struct{}

	inserted, ids   atomic.Int64 // rollouts; sum of their IDs
	used, returned  atomic.Int64 // draws
	updates         atomic.Int64
	versions, looks atomic.Int64
}

func (s *show) over() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// insert inserts groups of four rollouts of the table's version, each with an advantage of its own.
func (s *show) insert(random *rand.Rand) {
	for !s.over() {
		v := s.table.Version()
		versions := slices.Clone(s.tokens.Versions)
		for i, m := range s.tokens.Mask {
			if m == 1 {
				versions[i] = v
			}
		}
		g := rollout.Group{Size: 4}
		for range g.Size {
			r, advantage := *s.tokens, random.Float32()
			r.Versions, r.Advantage = versions, &advantage
			g.Rollouts = append(g.Rollouts, &r)
		}
		ids, err := s.table.Insert(ctx, g)
		if err != nil {
			s.t.Error(err)
			return
		}
		for _, id := range ids {
			s.ids.Add(int64(id))
		}
		s.inserted.Add(int64(len(ids)))
	}
}

// train samples or leases, and settles and updates. Every eighth batch of the first trainer makes a version.
func (s *show) train(trainer int) {
	req := rollout.Request{Size: prioritizedBatch, Shard: trainer % len(s.table.shards)}
	for n := 1; !s.over(); n++ {
		batch, err := s.deliver(req, n%4)
		if errors.Is(err, rollout.ErrStarved) {
			runtime.Gosched()
			continue
		}
		if err == nil {
			err = s.update(batch, n)
		}
		if err == nil && trainer == 0 && n%8 == 0 {
			err = s.advance()
		}
		if err != nil {
			s.t.Error(err)
			return
		}
	}
}

func (s *show) advance() error {
	v := s.versions.Add(1)
	select {
	case s.look <- struct{}{}:
	default:
	}
	return s.table.Advance(ctx, rollout.Version(v))
}

// deliver gets a batch in one of four ways.
func (s *show) deliver(req rollout.Request, way int) (*rollout.Batch, error) {
	if way > 1 {
		batch, err := s.table.Sample(ctx, req)
		if err == nil {
			s.used.Add(int64(req.Size))
			s.check(batch)
		}
		return batch, err
	}
	batch, err := s.table.Lease(ctx, req)
	if err != nil {
		return nil, err
	}
	s.check(batch)
	if way == 0 {
		s.returned.Add(int64(req.Size))
		return batch, s.table.Release(ctx, batch.ID)
	}
	s.used.Add(int64(req.Size))
	return batch, s.table.Acknowledge(ctx, batch.ID)
}

// check holds each draw against the rollout that it is of.
func (s *show) check(b *rollout.Batch) {
	for _, d := range b.Draws {
		made := d.Rollout.Versions[len(d.Rollout.Versions)-1]
		o := s.table.options
		switch {
		case d.Advantage != *d.Rollout.Advantage || d.Staleness != int32(b.Version-made) || d.Staleness < 0:
			s.t.Errorf("draw %+v at version %d is not of a rollout of version %d and advantage %v", d, b.Version, made,
				*d.Rollout.Advantage)
		case o.MaxStaleness > 0 && d.Staleness > int32(o.MaxStaleness), o.MaxUses > 0 && d.Uses >= int32(o.MaxUses):
			s.t.Errorf("draw %+v", d)
		case !(d.Probability > 0 && d.Probability <= 1+1e-12 && d.Weight >= 0 && d.Weight <= 1):
			s.t.Errorf("probability %v, weight %v", d.Probability, d.Weight)
		}
	}
}

// update gives a batch's rollouts new priorities, in one of two ways.
func (s *show) update(b *rollout.Batch, n int) error {
	s.updates.Add(int64(len(b.Draws)))
	priorities, feedback := make([]Priority, len(b.Draws)), make([]rollout.Feedback, len(b.Draws))
	for i, d := range b.Draws {
		x := float64(uint64(d.ID)*uint64(n)%97) / 97
		priorities[i] = Priority{d.ID, x}
		feedback[i] = rollout.Feedback{ID: d.ID, Staleness: d.Staleness, Advantage: rollout.Measured(x), Tokens: 900,
			RatioSum: 900, RatioSquares: 910}
	}
	if n%2 == 0 {
		return updateOf(s.table, priorities...)
	}
	return s.table.Report(ctx, feedback...)
}

// watch looks at the table while versions are made, and now and then takes a snapshot.
func (s *show) watch() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.look:
		}
		s.checkShares()
		if s.looks.Add(1)%16 == 1 {
			if err := s.table.Snapshot(io.Discard); err != nil {
				s.t.Error(err)
			}
		}
		if n := statsOf(s.table).Present; n > s.table.options.Capacity {
			s.t.Errorf("%d present", n)
		}
	}
}

// checkShares checks that the probabilities of each shard add up to 1 and that every base is one.
func (s *show) checkShares() {
	total, some := make([]float64, len(s.table.shards)), make([]bool, len(s.table.shards))
	for _, h := range s.table.Inspect().Held() {
		if !(h.Base > 0) {
			s.t.Errorf("rollout %d has base %v", h.ID, h.Base)
		}
		total[h.Shard] += h.Probability
		some[h.Shard] = some[h.Shard] || h.Probability > 0
	}
	for shard, sum := range total {
		if some[shard] && !(math.Abs(sum-1) < 1e-9) {
			s.t.Errorf("probabilities of shard %d add up to %v", shard, sum)
		}
	}
}

// balance compares the table's counts with the goroutines' own.
func (s *show) balance() {
	s.checkShares()
	st := statsOf(s.table)
	balance(s.t, st, 0)
	n := s.inserted.Load()
	switch {
	case st.Inserted != uint64(n) || s.ids.Load() != n*(n+1)/2:
		s.t.Errorf("inserted %d of %d, IDs add up to %d", st.Inserted, n, s.ids.Load())
	case st.Acknowledged != uint64(s.used.Load()) || st.Returned != uint64(s.returned.Load()):
		s.t.Errorf("acknowledged %d of %d, returned %d of %d", st.Acknowledged, s.used.Load(), st.Returned,
			s.returned.Load())
	case st.UpdatesIgnored > uint64(s.updates.Load()):
		s.t.Errorf("%d of %d updates ignored", st.UpdatesIgnored, s.updates.Load())
	case int64(st.Version) != s.versions.Load():
		s.t.Errorf("version %d of %d", st.Version, s.versions.Load())
	}
	if n == 0 || s.used.Load() == 0 {
		s.t.Errorf("nothing was done: %d inserted, %d draws used", n, s.used.Load())
	}
	s.t.Logf("%d rollouts inserted, %d draws used, %d given back, %d updates (%d of evicted rollouts), %d versions, "+
		"%d looks",
		n, s.used.Load(), s.returned.Load(), s.updates.Load(), st.UpdatesIgnored, st.Version, s.looks.Load())
}
