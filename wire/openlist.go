package wire

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
)

// openList opens lists of any layout: list, large_list, fixed_size_list and the views.
func (c *column) openList(d arrow.ArrayData, elem arrow.DataType, live []span, itemsRequired bool) *fault {
	if len(d.Children()) != 1 {
		return mismatch(d.DataType(), c.typ)
	}
	child := d.Children()[0]
	if child.Len() > math.MaxInt32 {
		return &fault{wholeColumn, "", "of " + count(child.Len()) + " items", "insert fewer rows at a time"}
	}
	if f := c.openRanges(d, child.Len()); f != nil {
		return f
	}
	part, f := open(child, elem, c.liveItems(live), itemsRequired)
	if f != nil {
		return f.within(c)
	}
	c.parts = []column{part}
	return nil
}

// openRanges finds where each list lies in its child, which has limit items.
func (c *column) openRanges(d arrow.ArrayData, limit int) *fault {
	switch t := d.DataType().(type) {
	case *arrow.ListType, *arrow.MapType:
		return c.openOffsets(d, limit)
	case *arrow.LargeListType:
		return c.openLargeOffsets(d, limit)
	case *arrow.ListViewType:
		return openViews[int32](c, d, limit)
	case *arrow.LargeListViewType:
		return openViews[int64](c, d, limit)
	case *arrow.FixedSizeListType:
		return c.openStrides(d, int(t.Len()), limit)
	}
	return mismatch(d.DataType(), c.typ)
}

// openOffsets takes offsets of 32 bitmap as they are.
func (c *column) openOffsets(d arrow.ArrayData, limit int) *fault {
	if c.n == 0 {
		return nil
	}
	offsets, ok := numbers[int32](d, 1, c.n+1, 4)
	if !ok {
		return broken("%d bytes of offsets for %d entries", len(buffer(d, 1)), c.n)
	}
	if at := disorder(offsets, limit); at >= 0 {
		return broken("offset %d is %d, of %d", at, offsets[at], limit)
	}
	c.starts, c.ends = offsets[:c.n:c.n], offsets[1:]
	return nil
}

func (c *column) openLargeOffsets(d arrow.ArrayData, limit int) *fault {
	if c.n == 0 {
		return nil
	}
	large, ok := numbers[int64](d, 1, c.n+1, 8)
	if !ok {
		return broken("%d bytes of offsets for %d entries", len(buffer(d, 1)), c.n)
	}
	if at := disorder(large, limit); at >= 0 {
		return broken("offset %d is %d, of %d", at, large[at], limit)
	}
	offsets := make([]int32, len(large))
	for i, x := range large {
		offsets[i] = int32(x)
	}
	c.starts, c.ends = offsets[:c.n:c.n], offsets[1:]
	return nil
}

// disorder returns the first offset that is less than the one before it or beyond the limit, -1 if there is none.
func disorder[T int32 | int64](offsets []T, limit int) int {
	var last T
	for i, x := range offsets {
		if x < last || int64(x) > int64(limit) {
			return i
		}
		last = x
	}
	return -1
}

// openViews takes lists that may lie anywhere, but have no more items together than there are: others would make much of a
// small message.
func openViews[T int32 | int64](c *column, d arrow.ArrayData, limit int) *fault {
	width := sizeOf[T]()
	starts, ok := numbers[T](d, 1, c.n, width)
	sizes, too := numbers[T](d, 2, c.n, width)
	if !ok || !too {
		return broken("too few offsets and sizes for %d entries", c.n)
	}
	c.starts, c.ends, c.shifted = make([]int32, c.n), make([]int32, c.n), true
	items := int64(0)
	for i, start := range starts {
		if c.null(i) {
			continue
		}
		at, size := int64(start), int64(sizes[i])
		if at < 0 || size < 0 || at > int64(limit) || size > int64(limit)-at {
			return broken("entry %d is %d items from %d on, of %d", i, size, at, limit)
		}
		if items += size; items > int64(limit) {
			return &fault{i, "", "a view of items that others show too", "give lists, not views"}
		}
		c.starts[i], c.ends[i] = int32(at), int32(at+size)
	}
	return nil
}

// openStrides takes lists that are all of one length.
func (c *column) openStrides(d arrow.ArrayData, size, limit int) *fault {
	if size < 0 || size > 0 && (c.n > limit/size || d.Offset() > limit/size-c.n) {
		return broken("%d items for %d entries of %d", limit, c.n, size)
	}
	c.stride(d.Offset(), size)
	return nil
}

// stride lays out lists of one length, the first of them not the child's first.
func (c *column) stride(first, size int) {
	c.starts, c.ends, c.shifted = make([]int32, c.n), make([]int32, c.n), true
	for i := range c.n {
		c.starts[i] = int32((first + i) * size)
		c.ends[i] = c.starts[i] + int32(size)
	}
}

// liveItems is what of the child is looked at: the items of lists that are looked at and not null.
func (c *column) liveItems(live []span) []span {
	var spans []span
	for _, s := range live {
		if s.start == s.end {
			continue
		}
		if len(c.valid.b) == 0 && !c.shifted {
			spans = extend(spans, int(c.starts[s.start]), int(c.ends[s.end-1]))
			continue
		}
		for i := s.start; i < s.end; i++ {
			start, end := c.list(i)
			spans = extend(spans, start, end)
		}
	}
	return spans
}

// wantLength refuses lists of another length.
func (c *column) wantLength(n int, live []span) *fault {
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if !c.null(i) && c.length(i) != n {
				return &fault{i, "", "a list of " + count(c.length(i)), "give " + count(n) + " items"}
			}
		}
	}
	return nil
}

// openMap opens a map, or what stands for one: a list of structs of key and value, or, as pa.table makes of dicts, a struct of which every
// field that is not null is an entry.
func (c *column) openMap(d arrow.ArrayData, want *arrow.MapType, live []span) *fault {
	pair := arrow.StructOf(
		arrow.Field{Name: "key", Type: want.KeyType()},
		arrow.Field{Name: "value", Type: want.ItemType(), Nullable: want.ItemField().Nullable})
	if s, ok := d.DataType().(*arrow.StructType); ok && want.KeyType().ID() == arrow.STRING {
		return c.openDicts(d, s, pair, live)
	}
	if m, ok := d.DataType().(*arrow.MapType); ok && len(d.Children()) == 1 {
		// The names of a map's fields do not matter.
		d = renamed{d, arrow.StructOf(
			arrow.Field{Name: "key", Type: m.KeyType()},
			arrow.Field{Name: "value", Type: m.ItemType(), Nullable: true})}
	}
	return c.openList(d, pair, live, true)
}

// renamed is a map whose child has other names.
type renamed struct {
	arrow.ArrayData
	pair *arrow.StructType
}

func (r renamed) Children() []arrow.ArrayData {
	return []arrow.ArrayData{retyped{r.ArrayData.Children()[0], r.pair}}
}

// retyped is an array under another type of the same layout.
type retyped struct {
	arrow.ArrayData
	typ arrow.DataType
}

func (r retyped) DataType() arrow.DataType { return r.typ }

// openDicts makes entries of the fields of structs. A field that is null is none, and so is one that is not there.
func (c *column) openDicts(d arrow.ArrayData, found *arrow.StructType, pair *arrow.StructType, live []span) *fault {
	if len(d.Children()) != found.NumFields() {
		return broken("%d fields of %d", len(d.Children()), found.NumFields())
	}
	live = c.liveFields(live)
	fields := make([]column, found.NumFields())
	for i, f := range found.Fields() {
		value := arrow.Field{Name: f.Name, Type: pair.Field(1).Type, Nullable: true}
		part, fault := openField(d, i, value, live)
		if fault != nil {
			return fault.below(clip(f.Name))
		}
		fields[i] = part
	}
	keys, values, err := newGrower(pair.Field(0).Type), newGrower(pair.Field(1).Type), error(nil)
	c.starts, c.ends = make([]int32, c.n), make([]int32, c.n)
	for i := range c.n {
		c.starts[i] = int32(keys.n)
		for k := range fields {
			if c.null(i) || fields[k].null(i) {
				continue
			}
			keys.addText(found.Field(k).Name)
			if err = values.add(appendEntry(nil, &fields[k], i)); err != nil {
				return broken("%v", err)
			}
		}
		c.ends[i] = int32(keys.n)
		if len(keys.data) > sharedText {
			return &fault{i, "", "more than " + count(sharedText) + " bytes of names", "insert fewer rows at a time"}
		}
	}
	pairs := column{typ: pair, n: keys.n, parts: []column{keys.column(), values.column()}}
	c.parts = []column{pairs}
	return nil
}
