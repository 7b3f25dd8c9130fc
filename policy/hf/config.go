package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// The values of model_type this package knows.
const (
	Llama = "llama" // LlamaForCausalLM
	Qwen2 = "qwen2" // Qwen2ForCausalLM: as llama, with biases on the q, k and v projections
)

// visionModel is the model_type of a vision_config: the tower is of this project, no other program computes it.
const visionModel = "reprise_patches"

// NoToken stands for a special token that a model does not have.
const NoToken = -1

// Config is the part of config.json that decides what a decoder computes. The fields carry the
// names of transformers' LlamaConfig and Qwen2Config.
type Config struct {
	ModelType             string  // Llama or Qwen2
	VocabSize             int     // V
	HiddenSize            int     // D
	IntermediateSize      int     // F, the width inside the SwiGLU block
	NumHiddenLayers       int     // L
	NumAttentionHeads     int     // H
	NumKeyValueHeads      int     // K, divides H; 0: H
	HeadDim               int     // even; 0: D/H
	MaxPositionEmbeddings int     // longest sequence, in tokens; 0: 2048 (llama), 32768 (qwen2)
	RMSNormEps            float64 // 0: 1e-6
	RopeTheta             float64 // base of the rotary frequencies; 0: 10000
	TieWordEmbeddings     bool    // the head is the embedding
	AttentionBias         bool    // llama only: biases on q, k, v and o. qwen2 always has q, k, v and never o
	BOSTokenID            int     // NoToken if there is none
	EOSTokenIDs           []int   // any of them ends a text
	PadTokenID            int     // NoToken if there is none

	ValueHead bool   // a critic: a linear layer on the last hidden states, as in TRL's models with a value head
	Vision    Vision // how images enter; zero: they do not
}

// Vision is the tower of a model that sees: square RGB images are cut into patches, each patch is embedded with its place in
// the image, and a projector makes of it the embedding of one image token. The zero value is no tower.
type Vision struct {
	ImageSize    int // pixels of a side; a multiple of PatchSize
	PatchSize    int // pixels of a patch's side
	HiddenSize   int // width of the patch embedding
	ImageTokenID int // the token that stands for a patch in a sequence
}

// Tokens returns the image tokens of one image, 0 without a tower.
func (v Vision) Tokens() int {
	if v.ImageSize == 0 {
		return 0
	}
	return (v.ImageSize / v.PatchSize) * (v.ImageSize / v.PatchSize)
}

// PatchValues returns the numbers of one patch: its pixels, row by row, red, green and blue of each.
func (v Vision) PatchValues() int { return 3 * v.PatchSize * v.PatchSize }

// QKVBias reports whether the query, key and value projections have biases.
func (c Config) QKVBias() bool { return c.ModelType == Qwen2 || c.AttentionBias }

// OutputBias reports whether the attention's output projection has a bias.
func (c Config) OutputBias() bool { return c.ModelType == Llama && c.AttentionBias }

// Architecture returns the name of transformers' class for the model.
func (c Config) Architecture() string {
	if c.ModelType == Qwen2 {
		return "Qwen2ForCausalLM"
	}
	return "LlamaForCausalLM"
}

// WithDefaults returns c with its zero fields replaced by the defaults documented at them.
func (c Config) WithDefaults() Config {
	if c.NumKeyValueHeads == 0 {
		c.NumKeyValueHeads = c.NumAttentionHeads
	}
	if c.HeadDim == 0 && c.NumAttentionHeads > 0 && c.HiddenSize%c.NumAttentionHeads == 0 {
		c.HeadDim = c.HiddenSize / c.NumAttentionHeads
	}
	if c.MaxPositionEmbeddings == 0 {
		c.MaxPositionEmbeddings = 2048
		if c.ModelType == Qwen2 {
			c.MaxPositionEmbeddings = 32768
		}
	}
	if c.RMSNormEps == 0 {
		c.RMSNormEps = 1e-6
	}
	if c.RopeTheta == 0 {
		c.RopeTheta = 10000
	}
	return c
}

// Bounds of a configuration, so that no product of two dimensions overflows and no damaged file asks
// for absurd memory. The largest published models stay an order of magnitude below.
const (
	maxDim    = 1 << 24
	maxLayers = 1 << 12
)

// Validate reports every problem of c at once, each with its field, value and allowed range. Zero
// fields that have a default are taken at their default.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ModelType != Llama && c.ModelType != Qwen2 {
		bad("model_type is %q: want %q or %q", c.ModelType, Llama, Qwen2)
	}
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"vocab_size", c.VocabSize, maxDim}, {"hidden_size", c.HiddenSize, maxDim},
		{"intermediate_size", c.IntermediateSize, maxDim}, {"num_hidden_layers", c.NumHiddenLayers, maxLayers},
		{"num_attention_heads", c.NumAttentionHeads, maxDim}, {"num_key_value_heads", c.NumKeyValueHeads, maxDim},
		{"max_position_embeddings", c.MaxPositionEmbeddings, maxDim},
	} {
		if f.value < 1 || f.value > f.max {
			bad("%s is %d: want 1 to %d", f.name, f.value, f.max)
		}
	}
	if h, k := c.NumAttentionHeads, c.NumKeyValueHeads; h > 0 && k > 0 && h%k != 0 {
		bad("num_key_value_heads is %d: want a divisor of num_attention_heads, %d", k, h)
	}
	switch h := c.NumAttentionHeads; {
	case c.HeadDim == 0 && h > 0:
		bad("num_attention_heads is %d: want a divisor of hidden_size, %d, or set head_dim", h, c.HiddenSize)
	case h > 0 && (c.HeadDim < 2 || c.HeadDim%2 != 0 || c.HeadDim > maxDim/h):
		bad("head_dim is %d: want an even number from 2 to %d, as rotary embeddings turn pairs", c.HeadDim, maxDim/h)
	}
	if !(c.RMSNormEps > 0 && c.RMSNormEps < 1) {
		bad("rms_norm_eps is %g: want above 0 and below 1", c.RMSNormEps)
	}
	if !(c.RopeTheta > 1) || math.IsInf(c.RopeTheta, 0) {
		bad("rope_theta is %g: want a finite number above 1", c.RopeTheta)
	}
	if c.ModelType == Qwen2 && c.AttentionBias {
		bad("attention_bias is true: qwen2 has no such option (q, k and v always have biases, o never); leave it out")
	}
	return errors.Join(append(errs, c.checkIDs(), c.Vision.validate(c.VocabSize))...)
}

func (v Vision) validate(vocab int) error {
	if v == (Vision{}) {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("vision_config."+format, args...)) }
	if v.PatchSize < 1 || v.PatchSize > 256 {
		bad("patch_size is %d: want 1 to 256 pixels", v.PatchSize)
	} else if v.ImageSize < v.PatchSize || v.ImageSize > 4096 || v.ImageSize%v.PatchSize != 0 {
		bad("image_size is %d: want a multiple of patch_size, %d, up to 4096 pixels", v.ImageSize, v.PatchSize)
	}
	if v.HiddenSize < 1 || v.HiddenSize > maxDim {
		bad("hidden_size is %d: want 1 to %d", v.HiddenSize, maxDim)
	}
	if v.ImageTokenID < 0 || v.ImageTokenID >= vocab {
		errs = append(errs, fmt.Errorf("image_token_id is %d: want 0 to vocab_size-1, %d", v.ImageTokenID, vocab-1))
	}
	return errors.Join(errs...)
}

// checkIDs reports special tokens outside the vocabulary.
func (c Config) checkIDs() error {
	var errs []error
	check := func(name string, id int) {
		if id != NoToken && (id < 0 || id >= c.VocabSize) {
			errs = append(errs, fmt.Errorf("%s is %d: want null or 0 to vocab_size-1, %d", name, id, c.VocabSize-1))
		}
	}
	check("bos_token_id", c.BOSTokenID)
	check("pad_token_id", c.PadTokenID)
	for _, id := range c.EOSTokenIDs {
		if id == NoToken {
			id = -2 // "no token" is an empty list, not an entry of it
		}
		check("eos_token_id", id)
	}
	return errors.Join(errs...)
}

// ReadConfig reads config.json of a model folder.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read model configuration: %w", err)
	}
	c, err := ParseConfig(b)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// JSON returns c as the config.json that transformers' class for it expects.
func (c Config) JSON() []byte {
	c = c.WithDefaults()
	eos := any(c.EOSTokenIDs)
	switch len(c.EOSTokenIDs) {
	case 0:
		eos = nil
	case 1:
		eos = c.EOSTokenIDs[0]
	}
	m := map[string]any{
		"architectures":           []string{c.Architecture()},
		"attention_dropout":       0.0,
		"bos_token_id":            idOrNull(c.BOSTokenID),
		"eos_token_id":            eos,
		"head_dim":                c.HeadDim,
		"hidden_act":              "silu",
		"hidden_size":             c.HiddenSize,
		"initializer_range":       0.02,
		"intermediate_size":       c.IntermediateSize,
		"max_position_embeddings": c.MaxPositionEmbeddings,
		"model_type":              c.ModelType,
		"num_attention_heads":     c.NumAttentionHeads,
		"num_hidden_layers":       c.NumHiddenLayers,
		"num_key_value_heads":     c.NumKeyValueHeads,
		"pad_token_id":            idOrNull(c.PadTokenID),
		"rms_norm_eps":            c.RMSNormEps,
		"rope_scaling":            nil,
		"rope_theta":              c.RopeTheta,
		"tie_word_embeddings":     c.TieWordEmbeddings,
		"torch_dtype":             "float32",
		"use_cache":               true,
		"vocab_size":              c.VocabSize,
	}
	if c.ValueHead {
		m["value_head"] = true
	}
	if v := c.Vision; v != (Vision{}) {
		m["image_token_id"] = v.ImageTokenID
		m["vision_config"] = map[string]any{
			"model_type": visionModel, "num_channels": 3,
			"image_size": v.ImageSize, "patch_size": v.PatchSize, "hidden_size": v.HiddenSize,
		}
	}
	if c.ModelType == Qwen2 {
		m["use_sliding_window"] = false
	} else {
		m["attention_bias"] = c.AttentionBias
		m["mlp_bias"] = false
	}
	return marshal(m)
}

// marshal writes v as indented JSON with sorted keys and a final newline. v holds only maps, slices,
// strings and finite numbers, which always encode.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // tokens hold < and >
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("hf: %v", err))
	}
	return b.Bytes()
}

func idOrNull(id int) any {
	if id == NoToken {
		return nil
	}
	return id
}
