package journal

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// Salvage reads a journal as [Verify] does and writes all that is whole into a new one, which [Open] makes a table of: what is
// missing counts there as evicted by damage. Where a page that leads to others is damaged, what it led to is looked for on all
// pages of the file; it may include rollouts that had been removed, but no more than the table's books allow, where they are
// whole. The report is of the old file. An error is of a file that cannot be read, of which nothing can be saved, or that
// cannot be written.
func Salvage(from, to string) (*Report, error) {
	if _, err := os.Stat(to); err == nil {
		return nil, fmt.Errorf("salvaging into %s: %w: give a new file", to, os.ErrExist)
	}
	f, size, err := openToRead(from)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, c, report := examineBytes(f, size, true)
	report.Path = from
	if c == nil {
		c = &content{state: make(map[string][]byte)}
		if !r.guessPages() {
			return report, fmt.Errorf("salvaging %s: nothing in it looks like a page of a journal: %w", from, ErrDamaged)
		}
	}
	if c.state[definitionKey] == nil { // it never changes: every page that was ever one of its bucket has it
		r.lost = append(r.lost, lostRange{bucket: stateBucket})
	}
	if len(r.lost) > 0 {
		r.adoptOrphans(c, report)
	}
	definition := c.state[definitionKey]
	if definition == nil {
		return report, fmt.Errorf("salvaging %s: the definition of its table is lost: %w", from, ErrDamaged)
	}
	b, err := c.batch(newEncoder())
	if err != nil {
		return report, fmt.Errorf("salvaging %s: %w", from, err)
	}
	s, err := writeAnew(to, definition, DefaultLockTimeout, newEncoder(), b, c.totals.Salvaged || !report.Whole())
	if err != nil {
		return report, err
	}
	c.fill(report)
	return report, s.db.Close()
}

// batch is the content as a cut that is everything.
func (c *content) batch(e *encoder) (*batch, error) {
	c.sort()
	c.rollouts = slices.CompactFunc(c.rollouts, func(a, b replay.Stored) bool { return a.ID == b.ID })
	mergeUses(c.rollouts, c.uses)
	b := &batch{isAnew: true, anew: c.rollouts, keep: len(c.requests)}
	for _, q := range c.requests {
		b.requests = append(b.requests, q.Insertion)
	}
	for key, payload := range c.state {
		if key == definitionKey || key == totalsKey || key == booksKey && c.books == nil {
			continue
		}
		en, err := e.state(key, payload)
		if err != nil {
			return nil, err
		}
		b.state = append(b.state, en)
	}
	return b, nil
}

// guessPages finds out a file's page size where no meta page is left. Every page begins with its number.
func (r *reader) guessPages() bool {
	for size := int64(leastPage); size <= 1<<16; size *= 2 {
		right, pages := 0, min(r.size/size, 1000)
		for p := int64(2); p < pages; p++ {
			var b [pageHeader]byte
			if _, err := r.f.ReadAt(b[:], p*size); err == nil && binary.NativeEndian.Uint64(b[:]) == uint64(p) {
				right++
			}
		}
		if right > 0 {
			high := uint64(r.size) / uint64(size)
			r.meta = meta{pageSize: int(size), high: pageID(high)}
			r.used = make([]uint64, high/64+1)
			for _, name := range buckets() {
				r.lost = append(r.lost, lostRange{bucket: name})
			}
			return true
		}
	}
	return false
}

// adoptOrphans looks at the pages that were not met for records of what was lost. A rollout is taken if it lies where keys are
// lost and was not found; of several uses of one rollout the latest, and of several states the last.
func (r *reader) adoptOrphans(c *content, report *Report) {
	o := orphans{r: r, rollouts: make(map[rollout.ID]replay.Stored), uses: make(map[rollout.ID]replay.Usage), requests: make(map[uint64]numbered)}
	for _, k := range c.rollouts {
		o.rollouts[k.ID] = k
	}
	for _, u := range c.uses {
		o.uses[u.ID] = u
	}
	for _, q := range c.requests {
		o.requests[q.number] = q
	}
	o.state.totals = c.totals
	for p := uint64(2); p < uint64(r.size)/uint64(r.meta.pageSize); p++ {
		if r.used[p/64]&(1<<(p%64)) == 0 {
			o.look(pageID(p))
		}
	}
	found := len(c.rollouts)
	c.take(&o)
	report.Orphans = len(c.rollouts) - found
}

// take replaces what was found by what was found with the orphans.
func (c *content) take(o *orphans) {
	met := make(map[rollout.ID]bool, len(c.rollouts))
	for _, k := range c.rollouts {
		met[k.ID] = true
	}
	c.rollouts, c.uses, c.requests = nil, nil, nil
	for _, k := range o.rollouts {
		c.rollouts = append(c.rollouts, k)
	}
	for _, u := range o.uses {
		c.uses = append(c.uses, u)
	}
	for _, q := range o.requests {
		c.requests = append(c.requests, q)
	}
	for key, payload := range o.state.found {
		if c.state[key] == nil {
			c.state[key] = payload
		}
	}
	if c.books == nil {
		books := new(replay.State)
		if payload := c.state[booksKey]; payload != nil && books.UnmarshalBinary(payload) == nil {
			c.books = books
		}
	}
	c.sort()
	if c.books == nil {
		return
	}
	surplus := len(c.rollouts) - c.books.Present() // had been removed: most likely the oldest
	c.rollouts = slices.DeleteFunc(c.rollouts, func(k replay.Stored) bool {
		drop := surplus > 0 && !met[k.ID]
		if drop {
			surplus--
		}
		return drop
	})
}

// orphans is what stands on pages that nothing whole leads to, beside what was found.
type orphans struct {
	r        *reader
	rollouts map[rollout.ID]replay.Stored
	uses     map[rollout.ID]replay.Usage
	requests map[uint64]numbered
	state    struct {
		found  map[string][]byte
		totals totals
	}
}

// look reads a page, if it is a leaf. What is wrong is nothing new: the page may be free.
func (o *orphans) look(id pageID) {
	size := int64(o.r.meta.pageSize)
	head := make([]byte, pageHeader)
	if _, err := o.r.f.ReadAt(head, int64(id)*size); err != nil || pageID(binary.NativeEndian.Uint64(head)) != id {
		return
	}
	length := (int64(overflow(head)) + 1) * size
	if p := (page{id, head}); p.flags() != leafPage || length > o.r.size-int64(id)*size {
		return
	}
	b := make([]byte, length)
	if _, err := o.r.f.ReadAt(b, int64(id)*size); err != nil {
		return
	}
	o.leaf(page{id, b})
}

func (o *orphans) leaf(p page) {
	list, _ := p.elements(nil)
	state := gathered{}
	for _, e := range list {
		if e.bucket {
			if b, err := readBucket(p.id, e); err == nil && b.inline != nil {
				o.leaf(*b.inline)
			}
			continue
		}
		state.gather(o.r.sums, stateBucket, e, true) // what is not of this bucket has another checksum
		var g gathered
		for _, bucket := range []string{rolloutsBucket, usesBucket, requestsBucket} {
			if o.isLost(bucket, e.key) {
				g.gather(o.r.sums, bucket, e, true)
			}
		}
		o.add(&g)
	}
	o.addState(state.state)
}

// isLost tells whether a key lies where some of a bucket could not be read.
func (o *orphans) isLost(bucket string, key []byte) bool {
	return slices.ContainsFunc(o.r.lost, func(l lostRange) bool {
		s := span{low: l.low, high: l.high}
		return (l.bucket == bucket || l.bucket == "") && s.leadsTo(key)
	})
}

func (o *orphans) add(g *gathered) {
	for _, k := range g.rollouts {
		if _, ok := o.rollouts[k.ID]; !ok {
			o.rollouts[k.ID] = k
		}
	}
	for _, u := range g.uses {
		if old, ok := o.uses[u.ID]; !ok || u.Uses > old.Uses || u.Uses == old.Uses && u.LastUse > old.LastUse {
			o.uses[u.ID] = u
		}
	}
	for _, q := range g.requests {
		o.requests[q.number] = q
	}
}

// addState keeps the state of the last transaction.
func (o *orphans) addState(found map[string][]byte) {
	var t totals
	if found == nil || !o.isLost(stateBucket, nil) || t.read(found[totalsKey]) != nil {
		return
	}
	if o.state.found == nil || t.Commit >= o.state.totals.Commit {
		o.state.found, o.state.totals = found, t
	}
}
