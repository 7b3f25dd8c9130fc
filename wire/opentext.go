package wire

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// sharedText is how much longer text may become than its column, in bytes, where several entries share it: by a dictionary,
// by views, or by the names of fields. It keeps a small message from becoming a large one.
const sharedText = 64 << 20

// openText opens text or binary of any layout: 32 or 64 bits, views, dictionaries.
func (c *column) openText(d arrow.ArrayData, live []span) *fault {
	f := c.openBytes(d, live)
	if f == nil && c.typ.ID() == arrow.STRING {
		f = c.checkUTF8(live)
	}
	return f
}

func (c *column) openBytes(d arrow.ArrayData, live []span) *fault {
	text := c.typ.ID() == arrow.STRING
	switch id := d.DataType().ID(); {
	case id == arrow.STRING || id == arrow.BINARY && !text:
		c.values = buffer(d, 2)
		return c.openOffsets(d, min(len(c.values), math.MaxInt32))
	case id == arrow.LARGE_STRING || id == arrow.LARGE_BINARY && !text:
		c.values = buffer(d, 2)
		return c.openLargeOffsets(d, min(len(c.values), math.MaxInt32))
	case id == arrow.STRING_VIEW || id == arrow.BINARY_VIEW && !text:
		return c.openTextViews(d, live)
	case id == arrow.DICTIONARY:
		// Dictionary returns a pointer in an interface, which is not nil where the pointer is.
		if dictionary, ok := d.Dictionary().(*array.Data); ok && dictionary != nil {
			return c.openDictionary(d, dictionary, live)
		}
	}
	return mismatch(d.DataType(), c.typ)
}

// openDictionary points every entry at its word.
func (c *column) openDictionary(d, dictionary arrow.ArrayData, live []span) *fault {
	t, ok := d.DataType().(*arrow.DictionaryType)
	if !ok || dictionary.DataType().ID() == arrow.DICTIONARY {
		return mismatch(d.DataType(), c.typ)
	}
	all, f := open(dictionary, c.typ, []span{{0, dictionary.Len()}}, false)
	if f != nil {
		return &fault{wholeColumn, "", "of a dictionary that is " + f.value, f.remedy}
	}
	index := column{typ: arrow.PrimitiveTypes.Int64, n: c.n, valid: c.valid}
	if f := index.openFixed(retyped{d, t.IndexType}, live); f != nil {
		return f
	}
	at := words[int64](&index)
	c.values, c.starts, c.ends, c.shifted = all.values, make([]int32, c.n), make([]int32, c.n), true
	sum := 0
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if c.null(i) {
				continue
			}
			if at[i] < 0 || at[i] >= int64(all.n) || all.null(int(at[i])) {
				return &fault{i, "", "word " + count(int(at[i])) + " of a dictionary of " + count(all.n), "give a word that is there and not null"}
			}
			c.starts[i], c.ends[i] = all.starts[at[i]], all.ends[at[i]]
			if sum += int(c.ends[i] - c.starts[i]); sum > len(all.values)+sharedText {
				return &fault{i, "", "more text than " + count(sum) + " bytes", "insert fewer rows at a time"}
			}
		}
	}
	return nil
}

// inlineView is the length up to which a view holds its text itself.
const inlineView = 12

// openTextViews gathers text that lies in several buffers.
func (c *column) openTextViews(d arrow.ArrayData, live []span) *fault {
	views, ok := entries(buffer(d, 1), d.Offset(), c.n, 16)
	if !ok {
		return broken("%d bytes for %d views", len(buffer(d, 1)), c.n)
	}
	limit := len(views) + sharedText
	for i := 2; i < len(d.Buffers()); i++ {
		limit += len(buffer(d, i))
	}
	c.starts, c.ends, c.shifted = make([]int32, c.n), make([]int32, c.n), true
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if c.null(i) {
				continue
			}
			text, ok := viewed(d, views[16*i:16*i+16])
			if !ok {
				return broken("view %d points beyond its buffers", i)
			}
			if len(c.values)+len(text) > min(limit, math.MaxInt32) {
				return &fault{i, "", "more text than " + count(limit) + " bytes", "insert fewer rows at a time"}
			}
			c.starts[i] = int32(len(c.values))
			c.values = append(c.values, text...)
			c.ends[i] = int32(len(c.values))
		}
	}
	return nil
}

// viewed returns what a view of 16 bytes shows: its length, then the text itself, or four bytes of it, a buffer and an offset.
func viewed(d arrow.ArrayData, view []byte) ([]byte, bool) {
	word := func(i int) int { return int(int32(wordAt(view[4*i:]))) }
	n := word(0)
	if n < 0 {
		return nil, false
	}
	if n <= inlineView {
		return view[4 : 4+n], true
	}
	which, at := word(2), word(3)
	if which < 0 || at < 0 || which >= len(d.Buffers())-2 {
		return nil, false
	}
	b := buffer(d, 2+which)
	if at > len(b) || n > len(b)-at {
		return nil, false
	}
	return b[at : at+n], true
}
