// Package sim replaces the model: its generators, learner and task let the pipeline run schedules of any size. Who
// generates, waits and trains, and how stale rollouts get, depends on the pipeline's costs and not on the text of the
// rollouts.
//
// [Generator] makes valid rollouts of seeded lengths ([Constant], [Lognormal]). Their tokens are a digest of all they
// may depend on: the seed, the job, the number of its prompt, and the weights and positions they were decoded with. So
// a pipeline that resumes with the wrong weights or prompts makes other tokens. [Task] gives random rewards, the same
// for the same response. [Learner] counts steps.
//
// [Trial] runs a schedule around a buffer and returns a [Record]: staleness, uses, and who waited for how long. It
// serves clusters of thousands of GPUs, so its rollouts are [Sparse]. Its [Workload] makes groups differ in time:
// lengths, batching on workers, stragglers and reward latency. The mean cost stays that of the cost model.
// [PartedTable] is a buffer that is divided as a table over several services is, some of which are lost for a while.
//
// Everything is a pure function of the options.
package sim

import (
	"context"
	"fmt"
	"strconv"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/task"
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
		return nil, fmt.Errorf("group of %d rollouts with prompts of %d tokens: want at least 1 and 0", job.Size,
			g.Prompt)
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

type generation struct {
	job  pipeline.Job
	rows []row
	at   int // positions decoded
	left int // positions until the longest row has finished
}

// row is a rollout being generated.
type row struct {
	r      *rollout.Rollout
	prompt int
	digest uint64 // of all the row depends on so far
}

// newRow allocates a rollout and fills in its prompt.
func newRow(id string, prompt, completion int) row {
	n := prompt + completion
	r := &rollout.Rollout{
		PromptID: id, Temperature: 1, TopP: 1, Tokens: make([]int32, n), Mask: make([]uint8, n),
		Logprobs: make([]float32, n), Versions: make([]rollout.Version, n),
	}
	for i := range prompt {
		r.Versions[i] = rollout.NoVersion
	}
	return row{r: r, prompt: prompt}
}

// Continue decodes up to n more positions, all if n <= 0.
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

// decode fills in completion tokens at .. at+n-1, up to the row's length.
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

// Rollouts returns the group. The text of each rollout is its digest.
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

// Sparse makes valid groups with as few tokens as a schedule can tell apart: one per piece of a group's time in which
// the weights may differ. The pipeline counts pieces as positions: with MaxTokens set to Pieces and Chunk to 1, weights
// are switched Pieces times per group.
type Sparse struct {
	Seed uint64
	// a rollout has its length's share, relative to the group's longest, of the pieces; nil: Constant(1)
	Lengths Lengths
	Pieces  int // >= 1; 0: 1
}

// Start begins a group.
func (s Sparse) Start(job pipeline.Job) (pipeline.Generation, error) {
	if job.Size < 1 || s.Pieces < 0 {
		return nil, fmt.Errorf("group of %d rollouts in %d pieces: want at least 1 and 0", job.Size, s.Pieces)
	}
	x := &sparseGeneration{job: job, pieces: max(1, s.Pieces), digest: mix(s.Seed, job.Number)}
	if x.pieces > 1 && s.Lengths != nil {
		x.lengths = drawLengths(s.Lengths, s.Seed, job.Number, job.Size)
	}
	x.versions = make([]rollout.Version, 0, x.pieces)
	return x, nil
}

type sparseGeneration struct {
	job      pipeline.Job
	pieces   int
	lengths  []int // of the rows; nil: all alike
	digest   uint64
	versions []rollout.Version // of the pieces made
}

// Continue makes up to n more pieces, all if n <= 0.
func (x *sparseGeneration) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	left := x.pieces - len(x.versions)
	if n <= 0 || n > left {
		n = left
	}
	for range n {
		x.versions = append(x.versions, w.Version)
	}
	return n == left, nil
}

// Rollouts returns the group. Its rollouts share their per-token arrays. The text of each is a small number, so that a
// Task rewards them differently.
func (x *sparseGeneration) Rollouts() ([]*rollout.Rollout, error) {
	if len(x.versions) < x.pieces {
		return nil, fmt.Errorf("group of job %d has %d of %d pieces", x.job.Number, len(x.versions), x.pieces)
	}
	tokens, mask, logprobs := make([]int32, x.pieces), make([]uint8, x.pieces), make([]float32, x.pieces)
	for p := range x.pieces {
		h := mix(x.digest, uint64(p))
		tokens[p], mask[p], logprobs[p] = int32(h>>48), 1, -unit(h)
	}
	longest := 1
	for _, n := range x.lengths {
		longest = max(longest, n)
	}
	rows := make([]rollout.Rollout, x.job.Size)
	group := make([]*rollout.Rollout, x.job.Size)
	for i := range rows {
		n := x.pieces
		if x.lengths != nil {
			n = max(1, (x.pieces*x.lengths[i]+longest-1)/longest)
		}
		rows[i] = rollout.Rollout{
			PromptID: x.job.Prompt.ID, Temperature: 1, TopP: 1,
			Tokens: tokens[:n:n], Mask: mask[:n:n], Logprobs: logprobs[:n:n], Versions: x.versions[:n:n],
			Text: strconv.Itoa(int(mix(x.digest, uint64(i)) % 100)),
		}
		group[i] = &rows[i]
	}
	return group, nil
}

// Task rewards responses 1 or 0 at random.
type Task struct {
	Seed    uint64
	Accept  float64 // probability of the reward 1, in [0, 1]
	Spread  float64 // each prompt has its own probability, uniform in Accept ± Spread, cut to [0, 1]
	Prompts uint64  // number of prompts, asked over and over; 0: no limit
}

// Train returns prompt i, "sim-i", or "sim-(i mod Prompts)".
func (t Task) Train(i uint64) task.Prompt {
	if t.Prompts > 0 {
		i %= t.Prompts
	}
	return task.Prompt{ID: "sim-" + strconv.FormatUint(i, 10)}
}

// HeldOut returns no prompts: there is nothing to evaluate.
func (Task) HeldOut() []task.Prompt { return nil }

// Verify rewards a response at random; the same response to the same prompt always gets the same reward.
func (t Task) Verify(p task.Prompt, response string) task.Verdict {
	prompt := mixText(mix(t.Seed), p.ID)
	accept := t.Accept
	if t.Spread > 0 {
		accept += float64(t.Spread * (2*float64(unit(mix(prompt, 1))) - 1))
	}
	ok := float64(unit(mixText(prompt, response))) < accept
	v := task.Verdict{Correct: ok, Extracted: response}
	if ok {
		v.Reward = 1
	}
	return v
}

// Learner counts steps. The zero value has taken none.
type Learner struct {
	Version rollout.Version
}

// Step counts one. It measures the mean of the draws' importance weights ("weight") and a digest of what was drawn, by
// trainer and in order ("digest", an integer below 2^53).
func (l *Learner) Step(ctx context.Context, batches []*rollout.Batch) (pipeline.Measured, error) {
	if err := ctx.Err(); err != nil {
		return pipeline.Measured{}, err
	}
	var h uint64
	var weight, n float64
	for _, b := range batches {
		for _, d := range b.Draws {
			h = mix(h, uint64(d.ID), uint64(d.Rollout.Tokens[len(d.Rollout.Tokens)-1]), uint64(d.Staleness))
			weight += float64(d.Weight)
			n++
		}
	}
	l.Version++
	return pipeline.Measured{Metrics: map[string]float64{"digest": float64(h >> 11), "weight": weight / n}}, nil
}

// Weights returns the version without tensors.
func (l *Learner) Weights() pipeline.Weights { return pipeline.Weights{Version: l.Version} }

// mix returns a digest of its arguments in order: the finalizer of splitmix64, chained.
func mix(xs ...uint64) uint64 {
	var h uint64
	for _, x := range xs {
		h ^= x
		h += 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// mixText adds a text to a digest.
func mixText(h uint64, text string) uint64 {
	for _, c := range []byte(text) {
		h = mix(h, uint64(c))
	}
	return mix(h)
}

// unit returns a number in [0, 1) from the upper bits of a digest.
func unit(h uint64) float32 { return float32(h>>40) / (1 << 24) }
