package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// configJSON is config.json as it stands in the file, where an absent field differs from a zero one.
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
	TieWordEmbeddings     bool            `json:"tie_word_embeddings"` // absent: false for both types
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
	Vision                *visionJSON     `json:"vision_config"`
}

// visionJSON is vision_config.
type visionJSON struct {
	ModelType   string `json:"model_type"`
	NumChannels int    `json:"num_channels"`
	ImageSize   int    `json:"image_size"`
	PatchSize   int    `json:"patch_size"`
	HiddenSize  int    `json:"hidden_size"`
}

// vision takes the tower; another program's is refused, as its weights mean something else.
func (j *configJSON) vision(c *Config) error {
	v := j.Vision
	switch {
	case v == nil:
		return nil
	case v.ModelType != visionModel:
		return fmt.Errorf("vision_config.model_type is %q: want %q, the only tower supported", v.ModelType, visionModel)
	case v.NumChannels != 3:
		return fmt.Errorf("vision_config.num_channels is %d: want 3: red, green and blue", v.NumChannels)
	case j.ImageTokenID == nil:
		return errors.New("image_token_id is absent: want the id of the token that stands for a patch")
	}
	c.Vision = Vision{ImageSize: v.ImageSize, PatchSize: v.PatchSize, HiddenSize: v.HiddenSize, ImageTokenID: *j.ImageTokenID}
	if c.Vision == (Vision{}) { // which stands for no tower
		return errors.New("vision_config.image_size is 0: want a multiple of patch_size, or leave vision_config out")
	}
	return nil
}

// ropeJSON is rope_scaling, and rope_parameters of transformers 5.
type ropeJSON struct {
	Type                string   `json:"type"` // the older name of rope_type
	RopeType            string   `json:"rope_type"`
	RopeTheta           *float64 `json:"rope_theta"`
	PartialRotaryFactor *float64 `json:"partial_rotary_factor"`
}

// ParseConfig reads config.json and validates it: every problem is reported at once. Options that
// change what the model computes and are not supported are refused; those that only matter to other
// programs (torch_dtype or dtype, use_cache, initializer_range, attention_dropout: no dropout is
// applied here) are not looked at.
func ParseConfig(data []byte) (Config, error) {
	var j configJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return Config{}, fmt.Errorf("parse configuration: %w", err)
	}
	if j.ModelType != Llama && j.ModelType != Qwen2 {
		return Config{}, fmt.Errorf("model_type is %q: want %q or %q; other architectures compute something else",
			j.ModelType, Llama, Qwen2)
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
	errs := []error{
		j.refused(c.Architecture()),
		j.tokens(&c),
		j.rope(&c),
		j.vision(&c),
		given("num_key_value_heads", &c.NumKeyValueHeads, j.NumKeyValueHeads),
		given("head_dim", &c.HeadDim, j.HeadDim),
		given("max_position_embeddings", &c.MaxPositionEmbeddings, j.MaxPositionEmbeddings),
		given("rms_norm_eps", &c.RMSNormEps, j.RMSNormEps),
	}
	c = c.WithDefaults()
	if err := errors.Join(append(errs, c.Validate())...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// given takes an optional field; zero is refused here because in a Config it stands for the default.
func given[T int | float64](name string, dst, value *T) error {
	if value == nil {
		return nil
	}
	if *value == 0 {
		return fmt.Errorf("%s is 0: want a positive number, or leave it out for its default", name)
	}
	*dst = *value
	return nil
}

// refused reports the options that would make the model compute something this project does not.
func (j *configJSON) refused(architecture string) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(j.Architectures) > 0 && j.Architectures[0] != architecture {
		bad("architectures is %q: want [%q] for model_type %q", j.Architectures, architecture, j.ModelType)
	}
	if j.HiddenAct != nil && *j.HiddenAct != "silu" {
		bad("hidden_act is %q: want \"silu\", the only activation supported", *j.HiddenAct)
	}
	if j.MLPBias {
		bad("mlp_bias is true: want false; biases in the feed-forward block are not supported")
	}
	if j.UseSlidingWindow {
		bad("use_sliding_window is true: want false; every layer attends to the whole sequence")
	}
	for i, t := range j.LayerTypes {
		if t != "full_attention" {
			bad("layer_types[%d] is %q: want \"full_attention\", the only kind supported", i, t)
			break
		}
	}
	if present(j.QuantizationConfig) {
		bad("quantization_config is set: want it absent; load the unquantized checkpoint")
	}
	return errors.Join(errs...)
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// rope takes the rotary base from rope_theta, rope_parameters or rope_scaling and refuses scaled
// and partial rotary embeddings.
func (j *configJSON) rope(c *Config) error {
	errs := []error{
		given("rope_theta", &c.RopeTheta, j.RopeTheta),
		wholeRotary("partial_rotary_factor", j.PartialRotaryFactor),
	}
	for _, f := range []struct {
		name string
		raw  json.RawMessage
	}{{"rope_scaling", j.RopeScaling}, {"rope_parameters", j.RopeParameters}} {
		if !present(f.raw) {
			continue
		}
		var r ropeJSON
		if err := json.Unmarshal(f.raw, &r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
			continue
		}
		if r.RopeType == "" {
			r.RopeType = r.Type
		}
		if r.RopeType != "" && r.RopeType != "default" || r.RopeType == "" && r.RopeTheta == nil {
			errs = append(errs, fmt.Errorf("%s is %s: want null or rope_type \"default\"; scaled rotary embeddings are not supported",
				f.name, compact(f.raw)))
			continue
		}
		errs = append(errs, wholeRotary(f.name+".partial_rotary_factor", r.PartialRotaryFactor))
		if t := r.RopeTheta; t != nil && c.RopeTheta != 0 && *t != c.RopeTheta {
			errs = append(errs, fmt.Errorf("%s.rope_theta is %g but rope_theta was %g before: want one value", f.name, *t, c.RopeTheta))
			continue
		}
		errs = append(errs, given(f.name+".rope_theta", &c.RopeTheta, r.RopeTheta))
	}
	return errors.Join(errs...)
}

func wholeRotary(name string, factor *float64) error {
	if factor != nil && *factor != 1 {
		return fmt.Errorf("%s is %g: want 1; rotary embeddings turn whole heads", name, *factor)
	}
	return nil
}

// compact shortens JSON for an error message.
func compact(raw json.RawMessage) string {
	s := strings.Join(strings.Fields(string(raw)), " ")
	if len(s) > 120 {
		s = s[:117] + "..."
	}
	return s
}

// tokens takes the special tokens. An absent id has transformers' default for the type: 1 and 2 as
// BOS and EOS of llama, none for qwen2.
func (j *configJSON) tokens(c *Config) error {
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

// parseIDs reads null, one id or a list of ids; an absent value leaves dst. A negative id, with
// which some configurations say "none", gives an empty list.
func parseIDs(name string, raw json.RawMessage, dst *[]int) error {
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
		return fmt.Errorf("%s is %s: want null, an integer or a list of integers", name, compact(raw))
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
