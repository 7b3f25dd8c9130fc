// Package hf reads and writes model folders in Hugging Face's layout: config.json, model.safetensors (or its shards and
// their index) and the tokenizer's files. It knows the decoders that transformers calls LlamaForCausalLM,
// Qwen2ForCausalLM and Qwen3ForCausalLM; package policy computes them.
//
//   - [Config] is config.json. Options that would be computed wrongly (rotary embeddings scaled in other ways than
//     Llama 3's, sliding windows, other activations) are refused, not ignored.
//   - [Config.Specs] lists the tensors of such a model. [ReadFolder] and [WriteFolder] report every tensor that is
//     missing, unexpected or of the wrong shape in one error.
//   - [Config.ValueHead] and [Config.Vision] are Reprise's additions to a decoder: a critic, and a tower for images.
//     config.json has them as value_head, vision_config and image_token_id; the weights are v_head.summary,
//     vision_tower and multi_modal_projector. Without them a folder is exactly what transformers writes.
//   - [Tensor] holds float32 in the file's layout: linear weights are [out, in]. F16 and BF16 are widened exactly.
//     Weights are written as F32 and load again bit for bit.
//   - [Tokenizer] turns text into ids and back like Hugging Face's tokenizers library; [NewCharTokenizer] makes one
//     from the characters of a task.
//   - [Dialogue] turns prompts, turns and observations into ids and back, with the model's chat template or without;
//     [TaskDialogue] also puts a task's examples before its prompts.
//
// The tokenizer and the safetensors reader are our own instead of go-huggingface's. With a Llama tokenizer, its ids
// differ from the library's for 214 of 220 varied strings: it does not apply Prepend, splits text without a
// pre-tokenizer at white space and drops it, does not merge across spaces, and has neither byte fallback nor look-ahead
// patterns. Its safetensors reader maps files into memory, where a truncated file is a SIGBUS, and does not compare
// offsets with shapes.
//
// Every file is replaced atomically. Nothing here touches the network.
package hf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/reprise-rl/reprise/rollout/option"
)

// The supported values of model_type.
const (
	Llama = "llama"
	Qwen2 = "qwen2" // as llama, with biases on the q, k and v projections
	Qwen3 = "qwen3" // as llama, with an RMSNorm on each head of q and k before the rotary embedding
)

// classes are transformers' classes for them.
var classes = []struct{ modelType, name string }{
	{Llama, "LlamaForCausalLM"}, {Qwen2, "Qwen2ForCausalLM"}, {Qwen3, "Qwen3ForCausalLM"},
}

// class returns the class for a model_type.
func class(modelType string) (string, error) {
	var supported []string
	for _, c := range classes {
		if c.modelType == modelType {
			return c.name, nil
		}
		supported = append(supported, c.modelType)
	}
	return "", &option.Error{Key: "model_type", Value: modelType, Want: "one of " + strings.Join(supported, ", ") +
		"; other architectures are not supported"}
}

// The supported values of rope_type.
const (
	ropeDefault = "default"
	ropeLlama3  = "llama3"
)

// visionModel is the model_type of a vision_config. Only this project computes this tower.
const visionModel = "reprise_patches"

// NoToken stands for a special token that a model does not have.
const NoToken = -1

// Config is the part of config.json that determines what a decoder computes. Its fields have the names of transformers'
// LlamaConfig, Qwen2Config and Qwen3Config.
type Config struct {
	ModelType             string  // Llama or another of the above
	VocabSize             int     // V
	HiddenSize            int     // D
	IntermediateSize      int     // F, the width inside the SwiGLU block
	NumHiddenLayers       int     // L
	NumAttentionHeads     int     // H
	NumKeyValueHeads      int     // K, divides H; 0: H
	HeadDim               int     // even; 0: D/H (llama, qwen2), 128 (qwen3)
	MaxPositionEmbeddings int     // longest sequence, in tokens; 0: 2048 (llama), 32768 (qwen2, qwen3)
	RMSNormEps            float64 // 0: 1e-6
	RopeTheta             float64 // base of the rotary frequencies; 0: 10000
	TieWordEmbeddings     bool    // the head is the embedding
	AttentionBias         bool    // llama, qwen3: biases on q, k, v and o. qwen2 always has q, k, v and never o
	BOSTokenID            int     // NoToken if there is none
	EOSTokenIDs           []int   // any of them ends a text
	PadTokenID            int     // NoToken if there is none

	RopeScaling RopeScaling // Llama 3's, which lets a model read further than it was pretrained; zero: none

	ValueHead bool   // a critic: a linear layer on the last hidden states, as in TRL's models with a value head
	Vision    Vision // the tower for images; zero: none
}

// RopeScaling is Llama 3's scaling of the rotary frequencies (rope_type "llama3"). Waves longer than N/LowFreqFactor
// positions become Factor times as long, waves shorter than N/HighFreqFactor stay, and between them the frequency is
// interpolated, where N is OriginalMaxPositionEmbeddings. The zero value is no scaling.
type RopeScaling struct {
	Factor                        float64 // 1 or more
	LowFreqFactor                 float64 // above 0
	HighFreqFactor                float64 // above LowFreqFactor
	OriginalMaxPositionEmbeddings int     // N, the longest sequence of the pretraining
}

// validate reports every problem of the scaling at once. key is its name in config.json.
func (s RopeScaling) validate(key string) error {
	if s == (RopeScaling{}) {
		return nil
	}
	var p option.Problems
	finite := func(x float64) bool { return !math.IsInf(x, 0) }
	p.Check(s.Factor >= 1 && finite(s.Factor), key+".factor", s.Factor, "a finite number of 1 or more")
	p.Check(s.LowFreqFactor > 0 && finite(s.LowFreqFactor), key+".low_freq_factor", s.LowFreqFactor,
		"a finite number above 0")
	p.Check(s.HighFreqFactor > s.LowFreqFactor && finite(s.HighFreqFactor), key+".high_freq_factor", s.HighFreqFactor,
		"a finite number above low_freq_factor, %g", s.LowFreqFactor)
	n := s.OriginalMaxPositionEmbeddings
	p.Check(n >= 1 && n <= maxDim, key+".original_max_position_embeddings", n, "1 to %d positions", maxDim)
	return p.Err()
}

// Vision is the tower of a model that reads images. A square RGB image is cut into patches. Each patch is embedded with
// its position in the image, and a projector turns that into the embedding of one image token. The zero value is no
// tower.
type Vision struct {
	ImageSize    int // pixels of a side; a multiple of PatchSize
	PatchSize    int // pixels of a patch's side
	HiddenSize   int // width of the patch embedding
	ImageTokenID int // the token that stands for a patch in a sequence
}

// Tokens returns the number of image tokens of one image, 0 without a tower.
func (v Vision) Tokens() int {
	if v.ImageSize == 0 {
		return 0
	}
	return (v.ImageSize / v.PatchSize) * (v.ImageSize / v.PatchSize)
}

// PatchValues returns the number of values of one patch: red, green and blue of each pixel, row by row.
func (v Vision) PatchValues() int { return 3 * v.PatchSize * v.PatchSize }

// WithDefaults returns c with its zero fields replaced by their defaults.
func (c Config) WithDefaults() Config {
	if c.NumKeyValueHeads == 0 {
		c.NumKeyValueHeads = c.NumAttentionHeads
	}
	if c.HeadDim == 0 && c.ModelType == Qwen3 {
		c.HeadDim = 128
	}
	if c.HeadDim == 0 && c.NumAttentionHeads > 0 && c.HiddenSize%c.NumAttentionHeads == 0 {
		c.HeadDim = c.HiddenSize / c.NumAttentionHeads
	}
	if c.MaxPositionEmbeddings == 0 {
		c.MaxPositionEmbeddings = 32768
		if c.ModelType == Llama {
			c.MaxPositionEmbeddings = 2048
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

// Limits of a configuration. No product of two dimensions overflows, and no damaged file asks for absurd memory. The
// largest published models are an order of magnitude below.
const (
	maxDim    = 1 << 24
	maxLayers = 1 << 12
)

// Validate reports every problem of c at once, as [option.Error]s. Zero fields that have a default are valid.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var p option.Problems
	_, err := class(c.ModelType)
	p.Add(err)
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"vocab_size", c.VocabSize, maxDim}, {"hidden_size", c.HiddenSize, maxDim},
		{"intermediate_size", c.IntermediateSize, maxDim}, {"num_hidden_layers", c.NumHiddenLayers, maxLayers},
		{"num_attention_heads", c.NumAttentionHeads, maxDim}, {"num_key_value_heads", c.NumKeyValueHeads, maxDim},
		{"max_position_embeddings", c.MaxPositionEmbeddings, maxDim},
	} {
		p.Check(f.value >= 1 && f.value <= f.max, f.name, f.value, "1 to %d", f.max)
	}
	if h, k := c.NumAttentionHeads, c.NumKeyValueHeads; h > 0 {
		p.Check(k <= 0 || h%k == 0, "num_key_value_heads", k, "a divisor of num_attention_heads, %d", h)
		if c.HeadDim == 0 {
			p.Check(false, "num_attention_heads", h, "a divisor of hidden_size, %d, or set head_dim", c.HiddenSize)
		} else {
			p.Check(c.HeadDim >= 2 && c.HeadDim%2 == 0 && c.HeadDim <= maxDim/h, "head_dim", c.HeadDim,
				"an even number from 2 to %d; rotary embeddings rotate pairs", maxDim/h)
		}
	}
	p.Check(c.RMSNormEps > 0 && c.RMSNormEps < 1, "rms_norm_eps", c.RMSNormEps, "above 0 and below 1")
	p.Check(c.RopeTheta > 1 && !math.IsInf(c.RopeTheta, 0), "rope_theta", c.RopeTheta, "a finite number above 1")
	p.Add(c.RopeScaling.validate("rope_scaling"))
	p.Check(c.ModelType != Qwen2 || !c.AttentionBias, "attention_bias", c.AttentionBias,
		"it left out: qwen2 has no such option; q, k and v always have biases, o never")
	checkID := func(name string, id int) {
		p.Check(id >= 0 && id < c.VocabSize, name, id, "null or 0 to vocab_size-1, %d", c.VocabSize-1)
	}
	if c.BOSTokenID != NoToken {
		checkID("bos_token_id", c.BOSTokenID)
	}
	if c.PadTokenID != NoToken {
		checkID("pad_token_id", c.PadTokenID)
	}
	for _, id := range c.EOSTokenIDs { // for no token the list is empty
		checkID("eos_token_id", id)
	}
	if v := c.Vision; v != (Vision{}) {
		p.Check(v.PatchSize >= 1 && v.PatchSize <= 256, "vision_config.patch_size", v.PatchSize, "1 to 256 pixels")
		if v.PatchSize >= 1 {
			p.Check(v.ImageSize >= v.PatchSize && v.ImageSize <= 4096 && v.ImageSize%v.PatchSize == 0,
				"vision_config.image_size", v.ImageSize, "a multiple of patch_size, %d, up to 4096 pixels", v.PatchSize)
		}
		p.Check(v.HiddenSize >= 1 && v.HiddenSize <= maxDim, "vision_config.hidden_size", v.HiddenSize, "1 to %d",
			maxDim)
		p.Check(v.ImageTokenID >= 0 && v.ImageTokenID < c.VocabSize, "image_token_id",
			v.ImageTokenID, "0 to vocab_size-1, %d", c.VocabSize-1)
	}
	return p.Err()
}

// Spec is the name and shape of a tensor that a model has.
type Spec struct {
	Name  string
	Shape []int
}

// The two names under which a tied model may store its one matrix [V, D].
const (
	embedName = "model.embed_tokens.weight"
	headName  = "lm_head.weight"
)

// Specs returns the tensors of the model, in the order in which they are computed. A tied model has no lm_head.weight.
func (c Config) Specs() []Spec {
	c = c.WithDefaults()
	d, f := c.HiddenSize, c.IntermediateSize
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	qkvBias, outputBias := c.ModelType == Qwen2 || c.AttentionBias, c.ModelType != Qwen2 && c.AttentionBias
	var specs []Spec
	add := func(name string, shape ...int) { specs = append(specs, Spec{name, shape}) }
	linear := func(name string, bias bool, out, in int) {
		add(name+".weight", out, in)
		if bias {
			add(name+".bias", out)
		}
	}
	add(embedName, c.VocabSize, d)
	for l := range c.NumHiddenLayers {
		layer := fmt.Sprintf("model.layers.%d.", l)
		add(layer+"input_layernorm.weight", d)
		linear(layer+"self_attn.q_proj", qkvBias, q, d)
		linear(layer+"self_attn.k_proj", qkvBias, kv, d)
		linear(layer+"self_attn.v_proj", qkvBias, kv, d)
		if c.ModelType == Qwen3 {
			add(layer+"self_attn.q_norm.weight", c.HeadDim)
			add(layer+"self_attn.k_norm.weight", c.HeadDim)
		}
		linear(layer+"self_attn.o_proj", outputBias, d, q)
		add(layer+"post_attention_layernorm.weight", d)
		linear(layer+"mlp.gate_proj", false, f, d)
		linear(layer+"mlp.up_proj", false, f, d)
		linear(layer+"mlp.down_proj", false, d, f)
	}
	add("model.norm.weight", d)
	if !c.TieWordEmbeddings {
		add(headName, c.VocabSize, d)
	}
	if c.ValueHead {
		linear("v_head.summary", true, 1, d)
	}
	if v := c.Vision; v != (Vision{}) {
		linear("vision_tower.patch_embedding", true, v.HiddenSize, v.PatchValues())
		add("vision_tower.position_embedding.weight", v.Tokens(), v.HiddenSize)
		linear("multi_modal_projector.linear_1", true, d, v.HiddenSize)
		linear("multi_modal_projector.linear_2", true, d, d)
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

// encode returns c, which is valid, as the config.json that transformers' class for it expects.
func (c Config) encode() []byte {
	c = c.WithDefaults()
	eos := any(c.EOSTokenIDs)
	switch len(c.EOSTokenIDs) {
	case 0:
		eos = nil
	case 1:
		eos = c.EOSTokenIDs[0]
	}
	idOrNull := func(id int) any {
		if id == NoToken {
			return nil
		}
		return id
	}
	name, _ := class(c.ModelType)
	m := map[string]any{
		"architectures":           []string{name},
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
	if s := c.RopeScaling; s != (RopeScaling{}) { // transformers 5 reads this older spelling too
		m["rope_scaling"] = map[string]any{
			"rope_type": ropeLlama3, "factor": s.Factor, "low_freq_factor": s.LowFreqFactor,
			"high_freq_factor":                 s.HighFreqFactor,
			"original_max_position_embeddings": s.OriginalMaxPositionEmbeddings,
		}
	}
	if c.ModelType != Qwen2 {
		m["attention_bias"] = c.AttentionBias
	}
	if c.ModelType == Llama {
		m["mlp_bias"] = false
	} else {
		m["use_sliding_window"] = false
	}
	return marshal(m)
}

// marshal writes v as indented JSON with sorted keys and a final newline. v holds only maps, slices, strings and finite
// numbers, which always encode.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // tokens contain < and >
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("hf: %v", err))
	}
	return b.Bytes()
}

// configJSON is config.json as it is in the file, where an absent field differs from a zero one.
type configJSON struct {
	ModelType             string          `json:"model_type"`
	Architectures         []string        `json:"architectures"`
	VocabSize             int             `json:"vocab_size"`
	HiddenSize            int             `json:"hidden_size"`
	IntermediateSize      int             `json:"intermediate_size"`
	NumHiddenLayers       int             `json:"num_hidden_layers"`
	NumAttentionHeads     int             `json:"num_attention_heads"`
	NumKeyValueHeads      *int            `json:"num_key_value_heads"`
	HeadDim               *int            `json:"head_dim"`
	MaxPositionEmbeddings *int            `json:"max_position_embeddings"`
	RMSNormEps            *float64        `json:"rms_norm_eps"`
	RopeTheta             *float64        `json:"rope_theta"`
	RopeScaling           json.RawMessage `json:"rope_scaling"`
	RopeParameters        json.RawMessage `json:"rope_parameters"` // transformers 5
	PartialRotaryFactor   *float64        `json:"partial_rotary_factor"`
	HiddenAct             *string         `json:"hidden_act"`
	TieWordEmbeddings     bool            `json:"tie_word_embeddings"` // absent: false for all types
	AttentionBias         bool            `json:"attention_bias"`
	MLPBias               bool            `json:"mlp_bias"`
	UseSlidingWindow      bool            `json:"use_sliding_window"`
	LayerTypes            []string        `json:"layer_types"`
	QuantizationConfig    json.RawMessage `json:"quantization_config"`
	BOSTokenID            json.RawMessage `json:"bos_token_id"`
	EOSTokenID            json.RawMessage `json:"eos_token_id"`
	PadTokenID            json.RawMessage `json:"pad_token_id"`
	ValueHead             bool            `json:"value_head"`
	ImageTokenID          *int            `json:"image_token_id"`
	Vision                *struct {
		ModelType   string `json:"model_type"`
		NumChannels int    `json:"num_channels"`
		ImageSize   int    `json:"image_size"`
		PatchSize   int    `json:"patch_size"`
		HiddenSize  int    `json:"hidden_size"`
	} `json:"vision_config"`
}

// parseConfig reads and validates config.json and reports every problem at once. It refuses unsupported options that
// change what the model computes. It ignores options that only matter to other programs (torch_dtype or dtype,
// use_cache, initializer_range, attention_dropout: no dropout is applied here).
func parseConfig(file []byte) (Config, error) {
	var j configJSON
	if err := json.Unmarshal(file, &j); err != nil {
		return Config{}, fmt.Errorf("parse configuration: %w", err)
	}
	name, err := class(j.ModelType)
	if err != nil {
		return Config{}, err
	}
	c := Config{
		ModelType:         j.ModelType,
		VocabSize:         j.VocabSize,
		HiddenSize:        j.HiddenSize,
		IntermediateSize:  j.IntermediateSize,
		NumHiddenLayers:   j.NumHiddenLayers,
		NumAttentionHeads: j.NumAttentionHeads,
		TieWordEmbeddings: j.TieWordEmbeddings,
		AttentionBias:     j.AttentionBias,
		ValueHead:         j.ValueHead,
	}
	var p option.Problems
	j.checkUnsupported(&p, name)
	p.Add(j.readTokens(&c))
	j.readRope(&p, &c)
	j.readVision(&p, &c)
	readOptional(&p, "num_key_value_heads", &c.NumKeyValueHeads, j.NumKeyValueHeads)
	readOptional(&p, "head_dim", &c.HeadDim, j.HeadDim)
	readOptional(&p, "max_position_embeddings", &c.MaxPositionEmbeddings, j.MaxPositionEmbeddings)
	readOptional(&p, "rms_norm_eps", &c.RMSNormEps, j.RMSNormEps)
	c = c.WithDefaults()
	p.Add(c.Validate())
	if err := p.Err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// readOptional takes an optional field. It refuses zero, which stands for the default in a Config.
func readOptional[T int | float64](p *option.Problems, key string, dst, value *T) {
	if value != nil {
		p.Check(*value != 0, key, *value, "a positive number, or leave it out for its default")
		*dst = *value
	}
}

// checkUnsupported reports the options that would make the model compute something this project does not.
func (j *configJSON) checkUnsupported(p *option.Problems, architecture string) {
	if len(j.Architectures) > 0 {
		p.Check(j.Architectures[0] == architecture, "architectures", j.Architectures, "[%s] for model_type %s",
			architecture, j.ModelType)
	}
	if j.HiddenAct != nil {
		p.Check(*j.HiddenAct == "silu", "hidden_act", *j.HiddenAct, "silu, the only activation supported")
	}
	p.Check(!j.MLPBias, "mlp_bias", j.MLPBias, "false; biases in the feed-forward block are not supported")
	p.Check(!j.UseSlidingWindow, "use_sliding_window", j.UseSlidingWindow,
		"false; every layer attends to the whole sequence")
	for i, t := range j.LayerTypes {
		p.Check(t == "full_attention", fmt.Sprintf("layer_types[%d]", i), t, "full_attention, the only type supported")
	}
	p.Check(!present(j.QuantizationConfig), "quantization_config",
		compact(j.QuantizationConfig), "none; load the unquantized checkpoint")
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// readVision takes the tower. Another program's tower is refused, because its weights mean something else.
func (j *configJSON) readVision(p *option.Problems, c *Config) {
	v := j.Vision
	switch {
	case v == nil:
	case v.ModelType != visionModel:
		p.Check(false, "vision_config.model_type", v.ModelType, "%s, the only tower supported", visionModel)
	case v.NumChannels != 3:
		p.Check(false, "vision_config.num_channels", v.NumChannels, "3: red, green and blue")
	case j.ImageTokenID == nil:
		p.Check(false, "image_token_id", "absent", "the id of the token that stands for a patch")
	default:
		c.Vision = Vision{ImageSize: v.ImageSize, PatchSize: v.PatchSize, HiddenSize: v.HiddenSize,
			ImageTokenID: *j.ImageTokenID}
		// All zero would mean no tower.
		p.Check(c.Vision != (Vision{}), "vision_config.image_size", 0,
			"a multiple of patch_size, or leave vision_config out")
	}
}

// ropeJSON is rope_parameters or, in older files, rope_scaling.
type ropeJSON struct {
	Type                string   `json:"type"` // the older name of rope_type
	RopeType            string   `json:"rope_type"`
	RopeTheta           *float64 `json:"rope_theta"`
	PartialRotaryFactor *float64 `json:"partial_rotary_factor"`
	Factor              *float64 `json:"factor"`
	LowFreqFactor       *float64 `json:"low_freq_factor"`
	HighFreqFactor      *float64 `json:"high_freq_factor"`
	Original            *int     `json:"original_max_position_embeddings"`
}

// readRope takes the rotary base and scaling from rope_theta, rope_parameters and rope_scaling, and refuses partial
// rotary embeddings and scalings other than Llama 3's.
func (j *configJSON) readRope(p *option.Problems, c *Config) {
	checkWhole := func(key string, factor *float64) {
		if factor != nil {
			p.Check(*factor == 1, key, *factor, "1; rotary embeddings rotate whole heads")
		}
	}
	readOptional(p, "rope_theta", &c.RopeTheta, j.RopeTheta)
	checkWhole("partial_rotary_factor", j.PartialRotaryFactor)
	for _, f := range []struct {
		key string
		raw json.RawMessage
	}{{"rope_scaling", j.RopeScaling}, {"rope_parameters", j.RopeParameters}} {
		if !present(f.raw) {
			continue
		}
		var r ropeJSON
		if err := json.Unmarshal(f.raw, &r); err != nil {
			p.Add(fmt.Errorf("%s: %w", f.key, err))
			continue
		}
		scaling, err := r.scaling(f.key, f.raw)
		if err != nil {
			p.Add(err)
			continue
		}
		if f.key == "rope_parameters" && present(j.RopeScaling) && scaling != c.RopeScaling {
			p.Check(false, f.key, compact(f.raw), "the scaling in rope_scaling, or only one of the two fields")
			continue
		}
		c.RopeScaling = scaling
		checkWhole(f.key+".partial_rotary_factor", r.PartialRotaryFactor)
		if t := r.RopeTheta; t != nil && c.RopeTheta != 0 && *t != c.RopeTheta {
			p.Check(false, f.key+".rope_theta", *t, "%g, as in rope_theta", c.RopeTheta)
			continue
		}
		readOptional(p, f.key+".rope_theta", &c.RopeTheta, r.RopeTheta)
	}
}

// scaling returns the scaling that r, the value raw of a key, asks for.
func (r ropeJSON) scaling(key string, raw json.RawMessage) (RopeScaling, error) {
	const want = ropeDefault + " or " + ropeLlama3 + "; other rotary embeddings are not supported, so load a " +
		"checkpoint without them"
	switch kind := cmp.Or(r.RopeType, r.Type); {
	case kind == ropeDefault, kind == "" && r.RopeTheta != nil:
		return RopeScaling{}, nil
	case kind == "":
		return RopeScaling{}, &option.Error{Key: key, Value: compact(raw), Want: "null, or rope_type " + want}
	case kind != ropeLlama3:
		return RopeScaling{}, &option.Error{Key: key + ".rope_type", Value: kind, Want: want}
	}
	var s RopeScaling
	var p option.Problems
	readRequired(&p, key+".factor", &s.Factor, r.Factor)
	readRequired(&p, key+".low_freq_factor", &s.LowFreqFactor, r.LowFreqFactor)
	readRequired(&p, key+".high_freq_factor", &s.HighFreqFactor, r.HighFreqFactor)
	readRequired(&p, key+".original_max_position_embeddings", &s.OriginalMaxPositionEmbeddings, r.Original)
	if err := p.Err(); err != nil {
		return RopeScaling{}, err
	}
	return s, s.validate(key)
}

// readRequired takes a field that has no default. It refuses zero, as all of a RopeScaling's zeros stand for none.
func readRequired[T int | float64](p *option.Problems, key string, dst, value *T) {
	if value == nil {
		p.Check(false, key, "absent", "a positive number, as in the published checkpoint")
		return
	}
	p.Check(*value != 0, key, *value, "a positive number")
	*dst = *value
}

// compact shortens JSON for an error message.
func compact(raw json.RawMessage) string {
	s := strings.Join(strings.Fields(string(raw)), " ")
	if len(s) > 120 {
		s = s[:117] + "..."
	}
	return s
}

// readTokens takes the special tokens. An absent id has transformers' default for the type: BOS 1 and EOS 2 for llama,
// none for the others.
func (j *configJSON) readTokens(c *Config) error {
	bos, eos, pad := []int{}, []int{}, []int{}
	if j.ModelType == Llama {
		bos, eos = []int{1}, []int{2}
	}
	err := errors.Join(
		parseIDs("bos_token_id", j.BOSTokenID, &bos),
		parseIDs("eos_token_id", j.EOSTokenID, &eos),
		parseIDs("pad_token_id", j.PadTokenID, &pad),
	)
	c.EOSTokenIDs = eos
	c.BOSTokenID, c.PadTokenID = first(bos), first(pad)
	return err
}

// parseIDs reads null, one id or a list of ids. An absent value leaves dst as it is. A negative id, which some
// configurations use for "none", gives an empty list.
func parseIDs(key string, raw json.RawMessage, dst *[]int) error {
	if len(raw) == 0 {
		return nil
	}
	var one *int
	if err := json.Unmarshal(raw, &one); err == nil {
		*dst = (*dst)[:0]
		if one != nil && *one >= 0 {
			*dst = append(*dst, *one)
		}
		return nil
	}
	var list []int
	if err := json.Unmarshal(raw, &list); err != nil {
		return &option.Error{Key: key, Value: compact(raw), Want: "null, an integer or a list of integers"}
	}
	*dst = list
	return nil
}

// first returns the first of ids, NoToken if there are none.
func first(ids []int) int {
	if len(ids) == 0 {
		return NoToken
	}
	return ids[0]
}
