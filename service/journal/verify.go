package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// ErrDamaged is returned for a journal whose content is not what was written.
var ErrDamaged = errors.New("journal is damaged")

var errInUse = errors.New("another process has it open: stop that one first")

// Damage is one problem of a file.
type Damage struct {
	Page   uint64     // where it was found
	Bucket string     // "": of the file itself
	ID     rollout.ID // 0: of no rollout, or unknown
	What   string
}

// String reads: page 17, bucket rollouts, rollout 4: its checksum is …
func (d Damage) String() string {
	s := fmt.Sprintf("page %d", d.Page)
	if d.Bucket != "" {
		s += ", bucket " + d.Bucket
	}
	if d.ID != 0 {
		s += fmt.Sprintf(", rollout %d", d.ID)
	}
	return s + ": " + d.What
}

// Report is the content of a file in numbers, and its damage.
type Report struct {
	Path      string
	FileBytes int64
	PageSize  int
	Pages     uint64 // in use, or free between those
	Commit    uint64 // transactions so far
	Version   rollout.Version
	Rollouts  int // intact
	Uses      int // intact records of later uses
	Requests  int // insertions remembered
	Salvaged  bool
	Logged    int      // cuts that are only in the log; Open writes them to the file
	Damage    []Damage // at most 1,000
	More      int      // further ones

	// of a salvage: rollouts on pages that no intact page leads to. They may have been removed before the damage.
	Orphans int
}

// Whole reports whether nothing is damaged.
func (r *Report) Whole() bool { return len(r.Damage) == 0 }

// String describes the file in one line, and each damage in another.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d bytes, transaction %d, version %d: %d rollouts, %d later uses, %d insertions remembered",
		r.Path, r.FileBytes, r.Commit, r.Version, r.Rollouts, r.Uses, r.Requests)
	if r.Orphans > 0 {
		fmt.Fprintf(&b, "; %d of the rollouts from pages that no intact page leads to, which may have been "+
			"removed before", r.Orphans)
	}
	if r.Logged > 0 {
		fmt.Fprintf(&b, "; %d later changes in its log", r.Logged)
	}
	if r.Salvaged {
		b.WriteString("; salvaged from a damaged one")
	}
	if r.Whole() {
		b.WriteString("; whole")
	}
	for _, d := range r.Damage {
		fmt.Fprintf(&b, "\n  %s", d)
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "\n  and %d more", r.More)
	}
	return b.String()
}

// Verify reads a whole journal that no process has open. The error is of a file that cannot be read; damage is in the
// report.
func Verify(path string) (*Report, error) {
	c, report, err := examine(path, false)
	if err == nil && c != nil {
		report.readLog(c)
	}
	return report, err
}

// readLog returns the cuts of the log, and notes how many they are, or the damage.
func (r *Report) readLog(c *content) []*batch {
	cuts, _, _, err := pending(r.Path, c.position)
	if err != nil {
		r.Damage = append(r.Damage, Damage{What: err.Error()})
	}
	r.Logged = len(cuts)
	return cuts
}

// examine reads a file. With keep the content has the rollouts.
func examine(path string, keep bool) (*content, *Report, error) {
	f, size, err := openToRead(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	_, c, report := examineBytes(f, size, keep)
	report.Path = path
	return c, report, nil
}

// examineBytes reads what may be a journal. The content is nil if it is none.
func examineBytes(f io.ReaderAt, size int64, keep bool) (*reader, *content, *Report) {
	r, err := newReader(f, size)
	report := &Report{FileBytes: size}
	if err != nil {
		report.Damage = append(r.damage, Damage{What: err.Error()})
		return r, nil, report
	}
	c := r.readContent(keep)
	r.check(c)
	report.PageSize, report.Pages = r.meta.pageSize, uint64(r.meta.high)
	report.Damage, report.More = r.damage, r.more
	c.fill(report)
	return r, c, report
}

func (c *content) fill(report *Report) {
	report.Commit, report.Salvaged = c.totals.Commit, c.totals.Salvaged
	report.Rollouts, report.Uses, report.Requests = len(c.rollouts), len(c.uses), len(c.requests)
	if c.table != nil {
		report.Version = c.table.Version
	}
}

// openToRead opens a file that no process writes to.
func openToRead(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the journal: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err == nil {
		err = lockShared(f)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading the journal %s: %w", path, errors.Join(err, f.Close()))
	}
	return f, info.Size(), nil
}

// Salvage writes everything intact of a journal into a new one. [Open] makes a table of it, in which missing rollouts
// count as evicted by damage. If a page that leads to others is damaged, their rollouts are searched on all pages of
// the file; they may include rollouts that had been removed, but no more than the table held. The report is of the old
// file. The error is of a file that cannot be read, has nothing to save, or cannot be written.
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
		return report, fmt.Errorf("salvaging %s: neither of its two meta pages is intact: %w", from, ErrDamaged)
	}
	if c.state[definitionKey] == nil { // it never changes: every former page of the bucket has it
		r.lost = append(r.lost, lostSpan{bucket: stateBucket})
	}
	if len(r.lost) > 0 {
		report.Orphans = r.adoptOrphans(c)
	}
	logged := report.readLog(c)
	definition := c.state[definitionKey]
	if definition == nil {
		return report, fmt.Errorf("salvaging %s: the definition of its table is lost: %w", from, ErrDamaged)
	}
	b, err := c.batch()
	if err != nil {
		return report, fmt.Errorf("salvaging %s: %w", from, err)
	}
	s, err := writeAnew(to, definition, DefaultLockTimeout, b, c.totals.Salvaged || !report.Whole())
	if err != nil {
		return report, err
	}
	c.fill(report)
	if len(logged) > 0 {
		err = s.apply(logged)
	}
	return report, errors.Join(err, s.db.Close())
}

// batch returns the content as a batch that replaces everything.
func (c *content) batch() (*batch, error) {
	c.applyUses()
	b := &batch{rewrite: true, all: c.rollouts, keep: len(c.requests), position: c.position}
	for _, q := range c.requests {
		b.requests = append(b.requests, q.Insertion)
	}
	for key, payload := range c.state {
		if key == definitionKey || key == totalsKey || key == tableKey && c.table == nil {
			continue
		}
		if err := b.addState(key, payload); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// adoptOrphans searches the pages that were not visited for rollouts with lost keys, and for lost state of the latest
// transaction. It returns the number of rollouts that it added.
func (r *reader) adoptOrphans(c *content) int {
	known := make(map[rollout.ID]bool, len(c.rollouts))
	for _, k := range c.rollouts {
		known[k.ID] = true
	}
	var orphans []replay.Stored
	state, latest := map[string][]byte(nil), c.totals
	r.eachOrphan(func(list []element) {
		found := content{}
		for _, e := range list {
			found.decode(stateBucket, e, true) // a record of another bucket has another checksum
			if r.isLost(rolloutsBucket, e.key) {
				found.decode(rolloutsBucket, e, true)
			}
		}
		for _, k := range found.rollouts {
			if !known[k.ID] {
				known[k.ID] = true
				orphans = append(orphans, k)
			}
		}
		var t totals
		if r.isLost(stateBucket, nil) && t.decode(found.state[totalsKey]) == nil && (state == nil ||
			t.Commit >= latest.Commit) {
			state, latest = found.state, t
		}
	})
	for key, payload := range state {
		if c.state[key] == nil {
			c.state[key] = payload
		}
	}
	if table := new(replay.State); c.table == nil && table.UnmarshalBinary(c.state[tableKey]) == nil {
		c.table = table
	}
	slices.SortFunc(orphans, compareIDs)
	if c.table != nil { // the surplus had been removed: most likely the oldest
		surplus := len(c.rollouts) + len(orphans) - c.table.Present()
		orphans = orphans[min(max(surplus, 0), len(orphans)):]
	}
	c.rollouts = append(c.rollouts, orphans...)
	slices.SortFunc(c.rollouts, compareIDs)
	return len(orphans)
}

// isLost reports whether a key is among those that could not be read.
func (r *reader) isLost(bucket string, key []byte) bool {
	return slices.ContainsFunc(r.lost, func(l lostSpan) bool {
		return (l.bucket == bucket || l.bucket == "") && l.span.contains(key)
	})
}

// eachOrphan passes on the entries of all leaves that were not visited, and of the small buckets within them. Most are
// free pages: errors are nothing new.
func (r *reader) eachOrphan(leaf func(list []element)) {
	size := int64(r.meta.pageSize)
	for p := uint64(2); p < r.pages(); p++ {
		at := int64(p) * size
		head := make([]byte, pageHeader)
		if r.visited(p) {
			continue
		}
		if _, err := r.f.ReadAt(head, at); err != nil || binary.NativeEndian.Uint64(head) != p ||
			(page{b: head}).flags() != leafPage {
			continue
		}
		length := (int64(overflow(head)) + 1) * size
		if length > r.size-at {
			continue
		}
		b := make([]byte, length)
		if _, err := r.f.ReadAt(b, at); err != nil {
			continue
		}
		list, _ := page{pageID(p), b}.elements(nil)
		for _, e := range list {
			if inner, err := decodeBucket(pageID(p), e); err == nil && inner.inline != nil {
				entries, _ := inner.inline.elements(nil)
				leaf(entries)
			}
		}
		leaf(slices.DeleteFunc(list, func(e element) bool { return e.bucket }))
	}
}
