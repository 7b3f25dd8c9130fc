package prompts

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/reprise-rl/reprise/replay/sealed"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// choosers is what choosers are saved as.
func choosers() sealed.Format { return sealed.Format{Magic: "reprcho", Version: 1} }

// Chooser fills the batches of whoever generates group by group: of every block of consecutive jobs, as many as a
// batch has groups, up to floor(f groups) ask prompts from a buffer, the rest fresh ones, which are numbered from 0
// up. It is a pipeline.Prompts, whose training prompts are known by number. It is used by one goroutine at a time;
// its buffer may be used by others.
type Chooser struct {
	buffer    *Buffer
	groups    int
	ident     func(number uint64) string
	threshold float32

	fresh    uint64   // the number of the next fresh prompt
	replayed uint64   // jobs that a prompt from the buffer was chosen for
	block    []Prompt // taken from the buffer for the present block and not chosen yet
}

// NewChooser returns a chooser that has chosen nothing yet. A batch has groups of rollouts, at least 1; ident
// returns the name of the training prompt of a number, under which the buffer keeps it, and is a pure function; a
// rollout is correct whose reward is the threshold or more.
func NewChooser(b *Buffer, groups int, ident func(number uint64) string, threshold float32) (*Chooser, error) {
	var problems option.Problems
	problems.Check(groups >= 1, "groups", groups, "1 or more for each batch")
	problems.Check(!math.IsNaN(float64(threshold)), "threshold", threshold, "a number")
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return &Chooser{buffer: b, groups: groups, ident: ident, threshold: threshold}, nil
}

// Choose returns the number of the prompt of a job, and whether it comes from the buffer. It is called once for each
// job, in order of their numbers from 0, at the trainers' version v. At the first job of a block the buffer is asked
// for the whole block; its prompts go first.
func (c *Chooser) Choose(job uint64, v rollout.Version) (prompt uint64, replayed bool) {
	if job%uint64(c.groups) == 0 {
		c.block = c.buffer.Next(v, c.groups)
	}
	if len(c.block) > 0 {
		prompt = c.block[0].Ref
		c.block = c.block[1:]
		c.replayed++
		return prompt, true
	}
	c.fresh++
	return c.fresh - 1, false
}

// Report tells the buffer at version v what came of a prompt: its pass rate is the share of the rollouts, at least
// one, that are correct. The number is the one that the prompt is asked by when it is replayed; replayed is what Choose
// said of the job.
func (c *Chooser) Report(v rollout.Version, prompt uint64, replayed bool, rollouts []*rollout.Rollout) error {
	r := Result{Prompt: Prompt{c.ident(prompt), prompt}, Total: len(rollouts), Replayed: replayed}
	for _, x := range rollouts {
		if x.Reward >= c.threshold {
			r.Correct++
		}
	}
	return c.buffer.Report(v, r)
}

// ChooserStats is what a [Chooser] has chosen since it was made, and the statistics of its buffer.
type ChooserStats struct {
	Fresh    uint64 // jobs with a fresh prompt
	Replayed uint64 // jobs with a prompt from the buffer; Buffer.Replayed counts those taken for jobs to come, too
	Buffer   Stats
}

// Stats returns the present statistics.
func (c *Chooser) Stats() ChooserStats {
	return ChooserStats{Fresh: c.fresh, Replayed: c.replayed, Buffer: c.buffer.Stats()}
}

// chooserImage is a chooser's whole state for encoding/gob.
type chooserImage struct {
	Groups    int
	Threshold float32
	Fresh     uint64
	Replayed  uint64
	Block     []Prompt
	Buffer    image
}

// Snapshot writes the whole state of the chooser and of its buffer: those restored from it do what these would
// have done.
func (c *Chooser) Snapshot(w io.Writer) error {
	im := chooserImage{c.groups, c.threshold, c.fresh, c.replayed, c.block, c.buffer.image()}
	if err := choosers().Write(w, &im); err != nil {
		return fmt.Errorf("writing a prompt chooser's snapshot: %w", err)
	}
	return nil
}

// Restore replaces the whole state of the chooser and of its buffer by a snapshot's, as [Buffer.Restore] does.
func (c *Chooser) Restore(r io.Reader) error {
	var im chooserImage
	err := choosers().Open(r, &im)
	if err == nil {
		err = errors.Join(im.check(c), im.Buffer.check(c.buffer.options))
	}
	if err != nil {
		return fmt.Errorf("restoring a prompt chooser: %w", err)
	}
	c.fresh, c.replayed, c.block = im.Fresh, im.Replayed, im.Block
	c.buffer.setImage(im.Buffer)
	return nil
}

// check names what a chooser like c could not have written.
func (im *chooserImage) check(c *Chooser) error {
	if im.Groups != c.groups || im.Threshold != c.threshold {
		return fmt.Errorf("%d groups per batch and threshold %g in the snapshot, %d and %g here: give the chooser "+
			"the snapshot's: %w",
			im.Groups, im.Threshold, c.groups, c.threshold, rollout.ErrInvalid)
	}
	if n := c.buffer.options.share(c.groups); len(im.Block) > n {
		return fmt.Errorf("%d prompts of a block are from the buffer, %d may be: %w", len(im.Block), n,
			rollout.ErrInvalid)
	}
	return nil
}
