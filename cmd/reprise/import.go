package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/service/transfer"
)

// importCommand inserts an Arrow IPC file into a table.
type importCommand struct {
	File      file          `arg:"" help:"Arrow IPC file: an export, or rows of the insertion schema from pandas, polars or pyarrow."`
	Table     text          `arg:"" help:"Existing table, grpc://host:port/table."`
	Rows      int           `default:"256" help:"Rollouts in one insertion. A group is never split."`
	Advance   bool          `help:"First set the table's version to the newest in the file, if it is behind."`
	Recompute bool          `help:"Let the table compute advantages again, instead of keeping those of the file."`
	As        text          `help:"Name of this import. Repeated under the same name, it skips what has entered."`
	Wait      time.Duration `default:"30s" help:"Longest wait for room in a queue, or for the limiter."`
	JSON      bool          `name:"json" help:"Print the result as JSON."`

	Connection connection `embed:""`
}

// Run checks the whole file and inserts it.
func (c *importCommand) Run(ctx context.Context) error {
	if c.Rows < 1 {
		return fmt.Errorf("--rows %d: want 1 or more", c.Rows)
	}
	connected, table, err := c.Connection.table(ctx, string(c.Table))
	if err != nil {
		return err
	}
	defer connected.Close()
	done, err := transfer.Import(ctx, string(c.File), string(c.Table), table, transfer.ImportOptions{
		Rows: c.Rows, Advance: c.Advance, Recompute: c.Recompute, As: string(c.As), Wait: c.Wait,
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(done)
	}
	fmt.Printf("%s: %d rollouts in %d groups, %s, versions up to %d\n", done.File, done.Rollouts, done.Groups,
		size(done.Bytes), done.Newest)
	if done.Advanced {
		fmt.Printf("  the table was advanced to version %d\n", done.Newest)
	}
	fmt.Printf("  inserted into %s in %.2f s, insertions: %d; it holds %d rollouts, before it held %d\n",
		done.Table, done.Seconds, done.Insertions, done.Present, done.Before)
	if missing := done.Before + done.Rollouts - done.Present; missing > 0 {
		fmt.Printf("  %d rollouts fewer than the sum: evicted by capacity, staleness or uses, or skipped because "+
			"of --as\n", missing)
	}
	return nil
}
