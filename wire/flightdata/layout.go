package flightdata

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/wire"
)

// checkTypes refuses columns of types that neither a loader nor Arrow's reader makes arrays of safely. It tells whether a loader
// knows them all.
func checkTypes(schema *arrow.Schema) (plain bool, err error) {
	plain = true
	for _, f := range schema.Fields() {
		simple, ok := known(f.Type)
		if !ok {
			return false, wire.Errorf(wire.Invalid, "column %s is of type %s: give numbers, text, lists, structs or maps", f.Name, f.Type)
		}
		plain = plain && simple
	}
	return plain, nil
}

// known tells of a type whether a loader makes arrays of it, and whether anyone does: Arrow's reader does of views and of
// dictionaries of text.
func known(t arrow.DataType) (plain, ok bool) {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		id := t.ValueType.ID()
		return false, arrow.IsInteger(t.IndexType.ID()) && (id == arrow.STRING || id == arrow.LARGE_STRING)
	case arrow.BinaryViewDataType:
		return false, true
	case arrow.ExtensionType, *arrow.RunEndEncodedType, arrow.UnionType:
		return false, false
	case arrow.NestedType:
		plain = true
		for _, f := range t.Fields() {
			simple, ok := known(f.Type)
			if !ok {
				return false, false
			}
			plain = plain && simple
		}
		return plain, true
	}
	return true, true
}

// fits tells whether a record batch has the arrays and buffers that its schema asks for. Arrow's reader does not look: it would take
// whatever stands behind them.
func (s *shape) fits(schema *arrow.Schema) bool {
	n := needs{views: s.views}
	for _, f := range schema.Fields() {
		n.add(f.Type)
	}
	return n.missing == 0 && n.nodes == len(s.nodes) && n.buffers == len(s.buffers)
}

// fitsText tells the same of a dictionary of text.
func (s *shape) fitsText() bool { return len(s.nodes) == 1 && len(s.buffers) == 3 }

// needs counts arrays and buffers.
type needs struct {
	nodes, buffers int
	views          []int64
	missing        int // arrays of views that no count tells of
}

func (n *needs) add(t arrow.DataType) {
	n.nodes++
	switch t := t.(type) {
	case *arrow.NullType:
	case *arrow.DictionaryType:
		n.buffers += 2
	case arrow.BinaryViewDataType:
		n.buffers += 2
		if len(n.views) == 0 {
			n.missing++
			return
		}
		n.buffers += int(n.views[0])
		n.views = n.views[1:]
	default:
		n.buffers += 1 + bufferCount(t)
		if nested, ok := t.(arrow.NestedType); ok {
			for _, f := range nested.Fields() {
				n.add(f.Type)
			}
		}
	}
}
