package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// configOf returns a valid config.json of a type with fields added or, where the value is empty,
// taken away.
func configOf(modelType string, fields ...string) string {
	m := map[string]string{"model_type": `"` + modelType + `"`, "vocab_size": "100", "hidden_size": "64",
		"intermediate_size": "96", "num_hidden_layers": "2", "num_attention_heads": "4"}
	return object(m, fields)
}

// object returns a JSON object of the given values with fields added or, where the value is empty, taken away.
func object(values map[string]string, fields []string) string {
	for i := 0; i < len(fields); i += 2 {
		values[fields[i]] = fields[i+1]
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if values[k] != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", k, values[k]))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// towerOf returns a vision_config.
func towerOf(image, patch, hidden int) string {
	return fmt.Sprintf(`{"model_type":"reprise_patches","num_channels":3,"image_size":%d,"patch_size":%d,"hidden_size":%d}`, image, patch, hidden)
}

func TestAbsentFieldsHaveTransformersDefaults(t *testing.T) {
	llama, err := parseConfig([]byte(configOf("llama")))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{ModelType: Llama, VocabSize: 100, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2,
		NumAttentionHeads: 4, NumKeyValueHeads: 4, HeadDim: 16, MaxPositionEmbeddings: 2048, RMSNormEps: 1e-6,
		RopeTheta: 10000, BOSTokenID: 1, EOSTokenIDs: []int{2}, PadTokenID: NoToken}
	if fmt.Sprint(llama) != fmt.Sprint(want) {
		t.Errorf("llama: %+v", llama)
	}
	qwen, err := parseConfig([]byte(configOf("qwen2")))
	want.ModelType, want.MaxPositionEmbeddings, want.BOSTokenID, want.EOSTokenIDs = Qwen2, 32768, NoToken, nil
	if err != nil || fmt.Sprint(qwen) != fmt.Sprint(want) {
		t.Errorf("qwen2: %+v, error %v", qwen, err)
	}
	qwen, err = parseConfig([]byte(configOf("qwen3")))
	want.ModelType, want.HeadDim = Qwen3, 128
	if err != nil || fmt.Sprint(qwen) != fmt.Sprint(want) {
		t.Errorf("qwen3: %+v, error %v", qwen, err)
	}
}

// llama3Of returns Llama 3.2's scaling with fields added or taken away.
func llama3Of(fields ...string) string {
	return object(map[string]string{"rope_type": `"llama3"`, "factor": "32.0", "low_freq_factor": "1.0",
		"high_freq_factor": "4.0", "original_max_position_embeddings": "8192"}, fields)
}

func TestLlama3ScalingIsReadInBothSpellings(t *testing.T) {
	want := "500000 {32 1 4 8192}"
	for name, fields := range map[string][]string{
		"transformers 4": {"rope_theta", "5e5", "rope_scaling", llama3Of()},
		"older type":     {"rope_theta", "5e5", "rope_scaling", llama3Of("rope_type", "", "type", `"llama3"`)},
		"transformers 5": {"rope_parameters", llama3Of("rope_theta", "5e5")},
		"both": {"rope_scaling", llama3Of(), "rope_parameters", llama3Of("rope_theta", "5e5"),
			"rope_theta", "5e5"},
	} {
		for _, modelType := range []string{Llama, Qwen2, Qwen3} {
			c, err := parseConfig([]byte(configOf(modelType, fields...)))
			if got := fmt.Sprint(c.RopeTheta, c.RopeScaling); got != want || err != nil {
				t.Errorf("%s, %s: read as %s, want %s, error %v", modelType, name, got, want, err)
			}
		}
	}
}

// transformers 4 knows rope_scaling only, and transformers 5 reads it too.
func TestLlama3ScalingIsWrittenAsEveryTransformersReadsIt(t *testing.T) {
	c := small(Llama, true)
	c.RopeTheta, c.RopeScaling = 5e5, RopeScaling{32, 1, 4, 8192}
	var got struct {
		RopeTheta   float64        `json:"rope_theta"`
		RopeScaling map[string]any `json:"rope_scaling"`
	}
	if err := json.Unmarshal(c.encode(), &got); err != nil {
		t.Fatal(err)
	}
	want := "500000 map[factor:32 high_freq_factor:4 low_freq_factor:1 original_max_position_embeddings:8192 " +
		"rope_type:llama3]"
	if s := fmt.Sprint(int(got.RopeTheta), got.RopeScaling); s != want {
		t.Errorf("written as %s, want %s", s, want)
	}
}

func TestEveryAcceptedFieldIsRead(t *testing.T) {
	for _, tc := range []struct {
		fields []string
		got    func(Config) any
		want   any
	}{
		{[]string{"num_key_value_heads", "2"}, func(c Config) any { return c.NumKeyValueHeads }, 2},
		{[]string{"head_dim", "32"}, func(c Config) any { return c.HeadDim }, 32},
		{[]string{"num_attention_heads", "3", "head_dim", "32"}, func(c Config) any { return c.HeadDim }, 32},
		{[]string{"max_position_embeddings", "77"}, func(c Config) any { return c.MaxPositionEmbeddings }, 77},
		{[]string{"rms_norm_eps", "1e-5"}, func(c Config) any { return c.RMSNormEps }, 1e-5},
		{[]string{"rope_theta", "500000"}, func(c Config) any { return c.RopeTheta }, 5e5},
		{[]string{"rope_scaling", "null", "rope_theta", "7"}, func(c Config) any { return c.RopeTheta }, 7.0},
		{[]string{"rope_scaling", `{"type":"default"}`}, func(c Config) any { return c.RopeTheta }, 1e4},
		{[]string{"rope_parameters", `{"rope_theta":1e6,"rope_type":"default"}`},
			func(c Config) any { return c.RopeTheta }, 1e6},
		{[]string{"rope_parameters", `{"rope_theta":1e6}`, "rope_theta", "1e6"},
			func(c Config) any { return c.RopeTheta }, 1e6},
		{[]string{"tie_word_embeddings", "true", "dtype", `"bfloat16"`},
			func(c Config) any { return c.TieWordEmbeddings }, true},
		{[]string{"attention_bias", "true"}, func(c Config) any { return c.AttentionBias }, true},
		{[]string{"mlp_bias", "false", "hidden_act", `"silu"`, "architectures", `["LlamaForCausalLM"]`},
			func(c Config) any { return c.AttentionBias }, false},
		{[]string{"sliding_window", "4096", "use_sliding_window", "false"},
			func(c Config) any { return c.Parameters() > 0 }, true},
		{[]string{"layer_types", `["full_attention","full_attention"]`},
			func(c Config) any { return c.NumHiddenLayers }, 2},
		{[]string{"bos_token_id", "null", "eos_token_id", "[5,6]", "pad_token_id", "-1"},
			func(c Config) any { return fmt.Sprint(c.BOSTokenID, c.EOSTokenIDs, c.PadTokenID) }, "-1 [5 6] -1"},
		{[]string{"value_head", "true"}, func(c Config) any { return c.ValueHead }, true},
		{[]string{"image_token_id", "9", "vision_config",
			`{"model_type":"reprise_patches","num_channels":3,"image_size":12,"patch_size":4,"hidden_size":5}`},
			func(c Config) any { return fmt.Sprint(c.Vision, c.Vision.Tokens(), c.Vision.PatchValues()) },
			"{12 4 5 9} 9 48"},
		{[]string{"image_token_id", "9"}, func(c Config) any { return c.Vision.Tokens() }, 0},
		{[]string{"bos_token_id", "0", "eos_token_id", "null", "pad_token_id", "3"},
			func(c Config) any { return fmt.Sprint(c.BOSTokenID, c.EOSTokenIDs, c.PadTokenID) }, "0 [] 3"},
	} {
		c, err := parseConfig([]byte(configOf("llama", tc.fields...)))
		if err != nil || tc.got(c) != tc.want {
			t.Errorf("%v: got %v, want %v, error %v", tc.fields, tc.got(c), tc.want, err)
		}
	}
}

func TestWhatWouldBeComputedWronglyIsRefused(t *testing.T) {
	for _, tc := range []struct {
		modelType string
		fields    []string
		want      string
	}{
		{"mistral", nil, `model_type: mistral: want one of llama, qwen2, qwen3; other architectures`},
		{"llama", []string{"architectures", `["MistralForCausalLM"]`}, `architectures: [MistralForCausalLM]`},
		{"llama", []string{"vocab_size", ""}, "vocab_size: 0: want 1"},
		{"llama", []string{"hidden_size", "-64"}, "hidden_size: -64"},
		{"llama", []string{"num_hidden_layers", "5000"}, "num_hidden_layers: 5000: want 1 to 4096"},
		{"llama", []string{"vocab_size", "1e30"}, "parse configuration"},
		{"llama", []string{"num_attention_heads", "3"}, "num_attention_heads: 3: want a divisor of hidden_size"},
		{"llama", []string{"num_key_value_heads", "3"}, "num_key_value_heads: 3: want a divisor"},
		{"llama", []string{"num_key_value_heads", "0"}, "num_key_value_heads: 0"},
		{"llama", []string{"head_dim", "15"}, "head_dim: 15: want an even number"},
		{"llama", []string{"head_dim", "16777216"}, "head_dim: 16777216: want an even number from 2 to 4194304"},
		{"llama", []string{"rms_norm_eps", "-1"}, "rms_norm_eps: -1"},
		{"llama", []string{"rope_theta", "0.5"}, "rope_theta: 0.5"},
		{"llama", []string{"rope_scaling", `{"type":"linear","factor":2}`},
			"rope_scaling.rope_type: linear: want default or llama3; other rotary embeddings are not supported"},
		{"llama", []string{"rope_scaling", `{"factor":2}`}, `rope_scaling: {"factor":2}: want null, or rope_type`},
		{"llama", []string{"rope_scaling", `{"rope_type":"llama3","factor":32}`},
			"rope_scaling.low_freq_factor: absent: want a positive number, as in the published checkpoint"},
		{"qwen3", []string{"rope_parameters", llama3Of("factor", "")}, "rope_parameters.factor: absent"},
		{"llama", []string{"rope_parameters", llama3Of("original_max_position_embeddings", "")},
			"rope_parameters.original_max_position_embeddings: absent"},
		{"llama", []string{"rope_scaling", llama3Of("factor", "0.5")},
			"rope_scaling.factor: 0.5: want a finite number of 1 or more"},
		{"llama", []string{"rope_scaling", llama3Of("factor", "0", "low_freq_factor", "0", "high_freq_factor", "0",
			"original_max_position_embeddings", "0")}, "rope_scaling.factor: 0: want a positive number"},
		{"llama", []string{"rope_scaling", llama3Of("low_freq_factor", "-1")},
			"rope_scaling.low_freq_factor: -1: want a finite number above 0"},
		{"llama", []string{"rope_scaling", llama3Of("high_freq_factor", "1")},
			"rope_scaling.high_freq_factor: 1: want a finite number above low_freq_factor, 1"},
		{"llama", []string{"rope_scaling", llama3Of("original_max_position_embeddings", "-8")},
			"rope_scaling.original_max_position_embeddings: -8: want 1 to"},
		{"llama", []string{"rope_scaling", llama3Of("factor", `"32"`)}, "rope_scaling: json"},
		{"llama", []string{"rope_scaling", llama3Of(), "rope_parameters", llama3Of("factor", "8")},
			"want the scaling in rope_scaling, or only one of the two fields"},
		{"llama", []string{"rope_scaling", llama3Of(), "rope_parameters", `{"rope_type":"default"}`},
			"want the scaling in rope_scaling, or only one of the two fields"},
		{"llama", []string{"rope_parameters", llama3Of("partial_rotary_factor", "0.5")},
			"rope_parameters.partial_rotary_factor: 0.5"},
		{"qwen3", []string{"use_sliding_window", "true"}, "use_sliding_window: true"},
		{"qwen3", []string{"head_dim", "15"}, "head_dim: 15: want an even number"},
		{"qwen3", []string{"head_dim", "0"}, "head_dim: 0: want a positive number"},
		{"qwen3", []string{"architectures", `["Qwen3MoeForCausalLM"]`},
			"architectures: [Qwen3MoeForCausalLM]: want [Qwen3ForCausalLM] for model_type qwen3"},
		{"llama", []string{"rope_scaling", `"x"`}, "rope_scaling:"},
		{"llama", []string{"rope_parameters", `{"rope_theta":5,"rope_type":"yarn"}`},
			"rope_parameters.rope_type: yarn: want default or llama3"},
		{"llama", []string{"rope_parameters", `{"full_attention":{"rope_theta":5}}`}, "rope_parameters: {"},
		{"llama", []string{"rope_parameters", `{"rope_theta":5}`, "rope_theta", "6"},
			"rope_parameters.rope_theta: 5: want 6"},
		{"llama", []string{"rope_parameters", `{"rope_theta":5,"partial_rotary_factor":0.5}`},
			"rope_parameters.partial_rotary_factor: 0.5"},
		{"llama", []string{"partial_rotary_factor", "0.25"}, "partial_rotary_factor: 0.25"},
		{"llama", []string{"hidden_act", `"gelu"`}, `hidden_act: gelu`},
		{"llama", []string{"mlp_bias", "true"}, "mlp_bias: true"},
		{"llama", []string{"quantization_config", "{}"}, "quantization_config: {}"},
		{"qwen2", []string{"use_sliding_window", "true"}, "use_sliding_window: true"},
		{"qwen2", []string{"layer_types", `["full_attention","sliding_attention"]`},
			`layer_types[1]: sliding_attention`},
		{"qwen2", []string{"attention_bias", "true"}, "attention_bias: true"},
		{"llama", []string{"eos_token_id", "100"}, "eos_token_id: 100: want null or 0 to vocab_size-1, 99"},
		{"llama", []string{"eos_token_id", "[1,-1]"}, "eos_token_id: -1"},
		{"llama", []string{"pad_token_id", "1000"}, "pad_token_id: 1000"},
		{"llama", []string{"bos_token_id", `"a"`}, `bos_token_id: "a": want null, an integer or a list`},
		{"llama", []string{"image_token_id", "9", "vision_config",
			`{"model_type":"clip_vision_model","num_channels":3,"image_size":224,"patch_size":14,"hidden_size":1024}`},
			`vision_config.model_type: clip_vision_model: want reprise_patches`},
		{"llama", []string{"image_token_id", "9", "vision_config", `{"model_type":"reprise_patches","num_channels":1}`},
			"vision_config.num_channels: 1: want 3"},
		{"llama", []string{"image_token_id", "0", "vision_config", `{"model_type":"reprise_patches","num_channels":3}`},
			"vision_config.image_size: 0"},
		{"llama", []string{"vision_config", towerOf(12, 4, 5)}, "image_token_id: absent"},
		{"llama", []string{"image_token_id", "100", "vision_config", towerOf(12, 4, 5)},
			"image_token_id: 100: want 0 to vocab_size-1, 99"},
		{"llama", []string{"image_token_id", "-1", "vision_config", towerOf(12, 4, 5)}, "image_token_id: -1: want 0"},
		{"llama", []string{"image_token_id", "9", "vision_config", towerOf(12, 5, 5)},
			"vision_config.image_size: 12: want a multiple of patch_size, 5"},
		{"llama", []string{"image_token_id", "9", "vision_config", towerOf(4100, 4, 5)},
			"vision_config.image_size: 4100: want a multiple of patch_size, 4, up to 4096"},
		{"llama", []string{"image_token_id", "9", "vision_config", towerOf(12, 0, 5)},
			"vision_config.patch_size: 0: want 1 to 256"},
		{"llama", []string{"image_token_id", "9", "vision_config", towerOf(514, 257, 5)},
			"vision_config.patch_size: 257"},
		{"llama", []string{"image_token_id", "9", "vision_config", towerOf(12, 4, 0)},
			"vision_config.hidden_size: 0: want 1"},
		{"llama", []string{"vision_config", `[]`}, "parse configuration"},
		{"llama", []string{"value_head", `"yes"`}, "parse configuration"},
	} {
		if _, err := parseConfig([]byte(configOf(tc.modelType, tc.fields...))); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: error %v, want %q", tc.fields, err, tc.want)
		}
	}
	_, err := parseConfig([]byte(configOf("llama", "mlp_bias", "true", "head_dim", "3", "rope_theta", "0",
		"pad_token_id", "100")))
	for _, want := range []string{"mlp_bias", "head_dim", "rope_theta", "pad_token_id"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not all problems at once: %s is absent from %v", want, err)
		}
	}
	bad := small(Llama, true)
	bad.RopeScaling = RopeScaling{Factor: math.Inf(1), LowFreqFactor: math.NaN(), HighFreqFactor: 1}
	if err := bad.Validate(); err == nil || strings.Count(err.Error(), "rope_scaling.") != 4 {
		t.Errorf("a scaling of NaN and infinity: %v", err)
	}
	if err := (Config{ModelType: Llama, VocabSize: 1, HiddenSize: 2, IntermediateSize: 1, NumHiddenLayers: 1,
		NumAttentionHeads: 1,
		RMSNormEps:        math.NaN(), RopeTheta: math.Inf(1), BOSTokenID: NoToken,
		PadTokenID: NoToken}).Validate(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("NaN and infinity: %v", err)
	}
}

func TestConfigurationsReadBackAsWritten(t *testing.T) {
	for _, c := range []Config{
		small(Llama, true), small(Qwen2, false), small(Qwen3, false), seeing(small(Llama, false)),
		seeing(small(Qwen2, true)), scaled(small(Llama, true)), scaled(small(Qwen3, true)),
		{ModelType: Llama, VocabSize: 9, HiddenSize: 6, IntermediateSize: 4, NumHiddenLayers: 3, NumAttentionHeads: 4,
			NumKeyValueHeads: 2,
			HeadDim:          10, MaxPositionEmbeddings: 12, RMSNormEps: 1e-5, RopeTheta: 123456.5, AttentionBias: true,
			BOSTokenID: 0, EOSTokenIDs: []int{3, 4}, PadTokenID: 8},
	} {
		got, err := parseConfig(c.encode())
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.WithDefaults()) {
			t.Errorf("%+v reads back as %+v, error %v", c, got, err)
		}
	}
}

// The names and shapes of transformers' classes, from their state dicts.
func TestSpecsAreThoseOfTransformers(t *testing.T) {
	c := small(Llama, false)
	c.NumHiddenLayers, c.HeadDim, c.AttentionBias = 1, 6, true
	want := `model.embed_tokens.weight [7 8]
model.layers.0.input_layernorm.weight [8]
model.layers.0.self_attn.q_proj.weight [12 8]
model.layers.0.self_attn.q_proj.bias [12]
model.layers.0.self_attn.k_proj.weight [6 8]
model.layers.0.self_attn.k_proj.bias [6]
model.layers.0.self_attn.v_proj.weight [6 8]
model.layers.0.self_attn.v_proj.bias [6]
model.layers.0.self_attn.o_proj.weight [8 12]
model.layers.0.self_attn.o_proj.bias [8]
model.layers.0.post_attention_layernorm.weight [8]
model.layers.0.mlp.gate_proj.weight [12 8]
model.layers.0.mlp.up_proj.weight [12 8]
model.layers.0.mlp.down_proj.weight [8 12]
model.norm.weight [8]
lm_head.weight [7 8]
`
	list := func(c Config) string {
		var b strings.Builder
		for _, s := range c.Specs() {
			fmt.Fprintln(&b, s.Name, s.Shape)
		}
		return b.String()
	}
	if got := list(c); got != want {
		t.Errorf("llama with biases:\n%s", got)
	}
	c.ModelType, c.AttentionBias, c.TieWordEmbeddings = Qwen2, false, true
	want = strings.Replace(want, "model.layers.0.self_attn.o_proj.bias [8]\n", "", 1)
	want = strings.Replace(want, "lm_head.weight [7 8]\n", "", 1)
	if got := list(c); got != want {
		t.Errorf("qwen2, tied:\n%s", got)
	}
	c.ModelType = Qwen3
	want = regexp.MustCompile(`.*[qkv]_proj\.bias.*\n`).ReplaceAllString(want, "")
	plain := strings.Replace(want, "model.layers.0.self_attn.o_proj.weight",
		"model.layers.0.self_attn.q_norm.weight [6]\nmodel.layers.0.self_attn.k_norm.weight [6]\n"+
			"model.layers.0.self_attn.o_proj.weight", 1)
	if got := list(c); got != plain {
		t.Errorf("qwen3, tied:\n%s", got)
	}
	c.AttentionBias = true
	if got := list(c); strings.Count(got, "_proj.bias") != 4 || strings.Count(got, "_norm.weight") != 2 {
		t.Errorf("qwen3 with biases:\n%s", got)
	}
}

// A value head is TRL's; the tower is named after the parts of LLaVA's checkpoints.
func TestWhatIsAddedToADecoderFollowsItsTensors(t *testing.T) {
	plain, c := small(Llama, false).Specs(), seeing(small(Llama, false))
	want := `[{v_head.summary.weight [1 8]} {v_head.summary.bias [1]}` +
		` {vision_tower.patch_embedding.weight [5 48]} {vision_tower.patch_embedding.bias [5]} {vision_tower.position_embedding.weight [9 5]}` +
		` {multi_modal_projector.linear_1.weight [8 5]} {multi_modal_projector.linear_1.bias [8]}` +
		` {multi_modal_projector.linear_2.weight [8 8]} {multi_modal_projector.linear_2.bias [8]}]`
	got := c.Specs()
	if fmt.Sprint(got[:len(plain)]) != fmt.Sprint(plain) || fmt.Sprint(got[len(plain):]) != want {
		t.Errorf("tensors %v, want the decoder's and %s", got, want)
	}
}

// seeing adds a value head and a tower.
func seeing(c Config) Config {
	c.ValueHead, c.Vision = true, Vision{ImageSize: 12, PatchSize: 4, HiddenSize: 5, ImageTokenID: 6}
	return c
}

// scaled adds Llama 3's scaling.
func scaled(c Config) Config {
	c.RopeScaling = RopeScaling{8, 1, 4, 8192}
	return c
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(configOf("llama")))
	f.Add([]byte(configOf("qwen2", "rope_parameters", `{"rope_theta":1e6}`, "eos_token_id", "[1,2]")))
	f.Add(small(Qwen2, true).encode())
	f.Add(scaled(small(Qwen3, true)).encode())
	f.Add(seeing(small(Llama, true)).encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig(data)
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("accepted, but: %v", err)
		}
		again, err := parseConfig(c.encode())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(c) {
			t.Fatalf("%+v reads back as %+v, error %v", c, again, err)
		}
	})
}
