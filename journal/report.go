package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
)

// ErrDamaged is returned for a journal in which something is not what was written.
var ErrDamaged = errors.New("journal is damaged")

// Damage is one thing in a file that is not what was written.
type Damage struct {
	Page   uint64     // where it was found
	Bucket string     // "": of the file itself
	ID     rollout.ID // 0: of no rollout, or nobody knows which
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

// Report says what a file holds and what is wrong with it.
type Report struct {
	Path      string
	FileBytes int64
	PageSize  int
	Pages     uint64 // in use, or free between those
	Commit    uint64 // transactions that it has seen
	Version   rollout.Version
	Rollouts  int // whole
	Uses      int // whole records of uses that changed since their rollouts were written
	Requests  int // insertions remembered
	Salvaged  bool
	Damage    []Damage // at most 1,000
	More      int      // beyond those

	Orphans int // of a salvage: rollouts on pages that no whole page leads to. They may have been removed before the damage.
}

// Whole tells whether nothing is damaged.
func (r *Report) Whole() bool { return len(r.Damage) == 0 }

// String says it all in a few lines, the damages one each.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d bytes, transaction %d, version %d: %d rollouts, %d later uses, %d insertions remembered",
		r.Path, r.FileBytes, r.Commit, r.Version, r.Rollouts, r.Uses, r.Requests)
	if r.Orphans > 0 {
		fmt.Fprintf(&b, "; %d of the rollouts from pages that nothing whole leads to, which may have been removed before", r.Orphans)
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

// examine reads a file. The error is of a file that cannot be read at all; what is damaged is in the report.
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
	if c.books != nil {
		report.Version = c.books.Version
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

// Verify reads a whole journal that no process has open, and reports what it holds and what is damaged. An error is of a file
// that cannot be read.
func Verify(path string) (*Report, error) {
	_, report, err := examine(path, false)
	return report, err
}
