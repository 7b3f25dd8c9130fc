package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
)

// NoiseOptions says how much is measured of the noise of a run's gradient.
type NoiseOptions struct {
	// Held is how many rollouts of the table are measured at most, a uniform choice. 0: 4096.
	Held int `yaml:"held" json:"held"`
	// Fresh is how many rollouts the weights generate to estimate the true gradient from, rounded up to whole groups. 0: 2048.
	Fresh int `yaml:"fresh" json:"fresh"`
	// Clipped keeps the objective's clipping and learner.max_log_ratio. Without it gradients are those of the loss with importance ratios
	// alone, which the theory supposes: where ratios are clipped, rollouts that were learned from have hardly any gradient after
	// some versions, and noise seems to fall with staleness while it is the signal that is lost.
	Clipped bool `yaml:"clipped" json:"clipped"`
	// Seed is of the choice, of the fresh rollouts and of the deal into micro-batches.
	Seed uint64 `yaml:"seed" json:"seed"`
}

func (o NoiseOptions) withDefaults() NoiseOptions {
	o.Held, o.Fresh = cmp.Or(o.Held, 4096), cmp.Or(o.Fresh, 2048)
	return o
}

// Validate reports every option that is out of its range.
func (o NoiseOptions) Validate() error {
	var errs []error
	if o.Held < 0 {
		errs = append(errs, fmt.Errorf("held: %d: want 1 or more rollouts of the table, or 0 for 4096", o.Held))
	}
	if o.Fresh < 0 {
		errs = append(errs, fmt.Errorf("fresh: %d: want 1 or more rollouts to generate, or 0 for 2048", o.Fresh))
	}
	return errors.Join(errs...)
}

// MeasureNoise measures the noise of the policy gradient of a run at its last checkpoint, in whose table rollouts of many ages stand
// beside the weights: how much one rollout's gradient deviates from the true one at each staleness, and how much of that the mean of a
// batch keeps. Gradients are those that the learner would take, with its objective and importance ratios, but with equal weights and, unless
// they are asked for as they are, without clipping; the true gradient is estimated from rollouts that the weights generate anew. The same folder and options give the same numbers.
//
// A run without a checkpoint, or with its table in a service, is measured by proxy: by the n/ESS of its importance ratios by age, from
// its summary.
func MeasureNoise(ctx context.Context, dir string, o NoiseOptions) (*results.Noise, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if results.IsComparison(dir) {
		return nil, fmt.Errorf("%s holds a comparison: name one of its runs, such as %s", dir, filepath.Join(dir, results.ReplayArm, "seed-1"))
	}
	c, err := LoadFolder(dir, nil)
	if err != nil {
		return nil, err
	}
	elsewhere, err := readRemote(dir)
	if err != nil {
		return nil, err
	}
	place, missing := findCheckpoint(dir)
	var n *results.Noise
	switch {
	case elsewhere != nil:
		n, err = noiseByProxy(dir, fmt.Sprintf("its rollouts are in table %s of a service", elsewhere.Address))
	case missing != nil:
		n, err = noiseByProxy(dir, "it has no checkpoint")
	default:
		n, err = noiseOf(ctx, c, dir, place, o.withDefaults())
	}
	if err != nil {
		return nil, fmt.Errorf("measure the noise of %s: %w", dir, err)
	}
	return n, nil
}

// noiseOf measures the noise at a checkpoint.
func noiseOf(ctx context.Context, c Config, dir, place string, o NoiseOptions) (*results.Noise, error) {
	if !o.Clipped {
		c.Learner = c.Learner.unclipped()
	}
	s, state, err := recall(ctx, c, dir, place)
	if err != nil {
		return nil, err
	}
	defer s.table.close()
	if state.Machine.Version == 0 {
		return nil, errors.New("its checkpoint is of version 0, before the first update: train it further by reprise train --resume")
	}
	fresh, err := s.freshDraws(ctx, state, o)
	if err != nil {
		return nil, fmt.Errorf("generate rollouts: %w", err)
	}
	held := s.heldDraws(o)
	meter := newNoiseMeter(len(fresh))
	b := &rollout.Batch{Draws: append(fresh, held...)}
	if err := s.learner.Gradients(ctx, b, func(i int, g []float32) error { return meter.add(b.Draws[i], g) }); err != nil {
		return nil, err
	}
	n := &results.Noise{Run: dir, Seed: c.Seed, Version: int(state.Machine.Version), Held: len(held), Fresh: len(fresh), Clipped: o.Clipped}
	if err := meter.fill(n); err != nil {
		return nil, err
	}
	return n, s.circumstances(n, state.Progress.Last)
}

// recall makes the session of a checkpoint as far as rollouts and gradients need it. Nothing is written.
func recall(ctx context.Context, c Config, dir, place string) (*session, *saved, error) {
	state, err := readState(place)
	if err != nil {
		return nil, nil, err
	}
	start, err := load(place)
	if err != nil {
		return nil, nil, err
	}
	s, err := newSession(ctx, c, start, dir, Hooks{}, false)
	if err != nil {
		return nil, nil, err
	}
	if state.Learner.Weights, err = start.weights.Flat(); err == nil {
		err = errors.Join(s.learner.Restore(state.Learner), s.table.restore(ctx, place))
	}
	if err != nil {
		s.table.close()
		return nil, nil, err
	}
	return s, state, nil
}

// unbounded is a bound of ratios that none comes to.
const unbounded = 1e30

// unclipped returns the section without what keeps far ratios from the gradient.
func (l Learner) unclipped() Learner {
	l.ClipLow, l.ClipHigh, l.DualClip, l.Clip, l.MaxLogRatio = 1, unbounded, 0, unbounded, 0
	return l
}
