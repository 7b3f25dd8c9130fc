package archive

import (
	"fmt"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// IDColumn is the column of a rollout's id in a table.
const IDColumn = "id"

// Choice picks rows by the ids of their rollouts.
type Choice struct {
	wanted map[uint64]bool // and whether it was found
}

// NewChoice picks these ids.
func NewChoice(ids []uint64) *Choice {
	c := &Choice{wanted: make(map[uint64]bool, len(ids))}
	for _, id := range ids {
		c.wanted[id] = false
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
	var runs [][2]int64 // from, to
	for i := range ids.Len() {
		if _, ok := c.wanted[ids.Value(i)]; !ok {
			continue
		}
		c.wanted[ids.Value(i)] = true
		if n := len(runs); n > 0 && runs[n-1][1] == int64(i) {
			runs[n-1][1]++
			continue
		}
		runs = append(runs, [2]int64{int64(i), int64(i) + 1})
	}
	if len(runs) == 0 {
		return nil, nil
	}
	return joined(rec, runs)
}

// joined returns some runs of rows as one record batch.
func joined(rec arrow.RecordBatch, runs [][2]int64) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, 0, rec.NumCols())
	defer func() {
		for _, column := range columns {
			column.Release()
		}
	}()
	var rows int64
	for _, column := range rec.Columns() {
		parts := make([]arrow.Array, len(runs))
		rows = 0
		for i, run := range runs {
			parts[i] = array.NewSlice(column, run[0], run[1])
			rows += run[1] - run[0]
		}
		whole, err := array.Concatenate(parts, memory.DefaultAllocator)
		for _, p := range parts {
			p.Release()
		}
		if err != nil {
			return nil, fmt.Errorf("put the chosen rows together: %w", err)
		}
		columns = append(columns, whole)
	}
	return array.NewRecordBatch(rec.Schema(), columns, rows), nil
}

// Missing lists, in ascending order, the ids that no record batch had.
func (c *Choice) Missing() []uint64 {
	var ids []uint64
	for _, id := range slices.Sorted(maps.Keys(c.wanted)) {
		if !c.wanted[id] {
			ids = append(ids, id)
		}
	}
	return ids
}
