package journal

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

var errInUse = errors.New("another process has it open: stop that one first")

// Recovery says what [Open] found.
type Recovery struct {
	Path      string
	Rollouts  int
	Bytes     int64 // of their records
	FileBytes int64
	Version   rollout.Version
	Requests  int    // insertions remembered by their batch id
	Returned  uint64 // draws that were on lease and have gone back
	Lost      int    // rollouts that damage took; salvaged journals only
	Dropped   int    // rollouts that were read and left out all the same: of groups not whole, or beyond the capacity
	Salvaged  bool   // the journal was made by Salvage, and is opened for the first time
	Took      time.Duration
	Blobs     map[string][]byte // by the names of Attach
}

// String says it in words.
func (r *Recovery) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "read %d rollouts of %.1f MB at version %d from %s in %v; %d insertions remembered",
		r.Rollouts, float64(r.Bytes)/1e6, r.Version, r.Path, r.Took.Round(time.Millisecond), r.Requests)
	if r.Returned > 0 {
		fmt.Fprintf(&b, "; %d draws that were on lease have gone back", r.Returned)
	}
	if r.Salvaged {
		fmt.Fprintf(&b, "; it was salvaged: %d of its rollouts lost", r.Lost)
		if r.Dropped > 0 {
			fmt.Fprintf(&b, ", %d were left out as parts of groups or beyond the capacity", r.Dropped)
		}
	}
	return b.String()
}

// Open reads a journal back into the table that build makes of its definition, and goes on with it. A damaged journal is
// refused, with an error that wraps [ErrDamaged], names what is damaged, and says how to save the rest. An error wraps
// os.ErrNotExist if there is no file.
func Open(o Options, build func(definition []byte) (*replay.Table, error)) (*Journal, *replay.Table, *Recovery, error) {
	if err := o.Validate(); err != nil {
		return nil, nil, nil, err
	}
	o = o.withDefaults()
	began := time.Now()
	if err := os.Remove(o.Path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) { // of a rewriting that a crash ended
		return nil, nil, nil, fmt.Errorf("opening the journal %s: %w", o.Path, err)
	}
	c, err := readWhole(o)
	if err != nil {
		return nil, nil, nil, err
	}
	table, err := build(c.state[definitionKey])
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening the journal %s: making its table: %w", o.Path, err)
	}
	done, err := table.Durable().Rebuild(c.recovered())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening the journal %s: %w", o.Path, err)
	}
	j := newJournal(o, c.state[definitionKey], table)
	s, err := j.reopen(c)
	if err != nil {
		return nil, nil, nil, err
	}
	j.begin(s)
	r := &Recovery{
		Path: o.Path, Rollouts: table.Server().Flow().Present, Bytes: c.bytes, Version: table.Version(), Requests: len(c.requests),
		Returned: done.Returned, Lost: done.Lost, Dropped: done.Dropped, Salvaged: c.totals.Salvaged,
		Took: time.Since(began), Blobs: c.blobs(),
	}
	r.FileBytes, _ = s.size()
	o.Logger.Debug("opened the journal", "path", o.Path, "recovered", r.String())
	return j, table, r, nil
}

// readWhole reads a journal in which nothing is wrong. It waits for another process to give it up.
func readWhole(o Options) (*content, error) {
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

// refusal names the first damages and the way out.
func refusal(r *Report) error {
	const most = 5
	var b strings.Builder
	for _, d := range r.Damage[:min(most, len(r.Damage))] {
		fmt.Fprintf(&b, "%s; ", d)
	}
	if n := len(r.Damage) + r.More - most; n > 0 {
		fmt.Fprintf(&b, "and %d more; ", n)
	}
	return fmt.Errorf("opening the journal %s: %w: %skeep the file, and save the rest of it with: reprise journal salvage %s --out NEW", r.Path, ErrDamaged, b.String(), r.Path)
}

// recovered is the content as a table takes it.
func (c *content) recovered() replay.Recovered {
	r := replay.Recovered{State: c.books, Stored: c.rollouts, Repair: c.totals.Salvaged}
	for _, q := range c.requests {
		r.Requests = append(r.Requests, q.Insertion)
	}
	return r
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

// reopen goes on with a file whose content is known; one that was salvaged is written anew, as the table is now.
func (j *Journal) reopen(c *content) (*store, error) {
	if c.totals.Salvaged {
		j.table.Load().Durable().Track()
		b, err := j.cut(nil)
		if err != nil {
			return nil, err
		}
		for name, payload := range c.blobs() {
			en, err := j.encoder.state(blobPrefix+name, payload)
			if err != nil {
				return nil, err
			}
			b.state = append(b.state, en)
		}
		return writeAnew(j.options.Path, j.definition, j.options.LockTimeout, j.encoder, b, false)
	}
	s, err := openStore(j.options.Path, j.options.LockTimeout, j.encoder)
	if err != nil {
		return nil, err
	}
	if err := s.db.Sync(); err != nil { // what a process with Off left to the operating system
		return nil, errors.Join(fmt.Errorf("opening the journal %s: %w", j.options.Path, err), s.db.Close())
	}
	s.totals = c.totals
	if n := len(c.requests); n > 0 {
		s.first, s.next = c.requests[0].number, c.requests[n-1].number+1
	}
	j.books = c.state[booksKey]
	return s, nil
}
