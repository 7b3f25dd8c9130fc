package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// Weights is one immutable version of a model's parameters, in the order of [hf.Config.Specs].
// Workers and trainers share it; a new version is a new Weights.
type Weights struct {
	Version rollout.Version
	tensors []*tensors.Tensor
}

// NewWeights makes weights of a model from flat float32 data in the order of [hf.Config.Specs]. It keeps no reference to
// the data.
func (m *Model) NewWeights(v rollout.Version, flat [][]float32) (*Weights, error) {
	ts, err := m.tensors(flat)
	if err != nil {
		return nil, fmt.Errorf("make weights: %w", err)
	}
	return &Weights{Version: v, tensors: ts}, nil
}

// tensors lays flat data out as one tensor for each parameter. They go to the backend at once: a tensor moves there at
// its first use otherwise, which two programs that run concurrently must not both begin.
func (m *Model) tensors(flat [][]float32) ([]*tensors.Tensor, error) {
	specs := m.config.Specs()
	if len(flat) != len(specs) {
		return nil, fmt.Errorf("%d tensors given, the model has %d", len(flat), len(specs))
	}
	var ts []*tensors.Tensor
	for i, p := range specs {
		if len(flat[i]) != size(p.Shape) {
			return nil, fmt.Errorf("%s holds %d values, its shape %v has %d", p.Name, len(flat[i]), p.Shape, size(p.Shape))
		}
		t := tensors.FromFlatDataAndDimensions(flat[i], p.Shape...)
		if err := t.ToDevice(m.backend, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// Initial returns random weights for training from scratch: normal with standard deviation 1/sqrt(fan in), the
// projections that write into the residual stream scaled down by sqrt(2 x layers) as in GPT-2, norms 1, biases and the value head 0.
func (m *Model) Initial(seed uint64) (*Weights, error) {
	var flat [][]float32
	for i, p := range m.config.Specs() {
		flat = append(flat, initial(p, m.config.NumHiddenLayers, rollout.Stream(seed, "policy/initial", uint64(i))))
	}
	return m.NewWeights(0, flat)
}

func initial(p hf.Spec, layers int, rng *rand.Rand) []float32 {
	data := make([]float32, size(p.Shape))
	std := 1 / math.Sqrt(float64(p.Shape[len(p.Shape)-1]))
	switch {
	case strings.HasSuffix(p.Name, ".bias"), strings.HasPrefix(p.Name, "v_head."): // a critic begins by expecting nothing
		return data
	case strings.HasSuffix(p.Name, "norm.weight"):
		for i := range data {
			data[i] = 1
		}
		return data
	case strings.HasSuffix(p.Name, "o_proj.weight"), strings.HasSuffix(p.Name, "down_proj.weight"):
		std /= math.Sqrt(2 * float64(layers))
	}
	for i := range data {
		data[i] = float32(rng.NormFloat64() * std)
	}
	return data
}

// Flat returns a copy of the parameters as flat data in the order of the configuration's parameters.
func (w *Weights) Flat() ([][]float32, error) { return copyAll(w.tensors) }

// WithVersion returns the same parameters under another version.
func (w *Weights) WithVersion(v rollout.Version) *Weights {
	return &Weights{Version: v, tensors: w.tensors}
}

// inputs returns the parameters as the leading arguments of a compiled graph.
func (w *Weights) inputs(more int) []any {
	args := make([]any, 0, len(w.tensors)+more)
	for _, t := range w.tensors {
		args = append(args, t)
	}
	return args
}

// copyAll copies tensors out of the backend. It reads their buffers: the tensors' own accessors would keep a copy in
// them, which is a race with a program that is using them.
func copyAll(ts []*tensors.Tensor) ([][]float32, error) {
	flat := make([][]float32, len(ts))
	for i, t := range ts {
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
