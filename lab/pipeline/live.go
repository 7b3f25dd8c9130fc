package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Feed is filled by workers elsewhere while trainers draw from it. Its Sample waits until there are rollouts enough, or
// the context ends.
type Feed interface {
	Source
	// Inserted returns how many rollouts have entered, and their groups.
	Inserted(ctx context.Context) (rollouts, groups uint64, err error)
	// Settle counts what was sampled since the last call as used, for good.
	Settle(ctx context.Context) error
}

// LiveParts is what a [Live] drives.
type LiveParts struct {
	Feed    Feed
	Learner Learner
	// Publish gives the workers weights. It is called before the feed hears of their version.
	Publish func(context.Context, Weights) error
	// OnUpdate is called at the end of every update; it may ask for the State.
	OnUpdate func(Update) error
}

// LiveState is a Live between two updates.
type LiveState struct {
	Used          uint64
	Inserted      uint64 // as of the last update
	Groups        uint64
	Time          float64 // seconds of work
	Busy, Stalled float64 // of the trainer, in seconds
}

// Live is a run of the trainer on the real clock. Times are in seconds. Make it with [NewLive] and run it once; only
// Stop may be called from other goroutines.
//
// Versions never go back. A run that was killed goes on from its last checkpoint with the version after the feed's, so
// that nothing that workers made meanwhile is lost: its staleness is counted by versions all the same.
type Live struct {
	opts    Options
	parts   LiveParts
	version rollout.Version
	state   LiveState
	began   LiveState        // the state to go on from
	batches []*rollout.Batch // of the latest update
	spent   float64          // with FreshAt, what the first counted updates cost
	counted rollout.Version

	waiting context.Context // ends with Stop
	stop    context.CancelFunc
}

// NewLive returns a run at a state; the zero value begins one. The learner's weights have the version to go on from.
func NewLive(opts Options, parts LiveParts, state LiveState) (*Live, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.WithDefaults()
	if err := opts.ValidateLive(); err != nil {
		return nil, err
	}
	l := &Live{opts: opts, parts: parts, state: state, began: state, version: parts.Learner.Weights().Version}
	l.waiting, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// ValidateLive reports what a run on the real clock cannot do.
func (o Options) ValidateLive() error {
	o = o.WithDefaults()
	var p option.Problems
	p.Check(o.Mode == Async, "mode", o.Mode, "%s on the real clock", Async)
	p.Check(!o.FilterGroups, "filter_groups", o.FilterGroups, "false on the real clock, where workers insert every group")
	p.Check(o.Window == 0, "window", o.Window, "0 on the real clock, where workers insert: see reprise rollout --oldest-first")
	p.Check(o.Trainers == 1, "trainers", o.Trainers, "1 on the real clock: the trainer is one process")
	return p.Err()
}

// Options returns the options with their defaults.
func (l *Live) Options() Options { return l.opts }

// Stop ends the run after the current update, or at once if the trainer waits for rollouts.
func (l *Live) Stop() { l.stop() }

// Finished reports whether a limit of the options has been reached. Updates that a crash undid count.
func (l *Live) Finished() bool { return l.opts.finished(l.version, l.compute()) }

// compute returns the compute so far by formula.
func (l *Live) compute() float64 {
	if l.opts.FreshAt == nil {
		return float64(l.version) * l.opts.UpdateCompute
	}
	for ; l.counted < l.version; l.counted++ {
		l.spent += l.opts.computeAt(int(l.counted))
	}
	return l.spent
}

// State returns what NewLive takes to go on. It must not be called while Run takes an update.
func (l *Live) State() LiveState { return l.state }

// Wall returns the real time of learning since the Live was made.
func (l *Live) Wall() Wall {
	return Wall{Learn: time.Duration((l.state.Busy - l.began.Busy) * float64(time.Second))}
}

// Run publishes the weights that it begins with, and takes updates until a limit is reached, or the run is stopped, or
// something fails. In the first two cases it returns nil.
func (l *Live) Run(ctx context.Context) error {
	if err := l.publish(ctx, l.parts.Learner.Weights()); err != nil {
		return err
	}
	if err := l.takeUpdates(ctx); err != nil {
		return err
	}
	return l.parts.Feed.Settle(ctx) // of a batch with updates to come
}

func (l *Live) takeUpdates(ctx context.Context) error {
	for !l.Finished() && l.waiting.Err() == nil {
		began := time.Now()
		if !l.opts.reusesBatch(int(l.version)) || l.batches == nil {
			if err := l.sample(ctx); err != nil {
				if l.waiting.Err() != nil {
					return nil
				}
				return err
			}
		} else {
			age(l.batches, l.version)
		}
		waited := time.Since(began).Seconds()
		if err := l.update(ctx, waited); err != nil {
			return fmt.Errorf("update %d: %w", l.version+1, err)
		}
	}
	return nil
}

// sample draws the next batch.
func (l *Live) sample(ctx context.Context) error {
	l.batches = nil
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.waiting, cancel)()
	req := l.opts.request(l.version, 0)
	b, err := l.parts.Feed.Sample(ctx, req)
	if err != nil {
		return fmt.Errorf("sample %d rollouts for update %d: %w", req.Size, l.version+1, err)
	}
	l.batches = []*rollout.Batch{b}
	return nil
}

// update learns from the batch, and publishes and records it. waited is how many seconds the trainer waited for the
// batch.
func (l *Live) update(ctx context.Context, waited float64) error {
	began := time.Now()
	if l.opts.Advantage.UsesBatch() {
		setAdvantages(l.batches, l.opts.Advantage)
	}
	measured, err := l.parts.Learner.Step(ctx, l.batches)
	if err != nil {
		return err
	}
	if err := l.parts.Feed.Report(ctx, measured.Feedback...); err != nil {
		return err
	}
	w := l.parts.Learner.Weights()
	l.version = w.Version
	if int(l.version)%l.opts.PublishEvery == 0 {
		err = l.publish(ctx, w)
	} else {
		err = l.parts.Feed.Advance(ctx, l.version)
	}
	if err != nil {
		return err
	}
	s := &l.state
	s.Used += uint64(l.opts.Batch)
	s.Busy += time.Since(began).Seconds()
	s.Stalled += waited
	s.Time += waited + time.Since(began).Seconds()
	if err := l.record(ctx, measured.Metrics); err != nil {
		return err
	}
	if l.opts.reusesBatch(int(l.version)) {
		return nil
	}
	return l.parts.Feed.Settle(ctx)
}

// rewardAtFirstUse returns the mean reward of draws that are the first of their rollouts, NaN if there are none.
func rewardAtFirstUse(batches []*rollout.Batch) float64 {
	sum, n := 0.0, 0.0
	for _, b := range batches {
		for _, d := range b.Draws {
			if d.Uses == 0 {
				sum, n = sum+float64(d.Rollout.Reward), n+1
			}
		}
	}
	return sum / n
}

// publish gives the workers weights, and then tells the feed of them: whoever hears of a version finds it.
func (l *Live) publish(ctx context.Context, w Weights) error {
	if err := l.parts.Publish(ctx, w); err != nil {
		return err
	}
	return l.parts.Feed.Advance(ctx, w.Version)
}

// record tells the hook of the update.
func (l *Live) record(ctx context.Context, metrics map[string]float64) error {
	inserted, groups, err := l.parts.Feed.Inserted(ctx)
	if err != nil {
		return err
	}
	s := &l.state
	u := Update{
		Version: l.version, Time: s.Time, Inserted: inserted, Stored: inserted, Used: s.Used,
		Compute: l.compute(), Trainer: GPUTime{Busy: s.Busy, Stalled: s.Stalled},
		Trainers:    1,
		NewRollouts: int(inserted - s.Inserted), NewGroups: int(groups - s.Groups), Metrics: metrics,
	}
	u.describe(l.batches)
	u.NewReward = rewardAtFirstUse(l.batches)
	s.Inserted, s.Groups = inserted, groups
	if l.parts.OnUpdate == nil {
		return nil
	}
	return l.parts.OnUpdate(u)
}
