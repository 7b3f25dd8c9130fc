package wire

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/float16"
)

type number interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

func count(n int) string { return strconv.Itoa(n) }

// wordAt reads four bytes in the order of memory.
func wordAt(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// cast makes numbers of other numbers, or of bools. What the wanted type cannot hold is refused; a double becomes the nearest
// float32 unless that is infinite.
func (c *column) cast(d arrow.ArrayData, live []span) *fault {
	switch c.typ.ID() {
	case arrow.INT8:
		return castTo[int8](c, d, live)
	case arrow.INT16:
		return castTo[int16](c, d, live)
	case arrow.INT32:
		return castTo[int32](c, d, live)
	case arrow.INT64:
		return castTo[int64](c, d, live)
	case arrow.UINT8:
		return castTo[uint8](c, d, live)
	case arrow.UINT16:
		return castTo[uint16](c, d, live)
	case arrow.UINT32:
		return castTo[uint32](c, d, live)
	case arrow.UINT64:
		return castTo[uint64](c, d, live)
	case arrow.FLOAT32:
		return castTo[float32](c, d, live)
	case arrow.FLOAT64:
		return castTo[float64](c, d, live)
	}
	return mismatch(d.DataType(), c.typ)
}

func castTo[D number](c *column, d arrow.ArrayData, live []span) *fault {
	switch d.DataType().ID() {
	case arrow.INT8:
		return castFrom[D, int8](c, d, live)
	case arrow.INT16:
		return castFrom[D, int16](c, d, live)
	case arrow.INT32:
		return castFrom[D, int32](c, d, live)
	case arrow.INT64:
		return castFrom[D, int64](c, d, live)
	case arrow.UINT8:
		return castFrom[D, uint8](c, d, live)
	case arrow.UINT16:
		return castFrom[D, uint16](c, d, live)
	case arrow.UINT32:
		return castFrom[D, uint32](c, d, live)
	case arrow.UINT64:
		return castFrom[D, uint64](c, d, live)
	case arrow.FLOAT32:
		return castFrom[D, float32](c, d, live)
	case arrow.FLOAT64:
		return castFrom[D, float64](c, d, live)
	case arrow.FLOAT16:
		if isFloat[D]() {
			return castHalves[D](c, d, live)
		}
	case arrow.BOOL:
		return castBools[D](c, d, live)
	}
	return mismatch(d.DataType(), c.typ)
}

// castFrom converts what is looked at and not null; the rest stays 0.
func castFrom[D, S number](c *column, d arrow.ArrayData, live []span) *fault {
	src, ok := numbers[S](d, 1, c.n, sizeOf[S]())
	if !ok {
		return broken("%d bytes for %d entries of %s", len(buffer(d, 1)), c.n, d.DataType())
	}
	dst := make([]D, c.n)
	for _, s := range c.liveFields(live) {
		if at := convert(dst[s.start:s.end], src[s.start:s.end]); at >= 0 {
			return &fault{s.start + at, "", text(src[s.start+at]), "give a value that fits " + plainType(c.typ)}
		}
	}
	c.values = bytesOf(dst)
	return nil
}

func sizeOf[T number]() int {
	var x T
	switch any(x).(type) {
	case int8, uint8:
		return 1
	case int16, uint16:
		return 2
	case int32, uint32, float32:
		return 4
	}
	return 8
}

// isFloat tells whether a type has halves.
func isFloat[T number]() bool { return T(1)/T(2) != 0 }

// exact is the greatest whole number up to which a float of so many bytes holds all.
func exact(size int) float64 {
	if size == 4 {
		return 1 << 24
	}
	return 1 << 53
}

// convert converts entry by entry and returns the first that does not fit, -1 if all do.
func convert[D, S number](dst []D, src []S) int {
	switch {
	case isFloat[D]() && isFloat[S]():
		for i, x := range src {
			y := D(x)
			if math.IsInf(float64(y), 0) && !math.IsInf(float64(x), 0) {
				return i
			}
			dst[i] = y
		}
	case isFloat[D]():
		most := exact(sizeOf[D]())
		for i, x := range src {
			if float64(x) > most || float64(x) < -most {
				return i
			}
			dst[i] = D(x)
		}
	case isFloat[S]():
		most := exact(sizeOf[S]())
		for i, x := range src {
			y := D(x)
			if S(y) != x || float64(x) > most || float64(x) < -most {
				return i
			}
			dst[i] = y
		}
	default:
		for i, x := range src {
			y := D(x)
			if S(y) != x || (y < 0) != (x < 0) {
				return i
			}
			dst[i] = y
		}
	}
	return -1
}

func text[T number](x T) string {
	if isFloat[T]() {
		return strconv.FormatFloat(float64(x), 'g', -1, 64)
	}
	if x < 0 {
		return strconv.FormatInt(int64(x), 10)
	}
	return strconv.FormatUint(uint64(x), 10)
}

func castHalves[D number](c *column, d arrow.ArrayData, live []span) *fault {
	src, ok := numbers[float16.Num](d, 1, c.n, 2)
	if !ok {
		return broken("%d bytes for %d entries of float16", len(buffer(d, 1)), c.n)
	}
	dst := make([]D, c.n)
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			dst[i] = D(src[i].Float32())
		}
	}
	c.values = bytesOf(dst)
	return nil
}

func castBools[D number](c *column, d arrow.ArrayData, live []span) *fault {
	if f := c.openBitmap(d); f != nil {
		return f
	}
	dst := make([]D, c.n)
	for _, s := range live {
		for i := s.start; i < s.end; i++ {
			if c.bools.get(i) {
				dst[i] = 1
			}
		}
	}
	c.values, c.bools = bytesOf(dst), bitmap{}
	return nil
}
