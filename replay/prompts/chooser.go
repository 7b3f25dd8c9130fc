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
	buffer  *Buffer
	options ChooserOptions

	fresh    uint64   // the number of the next fresh prompt
	skipped  uint64   // fresh prompts that were passed over
	replayed uint64   // jobs that a prompt from the buffer was chosen for
	block    []Prompt // taken from the buffer for the present block and not chosen yet
}

// ChooserOptions say what a [Chooser] chooses for.
type ChooserOptions struct {
	Groups    int                        // of rollouts in a batch, at least 1
	Ident     func(number uint64) string // name of the training prompt of a number in the buffer: a pure function
	Threshold float32                    // a rollout is correct whose reward is that or more
	Seed      uint64                     // of which fresh prompts are passed over, with the option skip
}

// NewChooser returns a chooser that has chosen nothing yet.
func NewChooser(b *Buffer, o ChooserOptions) (*Chooser, error) {
	var problems option.Problems
	problems.Check(o.Groups >= 1, "groups", o.Groups, "1 or more for each batch")
	problems.Check(!math.IsNaN(float64(o.Threshold)), "threshold", o.Threshold, "a number")
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return &Chooser{buffer: b, options: o}, nil
}

// Choose returns the number of the prompt of a job, and whether it comes from the buffer. It is called once for each
// job, in order of their numbers from 0, at the trainers' version v. At the first job of a block the buffer is asked
// for the whole block; its prompts go first.
func (c *Chooser) Choose(job uint64, v rollout.Version) (prompt uint64, replayed bool) {
	if job%uint64(c.options.Groups) == 0 {
		c.block = c.buffer.Next(v, c.options.Groups)
	}
	if len(c.block) > 0 {
		prompt = c.block[0].Ref
		c.block = c.block[1:]
		c.replayed++
		return prompt, true
	}
	for range maxSkips {
		if !c.skips(c.fresh) {
			break
		}
		c.fresh++
		c.skipped++
	}
	c.fresh++
	return c.fresh - 1, false
}

// maxSkips bounds how many fresh prompts are passed over in a row.
const maxSkips = 1000

// skips reports whether the fresh prompt of a number is passed over.
func (c *Chooser) skips(number uint64) bool {
	if c.buffer.formulas.skip == nil {
		return false
	}
	p := c.buffer.Skip(c.options.Ident(number))
	return p > 0 && rollout.Stream(c.options.Seed, "prompts/skip", number).Float64() < p
}

// Report tells the buffer at version v what came of a prompt: its pass rate is the share of the rollouts, at least
// one, that are correct. The number is the one that the prompt is asked by when it is replayed; replayed is what Choose
// said of the job.
func (c *Chooser) Report(v rollout.Version, prompt uint64, replayed bool, rollouts []*rollout.Rollout) error {
	r := Result{Prompt: Prompt{c.options.Ident(prompt), prompt}, Total: len(rollouts), Replayed: replayed}
	for _, x := range rollouts {
		if x.Reward >= c.options.Threshold {
			r.Correct++
		}
	}
	return c.buffer.Report(v, r)
}

// ChooserStats is what a [Chooser] has chosen since it was made, and the statistics of its buffer.
type ChooserStats struct {
	Fresh    uint64 // jobs with a fresh prompt
	Skipped  uint64 // fresh prompts that were passed over
	Replayed uint64 // jobs with a prompt from the buffer; Buffer.Replayed counts those taken for jobs to come, too
	Buffer   Stats
}

// Stats returns the present statistics.
func (c *Chooser) Stats() ChooserStats {
	return ChooserStats{Fresh: c.fresh - c.skipped, Skipped: c.skipped, Replayed: c.replayed, Buffer: c.buffer.Stats()}
}

// chooserImage is a chooser's whole state for encoding/gob.
type chooserImage struct {
	Groups    int
	Threshold float32
	Fresh     uint64
	Skipped   uint64
	Replayed  uint64
	Block     []Prompt
	Buffer    image
}

// Snapshot writes the whole state of the chooser and of its buffer: those restored from it do what these would
// have done.
func (c *Chooser) Snapshot(w io.Writer) error {
	im := chooserImage{c.options.Groups, c.options.Threshold, c.fresh, c.skipped, c.replayed, c.block, c.buffer.image()}
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
	c.fresh, c.skipped, c.replayed, c.block = im.Fresh, im.Skipped, im.Replayed, im.Block
	c.buffer.setImage(im.Buffer)
	return nil
}

// check names what a chooser like c could not have written.
func (im *chooserImage) check(c *Chooser) error {
	if im.Groups != c.options.Groups || im.Threshold != c.options.Threshold {
		return fmt.Errorf("%d groups per batch and threshold %g in the snapshot, %d and %g here: give the chooser "+
			"the snapshot's: %w",
			im.Groups, im.Threshold, c.options.Groups, c.options.Threshold, rollout.ErrInvalid)
	}
	if im.Skipped > im.Fresh {
		return fmt.Errorf("%d of %d fresh prompts were passed over: %w", im.Skipped, im.Fresh, rollout.ErrInvalid)
	}
	if n := c.buffer.options.share(c.options.Groups); len(im.Block) > n {
		return fmt.Errorf("%d prompts of a block are from the buffer, %d may be: %w", len(im.Block), n,
			rollout.ErrInvalid)
	}
	return nil
}
