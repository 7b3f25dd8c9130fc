package policy

import (
	"fmt"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
)

// soonest bounds the slots that a cache keeps free for tokens to come. Rows often stop long before they must, and each
// slot costs every token attention.
const soonest = 64

// chunk is the tokens of one pass: of each row those that the cache does not hold yet, in the last of S positions.
type chunk struct {
	length    int     // S
	pending   []int   // [B] tokens of each row
	tokens    []int32 // [B, S]
	positions []int32 // [B, S] of the tokens in their rows, without any padding
	sight     *sight  // nil in passes of one position, which show no images
}

// step runs the tokens that rows have and the cache lacks, and returns the logits [B, Vocab] that follow each row's last
// one, and the values [B] there of a model with a value head.
func (g *Generation) step(w *Weights) (logits, values *tensors.Tensor, err error) {
	if g.sampling.RecomputeCache && g.version != w.Version {
		g.cache.clear()
	}
	g.version = w.Version
	c, err := g.chunk()
	if err != nil {
		return nil, nil, err
	}
	soon := 0
	for i := range g.rows {
		soon = max(soon, g.rows[i].ahead(g.sampling.MaxTokens, g.model.config.MaxPositionEmbeddings)-1) // the last is never passed
	}
	out, err := g.pass(w, c, min(soon, soonest))
	if err != nil {
		g.Close() // the cache may have been handed over
		return nil, nil, err
	}
	rest := out[1:]
	if g.model.config.ValueHead {
		values, rest = rest[0], rest[1:]
	}
	g.cache.tensors = rest
	return out[0], values, nil
}

// pass hands the chunk and the cache to the program, after soon more slots than the chunk's have been made free in it.
func (g *Generation) pass(w *Weights, c chunk, soon int) ([]*tensors.Tensor, error) {
	if err := g.cache.reserve(c.length, soon); err != nil {
		return nil, err
	}
	m, rows, start := g.model, len(g.rows), g.cache.next
	g.cache.take(c.length, c.pending)
	args := append(w.inputs(6+len(g.cache.tensors)),
		tensors.FromFlatDataAndDimensions(c.tokens, rows, c.length),
		tensors.FromScalar(int32(start)),
		tensors.FromFlatDataAndDimensions(c.positions, rows, c.length),
		tensors.FromFlatDataAndDimensions(g.cache.bias, rows, g.cache.slots))
	if c.sight != nil {
		args = append(args, c.sight.tensors()...)
	}
	for _, t := range g.cache.tensors {
		donated, err := DonateTensorBuffer(t, m.backend, 0)
		if err != nil {
			return nil, err
		}
		args = append(args, donated)
	}
	return m.advance.call(extent{rows, c.length, g.cache.slots}, args)
}

// chunk lays out the next pass. A row that rests takes no part in it, unless the cache is empty: then all but its last token
// is in the pass, as if it had been decoded.
func (g *Generation) chunk() (chunk, error) {
	c := chunk{pending: make([]int, len(g.rows))}
	longest := 0
	for i := range g.rows {
		row, held := &g.rows[i], g.cache.held[i]
		switch {
		case !row.Done:
			c.pending[i] = len(row.Tokens) - held
		case held == 0:
			c.pending[i] = len(row.Tokens) - 1
		}
		longest = max(longest, c.pending[i])
	}
	c.length = g.chunkLength(longest)
	c.tokens, c.positions = make([]int32, len(g.rows)*c.length), make([]int32, len(g.rows)*c.length)
	if c.length > 1 {
		c.sight = g.model.newSight(len(g.rows), c.length)
	}
	for i, pending := range c.pending {
		if err := g.lay(c, i, pending); err != nil {
			return chunk{}, fmt.Errorf("row %d: %w", i, err)
		}
	}
	return c, nil
}

// chunkLength rounds the length of a pass so that few are compiled. What is read between turns comes at any length,
// and with each size of the cache: shorter ones are rounded to coarser steps than first passes are.
func (g *Generation) chunkLength(n int) int {
	switch {
	case n == 1 && g.cache.tensors != nil:
		return 1
	case g.cache.tensors != nil && n <= 32:
		return (n + 3) / 4 * 4
	}
	return bucket(n, n+g.model.config.MaxPositionEmbeddings)
}

// lay writes a row's tokens into the chunk.
func (g *Generation) lay(c chunk, i, pending int) error {
	row, held := &g.rows[i], g.cache.held[i]
	from := c.length - pending
	at := i*c.length + from
	for j := range pending {
		c.tokens[at+j], c.positions[at+j] = row.Tokens[held+j], int32(held+j)
	}
	if c.sight == nil || c.sight.place == nil {
		return nil
	}
	shown := g.model.imageTokens(row.Tokens[:held], row.Mask) / g.model.config.Vision.Tokens()
	return c.sight.put(i, from, row.Tokens[held:held+pending], row.Mask[held:held+pending], row.Images[shown:])
}

// advanceGraph: parameters, tokens [B, S], slot of the first position, positions [B, S], bias of the slots
// [B, slots], what the tower sees if S > 1, cache -> logits [B, Vocab] after the last position, values [B] there of a model
// with a value head, cache.
func (m *Model) advanceGraph(in []*Node) []*Node {
	d, rest := m.split(in)
	tokens, at := rest[0], span{start: rest[1], positions: rest[2], bias: rest[3]}
	rest = rest[4:]
	batch, length := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	if seen := d.seen(rest); length > 1 && seen.patches != nil {
		at.images, rest = seen, rest[2:]
	}
	at.cache = rest
	hidden, filled := d.forward(tokens, at)
	last := SliceAxis(hidden, 1, AxisRange(length-1, length)) // [B, 1, Hidden]
	out := []*Node{d.logits(Reshape(last, batch, m.config.HiddenSize))}
	if v := d.values(last); v != nil {
		out = append(out, Reshape(v, batch))
	}
	return append(out, filled...)
}
