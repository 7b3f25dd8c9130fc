// Package journal keeps the content of a table in a log, so that it survives a crash.
//
// The table works in memory; the journal is written beside it. A [Journal] takes cuts of its table
// (replay.JournalView.Cut): all changes since the cut before, as of one moment. Each cut is appended to a [Log] whole
// or not at all, so the log always holds the table as of one moment: rollouts, their uses and priorities, the version,
// the batch ids of insertions, the statistics. Cuts are taken when somebody waits for one ([Journal.Commit],
// [Journal.Flush]), and every [Options].Interval. Callers that wait at the same time share a cut. While the log is
// synced, further cuts are encoded; they are then written together.
//
// [Sync] defines what an acknowledgement promises. [Create] begins a journal on disk; [Open] recovers a table from one
// and reports what it found. [Verify] reads a journal through, checks every checksum, and names what is damaged;
// [Journal.Scrub] does so while the journal works; [Salvage] writes what is intact into a new journal. [OpenIn] does
// what Create and Open do in a log that several machines hold.
//
// # The log
//
// A log is a sequence of messages. One kind is a folder of files (package segments), which knows what of it is on disk,
// and is read past what is damaged. The other is a JetStream stream of package cluster. A cut is one or several
// messages (cut.go). The log is trimmed at its front: what is still needed of the front comes again in a later cut
// (log.go). Reading the log from its front gives the table (fold.go).
//
// # Promises
//
// Invariant 6: what Commit, CommitUpTo or Flush returned for is recovered, as [Sync] promises; uses and priorities may
// be older by at most the interval. After a disk error nothing is acknowledged any more: the error is sticky. A full
// disk is the exception: what was written is taken back and the cuts are kept in order, callers get [ErrNoSpace], and
// everything is written once there is space. Invariant 11 is checked when a table is rebuilt.
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

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/service/journal/segments"
)

// ErrClosed is returned for calls after [Journal.Close].
var ErrClosed = errors.New("journal is closed")

// ErrNoSpace is returned while the disk is full. What the call waited for is kept in memory, and written once there is
// space: call again.
var ErrNoSpace = segments.ErrNoSpace

// Sync is what a journal promises of what it acknowledges.
type Sync string

// The promises.
const (
	// Always: what [Journal.Commit] returned for survives a crash of the process and a loss of power. One write for all
	// that wait is followed by one fdatasync.
	Always Sync = "always"

	// Interval: what [Journal.Commit] returned for was given to the operating system. It survives the end of the process,
	// kill -9 included. Every interval the log is synced. A loss of power loses at most what came after the last sync,
	// and leaves the table as of a moment after that.
	Interval Sync = "interval"

	// Off: as Interval, but the log is synced by [Journal.Flush], at the end, and before it is trimmed only.
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
	Path        string        // of the folder
	Sync        Sync          // "": DefaultSync
	Interval    time.Duration // between cuts that nobody waits for: of uses, priorities, versions; 0: DefaultInterval
	LockTimeout time.Duration // to wait for another process to close the journal; 0: DefaultLockTimeout

	// NoSpace is called when a write finds the disk full, before it is tried once more: to make space. nil: nothing is
	// done.
	NoSpace func(error)

	// Experts is a folder for the routed experts of rollouts, for a journal in a [Log] of others: they are some 30 times
	// as large as all else of a rollout, and the log is written by several machines. They survive this process, not the
	// loss of this machine. "": they are in the log.
	Experts string

	Logger *slog.Logger // nil: nothing is logged
	Disk   disk.Files   // nil: the operating system's

	slack   int64 // of the log, for tests; 0: slackBytes
	segment int64 // of a full segment, for tests; 0: segments.FullBytes
	page    int64 // of memory, for tests; 0: the machine's
}

func (o Options) withDefaults() Options {
	o.Sync = cmp.Or(o.Sync, DefaultSync)
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.LockTimeout = cmp.Or(o.LockTimeout, DefaultLockTimeout)
	o.slack, o.segment = cmp.Or(o.slack, slackBytes), cmp.Or(o.segment, segments.FullBytes)
	o.page = cmp.Or(o.page, int64(os.Getpagesize()))
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Disk == nil {
		o.Disk = disk.Machine()
	}
	return o
}

func (o Options) segments() segments.Options {
	return segments.Options{Disk: o.Disk, Logger: o.Logger, LockTimeout: o.LockTimeout, FullBytes: o.segment,
		PageBytes: o.page}
}

// in returns the options of a journal in a log that others hold.
func (o Options) in(l Log) Options {
	o.Path, o.Sync = l.String(), Always
	return o.withDefaults()
}

// Validate returns all problems, joined.
func (o Options) Validate() error {
	o = o.withDefaults()
	var p option.Problems
	p.Check(o.Path != "", "path", `""`, "the folder of the journal")
	p.Check(o.Sync == Always || o.Sync == Interval || o.Sync == Off, "sync", o.Sync, "always, interval or off")
	p.Check(o.Interval > 0, "interval", o.Interval, "more than 0s")
	p.Check(o.LockTimeout > 0, "lock_timeout", o.LockTimeout, "more than 0s")
	return p.Err()
}

// Journal writes the changes of a table beside it. Its methods may be called concurrently.
type Journal struct {
	options    Options
	definition []byte
	log        Log
	files      *segments.Log // log, on disk; nil: others hold it
	writer     *logWriter
	arenas     sync.Pool // of *arena
	counters   counters

	mu      sync.Mutex
	waiting *round // callers that wait for the next cut; nil: none
	blobs   []*blob
	err     error  // sticky
	full    error  // why the last cuts could not be written, which wraps ErrNoSpace; nil: they were
	carry   carry  // for the next cut
	written func() // tells the table that the last cut that was written is on disk
	closing bool

	// How far the log has the table's rollouts, by their ids, which ascend.
	restores  int           // of the table; cuts from before the last say nothing of it
	cutTo     rollout.ID    // newest of the last cut
	committed rollout.ID    // newest of the last cut that was written
	moved     chan struct{} // closed and replaced when committed, full or err changes

	wake    chan struct{} // wakes cutLoop; holds one
	arrived chan struct{} // a caller began to wait for the disk; holds one
	settle  chan struct{} // wakes the goroutine that syncs and trims; holds one
	stop    chan struct{} // closed by Close
	done    chan struct{} // closed when all goroutines have ended
	queue   queue

	cutting   sync.Mutex                   // held by the goroutine that cuts; locked before all others
	table     atomic.Pointer[replay.Table] // changed with cutting
	states    replay.StateEncoder          // guarded by cutting
	lastState []byte                       // the table's, of the last cut; guarded by cutting
}

// round is the callers that wait for one cut.
type round struct {
	done    chan struct{}
	err     error
	sync    bool          // one of them wants it on disk, whatever Options.Sync
	rewrite *replay.Table // one of them wants the log to begin anew with this table
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
	last  []byte // guarded by cutting
	saved bool
}

// Create begins a journal of a table. Its content so far is on disk when Create returns. [Open] gives the definition
// back. Create refuses a path that exists. The table is tracked from now on and belongs to this journal alone.
func Create(o Options, definition []byte, t *replay.Table) (*Journal, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	l, err := segments.Create(o.Path, o.segments())
	var j *Journal
	if err == nil {
		j = newJournal(o, l, slices.Clone(definition), t)
		err = l.MoveInPlace(j.writeAll(nil))
	}
	if err != nil {
		return nil, fmt.Errorf("creating the journal %s: %w", o.Path, err)
	}
	j.start()
	return j, nil
}

func newJournal(o Options, l Log, definition []byte, t *replay.Table) *Journal {
	j := &Journal{
		options: o, definition: definition, log: l, writer: newLogWriter(l, o),
		arenas: sync.Pool{New: func() any { return newArena() }},
		wake:   make(chan struct{}, 1), arrived: make(chan struct{}, 1), settle: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}), moved: make(chan struct{}),
	}
	j.files, _ = l.(*segments.Log)
	j.table.Store(t)
	j.queue.work.L, j.queue.changed.L = &j.queue.mu, &j.queue.mu
	return j
}

// writeAll writes the whole table, with what others had attached, before the journal starts.
func (j *Journal) writeAll(blobs map[string][]byte) error {
	j.table.Load().JournalView().Track()
	b, err := j.cut(nil)
	if err != nil {
		return err
	}
	for name, value := range blobs {
		b.state = append(b.state, named{blobPrefix + name, value})
	}
	return j.writeFirst(b)
}

// writeFirst writes a cut before the journal starts.
func (j *Journal) writeFirst(b *batch) error {
	_, err := j.writer.write([]*batch{b}, true)
	if err == nil {
		b.onDisk()
		j.noteCommitted(b)
	}
	return err
}

// start starts the goroutines: one cuts and encodes, unless callers do, one writes what they do not, and one syncs what
// nobody waits for and trims the log.
func (j *Journal) start() {
	j.counters.verified()
	var both, last sync.WaitGroup
	both.Go(j.cutLoop)
	both.Go(j.writeLoop)
	last.Go(j.settleLoop)
	go func() {
		both.Wait()
		close(j.settle)
		last.Wait()
		close(j.done)
	}()
}

// Commit returns when everything that the table did before the call is as safe as [Options].Sync promises. After a disk
// error it returns that error; one that wraps [ErrNoSpace] passes once the disk has space. With another promise than
// Always the caller's goroutine may write for all that wait, and does not look at ctx meanwhile.
func (j *Journal) Commit(ctx context.Context) error { return j.wait(ctx, false) }

// CommitUpTo returns when all rollouts with ids up to last, which the table has given, are as safe as [Options].Sync
// promises: at once if they are, and otherwise with the first write that has them. Errors are as with [Journal.Commit].
func (j *Journal) CommitUpTo(ctx context.Context, last rollout.ID) error {
	for {
		j.mu.Lock()
		done, underWay, moved := j.committed >= last, j.cutTo >= last && j.full == nil && j.err == nil, j.moved
		j.mu.Unlock()
		if done {
			return nil
		}
		if !underWay {
			return j.Commit(ctx)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// noteCommitted notes that a cut was written, as [Options].Sync promises.
func (j *Journal) noteCommitted(b *batch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b.restores == j.restores {
		j.committed = b.upTo
	}
	j.wakeCommitters()
}

// wakeCommitters has callers of CommitUpTo look again. The caller must hold mu.
func (j *Journal) wakeCommitters() {
	close(j.moved)
	j.moved = make(chan struct{})
}

// Restored notes that the table is about to be restored, or was and has not been drawn from: nothing in it counts as
// committed until it is written anew. [Journal.Rewrite] is to follow.
func (j *Journal) Restored() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.restores++
	j.cutTo, j.committed = 0, 0
}

// Flush returns when everything that the table did before the call, and the attached blobs, are on disk, whatever
// [Options].Sync.
func (j *Journal) Flush(ctx context.Context) error { return j.wait(ctx, true) }

// Rewrite writes the whole of a table that was restored or replaced. From now on the journal is that table's. A crash
// leaves all of the old content or all of the new.
func (j *Journal) Rewrite(t *replay.Table) error {
	r, err := j.join(true, t)
	if err != nil {
		return err
	}
	signal(j.wake)
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
	// With Always the caller leaves the work to cutLoop and writeLoop: a sync takes long, and a caller whose ctx ends must
	// not be held by it. Otherwise it cuts and writes itself, which saves two wake-ups, unless somebody cuts already: that
	// cut may have been taken before this caller's change, so cutLoop takes another.
	if j.options.Sync == Always || !j.cutting.TryLock() {
		signal(j.wake)
		signal(j.arrived)
	} else {
		j.commitHere()
	}
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
// called by one goroutine at a time. [Recovery].Blobs holds it by name.
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

func (j *Journal) isClosing() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closing
}

// Full returns why the last cuts could not be written for lack of space, nil if they were. The error wraps
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
	j.wakeCommitters()
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
	j.wakeCommitters()
	j.mu.Unlock()
	if first {
		j.options.Logger.Error("the journal could not be written; no further request will be acknowledged", "path",
			j.options.Path, "error", err)
	}
	r.finish(err)
}

// Close flushes and closes the journal. It returns the error that stopped it, if one did.
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
	err := j.Err()
	if err == nil {
		err = j.log.Sync() // to state that all is synced
	}
	if j.files != nil {
		err = cmp.Or(err, j.files.Close())
	}
	if err != nil && j.Err() == nil {
		return fmt.Errorf("closing the journal %s: %w", j.options.Path, err)
	}
	return err
}

// Stats is the counts of a journal since it was opened.
type Stats struct {
	Path      string
	Sync      Sync
	Commits   uint64 // writes, each of all cuts that waited
	Rollouts  uint64 // written
	Removals  uint64 // written
	Uses      uint64 // written: changes of uses, priorities and marks
	Bytes     uint64 // of rollouts and uses written
	LogBytes  int64  // of the log
	Pending   int    // calls of Commit and Flush that wait
	Writes    []Latency
	WriteTime time.Duration // sum over all writes
	Err       error         // that stopped the journal
	Full      error         // see [Journal.Full]
	Verified  time.Time     // when the whole log was last read and checked: by Open, Scrub, or as it was written
	Damage    []Damage      // what scrubs found, at most 1,000
}

// Latency counts writes by duration, syncs included.
type Latency struct {
	UpTo  time.Duration // 0: unbounded
	Count uint64        // of writes longer than the entry before
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
	if st.LogBytes = j.writer.size.Load(); j.files != nil {
		st.LogBytes = j.files.Size()
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

// add counts one write.
func (c *counters) add(batches []*batch, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := &c.stats
	st.Commits++
	for _, b := range batches {
		st.Rollouts += uint64(b.rollouts)
		st.Removals += uint64(len(b.removed))
		st.Uses += uint64(len(b.uses))
		st.Bytes += uint64(b.bytes)
	}
	st.WriteTime += took
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
