package archive

import (
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/internal/disk"
)

// Write writes an Arrow IPC file of the record batches that fill adds, and returns the number of rows. The file gets
// its name, and replaces an old one, once it is on disk. After an error, of fill too, nothing of it is left.
func Write(path string, schema *arrow.Schema, fill func(add func(arrow.RecordBatch) error) error) (rows int64,
	err error) {
	err = disk.ReplaceFile(path, func(to io.Writer) error {
		w, err := ipc.NewFileWriter(to, ipc.WithSchema(schema))
		if err != nil {
			return fmt.Errorf("begin %s: %w", path, err)
		}
		err = fill(func(rec arrow.RecordBatch) error {
			rows += rec.NumRows()
			if err := w.Write(rec); err != nil {
				return fmt.Errorf("write %s: %w", path, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return w.Close()
	})
	return rows, err
}

// IDColumn is the column of a rollout's id.
const IDColumn = "id"

// Choice picks rows by the ids of their rollouts.
type Choice struct{ found map[uint64]bool } // by wanted id

// NewChoice picks rows with these ids.
func NewChoice(ids []uint64) *Choice {
	c := &Choice{found: make(map[uint64]bool, len(ids))}
	for _, id := range ids {
		c.found[id] = false
	}
	return c
}

// Of returns the chosen rows of a record batch, nil if there are none.
func (c *Choice) Of(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	at := rec.Schema().FieldIndices(IDColumn)
	if len(at) == 0 {
		return nil, fmt.Errorf("%s: no such column", IDColumn)
	}
	ids, ok := rec.Column(at[0]).(*array.Uint64)
	if !ok {
		return nil, fmt.Errorf("%s: type %s: want uint64", IDColumn, rec.Column(at[0]).DataType())
	}
	var runs []run
	for i := range ids.Len() {
		if _, ok := c.found[ids.Value(i)]; !ok {
			continue
		}
		c.found[ids.Value(i)] = true
		runs = extendRuns(runs, int64(i))
	}
	if len(runs) == 0 {
		return nil, nil
	}
	return concatenate(rec, runs)
}

// run is neighbouring rows.
type run struct{ from, to int64 }

// extendRuns adds a row, which comes after those before.
func extendRuns(runs []run, row int64) []run {
	if n := len(runs); n > 0 && runs[n-1].to == row {
		runs[n-1].to++
		return runs
	}
	return append(runs, run{row, row + 1})
}

// concatenate returns runs of rows as one record batch.
func concatenate(rec arrow.RecordBatch, runs []run) (arrow.RecordBatch, error) {
	if len(runs) == 1 {
		return rec.NewSlice(runs[0].from, runs[0].to), nil
	}
	var rows int64
	for _, run := range runs {
		rows += run.to - run.from
	}
	columns := make([]arrow.Array, 0, rec.NumCols())
	defer func() {
		for _, column := range columns {
			column.Release()
		}
	}()
	for _, column := range rec.Columns() {
		parts := make([]arrow.Array, len(runs))
		for i, run := range runs {
			parts[i] = array.NewSlice(column, run.from, run.to)
		}
		joined, err := array.Concatenate(parts, memory.DefaultAllocator)
		for _, p := range parts {
			p.Release()
		}
		if err != nil {
			return nil, fmt.Errorf("concatenate the chosen rows: %w", err)
		}
		columns = append(columns, joined)
	}
	return array.NewRecordBatch(rec.Schema(), columns, rows), nil
}

// Missing returns, in ascending order, the ids that no record batch had.
func (c *Choice) Missing() []uint64 {
	var ids []uint64
	for id, found := range c.found {
		if !found {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
