package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/replay"
)

// queueBytes is how many bytes of records may wait in the queue.
const queueBytes = 64 << 20

// queue holds encoded batches until they are written, in order. Encoding goes on while the disk is busy, and everything
// that arrived meanwhile becomes one transaction.
//
// Batches that found the disk full come back, and are held until [queue.again]. No cuts are taken meanwhile: the table
// itself notes what changes, so that only what was cut already is held.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	batches []*batch
	bytes   int64
	due     bool      // a batch is to be written now
	writing bool      // the batches taken last
	held    bool      // for lack of space
	retry   time.Time // not before, while held
	ended   bool      // no more will come
	broken  bool      // no more will be written
}

// push adds a batch once there is room, or at once while batches are held: then it is held too. It reports whether the
// batch will be written.
func (q *queue) push(b *batch) (ok, held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.batches) > 0 && q.bytes+b.memory() > queueBytes && !q.broken && !q.held {
		q.due = true
		q.changed.Broadcast()
		q.changed.Wait()
	}
	if q.broken {
		return false, false
	}
	q.batches = append(q.batches, b)
	q.bytes += b.memory()
	q.due = q.due || b.due || q.bytes > queueBytes/2
	q.changed.Broadcast()
	return true, q.held
}

// take takes all batches. With wait it first ends the writing of those taken before, waits for one that is due and not
// held, and returns none only after the end.
func (q *queue) take(wait bool) []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if wait {
		q.writing = false
		q.changed.Broadcast()
	}
	for wait && (len(q.batches) == 0 || q.held || !q.due) && !q.ended {
		q.changed.Wait()
	}
	all := q.batches
	q.batches, q.bytes, q.due, q.held, q.writing = nil, 0, false, false, true
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
	q.held, q.due = false, true
	q.changed.Broadcast()
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
		j.mu.Lock()
		r := j.waiting
		j.waiting = nil
		j.mu.Unlock()
		if r == nil && !last && !timed {
			continue
		}
		if r != nil && r.rewrite != nil {
			j.table.Store(r.rewrite)
			r.rewrite.JournalView().Track()
		}
		if !last && !j.queue.again() {
			r.finish(j.Full())
			continue
		}
		b, err := j.cut(r)
		if err == nil && (timed || last || b.sync) {
			err = j.saveBlobs(b)
		}
		if err != nil {
			j.fail(err)
			r.finish(err)
			return
		}
		b.sync = b.sync || last
		logged := j.log != nil && j.Err() == nil && j.log.add(b)
		if logged && !b.sync {
			b.round.finish(nil)
			b.round, r = nil, nil
		}
		b.due = timed || b.sync || !logged
		ok, held := j.queue.push(b)
		if !ok {
			r.finish(j.Err())
			return
		}
		if held { // the disk became full while this was cut
			refuse([]*batch{b}, j.Full())
		}
		if last {
			return
		}
	}
}

// askToCarry has the next cut carry what keeps the shared log from being trimmed.
func (j *Journal) askToCarry() {
	next := j.shared.next(j.table.Load().ServiceView().Flow().Bytes)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.carry = next
}

// cut takes a cut and encodes it.
func (j *Journal) cut(r *round) (*batch, error) {
	j.mu.Lock()
	again := j.carry
	j.carry = carry{}
	j.mu.Unlock()
	c := j.table.Load().JournalView().Cut(again.ids...)
	b := &batch{round: r, sync: r != nil && r.sync, removed: c.Removed, requests: c.Requests, keep: c.State.Requests,
		carried: again.upTo}
	if err := j.addTableState(b, c); err != nil {
		return nil, err
	}
	for _, q := range c.Consumed {
		if err := b.addConsumed(q); err != nil {
			return nil, err
		}
	}
	if c.Reset {
		b.rewrite, b.all = true, c.Inserted
		if j.shared != nil && j.shared.experts != nil {
			b.apart = withExperts(c.Inserted)
		}
		for _, k := range j.attached() {
			k.saved = false // the new file has none
		}
		return b, j.saveBlobs(b)
	}
	var err error
	if len(c.Inserted) > 0 {
		b.arena = j.arenas.Get().(*arena)
		together := j.shared == nil || j.shared.experts == nil
		if b.rollouts, err = encodeRollouts(b.arena, c.Inserted, together); err != nil {
			return nil, err
		}
		if !together {
			b.apart = withExperts(c.Inserted)
		}
	}
	if b.uses, err = encodeUses(c.Changed); err != nil {
		return nil, err
	}
	for _, en := range b.rollouts {
		b.bytes += int64(len(en.record))
	}
	b.bytes += int64(len(b.uses)) * (headerLength + useLength)
	return b, nil
}

// addTableState adds the table's state if it has changed.
func (j *Journal) addTableState(b *batch, c *replay.Changes) error {
	state, err := c.State.AppendBinary(nil)
	if err != nil {
		return err
	}
	if !c.Reset && bytes.Equal(state, j.lastState) {
		return nil
	}
	j.lastState = state
	return b.addState(tableKey, state)
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
	return b.addState(requestPrefix+strconv.FormatUint(c.Slot, 10), text)
}

func (b *batch) addState(key string, payload []byte) error {
	en, err := encodeState(key, payload)
	b.state = append(b.state, en)
	return err
}

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
		if err := b.addState(blobPrefix+k.name, content); err != nil {
			return err
		}
	}
	return nil
}

// writeLoop writes all queued batches in one transaction, wakes the callers that wait for them, and begins again.
func (j *Journal) writeLoop() {
	debug.SetPanicOnFault(true)                 // a fault in the map, if the file was cut short, becomes a panic
	waiters, took := int64(0), time.Duration(0) // callers at the end of the last transaction, and its duration
	for {
		batches := j.queue.take(true)
		if batches == nil {
			return
		}
		if j.options.Sync == Always && j.counters.waiting.Load() < waiters {
			j.gather(waiters, min(took/2, maxGathering))
			batches = append(batches, j.queue.take(false)...)
		}
		if j.log != nil {
			j.log.rotate()
		}
		began := time.Now()
		wrote, err := j.write(batches)
		if errors.Is(err, ErrNoSpace) && j.options.NoSpace != nil {
			j.options.NoSpace(err)
			wrote, err = j.write(batches)
		}
		if errors.Is(err, ErrNoSpace) {
			j.setFull(err)
			// A failed transaction reads the whole file: a tenth of the time is enough for that.
			if held := j.queue.hold(batches, 9*time.Since(began)); held != nil {
				refuse(held, err)
				continue
			}
		}
		if wrote && err == nil {
			j.counters.add(batches, time.Since(began))
		}
		if err == nil {
			j.setFull(nil)
			j.discardLog()
		}
		waiters, took = j.counters.waiting.Load(), time.Since(began)
		j.answerCallers(batches, err)
		if err != nil {
			j.queue.fail()
			j.answerCallers(j.queue.take(false), err)
			return
		}
	}
}

// discardLog removes what the file has from the log.
func (j *Journal) discardLog() {
	if j.log == nil {
		return
	}
	if err := j.log.discard(j.store.position); err != nil {
		j.options.Logger.Warn("a segment of the journal's log could not be removed yet", "error", err)
	}
}

// maxGathering bounds how long a transaction waits for callers.
const maxGathering = 4 * time.Millisecond

// gather waits until as many callers wait as at the end of the last transaction, or until limit. A client that commits
// in a loop comes back soon after it was served. Without the wait half of the clients would always wait for the other
// half's transaction, and each sync would serve half as many. A single client never waits.
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

// write writes batches in order, and makes sure that they are in the file that the path names. It reports whether there
// was anything to write.
func (j *Journal) write(batches []*batch) (wrote bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			j.broken.Store(true)
			wrote, err = true, fmt.Errorf("writing the journal %s: %v", j.options.Path, p)
		}
	}()
	if j.shared != nil {
		wrote, err = j.shared.write(batches)
		j.askToCarry()
		return wrote, err
	}
	if wrote, err = j.writeInOrder(batches); err != nil {
		return wrote, err
	}
	if err := checkInPlace(j.store.path, j.store.file); err != nil {
		return wrote, fmt.Errorf("writing the journal %s: %w: its content is in this process only: save the table "+
			"(a checkpoint, an export), then start anew and bring it back (restore, import)", j.options.Path, err)
	}
	return wrote, nil
}

func (j *Journal) writeInOrder(batches []*batch) (wrote bool, err error) {
	last := -1 // batch that replaces all content
	sync := j.options.Sync != Off
	for i, b := range batches {
		if b.rewrite {
			last = i
		}
		sync = sync || b.sync
		wrote = wrote || !b.empty()
	}
	if last >= 0 {
		if err := j.replace(batches[last]); err != nil {
			return true, err
		}
		batches = batches[last+1:]
	}
	rest := slices.DeleteFunc(slices.Clone(batches), (*batch).empty)
	j.store.db.NoSync = !sync
	if len(rest) == 0 {
		if sync && j.options.Sync == Off && last < 0 {
			return wrote, j.store.db.Sync() // what earlier transactions left to the operating system
		}
		return wrote, nil
	}
	return true, j.store.apply(rest)
}

// replace writes the file anew.
func (j *Journal) replace(b *batch) error {
	s, err := writeAnew(j.options.Path, j.definition, j.options.LockTimeout, b, false)
	if err != nil {
		return err
	}
	j.file.Lock()
	defer j.file.Unlock()
	old := j.store
	j.store = s
	j.counters.verified(nil)
	if err := old.db.Close(); err != nil {
		return fmt.Errorf("closing the old file of the journal %s: %w", j.options.Path, err)
	}
	return nil
}
