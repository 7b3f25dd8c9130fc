package policy

import (
	"fmt"

	"github.com/reprise-rl/reprise/policy/hf"
)

// Load reads a Hugging Face model folder: its model, its weights as version 0, and its tokenizer, nil if the folder
// has none.
func Load(dir string) (*Model, *Weights, *hf.Tokenizer, error) {
	folder, err := hf.ReadFolder(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	model, err := NewModel(folder.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	var flat [][]float32
	for _, s := range folder.Config.Specs() {
		flat = append(flat, folder.Tensors[s.Name].Data)
	}
	weights, err := model.NewWeights(0, flat)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	return model, weights, folder.Tokenizer, nil
}

// Save writes weights of a model as a Hugging Face folder, with the tokenizer if it is not nil.
func (m *Model) Save(dir string, w *Weights, tokenizer *hf.Tokenizer) error {
	flat, err := w.Flat()
	if err != nil {
		return err
	}
	tensors := make(map[string]hf.Tensor, len(flat))
	for i, s := range m.config.Specs() {
		tensors[s.Name] = hf.Tensor{Name: s.Name, Shape: s.Shape, Data: flat[i]}
	}
	return hf.WriteFolder(dir, m.config, tensors, tokenizer)
}
