package sim

import (
	"context"
	"fmt"
	"strconv"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

// Generator makes groups without a model.
type Generator struct {
	Seed    uint64
	Lengths Lengths // of completions; nil: Constant(8)
	Prompt  int     // tokens of each prompt, >= 0
}

// Start begins a group.
func (g *Generator) Start(job pipeline.Job) (pipeline.Generation, error) {
	if job.Size < 1 || g.Prompt < 0 {
		return nil, fmt.Errorf("group of %d rollouts with prompts of %d tokens: want at least 1 and 0", job.Size, g.Prompt)
	}
	lengths := g.Lengths
	if lengths == nil {
		lengths = Constant(8)
	}
	x := &generation{job: job, rows: make([]row, job.Size)}
	for i, n := range drawLengths(lengths, g.Seed, job.Number, job.Size) {
		x.rows[i] = newRow(job.Prompt.ID, g.Prompt, n)
		x.rows[i].digest = mix(mix(mix(g.Seed), job.Number, job.PromptNumber), uint64(i))
		x.left = max(x.left, n)
	}
	return x, nil
}

// generation is a group being made.
type generation struct {
	job  pipeline.Job
	rows []row
	at   int // positions decoded
	left int // positions until the longest row has finished
}

// row is a rollout being made.
type row struct {
	r      *rollout.Rollout
	prompt int
	digest uint64 // of everything the row depends on so far
}

// newRow allots a rollout with its prompt.
func newRow(id string, prompt, completion int) row {
	n := prompt + completion
	r := &rollout.Rollout{
		PromptID: id, Temperature: 1, TopP: 1,
		Tokens: make([]int32, n), Mask: make([]uint8, n), Logprobs: make([]float32, n), Versions: make([]rollout.Version, n),
	}
	for i := range prompt {
		r.Versions[i] = rollout.NoVersion
	}
	return row{r: r, prompt: prompt}
}

// Continue decodes up to n further positions, all when n <= 0.
func (x *generation) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if n <= 0 || n > x.left {
		n = x.left
	}
	for i := range x.rows {
		x.rows[i].decode(x.at, n, w.Version)
	}
	x.at += n
	x.left -= n
	return x.left == 0, nil
}

// decode makes completion tokens at .. at+n-1, as far as the row is long.
func (w *row) decode(at, n int, v rollout.Version) {
	w.digest = mix(mix(w.digest, uint64(at)), uint64(v))
	for p := w.prompt + at; p < min(w.prompt+at+n, len(w.r.Tokens)); p++ {
		w.digest = mix(w.digest)
		w.r.Tokens[p] = int32(w.digest >> 48)
		w.r.Mask[p] = 1
		w.r.Logprobs[p] = -unit(w.digest)
		w.r.Versions[p] = v
	}
}

// Rollouts returns the group. The text of each is its digest.
func (x *generation) Rollouts() ([]*rollout.Rollout, error) {
	if x.left > 0 {
		return nil, fmt.Errorf("group of job %d has %d positions left to decode", x.job.Number, x.left)
	}
	rs := make([]*rollout.Rollout, len(x.rows))
	for i, w := range x.rows {
		w.r.Text = strconv.FormatUint(w.digest, 36)
		rs[i] = w.r
	}
	return rs, nil
}
