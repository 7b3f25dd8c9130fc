package wire

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// Gatherer encodes rollouts as record batches in pooled memory. It copies them once. The zero Gatherer is ready for use
// by any number of goroutines and must not be copied.
type Gatherer struct{ pool Pool }

// Batch encodes draws as a record batch of a [SampleSchema]. Its memory returns to the pool at the last Release.
func (g *Gatherer) Batch(draws []rollout.Draw, schema *arrow.Schema) (arrow.RecordBatch, error) {
	return encode(&g.pool, draws, schema, (*encoder).drawColumn)
}

// Rows is [Rows] in pooled memory, for a schema of [InsertSchema].
func (g *Gatherer) Rows(groups []rollout.Group, schema *arrow.Schema) (arrow.RecordBatch, error) {
	return encodeGroups(&g.pool, groups, schema)
}

// Rows encodes groups as a record batch of InsertSchema(extra...), an insertion. Column group numbers them from 0.
func Rows(groups []rollout.Group, extra []arrow.Field) (arrow.RecordBatch, error) {
	return encodeGroups(new(Pool), groups, InsertSchema(extra...))
}

func encodeGroups(pool *Pool, groups []rollout.Group, schema *arrow.Schema) (arrow.RecordBatch, error) {
	var rows []rollout.Draw
	for i, g := range groups {
		for _, r := range g.Rollouts {
			rows = append(rows, rollout.Draw{Group: uint64(i), Rollout: r})
		}
	}
	return encode(pool, rows, schema, (*encoder).insertColumn)
}

// encoder encodes one record batch.
type encoder struct {
	pool  *Pool
	rows  []rollout.Draw
	small *memory.Buffer // small buffers are slices of it
	used  int            // bytes of small
	zeros *memory.Buffer // offsets of an empty column; nil until there is one
}

type columnEncoder func(*encoder, arrow.Field) (arrow.ArrayData, error)

// encode makes a record batch, column by column.
func encode(pool *Pool, rows []rollout.Draw, schema *arrow.Schema, column columnEncoder) (arrow.RecordBatch, error) {
	e := &encoder{pool: pool, rows: rows}
	columns := make([]arrow.Array, 0, schema.NumFields())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
		for _, b := range []*memory.Buffer{e.small, e.zeros} {
			if b != nil {
				b.Release()
			}
		}
	}()
	for i := range schema.NumFields() {
		d, err := column(e, schema.Field(i))
		if err != nil {
			return nil, err
		}
		columns = append(columns, array.MakeFromData(d))
		d.Release()
	}
	return array.NewRecordBatch(schema, columns, int64(len(rows))), nil
}

// insertColumn encodes a column of an insertion, whose advantage is the producer's.
func (e *encoder) insertColumn(f arrow.Field) (arrow.ArrayData, error) {
	if f.Name != "advantage" {
		return e.commonColumn(f)
	}
	valid, nulls := e.validity(func(d *rollout.Draw) bool { return d.Rollout.Advantage != nil })
	return scalars(e, f, valid, nulls, func(d *rollout.Draw) float32 {
		if d.Rollout.Advantage == nil {
			return 0
		}
		return *d.Rollout.Advantage
	})
}

// drawColumn encodes a column of a sampled batch.
func (e *encoder) drawColumn(f arrow.Field) (arrow.ArrayData, error) {
	switch f.Name {
	case "id":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) uint64 { return uint64(d.ID) })
	case "advantage":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) float32 { return d.Advantage })
	case "probability":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) float64 { return d.Probability })
	case "weight":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) float32 { return d.Weight })
	case "staleness":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) int32 { return d.Staleness })
	case "uses":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) int32 { return d.Uses })
	case "group_mean":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) float32 { return d.GroupMean })
	case "group_std":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) float32 { return d.GroupStd })
	case "fresh":
		return e.bools(f, func(d *rollout.Draw) bool { return d.Fresh })
	case "redelivered":
		return e.bools(f, func(d *rollout.Draw) bool { return d.Redelivered })
	}
	return e.commonColumn(f)
}

// commonColumn encodes a column that insertions and sampled batches share.
func (e *encoder) commonColumn(f arrow.Field) (arrow.ArrayData, error) {
	switch f.Name {
	case "group":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) uint64 { return d.Group })
	case "prompt_id":
		return e.text(f, func(d *rollout.Draw) string { return d.Rollout.PromptID })
	case "tokens":
		return e.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Tokens) })
	case "mask":
		return e.lists(f, 1, func(d *rollout.Draw) []byte { return d.Rollout.Mask })
	case "logprobs":
		return e.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Logprobs) })
	case "versions":
		return e.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Versions) })
	case "advantages":
		return e.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Advantages) })
	case "values":
		return e.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.Values) })
	case "ref_logprobs":
		return e.lists(f, 4, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.RefLogprobs) })
	case "sampling_mask":
		return e.nested(f, func(d *rollout.Draw) int { return d.Rollout.SamplingMask.Len() }, e.idLists)
	case "routed_experts":
		return e.lists(f, 2, func(d *rollout.Draw) []byte { return bytesOf(d.Rollout.RoutedExperts) })
	case "temperature":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) float32 { return d.Rollout.Temperature })
	case "top_p":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) float32 { return d.Rollout.TopP })
	case "reward":
		return scalars(e, f, nil, 0, func(d *rollout.Draw) float32 { return d.Rollout.Reward })
	case "truncated":
		return e.bools(f, func(d *rollout.Draw) bool { return d.Rollout.Truncated })
	case "turns":
		return e.nested(f, func(d *rollout.Draw) int { return len(d.Rollout.Turns) }, e.turns)
	case "images":
		return e.nested(f, func(d *rollout.Draw) int { return len(d.Rollout.Images) }, e.images)
	case "text":
		return e.text(f, func(d *rollout.Draw) string { return d.Rollout.Text })
	case "meta":
		return e.nested(f, func(d *rollout.Draw) int { return len(d.Rollout.Meta) }, e.meta)
	}
	if strings.HasPrefix(f.Name, extraPrefix) {
		return e.extra(f)
	}
	return nil, Errorf(Invalid, "column %s is unknown", clip(f.Name))
}

// scalars encodes one number of each row.
func scalars[T any](e *encoder, f arrow.Field, valid *memory.Buffer, nulls int,
	get func(*rollout.Draw) T) (arrow.ArrayData, error) {
	b, dst := e.take(len(e.rows) * sizeOf[T]())
	out := typed[T](dst)
	for i := range e.rows {
		out[i] = get(&e.rows[i])
	}
	return newData(f.Type, len(e.rows), []*memory.Buffer{valid, b}, nil, nulls), nil
}

func (e *encoder) bools(f arrow.Field, get func(*rollout.Draw) bool) (arrow.ArrayData, error) {
	return newData(f.Type, len(e.rows), []*memory.Buffer{nil, e.bits(get)}, nil, 0), nil
}

// lists encodes per-token numbers of the given width in bytes.
func (e *encoder) lists(f arrow.Field, width int, get func(*rollout.Draw) []byte) (arrow.ArrayData, error) {
	length := func(d *rollout.Draw) int { return len(get(d)) / width }
	return e.nested(f, length, func(f arrow.Field, n int, offsets []int32) (arrow.ArrayData, error) {
		values, dst := e.take(n * width)
		InParts(len(e.rows), int64(n*width), func(from, to int) {
			for i := from; i < to; i++ {
				copy(dst[int(offsets[i])*width:], get(&e.rows[i]))
			}
		})
		return newData(f.Type.(*arrow.ListType).Elem(), n, []*memory.Buffer{nil, values}, nil, 0), nil
	})
}

// childEncoder encodes the n items of all rows, which offsets divide among the rows.
type childEncoder func(f arrow.Field, n int, offsets []int32) (arrow.ArrayData, error)

// nested encodes lists or maps.
func (e *encoder) nested(f arrow.Field, length func(*rollout.Draw) int, child childEncoder) (arrow.ArrayData, error) {
	if e.empty(length) {
		return e.emptyColumn(f), nil
	}
	offsets, n, err := e.offsets(f, length)
	if err != nil {
		return nil, err
	}
	items, err := child(f, n, typed[int32](offsets.Bytes()))
	if err != nil {
		offsets.Release()
		return nil, err
	}
	valid, nulls := e.nonEmpty(f, length)
	return newData(f.Type, len(e.rows), []*memory.Buffer{valid, offsets}, []arrow.ArrayData{items}, nulls), nil
}

func (e *encoder) text(f arrow.Field, get func(*rollout.Draw) string) (arrow.ArrayData, error) {
	length := func(d *rollout.Draw) int { return len(get(d)) }
	if e.empty(length) {
		return e.emptyColumn(f), nil
	}
	offsets, n, err := e.offsets(f, length)
	if err != nil {
		return nil, err
	}
	values, dst := e.take(n)
	for i := range e.rows {
		dst = dst[copy(dst, get(&e.rows[i])):]
	}
	valid, nulls := e.nonEmpty(f, length)
	return newData(f.Type, len(e.rows), []*memory.Buffer{valid, offsets, values}, nil, nulls), nil
}

// turns encodes the turns of all rows as structs.
func (e *encoder) turns(f arrow.Field, n int, _ []int32) (arrow.ArrayData, error) {
	starts, start := e.take(4 * n)
	ends, end := e.take(4 * n)
	rewards, reward := e.take(4 * n)
	dones, done := e.take((n + 7) / 8)
	clear(done)
	from, to, worth, k := typed[int32](start), typed[int32](end), typed[float32](reward), 0
	for i := range e.rows {
		for _, t := range e.rows[i].Rollout.Turns {
			from[k], to[k], worth[k] = t.Start, t.End, t.Reward
			if t.Done {
				done[k>>3] |= 1 << (k & 7)
			}
			k++
		}
	}
	turn := f.Type.(*arrow.ListType).Elem().(*arrow.StructType)
	fields := make([]arrow.ArrayData, 4)
	for i, b := range []*memory.Buffer{starts, ends, rewards, dones} {
		fields[i] = newData(turn.Field(i).Type, n, []*memory.Buffer{nil, b}, nil, 0)
	}
	return newData(turn, n, []*memory.Buffer{nil}, fields, 0), nil
}

// idLists encodes the n lists of token ids of all rows, which offsets divide among the rows.
func (e *encoder) idLists(f arrow.Field, n int, offsets []int32) (arrow.ArrayData, error) {
	buffer, dst := e.take(4 * (n + 1))
	ends, sum, k := typed[int32](dst), 0, 1
	ends[0] = 0
	for i := range e.rows {
		m := &e.rows[i].Rollout.SamplingMask
		if last := m.Len() - 1; last >= 0 && int(m.Ends[last]) != len(m.IDs) {
			buffer.Release()
			return nil, &rollout.FieldError{Row: i, Field: f.Name,
				Value:  fmt.Sprintf("%d ids, the last list ends at %d", len(m.IDs), m.Ends[last]),
				Remedy: "give a list for each token, with Append"}
		}
		for _, end := range m.Ends {
			ends[k] = int32(sum) + end
			k++
		}
		if m.Len() > 0 {
			sum += len(m.IDs)
		}
		if sum > math.MaxInt32 {
			buffer.Release()
			return nil, tooMany(f, "ids")
		}
	}
	values, out := e.take(4 * sum)
	InParts(len(e.rows), int64(4*sum), func(from, to int) {
		for i := from; i < to; i++ {
			if m := &e.rows[i].Rollout.SamplingMask; m.Len() > 0 {
				copy(out[4*int(ends[offsets[i]]):], bytesOf(m.IDs))
			}
		}
	})
	list := f.Type.(*arrow.ListType).Elem().(*arrow.ListType)
	ids := newData(list.Elem(), sum, []*memory.Buffer{nil, values}, nil, 0)
	return newData(list, n, []*memory.Buffer{nil, buffer}, []arrow.ArrayData{ids}, 0), nil
}

// images encodes the n images of all rows as binary.
func (e *encoder) images(f arrow.Field, n int, _ []int32) (arrow.ArrayData, error) {
	all := e.allImages()
	offsets, dst := e.take(4 * (n + 1))
	at, sum, i := typed[int32](dst), 0, 0
	at[0] = 0
	for b := range all {
		if sum += len(b); sum > math.MaxInt32 {
			offsets.Release()
			return nil, tooMany(f, "bytes")
		}
		i++
		at[i] = int32(sum)
	}
	values, out := e.take(sum)
	for b := range all {
		out = out[copy(out, b):]
	}
	return newData(arrow.BinaryTypes.Binary, n, []*memory.Buffer{nil, offsets, values}, nil, 0), nil
}

func (e *encoder) allImages() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range e.rows {
			for _, image := range e.rows[i].Rollout.Images {
				if !yield(image) {
					return
				}
			}
		}
	}
}

// meta encodes the pairs of all rows, each row's by ascending key.
func (e *encoder) meta(f arrow.Field, _ int, _ []int32) (arrow.ArrayData, error) {
	keys, values := newBuilder(arrow.BinaryTypes.String), newBuilder(arrow.BinaryTypes.String)
	for i := range e.rows {
		m := e.rows[i].Rollout.Meta
		for _, k := range slices.Sorted(maps.Keys(m)) {
			keys.addText(k)
			values.addText(m[k])
		}
		if max(len(keys.data), len(values.data)) > math.MaxInt32 {
			return nil, tooMany(f, "bytes")
		}
	}
	return newData(f.Type.(*arrow.MapType).Elem(), keys.n, []*memory.Buffer{nil}, []arrow.ArrayData{keys.array(),
		values.array()}, 0), nil
}

// extra encodes a user-defined column.
func (e *encoder) extra(f arrow.Field) (arrow.ArrayData, error) {
	w := newBuilder(f.Type)
	for i := range e.rows {
		b, valid, err := findExtra(e.rows[i].Rollout.Extra, f.Name)
		if err == nil && valid {
			err = w.add(b)
		} else if err == nil {
			w.addNull()
		}
		if err != nil {
			return nil, Errorf(Failed, "column %s of rollout %d: %s", f.Name, e.rows[i].ID, err)
		}
	}
	return w.array(), nil
}

// newData makes an array and takes over its buffers and children.
func newData(t arrow.DataType, n int, buffers []*memory.Buffer, children []arrow.ArrayData, nulls int) arrow.ArrayData {
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

// smallBuffer is the size up to which buffers share memory, sharedSize the size of what they share, in bytes.
const (
	smallBuffer = 2 << 10
	sharedSize  = 16 << 10
)

// take returns a buffer of pooled memory of any content.
func (e *encoder) take(size int) (*memory.Buffer, []byte) {
	if size > smallBuffer {
		b := e.pool.Allocate(size)
		return memory.NewBufferWithAllocator(b, e.pool), b
	}
	if e.small == nil || e.used+size > sharedSize {
		if e.small != nil {
			e.small.Release()
		}
		e.small, e.used = memory.NewBufferWithAllocator(e.pool.Allocate(sharedSize), e.pool), 0
	}
	b := memory.SliceBuffer(e.small, e.used, size)
	e.used += (size + alignment - 1) / alignment * alignment
	return b, b.Bytes()
}

// bits returns a bitmap of the rows.
func (e *encoder) bits(get func(*rollout.Draw) bool) *memory.Buffer {
	b, dst := e.take((len(e.rows) + 7) / 8)
	clear(dst)
	for i := range e.rows {
		if get(&e.rows[i]) {
			dst[i>>3] |= 1 << (i & 7)
		}
	}
	return b
}

// validity returns the bitmap of valid rows and the number of nulls; no bitmap if there are none.
func (e *encoder) validity(valid func(*rollout.Draw) bool) (*memory.Buffer, int) {
	nulls := 0
	for i := range e.rows {
		if !valid(&e.rows[i]) {
			nulls++
		}
	}
	if nulls == 0 {
		return nil, 0
	}
	return e.bits(valid), nulls
}

// nonEmpty returns the validity of a nullable column whose empty entries are null.
func (e *encoder) nonEmpty(f arrow.Field, length func(*rollout.Draw) int) (*memory.Buffer, int) {
	if !f.Nullable {
		return nil, 0
	}
	return e.validity(func(d *rollout.Draw) bool { return length(d) > 0 })
}

// offsets returns where the entries of the rows begin and end, and the number of items in all.
func (e *encoder) offsets(f arrow.Field, length func(*rollout.Draw) int) (*memory.Buffer, int, error) {
	b, dst := e.take(4 * (len(e.rows) + 1))
	out, sum := typed[int32](dst), 0
	out[0] = 0
	for i := range e.rows {
		if sum += length(&e.rows[i]); sum > math.MaxInt32 {
			b.Release()
			return nil, 0, tooMany(f, "items")
		}
		out[i+1] = int32(sum)
	}
	return b, sum, nil
}

func tooMany(f arrow.Field, of string) error {
	return Errorf(TooLarge, "column %s has more than %d %s: take fewer rollouts at a time", f.Name, math.MaxInt32, of)
}

// empty reports whether no row has any items.
func (e *encoder) empty(length func(*rollout.Draw) int) bool {
	for i := range e.rows {
		if length(&e.rows[i]) > 0 {
			return false
		}
	}
	return true
}

// emptyColumn encodes lists, text or maps without items: null if the column is nullable, otherwise empty. All such
// columns share one buffer of zeros.
func (e *encoder) emptyColumn(f arrow.Field) arrow.ArrayData {
	n := len(e.rows)
	if e.zeros == nil {
		b, dst := e.take(4 * (n + 1))
		clear(dst)
		e.zeros = b
	}
	var valid *memory.Buffer
	nulls := 0
	if f.Nullable && n > 0 {
		valid, nulls = memory.SliceBuffer(e.zeros, 0, (n+7)/8), n
	}
	return e.emptyEntries(f.Type, n, valid, nulls)
}

// emptyEntries makes an array of n entries without items, or of no entries where a type has no lengths.
func (e *encoder) emptyEntries(t arrow.DataType, n int, valid *memory.Buffer, nulls int) arrow.ArrayData {
	offsets := func() *memory.Buffer { return memory.SliceBuffer(e.zeros, 0, 4*(n+1)) }
	none := func() *memory.Buffer { return memory.SliceBuffer(e.zeros, 0, 0) }
	switch t := t.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		return newData(t, n, []*memory.Buffer{valid, offsets(), none()}, nil, nulls)
	case *arrow.StructType:
		fields := make([]arrow.ArrayData, t.NumFields())
		for i := range fields {
			fields[i] = e.emptyEntries(t.Field(i).Type, 0, nil, 0)
		}
		return newData(t, 0, []*memory.Buffer{valid}, fields, 0)
	case arrow.ListLikeType: // lists and maps
		return newData(t, n, []*memory.Buffer{valid, offsets()}, []arrow.ArrayData{e.emptyEntries(t.Elem(), 0, nil, 0)},
			nulls)
	}
	return newData(t, 0, []*memory.Buffer{valid, none()}, nil, 0)
}
