package wire

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// Gatherer packs rollouts into record batches over pooled memory: what it costs is copying them once. The zero Gatherer is
// ready; any number of goroutines may use it. It must not be copied.
type Gatherer struct{ pool Pool }

// Batch packs draws as a record batch of a schema that [SampleSchema] made. Its memory goes back to the pool at the last Release;
// the rollouts are only read.
func (g *Gatherer) Batch(draws []rollout.Draw, schema *arrow.Schema) (arrow.RecordBatch, error) {
	return pack(&g.pool, draws, schema, drawColumn)
}

// Rows packs groups as [Rows] does, over pooled memory; schema is an [InsertSchema].
func (g *Gatherer) Rows(groups []rollout.Group, schema *arrow.Schema) (arrow.RecordBatch, error) {
	return packGroups(&g.pool, groups, schema)
}

// Rows returns groups as a record batch of InsertSchema(extra...). Column group counts them from 0.
func Rows(groups []rollout.Group, extra []arrow.Field) (arrow.RecordBatch, error) {
	return packGroups(new(Pool), groups, InsertSchema(extra...))
}

func packGroups(pool *Pool, groups []rollout.Group, schema *arrow.Schema) (arrow.RecordBatch, error) {
	var rows []rollout.Draw
	for i, g := range groups {
		for _, r := range g.Rollouts {
			rows = append(rows, rollout.Draw{Group: uint64(i), Rollout: r})
		}
	}
	return pack(pool, rows, schema, insertColumn)
}

// packing is the making of one record batch.
type packing struct {
	pool  *Pool
	rows  []rollout.Draw
	small *memory.Buffer // what small buffers are slices of
	used  int            // bytes of it
	zeros *memory.Buffer // an offset more than there are rows, all 0; nil until a column is empty
}

// pack makes a record batch, column by column.
func pack(pool *Pool, rows []rollout.Draw, schema *arrow.Schema, column func(*packing, arrow.Field) (arrow.ArrayData, error)) (arrow.RecordBatch, error) {
	p := &packing{pool: pool, rows: rows}
	columns := make([]arrow.Array, 0, schema.NumFields())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
		for _, b := range []*memory.Buffer{p.small, p.zeros} {
			if b != nil {
				b.Release()
			}
		}
	}()
	for i := range schema.NumFields() {
		d, err := column(p, schema.Field(i))
		if err != nil {
			return nil, err
		}
		columns = append(columns, array.MakeFromData(d))
		d.Release()
	}
	return array.NewRecordBatch(schema, columns, int64(len(rows))), nil
}

// smallBuffer is the size up to which buffers share memory, and sharedSize that of what they share, in bytes.
const (
	smallBuffer = 2 << 10
	sharedSize  = 16 << 10
)

// take returns a buffer of pooled memory, of any content.
func (p *packing) take(size int) (*memory.Buffer, []byte) {
	if size > smallBuffer {
		b := p.pool.Allocate(size)
		return memory.NewBufferWithAllocator(b, p.pool), b
	}
	if p.small == nil || p.used+size > sharedSize {
		if p.small != nil {
			p.small.Release()
		}
		p.small, p.used = memory.NewBufferWithAllocator(p.pool.Allocate(sharedSize), p.pool), 0
	}
	b := memory.SliceBuffer(p.small, p.used, size)
	p.used += (size + alignment - 1) / alignment * alignment
	return b, b.Bytes()
}

// data makes an array of buffers and children that it takes over.
func data(t arrow.DataType, n int, buffers []*memory.Buffer, children []arrow.ArrayData, nulls int) arrow.ArrayData {
	d := array.NewData(t, n, buffers, children, nulls, 0)
	for _, b := range buffers {
		if b != nil {
			b.Release()
		}
	}
	for _, c := range children {
		c.Release()
	}
	return d
}

// validity returns the bitmap of the rows that are there, and how many are not; no bitmap if all are.
func (p *packing) validity(there func(*rollout.Draw) bool) (*memory.Buffer, int) {
	nulls := 0
	for i := range p.rows {
		if !there(&p.rows[i]) {
			nulls++
		}
	}
	if nulls == 0 {
		return nil, 0
	}
	b := p.bits(len(p.rows), func(i int) bool { return there(&p.rows[i]) })
	return b, nulls
}

// bits returns a bitmap.
func (p *packing) bits(n int, get func(int) bool) *memory.Buffer {
	b, dst := p.take((n + 7) / 8)
	clear(dst)
	for i := range n {
		if get(i) {
			dst[i>>3] |= 1 << (i & 7)
		}
	}
	return b
}
