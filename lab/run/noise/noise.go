// Package noise measures the gradient noise of a training run: how much the gradient of one rollout deviates from the
// true gradient at each staleness, and how much of that deviation the mean of a batch keeps. The calculator in package
// design and the study `theory` fit their parameters to it.
//
// [Measure] opens a run's last checkpoint, whose table holds rollouts of many ages beside the weights. It takes the
// gradients that the learner would take, one rollout at a time, with the run's objective and importance ratios but with
// equal weights and, unless [Options.Clipped] is set, without clipping. The true gradient is estimated from rollouts
// that the weights generate anew. The same folder and options give the same numbers; the folder is not changed.
//
// A run without a checkpoint, or with its table in a service, is measured by a proxy: the n/ESS of its importance
// ratios by age, from its summary. [Meter] does the arithmetic, on any gradients.
//
// Beside the noise it measures how much of it returns when a rollout is used again: the correlation of the gradients of
// the same rollouts before and after updates on others.
package noise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Options says how much is measured.
type Options struct {
	// Held is the most rollouts of the table to measure, chosen uniformly. 0: 4096.
	Held int `yaml:"held" json:"held"`
	// Fresh is how many rollouts to generate for the estimate of the true gradient, rounded up to whole groups. 0:
	// 2048.
	Fresh int `yaml:"fresh" json:"fresh"`
	// Clipped keeps the objective's clipping and learner.max_log_ratio. Without it gradients have importance ratios
	// only, as the theory supposes: with clipping, stale rollouts lose their gradient, and noise seems to fall with
	// staleness.
	Clipped bool `yaml:"clipped" json:"clipped"`
	// Seed is of the choice, of the fresh rollouts and of the split into micro-batches.
	Seed uint64 `yaml:"seed" json:"seed"`
	// Progress is called from one goroutine with the share of the gradients that have been taken, in (0, 1]; nil: none.
	Progress func(share float64) `yaml:"-" json:"-"`
}

// Validate returns an [option.Error] for every option out of its range.
func (o Options) Validate() error {
	var p option.Problems
	p.Check(o.Held >= 0, "held", o.Held, "1 or more rollouts of the table, or 0 for 4096")
	p.Check(o.Fresh >= 0, "fresh", o.Fresh, "1 or more rollouts to generate, or 0 for 2048")
	return p.Err()
}

// Measure measures the gradient noise of the run in a folder.
func Measure(ctx context.Context, dir string, o Options) (*results.Noise, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Held, o.Fresh = cmp.Or(o.Held, 4096), cmp.Or(o.Fresh, 2048)
	var n *results.Noise
	var missing *run.NoTableError
	c, err := run.OpenSnapshot(ctx, dir, func(c *run.Config) {
		if !o.Clipped {
			c.Learner = unclipped(c.Learner)
		}
	})
	switch {
	case errors.As(err, &missing):
		n, err = measureByProxy(dir, missing.Why)
	case err == nil:
		defer c.Close()
		n, err = measure(ctx, c, dir, o)
	}
	if err != nil {
		return nil, fmt.Errorf("measure the noise of %s: %w", dir, err)
	}
	return n, nil
}

// unclipped returns a learner's section without the clipping of far ratios and without corrections.
func unclipped(l run.Learner) run.Learner {
	const far = 1e30 // no ratio gets there
	l.ClipLow, l.ClipHigh, l.DualClip, l.Clip, l.MaxLogRatio = 1, far, 0, far, 0
	l.Proximal, l.Correction = "", nil
	return l
}

func measure(ctx context.Context, c *run.Snapshot, dir string, o Options) (*results.Noise, error) {
	version := int(c.Last().Version)
	if version == 0 {
		return nil, errors.New("its checkpoint is of version 0, before the first update: " +
			"train it further with reprise train --resume")
	}
	fresh, err := freshDraws(ctx, c, o)
	if err != nil {
		return nil, fmt.Errorf("generate rollouts: %w", err)
	}
	held := heldDraws(c, o)
	meter := NewMeter(len(fresh))
	b := &rollout.Batch{Draws: append(fresh, held...)}
	take := o.counted(len(b.Draws) + 2*probed)
	if err := take(c.Gradients)(ctx, b, func(i int, g []float32) error { return meter.Add(b.Draws[i], g) }); err != nil {
		return nil, err
	}
	n := &results.Noise{
		Run: dir, Seed: c.Config().Seed, Version: version, Held: len(held), Fresh: len(fresh), Clipped: o.Clipped,
	}
	if err := meter.Fill(n); err != nil {
		return nil, err
	}
	if err := measureAlike(ctx, c, n, o.Seed, take); err != nil {
		return nil, fmt.Errorf("measure what updates leave of the noise: %w", err)
	}
	return n, addCosts(n, c, dir)
}

// counted returns what makes gradients call Progress. All is how many will be taken.
func (o Options) counted(all int) func(gradients) gradients {
	taken := 0
	return func(of gradients) gradients {
		if o.Progress == nil {
			return of
		}
		return func(ctx context.Context, b *rollout.Batch, visit func(int, []float32) error) error {
			return of(ctx, b, func(i int, g []float32) error {
				taken++
				o.Progress(float64(taken) / float64(all))
				return visit(i, g)
			})
		}
	}
}

// freshDraws generates rollouts with the newest weights. They come in the order of their groups.
func freshDraws(ctx context.Context, c *run.Snapshot, o Options) ([]rollout.Draw, error) {
	size := c.Config().Pipeline.Group
	seed := rollout.Stream(o.Seed, "noise/generate", c.Config().Seed).Uint64()
	held, err := c.Generate(ctx, seed, max(2, (o.Fresh+size-1)/size))
	if err != nil {
		return nil, err
	}
	return draws(c, held), nil
}

// heldDraws chooses rollouts of the table uniformly, each at most once, in random order.
func heldDraws(c *run.Snapshot, o Options) []rollout.Draw {
	held := c.Held()
	var chosen []replay.Held
	for _, i := range rollout.Stream(o.Seed, "noise/choice", 0).Perm(len(held))[:min(o.Held, len(held))] {
		chosen = append(chosen, held[i])
	}
	return draws(c, chosen)
}

// draws returns rollouts of a table as draws of weight 1. Advantages over the training batch are computed as if they
// were one batch.
func draws(c *run.Snapshot, held []replay.Held) []rollout.Draw {
	var list []rollout.Draw
	var rewards, means []float32
	for _, h := range held {
		list = append(list, rollout.Draw{
			ID: h.ID, Group: h.Group, Rollout: h.Rollout, Advantage: h.Advantage, Weight: 1,
			Staleness: int32(h.Age), Uses: int32(h.Uses), GroupMean: h.Mean, GroupStd: h.Std,
		})
		rewards, means = append(rewards, h.Rollout.Reward), append(means, h.Mean)
	}
	if kind := c.Table().Advantage; kind.UsesBatch() && len(list) > 0 {
		advantage.OfBatch(rewards, rewards, means, kind)
		for i := range list {
			list[i].Advantage = rewards[i]
		}
	}
	return list
}

// Limits beyond which a measurement gets a warning.
const (
	minRollouts   = 256  // of the table
	minVersions   = 4    // of staleness
	maxIdle       = 0.05 // share of the GPUs' time
	maxClipping   = 0.05 // share of the tokens
	latestUpdates = 20   // over which clipping is averaged
)

// addCosts adds the run's costs, and warnings about what makes the measurement doubtful.
func addCosts(n *results.Noise, c *run.Snapshot, dir string) error {
	written, err := results.ReadRun(dir)
	if err != nil {
		return err
	}
	last := c.Last()
	n.RolloutCost, n.NewPerUpdate = results.Num(rolloutCost(last)), results.Num(newPerUpdate(last))
	warn := func(doubtful bool, format string, args ...any) {
		if doubtful {
			n.Warnings = append(n.Warnings, fmt.Sprintf(format, args...))
		}
	}
	ended := written.Summary != nil && written.Summary.Ended != "interrupted"
	warn(!ended, "The run has not ended: it is measured at update %d, its last checkpoint.", n.Version)
	warn(idle(last) > maxIdle,
		"GPUs waited for %.0f%% of their time: the rollout cost is taken from their busy time, not from "+
			"(K_train/T)/(K_infer/W).",
		100*idle(last))
	warn(n.Held < minRollouts, "The table holds %d rollouts, too few to measure a correlation; %d or more are enough.",
		n.Held, minRollouts)
	first, oldest := n.ByStaleness[0], n.ByStaleness[len(n.ByStaleness)-1]
	warn(oldest.Last < minVersions, "The oldest rollout is %d versions old, too few to see how noise grows with "+
		"staleness; measure a run with a larger replay.capacity.", oldest.Last)
	warn(falls(first, oldest), "Noise falls with staleness, to %.2f of that of fresh rollouts: "+
		"rollouts that were trained on have less gradient left, which the theory does not model. "+
		"It biases their mean, and that shows as correlation.", oldest.Variance/first.Variance)
	clipped := meanClipping(written.Updates)
	warn(clipped > maxClipping && n.Clipped, "%.0f%% of the tokens are clipped: they have no gradient, "+
		"so stale rollouts show less noise, and a bias instead.", 100*clipped)
	warn(clipped > maxClipping && !n.Clipped, "The run clips the ratios of %.0f%% of the tokens; "+
		"noise is measured without clipping, as in the theory.", 100*clipped)
	r := n.NewPerUpdate.Float()
	warn(n.Common.Known() && n.CommonError.Float() > n.Common.Float()/2,
		"The correlation cannot be distinguished from 0: R c is %.2g with a standard error of %.2g.",
		r*n.Common.Float(), r*n.CommonError.Float())
	o, config := c.Table(), c.Config()
	warn(o.Retention == replay.KeepPositive, "The table keeps correct rollouts longer (retention positive), "+
		"which biases the mean gradient and shows as correlation.")
	warn(o.Sampler == replay.Prioritized, "Rollouts have equal weight here, while sampler %s prefers some.", o.Sampler)
	warn(len(config.Replay.Sources) > 0, "The run composes batches of sources; the measurement took rollouts alike.")
	warn(config.Prompts.Fraction != 0 || config.Prompts.Skip != "",
		"The run replays prompts; the measurement asked them in turn.")
	warn(config.Prompts.Limit > 0, "The run asks its first %d prompts over and over, and so did the measurement: "+
		"differences between prompts count as error of the true gradient, which makes the correlation too low.",
		config.Prompts.Limit)
	return nil
}

// falls reports whether old rollouts have less noise than fresh ones by more than two standard errors.
func falls(fresh, old results.StaleNoise) bool {
	if !fresh.Error.Known() || !old.Error.Known() {
		return false
	}
	return fresh.Variance-old.Variance > 2*math.Hypot(fresh.Error.Float(), old.Error.Float())
}

// newPerUpdate returns R in units of the table.
func newPerUpdate(u pipeline.Update) float64 { return float64(u.Stored) / float64(u.Version) }

// rolloutCost returns mu per unit of the table: (K_train/T)/(K_infer/W), or the ratio of busy times if GPUs waited.
func rolloutCost(u pipeline.Update) float64 {
	if idle(u) <= maxIdle {
		return float64(u.Used) / float64(u.Trainers) / (float64(u.Stored) / float64(len(u.Workers)))
	}
	var busy float64
	for _, w := range u.Workers {
		busy += w.Busy
	}
	return busy / float64(u.Stored) / (float64(u.Trainers) * u.Trainer.Busy / float64(u.Used))
}

// idle returns the share of the time that trainers waited, or workers, whichever is more.
func idle(u pipeline.Update) float64 {
	var workers pipeline.GPUTime
	for _, w := range u.Workers {
		workers.Busy += w.Busy
		workers.Stalled += w.Stalled
		workers.Idle += w.Idle
	}
	share := func(s pipeline.GPUTime) float64 { return (s.Stalled + s.Idle) / (s.Busy + s.Stalled + s.Idle) }
	return max(share(workers), share(u.Trainer))
}

// meanClipping returns the mean share of clipped tokens in the latest updates.
func meanClipping(updates []results.Update) float64 {
	sum, n := 0.0, 0.0
	for _, u := range updates[max(0, len(updates)-latestUpdates):] {
		if u.ClipFraction.Known() {
			sum += u.ClipFraction.Float()
			n++
		}
	}
	return sum / max(n, 1)
}

// measureByProxy returns what a run's summary tells without gradients: n/ESS by age, relative to a rollout of the
// current policy, whose ratio is 1. The variance of a rollout's gradient is mean (rho ||g||)^2; n/ESS is the part of
// rho.
func measureByProxy(dir, why string) (*results.Noise, error) {
	written, err := results.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	sum := written.Summary
	if sum == nil {
		return nil, fmt.Errorf("%s, and the run has not ended: finish it with reprise train --resume, or name another",
			why)
	}
	n := &results.Noise{
		Run: dir, Seed: sum.Seed, Version: sum.Version, Proxy: true,
		RolloutCost: sum.RolloutCostMeasured, NewPerUpdate: sum.NewPerUpdate,
		Warnings: []string{fmt.Sprintf("No gradients could be taken: %s. Noise is estimated by a proxy, "+
			"n/ESS of the importance ratios by age, and the correlation stays unknown.", why)},
	}
	var tokens float64
	for _, a := range sum.ESSByAge {
		tokens += a.Tokens
		if a.Age > 0 {
			n.ByStaleness = append(n.ByStaleness, results.StaleNoise{
				First: a.Age, Last: a.Last, Age: float64(a.Age+a.Last) / 2, Tokens: a.Tokens, Variance: 1 / a.ESS,
			})
		}
	}
	if len(n.ByStaleness) == 0 {
		return nil, errors.New(why + ", and its summary has no ESS by age: name a run that replays rollouts")
	}
	n.ByStaleness = append([]results.StaleNoise{{Tokens: tokens, Variance: 1}}, n.ByStaleness...)
	return n, nil
}
