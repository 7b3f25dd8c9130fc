package policy

import (
	"errors"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
)

// cache is the keys and values of a batch of rows, in slots. A pass writes the same slots of every row; where a row has no
// token for a slot, the slot is closed to it. A row's tokens stand in ascending slots, with gaps.
type cache struct {
	model   *Model
	rows    int
	slots   int
	next    int               // the slots from here on are free
	held    []int             // [rows] tokens of each row
	bias    []float32         // [rows, slots] 0 where a slot holds a token of the row, else masked: what attention adds to its score
	tensors []*tensors.Tensor // 2 x layers of [rows, KVHeads, slots, HeadDim]: keys and values; nil: the cache is empty
}

func newCache(m *Model, rows int) *cache {
	return &cache{model: m, rows: rows, held: make([]int, rows)}
}

// clear empties the cache, and gives its memory back to the backend for others to use.
func (c *cache) clear() {
	for _, t := range c.tensors {
		t.FinalizeAll()
	}
	c.tensors, c.bias, c.slots, c.next = nil, nil, 0, 0
	clear(c.held)
}

// reserve makes room for a pass of n positions, and if it has to move the tokens for that also for those that follow soon.
func (c *cache) reserve(n, soon int) error {
	switch {
	case c.tensors == nil:
		size := bucket(n+soon, n+soon+c.model.config.MaxPositionEmbeddings)
		empty, err := c.empty(size)
		c.tensors, c.bias, c.slots = empty, closed(c.rows*size), size
		return err
	case c.next+n <= c.slots:
		return nil
	}
	return c.move(rung(slices.Max(c.held) + n + soon))
}

// rung rounds up to a power of two or one and a half times one: sizes that a growing cache passes through are few, and none
// is half empty.
func rung(n int) int {
	size := 16
	for size < n {
		size *= 2
	}
	if three := size / 4 * 3; three >= n {
		return three
	}
	return size
}

// empty returns tensors of zeros in the backend's own memory, where what clear gave back is taken up again.
func (c *cache) empty(slots int) ([]*tensors.Tensor, error) {
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

// closed returns the bias of n closed slots.
func closed(n int) []float32 {
	bias := make([]float32, n)
	for i := range bias {
		bias[i] = masked
	}
	return bias
}

// move copies the cache into one of the given number of slots, every row's tokens to its first ones. It is done
// on the host, where it costs what copying the memory costs: a program would have to be compiled for each pair of sizes.
func (c *cache) move(size int) error {
	runs := make([][][2]int, c.rows)
	for i := range runs {
		runs[i] = c.runs(i)
	}
	grown, err := c.empty(size)
	if err != nil {
		return err
	}
	for i, from := range c.tensors {
		var inner error
		err := tensors.ConstFlatData(from, func(old []float32) {
			inner = tensors.MutableFlatData(grown[i], func(flat []float32) { c.copyRuns(flat, old, size, runs) })
		})
		if err := errors.Join(err, inner); err != nil {
			return err
		}
		if err := from.FinalizeAll(); err != nil {
			return err
		}
	}
	c.tensors, c.bias, c.slots, c.next = grown, closed(c.rows*size), size, slices.Max(c.held)
	for i, n := range c.held {
		clear(c.bias[i*size : i*size+n])
	}
	return nil
}

// runs returns the stretches [from, to) of slots that hold tokens of a row, in order.
func (c *cache) runs(row int) (list [][2]int) {
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

// copyRuns packs the runs of every row and head.
func (c *cache) copyRuns(to, from []float32, size int, runs [][][2]int) {
	width, heads := c.model.config.HeadDim, c.model.config.NumKeyValueHeads
	for i := range c.rows * heads {
		at, old := to[i*size*width:(i+1)*size*width], from[i*c.slots*width:(i+1)*c.slots*width]
		for _, r := range runs[i/heads] {
			at = at[copy(at, old[r[0]*width:r[1]*width]):]
		}
	}
}

// take opens the slots of a pass of n positions to the rows, which have their tokens in the last of them, pending many each.
func (c *cache) take(n int, pending []int) {
	c.next += n
	for i, p := range pending {
		end := i*c.slots + c.next
		clear(c.bias[end-p : end])
		c.held[i] += p
	}
}
