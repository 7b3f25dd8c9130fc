package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// Weights is one immutable version of a model's parameters, in the order of [hf.Config.Specs]. Workers and trainers
// share it; a new version is a new Weights.
type Weights struct {
	Version rollout.Version
	tensors []*tensors.Tensor
}

// NewWeights makes weights from float32 data in the order of [hf.Config.Specs]. It keeps no reference to the data.
func (m *Model) NewWeights(v rollout.Version, flat [][]float32) (*Weights, error) {
	ts, err := m.tensors(flat)
	if err != nil {
		return nil, fmt.Errorf("make weights: %w", err)
	}
	return &Weights{Version: v, tensors: ts}, nil
}

// tensors makes one tensor for each parameter.
func (m *Model) tensors(flat [][]float32) ([]*tensors.Tensor, error) {
	specs := m.config.Specs()
	if len(flat) != len(specs) {
		return nil, fmt.Errorf("%d tensors given, the model has %d", len(flat), len(specs))
	}
	for i, s := range specs {
		if len(flat[i]) != size(s.Shape) {
			return nil, fmt.Errorf("%s has %d values, its shape %v has %d",
				s.Name, len(flat[i]), s.Shape, size(s.Shape))
		}
	}
	ts, err := m.zeros()
	if err != nil {
		return nil, err
	}
	for i, t := range ts {
		if err := tensors.AssignFlatData(t, flat[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", specs[i].Name, err)
		}
	}
	return ts, nil
}

// zeros returns one tensor of zeros for each parameter. They are in the backend's memory from the start: a tensor
// elsewhere is copied there at its first use, which takes twice the memory and which two concurrent programs must not
// both begin.
func (m *Model) zeros() ([]*tensors.Tensor, error) {
	var ts []*tensors.Tensor
	for _, s := range m.config.Specs() {
		t, err := tensors.FromShapeForBackend(m.backend, 0, shapes.Make(dtypes.Float32, s.Shape...))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// Initial returns random weights for training from scratch: normal with standard deviation 1/sqrt(fan in). The
// projections that write into the residual stream are scaled down by sqrt(2 x layers) as in GPT-2. Norms are 1, biases
// and the value head 0.
func (m *Model) Initial(seed uint64) (*Weights, error) {
	var flat [][]float32
	for i, s := range m.config.Specs() {
		flat = append(flat, initial(s, m.config.NumHiddenLayers, rollout.Stream(seed, "policy/initial", uint64(i))))
	}
	return m.NewWeights(0, flat)
}

func initial(s hf.Spec, layers int, rng *rand.Rand) []float32 {
	data := make([]float32, size(s.Shape))
	std := 1 / math.Sqrt(float64(s.Shape[len(s.Shape)-1]))
	switch {
	case strings.HasSuffix(s.Name, ".bias"), strings.HasPrefix(s.Name, "v_head."): // a critic begins by expecting nothing
		return data
	case strings.HasSuffix(s.Name, "norm.weight"):
		for i := range data {
			data[i] = 1
		}
		return data
	case strings.HasSuffix(s.Name, "o_proj.weight"), strings.HasSuffix(s.Name, "down_proj.weight"):
		std /= math.Sqrt(2 * float64(layers))
	}
	for i := range data {
		data[i] = float32(rng.NormFloat64() * std)
	}
	return data
}

// Flat returns a copy of the parameters in the order of [hf.Config.Specs].
func (w *Weights) Flat() ([][]float32, error) { return copyAll(w.tensors) }

// WithVersion returns the same parameters under another version.
func (w *Weights) WithVersion(v rollout.Version) *Weights {
	return &Weights{Version: v, tensors: w.tensors}
}

// args returns the parameters as the first arguments of a program, followed by more.
func (w *Weights) args(more ...any) []any {
	args := make([]any, 0, len(w.tensors)+len(more))
	for _, t := range w.tensors {
		args = append(args, t)
	}
	return append(args, more...)
}

// copyAll copies tensors out of the backend. It reads their buffers, because the tensors' own accessors keep a copy in
// them, which is a race with a program that is using them.
func copyAll(ts []*tensors.Tensor) ([][]float32, error) {
	flat := make([][]float32, len(ts))
	for i, t := range ts {
		if !t.IsOnAnyDevice() { // zeros that no program has read: XLA gets them with the first that does
			if err := tensors.ConstFlatData(t, func(data []float32) { flat[i] = slices.Clone(data) }); err != nil {
				return nil, fmt.Errorf("copy tensor %d: %w", i, err)
			}
			continue
		}
		backend, err := t.Backend()
		if err != nil {
			return nil, fmt.Errorf("copy tensor %d: %w", i, err)
		}
		buffer, err := t.Buffer(backend, 0)
		if err != nil {
			return nil, fmt.Errorf("copy tensor %d: %w", i, err)
		}
		flat[i] = make([]float32, t.Size())
		if err := buffer.ToFlatData(flat[i]); err != nil {
			return nil, fmt.Errorf("copy tensor %d: %w", i, err)
		}
	}
	return flat, nil
}

// size returns the number of values of a shape.
func size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Load reads a Hugging Face model folder: its model, its weights as version 0, and its tokenizer, nil if there is none.
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

// Save writes weights as a Hugging Face folder, with the tokenizer unless it is nil.
func (m *Model) Save(dir string, w *Weights, tokenizer *hf.Tokenizer) error {
	flat, err := w.Flat()
	if err != nil {
		return err
	}
	byName := make(map[string]hf.Tensor, len(flat))
	for i, s := range m.config.Specs() {
		byName[s.Name] = hf.Tensor{Name: s.Name, Shape: s.Shape, Data: flat[i]}
	}
	return hf.WriteFolder(dir, m.config, byName, tokenizer)
}

// WithValueHead returns the model with a critic, and w with a value head of zeros. It returns a model that has a critic
// as it is.
func (m *Model) WithValueHead(w *Weights) (*Model, *Weights, error) {
	if m.config.ValueHead {
		return m, w, nil
	}
	c := m.config
	c.ValueHead = true
	critic, err := NewModel(c)
	if err != nil {
		return nil, nil, fmt.Errorf("add a value head: %w", err)
	}
	old, err := w.Flat()
	if err != nil {
		return nil, nil, fmt.Errorf("add a value head: %w", err)
	}
	byName := make(map[string][]float32, len(old))
	for i, s := range m.config.Specs() {
		byName[s.Name] = old[i]
	}
	var flat [][]float32
	for _, s := range c.Specs() {
		data, ok := byName[s.Name]
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
