package journal

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// Recovery is what [Open] found.
type Recovery struct {
	Path      string
	Rollouts  int
	Bytes     int64 // of their records
	FileBytes int64
	Version   rollout.Version
	Requests  int    // insertions remembered by their batch id
	Returned  uint64 // draws that were on lease and have been released
	Lost      int    // rollouts lost to damage; salvaged journals only
	Dropped   int    // rollouts that were read but left out: parts of groups, or beyond the capacity
	Salvaged  bool   // Salvage wrote the journal, and it is opened for the first time
	Logged    int    // cuts that only the log had
	Skipped   int    // later cuts of the log, without those before them: a loss of power took those
	Torn      int    // bytes of the log that cannot be read
	// WithoutExperts counts the rollouts whose routed experts another machine has: see [Options.Experts].
	WithoutExperts int
	Took           time.Duration
	Blobs          map[string][]byte // by the names of Attach
}

// String describes the recovery in one line.
func (r *Recovery) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "read %d rollouts of %.1f MB at version %d from %s in %v; %d insertions remembered",
		r.Rollouts, float64(r.Bytes)/1e6, r.Version, r.Path, r.Took.Round(time.Millisecond), r.Requests)
	if r.Logged > 0 {
		fmt.Fprintf(&b, "; the last %d changes came from its log", r.Logged)
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&b, "; %d later changes of its log were skipped, as a loss of power took those before them", r.Skipped)
	}
	if r.Torn > 0 {
		fmt.Fprintf(&b, "; the last %d bytes of its log had not reached the disk", r.Torn)
	}
	if r.WithoutExperts > 0 {
		fmt.Fprintf(&b, "; %d rollouts are without their routed_experts, which stayed on another machine", r.WithoutExperts)
	}
	if r.Returned > 0 {
		fmt.Fprintf(&b, "; %d leased draws released", r.Returned)
	}
	if r.Salvaged {
		fmt.Fprintf(&b, "; it was salvaged: %d of its rollouts lost", r.Lost)
		if r.Dropped > 0 {
			fmt.Fprintf(&b, ", %d left out as parts of groups or beyond the capacity", r.Dropped)
		}
	}
	return b.String()
}

// Open recovers the table that build makes of the definition, and continues its journal. It refuses a damaged journal
// with an error that wraps [ErrDamaged], names the damage, and tells how to save the rest. If there is no file, the
// error wraps os.ErrNotExist.
func Open(o Options, build func(definition []byte) (*replay.Table, error)) (*Journal, *replay.Table, *Recovery, error) {
	if err := o.Validate(); err != nil {
		return nil, nil, nil, err
	}
	o = o.withDefaults()
	began := time.Now()
	// of a rewrite that a crash ended
	if err := os.Remove(o.Path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil, fmt.Errorf("opening the journal %s: %w", o.Path, err)
	}
	c, found, err := readLogged(o)
	if err != nil {
		return nil, nil, nil, err
	}
	table, err := build(c.state[definitionKey])
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening the journal %s: making its table: %w", o.Path, err)
	}
	recovered := replay.Recovered{State: c.table, Stored: c.rollouts, Repair: c.totals.Salvaged}
	for _, q := range c.requests {
		recovered.Requests = append(recovered.Requests, q.Insertion)
	}
	if recovered.Consumed, err = c.consumed(); err != nil {
		return nil, nil, nil, fmt.Errorf("opening the journal %s: %w", o.Path, err)
	}
	done, err := table.JournalView().Rebuild(recovered)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening the journal %s: %w", o.Path, err)
	}
	j := newJournal(o, c.state[definitionKey], table)
	s, err := j.reopen(c)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := j.start(s); err != nil {
		return nil, nil, nil, err
	}
	r := &Recovery{
		Path: o.Path, Rollouts: table.ServiceView().Flow().Present, Bytes: c.bytes, Version: table.Version(),
		Requests: len(c.requests),
		Returned: done.Returned, Lost: done.Lost, Dropped: done.Dropped, Salvaged: c.totals.Salvaged,
		Logged: found.cuts, Skipped: found.skipped, Torn: found.torn, Took: time.Since(began), Blobs: c.blobs(),
	}
	r.FileBytes, _ = s.size()
	o.Logger.Debug("opened the journal", "path", o.Path, "recovered", r.String())
	return j, table, r, nil
}

// logged is what [Open] found in the log.
type logged struct {
	cuts, skipped, torn int
}

// readLogged reads a journal without damage, after it has written what is only in the log to the file.
func readLogged(o Options) (c *content, found logged, err error) {
	for {
		if c, err = readIntact(o); err != nil {
			return nil, found, err
		}
		left, err := segmentsOf(o.Path)
		if err != nil || len(left) == 0 {
			return c, found, err
		}
		done, now, err := writeLogged(o, c)
		if err != nil {
			return nil, found, fmt.Errorf("opening the journal %s: %w", o.Path, err)
		}
		if done && now.cuts == 0 {
			found.torn += now.torn
			found.skipped += now.skipped
			return c, found, nil
		}
		found.cuts += now.cuts
		found.torn += now.torn
		found.skipped += now.skipped
	}
}

// writeLogged writes what the log has to a file of which the content is known, and removes the log, while no other
// process can have the file open. It does nothing if another one has changed the file since it was read.
func writeLogged(o Options, c *content) (done bool, found logged, err error) {
	s, err := openKnown(o, c)
	if err != nil {
		return false, found, err
	}
	defer func() { err = errors.Join(err, s.db.Close()) }()
	if number, err := s.commit(); err != nil || number != c.totals.Commit {
		return false, found, err
	}
	cuts, skipped, torn, err := pending(o.Path, c.position)
	if err != nil {
		return false, found, err
	}
	if len(cuts) > 0 {
		if err := s.apply(cuts); err != nil {
			return false, found, err
		}
	}
	return true, logged{len(cuts), skipped, torn}, removeLog(o.Path)
}

// readIntact reads a journal without damage. It waits for another process to close it.
func readIntact(o Options) (*content, error) {
	deadline := time.Now().Add(o.LockTimeout)
	for {
		c, report, err := examine(o.Path, true)
		switch {
		case errors.Is(err, errInUse) && time.Now().Before(deadline):
			time.Sleep(min(o.LockTimeout/20, 50*time.Millisecond))
			continue
		case errors.Is(err, errInUse):
			return nil, inUse(o.Path, o.LockTimeout)
		case err != nil:
			return nil, err
		case !report.Whole():
			return nil, refusal(report)
		}
		return c, nil
	}
}

// refusal names the first damages and the remedy.
func refusal(r *Report) error {
	const most = 5
	var b strings.Builder
	for _, d := range r.Damage[:min(most, len(r.Damage))] {
		fmt.Fprintf(&b, "%s; ", d)
	}
	if n := len(r.Damage) + r.More - most; n > 0 {
		fmt.Fprintf(&b, "and %d more; ", n)
	}
	return fmt.Errorf("opening the journal %s: %w: %skeep the file, and save the rest of it with: reprise journal "+
		"salvage %s --out NEW",
		r.Path, ErrDamaged, b.String(), r.Path)
}

// reopen continues a file whose content is known. A salvaged one is written anew from the table.
func (j *Journal) reopen(c *content) (*store, error) {
	if c.totals.Salvaged {
		j.table.Load().JournalView().Track()
		b, err := j.cut(nil)
		if err != nil {
			return nil, err
		}
		for name, payload := range c.blobs() {
			if err := b.addState(blobPrefix+name, payload); err != nil {
				return nil, err
			}
		}
		b.position = c.position
		return writeAnew(j.options.Path, j.definition, j.options.LockTimeout, b, false)
	}
	j.lastState = c.state[tableKey]
	return openKnown(j.options, c)
}

// openKnown opens a file whose content is known.
func openKnown(o Options, c *content) (*store, error) {
	s, err := openStore(o.Path, o.LockTimeout)
	if err != nil {
		return nil, err
	}
	if err := s.db.Sync(); err != nil { // what a process with Off left to the operating system
		return nil, errors.Join(fmt.Errorf("opening the journal %s: %w", o.Path, err), s.db.Close())
	}
	s.totals, s.position = c.totals, c.position
	if n := len(c.requests); n > 0 {
		s.first, s.next = c.requests[0].number, c.requests[n-1].number+1
	}
	return s, nil
}

// content is the content of a file.
type content struct {
	rollouts []replay.Stored // by ascending id, with their last uses; without Rollout if they are only verified
	uses     []replay.Usage  // by ascending id
	requests []numbered      // in order
	state    map[string][]byte
	totals   totals
	position position
	table    *replay.State
	bytes    int64 // of rollouts' records

	withoutExperts int // rollouts of a shared log whose routed experts are not on this machine
}

type numbered struct {
	number uint64
	replay.Insertion
}

func (c *content) blobs() map[string][]byte {
	blobs := make(map[string][]byte)
	for key, payload := range c.state {
		if name, ok := strings.CutPrefix(key, blobPrefix); ok {
			blobs[name] = payload
		}
	}
	return blobs
}

// consumed returns the request ids of acknowledged batches.
func (c *content) consumed() (all []replay.Consumed, err error) {
	for key, payload := range c.state {
		if !strings.HasPrefix(key, requestPrefix) || len(payload) == 0 {
			continue
		}
		var q replay.Consumed
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		all = append(all, q)
	}
	return all, nil
}

// readContent reads everything that the tree of the file leads to.
func (r *reader) readContent(keep bool) *content {
	workers := make([]content, readers()+1) // one per goroutine; the last for buckets within the root page
	in := func(bucket string) func(int, pageID, []element) {
		return func(worker int, id pageID, entries []element) {
			for _, e := range entries {
				if e.bucket {
					r.report(Damage{Page: uint64(id), Bucket: bucket, What: fmt.Sprintf("entry %x is a bucket", e.key)})
					continue
				}
				if of, err := workers[worker].decode(bucket, e, keep); err != nil {
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
				err = checkOrder(list, span{root: true}, false)
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
		w := &workers[i]
		c.rollouts = append(c.rollouts, w.rollouts...)
		c.uses = append(c.uses, w.uses...)
		c.requests = append(c.requests, w.requests...)
		maps.Copy(c.state, w.state)
		c.bytes += w.bytes
	}
	slices.SortFunc(c.rollouts, compareIDs)
	slices.SortFunc(c.uses, func(a, b replay.Usage) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(c.requests, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	return c
}

func compareIDs(a, b replay.Stored) int { return cmp.Compare(a.ID, b.ID) }

// bucketRoot locates a bucket's content.
type bucketRoot struct {
	root   pageID
	inline *page // of a small bucket, within its value
}

// rootBuckets reads the page that names the buckets.
func (r *reader) rootBuckets() map[string]bucketRoot {
	found := make(map[string]bucketRoot)
	r.walk("", r.meta.root, func(_ int, id pageID, entries []element) {
		for _, e := range entries {
			b, err := decodeBucket(id, e)
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

func decodeBucket(id pageID, e element) (b bucketRoot, err error) {
	switch {
	case !e.bucket || len(e.value) < bucketHeader:
		return b, errors.New("its entry is none")
	case !slices.Contains(buckets(), string(e.key)):
		return b, errors.New("no journal has one of that name")
	}
	b.root = pageID(binary.NativeEndian.Uint64(e.value))
	if b.root != 0 {
		return b, nil
	}
	inline := page{id, slices.Clone(e.value[bucketHeader:])}
	if len(inline.b) < pageHeader || inline.flags() != leafPage {
		return b, errors.New("the page in its value is no leaf")
	}
	b.inline = &inline
	return b, nil
}

// decode decodes one entry and adds it. An error comes with the id of its rollout, 0 if that is unknown.
func (c *content) decode(bucket string, e element, keep bool) (rollout.ID, error) {
	if bucket == stateBucket {
		payload, err := openRecord(bucket, e.key, e.value, kindState)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", e.key, err)
		}
		if c.state == nil {
			c.state = make(map[string][]byte)
		}
		c.state[string(e.key)] = slices.Clone(payload)
		return 0, nil
	}
	if len(e.key) != 8 {
		return 0, fmt.Errorf("its key %x is no number", e.key)
	}
	number := binary.BigEndian.Uint64(e.key)
	switch bucket {
	case rolloutsBucket:
		k := replay.Stored{Usage: replay.Usage{ID: rollout.ID(number)}}
		payload, err := openRecord(bucket, e.key, e.value, kindRollout)
		if err == nil {
			err = decodeStored(payload, &k)
		}
		if err != nil {
			return k.ID, err
		}
		if !keep {
			k.Rollout = nil
		}
		c.rollouts = append(c.rollouts, k)
		c.bytes += int64(len(e.value))
	case usesBucket:
		u := replay.Usage{ID: rollout.ID(number)}
		payload, err := openRecord(bucket, e.key, e.value, kindUse)
		if err == nil && len(payload) != useLength {
			err = fmt.Errorf("its payload has %d bytes, %d are needed", len(payload), useLength)
		}
		if err != nil {
			return u.ID, err
		}
		decodeUse(payload, &u)
		c.uses = append(c.uses, u)
	default:
		q := numbered{number: number}
		payload, err := openRecord(bucket, e.key, e.value, kindRequest)
		if err == nil {
			err = decodeRequest(payload, &q.Insertion)
		}
		if err != nil {
			return 0, err
		}
		c.requests = append(c.requests, q)
	}
	return 0, nil
}

// check compares the content with the numbers in the file, and applies the last uses to the rollouts.
func (r *reader) check(c *content) {
	wrong := func(bucket, format string, args ...any) {
		r.report(Damage{Page: uint64(r.meta.root), Bucket: bucket, What: fmt.Sprintf(format, args...)})
	}
	if c.state[definitionKey] == nil {
		wrong(stateBucket, "the table's definition is missing")
	}
	if payload := c.state[totalsKey]; payload == nil {
		wrong(stateBucket, "the number of records is missing")
	} else if err := c.totals.decode(payload); err != nil {
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
	if payload := c.state[logKey]; payload != nil {
		if err := c.position.decode(payload); err != nil {
			wrong(stateBucket, "the position of the log: %v", err)
		}
	}
	r.checkTableState(c, wrong)
	for i := range c.requests {
		if i > 0 && c.requests[i].number != c.requests[i-1].number+1 {
			wrong(requestsBucket, "request %d follows %d", c.requests[i].number, c.requests[i-1].number)
		}
	}
}

func (r *reader) checkTableState(c *content, wrong func(bucket, format string, args ...any)) {
	payload := c.state[tableKey]
	if payload == nil {
		if !c.totals.Salvaged {
			wrong(stateBucket, "the table's state is missing")
		}
		return
	}
	state := new(replay.State)
	if err := state.UnmarshalBinary(payload); err != nil {
		wrong(stateBucket, "%v", err)
		return
	}
	c.table = state
	if n := len(c.rollouts); n != state.Present() && !c.totals.Salvaged {
		wrong(rolloutsBucket, "%d rollouts were found, the table's state says %d", n, state.Present())
	}
	for _, u := range c.applyUses() {
		r.report(Damage{Page: uint64(r.meta.root), Bucket: usesBucket, ID: u.ID, What: "its rollout is missing"})
	}
}

// applyUses sets the last uses of the rollouts, both by ascending id, and returns the uses without a rollout.
func (c *content) applyUses() (strays []replay.Usage) {
	i := 0
	for _, u := range c.uses {
		for i < len(c.rollouts) && c.rollouts[i].ID < u.ID {
			i++
		}
		if i < len(c.rollouts) && c.rollouts[i].ID == u.ID {
			c.rollouts[i].Usage = u
		} else {
			strays = append(strays, u)
		}
	}
	return strays
}
