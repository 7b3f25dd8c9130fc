package wire

import (
	"maps"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// turns packs lists of structs.
func (p *packing) turns(f arrow.Field) (arrow.ArrayData, error) {
	length := func(d *rollout.Draw) int { return len(d.Rollout.Turns) }
	if p.empty(length) {
		return p.none(f), nil
	}
	offsets, n, err := p.offsets(f, length)
	if err != nil {
		return nil, err
	}
	starts, start := p.take(4 * n)
	ends, end := p.take(4 * n)
	rewards, reward := p.take(4 * n)
	dones, done := p.take((n + 7) / 8)
	clear(done)
	from, to, worth, k := typed[int32](start), typed[int32](end), typed[float32](reward), 0
	for i := range p.rows {
		for _, t := range p.rows[i].Rollout.Turns {
			from[k], to[k], worth[k] = t.Start, t.End, t.Reward
			if t.Done {
				done[k>>3] |= 1 << (k & 7)
			}
			k++
		}
	}
	valid, nulls := p.absence(f, length)
	turn := f.Type.(*arrow.ListType).Elem().(*arrow.StructType)
	fields := make([]arrow.ArrayData, 4)
	for i, b := range []*memory.Buffer{starts, ends, rewards, dones} {
		fields[i] = data(turn.Field(i).Type, n, []*memory.Buffer{nil, b}, nil, 0)
	}
	child := data(turn, n, []*memory.Buffer{nil}, fields, 0)
	return data(f.Type, len(p.rows), []*memory.Buffer{valid, offsets}, []arrow.ArrayData{child}, nulls), nil
}

// images packs lists of bytes.
func (p *packing) images(f arrow.Field) (arrow.ArrayData, error) {
	length := func(d *rollout.Draw) int { return len(d.Rollout.Images) }
	if p.empty(length) {
		return p.none(f), nil
	}
	offsets, n, err := p.offsets(f, length)
	if err != nil {
		return nil, err
	}
	child, err := p.blobs(f, n, func(yield func([]byte) bool) {
		for i := range p.rows {
			for _, image := range p.rows[i].Rollout.Images {
				if !yield(image) {
					return
				}
			}
		}
	})
	if err != nil {
		offsets.Release()
		return nil, err
	}
	valid, nulls := p.absence(f, length)
	return data(f.Type, len(p.rows), []*memory.Buffer{valid, offsets}, []arrow.ArrayData{child}, nulls), nil
}

// blobs packs n pieces of bytes, which are gone through twice.
func (p *packing) blobs(f arrow.Field, n int, all func(yield func([]byte) bool)) (arrow.ArrayData, error) {
	offsets, dst := p.take(4 * (n + 1))
	at, sum, i := typed[int32](dst), 0, 0
	at[0] = 0
	for b := range all {
		if sum += len(b); sum > math.MaxInt32 {
			offsets.Release()
			return nil, Errorf(TooLarge, "column %s has more than %d bytes: take fewer rollouts at a time", f.Name, math.MaxInt32)
		}
		i++
		at[i] = int32(sum)
	}
	values, out := p.take(sum)
	for b := range all {
		out = out[copy(out, b):]
	}
	return data(arrow.BinaryTypes.Binary, n, []*memory.Buffer{nil, offsets, values}, nil, 0), nil
}

// meta packs maps, their keys in order.
func (p *packing) meta(f arrow.Field) (arrow.ArrayData, error) {
	length := func(d *rollout.Draw) int { return len(d.Rollout.Meta) }
	if p.empty(length) {
		return p.none(f), nil
	}
	offsets, _, err := p.offsets(f, length)
	if err != nil {
		return nil, err
	}
	keys, values := newGrower(arrow.BinaryTypes.String), newGrower(arrow.BinaryTypes.String)
	for i := range p.rows {
		m := p.rows[i].Rollout.Meta
		for _, k := range slices.Sorted(maps.Keys(m)) {
			keys.addText(k)
			values.addText(m[k])
		}
		if max(len(keys.data), len(values.data)) > math.MaxInt32 {
			offsets.Release()
			return nil, Errorf(TooLarge, "column meta has more than %d bytes: take fewer rollouts at a time", math.MaxInt32)
		}
	}
	valid, nulls := p.absence(f, length)
	pair := data(f.Type.(*arrow.MapType).Elem(), keys.n, []*memory.Buffer{nil}, []arrow.ArrayData{keys.array(), values.array()}, 0)
	return data(f.Type, len(p.rows), []*memory.Buffer{valid, offsets}, []arrow.ArrayData{pair}, nulls), nil
}

// extra unpacks a column of the user's own.
func (p *packing) extra(f arrow.Field) (arrow.ArrayData, error) {
	g := newGrower(f.Type)
	for i := range p.rows {
		b, there, err := findExtra(p.rows[i].Rollout.Extra, f.Name)
		if err == nil && there {
			err = g.add(b)
		} else if err == nil {
			g.addNull()
		}
		if err != nil {
			return nil, Errorf(Failed, "column %s of rollout %d: %s", f.Name, p.rows[i].ID, err)
		}
	}
	return g.array(), nil
}
