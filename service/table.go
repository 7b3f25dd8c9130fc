package service

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// table is a served table: a replay.Table by name, with its journal, limiter, gate, leases and counters.
//
// Lock order: life, then those of the parts. Nobody waits for anything while holding life.
type table struct {
	*definition
	service  *Service
	created  time.Time
	rollouts *replay.Table
	journal  *journal.Journal // nil: not durable
	prompts  *prompts.Buffer  // nil: no prompt replay
	limiter  *limiter         // nil: none

	life    sync.RWMutex // every operation holds it for reading; restore, rewind and drop for writing
	dropped atomic.Bool  // set under life
	gate    atomic.Pointer[gate]

	lines     *lines    // who waits
	leases    leases    // batches by the call that holds them
	inserting batchIDs  // of insertions in flight
	reports   reportIDs // of reports that counted
	meter     meter

	searching *semaphore.Weighted // one search at a time

	counting          sync.Mutex    // guards heldBytes
	heldBytes         int64         // its part of Service.tableMemory
	consumed, flushed atomic.Uint64 // times that rollouts left a queue for good, and how many of them are on disk

	rewarding atomic.Int64 // calls that give rewards and have not seen their commit
	failed    atomic.Int64 // of those, how many ended without one since the last that a draw saw
}

// create creates a table, if there may be another, or returns the existing one if it has the same definition.
func (s *Service) create(w wire.Table, most int) (*table, error) {
	d, err := define(w)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	if t, err := s.table(w.Name); err == nil {
		return t, t.checkSame(w, d)
	}
	if n := len(s.list()); n >= most { // admin is held: no other is created meanwhile
		return nil, tooManyTables(w.Name, n)
	}
	if d.CapacityBytes == 0 {
		d.CapacityBytes = s.tableMemory.most / (defaultTables + 1)
	}
	fixed := d.fixedBytes()
	if err := s.tableMemory.grow(fixed); err != nil {
		return nil, fmt.Errorf("shards: %d, history: %d: %w", d.Shards, d.History, err)
	}
	defer s.tableMemory.add(-fixed) // recount charges it
	store, err := replay.New(s.replayOptions(d))
	if err != nil {
		return nil, err
	}
	t := s.newTable(d, store)
	if err := t.loadJournaled(nil); err != nil {
		return nil, err
	}
	if s.options.Data != "" {
		if err := s.space.check(); err != nil {
			return nil, err
		}
		text, err := d.text()
		if err != nil {
			return nil, err
		}
		if t.journal, err = journal.Create(s.journalOptions(w.Name), text, store); err != nil {
			return nil, t.journalError(err)
		}
		t.attachToJournal()
	}
	t.recount()
	s.mu.Lock()
	s.tables[w.Name] = t
	s.mu.Unlock()
	s.log.Info("table created", "table", w.Name, "sampler", d.Sampler, "capacity", d.Capacity, "durable",
		t.journal != nil)
	return t, nil
}

func tooManyTables(name string, n int) error {
	return wire.Errorf(wire.Invalid, "table %q: there are %d tables already: drop some, or raise max_tables", name, n)
}

// checkSame refuses to create a table again with another definition, d, which is complete. Of what differs it names the
// keys that were given. It names defaults only if they are all that differs: they may follow from what was given.
func (t *table) checkSame(given wire.Table, d *definition) error {
	again := d.Table
	again.CapacityBytes = cmp.Or(again.CapacityBytes, t.CapacityBytes) // not given: what the table got
	said := make(map[string]bool)
	for _, key := range option.Differences(given, wire.Table{}) {
		said[key.Key] = true
	}
	var told, left []string
	for _, f := range option.Differences(again, t.Table) {
		if said[f.Key] {
			told = append(told, fmt.Sprintf("%s is %s, the table's is %s", f.Key, f.A, f.B))
		} else {
			left = append(left, fmt.Sprintf("%s was not given, the table's is %s", f.Key, f.B))
		}
	}
	if len(told) == 0 {
		told = left
	}
	if len(told) == 0 {
		return nil
	}
	return wire.Errorf(wire.Exists, "table %q exists with another definition: %s: use that definition, choose another "+
		"name, or drop the table", t.Name, strings.Join(told, "; "))
}

// reopen recovers a table from its journal.
func (s *Service) reopen(name string) (*table, error) {
	var d *definition
	j, store, found, err := journal.Open(s.journalOptions(name), func(text []byte) (t *replay.Table, err error) {
		if d, err = readDefinition(text); err != nil {
			return nil, err
		}
		return replay.New(s.replayOptions(d))
	})
	if err != nil {
		return nil, err
	}
	t := s.newTable(d, store)
	t.journal = j
	if name != t.Name {
		err = fmt.Errorf("the journal holds table %q: want it to be named %s", t.Name, s.journalPath(t.Name))
	} else {
		err = t.loadJournaled(found.Blobs)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	t.attachToJournal()
	t.recount()
	s.log.Info("table recovered", "table", t.Name, "found", found.String())
	return t, nil
}

func (s *Service) newTable(d *definition, store *replay.Table) *table {
	t := &table{definition: d, service: s, created: s.options.Clock(), rollouts: store,
		lines: newLines(s.options.MaxWaiting), searching: semaphore.NewWeighted(1)}
	if d.Limiter != nil {
		t.limiter = newLimiter(*d.Limiter, d.MinSize)
	}
	return t
}

func (s *Service) replayOptions(d *definition) replay.Options {
	o := d.Options
	o.Clock = s.options.Clock
	return o
}

func (s *Service) journalOptions(table string) journal.Options {
	return journal.Options{Path: s.journalPath(table), Sync: s.options.Sync, Interval: s.options.Interval,
		NoSpace: s.space.raise, Logger: s.log.With("table", table), Disk: s.options.Disk}
}

// What a journal keeps besides the table, by name.
const (
	gateBlob    = "gate"
	promptsBlob = "prompts"
)

// attachToJournal has the journal keep the gate's count and the prompts.
func (t *table) attachToJournal() {
	attach := func(name string, write func(*bytes.Buffer) error) {
		t.journal.Attach(name, func() ([]byte, error) {
			var b bytes.Buffer
			err := write(&b)
			return b.Bytes(), err
		})
	}
	attach(gateBlob, func(b *bytes.Buffer) error { return t.gateSnapshot().write(b) })
	if t.prompts != nil {
		attach(promptsBlob, func(b *bytes.Buffer) error { return t.prompts.Snapshot(b) })
	}
}

// loadJournaled makes the gate and the prompts, with what a journal kept of them. The prompts may be older than the
// table by the journal's interval.
func (t *table) loadJournaled(blobs map[string][]byte) (err error) {
	var g gateSnapshot
	if saved := blobs[gateBlob]; len(saved) > 0 {
		if g, err = readGateSnapshot(bytes.NewReader(saved)); err != nil {
			return err
		}
	}
	// Grant numbers begin at the time since 1970 in units of 10 us: no earlier process reached that number, and it stays
	// below 2^48, as ids of a part must.
	first := uint64(max(t.now().UnixMicro()/10, 1))
	t.gate.Store(newGate(t.Gate, g.countFor(t), first))
	if t.Prompts == nil {
		return nil
	}
	if t.prompts, err = prompts.New(*t.Prompts); err != nil {
		return err
	}
	if saved := blobs[promptsBlob]; len(saved) > 0 {
		return t.prompts.Restore(bytes.NewReader(saved))
	}
	return nil
}

// wakeInsertions has insertions into all tables tried again.
func (s *Service) wakeInsertions() {
	for _, t := range s.list() {
		t.lines.roomChanged()
	}
}

// drop removes a table and its journal. Whoever waits for the table gets an error.
func (s *Service) drop(name string) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	t, err := s.table(name)
	if err != nil {
		return err
	}
	s.forget(t)
	defer s.log.Info("table dropped", "table", name)
	if t.journal == nil {
		return nil
	}
	if err := t.journal.Close(); err != nil {
		s.log.Warn("closing the journal of a dropped table", "table", name, "error", err)
	}
	if err := journal.Remove(s.journalOptions(name)); err != nil {
		return wire.Errorf(wire.Failed, "%s", err)
	}
	return nil
}

// forget stops serving a table. Whoever waits for it gets an error.
func (s *Service) forget(t *table) {
	t.life.Lock()
	t.dropped.Store(true)
	t.leases.endAll()
	t.life.Unlock()
	s.tableMemory.add(-t.heldBytes)
	s.mu.Lock()
	delete(s.tables, t.Name)
	s.mu.Unlock()
	t.notifyAll()
}

// unlessDropped runs an operation, which must not block, unless the table was dropped or another node may own it.
func (t *table) unlessDropped(operation func() error) error {
	t.life.RLock()
	defer t.life.RUnlock()
	if err := t.gone(); err != nil {
		return err
	}
	return operation()
}

// gone returns an error if the table was dropped, or another node owns it or may own it.
func (t *table) gone() error {
	if t.dropped.Load() {
		return t.service.elsewhere(t.Name)
	}
	return t.service.checkLease()
}

// allowedStill returns an error unless a stream may go on with the table: since the stream began the caller's token may
// have been revoked, and the table dropped. If another has its name by now, the caller reaches that by a new stream.
func (t *table) allowedStill(ctx context.Context, right wire.Right) error {
	now, err := t.service.allowed(ctx, t.Name, right)
	if err == nil && now != t {
		err = wire.Errorf(wire.Closing, "table %q was dropped and created again: open another stream", t.Name)
	}
	return err
}

func notFound(name string) error {
	return wire.Errorf(wire.NotFound,
		"table %q: there is none of that name: create it, or name one of the tables listed", name)
}

func (t *table) now() time.Time { return t.service.options.Clock() }

func (t *table) version() rollout.Version { return t.rollouts.Version() }

// notifyAll wakes the first of each line, after a change that may help any of them.
func (t *table) notifyAll() {
	t.lines.roomChanged()
	t.lines.rolloutsChanged()
}

// commit waits until the changes so far are as safe as the journal's sync promises.
func (t *table) commit(ctx context.Context) error {
	if t.journal == nil {
		return nil
	}
	return t.journalError(t.journal.Commit(ctx))
}

// raise sets a to n unless it is greater.
func raise(a *atomic.Uint64, n uint64) {
	for at := a.Load(); at < n && !a.CompareAndSwap(at, n); at = a.Load() {
	}
}

// commitShown waits until the rollouts with ids up to last are committed, before they are drawn or exported, and so are
// the rewards that were given. Without it a crash could undo an insertion whose rollouts were seen, and the repeated
// insertion would bring them again under other ids; or a reward that let a group be drawn.
func (t *table) commitShown(ctx context.Context, last rollout.ID) error {
	if t.journal == nil {
		return nil
	}
	failed := t.failed.Load()
	if failed == 0 && t.rewarding.Load() == 0 {
		return t.journalError(t.journal.CommitUpTo(ctx, last))
	}
	err := t.commit(ctx)
	if err == nil {
		t.failed.CompareAndSwap(failed, 0) // unless another failed meanwhile
	}
	return err
}

// commitSaved is commitShown for exports and checkpoints. They save all that there is once the journal of a service
// alone has failed: that is the remedy, and nobody else goes on with the table.
func (t *table) commitSaved(ctx context.Context, last rollout.ID) error {
	err := t.commitShown(ctx, last)
	if err != nil && t.journal.Err() != nil && t.service.options.Cluster == nil {
		return nil
	}
	return err
}

// newestOf returns the greatest id of draws.
func newestOf(draws []rollout.Draw) (id rollout.ID) {
	for i := range draws {
		id = max(id, draws[i].ID)
	}
	return id
}

// flushConsumed waits until the journal has on disk what left a queue for good, so that no crash brings it back.
func (t *table) flushConsumed(ctx context.Context) error {
	if t.journal == nil {
		return nil
	}
	upTo := t.consumed.Load()
	if t.flushed.Load() >= upTo {
		return nil
	}
	if err := t.journal.Flush(ctx); err != nil {
		return t.journalError(err)
	}
	raise(&t.flushed, upTo)
	return nil
}

// checkJournal returns an error if the journal has failed, or a disk is full: then nothing may enter that it could
// not keep.
func (t *table) checkJournal() error {
	if t.journal == nil {
		return nil
	}
	if err := t.journalError(t.journal.Err()); err != nil {
		return err
	}
	return t.service.checkDisk()
}

// journalError turns an error of the journal into one for callers. A closed journal means that the table was dropped or
// the service stops.
func (t *table) journalError(err error) error {
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, journal.ErrClosed) && t.service.stopping():
		return errInterrupted()
	case errors.Is(err, journal.ErrClosed) && t.dropped.Load() && t.service.options.Cluster == nil:
		return notFound(t.Name)
	}
	if errors.Is(err, journal.ErrNoSpace) {
		return wire.Errorf(wire.DiskFull, "journal: %s; it is not known to be on disk: repeat the call, under its "+
			"batch_id if it has one", err)
	}
	if t.service.options.Cluster != nil {
		return wire.Errorf(wire.Interrupted, "table %q: this node gives it to another: %s: repeat the call, under its "+
			"batch_id if it has one", t.Name, err)
	}
	return wire.Errorf(wire.Failed, "journal: %s", err)
}

// info is the answer of most actions.
func (t *table) info() wire.TableInfo {
	_ = t.unlessDropped(func() error { // the action may have evicted
		t.recount()
		return nil
	})
	f := t.rollouts.ServiceView().Flow()
	return wire.TableInfo{Table: t.Name, Version: int32(t.rollouts.Version()), Present: f.Present, Bytes: f.Bytes}
}

// present is the number of rollouts in the table.
func (t *table) present() int { return t.rollouts.ServiceView().Flow().Present }
