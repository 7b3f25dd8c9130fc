package run

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/results"
)

// promptsFile is the part of a checkpoint that prompt replay needs.
const promptsFile = "prompts.gob"

// newChooser returns what chooses the prompts of a run, nil where each is asked in its turn. A batch of prompts is what makes a
// batch of rollouts.
func (s *session) newChooser() (*prompts.Chooser, error) {
	c := s.config
	if c.Prompts.Fraction == 0 {
		return nil, nil
	}
	buffer, err := prompts.New(c.Prompts.Options)
	if err != nil {
		return nil, under("prompts", err)
	}
	ident := func(number uint64) string { return s.task.Train(number).ID }
	return prompts.NewChooser(buffer, max(c.Pipeline.Batch/c.Pipeline.Group, 1), ident, *c.replayOptions(0).WithDefaults().PositiveThreshold)
}

// chosen gives the pipeline what chooses prompts, nil where each is asked in its turn and none again.
func (s *session) chosen() pipeline.Prompts {
	var chosen pipeline.Prompts
	if s.chooser != nil {
		chosen = s.chooser
	}
	if n := s.config.Prompts.Limit; n > 0 {
		return limitedPrompts{uint64(n), chosen}
	}
	return chosen
}

func (s *session) savePrompts(dir string) error {
	if s.chooser == nil {
		return nil
	}
	return writeStream(filepath.Join(dir, promptsFile), func(w *bufio.Writer) error { return s.chooser.Snapshot(w) })
}

func (s *session) restorePrompts(place string) error {
	if s.chooser == nil {
		return nil
	}
	f, err := os.Open(filepath.Join(place, promptsFile))
	if err != nil {
		return err
	}
	return errors.Join(s.chooser.Restore(bufio.NewReader(f)), f.Close())
}

// promptReplay writes what prompt replay did, nil without it.
func (s *session) promptReplay() *results.PromptReplay {
	if s.chooser == nil {
		return nil
	}
	o, st := s.config.Prompts.Options, s.chooser.Stats()
	out := &results.PromptReplay{
		Fraction: o.Fraction, Band: o.Band, Cooldown: o.Cooldown, MaxReuse: o.MaxReuse,
		Held: st.Buffer.Held, Replayed: st.Replayed, Fresh: st.Fresh, PassRates: histogram(&st.Buffer.PassRates),
	}
	for _, bin := range histogram(&st.Buffer.Reuses) {
		if bin[0] > 0 {
			out.Reuse = append(out.Reuse, bin)
		}
	}
	return out
}

// validatePrompts reports what is wrong with the choice of prompts.
func (c Config) validatePrompts() error {
	p := c.Pipeline
	var errs []error
	if c.Prompts.Limit < 0 {
		errs = append(errs, fmt.Errorf("prompts.limit: %d: want a number of training prompts, or 0 for all", c.Prompts.Limit))
	}
	if c.Prompts.Fraction > 0 && p.Group >= 1 && p.Batch/p.Group < 1 {
		errs = append(errs, fmt.Errorf("prompts.fraction: %g: want 0 where pipeline.batch (%d) has less than one group of %d", c.Prompts.Fraction, p.Batch, p.Group))
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, under("prompts", c.Prompts.Options.Validate()))...)
}
