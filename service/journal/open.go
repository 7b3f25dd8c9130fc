package journal

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal/segments"
)

// Recovery is what [Open] found.
type Recovery struct {
	Path     string
	Rollouts int
	Bytes    int64 // of their payload
	LogBytes int64
	Version  rollout.Version
	Requests int    // insertions remembered by their batch id
	Returned uint64 // draws that were on lease and have been released
	Lost     int    // rollouts lost to damage; salvaged journals only
	Dropped  int    // rollouts that were read but left out: parts of groups, or beyond the capacity
	Salvaged bool   // Salvage wrote the journal, and it is opened for the first time
	Torn     int64  // bytes at the end of the log that were not known to be on disk, and are left out
	Left     int    // messages among them that could be read: what was before them is missing
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
	if r.Torn > 0 {
		b.WriteString("; " + r.tail())
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

// tail describes what is left out at the end.
func (r *Recovery) tail() string {
	text := fmt.Sprintf("its last %d bytes are left out: writing them had not ended, or a loss of power took a part, before "+
		"they were known to be on disk", r.Torn)
	if r.Left > 0 {
		text += fmt.Sprintf("; they have %d messages that can be read, but not all before them", r.Left)
	}
	return text
}

// Open recovers the table that build makes of the definition, and continues its journal. It refuses a damaged journal
// with an error that wraps [ErrDamaged], names the damage, and tells how to save the rest. If there is no journal, the
// error wraps os.ErrNotExist.
func Open(o Options, build func(definition []byte) (*replay.Table, error)) (*Journal, *replay.Table, *Recovery, error) {
	if err := o.Validate(); err != nil {
		return nil, nil, nil, err
	}
	o = o.withDefaults()
	began := time.Now()
	err := disk.RemoveAll(o.Disk, o.Path+segments.Unfinished) // what a crash has left
	var files *segments.Log
	if err == nil {
		files, err = segments.Open(o.Path, o.segments(), false)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening the journal %s: %w", o.Path, err)
	}
	j, table, r, err := recoverTable(files, o, build)
	if err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("opening the journal %s: %w", o.Path, err), files.Close())
	}
	r.Took = time.Since(began)
	if r.Torn, r.Left = files.Torn(); r.Torn > 0 {
		o.Logger.Warn("the journal "+r.tail(), "path", o.Path)
	}
	o.Logger.Debug("opened the journal", "path", o.Path, "recovered", r.String())
	return j, table, r, nil
}

// OpenIn recovers the table that build makes from a log that others hold, and continues its journal. An empty log gives
// an empty table.
func OpenIn(l Log, o Options, build func() (*replay.Table, error)) (*Journal, *replay.Table, *Recovery, error) {
	began := time.Now()
	j, table, r, err := recoverTable(l, o.in(l), func([]byte) (*replay.Table, error) { return build() })
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening the journal in %s: %w", l, err)
	}
	r.Took = time.Since(began)
	return j, table, r, nil
}

// recoverTable makes the table and the journal of what a log has.
func recoverTable(l Log, o Options, build func([]byte) (*replay.Table, error)) (*Journal, *replay.Table, *Recovery,
	error) {
	f, err := readLog(l, o)
	if err != nil {
		return nil, nil, nil, err
	}
	table, err := build(f.state[definitionKey])
	if err != nil {
		return nil, nil, nil, fmt.Errorf("making its table: %w", err)
	}
	j := newJournal(o, l, f.state[definitionKey], table)
	r := &Recovery{Path: o.Path}
	if f.number == 0 { // it is empty, or its first cut never happened
		err = j.writeAll(nil)
	} else {
		r, err = j.rebuild(f, table)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	j.start()
	r.LogBytes = j.Stats().LogBytes
	return j, table, r, nil
}

// readLog reads a log. It refuses a damaged one. One that others hold may be empty.
func readLog(l Log, o Options) (*fold, error) {
	files, _ := l.(*segments.Log)
	f := newFold(true)
	f.sizes = o.slack / 8
	err := l.Read(f.add)
	var problems []string
	if err == nil && (f.number > 0 || files != nil) {
		problems = f.finish()
	}
	var other formatError
	switch {
	case errors.As(err, &other):
		return nil, other
	case files != nil && (err != nil || len(problems) > 0):
		return nil, refusal(files, err)
	case len(problems) > 0:
		return nil, fmt.Errorf("%w: %s", ErrDamaged, strings.Join(problems, "; "))
	}
	return f, err
}

// rebuild fills the table with what its log had, and makes the log go on after the last whole cut.
func (j *Journal) rebuild(f *fold, table *replay.Table) (*Recovery, error) {
	if j.writer.experts != nil {
		j.writer.experts.restore(f.stored, f.apart)
	}
	recovered, err := f.recovered()
	if err != nil {
		return nil, err
	}
	done, err := table.JournalView().Rebuild(recovered)
	if err != nil {
		return nil, err
	}
	if j.files != nil {
		if f.torn {
			err = j.files.CutAfter(f.end)
		}
		if err == nil {
			err = j.files.Resume()
		}
		if err != nil {
			return nil, err
		}
	}
	j.writer.ledger, j.lastState = f.ledger, f.state[tableKey]
	j.writer.size.Store(f.ledger.bytes)
	flow := table.ServiceView().Flow()
	r := &Recovery{Path: j.options.Path, Rollouts: flow.Present, Bytes: flow.Bytes, Version: table.Version(),
		Requests: len(f.requests), Returned: done.Returned, Lost: done.Lost, Dropped: done.Dropped, Salvaged: f.saved,
		WithoutExperts: len(f.apart), Blobs: f.blobs()}
	if f.saved { // what is missing counts as evicted from now on
		err = j.writeAll(r.Blobs)
	} else {
		err = j.writeIDs()
	}
	return r, err
}

// writeIDs writes from where a recovered table's ids go on: it gives none before. While the disk is full a later cut
// has them.
func (j *Journal) writeIDs() error {
	b, err := j.cut(nil)
	if err == nil {
		err = j.writeFirst(b)
	}
	if errors.Is(err, ErrNoSpace) {
		j.lastState, err = nil, nil
		j.mu.Lock()
		j.cutTo = 0 // no write is under way
		j.mu.Unlock()
	}
	return err
}

// Remove removes a journal that no process has open.
func Remove(o Options) error {
	o = o.withDefaults()
	if err := segments.Remove(o.Path, o.Disk); err != nil {
		return fmt.Errorf("removing the journal: %w", err)
	}
	return nil
}
