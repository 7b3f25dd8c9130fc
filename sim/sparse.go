package sim

import (
	"context"
	"fmt"
	"strconv"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

// Sparse makes valid groups of rollouts that hold as few tokens as a schedule can tell apart: one for each piece of a
// group's time in which other weights may be taken up. Package pipeline counts them in place of positions: with its
// MaxTokens set to Pieces and its Chunk to 1, weights are taken up Pieces times in each group, however long it is.
type Sparse struct {
	Seed    uint64
	Lengths Lengths // a rollout has a share of the pieces, its length over that of its group's longest; nil: Constant(1)
	Pieces  int     // >= 1; 0: 1
}

// Start begins a group.
func (s Sparse) Start(job pipeline.Job) (pipeline.Generation, error) {
	if job.Size < 1 || s.Pieces < 0 {
		return nil, fmt.Errorf("group of %d rollouts in %d pieces: want at least 1 and 0", job.Size, s.Pieces)
	}
	x := &sparseGroup{job: job, pieces: max(1, s.Pieces), digest: mix(s.Seed, job.Number)}
	if x.pieces > 1 && s.Lengths != nil {
		x.lengths = drawLengths(s.Lengths, s.Seed, job.Number, job.Size)
	}
	x.versions = make([]rollout.Version, 0, x.pieces)
	return x, nil
}

// sparseGroup is a group being made.
type sparseGroup struct {
	job      pipeline.Job
	pieces   int
	lengths  []int // of the rows; nil: all alike
	digest   uint64
	versions []rollout.Version // of the pieces made
}

// Continue makes up to n further pieces, all when n <= 0.
func (x *sparseGroup) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
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

// Rollouts returns the group. Its rollouts share their arrays, and lie in one; the text of each is a small number, so that a Task's
// rewards of them differ.
func (x *sparseGroup) Rollouts() ([]*rollout.Rollout, error) {
	if len(x.versions) < x.pieces {
		return nil, fmt.Errorf("group of job %d has %d of %d pieces", x.job.Number, len(x.versions), x.pieces)
	}
	tokens, mask, logprobs := make([]int32, x.pieces), make([]uint8, x.pieces), make([]float32, x.pieces)
	for p := range x.pieces {
		h := mix(x.digest, uint64(p))
		tokens[p], mask[p], logprobs[p] = int32(h>>48), 1, -unit(h)
	}
	rows := make([]rollout.Rollout, x.job.Size)
	group := make([]*rollout.Rollout, x.job.Size)
	for i := range rows {
		n := x.share(i)
		rows[i] = rollout.Rollout{
			PromptID: x.job.Prompt.ID, Temperature: 1, TopP: 1,
			Tokens: tokens[:n:n], Mask: mask[:n:n], Logprobs: logprobs[:n:n], Versions: x.versions[:n:n],
			Text: strconv.Itoa(int(mix(x.digest, uint64(i)) % 100)),
		}
		group[i] = &rows[i]
	}
	return group, nil
}

// share returns the pieces of row i.
func (x *sparseGroup) share(i int) int {
	if x.lengths == nil {
		return x.pieces
	}
	longest := 1
	for _, n := range x.lengths {
		longest = max(longest, n)
	}
	return max(1, (x.pieces*x.lengths[i]+longest-1)/longest)
}
