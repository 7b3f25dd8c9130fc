package flightdata

import "encoding/binary"

// flat reads the flatbuffer of a message's header with every position checked. The first problem sticks; later reads give
// zeros.
type flat struct {
	b    []byte
	err  error
	text int // bytes of strings that were looked at
}

func (f *flat) fail(format string, args ...any) {
	if f.err == nil {
		f.err = malformed(format, args...)
	}
}

// at returns n bytes from a position, nil where they do not lie within.
func (f *flat) at(pos, n int) []byte {
	if f.err == nil && (pos < 0 || n < 0 || pos > len(f.b) || n > len(f.b)-pos) {
		f.fail("its header points beyond itself")
	}
	if f.err != nil {
		return nil
	}
	return f.b[pos : pos+n]
}

func (f *flat) u8(pos int) int {
	if b := f.at(pos, 1); b != nil {
		return int(b[0])
	}
	return 0
}

func (f *flat) u16(pos int) int {
	if b := f.at(pos, 2); b != nil {
		return int(binary.LittleEndian.Uint16(b))
	}
	return 0
}

func (f *flat) u32(pos int) int {
	if b := f.at(pos, 4); b != nil {
		return int(binary.LittleEndian.Uint32(b))
	}
	return 0
}

func (f *flat) i64(pos int) int64 {
	if b := f.at(pos, 8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// follow returns where an offset leads.
func (f *flat) follow(pos int) int { return pos + f.u32(pos) }

// field returns where a table's field lies, 0 if it is not there.
func (f *flat) field(table, slot int) int {
	b := f.at(table, 4)
	if b == nil {
		return 0
	}
	vtable := table - int(int32(binary.LittleEndian.Uint32(b)))
	if 4+2*slot+2 > f.u16(vtable) {
		return 0
	}
	if offset := f.u16(vtable + 4 + 2*slot); offset > 0 {
		return table + offset
	}
	return 0
}

// child returns the table that a field leads to, 0 if it is not there.
func (f *flat) child(table, slot int) int {
	if pos := f.field(table, slot); pos > 0 {
		return f.follow(pos)
	}
	return 0
}

// vector returns the first item of a vector of a field, and how many there are, each of so many bytes.
func (f *flat) vector(table, slot, size int) (first, n int) {
	pos := f.child(table, slot)
	if pos == 0 {
		return 0, 0
	}
	n = f.u32(pos)
	if f.err == nil && n > len(f.b)/size {
		f.fail("its header points beyond itself")
	}
	if f.at(pos+4, n*size) == nil {
		return 0, 0
	}
	return pos + 4, n
}

// string looks at a string. Strings may be shared; together they may be no longer than the header, so that reading them all costs
// no more than it.
func (f *flat) string(table, slot int) {
	_, n := f.vector(table, slot, 1)
	f.text += n
	if f.text > 4*len(f.b) {
		f.fail("its header repeats its strings")
	}
}
