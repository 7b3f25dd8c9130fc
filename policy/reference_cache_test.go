package policy

import "fmt"

// referenceCache decodes token by token in plain float64 loops. Every token may be passed through weights of its own;
// keys and values stay as the weights of their time made them.
type referenceCache struct {
	keys, values [][][]float64 // [layer][position]
}

// next appends a token under weights r and returns the logits that follow it.
func (c *referenceCache) next(r *reference, token int32) []float64 {
	return r.head(c.pass(r, r.embed(token)))
}

// pass appends an embedding, which it overwrites, under weights r and returns the normed last state.
func (c *referenceCache) pass(r *reference, x []float64) []float64 {
	if c.keys == nil {
		c.keys, c.values = make([][][]float64, r.NumHiddenLayers), make([][][]float64, r.NumHiddenLayers)
	}
	position := len(c.keys[0])
	for l := range r.NumHiddenLayers {
		c.layer(r, l, x, position)
	}
	return r.norm(x, "model.norm.weight")
}

// layer adds what block l makes of the position's state x to it.
func (c *referenceCache) layer(r *reference, l int, x []float64, position int) {
	at := fmt.Sprintf("model.layers.%d.", l)
	n := r.norm(x, at+"input_layernorm.weight")
	c.keys[l] = append(c.keys[l], r.rotate(r.linear(n, at+"self_attn.k_proj"), position))
	c.values[l] = append(c.values[l], r.linear(n, at+"self_attn.v_proj"))
	q := r.rotate(r.linear(n, at+"self_attn.q_proj"), position)
	mixed := make([]float64, len(q))
	for h := range r.NumAttentionHeads {
		r.attend(mixed[h*r.HeadDim:(h+1)*r.HeadDim], q[h*r.HeadDim:], c.keys[l], c.values[l], h/(r.NumAttentionHeads/r.NumKeyValueHeads))
	}
	for d, v := range r.linear(mixed, at+"self_attn.o_proj") {
		x[d] += v
	}
	n = r.norm(x, at+"post_attention_layernorm.weight")
	gate, up := r.linear(n, at+"mlp.gate_proj"), r.linear(n, at+"mlp.up_proj")
	for i, g := range gate {
		up[i] *= silu(g)
	}
	for d, v := range r.linear(up, at+"mlp.down_proj") {
		x[d] += v
	}
}
