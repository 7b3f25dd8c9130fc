package policy

import (
	"fmt"
	"math"
	"strings"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Precision says how coarse a copy of weights is. The copy holds float32 too, and programs compute in float32 with it:
// only the weights are rounded, as in engines that quantise weights alone.
type Precision string

const (
	Full     Precision = "float32"  // not rounded
	BFloat16 Precision = "bfloat16" // every weight is the nearest bfloat16, the even one of two
	// Int8 rounds the linear layers of the transformer blocks: with scale = max|w|/127 for each output channel, w
	// becomes the nearest whole multiple of scale. All else stays float32: embeddings, output head, norms, biases, value
	// head and vision tower. vLLM and SGLang quantise linear layers only and leave the head out; a tied head is the
	// embedding here, and so stays too.
	Int8 Precision = "int8"
)

// Validate refuses a precision that is not listed above. The empty one is Full.
func (p Precision) Validate() error {
	var found option.Problems
	found.Check(p == "" || p == Full || p == BFloat16 || p == Int8, "precision", p, "%s, %s or %s", Full, BFloat16, Int8)
	return found.Err()
}

// Round returns a copy of weights at a precision, under the same version; w itself if they are not rounded. The same
// weights give the same copy.
func (m *Model) Round(w *Weights, p Precision) (*Weights, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("round weights: %w", err)
	}
	if p == "" || p == Full {
		return w, nil
	}
	flat, err := w.Flat()
	if err != nil {
		return nil, fmt.Errorf("round weights: %w", err)
	}
	for i, s := range m.config.Specs() {
		switch {
		case p == BFloat16:
			roundBFloat16(flat[i])
		case strings.HasPrefix(s.Name, "model.layers.") && len(s.Shape) == 2:
			roundInt8(flat[i], s.Shape[1])
		}
	}
	return m.NewWeights(w.Version, flat)
}

// roundBFloat16 rounds finite values to the nearest that ends in 16 zero bits, ties to even. Values beyond the largest
// become infinite, as in the formats' conversion.
func roundBFloat16(data []float32) {
	for i, v := range data {
		bits := math.Float32bits(v)
		bits += 0x7fff + bits>>16&1
		data[i] = math.Float32frombits(bits &^ 0xffff)
	}
}

// roundInt8 rounds a matrix [out, in] row by row. A row of zeros stays.
func roundInt8(data []float32, in int) {
	for from := 0; from < len(data); from += in {
		row, largest := data[from:from+in], float32(0)
		for _, v := range row {
			largest = max(largest, v, -v)
		}
		if largest == 0 {
			continue
		}
		scale := float64(largest) / 127 // in float64 it cannot underflow, and the largest weight stays as it is
		for i, v := range row {
			row[i] = float32(math.RoundToEven(float64(v)/scale) * scale)
		}
	}
}
