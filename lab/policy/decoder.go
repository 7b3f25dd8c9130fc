package policy

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/lab/policy/hf"
)

// decoder builds the graph of one forward pass over named parameters.
type decoder struct {
	hf.Config
	weight   map[string]*Node
	products map[*Node]product // of a pass that gradients are taken of, by weight; nil: none are taken
}

// product is rows x [rows, in] multiplied by a weight [out, in], y [rows, out].
type product struct{ x, y *Node }

// newDecoder names the parameter nodes, which are in the order of hf.Config.Specs.
func newDecoder(c hf.Config, nodes []*Node) *decoder {
	d := &decoder{Config: c.WithDefaults(), weight: make(map[string]*Node, len(nodes))}
	for i, s := range c.Specs() {
		d.weight[s.Name] = nodes[i]
	}
	return d
}

// placement says where the S positions of a pass are. With the zero value, rows begin at their first token and attend
// within the pass.
type placement struct {
	start     *Node // scalar int32: slot of the first position; nil: 0
	positions *Node // [B, S] int32: positions of the tokens in their rows; nil: 0 to S-1
	// [B, slots] float32: 0 where a slot has a token of the row, this pass included, else masked; nil: all have
	bias   *Node
	cache  []*Node // 2 x Layers of [B, KVHeads, slots, HeadDim]; nil: attend within the pass
	images imageNodes
	// [B, Q] int32: the positions of each row, in the pass, whose last hidden states are wanted; nil: all
	wanted *Node
}

// forward runs tokens [B, S] int32 and returns the last hidden states [B, S, Hidden] or [B, Q, Hidden], normed, and the
// cache with the pass's keys and values in place.
func (d *decoder) forward(tokens *Node, at placement) (hidden *Node, cache []*Node) {
	length := tokens.Shape().Dim(1)
	x := d.embed(tokens, at.images) // [B, S, Hidden]

	slots := Iota(tokens.Graph(), shapes.Make(dtypes.Int32, 1, length), 1)
	positions := at.positions // [1 or B, S]
	if positions == nil {
		positions = slots
	}
	if at.start != nil {
		slots = Add(slots, at.start)
	}
	all := d.rotary(positions)
	keys := length
	if at.cache != nil {
		keys = at.cache[0].Shape().Dim(2)
	}
	bias := attentionBias(slots, at.bias, keys)
	for l := range d.NumHiddenLayers {
		b := block{decoder: d, layer: l, keyAngles: all, queryAngles: all, bias: bias, start: at.start}
		if at.cache != nil {
			b.keys, b.values = at.cache[2*l], at.cache[2*l+1]
		}
		if at.wanted != nil && l == d.NumHiddenLayers-1 { // nothing reads what it makes of other positions
			b.wanted, b.queryAngles = at.wanted, all.pick(at.wanted)
			b.bias = attentionBias(pick(ExpandAxes(slots, -1), at.wanted), at.bias, keys)
		}
		x = b.forward(x)
		cache = append(cache, b.keys, b.values)
	}
	return d.norm(x, "model.norm.weight"), cache
}

// pick returns the positions [B, Q] of each row of x [1 or B, S, W], as [B, Q, W].
func pick(x, positions *Node) *Node {
	rows, length, width := x.Shape().Dim(0), x.Shape().Dim(1), x.Shape().Dim(2)
	if rows > 1 {
		first := MulScalar(Iota(x.Graph(), shapes.Make(dtypes.Int32, rows, 1), 0), length)
		positions = Add(positions, BroadcastToDims(first, positions.Shape().Dimensions...))
	}
	return Gather(Reshape(x, rows*length, width), ExpandAxes(positions, -1))
}

// embed returns the embeddings [B, S, Hidden] of tokens [B, S]: of the vocabulary, or of the vision tower and projector
// for the patches of images.
func (d *decoder) embed(tokens *Node, images imageNodes) *Node {
	x := Gather(d.weight["model.embed_tokens.weight"], ExpandAxes(tokens, -1))
	if images.patches == nil {
		return x
	}
	text := LessThan(images.patch, ZerosLike(images.patch))
	position := Where(text, ZerosLike(images.patch), images.patch)
	patch := Add(
		d.linear(images.patches, "vision_tower.patch_embedding"),
		Gather(d.weight["vision_tower.position_embedding.weight"], ExpandAxes(position, -1)))
	h := d.linear(patch, "multi_modal_projector.linear_1")
	h = d.linear(Mul(h, Sigmoid(h)), "multi_modal_projector.linear_2")
	return Where(BroadcastToDims(ExpandAxes(text, -1), x.Shape().Dimensions...), x, h)
}

// logits projects hidden states [..., Hidden] to the vocabulary.
func (d *decoder) logits(hidden *Node) *Node {
	if d.TieWordEmbeddings {
		return d.matmul(hidden, d.weight["model.embed_tokens.weight"])
	}
	return d.matmul(hidden, d.weight["lm_head.weight"])
}

// values returns the critic's values [B, S] of what follows hidden states [B, S, Hidden], nil without a value head.
func (d *decoder) values(hidden *Node) *Node {
	if !d.ValueHead {
		return nil
	}
	return Reshape(d.linear(hidden, "v_head.summary"), hidden.Shape().Dim(0), hidden.Shape().Dim(1))
}

// linear applies the weight and, if there is one, the bias of a layer to x [..., in].
func (d *decoder) linear(x *Node, name string) *Node {
	y := d.matmul(x, d.weight[name+".weight"])
	if bias := d.weight[name+".bias"]; bias != nil {
		y = Add(y, ExpandLeftToRank(bias, y.Rank()))
	}
	return y
}

// matmul multiplies x [..., in] by a weight [out, in].
func (d *decoder) matmul(x, weight *Node) *Node {
	dims := slices.Clone(x.Shape().Dimensions)
	last := len(dims) - 1
	p := product{x: Reshape(x, -1, dims[last])}
	p.y = DotGeneral(p.x, []int{1}, nil, weight, []int{1}, nil)
	if d.products != nil && weight != d.weight["model.embed_tokens.weight"] { // which has another use
		d.products[weight] = p
	}
	dims[last] = weight.Shape().Dim(0)
	return Reshape(p.y, dims...)
}

// gradient returns the gradients of a loss by parameters and by one more node.
func (d *decoder) gradient(loss *Node, params []*Node, more *Node) (grads []*Node, byMore *Node) {
	by := append(slices.Clone(params), more)
	for i, w := range params {
		if p, ok := d.products[w]; ok {
			by[i] = p.y
		}
	}
	grads = Gradient(loss, by...)
	for i, w := range params {
		if p, ok := d.products[w]; ok {
			grads[i] = sumOverRows(grads[i], p.x)
		}
	}
	return grads[:len(params)], grads[len(params)]
}

// norm is RMSNorm over the last axis.
func (d *decoder) norm(x *Node, name string) *Node {
	meanSquare := DivScalar(ReduceAndKeep(Square(x), ReduceSum, -1), float64(x.Shape().Dim(-1)))
	return Mul(Div(x, Sqrt(AddScalar(meanSquare, d.RMSNormEps))), ExpandLeftToRank(d.weight[name], x.Rank()))
}

// rotary returns the cosines and sines [1 or B, 1, S, HeadDim] of positions [1 or B, S]. Both halves of a head are the
// same, which is Hugging Face's layout of rotary embeddings.
func (d *decoder) rotary(positions *Node) angles {
	frequencies := make([]float32, d.HeadDim/2)
	for i := range frequencies {
		f := math.Pow(d.RopeTheta, -float64(2*i)/float64(d.HeadDim))
		frequencies[i] = float32(scaleFrequency(f, d.RopeScaling))
	}
	angle := Mul(ExpandAxes(ConvertDType(positions, dtypes.Float32), 1, -1),
		ExpandLeftToRank(Const(positions.Graph(), frequencies), 4))
	twice := func(x *Node) *Node { return Concatenate([]*Node{x, x}, -1) }
	return angles{twice(Cos(angle)), twice(Sin(angle))}
}

// angles are cosines and sines [1 or B, 1, S, HeadDim] of rotary embeddings.
type angles struct{ cos, sin *Node }

// pick returns the angles of the positions [B, Q] of each row.
func (a angles) pick(positions *Node) angles {
	of := func(x *Node) *Node { return ExpandAxes(pick(Squeeze(x, 1), positions), 1) }
	return angles{of(a.cos), of(a.sin)}
}

// scaleFrequency applies Llama 3's scaling to a rotary frequency, in radians a position.
func scaleFrequency(f float64, s hf.RopeScaling) float64 {
	if s == (hf.RopeScaling{}) {
		return f
	}
	turns := float64(s.OriginalMaxPositionEmbeddings) * f / (2 * math.Pi) // of the wave within the original length
	keep := (turns - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	keep = min(max(keep, 0), 1)
	return keep*f + (1-keep)*f/s.Factor
}

// masked is the attention score of a forbidden key: far below any real one, yet finite, so that a row of padding, which
// may attend to nothing, stays free of NaN.
const masked = -1e9

// attentionBias returns 0 where a query may see a key and masked elsewhere: [1 or B, 1, S, keys]. A query in slot s of
// slots [1 or B, S] sees the slots up to s that hold tokens of its row (held [B, keys], see placement.bias). The slot
// of a single query is the last one held.
func attentionBias(slots, held *Node, keys int) *Node {
	g, rows, length := slots.Graph(), slots.Shape().Dim(0), slots.Shape().Dim(1)
	if held != nil && length == 1 {
		return Reshape(held, held.Shape().Dim(0), 1, 1, keys)
	}
	key := Iota(g, shapes.Make(dtypes.Int32, rows, 1, length, keys), 3)
	query := Reshape(slots, rows, 1, length, 1)
	allowed := LessOrEqual(key, BroadcastToDims(query, rows, 1, length, keys))
	if held == nil {
		return Where(allowed, ScalarZero(g, dtypes.Float32), Scalar(g, dtypes.Float32, masked))
	}
	dims := []int{held.Shape().Dim(0), 1, length, keys}
	open := BroadcastToDims(Reshape(held, dims[0], 1, 1, keys), dims...)
	return Where(BroadcastToDims(allowed, dims...), open, MulScalar(OnesLike(open), masked))
}

// block is one layer of the decoder in one pass.
type block struct {
	*decoder
	layer                  int
	wanted                 *Node // placement.wanted, in the last layer
	keyAngles, queryAngles angles
	bias                   *Node // [1 or B, 1, S or Q, keys]
	start                  *Node // scalar int32: slot of the first position
	keys, values           *Node // [B, KVHeads, slots, HeadDim]: the cache before the pass, then after it; nil: none
}

func (b *block) name(part string) string { return fmt.Sprintf("model.layers.%d.%s", b.layer, part) }

// forward runs hidden states [B, S, Hidden] through the block, and returns those of the wanted positions.
func (b *block) forward(x *Node) *Node {
	h := b.norm(x, b.name("input_layernorm.weight"))
	read := h
	if b.wanted != nil {
		x = pick(x, b.wanted)
		read = b.norm(x, b.name("input_layernorm.weight"))
	}
	x = Add(x, b.attention(read, h))
	h = b.norm(x, b.name("post_attention_layernorm.weight"))
	gate := b.linear(h, b.name("mlp.gate_proj"))
	h = Mul(Mul(gate, Sigmoid(gate)), b.linear(h, b.name("mlp.up_proj")))
	return Add(x, b.linear(h, b.name("mlp.down_proj")))
}

// attention is grouped-query attention of x [B, Q, Hidden] to all [B, S, Hidden].
func (b *block) attention(x, all *Node) *Node {
	batch, length := x.Shape().Dim(0), x.Shape().Dim(1)
	shared := b.NumAttentionHeads / b.NumKeyValueHeads // query heads per key head
	q := b.rotate(b.heads(x, "q", b.NumAttentionHeads), b.queryAngles)
	k := b.rotate(b.heads(all, "k", b.NumKeyValueHeads), b.keyAngles)
	v := b.heads(all, "v", b.NumKeyValueHeads)
	if b.keys != nil {
		k, v = b.store(b.keys, k), b.store(b.values, v)
	}
	b.keys, b.values = k, v
	keys := k.Shape().Dim(2)

	q = Reshape(MulScalar(q, 1/math.Sqrt(float64(b.HeadDim))), batch, b.NumKeyValueHeads, shared*length, b.HeadDim)
	score := b.queryKeyScores(q, k) // [B, KV, shared*Q, keys]
	score = Reshape(score, batch, b.NumAttentionHeads, length, keys)
	weight := softmax(Add(score, BroadcastToDims(b.bias, batch, b.NumAttentionHeads, length, keys)))
	weight = Reshape(weight, batch, b.NumKeyValueHeads, shared*length, keys)
	y := b.weightedValues(weight, v) // [B, KV, shared*Q, HeadDim]
	y = TransposeAllDims(Reshape(y, batch, b.NumAttentionHeads, length, b.HeadDim), 0, 2, 1, 3)
	return b.linear(Reshape(y, batch, length, b.NumAttentionHeads*b.HeadDim), b.name("self_attn.o_proj"))
}

// heads projects x [B, S, Hidden] to n heads [B, n, S, HeadDim] of q, k or v. Qwen3's q and k are normed head by head.
func (b *block) heads(x *Node, part string, n int) *Node {
	x = b.linear(x, b.name("self_attn."+part+"_proj"))
	x = Reshape(x, x.Shape().Dim(0), x.Shape().Dim(1), n, b.HeadDim)
	if norm := b.name("self_attn." + part + "_norm.weight"); b.weight[norm] != nil {
		x = b.norm(x, norm)
	}
	return TransposeAllDims(x, 0, 2, 1, 3)
}

// rotate applies the rotary embedding to [B, n, S, HeadDim]. It swaps the halves of heads by a product with a constant
// matrix, which takes less time than to slice and join them.
func (b *block) rotate(x *Node, a angles) *Node {
	half := b.HeadDim / 2
	swap := make([][]float32, 2*half) // x swap is -high, low of x
	for i := range half {
		swap[i], swap[half+i] = make([]float32, 2*half), make([]float32, 2*half)
		swap[i][half+i], swap[half+i][i] = 1, -1
	}
	dims := x.Shape().Dimensions
	turned := DotGeneral(Reshape(x, -1, b.HeadDim), []int{1}, nil, Const(x.Graph(), swap), []int{0}, nil)
	wide := func(c *Node) *Node {
		spread := BroadcastToDims(c, dims...)
		if c.Shape().Dim(0) > 1 { // the backend does this slowly: once for all heads of all layers, not in each product
			spread = Reshape(Reshape(spread, -1), dims...)
		}
		return spread
	}
	return Add(Mul(x, wide(a.cos)), Mul(Reshape(turned, dims...), wide(a.sin)))
}

// store writes the pass's keys or values [B, n, S, HeadDim] into the cache at its start slot.
func (b *block) store(cache, x *Node) *Node {
	zero := Const(x.Graph(), int32(0))
	start := b.start
	if start == nil {
		start = zero
	}
	return DynamicUpdateSlice(cache, x, []*Node{zero, zero, start, zero})
}

// softmax over the last axis.
func softmax(x *Node) *Node {
	e := Exp(Sub(x, StopGradient(ReduceAndKeep(x, ReduceMax, -1))))
	return Div(e, ReduceAndKeep(e, ReduceSum, -1))
}

// Products have gradients of their own by weights, keys and values. The backend's matrix products sum over the last
// axis of their left operand, and transpose operands that are laid out otherwise, which can take longer than the
// product itself. These gradients transpose one operand, the smaller.

// queryKeyScores returns the scores [B, N, S, K] of queries [B, N, S, D] with keys [B, N, K, D].
func (d *decoder) queryKeyScores(queries, keys *Node) *Node {
	return d.withRightGradient(keys,
		func(keys *Node) *Node { return DotGeneral(queries, []int{3}, []int{0, 1}, keys, []int{3}, []int{0, 1}) },
		func(v *Node) *Node { return sumOverQueries(v, queries) })
}

// weightedValues returns the sums [B, N, S, D] of values [B, N, K, D] by weights [B, N, S, K].
func (d *decoder) weightedValues(weights, values *Node) *Node {
	return d.withRightGradient(values,
		func(values *Node) *Node {
			return DotGeneral(weights, []int{3}, []int{0, 1}, values, []int{2}, []int{0, 1})
		},
		func(v *Node) *Node { return sumOverQueries(weights, v) })
}

// withRightGradient returns a product whose gradient by its right operand is gradient of that by the product. The
// library takes the gradient of the product, which is captured here, before that of its operands. Without gradients it
// is the product alone, which spares a copy of the right operand.
func (d *decoder) withRightGradient(right *Node, multiply, gradient func(*Node) *Node) *Node {
	if d.products == nil {
		return multiply(right)
	}
	var captured *Node
	right = IdentityWithCustomGradient(right, func(_, _ *Node) *Node { return gradient(captured) })
	return IdentityWithCustomGradient(multiply(right), func(_, v *Node) *Node {
		captured = v
		return v
	})
}

// sumOverQueries returns the sums over queries [B, N, K, D] of the products of x [B, N, S, K] and y [B, N, S, D].
func sumOverQueries(x, y *Node) *Node {
	swap := func(x *Node) *Node { return TransposeAllDims(x, 0, 1, 3, 2) }
	batch, s, k, d := []int{0, 1}, x.Shape().Dim(2), x.Shape().Dim(3), y.Shape().Dim(3)
	if s*k <= (s+k)*d {
		return DotGeneral(swap(x), []int{3}, batch, y, []int{2}, batch)
	}
	return swap(DotGeneral(swap(y), []int{3}, batch, x, []int{2}, batch))
}

// sumOverRows returns the sums over rows [A, B] of the products of x [rows, A] and y [rows, B], a weight's gradient.
// One operand that several weights read is transposed once.
func sumOverRows(x, y *Node) *Node {
	if x.Shape().Dim(1) < y.Shape().Dim(1) {
		return DotGeneral(Transpose(x, 0, 1), []int{1}, nil, y, []int{0}, nil)
	}
	return Transpose(DotGeneral(Transpose(y, 0, 1), []int{1}, nil, x, []int{0}, nil), 0, 1)
}
