package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
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

// The schedule (v, i) of [OG] algorithm 1: step k = 0, 1, 2, … samples from the old policy, which is the current one
// after every v-th step, and takes i updates on what it sampled. In versions, which count updates, the old policy of
// step k is that of update i v floor(k/v), and the trainer is at update i k + j at the j-th use of it.
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
	// mu = 3: groups of 4 arrive at 12, 24, 36. A batch's three updates take 12: 12-16, 16-20, 20-24, then the next
	// group is there: nobody waits. It was started at 12, at version 0, and is used at 3, 4 and 5.
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
	expect(t, "trainer", r.last().Trainer, pipeline.GPUTime{Busy: 24, Stalled: 12})
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
	o = pipeline.Options{Mode: pipeline.Sync, Batch: 32, Group: 4, BatchUpdates: 5, SyncUpdates: 15,
		FreshShare: 1}.WithDefaults()
	expect(t, "rollouts of a turn of three fresh batches", o.SyncRollouts, 96)
	for want, bad := range map[string]pipeline.Options{
		"sync_updates: 7: want a multiple of batch_updates (5)":                                        {Mode: pipeline.Sync, BatchUpdates: 5, SyncUpdates: 7},
		"batch_updates: -1: want 1 to 2147483647":                                                      {BatchUpdates: -1},
		"sync_updates: 15: want a multiple of the 10 updates of a mix of 1":                            {Mode: pipeline.Sync, BatchUpdates: 5, SyncUpdates: 15, Mix: 1},
		"sync_rollouts: 128: want 512 or more with fresh_share 1: whole groups for each trainer's 256": {Mode: pipeline.Sync, Batch: 128, BatchUpdates: 2, SyncUpdates: 8, SyncRollouts: 128, FreshShare: 1, Trainers: 2, Group: 64},
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
		"state has 1 batches at version 4, want 0 with pipeline.batch_updates 2": func(_ *pipeline.State,
			o *pipeline.Options) {
			o.BatchUpdates = 2
		},
		"state's batch of trainer 0 has 3 draws, want 4":          func(st *pipeline.State, _ *pipeline.Options) { st.Batches[0].Draws = st.Batches[0].Draws[:3] },
		"draw 2 of the state's batch of trainer 0 has no rollout": func(st *pipeline.State, _ *pipeline.Options) { st.Batches[0].Draws[2].Rollout = nil },
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

// A state that is kept does not change when the machine it was taken from goes on, nor when one that was made from it
// does.
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
	expect(t, "staleness of the updates that follow", []int32{r.updates[0].StalenessMax, r.updates[1].StalenessMax},
		[]int32{1, 2})
	expect(t, "staleness in the state of version 1, resumed from", early.Batches[0].Draws[0].Staleness, 1)
}

// freshDraws returns how many draws of each update were fresh.
func (r *record) freshDraws() []int {
	var ns []int
	for _, u := range r.updates {
		ns = append(ns, u.FreshDraws)
	}
	return ns
}

// METHODS 3: (N P)^-beta over the largest of the batch, which is that of all trainers.
func TestImportanceWeightsAreOverTheBatchesOfAllTrainers(t *testing.T) {
	opts := pipeline.Options{Workers: 4, Trainers: 4, Batch: 32, Group: 4, RolloutCost: 1, Updates: 30}
	p, w := parts(newTable(t, replay.Options{Capacity: 64, Shards: 4, MinSize: 16, Sampler: replay.Prioritized,
		AgeDecay: 2})), &witness{}
	p.Learner = w
	run(t, opts, p)
	for update, draws := range w.draws {
		largest, least, most := float32(0), math.Inf(1), 0.0
		for _, d := range draws {
			largest = max(largest, d.Weight)
			scaled := float64(d.Weight) * math.Pow(d.Probability, 0.4) // the shards are full: N is 16
			least, most = min(least, scaled), max(most, scaled)
		}
		if largest != 1 || most > least*(1+1e-6) {
			t.Fatalf("update %d: the largest weight is %v, weights are %v to %v times P^-beta", update+1, largest,
				least, most)
		}
	}
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
	expect(t, "trainer", r.last().Trainer, pipeline.GPUTime{Busy: 24, Stalled: 8})

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

// tableOf is a table of 16 rollouts whose sources compose batches.
func tableOf(t *testing.T, sources ...replay.Source) *replay.Table {
	t.Helper()
	table, err := replay.New(replay.Options{Capacity: 16, Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestABufferFillsThePlacesOfFreshGroupsThatItPassesOver(t *testing.T) {
	// mu = 3: groups arrive at 12, 24, 36, 48, and each is the fresh batch of the update that begins then. The second and
	// the fourth have no variance, and give their places to rollouts that have.
	opts := small(3)
	opts.FreshShare, opts.Composed, opts.Updates = 1, true, 4
	p := filtering(tableOf(t,
		replay.Source{Name: "fresh", Pool: replay.PoolFresh, Share: "1", Where: "group_std > 0", Wait: true,
			Backfill: "kept"},
		replay.Source{Name: "kept", Where: "group_std > 0"},
	), func(p int) bool { return p%2 == 1 })
	var l witness
	p.Learner = &l
	r := run(t, opts, p)
	expect(t, "updates end", r.times(), []float64{16, 28, 40, 52})
	expect(t, "fresh draws", r.freshDraws(), []int{4, 0, 4, 0})
	ids := l.ids()
	expect(t, "rollouts of the first and the third", [][]rollout.ID{ids[0], ids[2]},
		[][]rollout.ID{{1, 2, 3, 4}, {9, 10, 11, 12}})
	expect(t, "rollouts of the second", slices.Sorted(slices.Values(ids[1])), []rollout.ID{1, 2, 3, 4})
	for _, d := range l.draws[3] {
		if d.GroupStd == 0 {
			t.Errorf("rollout %d of a group without variance is trained on", d.ID)
		}
	}
}

func TestFreshDrawsThatFollowTheVersionAreWaitedFor(t *testing.T) {
	// As of a mix of 1: groups arrive at 12, 24, 36, …; batches of version 0, 2 and 4 are fresh and wait for them.
	opts := small(3)
	source := replay.Source{Name: "fresh", Pool: replay.PoolFresh, Share: "version % 2 == 0 ? 1 : 0", Wait: true}
	at, differs := replay.Options{Sources: []replay.Source{source}}.FreshDraws(4)
	expect(t, "whether the share differs between versions", differs, true)
	opts.FreshAt, opts.Composed, opts.Updates = at, true, 6
	p := parts(tableOf(t, source))
	var l drawn
	p.Learner = &l
	r := run(t, opts, p)
	expect(t, "updates end", r.times(), []float64{16, 20, 28, 32, 40, 44})
	expect(t, "fresh rollouts", l.fresh, [][]rollout.ID{{1, 2, 3, 4}, nil, {5, 6, 7, 8}, nil, {9, 10, 11, 12}, nil})
	expect(t, "compute: six updates of 4, and a worker that never waits", r.last().Compute, 24.0+44)
	for want, change := range map[string]func(*pipeline.Options){
		"mode: sync: want async where fresh draws":             func(o *pipeline.Options) { o.Mode = pipeline.Sync },
		"mix: 2: want 0, and fresh_share 0, where fresh draws": func(o *pipeline.Options) { o.Mix = 2 },
	} {
		bad := opts
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
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
	expect(t, "longer turn of a mix", turn(pipeline.Options{Batch: 64, Group: 16, Mix: 3, SyncUpdates: 8}),
		[]int{8, 128})
	expect(t, "turn with a share", turn(pipeline.Options{Batch: 64, Group: 16, FreshShare: 0.5}), []int{1, 64})
	expect(t, "longer turn with a share", turn(pipeline.Options{Batch: 64, Group: 16, FreshShare: 0.5, SyncUpdates: 5}),
		[]int{5, 160})

	for _, c := range []struct {
		opts pipeline.Options
		want []string
	}{
		{pipeline.Options{Mix: -1}, []string{"mix: -1: want 0 to 2147483646"}},
		{pipeline.Options{Mix: math.MaxInt}, []string{"mix: 9223372036854775807: want 0 to 2147483646"}},
		{pipeline.Options{FreshShare: math.NaN()}, []string{"fresh_share: NaN: want 0 to 1"}},
		{pipeline.Options{FreshShare: -0.5}, []string{"fresh_share: -0.5: want 0 to 1"}},
		{pipeline.Options{FreshShare: math.Inf(1)}, []string{"fresh_share: +Inf: want 0 to 1"}},
		{pipeline.Options{FreshShare: 0.5, Mix: 2}, []string{"fresh_share: 0.5: want 0 with mix 2"}},
		{pipeline.Options{FreshShare: 0.1, Batch: 8}, []string{"fresh_share: 0.1: want 0, or enough for one fresh " +
			"draw among the 4 of a trainer"}},
		{pipeline.Options{Mode: pipeline.Sync, Mix: 2, SyncUpdates: 4}, []string{"sync_updates: 4: want a multiple " +
			"of the 3 updates of a mix of 2"}},
		{pipeline.Options{Mode: pipeline.Sync, Mix: 2, SyncRollouts: 512},
			[]string{"sync_rollouts: 512: want 256 with mix 2"}},
		{pipeline.Options{Mode: pipeline.Sync, Mix: 2, Batch: 48}, []string{"sync_updates: 3: want a number with " +
			"which each trainer's 24 fresh draws per turn are whole groups of 16"}},
		{pipeline.Options{Mode: pipeline.Sync, FreshShare: 0.5, SyncUpdates: 5, SyncRollouts: 624}, []string{
			"sync_rollouts: 624: want 640 or more with fresh_share 0.5: whole groups for each trainer's 320 " +
				"fresh draws",
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
			"mix": {func(o *pipeline.Options) { o.Mix = 3 },
				[]string{"4 of them fresh (replay.mix 3,", "1 of 4 fresh"}, "fresh_share (0"},
			"share": {func(o *pipeline.Options) { o.FreshShare = 0.5 },
				[]string{"2 of them fresh (", "fresh_share 0.5)", "fresh_share (0.5)"}, "\n"},
			"plain": {func(o *pipeline.Options) { o.Batch = 20; o.SyncRollouts = 20 },
				[]string{"too few rollouts for 20 each in update 1"}, "fresh ("},
		} {
			opts := small(1)
			opts.Mode = mode
			c.set(&opts)
			m, err := pipeline.New(opts, parts(aged{newNaive(1, 16, false)}), pipeline.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			err = m.Run(context.Background())
			if !errors.Is(err, pipeline.ErrStuck) || !errors.Is(err, rollout.ErrStarved) ||
				strings.Contains(err.Error(), c.not) {
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

func TestExpiryMakesRoomForWaitingGroups(t *testing.T) {
	tests.OneGoroutine(t)
	// Twelve workers outrun the trainer: the queue is full when an update makes all in it too old. No draw
	// makes room then, and the trainer needs the groups in line.
	for _, sampler := range []replay.Sampler{replay.LIFO, replay.FIFO} {
		opts := pipeline.Options{Workers: 12, Trainers: 1, Batch: 256, Group: 16, RolloutCost: 5.28, Updates: 200}
		table := newTable(t, replay.Options{Capacity: 512, Sampler: sampler, MaxStaleness: 1})
		run(t, opts, parts(table))
		if statsOf(table).Evicted[rollout.EvictedByStaleness] == 0 {
			t.Errorf("%s: nothing became too old: the test shows nothing", sampler)
		}
	}
}

func TestRandomQueuesWithABoundOnStalenessNeverGetStuck(t *testing.T) {
	tests.Long(t)
	expired, stalled := 0, 0
	for seed := range uint64(200) {
		r := rollout.Stream(seed, "test/stale", 0)
		s := randomSetup(seed)
		o := &s.opts
		o.Mode, o.PublishEvery, o.Workers = pipeline.Async, 1, 1+r.IntN(12)
		o.Mix, o.FreshShare = 0, 0 // a queue gives each rollout once: there is nothing to replay
		o.OverProvision, o.TokenBudget = 0, 0
		// Rewards that come late, and groups that take long, make rollouts too old on arrival: those take their turn in
		// the deal without filling their shard, and a queue's other shards may be full by then.
		o.RewardLatency, o.GroupTiming = nil, nil
		o.WeightTransfer = pick(r, 0, o.StepTime()/2)
		o.Batch *= 2
		table := newTable(t, replay.Options{
			Capacity: o.Batch + o.Trainers*(o.Group+r.IntN(o.Batch)), Shards: o.Trainers, Seed: seed,
			Sampler: pick(r, replay.LIFO, replay.FIFO), MaxStaleness: 1 + r.IntN(2) +
				int(math.Ceil(2*o.GroupUpdates())),
		})
		var rec record
		m, err := pipeline.New(*o, s.parts(table, &sim.Learner{}, s.chooser(t)), rec.hooks())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := m.Run(context.Background()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		last, stats := rec.last(), statsOf(table)
		batches := (o.Updates + o.BatchUpdates - 1) / o.BatchUpdates // the table counts a use for each
		if stats.Inserted != last.Inserted || stats.Acknowledged != uint64(o.Batch*batches) ||
			last.Used != uint64(o.Batch*o.Updates) || !m.Finished() {
			t.Fatalf("seed %d: the table counts %d inserted and %d uses in %d batches, the pipeline %d and %d; "+
				"finished: %t",
				seed, stats.Inserted, stats.Acknowledged, batches, last.Inserted, last.Used, m.Finished())
		}
		if stats.Evicted[rollout.EvictedByStaleness] > 0 {
			expired++
			if last.Workers[0].Stalled > 0 {
				stalled++
			}
		}
	}
	t.Logf("rollouts expired in %d of 200 configurations; workers stalled too in %d", expired, stalled)
	if expired < 20 || stalled < 10 {
		t.Errorf("rollouts expired in %d of 200 configurations, workers stalled too in %d: the test shows little",
			expired, stalled)
	}
}

// hopeless gives the parts a task that nobody ever solves.
func hopeless(p pipeline.Parts) pipeline.Parts {
	p.Task = sim.Task{}
	return p
}

func TestStarvedTrainersEndTheRunAndSayWhy(t *testing.T) {
	opts := pipeline.Options{Workers: 4, Trainers: 2, Batch: 16, Group: 4, RolloutCost: 1}
	seldom, turns := opts, opts
	seldom.PublishEvery = 10
	turns.Mode, turns.PublishEvery, turns.SyncRollouts = pipeline.Sync, 10, 16
	for name, c := range map[string]struct {
		opts pipeline.Options
		o    replay.Options
		says []string
	}{
		"weights published more seldom than rollouts age": {
			seldom, replay.Options{Capacity: 64, MaxStaleness: 5},
			[]string{"in update 7", "where 0 can be drawn", "raise replay.max_staleness", "lower",
				"pipeline.publish_every"},
		},
		"the same with a queue": {
			seldom, replay.Options{Capacity: 64, MaxStaleness: 5, Sampler: replay.FIFO},
			[]string{"where 0 can be drawn", "pipeline.publish_every"},
		},
		"the same in turns": {
			turns, replay.Options{Capacity: 64, MaxStaleness: 5},
			[]string{"where 0 can be drawn", "replay.max_staleness", "publish_every (10)"},
		},
		"recent rollouts fewer than a batch": {
			opts, replay.Options{Capacity: 20, Retention: replay.KeepPositive, PositiveFraction: 0.5},
			[]string{"where 5 can be drawn", "replay.min_size or positive_fraction"},
		},
		"bytes for fewer than a batch": {
			opts, replay.Options{Capacity: 64, CapacityBytes: 600},
			[]string{"sampling 8 from shard 0, where", "capacity or bytes"},
		},
	} {
		c.o.Shards = opts.Trainers
		var r record
		m, err := pipeline.New(c.opts, hopeless(parts(newTable(t, c.o))), r.hooks())
		if err != nil {
			t.Fatal(err)
		}
		err = m.Run(context.Background())
		if !errors.Is(err, pipeline.ErrStuck) || !errors.Is(err, rollout.ErrStarved) {
			t.Errorf("%s: error is %v, want one that wraps ErrStuck and ErrStarved", name, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error is %q, want it to say %q", name, err, part)
			}
		}
		if made := len(r.inserts) * c.opts.Group; made > 100*c.opts.Batch {
			t.Errorf("%s: %d rollouts were made before, more than 100 batches", name, made)
		}
	}
}

func TestASlowlyFillingBufferIsNotStuck(t *testing.T) {
	// 200 batches are to be there before the first is drawn.
	opts := small(1)
	opts.Batch, opts.Updates = 8, 3
	r := run(t, opts, hopeless(parts(newTable(t, replay.Options{Capacity: 1600, MinSize: 1600}))))
	expect(t, "first update ends", r.times()[0], 1608.0)

	// Weights take 1,000 while rollouts are too old for two versions: 4,000 are made and dropped meanwhile.
	opts = pipeline.Options{Workers: 4, Trainers: 1, Batch: 4, Group: 4, RolloutCost: 1, Updates: 12,
		WeightTransfer: 1000}
	table := newTable(t, replay.Options{Capacity: 64, MaxStaleness: 2})
	run(t, opts, parts(table))
	if dropped := statsOf(table).Evicted[rollout.EvictedByStaleness]; dropped < 8000 {
		t.Errorf("%d rollouts were too old, want thousands: the test shows little", dropped)
	}

	// No rewards are known from 500 to 1,100, and then those of 2,000 rollouts of the old weights in a row:
	// jobs n to n+3 end at n+4.
	opts.RewardLatency = func(job uint64) float64 {
		switch {
		case job < 500:
			return 0
		case job < 1100:
			return 1100 + float64(job)/100 - float64(job-job%4)
		default:
			return 20 // after those
		}
	}
	run(t, opts, parts(newTable(t, replay.Options{Capacity: 64, MaxStaleness: 2})))

	// Rewards that take 1,000 hold back as many rollouts of the old weights.
	opts.WeightTransfer, opts.Updates = 0, 12
	opts.RewardLatency = func(uint64) float64 { return 1000 }
	run(t, opts, parts(newTable(t, replay.Options{Capacity: 64, MaxStaleness: 2})))

	// One rollout in a hundred is kept beyond the recent ones, which are fewer than a batch.
	opts = small(1)
	opts.Batch, opts.Updates = 8, 3
	p := parts(newTable(t, replay.Options{Capacity: 40, Retention: replay.KeepPositive, PositiveFraction: 0.9}))
	p.Task = sim.Task{Accept: 0.01}
	run(t, opts, p)
}
