package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/rollout"
)

// Score is what a model computes for one sequence of L tokens. Entry i belongs to token i. Nothing precedes token 0, so
// entry 0 is 0.
type Score struct {
	Logprobs []float32 // [L] natural log of softmax(logits/temperature)
	Entropy  []float32 // [L] of the distribution that token i was drawn from, in nats
	Values   []float32 // [L] the critic's value before token i; nil without a value head
}

// scoreBatch bounds the rows of one scoring pass.
const scoreBatch = 64

// Score scores sequences with weights w at a temperature > 0.
func (m *Model) Score(ctx context.Context, w *Weights, sequences []Input, temperature float64) ([]Score, error) {
	if !(temperature > 0) {
		return nil, fmt.Errorf("score: temperature: %g: want more than 0", temperature)
	}
	for i, in := range sequences {
		if err := m.checkInput(i, in); err != nil {
			return nil, fmt.Errorf("score: %w", err)
		}
		if n := len(in.Tokens); n > m.config.MaxPositionEmbeddings {
			return nil, fmt.Errorf("score: row %d has %d tokens, the model %d positions: shorten it",
				i, n, m.config.MaxPositionEmbeddings)
		}
	}
	scores := make([]Score, 0, len(sequences))
	for from := 0; from < len(sequences); from += scoreBatch {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		part, err := m.scoreRows(w, sequences[from:min(from+scoreBatch, len(sequences))], float32(temperature))
		if err != nil {
			return nil, fmt.Errorf("score rows from %d: %w", from, err)
		}
		scores = append(scores, part...)
	}
	return scores, nil
}

// scoreRows scores sequences in one pass.
func (m *Model) scoreRows(w *Weights, sequences []Input, temperature float32) ([]Score, error) {
	longest := 0
	for _, s := range sequences {
		longest = max(longest, len(s.Tokens))
	}
	text := m.newText(roundLength(len(sequences), scoreBatch), roundLength(longest, m.config.MaxPositionEmbeddings))
	for i := range text.temperature {
		text.temperature[i] = temperature
	}
	for i, s := range sequences {
		copy(text.tokens[i*text.length:], s.Tokens)
		err := errors.Join(text.images.add(i, 0, s.Tokens, s.Mask, s.Images), text.restrict(i, s.SamplingMask))
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
	}
	flat, err := m.scoreText(w, text)
	if err != nil {
		return nil, err
	}
	scores := make([]Score, len(sequences))
	for i, s := range sequences {
		from, to := i*text.length, i*text.length+len(s.Tokens)
		scores[i] = Score{Logprobs: flat.Logprobs[from:to], Entropy: flat.Entropy[from:to]}
		if flat.Values != nil {
			scores[i].Values = flat.Values[from:to]
		}
	}
	return scores, nil
}

// text is the rows of a pass, padded on the right to one length.
type text struct {
	rows, length, vocab int
	tokens              []int32   // [rows, length]
	temperature         []float32 // [rows]
	images              *imageInputs
	allowed             []bool // [rows, length, vocab] ids that a token's softmax is over; nil: all
	scored              scored
}

// scored says which tokens of a text are scored, so that nothing is computed that only others need.
type scored struct {
	most   int     // tokens of a row, at most; 0: all tokens are scored
	before []int32 // [rows, most] positions before the scored tokens of each row, then 0
	place  []int32 // [rows, length] 1 + the index of a scored token in before; 0 for other tokens, whose score is 0
}

// scoreAtMost limits what is scored to n tokens of a row at most, if that is worth while.
func (t *text) scoreAtMost(n int) {
	n = roundLength(max(n, 1), t.length-1)
	if 4*n > 3*(t.length-1) {
		return
	}
	t.scored = scored{most: n, before: make([]int32, t.rows*n), place: make([]int32, t.rows*t.length)}
}

// scoreMasked marks the tokens of row i whose mask is 1 as scored.
func (t *text) scoreMasked(i int, mask []uint8) {
	if t.scored.most == 0 {
		return
	}
	next := i * t.scored.most
	for j, m := range mask {
		if m == 1 && j > 0 {
			t.scored.before[next] = int32(j - 1)
			next++
			t.scored.place[i*t.length+j] = int32(next)
		}
	}
}

// newText returns rows of padding at temperature 1.
func (m *Model) newText(rows, length int) text {
	t := text{rows: rows, length: length, vocab: m.config.VocabSize, tokens: make([]int32, rows*length),
		temperature: make([]float32, rows), images: m.newImageInputs(rows, length)}
	for i := range t.temperature {
		t.temperature[i] = 1
	}
	return t
}

// restrict limits the softmax of each token of row i to its list of ids, if that is not empty.
func (t *text) restrict(i int, lists rollout.IDLists) error {
	if lists.Len() > 0 && t.allowed == nil {
		t.allowed = slices.Repeat([]bool{true}, t.rows*t.length*t.vocab)
	}
	for j := range lists.Len() {
		ids, from := lists.At(j), (i*t.length+j)*t.vocab
		if len(ids) == 0 {
			continue
		}
		clear(t.allowed[from : from+t.vocab])
		for _, id := range ids {
			if id < 0 || int(id) >= t.vocab {
				return fmt.Errorf("sampling_mask: token %d has id %d: the vocabulary is 0 to %d", j, id, t.vocab-1)
			}
			t.allowed[from+int(id)] = true
		}
	}
	return nil
}

// dims returns the shapes of a program that scores the rows.
func (t *text) dims() dims {
	return dims{rows: t.rows, length: t.length, scored: t.scored.most, restricted: t.allowed != nil}
}

// perRow makes a tensor [rows], perToken one [rows, length].
func (t *text) perRow(x []float32) any { return tensors.FromFlatDataAndDimensions(x, t.rows) }

func (t *text) perToken(x []float32) any {
	return tensors.FromFlatDataAndDimensions(x, t.rows, t.length)
}

// args returns tokens and temperatures as arguments of a program.
func (t *text) args() []any {
	return []any{tensors.FromFlatDataAndDimensions(t.tokens, t.rows, t.length), t.perRow(t.temperature)}
}

// lastArgs returns the last arguments of a program that scores the rows, which [decoder.score] takes.
func (t *text) lastArgs() []any {
	args := t.images.args()
	if n := t.scored.most; n > 0 {
		args = append(args, tensors.FromFlatDataAndDimensions(t.scored.before, t.rows, n),
			tensors.FromFlatDataAndDimensions(t.scored.place, t.rows, t.length))
	}
	if t.allowed != nil {
		args = append(args, tensors.FromFlatDataAndDimensions(t.allowed, t.rows, t.length, t.vocab))
	}
	return args
}

// scoreText scores a pass; the result's slices are [rows, length].
func (m *Model) scoreText(w *Weights, t text) (Score, error) {
	out, err := m.score.call(t.dims(), append(w.args(t.args()...), t.lastArgs()...))
	if err != nil {
		return Score{}, fmt.Errorf("score %d rows x %d tokens: %w", t.rows, t.length, err)
	}
	flat, err := copyAll(out)
	if err != nil {
		return Score{}, err
	}
	for _, o := range out {
		o.FinalizeAll()
	}
	s := Score{Logprobs: flat[0], Entropy: flat[1]}
	if m.config.ValueHead {
		s.Values = flat[2]
	}
	return s, nil
}

// scoreGraph: parameters, tokens [B, S], temperature [B] and lastArgs -> log-probs [B, S], entropies [B, S] and, with a
// value head, values [B, S].
func (m *Model) scoreGraph(in []*Node) []*Node {
	d, rest := m.split(in)
	s := d.score(rest[0], rest[1], rest[2:])
	if s.values == nil {
		return []*Node{s.logprobs, s.entropy}
	}
	return []*Node{s.logprobs, s.entropy, s.values}
}

// scoreNodes is a Score in a graph. Nothing precedes a row's first token, so entry 0 is 0.
type scoreNodes struct {
	// [B, S-1, V] before the temperature, of which entry t is of token t+1, or [B, Q, V] of the scored tokens
	logits   *Node
	logprobs *Node // [B, S] of the tokens at the temperature
	entropy  *Node // [B, S] of the distributions that the tokens were drawn from
	values   *Node // [B, S] of the critic, before the tokens; nil without a value head
}

// score scores tokens [B, S] at temperature [B]. Rows are padded on the right. last are the nodes of text.lastArgs.
func (d *decoder) score(tokens, temperature *Node, last []*Node) scoreNodes {
	images := d.imageNodesOf(last)
	last = last[d.imageInputs():]
	batch, length := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	next := ExpandAxes(SliceAxis(tokens, 1, AxisRange(1, length)), -1) // [B, S-1, 1]
	after := func(x *Node) *Node {
		return Concatenate([]*Node{Zeros(x.Graph(), shapes.Make(dtypes.Float32, batch, 1)), x}, 1)
	}
	choose := func(x *Node) *Node { return x }
	at := placement{images: images.first(length - 1)}
	if len(last) >= 2 {
		before, place := last[0], last[1]
		last = last[2:]
		at.wanted, choose = before, func(x *Node) *Node { return pick(x, before) }
		after = func(x *Node) *Node {
			zero := Zeros(x.Graph(), shapes.Make(dtypes.Float32, 1))
			return Gather(Concatenate([]*Node{zero, Reshape(x, -1)}, 0), ExpandAxes(place, -1))
		}
	}
	hidden, _ := d.forward(SliceAxis(tokens, 1, AxisRange(0, length-1)), at)
	logits := d.logits(hidden)
	scaled := Div(logits, Reshape(temperature, batch, 1, 1)) // [B, S-1, V]
	if len(last) > 0 {
		allowed := choose(SliceAxis(last[0], 1, AxisRange(1, length)))
		scaled = Where(allowed, scaled, MulScalar(OnesLike(scaled), masked))
	}
	shifted := Sub(scaled, StopGradient(ReduceAndKeep(scaled, ReduceMax, -1)))
	e := Exp(shifted)
	sum := ReduceSum(e, -1)
	logSum := Log(sum)

	vocabulary := Iota(tokens.Graph(), shapes.Make(dtypes.Int32, 1, 1, d.VocabSize), 2)
	chosen := Equal(BroadcastToDims(choose(next), shifted.Shape().Dimensions...), BroadcastToDims(vocabulary,
		shifted.Shape().Dimensions...))
	logprobs := Sub(ReduceSum(Where(chosen, shifted, ZerosLike(shifted)), -1), logSum)
	entropy := Sub(logSum, Div(ReduceSum(Mul(e, shifted), -1), sum))
	s := scoreNodes{logits: logits, logprobs: after(logprobs), entropy: after(entropy)}
	if v := d.values(hidden); v != nil {
		s.values = after(v)
	}
	return s
}
