package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/transfer"
	"github.com/reprise-rl/reprise/wire/archive"
)

// importCommand inserts rollouts from files into a table.
type importCommand struct {
	File      file          `arg:"" help:"File of Arrow IPC, Parquet or JSON lines, or a folder of the latter two: an export, or rows of the insertion schema from pandas, polars or pyarrow."`
	Table     text          `arg:"" help:"Existing table, grpc://host:port/table."`
	Rows      int           `default:"256" help:"Rollouts in one insertion. A group is never split."`
	Advance   bool          `help:"First set the table's version to the newest in the file, if it is behind."`
	Recompute bool          `help:"Let the table compute advantages again, instead of keeping those of the file."`
	As        text          `help:"Name of this import. Repeated under the same name, it skips what has entered."`
	Wait      time.Duration `default:"30s" help:"Longest wait for room in a queue, or for the limiter."`
	JSON      bool          `name:"json" help:"Print the result as JSON."`

	Tokenizer dir     `help:"The file has chats, columns messages or prompt and completion: encode them with the tokenizer and chat template in this folder, as offline rollouts without log-probs."`
	Reward    float64 `default:"1" help:"With --tokenizer: reward of rows without the column reward."`
	AtVersion *int    `help:"With --tokenizer: version of the tokens. Default: the table's."`

	Connection connection `embed:""`
}

// Run checks the whole file and inserts it.
func (c *importCommand) Run(ctx context.Context) error {
	if c.Rows < 1 {
		return fmt.Errorf("--rows %d: want 1 or more", c.Rows)
	}
	rows, err := archive.Open(string(c.File))
	if err != nil {
		return err
	}
	connected, table, err := c.Connection.table(ctx, string(c.Table))
	if err != nil {
		return err
	}
	defer connected.Close()
	var from transfer.Rollouts = rows
	var chat *chats
	if c.Tokenizer != "" {
		if chat, err = c.chats(ctx, rows, table); err != nil {
			return err
		}
		from = chat
	}
	done, err := transfer.Import(ctx, from, string(c.File), string(c.Table), table, transfer.ImportOptions{
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
	if chat != nil && len(chat.ignored) > 0 {
		fmt.Printf("  columns that were left out: %s\n", strings.Join(chat.leftOut(), ", "))
	}
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

// chats returns the rows as chats for a table, which must take rollouts without log-probs.
func (c *importCommand) chats(ctx context.Context, rows *archive.Reader, table *client.Table) (*chats, error) {
	info, err := table.Info(ctx)
	if err != nil {
		return nil, err
	}
	if d := info.Definition; d != nil && !d.UnknownLogprobs {
		return nil, fmt.Errorf("table %s refuses rollouts without log-probs, such as chats: create one with "+
			"unknown_logprobs=true", table.Name())
	}
	if c.Recompute {
		return nil, errors.New("--recompute: chats have no advantages to compute again")
	}
	version := rollout.Version(info.Version)
	if c.AtVersion != nil {
		if *c.AtVersion < 0 || *c.AtVersion > int(version) {
			return nil, fmt.Errorf("--at-version %d: want 0 to %d, the version of table %s", *c.AtVersion, version,
				table.Name())
		}
		version = rollout.Version(*c.AtVersion)
	}
	return newChats(rows, string(c.Tokenizer), float32(c.Reward), version)
}
