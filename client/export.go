package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Export gives each all that the table holds, in order of ids and in record batches of as many rows (0: 256); columns are
// those of the sampling schema, none for all. Nothing is drawn. The batches are good until each returns unless it retains them.
// What breaks off is not begun again: the table may have changed.
func (t *Table) Export(ctx context.Context, rows int, columns []string, each func(arrow.RecordBatch) error) error {
	ticket, err := json.Marshal(wire.SampleRequest{Table: t.name, Size: rows, Columns: columns, Export: true})
	if err != nil {
		return t.failed("export", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(t.client.options.CallTimeout, func() {
		cancel(fmt.Errorf("nothing came for %v: %w", t.client.options.CallTimeout, context.DeadlineExceeded))
	})
	defer late.Stop()
	stream, err := t.client.flight.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	if err != nil {
		return t.failed("export", understood(err))
	}
	reader := flightdata.NewReader(stream, flightdata.Options{MaxBytes: int64(t.client.options.MaxMessageBytes)})
	for {
		frame, err := reader.Next()
		late.Stop()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return t.failed("export", context.Cause(ctx))
		case err != nil:
			return t.failed("export", understood(err))
		case frame.Batch == nil:
			continue
		}
		err = each(frame.Batch)
		frame.Batch.Release()
		if err != nil {
			return err
		}
		late.Reset(t.client.options.CallTimeout)
	}
}

// Scan is [Table.Export] with the rollouts as draws, of probability that of the next draw and weight 1. They share the memory of
// the rows that came with them.
func (t *Table) Scan(ctx context.Context, rows int, each func([]rollout.Draw) error) error {
	return t.Export(ctx, rows, nil, func(rec arrow.RecordBatch) error {
		rec.Retain() // the garbage collector's: the draws refer to it
		draws, err := wire.Draws(rec, extraOf(rec.Schema()))
		if err != nil {
			return t.failed("scan", err)
		}
		return each(draws)
	})
}
