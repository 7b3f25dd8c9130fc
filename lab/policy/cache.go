package policy

import (
	"errors"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
)

// cache is the keys and values of a batch of rows, in slots. A pass writes the same slots of every row; a slot for
// which a row has no token is closed to it. A row's tokens are in ascending slots, with gaps.
type cache struct {
	model   *Model
	rows    int
	slots   int
	next    int   // first free slot
	lengths []int // [rows] tokens of each row
	// [rows, slots] 0 where a slot has a token of the row, else masked: added to attention scores
	bias    []float32
	tensors []*tensors.Tensor // 2 x layers of [rows, KVHeads, slots, HeadDim]: keys and values; nil: the cache is empty
}

func newCache(m *Model, rows int) *cache {
	return &cache{model: m, rows: rows, lengths: make([]int, rows)}
}

// clear empties the cache and returns its memory to the backend.
func (c *cache) clear() {
	for _, t := range c.tensors {
		t.FinalizeAll()
	}
	c.tensors, c.bias, c.slots, c.next = nil, nil, 0, 0
	clear(c.lengths)
}

// reserve makes room for a pass of n positions. If that moves the cache, it also makes room for soon more.
func (c *cache) reserve(n, soon int) error {
	switch {
	case c.tensors == nil:
		slots := roundLength(n+soon, n+soon+c.model.config.MaxPositionEmbeddings)
		empty, err := c.allocate(slots)
		c.tensors, c.bias, c.slots = empty, closedBias(c.rows*slots), slots
		return err
	case c.next+n <= c.slots:
		return nil
	}
	return c.resize(roundSlots(slices.Max(c.lengths) + n + soon))
}

// roundSlots rounds up to a power of two or one and a half times one. A growing cache passes through few sizes, and
// none is half empty.
func roundSlots(n int) int {
	size := 16
	for size < n {
		size *= 2
	}
	if three := size / 4 * 3; three >= n {
		return three
	}
	return size
}

// repeat gives every row what a cache of one row holds, and clears that.
func (c *cache) repeat(one *cache) error {
	list, err := c.allocate(one.slots)
	if err != nil {
		return err
	}
	for i, from := range one.tensors {
		if err := copyData(list[i], from, func(to, from []float32) {
			for len(to) > 0 {
				to = to[copy(to, from):]
			}
		}); err != nil {
			return err
		}
	}
	c.tensors, c.bias, c.slots, c.next = list, slices.Repeat(one.bias, c.rows), one.slots, one.next
	for i := range c.lengths {
		c.lengths[i] = one.lengths[0]
	}
	one.clear()
	return nil
}

// copyData calls do with the data of two tensors, to write the first.
func copyData(to, from *tensors.Tensor, do func(to, from []float32)) error {
	var inner error
	err := tensors.ConstFlatData(from, func(data []float32) {
		inner = tensors.MutableFlatData(to, func(flat []float32) { do(flat, data) })
	})
	return errors.Join(err, inner)
}

// allocate returns zeroed keys and values in the backend's own memory, where it reuses what clear returned.
func (c *cache) allocate(slots int) ([]*tensors.Tensor, error) {
	config := c.model.config
	shape := shapes.Make(dtypes.Float32, c.rows, config.NumKeyValueHeads, slots, config.HeadDim)
	list := make([]*tensors.Tensor, 2*config.NumHiddenLayers)
	for i := range list {
		var err error
		if list[i], err = tensors.FromShapeForBackend(c.model.backend, 0, shape); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// closedBias returns the bias of n closed slots.
func closedBias(n int) []float32 { return slices.Repeat([]float32{masked}, n) }

// forget forgets a row's tokens.
func (c *cache) forget(row int) {
	if c.tensors != nil {
		copy(c.bias[row*c.slots:(row+1)*c.slots], closedBias(c.slots))
	}
	c.lengths[row] = 0
}

// resize moves every row's tokens to the first slots of a cache of another size. It copies on the host: a program would
// have to be compiled for each pair of sizes.
func (c *cache) resize(slots int) error {
	stretches := make([][][2]int, c.rows)
	for i := range stretches {
		stretches[i] = c.stretches(i)
	}
	grown, err := c.allocate(slots)
	if err != nil {
		return err
	}
	for i, from := range c.tensors {
		if err := copyData(grown[i], from, func(to, old []float32) { c.pack(to, old, slots, stretches) }); err != nil {
			return err
		}
		if err := from.FinalizeAll(); err != nil {
			return err
		}
	}
	c.tensors, c.bias, c.slots, c.next = grown, closedBias(c.rows*slots), slots, slices.Max(c.lengths)
	for i, n := range c.lengths {
		clear(c.bias[i*slots : i*slots+n])
	}
	return nil
}

// stretches returns the runs [from, to) of slots that hold tokens of a row, in order.
func (c *cache) stretches(row int) (list [][2]int) {
	bias := c.bias[row*c.slots : row*c.slots+c.next]
	for from := 0; from < c.next; from++ {
		if bias[from] != 0 {
			continue
		}
		to := from
		for to < c.next && bias[to] == 0 {
			to++
		}
		list = append(list, [2]int{from, to})
		from = to
	}
	return list
}

// pack copies the stretches of every row and head to the first of the given number of slots.
func (c *cache) pack(to, from []float32, slots int, stretches [][][2]int) {
	width, heads := c.model.config.HeadDim, c.model.config.NumKeyValueHeads
	for i := range c.rows * heads {
		at, old := to[i*slots*width:(i+1)*slots*width], from[i*c.slots*width:(i+1)*c.slots*width]
		for _, r := range stretches[i/heads] {
			at = at[copy(at, old[r[0]*width:r[1]*width]):]
		}
	}
}

// occupy opens the slots of a pass of n positions to the rows. Each row has its pending tokens in the last of them.
func (c *cache) occupy(n int, pending []int) {
	c.next += n
	for i, p := range pending {
		end := i*c.slots + c.next
		clear(c.bias[end-p : end])
		c.lengths[i] += p
	}
}
