package rollout

import (
	"encoding/json"
	"slices"
)

// denseLimit is the first value that a Histogram keeps in its map instead of its slice.
const denseLimit = 1 << 14

// Histogram counts non-negative integers exactly. Adding costs constant time; the zero value is
// ready to use. It is not safe for concurrent use.
type Histogram struct {
	dense []uint64 // counts of 0 .. len-1
	far   map[int64]uint64
	n     uint64
	sum   float64
	max   int64
}

// Add counts a value once; negative values panic, as no quantity counted here can be negative.
func (h *Histogram) Add(v int64) {
	if v < 0 {
		panic("rollout: negative value in a histogram")
	}
	h.add(v, 1)
}

func (h *Histogram) add(v int64, count uint64) {
	switch {
	case v < int64(len(h.dense)):
		h.dense[v] += count
	case v < denseLimit:
		h.dense = append(h.dense, make([]uint64, int(v)+1-len(h.dense))...)
		h.dense[v] += count
	default:
		if h.far == nil {
			h.far = make(map[int64]uint64)
		}
		h.far[v] += count
	}
	h.n += count
	h.sum += float64(v) * float64(count)
	h.max = max(h.max, v)
}

// Count returns how many values were added.
func (h *Histogram) Count() uint64 { return h.n }

// Sum returns the sum of the values added.
func (h *Histogram) Sum() float64 { return h.sum }

// Max returns the largest value added, 0 if there are none.
func (h *Histogram) Max() int64 { return h.max }

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

// Bins returns the values that occur with their counts, in ascending order.
func (h *Histogram) Bins() []Bin {
	var bins []Bin
	for v, c := range h.dense {
		if c > 0 {
			bins = append(bins, Bin{int64(v), c})
		}
	}
	near := len(bins)
	for v, c := range h.far {
		bins = append(bins, Bin{v, c})
	}
	slices.SortFunc(bins[near:], func(a, b Bin) int { return int(a.Value - b.Value) })
	return bins
}

// Quantile returns the smallest value with at least the share q in [0, 1] of the counts at or
// below it, 0 if nothing was added.
func (h *Histogram) Quantile(q float64) int64 {
	var below uint64
	for _, b := range h.Bins() {
		below += b.Count
		if float64(below) >= q*float64(h.n) {
			return b.Value
		}
	}
	return h.max
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(o *Histogram) {
	for _, b := range o.Bins() {
		h.add(b.Value, b.Count)
	}
}

// MarshalJSON writes the histogram as [[value, count], …] in ascending order.
func (h *Histogram) MarshalJSON() ([]byte, error) {
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
		h.add(int64(p[0]), p[1])
	}
	return nil
}

// Cause is why a rollout left a table.
type Cause string

// Why rollouts leave a table.
const (
	EvictedByCapacity  Cause = "capacity"  // count or bytes
	EvictedByStaleness Cause = "staleness" // older than MaxStaleness
	EvictedByUses      Cause = "uses"      // reached MaxUses
	EvictedByConsume   Cause = "consumed"  // taken from a queue
	EvictedByRewind    Cause = "rewind"    // newer than the version rewound to
)

// Stats is what a table has counted since it was made.
type Stats struct {
	Version        Version
	Present        int   // rollouts
	PresentBytes   int64 // of their payload
	Inserted       uint64
	InsertedGroups uint64
	Evicted        map[Cause]uint64
	Refused        uint64 // rollouts of refused insertions
	Drawn          uint64 // handed out
	Acknowledged   uint64 // draws that became uses
	Returned       uint64 // draws that went back unacknowledged
	UpdatesIgnored uint64 // priority updates addressed to evicted rollouts (invariant 7)
	NeverUsed      uint64 // evicted without a use

	Staleness      Histogram // at use, in versions
	MeanStaleness  Histogram // at use, mean over the rollout's tokens, rounded down to a version
	UsesAtEviction Histogram
	UsesPresent    Histogram // of the rollouts now in the table
	SinceLastUse   Histogram // updates since the previous use; 0: repeat within a batch; first uses are not counted
}
