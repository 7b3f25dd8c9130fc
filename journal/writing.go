package journal

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/replay"
)

// line is the batches that are encoded and not written, in order. It holds as many as memory allows: encoding goes on while
// the disk is busy, and all that came meanwhile is one transaction.
type line struct {
	mu      sync.Mutex
	changed sync.Cond
	batches []*batch
	bytes   int64
	ended   bool // no more will come
	broken  bool // none will be written
}

// lineBytes is how many bytes of records may wait.
const lineBytes = 64 << 20

func (l *line) init() { l.changed.L = &l.mu }

// push adds a batch once there is room. It tells whether it was taken.
func (l *line) push(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.batches) > 0 && l.bytes+b.bytes > lineBytes && !l.broken {
		l.changed.Wait()
	}
	if l.broken {
		return false
	}
	l.batches = append(l.batches, b)
	l.bytes += b.bytes
	l.changed.Broadcast()
	return true
}

// take returns all that waits, at least one; none when no more will come.
func (l *line) take() []*batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.batches) == 0 && !l.ended {
		l.changed.Wait()
	}
	all := l.batches
	l.batches, l.bytes = nil, 0
	l.changed.Broadcast()
	return all
}

// more returns what came since, without waiting.
func (l *line) more() []*batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.batches
	l.batches, l.bytes = nil, 0
	l.changed.Broadcast()
	return all
}

// end says that no more will come; breakOff that none will be written, and returns those that wait.
func (l *line) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.changed.Broadcast()
}

func (l *line) breakOff() []*batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	all := l.batches
	l.batches, l.bytes = nil, 0
	l.changed.Broadcast()
	return all
}

// cutting takes a cut for those who wait, or when an interval is over, and has it written.
func (j *Journal) cutting() {
	defer j.line.end()
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
		r := j.takeRound()
		if r == nil && !last && !timed {
			continue
		}
		if r != nil && r.rewrite != nil {
			j.table.Store(r.rewrite)
			r.rewrite.Durable().Track()
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
		if !j.line.push(b) {
			r.finish(j.Err())
			return
		}
		if last {
			return
		}
	}
}

func (j *Journal) takeRound() *round {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.waiting
	j.waiting = nil
	return r
}

// cut takes a cut and encodes it.
func (j *Journal) cut(r *round) (*batch, error) {
	c := j.table.Load().Durable().Cut()
	b := &batch{round: r, sync: r != nil && r.sync, removed: c.Removed, requests: c.Requests, keep: c.State.Requests}
	if err := j.addBooks(b, c); err != nil {
		return nil, err
	}
	if c.Reset {
		b.isAnew, b.anew = true, c.Inserted
		for _, k := range j.snapshotBlobs() {
			k.told = false // the new file has none
		}
		return b, j.saveBlobs(b)
	}
	var err error
	if len(c.Inserted) > 0 {
		b.arena = j.encoder.arenas.Get().(*arena)
		if b.rollouts, err = j.encoder.rollouts(b.arena, c.Inserted); err != nil {
			return nil, err
		}
	}
	if b.uses, err = j.encoder.uses(c.Changed); err != nil {
		return nil, err
	}
	for _, en := range b.rollouts {
		b.bytes += int64(len(en.record))
	}
	b.bytes += int64(len(b.uses)) * (headerLength + useLength)
	return b, nil
}

// addBooks adds the books, if they differ from those before.
func (j *Journal) addBooks(b *batch, c *replay.Changes) error {
	books, err := c.State.AppendBinary(nil)
	if err != nil {
		return err
	}
	if !c.Reset && bytes.Equal(books, j.books) {
		return nil
	}
	j.books = books
	en, err := j.encoder.state(booksKey, books)
	b.state = append(b.state, en)
	return err
}

func (j *Journal) snapshotBlobs() []*blob {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.blobs)
}

// saveBlobs adds the blobs that changed.
func (j *Journal) saveBlobs(b *batch) error {
	for _, k := range j.snapshotBlobs() {
		content, err := k.save()
		if err != nil {
			return fmt.Errorf("saving %s with the journal %s: %w", k.name, j.options.Path, err)
		}
		if k.told && bytes.Equal(content, k.last) {
			continue
		}
		k.last, k.told = slices.Clone(content), true
		en, err := j.encoder.state(blobPrefix+k.name, content)
		if err != nil {
			return err
		}
		b.state = append(b.state, en)
	}
	return nil
}

// writing writes what waits, all of it in one transaction, and wakes those who wait for it.
func (j *Journal) writing() {
	debug.SetPanicOnFault(true)                 // a map of a file that was cut short under it
	company, took := int64(0), time.Duration(0) // who was served or waited at the end of the last transaction, and how long that took
	for {
		batches := j.line.take()
		if batches == nil {
			return
		}
		if j.options.Sync == Always && j.counters.waiting.Load() < company {
			j.gather(company, min(took/2, longestGathering))
			batches = append(batches, j.line.more()...)
		}
		began := time.Now()
		wrote, err := j.write(batches)
		if wrote && err == nil {
			j.counters.wrote(batches, time.Since(began))
		}
		company, took = j.counters.waiting.Load(), time.Since(began)
		j.settle(batches, err)
		if err != nil {
			j.fail(err)
			j.settle(j.line.breakOff(), err)
			return
		}
	}
}

// longestGathering is how long a transaction waits at most for those who shared the last one's time.
const longestGathering = 4 * time.Millisecond

// gather waits until as many wait for the disk as did at the end of the last transaction, or a limit is over. Who commits in a
// loop comes back soon after it was served; without this half of them would always wait for the other half's transaction, and each sync would
// serve half as many. One who is alone never waits.
func (j *Journal) gather(company int64, limit time.Duration) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for j.counters.waiting.Load() < company {
		select {
		case <-j.arrived:
		case <-over.C:
			return
		case <-j.stop:
			return
		}
	}
}

// settle wakes those who wait for batches, and gives their memory back.
func (j *Journal) settle(batches []*batch, err error) {
	if err != nil {
		j.fail(err) // before anybody hears of it
	}
	for _, b := range batches {
		if b.arena != nil {
			j.encoder.arenas.Put(b.arena)
		}
		b.round.finish(err)
	}
}

// write writes batches in order. It tells whether there was anything to write.
func (j *Journal) write(batches []*batch) (wrote bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			j.broken.Store(true)
			wrote, err = true, fmt.Errorf("writing the journal %s: %v", j.options.Path, p)
		}
	}()
	last := -1 // that voids what was before
	sync := j.options.Sync != Off
	for i, b := range batches {
		if b.isAnew {
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

// replace makes the file anew.
func (j *Journal) replace(b *batch) error {
	s, err := writeAnew(j.options.Path, j.definition, j.options.LockTimeout, j.encoder, b, false)
	if err != nil {
		return err
	}
	j.file.Lock()
	defer j.file.Unlock()
	old := j.store
	j.store = s
	if err := old.db.Close(); err != nil {
		return fmt.Errorf("closing what the journal %s was before: %w", j.options.Path, err)
	}
	return nil
}
