// Package journal keeps the content of a table on disk, so that it survives a crash.
//
// The table works in memory; the journal is written beside it. A [Journal] takes cuts of its table
// (replay.JournalView.Cut): all changes since the cut before, as of one moment. Each cut is written in one transaction
// of a bbolt file, so the file always holds the table as of one moment: rollouts, their uses and priorities, the
// version, the batch ids of insertions, the statistics. Cuts are taken when somebody waits for one ([Journal.Commit],
// [Journal.Flush]), and every [Options].Interval. Callers that wait at the same time share a cut. While a transaction
// is synced, further cuts are encoded; they are then written together.
//
// [Sync] defines what an acknowledgement promises. [Create] begins a journal; [Open] recovers a table from one and
// reports what it found. [Verify] reads a file page by page, checks every checksum, and names what is damaged;
// [Journal.Scrub] does so while the journal works; [Salvage] writes what is intact into a new file.
//
// # The file
//
// There is one bbolt file per table, with four buckets: "rollouts" by id, written once, with their uses and priorities
// at that moment; "uses" by id, for rollouts in which those changed since; "requests", the remembered insertions, in
// order; and "state": the table's definition and state, the number of records in each bucket, and attached blobs. Every
// value is a record with a CRC-32C, because bbolt has none for its pages. A wrong branch page is detected by the order
// of the keys, by pages used twice, or by those numbers.
//
// bbolt maps the file into memory and trusts it: a damaged file can end the process. So [Open] first reads the file
// with a reader of this package, which trusts nothing, and refuses a damaged file.
//
// # Promises
//
// Invariant 6: what Commit or Flush returned for is recovered, as [Sync] promises; uses and priorities may be older by
// at most the interval. After a disk error nothing is acknowledged any more: the error is sticky. A full disk is the
// exception: its transaction is rolled back and its cuts are kept in order, callers get [ErrNoSpace], and everything is
// written once there is space. Invariant 11 is checked when a table is rebuilt. Space of removed rollouts is reused.
//
// A journal does not hold leased draws, which are released in a recovered table, or batches by request id.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout/option"
)

// ErrClosed is returned for calls after [Journal.Close].
var ErrClosed = errors.New("journal is closed")

// ErrNoSpace is returned while the disk is full. What the call waited for is kept in memory, and written once there is
// space: call again.
var ErrNoSpace = errors.New("the disk is full")

// Sync is what a journal promises of what it acknowledges.
type Sync string

// The promises.
const (
	// Always: what [Journal.Commit] returned for survives a crash of the process and a loss of power. Its transaction
	// is followed by fdatasync twice: after its pages, and after the page that makes them the file's content.
	Always Sync = "always"

	// Interval: what [Journal.Commit] returned for was given to the operating system, in a log beside the file. Every
	// interval it is written in one transaction, synced as with Always. It survives the end of the process, kill -9
	// included. A loss of power loses at most what came after the last transaction, and leaves the table as of a moment
	// after that.
	Interval Sync = "interval"

	// Off: what [Journal.Commit] returned for was given to the operating system, without fdatasync. It survives the end
	// of the process, kill -9 included. A loss of power may lose any of it, and may damage the file.
	Off Sync = "off"
)

// Values returns every promise.
func (Sync) Values() []string { return []string{string(Always), string(Interval), string(Off)} }

// Defaults of Options.
const (
	DefaultSync        = Always
	DefaultInterval    = time.Second
	DefaultLockTimeout = 2 * time.Second
)

// Options configure a journal. The zero value of every field but Path is its default.
type Options struct {
	Path        string        // of the file
	Sync        Sync          // "": DefaultSync
	Interval    time.Duration // between cuts that nobody waits for: of uses, priorities, versions; 0: DefaultInterval
	LockTimeout time.Duration // to wait for another process to close the file; 0: DefaultLockTimeout

	// NoSpace is called, by the journal's goroutine, when a transaction finds the disk full, before it is tried once
	// more: to make space. nil: nothing is done.
	NoSpace func(error)

	// Experts is a folder for the routed experts of rollouts, for a journal in a [Log]: they are some 30 times as large as
	// all else of a rollout, and the log is written by several machines. They survive this process, not the loss of this
	// machine. "": they are in the log.
	Experts string

	Logger *slog.Logger // nil: nothing is logged

	slack int64 // of a log, for tests; 0: slackBytes
}

func (o Options) withDefaults() Options {
	if o.Sync == "" {
		o.Sync = DefaultSync
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate returns all problems, joined.
func (o Options) Validate() error {
	o = o.withDefaults()
	var p option.Problems
	p.Check(o.Path != "", "path", `""`, "the file of the journal")
	p.Check(o.Sync == Always || o.Sync == Interval || o.Sync == Off, "sync", o.Sync, "always, interval or off")
	p.Check(o.Interval > 0, "interval", o.Interval, "more than 0s")
	p.Check(o.LockTimeout > 0, "lock_timeout", o.LockTimeout, "more than 0s")
	return p.Err()
}

// Journal writes the changes of a table beside it. Its methods may be called concurrently.
type Journal struct {
	options    Options
	definition []byte
	arenas     sync.Pool // of *arena
	counters   counters

	mu      sync.Mutex
	waiting *round // callers that wait for the next cut; nil: none
	blobs   []*blob
	err     error // sticky
	full    error // why the last transaction could not be written, which wraps ErrNoSpace; nil: it was
	closing bool

	wake    chan struct{} // wakes the goroutine that cuts; holds one
	arrived chan struct{} // a caller began to wait for the disk; holds one
	stop    chan struct{} // closed by Close
	done    chan struct{} // closed when both goroutines have ended
	queue   queue
	log     *cutLog    // with Interval, otherwise nil
	shared  *sharedLog // in the place of store; nil: a file
	carry   carry      // for the next cut; guarded by mu

	table     atomic.Pointer[replay.Table] // changed by the goroutine that cuts
	lastState []byte                       // the table's, of the last cut; only for the goroutine that cuts

	file   sync.RWMutex // guards store, which a rewrite replaces
	store  *store
	broken atomic.Bool // bbolt panicked, and may hold its locks for ever
}

// round is the callers that wait for one cut.
type round struct {
	done    chan struct{}
	err     error
	sync    bool          // one of them wants it on disk, whatever Options.Sync
	rewrite *replay.Table // one of them wants the file rewritten from this table
}

// finish wakes the callers. A nil round has none.
func (r *round) finish(err error) {
	if r != nil {
		r.err = err
		close(r.done)
	}
}

// blob is an attached state.
type blob struct {
	name  string
	save  func() ([]byte, error)
	last  []byte // only for the goroutine that cuts
	saved bool
}

// Create begins a journal of a table. Its content so far is in the file when Create returns. [Open] gives the
// definition back. Create refuses a file that exists. The table is tracked from now on and belongs to this journal
// alone.
func Create(o Options, definition []byte, t *replay.Table) (*Journal, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if _, err := os.Stat(o.Path); err == nil {
		return nil, fmt.Errorf("creating the journal %s: %w: open it, or give another path", o.Path, os.ErrExist)
	}
	j := newJournal(o, definition, t)
	t.JournalView().Track()
	b, err := j.cut(nil)
	if err != nil {
		return nil, err
	}
	if left, err := segmentsOf(o.Path); err != nil || len(left) > 0 {
		return nil, cmp.Or(err, fmt.Errorf("creating the journal %s: %s is the log of a journal that was there: put "+
			"that journal back, or remove its log", o.Path, left[0].path))
	}
	s, err := writeAnew(o.Path, definition, o.LockTimeout, b, false)
	if err != nil {
		return nil, err
	}
	return j, j.start(s)
}

func newJournal(o Options, definition []byte, t *replay.Table) *Journal {
	j := &Journal{
		options: o, definition: slices.Clone(definition), arenas: sync.Pool{New: func() any { return newArena() }},
		wake: make(chan struct{}, 1), arrived: make(chan struct{}, 1), stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	j.table.Store(t)
	j.queue.changed.L = &j.queue.mu
	return j
}

// start starts the two goroutines: one cuts and encodes, the other writes.
func (j *Journal) start(s *store) error {
	if j.options.Sync == Interval {
		if err := s.beginLog(); err != nil {
			return errors.Join(err, s.db.Close())
		}
		j.log = newCutLog(j.options.Path, s.position)
	}
	j.store = s
	j.counters.verified(nil)
	var both sync.WaitGroup
	both.Go(j.cutLoop)
	both.Go(j.writeLoop)
	go func() {
		both.Wait()
		close(j.done)
	}()
	return nil
}

// Commit returns when everything that the table did before the call is as safe as [Options].Sync promises. After a disk
// error it returns that error; one that wraps [ErrNoSpace] passes once the disk has space.
func (j *Journal) Commit(ctx context.Context) error { return j.wait(ctx, false) }

// Flush returns when everything that the table did before the call, and the attached blobs, are on disk, whatever
// [Options].Sync.
func (j *Journal) Flush(ctx context.Context) error { return j.wait(ctx, true) }

// Rewrite writes the file anew from a table that was restored or replaced. From now on the journal is that table's. A
// crash leaves all of the old content or all of the new.
func (j *Journal) Rewrite(t *replay.Table) error {
	r, err := j.join(true, t)
	if err != nil {
		return err
	}
	<-r.done
	return r.err
}

// wait waits until the next cut is written.
func (j *Journal) wait(ctx context.Context, sync bool) error {
	j.counters.waiting.Add(1)
	defer j.counters.waiting.Add(-1)
	r, err := j.join(sync, nil)
	if err != nil {
		return err
	}
	signal(j.arrived)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join joins the round of the next cut.
func (j *Journal) join(sync bool, rewrite *replay.Table) (*round, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return nil, j.err
	}
	if j.closing {
		return nil, ErrClosed
	}
	if j.waiting == nil {
		j.waiting = &round{done: make(chan struct{})}
	}
	r := j.waiting
	r.sync = r.sync || sync
	if rewrite != nil {
		r.rewrite = rewrite
	}
	signal(j.wake)
	return r, nil
}

// signal sends on a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Attach saves a small blob of others whenever it has changed: with flushes, every interval, and at the end. save is
// called from the journal's goroutine. [Recovery].Blobs holds it by name.
func (j *Journal) Attach(name string, save func() ([]byte, error)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.blobs = append(j.blobs, &blob{name: name, save: save})
}

// Err returns the error that stopped the journal, nil while it works.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Full returns why the last transaction could not be written for lack of space, nil if it was written. The error wraps
// [ErrNoSpace].
func (j *Journal) Full() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.full
}

func (j *Journal) setFull(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if changed := (err == nil) != (j.full == nil); changed && err != nil {
		j.options.Logger.Error("the journal waits for space; nothing is acknowledged meanwhile", "error", err)
	} else if changed {
		j.options.Logger.Info("the journal has space again and has written everything", "path", j.options.Path)
	}
	j.full = err
}

// fail stops the journal with an error and passes it to all that wait.
func (j *Journal) fail(err error) {
	j.mu.Lock()
	first := j.err == nil
	if first {
		j.err = err
	}
	r := j.waiting
	j.waiting = nil
	j.mu.Unlock()
	if first {
		j.options.Logger.Error("the journal could not be written; no further request will be acknowledged", "path",
			j.options.Path, "error", err)
	}
	r.finish(err)
}

// Close flushes and closes the file. It returns the error that stopped the journal, if one did.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closing {
		j.mu.Unlock()
		<-j.done
		return j.Err()
	}
	j.closing = true
	close(j.stop)
	j.mu.Unlock()
	<-j.done
	j.file.Lock()
	defer j.file.Unlock()
	var err error
	if j.store != nil && !j.broken.Load() {
		err = j.store.db.Close()
	}
	j.store = nil
	if j.log != nil {
		j.log.endSegment()
	}
	if sticky := j.Err(); sticky != nil {
		return sticky
	}
	if err != nil {
		return fmt.Errorf("closing the journal %s: %w", j.options.Path, err)
	}
	return nil
}

// Stats is the counts of a journal since it was opened.
type Stats struct {
	Path      string
	Sync      Sync
	Commits   uint64 // transactions
	Rollouts  uint64 // written
	Removals  uint64 // written
	Uses      uint64 // written: changes of uses, priorities and marks
	Bytes     uint64 // of records written
	FileBytes int64  // of the file
	FreeBytes int64  // of them, to be reused
	Pending   int    // calls of Commit and Flush that wait
	Writes    []Latency
	WriteTime time.Duration // sum over all transactions
	LastWrite time.Time     // end of the last transaction; zero before the first
	Err       error         // that stopped the journal
	Full      error         // see [Journal.Full]
	Verified  time.Time     // when the whole file was last read and checked: by Open, Scrub, or as it was written
	Damage    []Damage      // what scrubs found, at most 1,000
}

// Latency counts transactions by duration, syncs included.
type Latency struct {
	UpTo  time.Duration // 0: unbounded
	Count uint64        // of transactions longer than the entry before
}

// Latencies double from 128 us to 8.4 s. The last is unbounded.
const (
	minLatency = 128 * time.Microsecond
	latencies  = 18
)

// Stats returns the counts.
func (j *Journal) Stats() Stats {
	st := j.counters.snapshot()
	st.Path, st.Sync, st.Err, st.Full = j.options.Path, j.options.Sync, j.Err(), j.Full()
	j.file.RLock()
	defer j.file.RUnlock()
	if j.store != nil {
		st.FileBytes, st.FreeBytes = j.store.size()
	} else if j.shared != nil {
		st.FileBytes = j.shared.size.Load()
	}
	return st
}

// counters collects Stats.
type counters struct {
	waiting atomic.Int64

	mu     sync.Mutex
	stats  Stats
	counts [latencies]uint64
}

// add counts one transaction.
func (c *counters) add(batches []*batch, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := &c.stats
	st.Commits++
	for _, b := range batches {
		st.Rollouts += uint64(len(b.rollouts) + len(b.all))
		st.Removals += uint64(len(b.removed))
		st.Uses += uint64(len(b.uses))
		st.Bytes += uint64(b.bytes)
	}
	st.WriteTime += took
	st.LastWrite = time.Now()
	i := 0
	for limit := minLatency; took > limit && i < latencies-1; limit *= 2 {
		i++
	}
	c.counts[i]++
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.Pending = int(c.waiting.Load())
	limit := minLatency
	for i, n := range c.counts {
		if i == latencies-1 {
			limit = 0
		}
		st.Writes = append(st.Writes, Latency{limit, n})
		limit *= 2
	}
	return st
}
