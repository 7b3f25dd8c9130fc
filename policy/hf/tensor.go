package hf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Tensor is one named array of weights, row-major. Linear weights are [out, in], as in the file.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32 // as many as the product of Shape
}

// Spec is the name and shape of a tensor that a model has.
type Spec struct {
	Name  string
	Shape []int
}

// The two names under which a tied model may keep its one matrix [V, D].
const (
	embedName = "model.embed_tokens.weight"
	headName  = "lm_head.weight"
)

// Specs returns the tensors of the model, in the order in which they are computed. A tied model has
// no lm_head.weight.
func (c Config) Specs() []Spec {
	c = c.WithDefaults()
	d, f := c.HiddenSize, c.IntermediateSize
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	var specs []Spec
	add := func(name string, shape ...int) { specs = append(specs, Spec{name, shape}) }
	add(embedName, c.VocabSize, d)
	for l := range c.NumHiddenLayers {
		p := fmt.Sprintf("model.layers.%d.", l)
		linear := func(name string, bias bool, out, in int) {
			add(p+name+".weight", out, in)
			if bias {
				add(p+name+".bias", out)
			}
		}
		add(p+"input_layernorm.weight", d)
		linear("self_attn.q_proj", c.QKVBias(), q, d)
		linear("self_attn.k_proj", c.QKVBias(), kv, d)
		linear("self_attn.v_proj", c.QKVBias(), kv, d)
		linear("self_attn.o_proj", c.OutputBias(), d, q)
		add(p+"post_attention_layernorm.weight", d)
		linear("mlp.gate_proj", false, f, d)
		linear("mlp.up_proj", false, f, d)
		linear("mlp.down_proj", false, d, f)
	}
	add("model.norm.weight", d)
	if !c.TieWordEmbeddings {
		add(headName, c.VocabSize, d)
	}
	if c.ValueHead {
		add("v_head.summary.weight", 1, d)
		add("v_head.summary.bias", 1)
	}
	if v := c.Vision; v != (Vision{}) {
		add("vision_tower.patch_embedding.weight", v.HiddenSize, v.PatchValues())
		add("vision_tower.patch_embedding.bias", v.HiddenSize)
		add("vision_tower.position_embedding.weight", v.Tokens(), v.HiddenSize)
		add("multi_modal_projector.linear_1.weight", d, v.HiddenSize)
		add("multi_modal_projector.linear_1.bias", d)
		add("multi_modal_projector.linear_2.weight", d, d)
		add("multi_modal_projector.linear_2.bias", d)
	}
	return specs
}

// Parameters returns the number of weights of the model; a tied matrix counts once.
func (c Config) Parameters() int {
	n := 0
	for _, s := range c.Specs() {
		n += elements(s.Shape)
	}
	return n
}

// elements returns the product of shape, whose dimensions are known to be sane.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// buffer reports whether a tensor is a well-known buffer that a model computes by itself: older
// checkpoints store the rotary frequencies of every layer.
func buffer(name string) bool { return strings.HasSuffix(name, "rotary_emb.inv_freq") }

// checkShapes holds the tensors found, name -> shape, to what c asks for. It reports every tensor
// missing, left over or of the wrong shape.
func checkShapes(c Config, found map[string][]int) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	want := make(map[string]bool)
	for _, s := range c.Specs() {
		want[s.Name] = true
		switch shape, ok := found[s.Name]; {
		case !ok && s.Name == headName:
			bad("tensor %q is missing: want shape %v, or tie_word_embeddings true if the head is the embedding", s.Name, s.Shape)
		case !ok:
			bad("tensor %q is missing: want shape %v", s.Name, s.Shape)
		case !slices.Equal(shape, s.Shape):
			bad("tensor %q has shape %v: config.json asks for %v", s.Name, shape, s.Shape)
		}
	}
	for _, name := range sortedNames(found) {
		if !want[name] {
			bad("tensor %q of shape %v is left over: a %s with this config.json has no such tensor", name, found[name], c.Architecture())
		}
	}
	return errors.Join(errs...)
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// dtypeSize gives the bytes of an element of each dtype of the format; 0 for an unknown one.
func dtypeSize(dtype string) uint64 {
	switch dtype {
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0":
		return 1
	case "I16", "U16", "F16", "BF16":
		return 2
	case "I32", "U32", "F32":
		return 4
	case "I64", "U64", "F64", "C64":
		return 8
	}
	return 0
}

// decode widens little-endian elements of the given dtype to dst; src holds as many as dst.
func decode(dst []float32, src []byte, dtype string) {
	switch dtype {
	case "F32":
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case "F16":
		for i := range dst {
			dst[i] = fromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case "BF16":
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	default:
		panic("hf: decode of " + dtype)
	}
}

// fromF16 widens an IEEE 754 half exactly, subnormals, infinities and NaN payloads included.
func fromF16(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp == 0: // zero or subnormal: frac * 2^-24, exact in float32
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(v))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}
