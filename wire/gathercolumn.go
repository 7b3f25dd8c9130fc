package wire

import (
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// insertColumn packs a column of rows to insert: advantage is what the producer gave.
func insertColumn(p *packing, f arrow.Field) (arrow.ArrayData, error) {
	if f.Name == "advantage" {
		return scalars(p, f, func(d *rollout.Draw) float32 {
			if d.Rollout.Advantage == nil {
				return 0
			}
			return *d.Rollout.Advantage
		}, func(d *rollout.Draw) bool { return d.Rollout.Advantage != nil }), nil
	}
	return commonColumn(p, f)
}

// drawColumn packs a column of sampled rows.
func drawColumn(p *packing, f arrow.Field) (arrow.ArrayData, error) {
	switch f.Name {
	case "id":
		return scalars(p, f, func(d *rollout.Draw) uint64 { return uint64(d.ID) }, nil), nil
	case "advantage":
		return scalars(p, f, func(d *rollout.Draw) float32 { return d.Advantage }, nil), nil
	case "probability":
		return scalars(p, f, func(d *rollout.Draw) float64 { return d.Probability }, nil), nil
	case "weight":
		return scalars(p, f, func(d *rollout.Draw) float32 { return d.Weight }, nil), nil
	case "staleness":
		return scalars(p, f, func(d *rollout.Draw) int32 { return d.Staleness }, nil), nil
	case "uses":
		return scalars(p, f, func(d *rollout.Draw) int32 { return d.Uses }, nil), nil
	case "group_mean":
		return scalars(p, f, func(d *rollout.Draw) float32 { return d.GroupMean }, nil), nil
	case "group_std":
		return scalars(p, f, func(d *rollout.Draw) float32 { return d.GroupStd }, nil), nil
	case "fresh":
		return p.bools(f, func(d *rollout.Draw) bool { return d.Fresh }), nil
	}
	return commonColumn(p, f)
}

// commonColumn packs a column that insertions and sampled batches share.
func commonColumn(p *packing, f arrow.Field) (arrow.ArrayData, error) {
	switch f.Name {
	case "group":
		return scalars(p, f, func(d *rollout.Draw) uint64 { return d.Group }, nil), nil
	case "prompt_id":
		return p.text(f, func(d *rollout.Draw) string { return d.Rollout.PromptID })
	case "tokens":
		return p.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Tokens) })
	case "mask":
		return p.lists(f, 1, func(d *rollout.Draw) []byte { return d.Rollout.Mask })
	case "logprobs":
		return p.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Logprobs) })
	case "versions":
		return p.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Versions) })
	case "advantages":
		return p.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Advantages) })
	case "values":
		return p.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Values) })
	case "ref_logprobs":
		return p.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.RefLogprobs) })
	case "temperature":
		return scalars(p, f, func(d *rollout.Draw) float32 { return d.Rollout.Temperature }, nil), nil
	case "top_p":
		return scalars(p, f, func(d *rollout.Draw) float32 { return d.Rollout.TopP }, nil), nil
	case "reward":
		return scalars(p, f, func(d *rollout.Draw) float32 { return d.Rollout.Reward }, nil), nil
	case "truncated":
		return p.bools(f, func(d *rollout.Draw) bool { return d.Rollout.Truncated }), nil
	case "turns":
		return p.turns(f)
	case "images":
		return p.images(f)
	case "text":
		return p.text(f, func(d *rollout.Draw) string { return d.Rollout.Text })
	case "meta":
		return p.meta(f)
	}
	if strings.HasPrefix(f.Name, extraPrefix) {
		return p.extra(f)
	}
	return nil, Errorf(Invalid, "column %s is unknown", clip(f.Name))
}

// scalars packs a number of each row; with there, those that are not are null.
func scalars[T any](p *packing, f arrow.Field, get func(*rollout.Draw) T, there func(*rollout.Draw) bool) arrow.ArrayData {
	b, dst := p.take(len(p.rows) * f.Type.(arrow.FixedWidthDataType).Bytes())
	out := typed[T](dst)
	for i := range p.rows {
		out[i] = get(&p.rows[i])
	}
	var valid *memory.Buffer
	nulls := 0
	if there != nil {
		valid, nulls = p.validity(there)
	}
	return data(f.Type, len(p.rows), []*memory.Buffer{valid, b}, nil, nulls)
}

func (p *packing) bools(f arrow.Field, get func(*rollout.Draw) bool) arrow.ArrayData {
	b := p.bits(len(p.rows), func(i int) bool { return get(&p.rows[i]) })
	return data(f.Type, len(p.rows), []*memory.Buffer{nil, b}, nil, 0)
}

// offsets packs where the entries of rows begin and end, and how many items they are in all.
func (p *packing) offsets(f arrow.Field, length func(*rollout.Draw) int) (*memory.Buffer, int, error) {
	b, dst := p.take(4 * (len(p.rows) + 1))
	out, sum := typed[int32](dst), 0
	out[0] = 0
	for i := range p.rows {
		if sum += length(&p.rows[i]); sum > math.MaxInt32 {
			b.Release()
			return nil, 0, Errorf(TooLarge, "column %s has more than %d items: take fewer rollouts at a time", f.Name, math.MaxInt32)
		}
		out[i+1] = int32(sum)
	}
	return b, sum, nil
}

// absence is the bitmap of a nullable column whose empty entries are null.
func (p *packing) absence(f arrow.Field, length func(*rollout.Draw) int) (*memory.Buffer, int) {
	if !f.Nullable {
		return nil, 0
	}
	return p.validity(func(d *rollout.Draw) bool { return length(d) > 0 })
}

// lists packs lists of numbers of so many bytes.
func (p *packing) lists(f arrow.Field, width int, get func(*rollout.Draw) []byte) (arrow.ArrayData, error) {
	length := func(d *rollout.Draw) int { return len(get(d)) / width }
	if p.empty(length) {
		return p.none(f), nil
	}
	offsets, n, err := p.offsets(f, length)
	if err != nil {
		return nil, err
	}
	values, dst := p.take(n * width)
	at := typed[int32](offsets.Bytes())
	InParts(len(p.rows), int64(n*width), func(from, to int) {
		for i := from; i < to; i++ {
			copy(dst[int(at[i])*width:], get(&p.rows[i]))
		}
	})
	valid, nulls := p.absence(f, length)
	child := data(f.Type.(*arrow.ListType).Elem(), n, []*memory.Buffer{nil, values}, nil, 0)
	return data(f.Type, len(p.rows), []*memory.Buffer{valid, offsets}, []arrow.ArrayData{child}, nulls), nil
}

// text packs text.
func (p *packing) text(f arrow.Field, get func(*rollout.Draw) string) (arrow.ArrayData, error) {
	length := func(d *rollout.Draw) int { return len(get(d)) }
	if p.empty(length) {
		return p.none(f), nil
	}
	offsets, n, err := p.offsets(f, length)
	if err != nil {
		return nil, err
	}
	values, dst := p.take(n)
	for i := range p.rows {
		dst = dst[copy(dst, get(&p.rows[i])):]
	}
	valid, nulls := p.absence(f, length)
	return data(f.Type, len(p.rows), []*memory.Buffer{valid, offsets, values}, nil, nulls), nil
}
