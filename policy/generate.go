package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/rollout"
)

// Sampling says how tokens are drawn.
type Sampling struct {
	Temperature    float64 // logits are divided by it; 0: greedy, log-probs then at temperature 1
	TopP           float64 // nucleus in (0, 1]; 0: 1
	MaxTokens      int     // completion tokens per row, >= 1
	Stop           []int32 // tokens that end a row; the one met is part of its completion
	RecomputeCache bool    // recompute the key-value cache when the weights change between chunks
}

// Validate reports every field that is out of range.
func (s Sampling) Validate() error {
	var errs []error
	if !(s.Temperature >= 0 && s.Temperature <= 100) {
		errs = append(errs, fmt.Errorf("temperature: %g: want 0 (greedy) to 100", s.Temperature))
	}
	if !(s.TopP >= 0 && s.TopP <= 1) {
		errs = append(errs, fmt.Errorf("top_p: %g: want a share in (0, 1], or 0 for 1", s.TopP))
	}
	if s.MaxTokens < 1 {
		errs = append(errs, fmt.Errorf("max_tokens: %d: want 1 or more", s.MaxTokens))
	}
	return errors.Join(errs...)
}

// Row is one sequence being generated.
type Row struct {
	Tokens    []int32           // prompt and completion
	Prompt    int               // length of the prompt
	Logprobs  []float32         // of the completion's tokens: log-softmax(logits/temperature) before top-p
	Versions  []rollout.Version // that produced the completion's tokens
	Done      bool              // stopped or out of room
	Truncated bool              // out of room without a stop token
	rng       *rand.Rand
}

// Generation decodes a batch of rows, whose prompts may differ in length, with a key-value cache. It is
// used from one goroutine at a time; several may run at once on one Model.
//
// Prompts are padded on the left, so that all rows write the same cache slot at each step.
type Generation struct {
	model    *Model
	sampling Sampling
	sampler  *sampler
	rows     []Row
	stop     map[int32]bool
	padding  []int32 // [B] slots before each row's prompt
	next     int     // slot of the next token; the slots before it hold prompts and completions
	slots    int     // of the cache
	cache    []*tensors.Tensor
	version  rollout.Version // whose weights filled the cache
}

// Start prepares rows for generation; streams holds one random stream per row and may be nil when greedy.
// Work begins with the first Continue.
func (m *Model) Start(prompts [][]int32, streams []*rand.Rand, s Sampling) (*Generation, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Temperature > 0 && len(streams) != len(prompts) {
		return nil, fmt.Errorf("start generation: %d random streams for %d prompts: give one to each", len(streams), len(prompts))
	}
	g := &Generation{model: m, sampling: s, sampler: newSampler(m.config.VocabSize, s), stop: make(map[int32]bool)}
	for _, t := range s.Stop {
		g.stop[t] = true
	}
	longest := 0 // completion that any row has room for
	for i, p := range prompts {
		if err := m.checkTokens(i, p); err != nil {
			return nil, fmt.Errorf("start generation: %w", err)
		}
		if len(p) >= m.config.MaxPositionEmbeddings {
			return nil, fmt.Errorf("start generation: prompt %d has %d tokens, the model's %d positions leave no room for a completion: shorten it", i, len(p), m.config.MaxPositionEmbeddings)
		}
		room := min(s.MaxTokens, m.config.MaxPositionEmbeddings-len(p))
		row := Row{Tokens: append(make([]int32, 0, len(p)+room), p...), Prompt: len(p)}
		if streams != nil {
			row.rng = streams[i]
		}
		g.rows = append(g.rows, row)
		g.next, longest = max(g.next, len(p)), max(longest, room)
	}
	for _, p := range prompts {
		g.padding = append(g.padding, int32(g.next-len(p)))
	}
	// A row may use all of the model's positions; slots are positions plus the row's padding.
	g.slots = bucket(g.next+longest, g.next+m.config.MaxPositionEmbeddings)
	return g, nil
}

func (m *Model) checkTokens(row int, tokens []int32) error {
	if len(tokens) == 0 {
		return fmt.Errorf("row %d has no tokens: give at least one", row)
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= m.config.VocabSize {
			return fmt.Errorf("row %d, token %d: id %d is out of range: the vocabulary is 0 to %d", row, i, t, m.config.VocabSize-1)
		}
	}
	return nil
}

// Rows returns the rows as far as they have come. They are not to be changed before Done.
func (g *Generation) Rows() []Row { return g.rows }

// Done reports whether every row has finished.
func (g *Generation) Done() bool {
	for i := range g.rows {
		if !g.rows[i].Done {
			return false
		}
	}
	return true
}

// Continue decodes up to n further positions with weights w, all that remain when n <= 0, and reports whether
// every row has finished. Rows stop on their own.
func (g *Generation) Continue(ctx context.Context, w *Weights, n int) (bool, error) {
	if len(g.rows) == 0 {
		return true, nil
	}
	for step := 0; (n <= 0 || step < n) && !g.Done(); step++ {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		logits, err := g.step(w)
		if err != nil {
			return false, fmt.Errorf("generate position %d: %w", g.next, err)
		}
		if err := tensors.ConstFlatData(logits, func(flat []float32) { err = g.take(flat, w.Version) }); err != nil {
			return false, fmt.Errorf("read logits: %w", err)
		}
		logits.FinalizeAll()
		if err != nil {
			return false, err
		}
		g.next++
	}
	if g.Done() {
		g.release()
	}
	return g.Done(), nil
}

// release gives the cache back when nothing is left to decode.
func (g *Generation) release() {
	for _, t := range g.cache {
		t.FinalizeAll()
	}
	g.cache = nil
}

// step returns the logits [B, Vocab] that follow the last token of each row.
func (g *Generation) step(w *Weights) (*tensors.Tensor, error) {
	stale := g.sampling.RecomputeCache && g.version != w.Version
	if g.cache == nil || stale {
		g.version = w.Version
		return g.fill(w)
	}
	last := make([]int32, len(g.rows))
	for i := range g.rows {
		last[i] = g.tokenAt(i, g.next-1)
	}
	args := append(w.inputs(3+len(g.cache)),
		tensors.FromFlatDataAndDimensions(last, len(last), 1),
		tensors.FromScalar(int32(g.next-1)),
		tensors.FromValue(g.padding))
	for _, t := range g.cache {
		donated, err := DonateTensorBuffer(t, g.model.backend, 0)
		if err != nil {
			return nil, err
		}
		args = append(args, donated)
	}
	return g.run(g.model.decode, 1, args)
}

// fill runs all tokens so far through the model and makes the cache. The pass is a bucket long; what lies
// beyond the tokens is masked until decoding overwrites it.
func (g *Generation) fill(w *Weights) (*tensors.Tensor, error) {
	g.release()
	length := bucket(g.next, g.slots)
	tokens := make([]int32, len(g.rows)*length)
	for i := range g.rows {
		for s := range g.next {
			tokens[i*length+s] = g.tokenAt(i, s)
		}
	}
	empty := shapes.Make(dtypes.Float32, len(g.rows), g.model.config.NumKeyValueHeads, g.slots, g.model.config.HeadDim)
	args := append(w.inputs(3+2*g.model.config.NumHiddenLayers),
		tensors.FromFlatDataAndDimensions(tokens, len(g.rows), length),
		tensors.FromScalar(int32(g.next-1)),
		tensors.FromValue(g.padding))
	for range 2 * g.model.config.NumHiddenLayers {
		donated, err := DonateTensorBuffer(tensors.FromShape(empty), g.model.backend, 0)
		if err != nil {
			return nil, err
		}
		args = append(args, donated)
	}
	return g.run(g.model.prefill, length, args)
}

// tokenAt returns what stands in a slot of a row: 0 in its padding and after its end.
func (g *Generation) tokenAt(row, slot int) int32 {
	at := slot - int(g.padding[row])
	if at < 0 || at >= len(g.rows[row].Tokens) {
		return 0
	}
	return g.rows[row].Tokens[at]
}

func (g *Generation) run(p *program, length int, args []any) (*tensors.Tensor, error) {
	out, err := p.call(extent{len(g.rows), length, g.slots}, args)
	if err != nil {
		return nil, err
	}
	g.cache = out[1:]
	return out[0], nil
}

// take draws a token for every unfinished row from logits [B, Vocab].
func (g *Generation) take(logits []float32, v rollout.Version) error {
	vocab := g.model.config.VocabSize
	for i := range g.rows {
		row := &g.rows[i]
		if row.Done {
			continue
		}
		token, logprob, err := g.sampler.draw(logits[i*vocab:(i+1)*vocab], row.rng)
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		row.Tokens = append(row.Tokens, token)
		row.Logprobs = append(row.Logprobs, logprob)
		row.Versions = append(row.Versions, v)
		switch {
		case g.stop[token]:
			row.Done = true
		case len(row.Logprobs) == g.sampling.MaxTokens || len(row.Tokens) == g.model.config.MaxPositionEmbeddings:
			row.Done, row.Truncated = true, true
		}
	}
	return nil
}

// prefillGraph: parameters, tokens [B, S], last slot, padding [B], empty cache -> logits [B, Vocab] at the last
// slot, cache.
func (m *Model) prefillGraph(in []*Node) []*Node {
	d, rest := m.split(in)
	tokens, last, padding, cache := rest[0], rest[1], rest[2], rest[3:]
	hidden, filled := d.forward(tokens, span{padding: padding, cache: cache})
	slots := Iota(tokens.Graph(), shapes.Make(dtypes.Int32, 1, tokens.Shape().Dim(1), 1), 1)
	chosen := BroadcastToDims(Equal(slots, last), hidden.Shape().Dimensions...)
	at := ReduceSum(Where(chosen, hidden, ZerosLike(hidden)), 1) // the backend has no DynamicSlice
	return append([]*Node{d.logits(at)}, filled...)
}

// decodeGraph: parameters, tokens [B, 1], their slot, padding [B], cache -> logits [B, Vocab], cache.
func (m *Model) decodeGraph(in []*Node) []*Node {
	d, rest := m.split(in)
	tokens, slot, padding, cache := rest[0], rest[1], rest[2], rest[3:]
	hidden, grown := d.forward(tokens, span{start: slot, padding: padding, cache: cache})
	return append([]*Node{d.logits(Reshape(hidden, tokens.Shape().Dim(0), m.config.HiddenSize))}, grown...)
}
