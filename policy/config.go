package policy

import (
	"errors"
	"fmt"
)

// Config is the shape of a Llama-family decoder: pre-norm blocks of grouped-query attention with
// rotary embeddings and a SwiGLU feed-forward, RMSNorm throughout.
type Config struct {
	Vocab        int     // tokens, padding included
	Hidden       int     // width of the residual stream
	Intermediate int     // width of the feed-forward
	Layers       int     // decoder blocks
	Heads        int     // query heads
	KVHeads      int     // key and value heads; divides Heads
	HeadDim      int     // width of a head, even; 0: Hidden/Heads
	Positions    int     // longest sequence, prompt included
	RopeTheta    float64 // base of the rotary embedding; 0: 10,000
	NormEps      float64 // added to the mean square in RMSNorm; 0: 1e-6
	Tied         bool    // the output head is the token embedding
	QKVBias      bool    // biases on the q, k and v projections (Qwen2)
	OutBias      bool    // bias on the attention's output projection (Llama with attention_bias)
}

// withDefaults fills the fields whose zero means a documented default.
func (c Config) withDefaults() Config {
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if c.RopeTheta == 0 {
		c.RopeTheta = 10_000
	}
	if c.NormEps == 0 {
		c.NormEps = 1e-6
	}
	return c
}

// Validate reports every field that is out of range.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	positive := func(name string, v int) {
		if v < 1 {
			errs = append(errs, fmt.Errorf("policy.%s: %d is out of range: give 1 or more", name, v))
		}
	}
	positive("vocab", c.Vocab)
	positive("hidden", c.Hidden)
	positive("intermediate", c.Intermediate)
	positive("layers", c.Layers)
	positive("heads", c.Heads)
	positive("kv_heads", c.KVHeads)
	positive("positions", c.Positions)
	if c.HeadDim < 2 || c.HeadDim%2 != 0 {
		errs = append(errs, fmt.Errorf("policy.head_dim: %d is out of range: rotary embeddings need an even width of 2 or more", c.HeadDim))
	}
	if c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		errs = append(errs, fmt.Errorf("policy.kv_heads: %d does not divide the %d heads: give a divisor", c.KVHeads, c.Heads))
	}
	if c.RopeTheta < 1 {
		errs = append(errs, fmt.Errorf("policy.rope_theta: %g is out of range: give 1 or more", c.RopeTheta))
	}
	if c.NormEps < 0 {
		errs = append(errs, fmt.Errorf("policy.norm_eps: %g is negative: give 0 (default) or more", c.NormEps))
	}
	return errors.Join(errs...)
}

// Param names one weight tensor and its shape, as Hugging Face stores it: projections are [out, in].
type Param struct {
	Name  string
	Shape []int
}

func (p Param) size() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// Parameters lists the weights of the decoder in the order in which [Weights] holds them.
func (c Config) Parameters() []Param {
	c = c.withDefaults()
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	list := []Param{{"model.embed_tokens.weight", []int{c.Vocab, c.Hidden}}}
	add := func(name string, shape ...int) { list = append(list, Param{name, shape}) }
	for l := range c.Layers {
		at := fmt.Sprintf("model.layers.%d.", l)
		add(at+"input_layernorm.weight", c.Hidden)
		add(at+"self_attn.q_proj.weight", q, c.Hidden)
		add(at+"self_attn.k_proj.weight", kv, c.Hidden)
		add(at+"self_attn.v_proj.weight", kv, c.Hidden)
		if c.QKVBias {
			add(at+"self_attn.q_proj.bias", q)
			add(at+"self_attn.k_proj.bias", kv)
			add(at+"self_attn.v_proj.bias", kv)
		}
		add(at+"self_attn.o_proj.weight", c.Hidden, q)
		if c.OutBias {
			add(at+"self_attn.o_proj.bias", c.Hidden)
		}
		add(at+"post_attention_layernorm.weight", c.Hidden)
		add(at+"mlp.gate_proj.weight", c.Intermediate, c.Hidden)
		add(at+"mlp.up_proj.weight", c.Intermediate, c.Hidden)
		add(at+"mlp.down_proj.weight", c.Hidden, c.Intermediate)
	}
	add("model.norm.weight", c.Hidden)
	if !c.Tied {
		add("lm_head.weight", c.Vocab, c.Hidden)
	}
	return list
}

// Size returns the number of trainable parameters.
func (c Config) Size() int {
	n := 0
	for _, p := range c.Parameters() {
		n += p.size()
	}
	return n
}
