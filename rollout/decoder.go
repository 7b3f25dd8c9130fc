package rollout

import (
	"encoding/binary"
	"fmt"
	"math"
)

// decoder reads the binary forms of this package. The first problem sticks in err and later reads
// give zeros, so that a reader checks once, at the end. It allocates no more than the input's size
// justifies.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// take returns the next n bytes.
func (d *decoder) take(what string, n int) []byte {
	if d.err == nil && n > len(d.b) {
		d.fail("%s needs %d bytes, %d are left", what, n, len(d.b))
	}
	if d.err != nil {
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

// format reads the number of the form, one of least to greatest.
func (d *decoder) format(what string, least, greatest byte) byte {
	b := d.take("format", 1)
	if d.err == nil && (b[0] < least || b[0] > greatest) {
		d.fail("%s format %d is not known, only %d to %d", what, b[0], least, greatest)
	}
	if d.err != nil {
		return 0
	}
	return b[0]
}

func (d *decoder) uvarint(what string) uint64 {
	if d.err != nil {
		return 0
	}
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("%s is cut off or too large", what)
		return 0
	}
	d.b = d.b[n:]
	return x
}

// length reads a number of things that take at least size bytes each.
func (d *decoder) length(what string, size int) int {
	n := d.uvarint(what)
	if d.err == nil && n > uint64(len(d.b)/size) {
		d.fail("%d %s do not fit the %d bytes left", n, what, len(d.b))
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) uint32(what string) uint32 {
	if b := d.take(what, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) float32(what string) float32 { return math.Float32frombits(d.uint32(what)) }

func (d *decoder) bool(what string) bool {
	b := d.take(what, 1)
	if b != nil && b[0] > 1 {
		d.fail("%s is %d, neither 0 nor 1", what, b[0])
	}
	return b != nil && b[0] == 1
}

func (d *decoder) string(what string) string { return string(d.take(what, d.length(what, 1))) }

// words reads the bytes of a counted slice of 4-byte entries.
func (d *decoder) words(what string) []byte { return d.take(what, 4*d.length(what, 4)) }

// finish returns the first problem, or that bytes are left over.
func (d *decoder) finish(what string) error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes are left over", len(d.b))
	}
	if d.err != nil {
		return fmt.Errorf("reading a %s: %w", what, d.err)
	}
	return nil
}
