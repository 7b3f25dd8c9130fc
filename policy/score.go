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
	Values   []float32 // [L] of the critic before token i; nil without a value head
}

// scoreBatch bounds the rows of one scoring pass.
const scoreBatch = 64

// Score runs sequences through weights w at a temperature > 0.
func (m *Model) Score(ctx context.Context, w *Weights, sequences []Input, temperature float64) ([]Score, error) {
	if !(temperature > 0) {
		return nil, fmt.Errorf("score: temperature %g is out of range: give more than 0", temperature)
	}
	for i, in := range sequences {
		if err := m.checkInput(i, in); err != nil {
			return nil, fmt.Errorf("score: %w", err)
		}
		if n := len(in.Tokens); n > m.config.MaxPositionEmbeddings {
			return nil, fmt.Errorf("score: row %d has %d tokens, the model %d positions: shorten it", i, n, m.config.MaxPositionEmbeddings)
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

func (m *Model) scorePass(w *Weights, sequences []Input, temperature float64) ([]Score, error) {
	longest := 0
	for _, s := range sequences {
		longest = max(longest, len(s.Tokens))
	}
	length := bucket(longest, m.config.MaxPositionEmbeddings)
	rows := bucket(len(sequences), scoreBatch)
	tokens := make([]int32, rows*length)
	heat := make([]float32, rows)
	seen := m.newSight(rows, length)
	for i := range rows {
		heat[i] = float32(temperature)
		if i >= len(sequences) {
			continue
		}
		s := sequences[i]
		copy(tokens[i*length:], s.Tokens)
		if err := seen.put(i, 0, s.Tokens, s.Mask, s.Images); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
	}
	args := append(w.inputs(4), tensors.FromFlatDataAndDimensions(tokens, rows, length), tall(heat))
	out, err := m.score.call(extent{rows: rows, length: length}, append(args, seen.tensors()...))
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
		from, to := i*length, i*length+len(s.Tokens)
		scores[i] = Score{Logprobs: flat[0][from:to], Entropy: flat[1][from:to]}
		if m.config.ValueHead {
			scores[i].Values = flat[2][from:to]
		}
	}
	return scores, nil
}

// scoreGraph: parameters, tokens [B, S], temperature [B] and what the tower sees -> log-probs [B, S], entropies [B, S] and,
// of a model with a value head, values [B, S].
func (m *Model) scoreGraph(in []*Node) []*Node {
	d, rest := m.split(in)
	s := d.score(rest[0], rest[1], d.seen(rest[2:]))
	if s.values == nil {
		return []*Node{s.logprobs, s.entropy}
	}
	return []*Node{s.logprobs, s.entropy, s.values}
}

// scored is what the decoder says of tokens [B, S]. Entry t speaks of token t and of the state before it; the first, which
// nothing precedes, is 0.
type scored struct {
	logits   *Node // [B, S-1, V] that all else comes from, before the temperature: entry t is of token t+1
	logprobs *Node // [B, S] of the tokens at the temperature
	entropy  *Node // [B, S] of the distributions that the tokens were drawn from
	values   *Node // [B, S] of the critic, before the tokens; nil without a value head
}

// score runs tokens [B, S] at temperature [B]. Rows are padded on the right.
func (d *decoder) score(tokens, temperature *Node, seen images) scored {
	batch, length := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	hidden, _ := d.forward(SliceAxis(tokens, 1, AxisRange(0, length-1)), span{images: seen.until(length - 1)})
	logits := d.logits(hidden)
	scaled := Div(logits, Reshape(temperature, batch, 1, 1)) // [B, S-1, V]
	shifted := Sub(scaled, StopGradient(ReduceAndKeep(scaled, ReduceMax, -1)))
	e := Exp(shifted)
	sum := ReduceSum(e, -1)
	logSum := Log(sum)

	next := ExpandAxes(SliceAxis(tokens, 1, AxisRange(1, length)), -1)
	vocabulary := Iota(tokens.Graph(), shapes.Make(dtypes.Int32, 1, 1, d.VocabSize), 2)
	chosen := Equal(BroadcastToDims(next, shifted.Shape().Dimensions...), BroadcastToDims(vocabulary, shifted.Shape().Dimensions...))
	logprobs := Sub(ReduceSum(Where(chosen, shifted, ZerosLike(shifted)), -1), logSum)
	entropy := Sub(logSum, Div(ReduceSum(Mul(e, shifted), -1), sum))
	first := Zeros(tokens.Graph(), shapes.Make(dtypes.Float32, batch, 1))
	after := func(x *Node) *Node { return Concatenate([]*Node{first, x}, 1) }
	s := scored{logits: logits, logprobs: after(logprobs), entropy: after(entropy)}
	if v := d.values(hidden); v != nil {
		s.values = after(v)
	}
	return s
}

// values returns what the critic expects to come after hidden states [B, S, Hidden]: [B, S], nil without a value head.
func (d *decoder) values(hidden *Node) *Node {
	if !d.ValueHead {
		return nil
	}
	v := linear(hidden, d.weight["v_head.summary.weight"], d.weight["v_head.summary.bias"])
	return Reshape(v, hidden.Shape().Dim(0), hidden.Shape().Dim(1))
}
