package journal

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// content is what a file holds.
type content struct {
	rollouts []replay.Stored // by ascending id, as they were written first; without Rollout if they are only verified
	uses     []replay.Usage  // by ascending id
	requests []numbered      // in order
	state    map[string][]byte
	totals   totals
	books    *replay.State
	bytes    int64 // of rollouts' records
}

type numbered struct {
	number uint64
	replay.Insertion
}

// gathered is what one goroutine found.
type gathered struct {
	rollouts []replay.Stored
	uses     []replay.Usage
	requests []numbered
	state    map[string][]byte
	bytes    int64
}

// gather decodes one entry. What is wrong with it is returned, with the rollout that it is of, 0 if that is not known.
func (g *gathered) gather(s sums, bucket string, e element, keep bool) (rollout.ID, error) {
	if bucket == stateBucket {
		payload, err := s.open(bucket, e.key, e.value, kindState)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", e.key, err)
		}
		if g.state == nil {
			g.state = make(map[string][]byte)
		}
		g.state[string(e.key)] = slices.Clone(payload)
		return 0, nil
	}
	if len(e.key) != 8 {
		return 0, fmt.Errorf("its key %x is no number", e.key)
	}
	number := binary.BigEndian.Uint64(e.key)
	switch bucket {
	case rolloutsBucket:
		return rollout.ID(number), g.rollout(s, e, keep)
	case usesBucket:
		payload, err := s.open(bucket, e.key, e.value, kindUse)
		if err == nil && len(payload) != useLength {
			err = fmt.Errorf("its payload has %d bytes, %d are needed", len(payload), useLength)
		}
		if err == nil {
			u := replay.Usage{ID: rollout.ID(number)}
			readUse(payload, &u)
			g.uses = append(g.uses, u)
		}
		return rollout.ID(number), err
	default:
		payload, err := s.open(bucket, e.key, e.value, kindRequest)
		q := numbered{number: number}
		if err == nil {
			err = readRequest(payload, &q.Insertion)
		}
		if err == nil {
			g.requests = append(g.requests, q)
		}
		return 0, err
	}
}

func (g *gathered) rollout(s sums, e element, keep bool) error {
	payload, err := s.open(rolloutsBucket, e.key, e.value, kindRollout)
	if err != nil {
		return err
	}
	k := replay.Stored{Usage: replay.Usage{ID: rollout.ID(binary.BigEndian.Uint64(e.key))}}
	if err := readKept(payload, &k); err != nil {
		return err
	}
	if !keep {
		k.Rollout = nil
	}
	g.rollouts = append(g.rollouts, k)
	g.bytes += int64(len(e.value))
	return nil
}

// readContent reads everything that the tree of the file leads to.
func (r *reader) readContent(keep bool) *content {
	workers := make([]gathered, readers()+1) // the last is of buckets within the root page
	in := func(bucket string) func(int, pageID, []element) {
		return func(worker int, id pageID, entries []element) {
			for _, e := range entries {
				if e.bucket {
					r.report(Damage{Page: uint64(id), Bucket: bucket, What: fmt.Sprintf("entry %x is a bucket", e.key)})
					continue
				}
				if of, err := workers[worker].gather(r.sums, bucket, e, keep); err != nil {
					r.report(Damage{Page: uint64(id), Bucket: bucket, ID: of, What: err.Error()})
				}
			}
		}
	}
	roots := r.rootBuckets()
	for _, name := range buckets() {
		b, ok := roots[name]
		switch {
		case !ok:
			r.lose(name, span{page: r.meta.root}, "the bucket is missing")
		case b.inline != nil:
			list, err := b.inline.elements(nil)
			if err == nil {
				err = inOrder(list, span{root: true}, false)
			}
			if err != nil {
				r.lose(name, span{page: b.inline.id}, "%v", err)
			}
			in(name)(len(workers)-1, b.inline.id, list)
		default:
			r.walk(name, b.root, in(name))
		}
	}
	c := &content{state: make(map[string][]byte)}
	for i := range workers {
		c.add(&workers[i])
	}
	c.sort()
	return c
}

// bucketRoot is where a bucket's content is.
type bucketRoot struct {
	root   pageID
	inline *page // of a small one, within its value
}

// rootBuckets reads the page that names the buckets.
func (r *reader) rootBuckets() map[string]bucketRoot {
	found := make(map[string]bucketRoot)
	r.walk("", r.meta.root, func(_ int, id pageID, entries []element) {
		for _, e := range entries {
			b, err := readBucket(id, e)
			if err != nil {
				r.report(Damage{Page: uint64(id), What: fmt.Sprintf("bucket %q: %v", e.key, err)})
				continue
			}
			r.mu.Lock()
			found[string(e.key)] = b
			r.mu.Unlock()
		}
	})
	return found
}

// readBucket reads an entry that is a bucket.
func readBucket(id pageID, e element) (b bucketRoot, err error) {
	switch {
	case !e.bucket || len(e.value) < bucketHeader:
		return b, fmt.Errorf("its entry is none")
	case !slices.Contains(buckets(), string(e.key)):
		return b, fmt.Errorf("no journal has one of that name")
	}
	b.root = pageID(binary.NativeEndian.Uint64(e.value))
	if b.root != 0 {
		return b, nil
	}
	inline := page{id, slices.Clone(e.value[bucketHeader:])}
	if len(inline.b) < pageHeader || inline.flags() != leafPage {
		return b, fmt.Errorf("what stands in its value is no leaf")
	}
	b.inline = &inline
	return b, nil
}

func (c *content) add(g *gathered) {
	c.rollouts = append(c.rollouts, g.rollouts...)
	c.uses = append(c.uses, g.uses...)
	c.requests = append(c.requests, g.requests...)
	for key, payload := range g.state {
		c.state[key] = payload
	}
	c.bytes += g.bytes
}

func (c *content) sort() {
	slices.SortFunc(c.rollouts, func(a, b replay.Stored) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(c.uses, func(a, b replay.Usage) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(c.requests, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
}

// check compares what was found with what the file says it holds.
func (r *reader) check(c *content) {
	wrong := func(bucket, format string, args ...any) {
		r.report(Damage{Page: uint64(r.meta.root), Bucket: bucket, What: fmt.Sprintf(format, args...)})
	}
	if c.state[definitionKey] == nil {
		wrong(stateBucket, "the table's definition is missing")
	}
	if payload := c.state[totalsKey]; payload == nil {
		wrong(stateBucket, "the number of records is missing")
	} else if err := c.totals.read(payload); err != nil {
		wrong(stateBucket, "the number of records: %v", err)
	} else {
		for _, n := range []struct {
			bucket     string
			said, have uint64
		}{
			{rolloutsBucket, c.totals.Rollouts, uint64(len(c.rollouts))},
			{usesBucket, c.totals.Uses, uint64(len(c.uses))},
			{requestsBucket, c.totals.Requests, uint64(len(c.requests))},
		} {
			if n.said != n.have {
				wrong(n.bucket, "%d records were found, the file says %d", n.have, n.said)
			}
		}
	}
	r.checkBooks(c, wrong)
	for i := range c.requests {
		if i > 0 && c.requests[i].number != c.requests[i-1].number+1 {
			wrong(requestsBucket, "request %d follows %d", c.requests[i].number, c.requests[i-1].number)
		}
	}
}

func (r *reader) checkBooks(c *content, wrong func(bucket, format string, args ...any)) {
	payload := c.state[booksKey]
	if payload == nil {
		if !c.totals.Salvaged {
			wrong(stateBucket, "the table's books are missing")
		}
		return
	}
	books := new(replay.State)
	if err := books.UnmarshalBinary(payload); err != nil {
		wrong(stateBucket, "%v", err)
		return
	}
	c.books = books
	if n := len(c.rollouts); n != books.Present() && !c.totals.Salvaged {
		wrong(rolloutsBucket, "%d rollouts were found, the table's books say %d", n, books.Present())
	}
	for _, u := range mergeUses(c.rollouts, c.uses) {
		r.report(Damage{Page: uint64(r.meta.root), Bucket: usesBucket, ID: u.ID, What: "its rollout is missing"})
	}
}
