package transfer

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/archive"
)

// Rollouts is what is imported: an *archive.Reader, for example. It is read twice.
type Rollouts interface {
	Insertions(o archive.Options) iter.Seq2[archive.Insertion, error]
}

// ImportOptions say how rollouts are inserted.
type ImportOptions struct {
	Rows      int           // rollouts in one insertion; a group is never split
	Advance   bool          // first set the table's version to the newest in the file, if it is behind
	Recompute bool          // the table computes advantages again; otherwise the file's are kept
	As        string        // name of the import: what entered under it does not enter again; "": a random name
	Wait      time.Duration // how long to wait for room in a queue, or for the limiter
}

// Imported is the result of an import.
type Imported struct {
	File       string          `json:"file"`
	Table      string          `json:"table"`
	Rollouts   int             `json:"rollouts"`
	Groups     int             `json:"groups"`
	Insertions int             `json:"insertions"`
	Bytes      int64           `json:"bytes"` // of payload
	Newest     rollout.Version `json:"newest_version"`
	Advanced   bool            `json:"advanced,omitempty"` // the table's version was set to Newest
	Before     int             `json:"present_before"`
	Present    int             `json:"present_after"`
	Seconds    float64         `json:"seconds"`
}

// Import checks all of a source and then inserts it into a table, so that nothing enters from a file with a bad row.
// File and target are the names of both in the result.
func Import(ctx context.Context, source Rollouts, file, target string, table *client.Table,
	o ImportOptions) (*Imported, error) {
	began := time.Now()
	info, err := table.Info(ctx)
	if err != nil {
		return nil, err
	}
	extra, err := extraFields(info)
	if err != nil {
		return nil, err
	}
	rows := archive.Options{Extra: extra, Rollouts: o.Rows, Recompute: o.Recompute}
	if info.Definition != nil {
		rows.Limits = info.Definition.Limits()
	}
	done := &Imported{File: file, Table: target, Before: info.Present, Present: info.Present, Newest: rollout.NoVersion}
	for in, err := range source.Insertions(rows) {
		if err != nil {
			return nil, err
		}
		done.Rollouts += in.Rollouts
		done.Groups += len(in.Groups)
		done.Newest = max(done.Newest, in.Newest)
		done.Bytes += in.Bytes
	}
	if err := done.advance(ctx, table, info, o.Advance); err != nil {
		return nil, err
	}
	if err := done.insert(ctx, source, table.Waiting(o.Wait), rows, cmp.Or(o.As, "import-"+rand.Text())); err != nil {
		return nil, err
	}
	done.Seconds = time.Since(began).Seconds()
	return done, nil
}

// advance sets the table's version to the file's newest if it is behind.
func (d *Imported) advance(ctx context.Context, t *client.Table, info wire.TableInfo, allowed bool) error {
	if d.Newest <= rollout.Version(info.Version) {
		return nil
	}
	if !allowed {
		return fmt.Errorf("%s has rollouts of version %d, but table %s is at version %d: --advance sets the table's "+
			"version first",
			d.File, d.Newest, t.Name(), info.Version)
	}
	d.Advanced = true
	return t.Advance(ctx, d.Newest)
}

// insert inserts the file's groups. The name and the number of an insertion are its batch id, so that a repeated import
// skips what has entered.
func (d *Imported) insert(ctx context.Context, source Rollouts, t *client.Table, o archive.Options,
	name string) error {
	entered := 0
	for in, err := range source.Insertions(o) {
		if err != nil {
			return err
		}
		id := fmt.Sprintf("%s/%d/%d", name, o.Rollouts, d.Insertions)
		answer, err := t.InsertGroups(ctx, client.Insertion{BatchID: id}, in.Groups...)
		if err != nil {
			return fmt.Errorf("%w\n%d of %d rollouts have entered; the same command with --as %s continues after them",
				err, entered, d.Rollouts, name)
		}
		d.Insertions++
		entered += in.Rollouts
		d.Present = answer.Present
	}
	return nil
}
