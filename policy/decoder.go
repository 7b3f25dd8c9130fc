package policy

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/policy/hf"
)

// decoder builds the graph of one forward pass over named parameters.
type decoder struct {
	hf.Config
	weight map[string]*Node
}

// newDecoder names the parameter nodes, given in the order of hf.Config.Specs.
func newDecoder(c hf.Config, nodes []*Node) *decoder {
	d := &decoder{Config: c.WithDefaults(), weight: make(map[string]*Node, len(nodes))}
	for i, p := range c.Specs() {
		d.weight[p.Name] = nodes[i]
	}
	return d
}

// span is where the S positions of a pass stand. The zero value is that of rows from their first token on, which attend
// within the pass.
type span struct {
	start     *Node   // scalar int32: slot of the first position; nil: 0
	positions *Node   // [B, S] int32: places of the tokens in their rows; nil: 0 to S-1
	bias      *Node   // [B, slots] float32: 0 where a slot holds a token of the row, those of the pass included, else masked; nil: all do
	cache     []*Node // 2 x Layers of [B, KVHeads, slots, HeadDim]; nil: attend within the pass
	images    images
}

// forward runs tokens [B, S] int32 and returns the last hidden states [B, S, Hidden], normed, and the cache with
// the pass's keys and values in place.
func (d *decoder) forward(tokens *Node, at span) (hidden *Node, cache []*Node) {
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
	cos, sin := d.rotary(positions)
	keys := length
	if at.cache != nil {
		keys = at.cache[0].Shape().Dim(2)
	}
	bias := attentionBias(slots, at.bias, keys)
	for l := range d.NumHiddenLayers {
		block := decoderBlock{decoder: d, layer: l, cos: cos, sin: sin, bias: bias, start: at.start}
		if at.cache != nil {
			block.keys, block.values = at.cache[2*l], at.cache[2*l+1]
		}
		x = block.forward(x)
		cache = append(cache, block.keys, block.values)
	}
	return d.norm(x, "model.norm.weight"), cache
}

// logits projects hidden states [..., Hidden] to the vocabulary.
func (d *decoder) logits(hidden *Node) *Node {
	head := d.weight["lm_head.weight"]
	if d.TieWordEmbeddings {
		head = d.weight["model.embed_tokens.weight"]
	}
	return linear(hidden, head, nil)
}

// linear multiplies x [..., in] by a weight [out, in] and adds a bias [out] if there is one. The product is one of matrices, which
// the backend transposes fast for the weight's gradient.
func linear(x, weight, bias *Node) *Node {
	dims := slices.Clone(x.Shape().Dimensions)
	last := len(dims) - 1
	y := DotGeneral(Reshape(x, -1, dims[last]), []int{1}, nil, weight, []int{1}, nil)
	dims[last] = weight.Shape().Dim(0)
	y = Reshape(y, dims...)
	if bias != nil {
		y = Add(y, ExpandLeftToRank(bias, y.Rank()))
	}
	return y
}

// norm is RMSNorm over the last axis.
func (d *decoder) norm(x *Node, name string) *Node {
	meanSquare := DivScalar(ReduceAndKeep(Square(x), ReduceSum, -1), float64(x.Shape().Dim(-1)))
	return Mul(Div(x, Sqrt(AddScalar(meanSquare, d.RMSNormEps))), ExpandLeftToRank(d.weight[name], x.Rank()))
}

// rotary returns the cosines and sines [1 or B, 1, S, HeadDim] of positions [1 or B, S], each half of the head
// alike, as Hugging Face lays rotary embeddings out.
func (d *decoder) rotary(positions *Node) (cos, sin *Node) {
	half := d.HeadDim / 2
	inverse := make([]float32, 2*half)
	for i := range half {
		f := float32(math.Pow(d.RopeTheta, -float64(2*i)/float64(d.HeadDim)))
		inverse[i], inverse[half+i] = f, f
	}
	angle := Mul(ExpandAxes(ConvertDType(positions, dtypes.Float32), 1, -1),
		ExpandLeftToRank(Const(positions.Graph(), inverse), 4))
	return Cos(angle), Sin(angle)
}

// masked is the attention score of a forbidden key: far below any real one, yet finite, so that a row of
// padding, which may attend to nothing, stays free of NaN.
const masked = -1e9

// attentionBias returns 0 where a query may see a key and masked elsewhere: [1 or B, 1, S, keys]. A query in
// slot s sees the slots up to s that hold tokens of its row (held [B, keys], see span.bias). The slot of a single query is the
// last that is held.
func attentionBias(slots, held *Node, keys int) *Node {
	g, length := slots.Graph(), slots.Shape().Dim(1)
	if held != nil && length == 1 {
		return Reshape(held, held.Shape().Dim(0), 1, 1, keys)
	}
	key := Iota(g, shapes.Make(dtypes.Int32, 1, 1, length, keys), 3)
	query := Reshape(slots, 1, 1, length, 1)
	allowed := LessOrEqual(key, BroadcastToDims(query, 1, 1, length, keys))
	if held == nil {
		return Where(allowed, ScalarZero(g, dtypes.Float32), Scalar(g, dtypes.Float32, masked))
	}
	dims := []int{held.Shape().Dim(0), 1, length, keys}
	open := BroadcastToDims(Reshape(held, dims[0], 1, 1, keys), dims...)
	return Where(BroadcastToDims(allowed, dims...), open, MulScalar(OnesLike(open), masked))
}
