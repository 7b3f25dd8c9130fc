package pipeline_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/sim"
)

// witness is a learner that keeps copies of the draws of each update, trainer by trainer.
type witness struct {
	sim.Learner
	draws [][]rollout.Draw
}

func (w *witness) Step(ctx context.Context, bs []*rollout.Batch) (pipeline.Measured, error) {
	var ds []rollout.Draw
	for _, b := range bs {
		if b.Version != w.Version {
			return pipeline.Measured{}, fmt.Errorf("batch of version %d at step %d", b.Version, w.Version)
		}
		ds = append(ds, b.Draws...)
	}
	w.draws = append(w.draws, ds)
	return w.Learner.Step(ctx, bs)
}

// stalenesses returns the staleness of the first draw of each update.
func (w *witness) stalenesses() (ss []int32) {
	for _, ds := range w.draws {
		ss = append(ss, ds[0].Staleness)
	}
	return ss
}

// ids returns the ids that each update was taken on.
func (w *witness) ids() (all [][]rollout.ID) {
	for _, ds := range w.draws {
		var ids []rollout.ID
		for _, d := range ds {
			ids = append(ids, d.ID)
		}
		all = append(all, ids)
	}
	return all
}

// The schedule (v, i) of [OG] algorithm 1: step k = 0, 1, 2, … samples from the old policy, which is the current one after
// every v-th step, and takes i updates on what it sampled. In versions, which count updates, the old policy of step k is that
// of update i v floor(k/v), and the trainer is at update i k + j at the j-th use of it.
func TestTheScheduleVIIsThatOfAlgorithmOne(t *testing.T) {
	for _, c := range []struct {
		v, i       int
		versions   []rollout.Version // of the rollouts of each step, worked by hand from algorithm 1
		stalenness []int32           // of each update
	}{
		{1, 1, []rollout.Version{0, 1, 2, 3, 4, 5}, []int32{0, 0, 0, 0, 0, 0}},
		{3, 1, []rollout.Version{0, 0, 0, 3, 3, 3}, []int32{0, 1, 2, 0, 1, 2}},
		{1, 3, []rollout.Version{0, 3}, []int32{0, 1, 2, 0, 1, 2}},
		// Steps 0 and 1 sample from version 0, steps 2 and 3 from version 2 x 3 = 6.
		{2, 3, []rollout.Version{0, 0, 6, 6}, []int32{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}},
	} {
		opts := small(1)
		opts.Mode, opts.BatchUpdates, opts.PublishEvery = pipeline.Sync, c.i, c.v*c.i
		opts.Updates = len(c.stalenness)
		p := parts(newNaive(1, 8, true))
		var l witness
		p.Learner = &l
		r := run(t, opts, p)
		what := fmt.Sprintf("(v, i) = (%d, %d)", c.v, c.i)
		expect(t, what+": versions", r.versions(), c.versions)
		expect(t, what+": staleness", l.stalenesses(), c.stalenness)
		expect(t, what+": rollouts used", r.last().Used, uint64(4*len(c.stalenness)))
		expect(t, what+": replay ratio", r.last().ReplayRatio(), float64(c.i))
	}
}

func TestABatchIsUsedForItsUpdatesWithoutADraw(t *testing.T) {
	// mu = 3: groups of 4 arrive at 12, 24, 36. A batch's three updates take 12: 12-16, 16-20, 20-24, then the next group is
	// there: nobody waits. It was started at 12, at version 0, and is used at 3, 4 and 5.
	opts := small(3)
	opts.BatchUpdates, opts.Updates = 3, 6
	b := newNaive(1, 8, true)
	p := parts(b)
	var l witness
	p.Learner = &l
	r := run(t, opts, p)
	expect(t, "updates end", r.times(), []float64{16, 20, 24, 28, 32, 36})
	first, second := []rollout.ID{1, 2, 3, 4}, []rollout.ID{5, 6, 7, 8}
	expect(t, "rollouts", l.ids(), [][]rollout.ID{first, first, first, second, second, second})
	expect(t, "staleness", l.stalenesses(), []int32{0, 1, 2, 3, 4, 5})
	expect(t, "draws from the buffer", b.Samples, 2)
	expect(t, "greatest staleness of the last update", r.last().StalenessMax, 5)
	expect(t, "mean staleness of the last update", r.last().StalenessMean, 5.0)
	expect(t, "used", r.last().Used, 24)
	expect(t, "trainer", r.last().Trainer, pipeline.Spent{Busy: 24, Stalled: 12})
}

func TestFreshDrawsAreFreshInTheFirstUpdateOfTheirBatch(t *testing.T) {
	// Batches are fresh and replayed in turn, each used twice.
	opts := small(2)
	opts.Mix, opts.BatchUpdates, opts.Updates = 1, 2, 8
	p := parts(newNaive(1, 16, false))
	var l drawn
	p.Learner = &l
	r := run(t, opts, p)
	expect(t, "fresh draws", r.freshDraws(), []int{4, 0, 0, 0, 4, 0, 0, 0})
	expect(t, "fresh rollouts", l.fresh, [][]rollout.ID{{1, 2, 3, 4}, nil, nil, nil, {5, 6, 7, 8}, nil, nil, nil})
	expect(t, "fresh per update", opts.FreshPerUpdate(), 1.0)
	opts.Mix, opts.FreshShare = 0, 0.5
	expect(t, "fresh per update of a share", opts.FreshPerUpdate(), 1.0)
}

func TestATurnHasRoomForTheUpdatesOfItsBatches(t *testing.T) {
	o := pipeline.Options{Mode: pipeline.Sync, Batch: 32, Group: 4, BatchUpdates: 5, Mix: 1}.WithDefaults()
	expect(t, "updates and rollouts of a turn with a mix", []int{o.SyncUpdates, o.SyncRollouts}, []int{10, 32})
	o = pipeline.Options{Mode: pipeline.Sync, Batch: 32, Group: 4, BatchUpdates: 5}.WithDefaults()
	expect(t, "updates and rollouts of a turn", []int{o.SyncUpdates, o.SyncRollouts}, []int{5, 32})
	o = pipeline.Options{Mode: pipeline.Sync, Batch: 32, Group: 4, BatchUpdates: 5, SyncUpdates: 15, FreshShare: 1}.WithDefaults()
	expect(t, "rollouts of a turn of three fresh batches", o.SyncRollouts, 96)
	for want, bad := range map[string]pipeline.Options{
		"pipeline.sync_updates is 7: must be a multiple of batch_updates (5)":                                         {Mode: pipeline.Sync, BatchUpdates: 5, SyncUpdates: 7},
		"pipeline.batch_updates is -1: must be 1 to 2147483647":                                                       {BatchUpdates: -1},
		"pipeline.sync_updates is 15: must be a multiple of the 10 updates of a mix of 1":                             {Mode: pipeline.Sync, BatchUpdates: 5, SyncUpdates: 15, Mix: 1},
		"pipeline.sync_rollouts is 128: must be at least 512 with fresh_share 1, whole groups for each trainer's 256": {Mode: pipeline.Sync, Batch: 128, BatchUpdates: 2, SyncUpdates: 8, SyncRollouts: 128, FreshShare: 1, Trainers: 2, Group: 64},
	} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestBatchesInRandomConfigurationsAreUsedInARow(t *testing.T) {
	reused := 0
	for seed := range uint64(100) {
		s := randomSetup(seed)
		var l witness
		s.run(t, func(p pipeline.Parts) pipeline.Parts { p.Learner = &l; return p })
		for u, ds := range l.draws {
			for k, d := range ds {
				if want := int32(u) - int32(d.Rollout.Version()); d.Staleness != want {
					t.Fatalf("seed %d: draw %d of update %d has staleness %d, want %d", seed, k, u, d.Staleness, want)
				}
				if u%s.opts.BatchUpdates == 0 {
					continue
				}
				reused++
				before := l.draws[u-1][k]
				before.Staleness, before.Fresh = d.Staleness, false
				if !reflect.DeepEqual(d, before) {
					t.Fatalf("seed %d: draw %d of update %d is %+v, in the update before %+v", seed, k, u, d, before)
				}
			}
		}
	}
	if reused < 5000 {
		t.Errorf("%d draws were used again: the test shows little", reused)
	}
}

func TestAStateInTheMiddleOfABatchHoldsIt(t *testing.T) {
	s := setup{seed: 7, opts: small(1)}
	s.opts.BatchUpdates, s.opts.Advantage = 3, advantage.Batch
	for after, want := range map[int]int{3: 0, 4: 1, 5: 1, 6: 0} {
		state := s.interruptedState(t, after)
		expect(t, fmt.Sprintf("batches held after update %d", after), len(state.Batches), want)
		for _, b := range state.Batches {
			for _, d := range b.Draws {
				if d.Staleness != int32(after)-int32(d.Rollout.Version()) || d.Fresh {
					t.Errorf("after update %d a draw is held as %+v", after, d)
				}
			}
		}
	}
	state := s.interruptedState(t, 4)
	for want, change := range map[string]func(*pipeline.State, *pipeline.Options){
		"state has 0 batches at version 4, want 1 with pipeline.batch_updates 3 and 1 trainers": func(st *pipeline.State, _ *pipeline.Options) { st.Batches = nil },
		"state has 1 batches at version 4, want 0 with pipeline.batch_updates 2":                func(_ *pipeline.State, o *pipeline.Options) { o.BatchUpdates = 2 },
		"state's batch of trainer 0 has 3 draws, want 4":                                        func(st *pipeline.State, _ *pipeline.Options) { st.Batches[0].Draws = st.Batches[0].Draws[:3] },
		"draw 2 of the state's batch of trainer 0 has no rollout":                               func(st *pipeline.State, _ *pipeline.Options) { st.Batches[0].Draws[2].Rollout = nil },
	} {
		bad, opts := state, s.opts
		bad.Batches = []rollout.Batch{state.Batches[0]}
		bad.Batches[0].Draws = append([]rollout.Draw(nil), state.Batches[0].Draws...)
		change(&bad, &opts)
		_, err := pipeline.Resume(opts, s.parts(s.buffer(), &sim.Learner{Version: 4}, nil), pipeline.Hooks{}, bad, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A state that is kept does not change when the machine it was taken from goes on, nor when one that was made from it does.
func TestAStateKeepsTheBatchAsItWas(t *testing.T) {
	opts := small(1)
	opts.BatchUpdates, opts.Updates = 4, 4
	var early pipeline.State
	b := newNaive(1, 8, true)
	m, err := pipeline.New(opts, parts(b), pipeline.Hooks{OnUpdate: func(m *pipeline.Machine, u pipeline.Update) error {
		if u.Version == 1 {
			var err error
			early, _, err = m.Snapshot()
			return err
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	expect(t, "staleness in the state of version 1", early.Batches[0].Draws[0].Staleness, 1)

	p := parts(b)
	p.Learner = &sim.Learner{Version: 1}
	weights := map[rollout.Version]pipeline.Weights{}
	for _, v := range early.Versions() {
		weights[v] = pipeline.Weights{Version: v}
	}
	opts.Updates = 3
	b.Version = 1
	var r record
	again, err := pipeline.Resume(opts, p, r.hooks(), early, weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	expect(t, "staleness of the updates that follow", []int32{r.updates[0].StalenessMax, r.updates[1].StalenessMax}, []int32{1, 2})
	expect(t, "staleness in the state of version 1, resumed from", early.Batches[0].Draws[0].Staleness, 1)
}
