package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/archive"
)

// importCommand inserts what an Arrow IPC file holds into a table.
type importCommand struct {
	File      file          `arg:"" help:"Arrow IPC file: an export, or rows of the insertion's schema from pandas, polars or pyarrow."`
	Table     text          `arg:"" help:"grpc://host:port/table to insert into, which is there."`
	Rows      int           `default:"256" help:"Rollouts in one insertion; a group is never cut."`
	Advance   bool          `help:"Set the table's version to the newest in the file first, where it is behind."`
	Recompute bool          `help:"Have the table compute advantages anew; otherwise those of the file are kept."`
	As        text          `help:"Name of this import: repeated under it, what has entered does not enter again."`
	Wait      time.Duration `default:"30s" help:"How long to wait for room in a queue, or for the limiter, before it is given up."`
	JSON      bool          `name:"json" help:"Print what was done as JSON."`

	Connection connection `embed:""`
}

// imported is what an import did.
type imported struct {
	File       string          `json:"file"`
	Table      string          `json:"table"`
	Rollouts   int             `json:"rollouts"`
	Groups     int             `json:"groups"`
	Insertions int             `json:"insertions"`
	Bytes      int64           `json:"bytes"` // of payload
	Newest     rollout.Version `json:"newest_version"`
	Advanced   bool            `json:"advanced,omitempty"` // the table was brought to that version
	Before     int             `json:"present_before"`
	Present    int             `json:"present_after"`
	Seconds    float64         `json:"seconds"`
}

// Run checks the whole file, and inserts it.
func (c *importCommand) Run(ctx context.Context) error {
	if c.Rows < 1 {
		return fmt.Errorf("--rows %d: want 1 or more", c.Rows)
	}
	begin := time.Now()
	source, err := archive.Open(string(c.File))
	if err != nil {
		return err
	}
	defer source.Close()
	connected, table, err := c.Connection.table(ctx, string(c.Table))
	if err != nil {
		return err
	}
	defer connected.Close()
	info, err := table.Info(ctx)
	if err != nil {
		return err
	}
	options, err := c.options(info)
	if err != nil {
		return err
	}
	done := imported{File: string(c.File), Table: string(c.Table), Before: info.Present, Present: info.Present}
	if err := c.check(source, options, &done); err != nil {
		return err
	}
	if err := c.reach(ctx, table, info, &done); err != nil {
		return err
	}
	if err := c.insert(ctx, source, table.Waiting(c.Wait), options, &done); err != nil {
		return err
	}
	done.Seconds = time.Since(begin).Seconds()
	if c.JSON {
		return printJSON(done)
	}
	done.show()
	return nil
}

func (c *importCommand) options(info wire.TableInfo) (archive.Options, error) {
	var extra []arrow.Field
	if info.Definition != nil {
		var err error
		if extra, err = wire.ExtraFields(info.Definition.Columns); err != nil {
			return archive.Options{}, err
		}
	}
	return archive.Options{Extra: extra, Rollouts: c.Rows, Recompute: c.Recompute}, nil
}

// check reads the whole file, so that nothing enters from one with a bad row, and counts.
func (c *importCommand) check(source *archive.Reader, o archive.Options, done *imported) error {
	done.Newest = rollout.NoVersion
	for in, err := range source.Insertions(o) {
		if err != nil {
			return err
		}
		done.Rollouts += in.Rollouts
		done.Groups += len(in.Groups)
		done.Newest = max(done.Newest, in.Newest)
		done.Bytes += in.Bytes
	}
	return nil
}

// reach brings the table to the file's version, if it may.
func (c *importCommand) reach(ctx context.Context, t *client.Table, info wire.TableInfo, done *imported) error {
	if done.Newest <= rollout.Version(info.Version) {
		return nil
	}
	if !c.Advance {
		return fmt.Errorf("%s has rollouts of version %d, and table %s is at version %d: --advance brings it there first",
			c.File, done.Newest, t.Name(), info.Version)
	}
	done.Advanced = true
	return t.Advance(ctx, done.Newest)
}

func (c *importCommand) insert(ctx context.Context, source *archive.Reader, t *client.Table, o archive.Options, done *imported) error {
	name := string(c.As)
	if name == "" {
		name = "import-" + rand.Text()
	}
	entered := 0
	for in, err := range source.Insertions(o) {
		if err != nil {
			return err
		}
		answer, err := t.InsertGroups(ctx, client.Insertion{BatchID: fmt.Sprintf("%s/%d/%d", name, c.Rows, done.Insertions)}, in.Groups...)
		if err != nil {
			return c.partial(err, entered, name, done)
		}
		done.Insertions++
		entered += in.Rollouts
		done.Present = answer.Present
	}
	return nil
}

// partial says how far it came, and how to go on.
func (c *importCommand) partial(err error, entered int, name string, done *imported) error {
	err = fmt.Errorf("%w\n%d of %d rollouts have entered; repeated with --as %s the import goes on after them", err, entered, done.Rollouts, name)
	if errors.Is(err, context.Canceled) {
		return interruption(err.Error())
	}
	return err
}

func (d imported) show() {
	fmt.Printf("%s: %d rollouts in %d groups, %s, versions up to %d\n", d.File, d.Rollouts, d.Groups, size(d.Bytes), d.Newest)
	if d.Advanced {
		fmt.Printf("  the table was advanced to version %d\n", d.Newest)
	}
	fmt.Printf("  inserted into %s in %.2f s, insertions: %d; it holds %d rollouts, before it held %d\n",
		d.Table, d.Seconds, d.Insertions, d.Present, d.Before)
	if missing := d.Before + d.Rollouts - d.Present; missing > 0 {
		fmt.Printf("  %d rollouts are not there any more, or were before: the table's capacity, its bounds on age and use, or --as\n", missing)
	}
}
