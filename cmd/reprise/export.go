package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/service/transfer"
	"github.com/reprise-rl/reprise/wire/archive"
)

// exportCommand writes a table to a file, or to a folder of files.
type exportCommand struct {
	Source    text     `arg:"" help:"grpc://host:port/table, the folder of a run (its last checkpoint), or a journal that no service has open."`
	Out       file     `required:"" help:"File of Arrow IPC to write, or folder of Parquet or JSON lines."`
	Format    string   `enum:"arrow,parquet,jsonl" default:"arrow" help:"arrow: one file, which pandas, polars, DuckDB and pyarrow read; parquet or jsonl: a folder with a dataset card, which Hugging Face's datasets reads too."`
	Where     text     `help:"Export only rollouts that meet a condition, such as \"reward < 0.5 && age > 10 && uses == 0\"."`
	IDs       []uint64 `name:"ids" help:"Export only the rollouts with these ids."`
	Columns   []string `help:"Export only these columns of the sampling schema."`
	ByVersion bool     `help:"With parquet or jsonl: a folder for each version, that of a rollout's oldest token."`
	Rows      int      `default:"256" help:"Rollouts in one record batch of a file of Arrow."`
	Force     bool     `help:"Replace an existing file, or an existing export."`
	JSON      bool     `name:"json" help:"Print the result as JSON."`

	Connection connection `embed:""`
}

// Run writes the export.
func (c *exportCommand) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	o := transfer.ExportOptions{Path: filepath.Clean(string(c.Out)), Format: archive.Format(c.Format), Replace: c.Force,
		IDs: c.IDs, Where: string(c.Where), Columns: c.Columns, Rows: c.Rows, ByVersion: c.ByVersion}
	var done *transfer.Exported
	export := func(from transfer.Source) (err error) {
		done, err = transfer.Export(ctx, string(c.Source), from, o)
		return err
	}
	err := c.Connection.open(ctx, string(c.Source), byPlace{
		served: func(t *client.Table) error { return export(t) },
		inParts: func(t *client.PartedTable) error {
			return fmt.Errorf("%s: table %s is in parts: export one after the other, by the address of its service, in a "+
				"cluster as %[2]s.0, %[2]s.1 and so on; in Python table.export joins them", c.Source, t.Name())
		},
		kept: func(t browse.Table) error { return export(transfer.Local(t.Table)) },
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(done)
	}
	fmt.Printf("%s: %d rollouts of %s, at version %d, in %.2f s\n", done.File, done.Rollouts, done.Source, done.Version,
		done.Seconds)
	if done.Files > 0 {
		fmt.Printf("  %s of %s", words.Plural(done.Files, c.Format+" file"), size(done.Bytes))
		if n := len(done.Versions); n > 0 {
			fmt.Printf(", %s from %d to %d", words.Plural(n, "version"), done.Versions[0], done.Versions[n-1])
		}
		fmt.Println()
	}
	if len(done.Missing) > 0 {
		fmt.Printf("  not exported: %v, which the table does not hold or --where leaves out\n", done.Missing)
	}
	return nil
}

// check returns what is wrong with the flags, before a journal is copied.
func (c *exportCommand) check() error {
	single := c.Format == string(archive.Arrow)
	switch extension := filepath.Ext(string(c.Out)); {
	case c.Rows < 1:
		return fmt.Errorf("--rows %d: want 1 or more", c.Rows)
	case single && c.ByVersion:
		return errors.New("--by-version: want --format parquet or jsonl, which write a folder")
	case single && (extension == ".parquet" || extension == ".jsonl"):
		return fmt.Errorf("--out %s: the format is arrow: add --format %s, and name a folder", c.Out, extension[1:])
	}
	info, err := os.Stat(string(c.Out))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case single && !info.Mode().IsRegular():
		return fmt.Errorf("--out %s: exists and is not a file", c.Out)
	case !single && !info.IsDir():
		return fmt.Errorf("--out %s: exists and is not a folder", c.Out)
	case !c.Force:
		return fmt.Errorf("--out %s: exists; --force replaces it", c.Out)
	}
	return nil
}
