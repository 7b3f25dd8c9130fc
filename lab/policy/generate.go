package policy

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Sampling says how tokens are drawn.
type Sampling struct {
	Temperature float64 // divides the logits; 0: greedy, with log-probs at temperature 1
	TopP        float64 // nucleus in (0, 1]; 0: 1
	MaxTokens   int     // tokens that the policy may write in a turn, >= 1
	Stop        []int32 // tokens that end a turn and are part of it
	// reports whether a turn ends with its latest token, besides those of Stop; nil: no. It must depend on the turn alone
	Ends           func(turn []int32) bool
	RecomputeCache bool // recompute the key-value cache when the weights change between calls of Continue
}

// Validate reports every field that is out of range, as [option.Error]s.
func (s Sampling) Validate() error {
	var p option.Problems
	p.Check(s.Temperature >= 0 && s.Temperature <= 100, "temperature", s.Temperature, "0 (greedy) to 100")
	p.Check(s.TopP >= 0 && s.TopP <= 1, "top_p", s.TopP, "a share in (0, 1], or 0 for 1")
	p.Check(s.MaxTokens >= 1, "max_tokens", s.MaxTokens, "1 or more")
	return p.Err()
}

// Generation decodes a batch of rows, whose prompts may differ in length, with a key-value cache. A turn is decoded by
// Continue until every row is Done; Extend gives rows another turn. A Generation is used from one goroutine at a time;
// several may run at once on one Model.
type Generation struct {
	model     *Model
	rows      []Row
	cache     *cache
	sampler   *sampler        // whose memory all rows use
	recompute bool            // Sampling.RecomputeCache
	version   rollout.Version // of the weights of the latest pass
}

// drawing is how the tokens of a row are drawn.
type drawing struct {
	sampler   *sampler
	maxTokens int
	stop      map[int32]bool
	ends      func(turn []int32) bool
}

// Row is one sequence being generated. All slices but Images have length L, the tokens so far. They are laid out as in
// rollout.Rollout, which may take them over when the generation is finished.
type Row struct {
	Tokens []int32 // [L] prompt, turns of the policy, and the environment's answers between them
	Mask   []uint8 // [L] 1 where the policy produced the token
	// [L] log-softmax(logits/temperature) over the ids of SamplingMask, or without one over the whole vocabulary; 0 where
	// Mask is 0
	Logprobs     []float32
	SamplingMask rollout.IDLists   // [L] the nucleus that the token was drawn from; none where Mask is 0, or with top-p 1
	Versions     []rollout.Version // [L] that produced the token; NoVersion where Mask is 0
	Values       []float32         // [L] the critic's value before the token, 0 where Mask is 0; nil without a value head
	Images       [][]byte          // PNG, in the order of their runs of image tokens
	Prompt       int               // tokens of the prompt
	Turn         int               // index of the first token of the latest turn
	Done         bool              // the turn is over: it ended with a stop token or ran out of room
	Truncated    bool              // the turn ran out of room without a stop token
	rng          *rand.Rand
	drawing      *drawing
	nuclei       bool // the row has a SamplingMask
}

// addInput appends tokens that the policy did not produce. The next turn begins after them.
func (r *Row) addInput(in Input, critic bool) {
	for _, t := range in.Tokens {
		r.addToken(t, 0, 0, nil, rollout.NoVersion)
		if critic {
			r.Values = append(r.Values, 0)
		}
	}
	r.Images = append(r.Images, in.Images...)
	r.Turn, r.Done, r.Truncated = len(r.Tokens), false, false
}

func (r *Row) addToken(token int32, mask uint8, logprob float32, nucleus []int32, v rollout.Version) {
	r.Tokens, r.Mask = append(r.Tokens, token), append(r.Mask, mask)
	r.Logprobs, r.Versions = append(r.Logprobs, logprob), append(r.Versions, v)
	if r.nuclei {
		r.SamplingMask.Append(nucleus...)
	}
}

// room returns how many more tokens the turn has room for.
func (r *Row) room(positions int) int {
	if r.Done {
		return 0
	}
	return min(r.drawing.maxTokens-(len(r.Tokens)-r.Turn), positions-len(r.Tokens))
}

// Start prepares rows for generation. streams has one random stream per row and may be nil when greedy. Work begins
// with the first Continue.
func (m *Model) Start(prompts []Input, streams []*rand.Rand, s Sampling) (*Generation, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Temperature > 0 && len(streams) != len(prompts) {
		return nil, fmt.Errorf("start generation: %d random streams for %d prompts: give one to each",
			len(streams), len(prompts))
	}
	g := m.newGeneration(len(prompts))
	g.recompute = s.RecomputeCache
	d := g.newDrawing(s)
	for i, in := range prompts {
		var stream *rand.Rand
		if streams != nil {
			stream = streams[i]
		}
		if err := g.begin(i, in, stream, d); err != nil {
			return nil, fmt.Errorf("start generation: %w", err)
		}
	}
	return g, nil
}

// StartIdle prepares a generation of a number of rows, all of them Done, for prompts that come one by one: see
// [Generation.Replace].
func (m *Model) StartIdle(rows int) *Generation {
	g := m.newGeneration(rows)
	for i := range g.rows {
		g.rows[i].Done = true
	}
	return g
}

func (m *Model) newGeneration(rows int) *Generation {
	g := &Generation{model: m, rows: make([]Row, rows), cache: newCache(m, rows),
		sampler: newSampler(m.config.VocabSize, Sampling{})}
	if tower := m.config.Vision; tower.Tokens() > 0 {
		// An image token that the policy wrote would be taken for a patch in stored steps, whose earlier turns have no
		// mask. Its probability still counts in the log-probs, so that Score and the learner need not know who drew a
		// token.
		g.sampler.suppressed = []int32{int32(tower.ImageTokenID)}
	}
	return g
}

func (g *Generation) newDrawing(s Sampling) *drawing {
	own := *g.sampler
	own.temperature, own.topP = s.Temperature, cmp.Or(s.TopP, 1)
	d := &drawing{sampler: &own, maxTokens: s.MaxTokens, stop: make(map[int32]bool), ends: s.Ends}
	for _, t := range s.Stop {
		d.stop[t] = true
	}
	return d
}

// begin begins a row with a prompt.
func (g *Generation) begin(i int, in Input, stream *rand.Rand, d *drawing) error {
	in.Mask = nil // the policy wrote none of it
	if err := g.model.checkInput(i, in); err != nil {
		return err
	}
	if n, positions := len(in.Tokens), g.model.config.MaxPositionEmbeddings; n >= positions {
		return fmt.Errorf("prompt %d has %d tokens, the model's %d positions leave no room for a completion: shorten it",
			i, n, positions)
	}
	row := Row{Prompt: len(in.Tokens), rng: stream, drawing: d,
		nuclei: d.sampler.temperature > 0 && d.sampler.topP < 1}
	row.addInput(in, g.model.config.ValueHead)
	g.rows[i] = row
	return nil
}

// BeginTurns has the last n tokens of every row's prompt be the beginning of its turn, which the policy did not write. It
// is called before the first Continue.
func (g *Generation) BeginTurns(n int) error {
	for i := range g.rows {
		row := &g.rows[i]
		if n < 0 || n > row.Prompt || n > 0 && n >= row.drawing.maxTokens {
			return fmt.Errorf("begin the turn of row %d with %d of the %d tokens of its prompt: want fewer than the %d of a turn",
				i, n, row.Prompt, row.drawing.maxTokens)
		}
		row.Turn -= n
	}
	return nil
}

// Replace gives a row that is Done to another prompt, with a sampling and a random stream of its own; RecomputeCache is
// that of the generation. The next Continue reads the prompt. Rows of several prompts cost a pass for each time that
// prompts are read, and nothing besides: what one row does changes no other.
func (g *Generation) Replace(row int, in Input, stream *rand.Rand, s Sampling) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := g.Release(row); err != nil {
		return err
	}
	if err := g.begin(row, in, stream, g.newDrawing(s)); err != nil {
		return fmt.Errorf("replace a row: %w", err)
	}
	return nil
}

// Release gives up a row, which is Done from now on and has no tokens. Others go on.
func (g *Generation) Release(row int) error {
	if row < 0 || row >= len(g.rows) {
		return fmt.Errorf("release row %d: there are %d rows", row, len(g.rows))
	}
	g.rows[row] = Row{Done: true}
	g.cache.forget(row)
	return nil
}

// Rows returns the rows so far. They must not be changed before Done.
func (g *Generation) Rows() []Row { return g.rows }

// Done reports whether every row is Done.
func (g *Generation) Done() bool {
	for i := range g.rows {
		if !g.rows[i].Done {
			return false
		}
	}
	return true
}

// Extend gives a row that is Done another turn: it appends the environment's answer, which may be empty, and the next
// Continue reads it before it decodes the turn. It reports false and leaves the row as it was if the model's positions
// have no room for the input and one more token.
//
// One pass reads all extended rows, whatever their number: let every row finish before extending any. Rows that are
// never extended cost as much as the others as long as those go on.
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
	r.addInput(in, g.model.config.ValueHead)
	return true, nil
}

// Continue decodes up to n more positions with weights w, the whole turn when n <= 0, and reports whether every row is
// Done. The pass that reads prompts or extensions gives the first token after them and counts as one position.
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

// Close releases the memory of the key-value cache for other generations at once; otherwise the garbage collector does.
// The rows stay. A generation that continues after Close recomputes its cache.
func (g *Generation) Close() { g.cache.clear() }

// lookahead bounds the free slots that a cache reserves for tokens to come. Rows often stop long before their limit,
// and each slot costs every token attention.
const lookahead = 64

// step runs the tokens that rows have and the cache lacks. It returns the logits [B, Vocab] after each row's last token
// and, with a value head, the values [B] there; or of one row, if they are those of all.
func (g *Generation) step(w *Weights) (logits, values *tensors.Tensor, err error) {
	if g.recompute && g.version != w.Version {
		g.cache.clear()
	}
	g.version = w.Version
	if g.readAlike() {
		return g.readOnce(w)
	}
	c, err := g.nextPass()
	if err != nil {
		return nil, nil, err
	}
	soon := 0
	for i := range g.rows {
		// the last token is never passed
		soon = max(soon, g.rows[i].room(g.model.config.MaxPositionEmbeddings)-1)
	}
	out, err := g.pass(w, c, min(soon, lookahead))
	if err != nil {
		g.Close() // the cache may have been donated
		return nil, nil, err
	}
	logits, out = out[0], out[1:]
	if g.model.config.ValueHead {
		values, out = out[0], out[1:]
	}
	g.cache.tensors = out
	return logits, values, nil
}

// readAlike reports whether the next pass reads the same prompt for every row, as it does for a group.
func (g *Generation) readAlike() bool {
	if g.cache.tensors != nil || len(g.rows) == 1 {
		return false
	}
	first := &g.rows[0]
	for i := range g.rows {
		row := &g.rows[i]
		if row.Done || len(row.Tokens) > row.Prompt || !slices.Equal(row.Tokens, first.Tokens) ||
			!slices.EqualFunc(row.Images, first.Images, bytes.Equal) {
			return false
		}
	}
	return true
}

// readOnce is step for rows of one prompt: it reads the prompt in one row, whose keys and values all rows get. The
// logits and values that it returns are of all rows.
func (g *Generation) readOnce(w *Weights) (logits, values *tensors.Tensor, err error) {
	one := g.model.newGeneration(1)
	one.rows[0] = g.rows[0]
	if logits, values, err = one.step(w); err == nil {
		err = g.cache.repeat(one.cache)
	}
	return logits, values, err
}

// pass runs the decode program on the chunk and the cache, in which it first reserves soon more slots than the chunk
// needs.
func (g *Generation) pass(w *Weights, c passInput, soon int) ([]*tensors.Tensor, error) {
	if err := g.cache.reserve(c.length, soon); err != nil {
		return nil, err
	}
	m, rows, start := g.model, len(g.rows), g.cache.next
	g.cache.occupy(c.length, c.pending)
	args := w.args(
		tensors.FromFlatDataAndDimensions(c.tokens, rows, c.length),
		tensors.FromScalar(int32(start)),
		tensors.FromFlatDataAndDimensions(c.positions, rows, c.length),
		tensors.FromFlatDataAndDimensions(g.cache.bias, rows, g.cache.slots))
	args = append(args, c.images.args()...)
	args, err := m.donate(args, g.cache.tensors)
	if err != nil {
		return nil, err
	}
	return m.decode.call(dims{rows: rows, length: c.length, slots: g.cache.slots}, args)
}

// passInput is the tokens of one pass: of each row those that the cache lacks, right-aligned in S positions.
type passInput struct {
	length    int          // S
	pending   []int        // [B] tokens of each row
	tokens    []int32      // [B, S]
	positions []int32      // [B, S] of the tokens in their rows
	images    *imageInputs // nil in passes of one position, which have no images
}

// nextPass lays out the next pass. Rows that are Done take no part in it, unless the cache is empty: then all their
// tokens but the last are in the pass, as if they had been decoded.
func (g *Generation) nextPass() (passInput, error) {
	c := passInput{pending: make([]int, len(g.rows))}
	longest := 0
	for i := range g.rows {
		row, cached := &g.rows[i], g.cache.lengths[i]
		switch {
		case !row.Done:
			c.pending[i] = len(row.Tokens) - cached
		case cached == 0:
			c.pending[i] = max(len(row.Tokens)-1, 0)
		}
		longest = max(longest, c.pending[i])
	}
	c.length = g.roundPass(longest)
	c.tokens, c.positions = make([]int32, len(g.rows)*c.length), make([]int32, len(g.rows)*c.length)
	if c.length > 1 {
		c.images = g.model.newImageInputs(len(g.rows), c.length)
	}
	for i := range g.rows {
		if err := g.fill(c, i); err != nil {
			return passInput{}, fmt.Errorf("row %d: %w", i, err)
		}
	}
	return c, nil
}

// roundPass rounds the length of a pass so that few are compiled. Answers between turns come at any length and with
// each size of the cache, so short ones are rounded more coarsely than first passes. The backend multiplies four tokens
// at once, and takes longer for each that is left over.
func (g *Generation) roundPass(n int) int {
	switch {
	case n == 1 && g.cache.tensors != nil:
		return 1
	case g.cache.tensors != nil && n <= 32:
		return (n + 3) / 4 * 4
	}
	if len(g.rows)%2 != 0 { // lengths are even
		n = (n + 3) / 4 * 4
	}
	return roundLength(n, n+g.model.config.MaxPositionEmbeddings)
}

// fill writes the pending tokens of a row into the chunk.
func (g *Generation) fill(c passInput, i int) error {
	row, from, to := &g.rows[i], g.cache.lengths[i], g.cache.lengths[i]+c.pending[i]
	at := c.length - c.pending[i]
	for j := from; j < to; j++ {
		c.tokens[i*c.length+at+j-from], c.positions[i*c.length+at+j-from] = row.Tokens[j], int32(j)
	}
	tower := g.model.config.Vision
	if c.images == nil || tower.Tokens() == 0 {
		return nil
	}
	done := g.model.countImageTokens(row.Tokens[:from], row.Mask) / tower.Tokens()
	return c.images.add(i, at, row.Tokens[from:to], row.Mask[from:to], row.Images[done:])
}

// draw draws a token for every row that is not Done, from the logits and values of a step.
func (g *Generation) draw(logits, values *tensors.Tensor, v rollout.Version) error {
	var rowValues []float32
	if values != nil {
		flat, err := copyAll([]*tensors.Tensor{values})
		if err != nil {
			return fmt.Errorf("read values: %w", err)
		}
		rowValues = flat[0]
		values.FinalizeAll()
	}
	var drawErr error
	err := tensors.ConstFlatData(logits, func(flat []float32) { drawErr = g.drawTokens(flat, rowValues, v) })
	if err != nil {
		return fmt.Errorf("read logits: %w", err)
	}
	logits.FinalizeAll()
	return drawErr
}

func (g *Generation) drawTokens(logits, values []float32, v rollout.Version) error {
	vocab := g.model.config.VocabSize
	for i := range g.rows {
		row := &g.rows[i]
		if row.Done {
			continue
		}
		at := i % (len(logits) / vocab) // 0 if all rows have the logits of one
		token, logprob, nucleus, err := row.drawing.sampler.draw(logits[at*vocab:(at+1)*vocab], row.rng)
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		row.addToken(token, 1, logprob, nucleus, v)
		if values != nil {
			row.Values = append(row.Values, values[at])
		}
		switch {
		case row.drawing.stop[token] || row.drawing.ends != nil && row.drawing.ends(row.Tokens[row.Turn:]):
			row.Done = true
		case row.room(g.model.config.MaxPositionEmbeddings) <= 0:
			row.Done, row.Truncated = true, true
		}
	}
	return nil
}

// decodeGraph: parameters, tokens [B, S], slot of the first position, positions [B, S], bias of the slots [B, slots],
// images if S > 1, cache -> logits [B, Vocab] after the last position, values [B] there with a value head, cache.
func (m *Model) decodeGraph(in []*Node) []*Node {
	d, rest := m.split(in)
	tokens, at := rest[0], placement{start: rest[1], positions: rest[2], bias: rest[3]}
	rest = rest[4:]
	batch, length := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	if d.Vision.Tokens() > 0 && length > 1 {
		at.images, rest = d.imageNodesOf(rest), rest[2:]
	}
	at.cache = rest
	if length > 1 {
		at.wanted = MulScalar(Ones(tokens.Graph(), shapes.Make(dtypes.Int32, batch, 1)), length-1)
	}
	last, cache := d.forward(tokens, at) // [B, 1, Hidden]
	out := []*Node{d.logits(Reshape(last, batch, m.config.HiddenSize))}
	if v := d.values(last); v != nil {
		out = append(out, Reshape(v, batch))
	}
	return append(out, cache...)
}
