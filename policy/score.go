package policy

import (
	"context"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
)

// Score is what a model says of one sequence of L tokens. Entry i speaks of token i; entry 0, which nothing
// precedes, is 0.
type Score struct {
	Logprobs []float32 // [L] natural log of softmax(logits/temperature)
	Entropy  []float32 // [L] of the distribution that token i was drawn from, in nats
}

// scoreBatch bounds the rows of one scoring pass.
const scoreBatch = 64

// Score runs sequences through weights w at a temperature > 0.
func (m *Model) Score(ctx context.Context, w *Weights, sequences [][]int32, temperature float64) ([]Score, error) {
	if !(temperature > 0) {
		return nil, fmt.Errorf("score: temperature %g is out of range: give more than 0", temperature)
	}
	for i, s := range sequences {
		if err := m.checkTokens(i, s); err != nil {
			return nil, fmt.Errorf("score: %w", err)
		}
		if len(s) > m.config.MaxPositionEmbeddings {
			return nil, fmt.Errorf("score: row %d has %d tokens, the model %d positions: shorten it", i, len(s), m.config.MaxPositionEmbeddings)
		}
	}
	scores := make([]Score, 0, len(sequences))
	for from := 0; from < len(sequences); from += scoreBatch {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		part, err := m.scorePass(w, sequences[from:min(from+scoreBatch, len(sequences))], temperature)
		if err != nil {
			return nil, fmt.Errorf("score rows from %d: %w", from, err)
		}
		scores = append(scores, part...)
	}
	return scores, nil
}

func (m *Model) scorePass(w *Weights, sequences [][]int32, temperature float64) ([]Score, error) {
	longest := 0
	for _, s := range sequences {
		longest = max(longest, len(s))
	}
	length := bucket(longest, m.config.MaxPositionEmbeddings)
	rows := bucket(len(sequences), scoreBatch)
	tokens := make([]int32, rows*length)
	heat := make([]float32, rows)
	for i := range rows {
		heat[i] = float32(temperature)
		if i < len(sequences) {
			copy(tokens[i*length:], sequences[i])
		}
	}
	out, err := m.score.call(extent{rows: rows, length: length},
		append(w.inputs(2), tensors.FromFlatDataAndDimensions(tokens, rows, length), tensors.FromValue(heat)))
	if err != nil {
		return nil, err
	}
	flat, err := copyAll(out)
	if err != nil {
		return nil, err
	}
	for _, t := range out {
		t.FinalizeAll()
	}
	scores := make([]Score, len(sequences))
	for i, s := range sequences {
		from := i * length
		scores[i] = Score{Logprobs: flat[0][from : from+len(s)], Entropy: flat[1][from : from+len(s)]}
	}
	return scores, nil
}

// scoreGraph: parameters, tokens [B, S], temperature [B] -> log-probs [B, S], entropies [B, S].
func (m *Model) scoreGraph(in []*Node) []*Node {
	d, rest := m.split(in)
	_, logprobs, entropy := d.score(rest[0], rest[1])
	return []*Node{logprobs, entropy}
}

// score returns for tokens [B, S] at temperature [B] each token's log-prob given those before it and the entropy
// of the distribution it was drawn from, both [B, S], 0 at the first token, and the logits [B, S-1, V] that both come
// from, before the temperature. Rows are padded on the right.
func (d *decoder) score(tokens, temperature *Node) (logits, logprobs, entropy *Node) {
	batch, length := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	hidden, _ := d.forward(SliceAxis(tokens, 1, AxisRange(0, length-1)), span{})
	logits = d.logits(hidden)
	scaled := Div(logits, Reshape(temperature, batch, 1, 1)) // [B, S-1, V]
	shifted := Sub(scaled, StopGradient(ReduceAndKeep(scaled, ReduceMax, -1)))
	e := Exp(shifted)
	sum := ReduceSum(e, -1)
	logSum := Log(sum)

	next := ExpandAxes(SliceAxis(tokens, 1, AxisRange(1, length)), -1)
	vocabulary := Iota(tokens.Graph(), shapes.Make(dtypes.Int32, 1, 1, d.VocabSize), 2)
	chosen := Equal(BroadcastToDims(next, shifted.Shape().Dimensions...), BroadcastToDims(vocabulary, shifted.Shape().Dimensions...))
	logprobs = Sub(ReduceSum(Where(chosen, shifted, ZerosLike(shifted)), -1), logSum)
	entropy = Sub(logSum, Div(ReduceSum(Mul(e, shifted), -1), sum))
	first := Zeros(tokens.Graph(), shapes.Make(dtypes.Float32, batch, 1))
	return logits, Concatenate([]*Node{first, logprobs}, 1), Concatenate([]*Node{first, entropy}, 1)
}
