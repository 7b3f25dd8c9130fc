package wire

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// hostile is an array whose buffers, lengths and offsets are changed as bytes say: what an untrusted sender could have made of it.
func hostile(d arrow.ArrayData, next func() int) arrow.ArrayData {
	buffers := make([]*memory.Buffer, len(d.Buffers()))
	for i, b := range d.Buffers() {
		if b == nil {
			continue
		}
		changed := append([]byte(nil), b.Bytes()...)
		switch next() % 8 {
		case 0:
			changed = changed[:next()%(len(changed)+1)]
		case 1:
			changed = nil
		case 2, 3, 4:
			if len(changed) > 0 {
				changed[next()%len(changed)] ^= byte(next())
			}
		}
		buffers[i] = memory.NewBufferBytes(changed)
	}
	length, nulls, offset := d.Len(), d.NullN(), d.Offset()
	switch next() % 16 {
	case 0:
		length = next() * next()
	case 1:
		nulls = array.UnknownNullCount
	case 2:
		offset = next()
	}
	var children []arrow.ArrayData
	for _, c := range d.Children() {
		children = append(children, hostile(c, next))
	}
	if words, _ := d.Dictionary().(*array.Data); words != nil {
		dictionary := hostile(words, next).(*array.Data)
		if next()%16 == 0 {
			dictionary = nil
		}
		return array.NewDataWithDictionary(d.DataType(), length, buffers, nulls, offset, dictionary)
	}
	return array.NewData(d.DataType(), length, buffers, children, nulls, offset)
}

// FuzzOpen opens arrays of every kind after they were changed at will, as the type they are and as others. Whatever opens must
// be readable: every entry is encoded.
func FuzzOpen(f *testing.F) {
	var arrays []arrow.Array
	rows, others := fullRows(f), otherTypes()
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		arrays = append(arrays, rows[name])
		for _, dt := range others[name] {
			arrays = append(arrays, valuesOf(f, dt, asJSON(f, rows[name])))
		}
	}
	var wanted []arrow.DataType
	for _, field := range append(InsertSchema().Fields(), extraFields(f, someColumns()...)...) {
		wanted = append(wanted, field.Type)
	}
	for i := range uint64(500) {
		r := rand.New(rand.NewPCG(i, 7))
		b := make([]byte, 60)
		for k := range b {
			b[k] = byte(r.Uint32())
		}
		f.Add(uint16(i), uint16(i%uint64(len(wanted))), b)
	}
	f.Fuzz(func(t *testing.T, which, want uint16, changes []byte) {
		next := func() int {
			if len(changes) == 0 {
				return 7
			}
			x := int(changes[0])
			changes = changes[1:]
			return x
		}
		d := hostile(arrays[int(which)%len(arrays)].Data(), next)
		if d.Len() > maxRows {
			return
		}
		c, fault := open(d, wanted[int(want)%len(wanted)], []span{{0, d.Len()}}, next()%2 == 0)
		if fault != nil {
			_ = fault.of("column").Error()
			return
		}
		g := newGrower(c.typ)
		for i := range c.n {
			if err := g.add(appendEntry(nil, &c, i)); err != nil {
				t.Fatalf("entry %d of %s was opened and is not read back: %v", i, c.typ, err)
			}
		}
		array.MakeFromData(g.array()).Release()
	})
}

// FuzzExtra reads the entries of a rollout from bytes that nobody wrote.
func FuzzExtra(f *testing.F) {
	fields := extraFields(f, someColumns()...)
	schema := InsertSchema(fields...)
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		groups := randomGroups(r, 1)
		withExtra(r, groups, fields)
		f.Add(groups[0].Rollouts[0].Extra)
	}
	f.Fuzz(func(t *testing.T, extra []byte) {
		groups := randomGroups(rand.New(rand.NewPCG(2, 2)), 1)
		groups[0].Rollouts[0].Extra = extra
		rec, err := new(Gatherer).Rows(groups, schema)
		if err != nil {
			return
		}
		if _, _, err := Groups(rec, fields); err != nil && len(extra) < 1<<20 {
			if CodeOf(err) != Invalid {
				t.Fatal(err)
			}
		}
		rec.Release()
	})
}
