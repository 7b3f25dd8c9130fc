package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/rollout"
)

// Sampling says how tokens are drawn.
type Sampling struct {
	Temperature    float64 // logits are divided by it; 0: greedy, log-probs then at temperature 1
	TopP           float64 // nucleus in (0, 1]; 0: 1
	MaxTokens      int     // tokens that the policy may write in a turn, >= 1
	Stop           []int32 // tokens that end a turn; the one met is part of it
	RecomputeCache bool    // recompute the key-value cache when the weights change between calls of Continue
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

// Generation decodes a batch of rows, whose prompts may differ in length, with a key-value cache, turn by turn: Continue until
// every row rests, Extend those that go on, and Continue again. It is used from one goroutine at a time; several may run
// at once on one Model.
type Generation struct {
	model    *Model
	sampling Sampling
	sampler  *sampler
	rows     []Row
	stop     map[int32]bool
	cache    *cache
	version  rollout.Version // of the weights of the latest pass
}

// Start prepares rows for generation; streams holds one random stream per row and may be nil when greedy.
// Work begins with the first Continue.
func (m *Model) Start(prompts []Input, streams []*rand.Rand, s Sampling) (*Generation, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Temperature > 0 && len(streams) != len(prompts) {
		return nil, fmt.Errorf("start generation: %d random streams for %d prompts: give one to each", len(streams), len(prompts))
	}
	g := &Generation{model: m, sampling: s, sampler: newSampler(m.config.VocabSize, s), stop: make(map[int32]bool)}
	if tower := m.config.Vision; tower.Tokens() > 0 {
		// What stands for a patch of an image is no text, and stored steps, whose earlier turns have no mask, rely on that. Its
		// probability counts in the log-probs all the same, so that Score and the learner need not know who drew a token.
		g.sampler.never = []int32{int32(tower.ImageTokenID)}
	}
	for _, t := range s.Stop {
		g.stop[t] = true
	}
	for i, in := range prompts {
		in.Mask = nil // the policy wrote none of it
		if err := m.checkInput(i, in); err != nil {
			return nil, fmt.Errorf("start generation: %w", err)
		}
		if n := len(in.Tokens); n >= m.config.MaxPositionEmbeddings {
			return nil, fmt.Errorf("start generation: prompt %d has %d tokens, the model's %d positions leave no room for a completion: shorten it", i, n, m.config.MaxPositionEmbeddings)
		}
		row := Row{Prompt: len(in.Tokens)}
		row.read(in, m.config.ValueHead)
		if streams != nil {
			row.rng = streams[i]
		}
		g.rows = append(g.rows, row)
	}
	g.cache = newCache(m, len(g.rows))
	return g, nil
}

// Rows returns the rows as far as they have come. They are not to be changed before Done.
func (g *Generation) Rows() []Row { return g.rows }

// Done reports whether every row rests.
func (g *Generation) Done() bool {
	for i := range g.rows {
		if !g.rows[i].Done {
			return false
		}
	}
	return true
}

// Extend lets a row that is Done go on with another turn: it appends what the environment said, which may be nothing, and the
// next Continue reads it before it decodes the turn. It reports false, and leaves the row as it was, if the model's positions
// leave no room for the input and one more token.
//
// All rows that go on are read in one pass, whatever their number: let every row come to rest before extending any. Rows
// that are never extended cost as much as the others as long as those go on.
func (g *Generation) Extend(row int, in Input) (bool, error) {
	switch {
	case row < 0 || row >= len(g.rows):
		return false, fmt.Errorf("extend row %d: there are %d rows", row, len(g.rows))
	case !g.rows[row].Done:
		return false, fmt.Errorf("extend row %d: its turn is not over: continue until the row is Done", row)
	}
	in.Mask = nil // the policy wrote none of it
	if len(in.Tokens) > 0 || len(in.Images) > 0 {
		if err := g.model.checkInput(row, in); err != nil {
			return false, fmt.Errorf("extend: %w", err)
		}
	}
	r := &g.rows[row]
	if len(r.Tokens)+len(in.Tokens) >= g.model.config.MaxPositionEmbeddings {
		return false, nil
	}
	r.read(in, g.model.config.ValueHead)
	return true, nil
}

// Continue decodes up to n further positions with weights w, all that remain of the turn when n <= 0, and reports whether every
// row rests. Rows stop on their own. The pass that reads prompts, or what Extend appended, gives the first token behind them
// and counts as one position.
func (g *Generation) Continue(ctx context.Context, w *Weights, n int) (bool, error) {
	for step := 0; (n <= 0 || step < n) && !g.Done(); step++ {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		logits, values, err := g.step(w)
		if err != nil {
			return false, fmt.Errorf("generate: %w", err)
		}
		if err := g.draw(logits, values, w.Version); err != nil {
			return false, err
		}
	}
	return g.Done(), nil
}

// Close gives the memory of the key-value cache back at once, for other generations to use; without it the garbage
// collector does when the generation is dropped. The rows stay. A generation that goes on nevertheless recomputes its cache.
func (g *Generation) Close() { g.cache.clear() }

// draw takes the logits [B, Vocab] and values [B] of a step, and draws a token for every row that does not rest.
func (g *Generation) draw(logits, values *tensors.Tensor, v rollout.Version) error {
	var err error
	worth := make([]float32, len(g.rows))
	if values != nil {
		if err := tensors.ConstFlatData(values, func(flat []float32) { copy(worth, flat) }); err != nil {
			return fmt.Errorf("read values: %w", err)
		}
		values.FinalizeAll()
	}
	if err := tensors.ConstFlatData(logits, func(flat []float32) { err = g.take(flat, worth, v) }); err != nil {
		return fmt.Errorf("read logits: %w", err)
	}
	logits.FinalizeAll()
	return err
}

// take draws the tokens on the host.
func (g *Generation) take(logits, values []float32, v rollout.Version) error {
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
		row.put(token, 1, logprob, v)
		if g.model.config.ValueHead {
			row.Values = append(row.Values, values[i])
		}
		switch {
		case g.stop[token]:
			row.Done = true
		case row.ahead(g.sampling.MaxTokens, g.model.config.MaxPositionEmbeddings) <= 0:
			row.Done, row.Truncated = true, true
		}
	}
	return nil
}
