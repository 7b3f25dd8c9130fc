package rollout

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Values below pagedLimit are counted in pages of pageSize counters, allocated on first use. Larger values go to a map.
const (
	pageSize   = 256
	pagedLimit = 1 << 24
)

const histogramFormat = 1

// Histogram counts non-negative integers exactly, in constant time. The zero value is ready to use. It is not safe for
// concurrent use.
type Histogram struct {
	pages []*[pageSize]uint64
	far   map[int64]uint64 // counts of pagedLimit and above
	n     uint64
	sum   float64
}

// Add counts a value once. It panics if the value is negative.
func (h *Histogram) Add(v int64) {
	if v < 0 {
		panic("rollout: negative value in a histogram")
	}
	h.add(v, 1)
}

func (h *Histogram) add(v int64, count uint64) {
	if c := h.counter(v); c != nil {
		*c += count
	} else {
		h.addFirst(v, count)
	}
	h.n += count
	h.sum += float64(v) * float64(count)
}

// counter returns the counter of a value, nil if it has no page.
func (h *Histogram) counter(v int64) *uint64 {
	if p := uint64(v) / pageSize; p < uint64(len(h.pages)) && h.pages[p] != nil {
		return &h.pages[p][v%pageSize]
	}
	return nil
}

// addFirst counts a value that is the first of its page, or at least pagedLimit.
func (h *Histogram) addFirst(v int64, count uint64) {
	if v >= pagedLimit {
		if h.far == nil {
			h.far = make(map[int64]uint64)
		}
		h.far[v] += count
		return
	}
	p := int(v / pageSize)
	if p >= len(h.pages) {
		h.pages = append(h.pages, make([]*[pageSize]uint64, p+1-len(h.pages))...)
	}
	h.pages[p] = new([pageSize]uint64)
	h.pages[p][v%pageSize] += count
}

// Remove undoes one Add of v. It panics if v is not counted.
func (h *Histogram) Remove(v int64) {
	c := h.counter(v)
	switch {
	case c != nil && *c > 0:
		*c--
	case h.far[v] > 1:
		h.far[v]--
	case h.far[v] == 1:
		delete(h.far, v)
	default:
		panic("rollout: removal of a value that the histogram does not count")
	}
	h.n--
	h.sum -= float64(v)
}

// Move changes one count of a value to another value.
func (h *Histogram) Move(from, to int64) {
	h.Remove(from)
	h.Add(to)
}

// Of returns how often a value was added.
func (h *Histogram) Of(v int64) uint64 {
	if c := h.counter(v); c != nil {
		return *c
	}
	return h.far[v]
}

// Count returns how many values were added.
func (h *Histogram) Count() uint64 { return h.n }

// Sum returns the sum of the values added, exact below 2^53.
func (h *Histogram) Sum() float64 { return h.sum }

// Max returns the largest value counted, 0 if there are none.
func (h *Histogram) Max() int64 {
	var greatest int64
	for v := range h.far {
		greatest = max(greatest, v)
	}
	if greatest > 0 {
		return greatest
	}
	for p := len(h.pages) - 1; p >= 0; p-- {
		if h.pages[p] == nil {
			continue
		}
		for i := pageSize - 1; i >= 0; i-- {
			if h.pages[p][i] > 0 {
				return int64(p*pageSize + i)
			}
		}
	}
	return 0
}

// Mean returns the mean of the values added, 0 if there are none.
func (h *Histogram) Mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// Bin is how often one value was counted.
type Bin struct {
	Value int64
	Count uint64
}

// Bins returns the counted values in ascending order.
func (h *Histogram) Bins() []Bin {
	var bins []Bin
	for p, page := range h.pages {
		if page == nil {
			continue
		}
		for i, c := range page {
			if c > 0 {
				bins = append(bins, Bin{int64(p*pageSize + i), c})
			}
		}
	}
	near := len(bins)
	for v, c := range h.far {
		bins = append(bins, Bin{v, c})
	}
	slices.SortFunc(bins[near:], func(a, b Bin) int { return cmp.Compare(a.Value, b.Value) })
	return bins
}

// Quantile returns the smallest value such that at least the share q in [0, 1] of the counts is at or below it, 0 if
// nothing was added.
func (h *Histogram) Quantile(q float64) int64 {
	var below uint64
	for _, b := range h.Bins() {
		below += b.Count
		if float64(below) >= q*float64(h.n) {
			return b.Value
		}
	}
	return h.Max()
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(o *Histogram) {
	for _, b := range o.Bins() {
		h.add(b.Value, b.Count)
	}
}

// MarshalJSON writes the histogram as [[value, count], …] in ascending order. Its receiver is a value so that Stats
// passed by value is written too.
func (h Histogram) MarshalJSON() ([]byte, error) {
	pairs := [][2]uint64{}
	for _, b := range h.Bins() {
		pairs = append(pairs, [2]uint64{uint64(b.Value), b.Count})
	}
	return json.Marshal(pairs)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var pairs [][2]uint64
	if err := json.Unmarshal(text, &pairs); err != nil {
		return err
	}
	*h = Histogram{}
	for _, p := range pairs {
		if p[0] > math.MaxInt64 {
			return fmt.Errorf("reading a histogram: value %d is above %d", p[0], int64(math.MaxInt64))
		}
		h.add(int64(p[0]), p[1])
	}
	return nil
}

// MarshalBinary writes a format byte, the number of bins, and each bin as two varints: the distance to the previous
// value and the count.
func (h Histogram) MarshalBinary() ([]byte, error) {
	bins := h.Bins()
	b := binary.AppendUvarint([]byte{histogramFormat}, uint64(len(bins)))
	var last int64
	for _, bin := range bins {
		b = binary.AppendUvarint(b, uint64(bin.Value-last))
		b = binary.AppendUvarint(b, bin.Count)
		last = bin.Value
	}
	return b, nil
}

// UnmarshalBinary reads what MarshalBinary wrote.
func (h *Histogram) UnmarshalBinary(b []byte) error {
	d := decoder{b: b}
	d.format("histogram", histogramFormat)
	var v uint64
	fresh := Histogram{}
	for n := d.length("bins", 2); n > 0 && d.err == nil; n-- {
		v += d.uvarint("value")
		c := d.uvarint("count")
		if v > math.MaxInt64 {
			d.fail("value %d is out of range", v)
		}
		if d.err == nil {
			fresh.add(int64(v), c)
		}
	}
	if err := d.finish("histogram"); err != nil {
		return err
	}
	*h = fresh
	return nil
}
