package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/archive"
)

// exportCommand writes what a table holds into an Arrow IPC file.
type exportCommand struct {
	Source  text     `arg:"" help:"grpc://host:port/table, or the file of a journal that no service has open."`
	Out     file     `required:"" help:"File to write: Arrow IPC, which pandas, polars, DuckDB and pyarrow open."`
	IDs     []uint64 `name:"ids" help:"Only the rollouts of these ids."`
	Columns []string `help:"Only these columns of the sampling schema."`
	Rows    int      `default:"256" help:"Rollouts in one record batch of the file."`
	Force   bool     `help:"Replace a file that is there."`
	JSON    bool     `name:"json" help:"Print what was done as JSON."`

	Connection connection `embed:""`
}

// exported is what an export did.
type exported struct {
	Source   string   `json:"source"`
	File     string   `json:"file"`
	Rollouts int64    `json:"rollouts"`
	Version  int32    `json:"version"` // of the table when the export began
	Seconds  float64  `json:"seconds"`
	Missing  []uint64 `json:"missing,omitempty"` // ids asked for that the table does not hold
}

// Run writes the file.
func (c *exportCommand) Run(ctx context.Context) error {
	if c.Rows < 1 {
		return fmt.Errorf("--rows %d: want 1 or more", c.Rows)
	}
	if err := refuseToReplace(string(c.Out), c.Force); err != nil {
		return err
	}
	begin := time.Now()
	done := exported{Source: string(c.Source), File: string(c.Out)}
	fetch := c.fromService
	if !isAddress(string(c.Source)) {
		fetch = c.fromJournal
	}
	if err := fetch(ctx, &done); err != nil {
		return err
	}
	done.Seconds = time.Since(begin).Seconds()
	if c.JSON {
		return printJSON(done)
	}
	done.show()
	return nil
}

func (c *exportCommand) fromService(ctx context.Context, done *exported) error {
	connected, table, err := c.Connection.table(ctx, string(c.Source))
	if err != nil {
		return err
	}
	defer connected.Close()
	return c.write(ctx, table, done)
}

// write exports a table of a service.
func (c *exportCommand) write(ctx context.Context, table *client.Table, done *exported) error {
	info, err := table.Info(ctx)
	if err != nil {
		return err
	}
	done.Version = info.Version
	schema, err := c.schema(info)
	if err != nil {
		return err
	}
	chosen := archive.NewChoice(c.IDs)
	done.Rollouts, err = archive.Write(string(c.Out), schema, func(add func(arrow.RecordBatch) error) error {
		return table.Export(ctx, c.Rows, c.Columns, func(rec arrow.RecordBatch) error {
			if len(c.IDs) == 0 {
				return add(rec)
			}
			part, err := chosen.Of(rec)
			if err != nil || part == nil {
				return err
			}
			defer part.Release()
			return add(part)
		})
	})
	done.Missing = chosen.Missing()
	return err
}

// schema is what the export's record batches have.
func (c *exportCommand) schema(info wire.TableInfo) (*arrow.Schema, error) {
	if len(c.IDs) > 0 && len(c.Columns) > 0 && !slices.Contains(c.Columns, archive.IDColumn) {
		return nil, fmt.Errorf("--columns %s: want %s among them, beside --ids", strings.Join(c.Columns, ","), archive.IDColumn)
	}
	var own []wire.Column
	if info.Definition != nil {
		own = info.Definition.Columns
	}
	extra, err := wire.ExtraFields(own)
	if err != nil {
		return nil, err
	}
	schema, err := wire.SampleSchema(c.Columns, extra...)
	if err != nil {
		return nil, fmt.Errorf("--columns: %w", err)
	}
	return schema, nil
}

func (d exported) show() {
	fmt.Printf("%s: %d rollouts of %s, at version %d, in %.2f s\n", d.File, d.Rollouts, d.Source, d.Version, d.Seconds)
	if len(d.Missing) > 0 {
		fmt.Printf("  not in the table: %v\n", d.Missing)
	}
}
