package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// scrubPart is how many bytes of records a scrub reads at a time. Between two parts it rests, and lets go of the pages
// that transactions have replaced meanwhile: held for long they would make the file grow, and growing wait.
const scrubPart = 4 << 20

// Scrub reads the file while the journal works, at a number of bytes per second on average, and checks every page and
// record that the latest transactions lead to. [Journal.Stats] has what it found, and when it ended. The error is of a
// scrub that did not end: of the context, or of a file that cannot be read.
func (j *Journal) Scrub(ctx context.Context, bytesPerSecond int64) error {
	return j.scrub(ctx, bytesPerSecond, scrubPart)
}

func (j *Journal) scrub(ctx context.Context, bytesPerSecond, partBytes int64) error {
	var found []Damage
	var of *store
	for _, bucket := range buckets() {
		for key, more := []byte(nil), true; more; {
			began := time.Now()
			p, err := j.scrubPart(bucket, key, partBytes)
			if err != nil {
				return fmt.Errorf("scrubbing the journal %s: %w", j.options.Path, err)
			}
			if p.of != of { // the file was written anew
				found, of = nil, p.of
			}
			found = append(found, p.r.damage[:min(len(p.r.damage), maxDamages-len(found))]...)
			j.counters.damaged(found)
			key, more = p.next, p.next != nil
			pause := time.Duration(float64(p.read)/float64(bytesPerSecond)*float64(time.Second)) - time.Since(began)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	j.counters.verified(found)
	if len(found) > 0 {
		j.options.Logger.Error("the journal is damaged: a restart would refuse it; save the table in a checkpoint and "+
			"restore that, which writes the journal anew", "path", j.options.Path, "damages", len(found), "first",
			found[0].String())
	}
	return nil
}

// part is the records of a bucket from a key on, as of one transaction.
type part struct {
	of     *store
	r      *reader
	bucket string
	from   []byte // nil: from the first
	next   []byte // where the next part begins; nil: there is none
	most   int64  // bytes of records; the last leaf may exceed it
	read   int64
}

// scrubPart reads one part. Its pages stay as they are while the transaction is open.
func (j *Journal) scrubPart(bucket string, from []byte, bytes int64) (*part, error) {
	j.file.RLock()
	defer j.file.RUnlock()
	if j.store == nil || j.broken.Load() {
		return nil, ErrClosed
	}
	s, size := j.store, j.store.pageSize
	info, err := s.open.Stat()
	if err != nil {
		return nil, err
	}
	r := &reader{f: s.open}
	p := &part{of: s, r: r, bucket: bucket, from: from, most: bytes}
	_, _, err = readMetas(s.open, info.Size())
	if err == nil && info.Size() < 2*size {
		err = fmt.Errorf("the file is cut short, to %d bytes", info.Size())
	}
	if err != nil { // a transaction would panic
		r.report(Damage{What: err.Error()})
		return p, nil
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()                        //nolint:errcheck // it only reads
	if info, err = s.open.Stat(); err != nil { // a transaction may have made it grow
		return nil, err
	}
	r.size = info.Size()
	r.meta = meta{pageSize: int(size), root: pageID(tx.Cursor().Bucket().Root()), high: pageID(tx.Size() / size)}
	r.used = make([]uint64, r.pages()/64+1)
	b, ok := r.rootBuckets()[bucket]
	switch {
	case !ok:
		r.lose(bucket, span{page: r.meta.root}, "the bucket is missing")
	case b.inline != nil:
		list, err := b.inline.elements(nil)
		if err == nil {
			err = checkOrder(list, span{root: true}, false)
		}
		if err != nil {
			r.lose(bucket, span{page: b.inline.id}, "%v", err)
		}
		p.check(b.inline.id, list)
	default:
		p.below(span{page: b.root, root: true})
	}
	return p, nil
}

// below checks a page and what it leads to, in order of keys, until the part is full. It reports whether it is not.
func (p *part) below(s span) bool {
	if p.read >= p.most {
		p.next = s.low
		return false
	}
	rn, _ := p.r.nextRun([]span{s}, nil)
	children, _ := p.r.visit(p.bucket, s, rn, nil, p.check)
	for _, c := range children {
		if (c.high == nil || bytes.Compare(c.high, p.from) > 0) && !p.below(c) {
			return false
		}
	}
	return true
}

// check checks the records of a leaf.
func (p *part) check(id pageID, entries []element) {
	for _, e := range entries {
		p.read += int64(len(e.key) + len(e.value))
		d := Damage{Page: uint64(id), Bucket: p.bucket}
		err := errors.New("an entry is a bucket")
		if !e.bucket {
			d.ID, err = new(content).decode(p.bucket, e, false)
		}
		if err != nil {
			d.What = err.Error()
			p.r.report(d)
		}
	}
}

// damaged sets the damage that is known: of the last scrub, and of the one under way.
func (c *counters) damaged(found []Damage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(found) > 0 {
		c.stats.Damage = slices.Clone(found)
	}
}

// verified sets the damage of a file that was read through.
func (c *counters) verified(found []Damage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Damage, c.stats.Verified = found, time.Now()
}
