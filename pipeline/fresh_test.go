package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/sim"
)

// freshDraws returns how many draws of each update were fresh.
func (r *record) freshDraws() []int {
	var ns []int
	for _, u := range r.updates {
		ns = append(ns, u.FreshDraws)
	}
	return ns
}

// drawn is a learner that keeps the ids of the fresh draws of each update.
type drawn struct {
	sim.Learner
	fresh [][]rollout.ID
}

func (d *drawn) Step(ctx context.Context, bs []*rollout.Batch) (pipeline.Measured, error) {
	var ids []rollout.ID
	for _, b := range bs {
		for _, x := range b.Draws {
			if x.Fresh {
				ids = append(ids, x.ID)
			}
		}
	}
	d.fresh = append(d.fresh, ids)
	return d.Learner.Step(ctx, bs)
}

func TestAMixTrainsOnAFreshBatchAndThenReplays(t *testing.T) {
	// mu = 2: groups of 4 arrive at 8, 16, 24, …, updates take 4. One replay update for each fresh one keeps the
	// trainer busy: fresh 8-12, replay 12-16, fresh 16-20, ….
	opts := small(2)
	opts.Mix, opts.Updates = 1, 6
	p := parts(newNaive(1, 16, false))
	var l drawn
	p.Learner = &l
	r := run(t, opts, p)
	expect(t, "updates end", r.times(), []float64{12, 16, 20, 24, 28, 32})
	expect(t, "fresh draws", r.freshDraws(), []int{4, 0, 4, 0, 4, 0})
	expect(t, "fresh rollouts", l.fresh, [][]rollout.ID{{1, 2, 3, 4}, nil, {5, 6, 7, 8}, nil, {9, 10, 11, 12}, nil})
	expect(t, "trainer", r.last().Trainer, pipeline.Spent{Busy: 24, Stalled: 8})

	// mu = 3: groups arrive at 12, 24, 36, …; the fresh updates wait for them, the worker for nobody.
	opts = small(3)
	opts.Mix, opts.Updates = 1, 6
	r = run(t, opts, parts(newNaive(1, 16, false)))
	expect(t, "updates end", r.times(), []float64{16, 20, 28, 32, 40, 44})
	expect(t, "replay ratio", r.last().ReplayRatio(), float64(opts.Batch)/opts.FreshPerUpdate())
}

func TestAShareOfEveryBatchIsFresh(t *testing.T) {
	// mu = 3: groups arrive at 12, 24, 36, …. Of each, two rollouts are fresh in one update, two in the next.
	opts := small(3)
	opts.FreshShare, opts.Updates = 0.5, 6
	p := parts(newNaive(1, 16, false))
	var l drawn
	p.Learner = &l
	r := run(t, opts, p)
	expect(t, "updates end", r.times(), []float64{16, 20, 28, 32, 40, 44})
	expect(t, "fresh draws", r.freshDraws(), []int{2, 2, 2, 2, 2, 2})
	expect(t, "fresh rollouts", l.fresh, [][]rollout.ID{{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}})
	expect(t, "replay ratio", r.last().ReplayRatio(), float64(opts.Batch)/opts.FreshPerUpdate())
}

func TestTurnsOfAMixInsertWhatTheirFreshUpdatesTake(t *testing.T) {
	// W = 2, G = 4, mu = 1: 8 new rollouts take 4; then a fresh update of 8 and two replays, 4 each.
	opts := pipeline.Options{
		Workers: 2, Trainers: 2, Batch: 8, Group: 4, RolloutCost: 1, Mode: pipeline.Sync, Mix: 2, Updates: 6,
	}
	r := run(t, opts, parts(newNaive(2, 12, false)))
	expect(t, "groups arrive", r.arrivals(), []float64{4, 4, 20, 20})
	expect(t, "updates end", r.times(), []float64{8, 12, 16, 24, 28, 32})
	expect(t, "fresh draws", r.freshDraws(), []int{8, 0, 0, 8, 0, 0})
	opts.SyncUpdates = 6 // two fresh updates a turn
	r = run(t, opts, parts(newNaive(2, 12, false)))
	expect(t, "groups arrive", r.arrivals(), []float64{4, 4, 8, 8})
	expect(t, "fresh draws", r.freshDraws(), []int{8, 0, 0, 8, 0, 0})
}

func TestMixAndFreshShareHaveTheirDefaultsAndRanges(t *testing.T) {
	turn := func(o pipeline.Options) []int {
		o.Mode = pipeline.Sync
		o = o.WithDefaults()
		return []int{o.SyncUpdates, o.SyncRollouts}
	}
	expect(t, "turn without", turn(pipeline.Options{Batch: 40, Group: 16}), []int{1, 48})
	expect(t, "turn of a mix", turn(pipeline.Options{Batch: 64, Group: 16, Mix: 3}), []int{4, 64})
	expect(t, "longer turn of a mix", turn(pipeline.Options{Batch: 64, Group: 16, Mix: 3, SyncUpdates: 8}), []int{8, 128})
	expect(t, "turn with a share", turn(pipeline.Options{Batch: 64, Group: 16, FreshShare: 0.5}), []int{1, 64})
	expect(t, "longer turn with a share", turn(pipeline.Options{Batch: 64, Group: 16, FreshShare: 0.5, SyncUpdates: 5}), []int{5, 160})

	for _, c := range []struct {
		opts pipeline.Options
		want []string
	}{
		{pipeline.Options{Mix: -1}, []string{"pipeline.mix is -1: must be 0 to 2147483646"}},
		{pipeline.Options{Mix: math.MaxInt}, []string{"pipeline.mix is 9223372036854775807: must be 0 to 2147483646"}},
		{pipeline.Options{FreshShare: math.NaN()}, []string{"pipeline.fresh_share is NaN: must be 0 to 1"}},
		{pipeline.Options{FreshShare: -0.5}, []string{"pipeline.fresh_share is -0.5: must be 0 to 1"}},
		{pipeline.Options{FreshShare: math.Inf(1)}, []string{"pipeline.fresh_share is +Inf: must be 0 to 1"}},
		{pipeline.Options{FreshShare: 0.5, Mix: 2}, []string{"pipeline.fresh_share is 0.5: must be 0 with mix 2"}},
		{pipeline.Options{FreshShare: 0.1, Batch: 8}, []string{"pipeline.fresh_share is 0.1: must be 0, or enough for one fresh draw among the 4 of a trainer"}},
		{pipeline.Options{Mode: pipeline.Sync, Mix: 2, SyncUpdates: 4}, []string{"pipeline.sync_updates is 4: must be a multiple of the 3 updates of a mix of 2"}},
		{pipeline.Options{Mode: pipeline.Sync, Mix: 2, SyncRollouts: 512}, []string{"pipeline.sync_rollouts is 512: must be 256 with mix 2"}},
		{pipeline.Options{Mode: pipeline.Sync, Mix: 2, Batch: 48}, []string{"pipeline.sync_updates is 3: must be such that each trainer's 24 fresh draws in a turn are whole groups of 16"}},
		{pipeline.Options{Mode: pipeline.Sync, FreshShare: 0.5, SyncUpdates: 5, SyncRollouts: 624}, []string{
			"pipeline.sync_rollouts is 624: must be at least 640 with fresh_share 0.5, whole groups for each trainer's 320 fresh draws",
		}},
		{pipeline.Options{Mix: 2, SyncUpdates: 4, SyncRollouts: 16}, nil}, // there are no turns
		{pipeline.Options{Mode: pipeline.Sync, Mix: 2, Batch: 48, SyncUpdates: 6}, nil},
		{pipeline.Options{FreshShare: 1}, nil},
	} {
		err := c.opts.Validate()
		found := 0
		if err != nil {
			found = len(strings.Split(err.Error(), "\n"))
		}
		if found != len(c.want) {
			t.Errorf("%d problems, want %d:\n%v", found, len(c.want), err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q is missing from: %v", w, err)
			}
		}
	}
}

func TestFreshDrawsPerUpdate(t *testing.T) {
	o := pipeline.Options{Batch: 240, Trainers: 2, Group: 16}.WithDefaults()
	expect(t, "plain", o.FreshPerUpdate(), 0.0)
	o.Mix = 3
	expect(t, "mix", o.FreshPerUpdate(), 60.0)
	o.Mix, o.FreshShare = 0, 0.3
	expect(t, "share", o.FreshPerUpdate(), 72.0)
	o.FreshShare = 0.38 // 45.6 of 120
	expect(t, "share that is rounded", o.FreshPerUpdate(), 92.0)
}

// aged is a buffer with too few fresh rollouts for ever.
type aged struct{ *naive }

func (a aged) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	if req.Fresh > 1 {
		return nil, fmt.Errorf("1 of %d fresh: %w", req.Fresh, rollout.ErrStarved)
	}
	return a.naive.Sample(ctx, req)
}

func TestARunWithoutFreshRolloutsSaysWhatNeedsThem(t *testing.T) {
	for _, mode := range []pipeline.Mode{pipeline.Async, pipeline.Sync} {
		for name, c := range map[string]struct {
			set  func(*pipeline.Options)
			says []string
			not  string
		}{
			"mix":   {func(o *pipeline.Options) { o.Mix = 3 }, []string{"4 of them fresh (pipeline.mix 3,", "1 of 4 fresh"}, "fresh_share (0"},
			"share": {func(o *pipeline.Options) { o.FreshShare = 0.5 }, []string{"2 of them fresh (", "fresh_share 0.5)", "fresh_share (0.5)"}, "\n"},
			"plain": {func(o *pipeline.Options) { o.Batch = 20; o.SyncRollouts = 20 }, []string{"too few rollouts for 20 each in update 1"}, "fresh ("},
		} {
			opts := small(1)
			opts.Mode = mode
			c.set(&opts)
			m, err := pipeline.New(opts, parts(aged{newNaive(1, 16, false)}), pipeline.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			err = m.Run(context.Background())
			if !errors.Is(err, pipeline.ErrStuck) || !errors.Is(err, rollout.ErrStarved) || strings.Contains(err.Error(), c.not) {
				t.Errorf("%s, %s: error is %v", mode, name, err)
				continue
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s, %s: error is %q, want it to say %q", mode, name, err, part)
				}
			}
		}
	}
}
