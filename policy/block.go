package policy

import (
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// decoderBlock is one layer of the decoder in one pass.
type decoderBlock struct {
	*decoder
	layer        int
	cos, sin     *Node // [1 or B, 1, S, HeadDim]
	bias         *Node // [1 or B, 1, S, keys]
	start        *Node // scalar int32: slot of the first position
	keys, values *Node // [B, KVHeads, slots, HeadDim]: the cache before the pass, then after it; nil: none
}

func (b *decoderBlock) name(part string) string {
	return fmt.Sprintf("model.layers.%d.%s", b.layer, part)
}

func (b *decoderBlock) project(x *Node, part string) *Node {
	return linear(x, b.weight[b.name(part+".weight")], b.weight[b.name(part+".bias")])
}

// forward runs hidden states [B, S, Hidden] through the block.
func (b *decoderBlock) forward(x *Node) *Node {
	x = Add(x, b.attention(b.norm(x, b.name("input_layernorm.weight"))))
	h := b.norm(x, b.name("post_attention_layernorm.weight"))
	gate := b.project(h, "mlp.gate_proj")
	h = Mul(Mul(gate, Sigmoid(gate)), b.project(h, "mlp.up_proj"))
	return Add(x, b.project(h, "mlp.down_proj"))
}

// attention is grouped-query attention over x [B, S, Hidden].
func (b *decoderBlock) attention(x *Node) *Node {
	batch, length := x.Shape().Dim(0), x.Shape().Dim(1)
	shared := b.NumAttentionHeads / b.NumKeyValueHeads // query heads to a key head
	q := b.rotate(b.heads(b.project(x, "self_attn.q_proj"), b.NumAttentionHeads))
	k := b.rotate(b.heads(b.project(x, "self_attn.k_proj"), b.NumKeyValueHeads))
	v := b.heads(b.project(x, "self_attn.v_proj"), b.NumKeyValueHeads)
	if b.keys != nil {
		k, v = b.put(b.keys, k), b.put(b.values, v)
	}
	b.keys, b.values = k, v
	keys := k.Shape().Dim(2)

	q = Reshape(MulScalar(q, 1/math.Sqrt(float64(b.HeadDim))), batch, b.NumKeyValueHeads, shared*length, b.HeadDim)
	score := compare(q, k) // [B, KV, shared*S, keys]
	score = Reshape(score, batch, b.NumAttentionHeads, length, keys)
	weight := softmax(Add(score, BroadcastToDims(b.bias, batch, b.NumAttentionHeads, length, keys)))
	weight = Reshape(weight, batch, b.NumKeyValueHeads, shared*length, keys)
	y := mix(weight, v) // [B, KV, shared*S, HeadDim]
	y = TransposeAllDims(Reshape(y, batch, b.NumAttentionHeads, length, b.HeadDim), 0, 2, 1, 3)
	return b.project(Reshape(y, batch, length, b.NumAttentionHeads*b.HeadDim), "self_attn.o_proj")
}

// heads splits [B, S, n x HeadDim] into [B, n, S, HeadDim].
func (b *decoderBlock) heads(x *Node, n int) *Node {
	return TransposeAllDims(Reshape(x, x.Shape().Dim(0), x.Shape().Dim(1), n, b.HeadDim), 0, 2, 1, 3)
}

// rotate applies the rotary embedding to [B, n, S, HeadDim].
func (b *decoderBlock) rotate(x *Node) *Node {
	half := b.HeadDim / 2
	low := SliceAxis(x, -1, AxisRange(0, half))
	high := SliceAxis(x, -1, AxisRange(half, b.HeadDim))
	turned := Concatenate([]*Node{Neg(high), low}, -1)
	wide := func(n *Node) *Node { return BroadcastToDims(n, x.Shape().Dimensions...) }
	return Add(Mul(x, wide(b.cos)), Mul(turned, wide(b.sin)))
}

// put writes the pass's keys or values [B, n, S, HeadDim] into the cache at its start slot.
func (b *decoderBlock) put(cache, x *Node) *Node {
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
