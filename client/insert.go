package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Insertion says how something is inserted.
type Insertion struct {
	BatchID   string // repeated, it adds nothing and returns the first ids; "": one of the client's own
	GroupSize int    // of every group; others are refused; 0: that of the groups, where they have one
	Grant     uint64 // of [Table.Start], that the groups were started under
}

// Insert adds whole groups and returns the ids of their rollouts in order: all of them enter or none, and once, however
// often the connection breaks. When it returns, the service's journal holds them as its setting of sync promises. Errors are those
// of replay.Table: rollout.ErrFull, ErrAhead, ErrInvalid.
func (t *Table) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	return t.InsertOnce(ctx, "", groups...)
}

// InsertOnce is [Table.Insert] under an id of the caller's choice, which other runs of the program may repeat: the service
// remembers the last 100,000.
func (t *Table) InsertOnce(ctx context.Context, batchID string, groups ...rollout.Group) ([]rollout.ID, error) {
	answer, err := t.InsertGroups(ctx, Insertion{BatchID: batchID}, groups...)
	if err != nil {
		return nil, err
	}
	ids := make([]rollout.ID, len(answer.IDs))
	for i, id := range answer.IDs {
		ids[i] = rollout.ID(id)
	}
	return ids, nil
}

// InsertGroups is [Table.Insert] with everything that can be said of an insertion, and all that the service answers.
func (t *Table) InsertGroups(ctx context.Context, o Insertion, groups ...rollout.Group) (wire.InsertAnswer, error) {
	if len(groups) == 0 {
		return wire.InsertAnswer{}, nil
	}
	size, err := commonSize(groups)
	if err != nil {
		return wire.InsertAnswer{}, t.failed("insert", err)
	}
	orElse(&o.GroupSize, size)
	columns, err := t.columns(ctx)
	if err != nil {
		return wire.InsertAnswer{}, err
	}
	rec, err := t.packer.Rows(groups, columns.insert)
	if err != nil {
		return wire.InsertAnswer{}, t.failed("insert", err)
	}
	defer rec.Release()
	return t.InsertRecord(ctx, o, rec)
}

// InsertRecord inserts a record batch of the insertion's schema, or of another that the service takes. It is not released.
func (t *Table) InsertRecord(ctx context.Context, o Insertion, rec arrow.RecordBatch) (wire.InsertAnswer, error) {
	if o.BatchID == "" {
		o.BatchID = t.client.nextID()
	}
	var answer wire.InsertAnswer
	err := t.waitOut(ctx, rollout.ErrFull, func(wait time.Duration) error {
		ms := wait.Milliseconds()
		metadata, err := json.Marshal(wire.InsertRequest{BatchID: o.BatchID, GroupSize: o.GroupSize, Grant: o.Grant, TimeoutMS: &ms})
		if err != nil {
			return err
		}
		return t.client.repeat(ctx, t.client.options.Patience, wait, func(ctx context.Context, _ int) error {
			answer = wire.InsertAnswer{}
			err := t.insertOnce(ctx, rec, metadata, &answer)
			if passing(understood(err)) {
				t.puts.drop() // they broke with it
			}
			return err
		})
	})
	if err != nil {
		if errors.Is(err, rollout.ErrInvalid) || errors.Is(err, wire.ErrNotFound) {
			t.forget() // the table may be another than the one whose columns are known
		}
		return answer, t.failed("insert", err)
	}
	t.heard(answer.Present)
	return answer, nil
}

// insertOnce sends one record batch on a stream that is kept for the next, and awaits its answer.
func (t *Table) insertOnce(ctx context.Context, rec arrow.RecordBatch, metadata []byte, answer *wire.InsertAnswer) error {
	p, err := t.openPut(rec.Schema())
	if err != nil {
		return err
	}
	return p.during(ctx, func() error {
		if err := p.writer.Write(rec, metadata); err != nil {
			return p.cause(err)
		}
		result, err := p.stream.Recv()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(result.GetAppMetadata(), answer); err != nil {
			return fmt.Errorf("reading the answer %.100q: %w", result.GetAppMetadata(), err)
		}
		return nil
	}, func() { t.puts.keep(p) })
}

// commonSize returns the size that all groups declare, 0 if they differ, after holding each to its own.
func commonSize(groups []rollout.Group) (int, error) {
	row, size := 0, groups[0].Size
	for _, g := range groups {
		if g.Size != 0 && len(g.Rollouts) != g.Size || len(g.Rollouts) == 0 { // invariant 8
			return 0, &rollout.FieldError{Row: row, Field: "group", Value: strconv.Itoa(len(g.Rollouts)) + " rollouts", Remedy: fmt.Sprintf("insert whole groups: this one declares %d", g.Size)}
		}
		if g.Size != size {
			size = 0
		}
		row += len(g.Rollouts)
	}
	return size, nil
}
