package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small returns a configuration with a handful of tensors.
func small(modelType string, tied bool) Config {
	return Config{ModelType: modelType, VocabSize: 7, HiddenSize: 8, IntermediateSize: 12, NumHiddenLayers: 2,
		NumAttentionHeads: 2, NumKeyValueHeads: 1, TieWordEmbeddings: tied,
		BOSTokenID: NoToken, EOSTokenIDs: []int{1}, PadTokenID: 0}
}

// randomTensors returns weights for c with every kind of float32 among them.
func randomTensors(c Config, seed uint64) map[string]Tensor {
	rng := rand.New(rand.NewPCG(seed, 0))
	tensors := make(map[string]Tensor)
	for _, s := range c.Specs() {
		t := Tensor{s.Name, s.Shape, make([]float32, elements(s.Shape))}
		for i := range t.Data {
			t.Data[i] = math.Float32frombits(rng.Uint32())
		}
		tensors[s.Name] = t
	}
	return tensors
}

func names(tensors map[string]Tensor) []string { return slices.Sorted(maps.Keys(tensors)) }

// sameTensors compares bit for bit, NaNs included.
func sameTensors(t *testing.T, got, want map[string]Tensor) {
	t.Helper()
	if !maps.EqualFunc(got, want, func(a, b Tensor) bool {
		return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) &&
			slices.EqualFunc(a.Data, b.Data,
				func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
	}) {
		t.Fatalf("tensors differ: got %v, want %v", names(got), names(want))
	}
}

func TestAFolderLoadsAgainBitForBit(t *testing.T) {
	for _, modelType := range []string{Llama, Qwen2, Qwen3} {
		for _, tied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s tied=%v", modelType, tied), func(t *testing.T) {
				c := small(modelType, tied)
				if tied {
					c = seeing(c)
				}
				dir := filepath.Join(t.TempDir(), "new")
				want := randomTensors(c, 1)
				tok, err := NewCharTokenizer("01+=\n")
				if err != nil {
					t.Fatal(err)
				}
				if err := WriteFolder(dir, c, want, tok); err != nil {
					t.Fatal(err)
				}
				f, err := ReadFolder(dir)
				if err != nil {
					t.Fatal(err)
				}
				sameTensors(t, f.Tensors, want)
				if got := fmt.Sprint(f.Config); got != fmt.Sprint(c.WithDefaults()) {
					t.Errorf("configuration reads back as %s", got)
				}
				if f.Tokenizer.VocabSize() != c.VocabSize {
					t.Errorf("tokenizer has %d ids, want %d", f.Tokenizer.VocabSize(), c.VocabSize)
				}
				if tmp, _ := filepath.Glob(filepath.Join(dir, "*tmp*")); tmp != nil {
					t.Errorf("temporary files remain: %v", tmp)
				}
				first, _ := os.ReadFile(filepath.Join(dir, WeightsFile))
				if err := WriteFolder(dir, f.Config, f.Tensors, f.Tokenizer); err != nil {
					t.Fatal(err)
				}
				second, _ := os.ReadFile(filepath.Join(dir, WeightsFile))
				if !slices.Equal(first, second) {
					t.Error("writing the same weights twice gives different bytes")
				}
			})
		}
	}
}

func TestAFolderWithoutTokenizerHasNone(t *testing.T) {
	dir, c := t.TempDir(), small(Llama, true)
	if err := WriteFolder(dir, c, randomTensors(c, 2), nil); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFolder(dir)
	if err != nil || f.Tokenizer != nil {
		t.Fatalf("got tokenizer %v, error %v", f.Tokenizer, err)
	}
	if _, err := ReadTokenizer(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error of the missing tokenizer is %v", err)
	}
	if _, err := readWeights(t.TempDir(), c); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), WeightsFile) {
		t.Errorf("error of the missing weights is %v", err)
	}
}

func TestEveryMisfitTensorIsNamedInOneError(t *testing.T) {
	c := small(Qwen2, false)
	tensors := randomTensors(c, 3)
	bias := "model.layers.1.self_attn.k_proj.bias"
	delete(tensors, bias)
	delete(tensors, headName)
	tensors["model.layers.2.mlp.up_proj.weight"] = Tensor{"model.layers.2.mlp.up_proj.weight", []int{1}, []float32{1}}
	norm := tensors["model.norm.weight"]
	norm.Shape = []int{2, 4}
	tensors["model.norm.weight"] = norm
	want := []string{
		`"` + bias + `" is missing: want shape [4]`,
		`"lm_head.weight" is missing: want shape [7 8], or tie_word_embeddings true`,
		`"model.norm.weight" has shape [2 4]: config.json asks for [8]`,
		`"model.layers.2.mlp.up_proj.weight" of shape [1] is unexpected`,
	}
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err == nil {
			t.Fatal("no error")
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error does not say %q:\n%v", w, err)
			}
		}
	}
	check(WriteFolder(dir, c, tensors, nil))
	var list []Tensor
	for _, name := range names(tensors) {
		list = append(list, tensors[name])
	}
	writeShard(t, dir, WeightsFile, list...)
	_, err := readWeights(dir, c)
	check(err)
}

func TestWritingChecksNamesAndLengths(t *testing.T) {
	c := small(Llama, true)
	tensors := randomTensors(c, 3)
	norm := tensors["model.norm.weight"]
	norm.Data = norm.Data[1:]
	tensors["model.norm.weight"] = norm
	embed := tensors[embedName]
	embed.Name = "other"
	tensors[embedName] = embed
	err := WriteFolder(t.TempDir(), c, tensors, nil)
	for _, want := range []string{`"model.norm.weight" has 7 elements: its shape [8] asks for 8`, `has Name "other"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
}

func writeShard(t *testing.T, dir, name string, tensors ...Tensor) {
	t.Helper()
	var b strings.Builder
	if err := writeSafetensors(&b, tensors); err != nil {
		t.Fatal(err)
	}
	writeString(t, dir, name, b.String())
}

func writeString(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTiedWeightsAreFoundUnderEitherName(t *testing.T) {
	c := small(Llama, true)
	want := randomTensors(c, 4)
	embed := want[embedName]
	head := Tensor{headName, embed.Shape, embed.Data}
	other := Tensor{headName, embed.Shape, slices.Clone(embed.Data)}
	other.Data[9] = 42
	var rest []Tensor
	for _, name := range names(want) {
		if name != embedName {
			rest = append(rest, want[name])
		}
	}
	for _, tc := range []struct {
		name   string
		matrix []Tensor
		err    string
	}{
		{"embedding only", []Tensor{embed}, ""},
		{"head only", []Tensor{head}, ""},
		{"both", []Tensor{embed, head}, ""},
		{"both, different", []Tensor{embed, other}, "differ at element 9"},
		{"neither", nil, `"model.embed_tokens.weight" is missing`},
		{"head of another shape", []Tensor{embed, {headName, []int{8, 7}, embed.Data}},
			`"lm_head.weight" of shape [8 7] is unexpected`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			writeShard(t, dir, WeightsFile, append(slices.Clone(rest), tc.matrix...)...)
			got, err := readWeights(dir, c)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error is %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sameTensors(t, got, want)
		})
	}
}

func TestShardsAreReadThroughTheirIndex(t *testing.T) {
	c := small(Llama, false)
	want := randomTensors(c, 5)
	var files [2][]Tensor
	index := ""
	for i, name := range names(want) {
		files[i%2] = append(files[i%2], want[name])
		index += fmt.Sprintf("%q:\"%d.safetensors\",", name, i%2)
	}
	inv := Tensor{"model.layers.0.self_attn.rotary_emb.inv_freq", []int{2}, []float32{1, 0.1}}
	files[1] = append(files[1], inv)
	dir := t.TempDir()
	writeShard(t, dir, "0.safetensors", files[0]...)
	writeShard(t, dir, "1.safetensors", files[1]...)
	put := func(entries string) { writeString(t, dir, indexFile, `{"metadata":{},"weight_map":{`+entries+`}}`) }
	put(index + fmt.Sprintf("%q:%q", inv.Name, "1.safetensors"))
	got, err := readWeights(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	sameTensors(t, got, want)
	for entries, problem := range map[string]string{
		strings.TrimSuffix(index, ","):                          `inv_freq" is here, but the index places it in ""`,
		index + fmt.Sprintf("%q:%q", inv.Name, "0.safetensors"): `inv_freq" is not here`,
		index + fmt.Sprintf("%q:%q", inv.Name, "../1.safetensors"): "want the name of a file " +
			"in the same folder",
		index + fmt.Sprintf("%q:%q,\"more\":\"2.safetensors\"", inv.Name, "1.safetensors"): "open weights",
		"": "weight_map is empty",
	} {
		put(entries)
		if _, err := readWeights(dir, c); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("error is %v, want %q", err, problem)
		}
	}
}

// tinyStories returns the folder of a published model with real weights, which stands beside the
// project and not in it.
func tinyStories(t *testing.T) string {
	dir := filepath.Join("..", "..", "..", "..", "shared", "data", "TinyStories-656K")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("%s is not there: the check on real weights is skipped", dir)
	}
	return dir
}

func TestTinyStoriesLoads(t *testing.T) {
	f, err := ReadFolder(tinyStories(t))
	if err != nil {
		t.Fatal(err)
	}
	// 2048*128 + 2 (2*128*128 + 2*64*128 + 3*128*384 + 2*128) + 128
	if n := f.Config.Parameters(); n != 656000 {
		t.Errorf("%d parameters, want 656000", n)
	}
	embed := f.Tensors[embedName]
	if !slices.Equal(embed.Shape, []int{2048, 128}) || len(f.Tensors) != 20 || f.Tokenizer.VocabSize() != 2048 {
		t.Errorf("embedding %v, %d tensors, %d ids", embed.Shape, len(f.Tensors), f.Tokenizer.VocabSize())
	}
	if f.Tokenizer.BOS() != 1 || !slices.Equal(f.Tokenizer.EOS(), []int32{2}) {
		t.Errorf("BOS %d, EOS %v", f.Tokenizer.BOS(), f.Tokenizer.EOS())
	}
	ids, err := f.Tokenizer.Encode("Once upon a time")
	if err != nil || f.Tokenizer.Decode(ids) != "Once upon a time" || ids[0] != 1 {
		t.Errorf("ids %v, error %v", ids, err)
	}
}
