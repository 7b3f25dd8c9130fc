package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/service/transfer"
)

// exportCommand writes a table to an Arrow IPC file.
type exportCommand struct {
	Source  text     `arg:"" help:"grpc://host:port/table, or the file of a journal that no service has open."`
	Out     file     `required:"" help:"File to write: Arrow IPC, which pandas, polars, DuckDB and pyarrow read."`
	IDs     []uint64 `name:"ids" help:"Export only the rollouts with these ids."`
	Columns []string `help:"Export only these columns of the sampling schema."`
	Rows    int      `default:"256" help:"Rollouts in one record batch of the file."`
	Force   bool     `help:"Replace an existing file."`
	JSON    bool     `name:"json" help:"Print the result as JSON."`

	Connection connection `embed:""`
}

// Run writes the file.
func (c *exportCommand) Run(ctx context.Context) error {
	if c.Rows < 1 {
		return fmt.Errorf("--rows %d: want 1 or more", c.Rows)
	}
	if err := refuseToReplace(string(c.Out), c.Force); err != nil {
		return err
	}
	done, err := c.export(ctx, string(c.Source), transfer.ExportOptions{File: string(c.Out), IDs: c.IDs,
		Columns: c.Columns, Rows: c.Rows})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(done)
	}
	fmt.Printf("%s: %d rollouts of %s, at version %d, in %.2f s\n", done.File, done.Rollouts, done.Source, done.Version,
		done.Seconds)
	if len(done.Missing) > 0 {
		fmt.Printf("  not in the table: %v\n", done.Missing)
	}
	return nil
}

func (c *exportCommand) export(ctx context.Context, source string, o transfer.ExportOptions) (*transfer.Exported,
	error) {
	if !strings.Contains(source, "://") {
		return transfer.ExportJournal(ctx, source, o)
	}
	connected, table, err := c.Connection.table(ctx, source)
	if err != nil {
		return nil, err
	}
	defer connected.Close()
	return transfer.Export(ctx, source, table, o)
}

// refuseToReplace returns an error unless a path is free, or is a file that may be replaced.
func refuseToReplace(path string, force bool) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("--out %s: exists and is not a file", path)
	case !force:
		return fmt.Errorf("--out %s: exists; --force replaces it", path)
	}
	return nil
}
