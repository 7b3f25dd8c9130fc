package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/internal/faults"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// batch is a cut of the table that is encoded, or partly.
type batch struct {
	round *round // the callers that wait for it; nil: none
	sync  bool   // whatever Options.Sync says
	timed bool   // an interval is over

	rewrite  bool            // the cut replaces all content
	all      []replay.Stored // of such a cut; encoded when written, because it may be the whole table
	messages []message       // the rollouts of another
	uses     []replay.Usage
	removed  []rollout.ID
	requests []replay.Insertion
	keep     int     // number of requests to keep, the latest ones
	state    []named // changed values of the table's state and blobs
	carried  uint64  // the rollouts of the log before this position are in the table no more, or in this cut
	flags    byte
	begun    *cut // the part that is in the log; nil: none
	inLog    bool
	onDisk   func()     // tells the table
	upTo     rollout.ID // newest that the table had given
	restores int        // of the table until then

	rollouts int   // written
	bytes    int64 // of rollouts and uses
	arena    *arena
	apart    []replay.Stored // the rollouts whose routed experts are apart
}

// batchMemory is what a batch takes besides its records, about.
const batchMemory = 1 << 10

// memory returns the bytes that a batch holds, about.
func (b *batch) memory() int64 {
	n := batchMemory + len(b.uses)*useLength + 8*len(b.removed)
	if b.arena != nil {
		for i := range b.arena.packers {
			n += cap(b.arena.packers[i].memory)
		}
	}
	for i := range b.requests {
		n += batchMemory/16 + len(b.requests[i].BatchID)
	}
	for _, en := range b.state {
		n += len(en.key) + len(en.value)
	}
	for i := range b.apart {
		n += 2 * len(b.apart[i].Rollout.RoutedExperts)
	}
	return int64(n)
}

func (b *batch) empty() bool {
	return !b.rewrite && len(b.messages)+len(b.uses)+len(b.removed)+len(b.requests)+len(b.state) == 0
}

// rest encodes what is not in messages yet.
func (b *batch) rest() ([]message, error) {
	var p packer
	var err error
	var scratch []byte
	for i := range b.uses {
		scratch = appendUse(scratch[:0], &b.uses[i])
		err = errors.Join(err, p.add(kindUse, scratch))
	}
	for _, id := range b.removed {
		scratch = binary.LittleEndian.AppendUint64(scratch[:0], uint64(id))
		err = errors.Join(err, p.add(kindRemoval, scratch))
	}
	for i := range b.requests {
		scratch = appendRequest(scratch[:0], &b.requests[i])
		err = errors.Join(err, p.add(kindRequest, scratch))
	}
	for _, en := range b.state {
		err = errors.Join(err, p.addState(en.key, en.value))
	}
	return p.messages(), err
}

// queueBytes is how many bytes of records may wait in the queue.
const queueBytes = 64 << 20

// queue holds encoded batches until they are written, in order. Encoding goes on while the disk is busy, and everything
// that arrived meanwhile is written at once.
//
// Batches that found the disk full come back, and are held until [queue.again]. No cuts are taken meanwhile: the table
// itself notes what changes, so that only what was cut already is held.
type queue struct {
	mu      sync.Mutex
	work    sync.Cond // wakes the goroutine that writes
	changed sync.Cond // wakes the others
	batches []*batch
	bytes   int64
	writing bool      // somebody writes
	held    bool      // for lack of space
	retry   time.Time // not before, while held
	ended   bool      // no more will come
	broken  bool      // no more will be written
}

// begin reports whether the caller may write a batch at once, as nothing is queued or written. If so [queue.done] must
// follow.
func (q *queue) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) > 0 || q.writing || q.broken || q.ended {
		return false
	}
	q.writing = true
	return true
}

// done ends the writing of what was taken, or of what [queue.begin] allowed.
func (q *queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing = false
	q.changed.Broadcast()
	if len(q.batches) > 0 || q.ended {
		q.work.Signal()
	}
}

// push adds a batch once there is room, or at once while batches are held: then it is held too. It reports whether the
// batch will be written.
func (q *queue) push(b *batch) (ok, held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.batches) > 0 && q.bytes+b.memory() > queueBytes && !q.broken && !q.held {
		q.changed.Wait()
	}
	if q.broken || q.ended { // nobody would write it
		return false, false
	}
	q.batches = append(q.batches, b)
	q.bytes += b.memory()
	q.work.Signal()
	return true, q.held
}

// take takes all batches, which the caller writes. With wait it waits for one that is not held, and until nobody else
// writes; it returns none only after the end.
func (q *queue) take(wait bool) []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	for wait && (q.writing || (len(q.batches) == 0 || q.held) && !q.ended) {
		q.work.Wait()
	}
	all := q.batches
	q.batches, q.bytes, q.held, q.writing = nil, 0, false, true
	q.changed.Broadcast()
	return all
}

// hold puts batches back, before those that came since, until [queue.again], at the earliest after pause. It returns
// all that are held, none after the end: then nobody would ask for them again.
func (q *queue) hold(batches []*batch, pause time.Duration) []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return nil
	}
	q.batches = append(batches, q.batches...)
	q.bytes = 0
	for _, b := range q.batches {
		q.bytes += b.memory()
	}
	q.held, q.retry = true, time.Now().Add(pause)
	q.changed.Broadcast()
	return slices.Clone(q.batches)
}

// again has held batches written again, unless that was tried a moment ago. It reports whether none is held any more.
func (q *queue) again() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.held {
		return true
	}
	if time.Now().Before(q.retry) {
		return false
	}
	q.held = false
	q.work.Signal()
	for !q.held && !q.broken && (len(q.batches) > 0 || q.writing) {
		q.changed.Wait()
	}
	return !q.held
}

// end announces that no more batches will come.
func (q *queue) end() { q.set(&q.ended) }

// fail announces that no more batches will be written.
func (q *queue) fail() { q.set(&q.broken) }

func (q *queue) set(flag *bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*flag = true
	q.changed.Broadcast()
	q.work.Signal()
}

// cutLoop cuts the table when callers wait, or when an interval is over, and queues the cut.
func (j *Journal) cutLoop() {
	defer j.queue.end()
	tick := time.NewTicker(j.options.Interval)
	defer tick.Stop()
	for {
		last, timed := false, false
		select {
		case <-j.wake:
		case <-tick.C:
			timed = true
		case <-j.stop:
			last = true
		}
		j.cutting.Lock()
		b := j.cutRound(timed, last)
		if b != nil {
			j.enqueue(b)
		}
		j.cutting.Unlock()
		if last || j.Err() != nil {
			return
		}
	}
}

// commitHere cuts and writes for the callers that wait, in the goroutine of one of them: that saves waking two others
// and waiting for them. It does not wait for what is being written. The caller has locked cutting; commitHere unlocks
// it.
func (j *Journal) commitHere() {
	b := j.cutRound(false, false)
	write := b != nil && j.queue.begin()
	if b != nil && !write {
		j.enqueue(b)
	}
	j.cutting.Unlock()
	if write {
		j.writeBatches([]*batch{b})
	}
}

// cutRound takes and encodes a cut for the callers that wait. It returns nil if there are none and no cut is due, and
// after an error, which the callers have then. The caller must hold cutting.
func (j *Journal) cutRound(timed, last bool) (b *batch) {
	j.mu.Lock()
	r, err := j.waiting, j.err
	j.waiting = nil
	j.mu.Unlock()
	if err != nil { // what an earlier cut had is not in the log
		r.finish(err)
		return nil
	}
	if r == nil && !last && !timed {
		return nil
	}
	if r != nil && r.rewrite != nil {
		j.table.Store(r.rewrite)
		r.rewrite.JournalView().Track()
	}
	if !last && !j.queue.again() {
		r.finish(j.Full())
		return nil
	}
	err = j.recovered("cutting the table", func() (err error) {
		if b, err = j.cut(r); err == nil && (timed || last || b.sync) {
			err = j.saveBlobs(b)
		}
		return err
	})
	if err != nil {
		j.fail(err)
		r.finish(err)
		return nil
	}
	b.sync, b.timed = b.sync || last, timed
	return b
}

// enqueue queues a cut for the goroutine that writes. The caller must hold cutting.
func (j *Journal) enqueue(b *batch) {
	ok, held := j.queue.push(b)
	switch {
	case !ok:
		b.round.finish(j.Err())
	case held: // the disk became full while this was cut
		refuse([]*batch{b}, j.Full())
	}
}

// recovered runs a part of the journal. A panic of it becomes an error that stops this journal, and not the process.
func (j *Journal) recovered(part string, run func() error) error {
	err := faults.Recovered(part, run)
	if fault := new(faults.Error); errors.As(err, &fault) {
		j.options.Logger.Error("a journal panicked", "path", j.options.Path, "part", fault.Part, "panic", fault.Found,
			"stack", string(fault.Stack))
		return fmt.Errorf("the journal %s: %w", j.options.Path, err)
	}
	return err
}

// cut takes a cut and encodes it.
func (j *Journal) cut(r *round) (*batch, error) {
	j.mu.Lock()
	again, restores := j.carry, j.restores
	j.carry = carry{}
	j.mu.Unlock()
	c := j.table.Load().JournalView().Cut(again.ids...)
	j.mu.Lock()
	if restores == j.restores {
		j.cutTo = c.State.LastID
	}
	j.mu.Unlock()
	b := &batch{round: r, sync: r != nil && r.sync, uses: c.Changed, removed: c.Removed, requests: c.Requests,
		keep: c.State.Requests, carried: again.upTo, onDisk: c.OnDisk, upTo: c.State.LastID, restores: restores,
		rollouts: len(c.Inserted)}
	if err := j.addTableState(b, c); err != nil {
		return nil, err
	}
	for _, q := range c.Consumed {
		if err := b.addConsumed(q); err != nil {
			return nil, err
		}
	}
	for _, l := range c.Labelled {
		if err := b.addLabels(l); err != nil {
			return nil, err
		}
	}
	together := j.writer.experts == nil
	if !together {
		b.apart = withExperts(c.Inserted)
	}
	if c.Reset {
		b.rewrite, b.all = true, c.Inserted
		if j.definition != nil {
			b.addState(definitionKey, j.definition)
		}
		for _, k := range j.attached() {
			k.saved = false // the state is complete from here
		}
		return b, j.saveBlobs(b)
	}
	var err error
	if len(c.Inserted) > 0 {
		b.arena = j.arenas.Get().(*arena)
		b.messages, err = encodeRollouts(b.arena, c.Inserted, together)
	}
	b.bytes = int64(len(b.uses)) * useLength
	for _, m := range b.messages {
		b.bytes += int64(len(m.b))
	}
	return b, err
}

// addTableState adds the table's state if it has changed.
func (j *Journal) addTableState(b *batch, c *replay.Changes) error {
	state, err := j.states.Encode(c.State)
	if err != nil {
		return err
	}
	if !c.Reset && bytes.Equal(state, j.lastState) {
		return nil
	}
	j.lastState = state
	b.addState(tableKey, state)
	return nil
}

// addConsumed adds a request id in the place of an older one.
func (b *batch) addConsumed(c replay.Consumed) error {
	var text []byte
	if c.Request != "" {
		var err error
		if text, err = json.Marshal(c); err != nil {
			return err
		}
	}
	b.addState(requestPrefix+strconv.FormatUint(c.Slot, 10), text)
	return nil
}

// addLabels adds a call that gave rewards, or that it is forgotten.
func (b *batch) addLabels(l replay.Labelling) error {
	var text []byte
	if len(l.Labels) > 0 {
		var err error
		if text, err = json.Marshal(l); err != nil {
			return err
		}
	}
	b.addState(labelPrefix+strconv.FormatUint(l.Number, 10), text)
	return nil
}

func (b *batch) addState(key string, value []byte) { b.state = append(b.state, named{key, value}) }

func (j *Journal) attached() []*blob {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.blobs)
}

// saveBlobs adds the blobs that have changed.
func (j *Journal) saveBlobs(b *batch) error {
	for _, k := range j.attached() {
		content, err := k.save()
		if err != nil {
			return fmt.Errorf("saving %s with the journal %s: %w", k.name, j.options.Path, err)
		}
		if k.saved && bytes.Equal(content, k.last) {
			continue
		}
		k.last, k.saved = slices.Clone(content), true
		b.addState(blobPrefix+k.name, content)
	}
	return nil
}

// writeLoop writes all queued batches at once, wakes the callers that wait for them, and begins again.
func (j *Journal) writeLoop() {
	waiters, took := int64(0), time.Duration(0) // callers at the end of the last write, and its duration
	for {
		batches := j.queue.take(true)
		if batches == nil {
			return
		}
		if j.options.Sync == Always && j.counters.waiting.Load() < waiters {
			j.gather(waiters, min(took/2, maxGathering))
			batches = append(batches, j.queue.take(false)...)
		}
		waiters, took = j.writeBatches(batches)
	}
}

// writeBatches writes what was taken from the queue, or what it allowed to write at once, and wakes the callers that
// wait for it. It returns how many waited then, and how long the write took.
func (j *Journal) writeBatches(batches []*batch) (waiters int64, took time.Duration) {
	defer j.queue.done()
	began := time.Now()
	wrote := false
	err := j.recovered("writing", func() (err error) {
		wrote, err = j.write(batches)
		if errors.Is(err, ErrNoSpace) && j.options.NoSpace != nil {
			j.options.NoSpace(err)
			wrote, err = j.write(batches)
		}
		return err
	})
	if errors.Is(err, ErrNoSpace) {
		j.setFull(err)
		if held := j.queue.hold(batches, max(9*time.Since(began), minPause)); held != nil {
			refuse(held, err)
			return 0, 0
		}
	}
	if wrote && err == nil {
		j.counters.add(batches, time.Since(began))
	}
	if err == nil {
		j.setFull(nil)
		j.noteCommitted(batches[len(batches)-1])
	}
	waiters, took = j.counters.waiting.Load(), time.Since(began)
	j.answerCallers(batches, err)
	if err != nil {
		j.queue.fail()
		j.answerCallers(j.queue.take(false), err)
	}
	return waiters, took
}

// minPause is how long a full disk is left alone at least.
const minPause = time.Millisecond

// write writes batches in order, and syncs them if that was promised. It reports whether there was anything to write.
func (j *Journal) write(batches []*batch) (wrote bool, err error) {
	sync := j.options.Sync == Always
	settle, anew := false, false
	for _, b := range batches {
		sync, anew = sync || b.sync, anew || b.rewrite
		settle = settle || b.carried != 0 || b.timed && j.options.Sync != Off
	}
	wrote, err = j.writer.write(batches, sync)
	// A rewrite leaves what was before it to be trimmed, which Sync does. A flush has nothing to write if nothing has
	// changed since the last write, which may not be synced.
	if err == nil && (anew || !wrote && sync && j.options.Sync != Always) {
		err = j.log.Sync()
	}
	if err != nil {
		return wrote, fmt.Errorf("writing the journal %s: %w", j.options.Path, err)
	}
	if anew {
		j.counters.verified()
	}
	// The last cut's onDisk speaks for the cuts before it too. Without a sync settleLoop calls it, once it has synced.
	onDisk := batches[len(batches)-1].onDisk
	if sync || anew {
		onDisk()
	}
	next := j.writer.next(j.table.Load().ServiceView().Flow().Bytes)
	j.mu.Lock()
	j.carry, j.written = next, onDisk
	j.mu.Unlock()
	if settle {
		signal(j.settle)
	}
	return wrote, nil
}

// settleLoop syncs the log beside the goroutine that writes: when an interval is over, and before it is trimmed.
func (j *Journal) settleLoop() {
	for range j.settle {
		j.mu.Lock()
		onDisk := j.written
		j.mu.Unlock()
		err := j.recovered("syncing", func() error {
			if err := j.log.Sync(); err != nil {
				return err
			}
			onDisk()
			return nil
		})
		if err != nil {
			j.fail(fmt.Errorf("syncing the journal %s: %w", j.options.Path, err))
		}
	}
}

// maxGathering bounds how long a write waits for callers.
const maxGathering = 4 * time.Millisecond

// gather waits until as many callers wait as at the end of the last write, or until limit. A client that commits
// in a loop comes back soon after it was served. Without the wait half of the clients would always wait for the other
// half's write, and each sync would serve half as many. A single client never waits.
func (j *Journal) gather(waiters int64, limit time.Duration) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for j.counters.waiting.Load() < waiters {
		select {
		case <-j.arrived:
		case <-over.C:
			return
		case <-j.stop:
			return
		}
	}
}

// answerCallers wakes the callers that wait for batches, and frees their memory.
func (j *Journal) answerCallers(batches []*batch, err error) {
	if err != nil {
		j.fail(err) // before any caller sees it
	}
	for _, b := range batches {
		if b.arena != nil {
			j.arenas.Put(b.arena)
		}
		b.round.finish(err)
	}
}

// refuse wakes the callers that wait for batches which are held for lack of space.
func refuse(held []*batch, err error) {
	for _, b := range held {
		b.round.finish(err)
		b.round = nil
	}
}
