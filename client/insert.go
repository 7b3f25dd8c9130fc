package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Insertion holds the options of an insertion.
type Insertion struct {
	BatchID   string // repeated, it adds nothing and returns the first ids; "": one of the client's own
	GroupSize int    // of every group; others are refused; 0: that of the groups, if they have one
	Grant     uint64 // of [Table.Start], under which the groups were started
}

// Insert adds whole groups and returns the ids of their rollouts in order: all of them enter or none, and once, however
// often the connection breaks. When it returns, the service's journal holds them as its sync setting promises. Errors
// are those of replay.Table: rollout.ErrFull, ErrAhead, ErrInvalid.
func (t *Table) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	return t.InsertOnce(ctx, "", groups...)
}

// InsertOnce is [Table.Insert] under an id of the caller's choice, which other runs of the program may repeat: the
// service remembers the last 100,000.
func (t *Table) InsertOnce(ctx context.Context, batchID string, groups ...rollout.Group) ([]rollout.ID, error) {
	answer, err := t.InsertGroups(ctx, Insertion{BatchID: batchID}, groups...)
	return idsOf(answer), err
}

// idsOf returns the ids of an answer, none if there is no answer.
func idsOf(answer wire.InsertAnswer) []rollout.ID {
	var ids []rollout.ID
	for _, id := range answer.IDs {
		ids = append(ids, rollout.ID(id))
	}
	return ids
}

// InsertGroups is [Table.Insert] with all options and the whole answer, which says how many rollouts were too old for
// the table's max_staleness and left at once.
func (t *Table) InsertGroups(ctx context.Context, o Insertion, groups ...rollout.Group) (wire.InsertAnswer, error) {
	answer, _, err := t.insertGroups(ctx, o, groups)
	return answer, err
}

// insertGroups reports as uncertain, beside an error, that groups were sent and no answer came: they may have entered.
func (t *Table) insertGroups(
	ctx context.Context, o Insertion, groups []rollout.Group,
) (answer wire.InsertAnswer, uncertain bool, err error) {
	if len(groups) == 0 {
		return wire.InsertAnswer{}, false, nil
	}
	size, err := commonSize(groups)
	if err != nil {
		return wire.InsertAnswer{}, false, t.failed("insert", err)
	}
	o.GroupSize = cmp.Or(o.GroupSize, size)
	o.BatchID = cmp.Or(o.BatchID, t.client.nextID())
	schema, err := t.insertSchema(ctx)
	if err != nil {
		return wire.InsertAnswer{}, false, err
	}
	rec, err := t.packer.Rows(groups, schema)
	if err != nil {
		return wire.InsertAnswer{}, false, t.failed("insert", err)
	}
	defer rec.Release()
	answer, uncertain, err = t.sendRecord(ctx, o, rec)
	if errors.Is(err, rollout.ErrInvalid) || errors.Is(err, wire.ErrNotFound) {
		t.forgetSchema() // the table may be another than the one whose schema is known
	}
	if err != nil {
		return answer, uncertain, t.failed("insert", err)
	}
	return answer, false, nil
}

// commonSize returns the size that all groups declare, 0 if they differ. It checks that each group is whole (invariant
// 8).
func commonSize(groups []rollout.Group) (int, error) {
	row, size := 0, groups[0].Size
	for _, g := range groups {
		if g.Size != 0 && len(g.Rollouts) != g.Size || len(g.Rollouts) == 0 {
			return 0, &rollout.FieldError{Row: row, Field: "group", Value: strconv.Itoa(len(g.Rollouts)) + " rollouts",
				Remedy: fmt.Sprintf("insert whole groups: this one declares %d", g.Size)}
		}
		if g.Size != size {
			size = 0
		}
		row += len(g.Rollouts)
	}
	return size, nil
}

// insertSchema returns the schema of the table's insertions, with its own columns. It asks the service once.
func (t *Table) insertSchema(ctx context.Context) (*arrow.Schema, error) {
	t.mu.Lock()
	known := t.schema
	t.mu.Unlock()
	if known != nil {
		return known, nil
	}
	info, err := t.Info(ctx)
	if err != nil {
		return nil, err
	}
	var own []wire.Column
	if info.Definition != nil {
		own = info.Definition.Columns
	}
	extra, err := wire.ExtraFields(own)
	if err != nil {
		return nil, t.failed("read its definition", err)
	}
	schema := wire.InsertSchema(extra...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schema = schema
	return schema, nil
}

func (t *Table) forgetSchema() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schema = nil
}

// sendRecord inserts a record batch: it waits while the table is full, and retries when the connection breaks.
func (t *Table) sendRecord(
	ctx context.Context, o Insertion, rec arrow.RecordBatch,
) (answer wire.InsertAnswer, uncertain bool, err error) {
	err = t.waitOut(ctx, rollout.ErrFull, func(wait time.Duration) error {
		ms := wait.Milliseconds()
		metadata, err := json.Marshal(wire.InsertRequest{BatchID: o.BatchID, GroupSize: o.GroupSize, Grant: o.Grant,
			TimeoutMS: &ms})
		if err != nil {
			return err
		}
		return t.client.retry(ctx, wait, func(ctx context.Context) (err error) {
			var sent bool
			answer, sent, err = t.sendOnce(ctx, rec, metadata)
			decoded := decodeError(err)
			switch {
			case err == nil || isRefusal(decoded):
				uncertain = false
			case !isAny(decoded, wire.ErrClosing, wire.ErrElsewhere): // which say nothing of earlier attempts
				uncertain = uncertain || sent
			}
			if err != nil && isTransient(decoded) {
				t.inserts.endAll()
			}
			return err
		})
	})
	return answer, uncertain, err
}

// sendOnce sends a record batch on a pooled stream and receives its answer. sent reports whether the service may have
// the whole of it.
func (t *Table) sendOnce(
	ctx context.Context, rec arrow.RecordBatch, metadata []byte,
) (answer wire.InsertAnswer, sent bool, err error) {
	s, err := t.insertStream(rec.Schema())
	if err != nil {
		return answer, false, err
	}
	usable, err := s.during(ctx, func() error {
		if err := s.writer.Write(rec, metadata); err != nil {
			return s.writeError(err)
		}
		sent = true
		result, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(result.GetAppMetadata(), &answer); err != nil {
			return fmt.Errorf("reading the answer %.100q: %w", result.GetAppMetadata(), err)
		}
		return nil
	})
	if usable {
		t.inserts.put(s)
	}
	return answer, sent, err
}

// insertStream is a DoPut stream.
type insertStream struct {
	lifetime
	schema *arrow.Schema
	stream flight.FlightService_DoPutClient
	writer *flightdata.Writer
}

// insertStream returns a stream for record batches of a schema, from the pool or new.
func (t *Table) insertStream(schema *arrow.Schema) (*insertStream, error) {
	if s, ok := t.inserts.get(); ok {
		if s.schema == schema || s.schema.Equal(schema) {
			return s, nil
		}
		s.end()
	}
	s := &insertStream{lifetime: newLifetime(), schema: schema}
	var err error
	if s.stream, err = t.client.flight.DoPut(s.ctx); err != nil {
		s.end()
		return nil, err
	}
	s.writer = flightdata.NewWriter(s.stream, schema, t.descriptor())
	return s, nil
}

// writeError returns why a stream could not be written to. For io.EOF only reading tells.
func (s *insertStream) writeError(err error) error {
	for errors.Is(err, io.EOF) {
		if _, failed := s.stream.Recv(); failed != nil {
			return failed
		}
	}
	return err
}
