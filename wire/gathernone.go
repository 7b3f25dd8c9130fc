package wire

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// empty tells whether no row has any items.
func (p *packing) empty(length func(*rollout.Draw) int) bool {
	for i := range p.rows {
		if length(&p.rows[i]) > 0 {
			return false
		}
	}
	return true
}

// none packs a column of lists, text or maps that has no items: all entries are null where the column may be, and empty where it
// may not. Such columns share one buffer of zeros.
func (p *packing) none(f arrow.Field) arrow.ArrayData {
	n := len(p.rows)
	if p.zeros == nil {
		b, dst := p.take(4 * (n + 1))
		clear(dst)
		p.zeros = b
	}
	var valid *memory.Buffer
	nulls := 0
	if f.Nullable && n > 0 {
		valid, nulls = memory.SliceBuffer(p.zeros, 0, (n+7)/8), n
	}
	return p.entries(f.Type, n, valid, nulls)
}

// entries makes an array of so many entries without items, and of none where a type has no lengths.
func (p *packing) entries(t arrow.DataType, n int, valid *memory.Buffer, nulls int) arrow.ArrayData {
	offsets := func() *memory.Buffer { return memory.SliceBuffer(p.zeros, 0, 4*(n+1)) }
	nothing := func() *memory.Buffer { return memory.SliceBuffer(p.zeros, 0, 0) }
	switch t := t.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		return data(t, n, []*memory.Buffer{valid, offsets(), nothing()}, nil, nulls)
	case *arrow.StructType:
		fields := make([]arrow.ArrayData, t.NumFields())
		for i := range fields {
			fields[i] = p.entries(t.Field(i).Type, 0, nil, 0)
		}
		return data(t, 0, []*memory.Buffer{valid}, fields, 0)
	case arrow.ListLikeType: // lists and maps
		return data(t, n, []*memory.Buffer{valid, offsets()}, []arrow.ArrayData{p.entries(t.Elem(), 0, nil, 0)}, nulls)
	}
	return data(t, 0, []*memory.Buffer{valid, nothing()}, nil, 0)
}
