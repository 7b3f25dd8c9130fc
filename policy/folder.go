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

// WithValueHead returns the model with a critic, and weights w for it: the head is 0, everything else as it was. A model that
// has one is returned as it is.
func (m *Model) WithValueHead(w *Weights) (*Model, *Weights, error) {
	if m.config.ValueHead {
		return m, w, nil
	}
	flat, err := w.Flat()
	if err != nil {
		return nil, nil, fmt.Errorf("add a value head: %w", err)
	}
	had := make(map[string][]float32, len(flat))
	for i, s := range m.config.Specs() {
		had[s.Name] = flat[i]
	}
	c := m.config
	c.ValueHead = true
	critic, err := NewModel(c)
	if err != nil {
		return nil, nil, fmt.Errorf("add a value head: %w", err)
	}
	flat = nil
	for _, s := range c.Specs() {
		data, ok := had[s.Name]
		if !ok {
			data = make([]float32, size(s.Shape))
		}
		flat = append(flat, data)
	}
	weights, err := critic.NewWeights(w.Version, flat)
	if err != nil {
		return nil, nil, fmt.Errorf("add a value head: %w", err)
	}
	return critic, weights, nil
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
