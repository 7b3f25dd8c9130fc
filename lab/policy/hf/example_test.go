package hf_test

import (
	"fmt"
	"log"
	"os"

	"github.com/reprise-rl/reprise/lab/policy/hf"
)

// A model for sums, from its characters to a folder that transformers loads, and back.
func Example() {
	tok, err := hf.NewCharTokenizer("0123456789+=")
	if err != nil {
		log.Fatal(err)
	}
	c := hf.Config{
		ModelType: hf.Llama, VocabSize: tok.VocabSize(), HiddenSize: 8, IntermediateSize: 16,
		NumHiddenLayers: 1, NumAttentionHeads: 2, TieWordEmbeddings: true,
		BOSTokenID: hf.NoToken, EOSTokenIDs: []int{1}, PadTokenID: tok.Pad(),
	}
	tensors := make(map[string]hf.Tensor)
	for _, s := range c.Specs() {
		n := 1
		for _, d := range s.Shape {
			n *= d
		}
		tensors[s.Name] = hf.Tensor{Name: s.Name, Shape: s.Shape, Data: make([]float32, n)}
	}
	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := hf.WriteFolder(dir, c, tensors, tok); err != nil {
		log.Fatal(err)
	}

	model, err := hf.ReadFolder(dir)
	if err != nil {
		log.Fatal(err)
	}
	ids, err := model.Tokenizer.Encode("12+3=")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(model.Tensors), "tensors,", model.Config.Parameters(), "parameters")
	fmt.Println(ids, model.Tokenizer.Decode(ids))
	// Output:
	// 11 tensors, 776 parameters
	// [3 4 12 5 13] 12+3=
}
