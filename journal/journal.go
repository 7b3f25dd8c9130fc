package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprise-rl/reprise/replay"
)

// ErrClosed is returned by what is asked of a journal after [Journal.Close].
var ErrClosed = errors.New("journal is closed")

// Journal writes what a table does beside it. Its methods may be called concurrently.
type Journal struct {
	options    Options
	definition []byte
	encoder    *encoder
	counters   counters

	mu      sync.Mutex
	waiting *round // who waits for the next cut; nil: nobody
	blobs   []*blob
	err     error         // sticky
	failed  chan struct{} // closed with err
	closing bool

	wake    chan struct{} // of the goroutine that cuts; holds one
	arrived chan struct{} // somebody waits for the disk; holds one
	stop    chan struct{} // closed by Close
	done    chan struct{} // closed when both goroutines have ended
	line    line

	table atomic.Pointer[replay.Table] // changed by the goroutine that cuts
	books []byte                       // as cut last; of the goroutine that cuts

	file   sync.RWMutex // over store, which a rewriting replaces: backups read it
	store  *store
	broken atomic.Bool // bbolt panicked, and may hold its locks for ever
}

// round is those who wait for the same cut.
type round struct {
	done    chan struct{}
	err     error
	sync    bool          // somebody wants it on disk, whatever Options.Sync
	rewrite *replay.Table // somebody wants everything anew, of this table
}

// blob is small state of others that is saved with flushes.
type blob struct {
	name string
	save func() ([]byte, error)
	last []byte // of the goroutine that cuts
	told bool
}

// Create begins a journal of a table, whose content so far is in the file when it returns. The definition is kept for [Open]. It
// refuses a file that exists. The table is tracked from now on, and belongs to this journal alone.
func Create(o Options, definition []byte, t *replay.Table) (*Journal, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if _, err := os.Stat(o.Path); err == nil {
		return nil, fmt.Errorf("creating the journal %s: %w: open it, or give another path", o.Path, os.ErrExist)
	}
	j := newJournal(o, definition, t)
	t.Durable().Track()
	b, err := j.cut(nil)
	if err != nil {
		return nil, err
	}
	s, err := writeAnew(o.Path, definition, o.LockTimeout, j.encoder, b, false)
	if err != nil {
		return nil, err
	}
	j.begin(s)
	return j, nil
}

func newJournal(o Options, definition []byte, t *replay.Table) *Journal {
	j := &Journal{
		options: o, definition: slices.Clone(definition), encoder: newEncoder(),
		failed: make(chan struct{}), wake: make(chan struct{}, 1), arrived: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	j.table.Store(t)
	j.line.init()
	return j
}

// begin starts the two goroutines: one cuts and encodes, the other writes.
func (j *Journal) begin(s *store) {
	j.store = s
	var both sync.WaitGroup
	both.Go(j.cutting)
	both.Go(j.writing)
	go func() {
		both.Wait()
		close(j.done)
	}()
}

// Commit returns when all that the table did before the call is as safe as [Options].Sync promises: with [Interval] at once,
// unless so much waits to be written that memory would run out. Once the disk has failed it returns that error.
func (j *Journal) Commit(ctx context.Context) error {
	if j.options.Sync != Interval {
		return j.wait(ctx, false)
	}
	switch pending := j.table.Load().Durable().Pending(); {
	case pending > 4*early:
		return j.wait(ctx, false)
	case pending > early:
		_, err := j.join(false, nil)
		return err
	}
	return j.Err()
}

// early is how many bytes of rollouts are written before the interval is over.
const early = 64 << 20

// Flush returns when all that the table did before the call, and the attached blobs, are on disk, whatever [Options].Sync.
func (j *Journal) Flush(ctx context.Context) error { return j.wait(ctx, true) }

// Rewrite writes everything anew, of a table that was restored or replaced: after it the journal is of t. A crash finds all of
// the old content or all of the new.
func (j *Journal) Rewrite(t *replay.Table) error {
	r, err := j.join(true, t)
	if err != nil {
		return err
	}
	<-r.done
	return r.err
}

func (j *Journal) wait(ctx context.Context, sync bool) error {
	j.counters.waiting.Add(1)
	defer j.counters.waiting.Add(-1)
	r, err := j.join(sync, nil)
	if err != nil {
		return err
	}
	select {
	case j.arrived <- struct{}{}:
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join waits for a cut that is not taken yet.
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
	select {
	case j.wake <- struct{}{}:
	default:
	}
	return r, nil
}

// Attach has a small blob of others saved whenever it changed: with flushes, every interval, and at the end. Save is called from
// the journal's goroutine. [Recovery].Blobs gives it back under its name.
func (j *Journal) Attach(name string, save func() ([]byte, error)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.blobs = append(j.blobs, &blob{name: name, save: save})
}

// Err returns the error that ended the journal's work; nil while it works.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Failed is closed when the journal can write no more; Err says why.
func (j *Journal) Failed() <-chan struct{} { return j.failed }

// fail makes an error stick, and gives it to those who wait.
func (j *Journal) fail(err error) {
	j.mu.Lock()
	first := j.err == nil
	if first {
		j.err = err
		close(j.failed)
	}
	r := j.waiting
	j.waiting = nil
	j.mu.Unlock()
	if first {
		j.options.Logger.Error("the journal can write no more; nothing is acknowledged from now on", "path", j.options.Path, "error", err)
	}
	r.finish(err)
}

func (r *round) finish(err error) {
	if r != nil {
		r.err = err
		close(r.done)
	}
}

// Backup writes a consistent copy of the file, as of the last transaction, while the journal goes on; until it ends, space
// that is freed is not used again, and rewritings wait. It returns the bytes written.
func (j *Journal) Backup(w io.Writer) (n int64, err error) {
	j.file.RLock()
	defer j.file.RUnlock()
	if j.store == nil {
		return 0, ErrClosed
	}
	if j.broken.Load() {
		return 0, j.Err()
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("backing up the journal %s: %v", j.options.Path, p)
		}
	}()
	tx, err := j.store.db.Begin(false)
	if err != nil {
		return 0, fmt.Errorf("backing up the journal %s: %w", j.options.Path, err)
	}
	n, err = tx.WriteTo(w)
	if err = errors.Join(err, tx.Rollback()); err != nil {
		return n, fmt.Errorf("backing up the journal %s: %w", j.options.Path, err)
	}
	return n, nil
}

// Close flushes, and gives the file up. It returns the error that ended the journal's work, if one did.
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
	if !j.broken.Load() {
		err = j.store.db.Close()
	}
	j.store = nil
	if sticky := j.Err(); sticky != nil {
		return sticky
	}
	if err != nil {
		return fmt.Errorf("closing the journal %s: %w", j.options.Path, err)
	}
	return nil
}
