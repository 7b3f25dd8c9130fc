package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

// setup is a random configuration; the same seed gives the same.
type setup struct {
	seed    uint64
	opts    pipeline.Options
	replays *prompts.Options // of the buffer of prompts that are asked again; nil: prompts in order
}

func pick[T any](r *rand.Rand, xs ...T) T { return xs[r.IntN(len(xs))] }

func randomSetup(seed uint64) setup {
	r := rollout.Stream(seed, "test/setup", 0)
	o := pipeline.Options{
		Workers: 1 + r.IntN(5), Trainers: 1 + r.IntN(3), Group: 1 + r.IntN(4),
		RolloutCost:    pick(r, 0.25, 1, 1.5, 3, 0.2+3*r.Float64()),
		WeightTransfer: pick(r, 0, 0, 1, 7.3),
		PublishEvery:   pick(r, 1, 1, 3),
		WeightSync:     pick(r, pipeline.ByGroup, pipeline.ByToken),
		Chunk:          1 + r.IntN(4), MaxTokens: 12,
		Mode:    pick(r, pipeline.Async, pipeline.Async, pipeline.Sync),
		Updates: 25 + r.IntN(20),
	}
	o.Batch = o.Trainers * (1 + r.IntN(6))
	if r.IntN(2) == 0 {
		o.RewardLatency = func(job uint64) float64 {
			return 4 * rollout.Stream(seed, "test/latency", job).ExpFloat64()
		}
	}
	o.SyncUpdates = 1 + r.IntN(3)
	o.SyncRollouts = o.Group * ((o.Batch+o.Group-1)/o.Group + o.Trainers) // a batch for every shard
	mixIn(&o, r)
	o.BatchUpdates = pick(rollout.Stream(seed, "test/batches", 0), 1, 1, 2, 3)
	o.SyncUpdates *= o.BatchUpdates
	o.ForwardPasses = rollout.Stream(seed, "test/forward", 0).IntN(o.BatchUpdates + 1)
	timeIn(&o, seed)
	if f := rollout.Stream(seed, "test/filter", 0); o.Group > 1 && f.IntN(2) == 0 {
		o.FilterGroups, o.MaxGenBatches = true, 1000
	}
	parkIn(&o, seed)
	if w := rollout.Stream(seed, "test/window", 0); o.Mode == pipeline.Async {
		o.Window = pick(w, 0, 1, 2, 5)
	}
	s := setup{seed: seed, opts: o}
	if r.IntN(2) == 0 {
		s.replays = &prompts.Options{Fraction: pick(r, 0.5, 0.75, 1), Band: pick(r, 0.3, 0.5), Cooldown: r.IntN(6),
			MaxReuse: 1 + r.IntN(4)}
	}
	return s
}

// timeIn gives some options groups that differ in time, and some a limit to the updates in flight.
func timeIn(o *pipeline.Options, seed uint64) {
	r := rollout.Stream(seed, "test/timing", 0)
	mean := float64(o.Group) * o.RolloutCost
	if r.IntN(2) == 0 {
		o.GroupTiming = func(job uint64, worker int) pipeline.Timing {
			r := rollout.Stream(seed, "test/timing", 1+job)
			return pipeline.Timing{Worker: mean * (0.1 + float64(1+worker%2)*r.ExpFloat64()),
				Tail: max(0, 2*r.NormFloat64())}
		}
	}
	o.UpdatesInFlight = pick(r, 0, 0, 1, 2)
}

// parkIn has some synchronous options park rollouts.
func parkIn(o *pipeline.Options, seed uint64) {
	r := rollout.Stream(seed, "test/parking", 0)
	if o.Mode != pipeline.Sync || r.IntN(4) == 0 {
		return
	}
	o.WeightSync, o.OverProvision = pipeline.ByToken, pick(r, 0.3, 1, 2.5)
	o.TokenBudget = o.Chunk * pick(r, 0, 1, 2)
}

// mixIn gives some options a mix, others a share of fresh draws.
func mixIn(o *pipeline.Options, r *rand.Rand) {
	switch r.IntN(3) {
	case 0:
		o.Mix = 1 + r.IntN(3)
		o.Batch = o.Trainers * o.Group * (1 + r.IntN(2)) // so that turns come out even
		o.SyncUpdates, o.SyncRollouts = (1+o.Mix)*(1+r.IntN(2)), 0
	case 1:
		o.FreshShare = float64(1+r.IntN(4)) / 4
		o.Batch = o.Trainers * (2 + r.IntN(5)) // for at least one draw
		o.SyncUpdates = 1 + r.IntN(2)
		each := o.Batch / o.Trainers
		share := int(math.Round(o.FreshShare * float64(each)))
		o.SyncRollouts = o.Trainers * o.Group * ((o.SyncUpdates*share+o.Group-1)/o.Group + (each+o.Group-1)/o.Group)
	}
}

// chooser returns a chooser with an empty buffer, nil where prompts come in order.
func (s setup) chooser(t testing.TB) *prompts.Chooser {
	t.Helper()
	if s.replays == nil {
		return nil
	}
	b, err := prompts.New(*s.replays)
	if err != nil {
		t.Fatal(err)
	}
	c, err := prompts.NewChooser(b, prompts.ChooserOptions{
		Groups: max(1, s.opts.Batch/s.opts.Group), Threshold: 1,
		Ident: func(n uint64) string { return s.task().Train(n).ID },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// task has prompts that come up among the fresh ones again.
func (s setup) task() sim.Task { return sim.Task{Seed: s.seed, Accept: 0.5, Spread: 0.4, Prompts: 60} }

// buffer returns an empty buffer for the setup, a queue for every second asynchronous one.
func (s setup) buffer() *naive {
	o := s.opts
	n := o.Batch / o.Trainers
	if s.seed%2 == 0 && o.Mode == pipeline.Async {
		return newNaive(o.Trainers, n+o.Group+int(s.seed%5), true)
	}
	return newNaive(o.Trainers, 2*n+o.Group, false)
}

func (s setup) parts(b pipeline.Buffer, l pipeline.Learner, c *prompts.Chooser) pipeline.Parts {
	p := pipeline.Parts{
		Task: s.task(), Buffer: b, Learner: l,
		Generator: &sim.Generator{Seed: s.seed, Prompt: 2, Lengths: sim.Lognormal{Median: 5, Sigma: 0.8, Max: 12}},
	}
	if c != nil {
		p.Prompts = c
	}
	return p
}

// outcome is all that a run leaves behind.
type outcome struct {
	record
	buffer  *naive
	chooser *prompts.Chooser // nil: prompts in order
	state   pipeline.State
}

func (s setup) run(t *testing.T, wrap func(pipeline.Parts) pipeline.Parts) outcome {
	t.Helper()
	out := outcome{buffer: s.buffer(), chooser: s.chooser(t)}
	p := s.parts(out.buffer, &sim.Learner{}, out.chooser)
	if wrap != nil {
		p = wrap(p)
	}
	m, err := pipeline.New(s.opts, p, out.hooks())
	if err != nil {
		t.Fatalf("seed %d: %v", s.seed, err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatalf("seed %d: %v", s.seed, err)
	}
	if out.state, _, err = m.Snapshot(); err != nil {
		t.Fatalf("seed %d: %v", s.seed, err)
	}
	return out
}

// same fails the test where two runs differ.
func same(t *testing.T, seed uint64, got, want outcome) {
	t.Helper()
	if len(got.updates) != len(want.updates) || len(got.inserts) != len(want.inserts) {
		t.Fatalf("seed %d: %d updates and %d insertions, want %d and %d",
			seed, len(got.updates), len(got.inserts), len(want.updates), len(want.inserts))
	}
	for i, w := range want.updates {
		if g := got.updates[i]; fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", w) {
			t.Fatalf("seed %d: update %d differs:\n got %+v\nwant %+v", seed, i, g, w)
		}
	}
	for i, w := range want.inserts {
		if g := got.inserts[i]; !reflect.DeepEqual(g, w) {
			t.Fatalf("seed %d: insertion %d differs:\n got %+v\nwant %+v", seed, i, g, w)
		}
	}
	if !reflect.DeepEqual(got.drops, want.drops) {
		t.Fatalf("seed %d: dropped groups differ:\n got %+v\nwant %+v", seed, got.drops, want.drops)
	}
	if !reflect.DeepEqual(got.buffer, want.buffer) {
		t.Fatalf("seed %d: buffers differ at the end", seed)
	}
	if !bytes.Equal(saved(t, got.chooser), saved(t, want.chooser)) {
		t.Fatalf("seed %d: choosers of prompts differ at the end", seed)
	}
	if !reflect.DeepEqual(got.state, want.state) {
		t.Fatalf("seed %d: states differ at the end:\n got %+v\nwant %+v", seed, got.state, want.state)
	}
}

// saved returns a chooser's snapshot, nil for none.
func saved(t testing.TB, c *prompts.Chooser) []byte {
	t.Helper()
	if c == nil {
		return nil
	}
	var b bytes.Buffer
	if err := c.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCountsBalanceInRandomConfigurations(t *testing.T) {
	seeds := tests.Count(200, 40)
	stalled, replayed, fresh, dropped, overtook := 0, 0, 0, 0, 0
	for seed := range uint64(seeds) {
		s := randomSetup(seed)
		out := s.run(t, nil)
		balanced(t, s, out)
		balancedPrompts(t, s, out)
		filtered(t, s, out)
		overtook += windowed(t, s, out)
		dropped += len(out.drops)
		if out.last().Workers[0].Stalled > 0 {
			stalled++
		}
		if out.chooser != nil {
			replayed += int(out.chooser.Stats().Replayed)
		}
		for _, u := range out.updates {
			fresh += u.FreshDraws
		}
	}
	if stalled < seeds/10 || replayed < 2*seeds || fresh < 25*seeds || dropped < 5*seeds ||
		overtook < seeds {
		t.Errorf("workers stalled in %d of %d configurations, %d prompts were replayed, %d draws fresh, %d groups "+
			"dropped, %d overtook others within a window: the test shows little", stalled, seeds, replayed, fresh, dropped,
			overtook)
	}
}

// windowed holds the order in which groups entered against the window, and returns how many overtook others.
func windowed(t *testing.T, s setup, out outcome) (overtook int) {
	t.Helper()
	if s.opts.Window == 0 || s.opts.FilterGroups { // drops come in between
		return 0
	}
	entered := make(map[uint64]bool)
	first := uint64(0)
	for _, in := range out.inserts {
		if in.Job >= first+uint64(s.opts.Window) {
			t.Fatalf("seed %d: job %d entered before job %d, with a window of %d", s.seed, in.Job, first, s.opts.Window)
		}
		if in.Job > first {
			overtook++
		}
		for entered[in.Job] = true; entered[first]; first++ {
		}
	}
	return overtook
}

// filtered holds what was dropped and what was inserted against what FilterGroups says.
func filtered(t *testing.T, s setup, out outcome) {
	t.Helper()
	o := s.opts
	alike := func(in pipeline.Insertion) bool {
		for _, r := range in.Rollouts {
			if r.Reward != in.Rollouts[0].Reward {
				return false
			}
		}
		return true
	}
	for _, in := range out.inserts {
		if o.FilterGroups && alike(in) {
			t.Fatalf("seed %d: job %d has one reward for all and entered", s.seed, in.Job)
		}
	}
	for _, in := range out.drops {
		if !o.FilterGroups || !alike(in) || in.IDs != nil {
			t.Fatalf("seed %d: job %d was dropped", s.seed, in.Job)
		}
	}
	dropped, sum, n := 0, 0.0, 0
	for i, u := range out.updates {
		dropped += u.DroppedGroups
		sum, n = sum+u.NewReward*float64(u.NewRollouts+o.Group*u.DroppedGroups), n+u.NewRollouts+o.Group*u.DroppedGroups
		switch turn := o.SyncRollouts; {
		case u.Dropped != uint64(o.Group*dropped):
			t.Fatalf("seed %d: update %d has %d rollouts dropped so far in %d groups", s.seed, i, u.Dropped, dropped)
		case (o.FilterGroups || o.OverProvision > 0) && u.Compute != u.ComputeBusy():
			t.Fatalf("seed %d: update %d has compute %g, want %g", s.seed, i, u.Compute, u.ComputeBusy())
		case o.Mode == pipeline.Sync && turn > 0 && u.NewRollouts%turn != 0:
			t.Fatalf("seed %d: update %d has %d new rollouts in turns of %d", s.seed, i, u.NewRollouts, turn)
		}
	}
	for _, list := range [][]pipeline.Insertion{out.inserts, out.drops} {
		for _, in := range list {
			for _, r := range in.Rollouts {
				sum -= float64(r.Reward)
			}
		}
	}
	if dropped != len(out.drops) || n != o.Group*(len(out.inserts)+len(out.drops)) || math.Abs(sum) > 1e-6 {
		t.Fatalf("seed %d: %d groups dropped, want %d; rewards of %d rollouts, off by %g", s.seed, dropped, len(out.drops),
			n, sum)
	}
	if f := out.state.Filling; f.Kept > f.Generated || f.Kept >= o.Batch+o.SyncRollouts ||
		!o.FilterGroups && f != (pipeline.Filling{}) || o.Mode == pipeline.Sync && f != (pipeline.Filling{}) {
		t.Fatalf("seed %d: at the end a batch is filled so far: %+v", s.seed, f)
	}
}

func balanced(t *testing.T, s setup, out outcome) {
	t.Helper()
	o, last := s.opts, out.last()
	var inserted, at, drop uint64
	now := 0.0
	for i, u := range out.updates {
		inserted += uint64(u.NewRollouts)
		replayed := 0
		for ; at < uint64(len(out.inserts)) && uint64(o.Group)*at < u.Inserted; at++ {
			if out.inserts[at].Replayed {
				replayed++
			}
		}
		for ; drop < uint64(len(out.drops)) && uint64(o.Group)*drop < u.Dropped; drop++ {
			if out.drops[drop].Replayed {
				replayed++
			}
		}
		fresh := o.Trainers * int(math.Round(o.FreshShare*float64(o.Batch/o.Trainers)))
		if o.Mix > 0 && i/o.BatchUpdates%(1+o.Mix) == 0 {
			fresh = o.Batch
		}
		if i%o.BatchUpdates > 0 { // drawn before
			fresh = 0
		}
		switch {
		case u.FreshDraws != fresh:
			t.Fatalf("seed %d: update %d has %d fresh draws, want %d", s.seed, i, u.FreshDraws, fresh)
		case u.NewGroups*o.Group != u.NewRollouts || u.ReplayedPrompts != replayed:
			t.Fatalf("seed %d: update %d has %d new groups of %d rollouts, %d about replayed prompts, want %d",
				s.seed, i, u.NewGroups, u.NewRollouts, u.ReplayedPrompts, replayed)
		case int(u.Version) != i+1:
			t.Fatalf("seed %d: update %d has version %d", s.seed, i, u.Version)
		case u.Time < now:
			t.Fatalf("seed %d: time goes back from %g to %g", s.seed, now, u.Time)
		case u.Stored != u.Inserted || u.Inserted != inserted || u.Inserted != at*uint64(o.Group):
			t.Fatalf("seed %d: %d inserted, %d new in all, %d groups seen", s.seed, u.Inserted, inserted, at)
		case u.Used != uint64(u.Version)*uint64(o.Batch):
			t.Fatalf("seed %d: %d used in %d updates of %d", s.seed, u.Used, u.Version, o.Batch)
		case u.StalenessMax < 0 || u.StalenessMax >= int32(u.Version) || u.StalenessMean > float64(u.StalenessMax):
			t.Fatalf("seed %d: staleness %d, mean %g, at update %d", s.seed, u.StalenessMax, u.StalenessMean, u.Version)
		}
		for _, g := range append([]pipeline.GPUTime{u.Trainer}, u.Workers...) {
			if sum := g.Busy + g.Stalled + g.Idle; math.Abs(sum-u.Time) > 1e-9*u.Time {
				t.Fatalf("seed %d: GPU accounts for %g of %g: %+v", s.seed, sum, u.Time, g)
			}
		}
		now = u.Time
	}
	each := float64(o.Batch / o.Trainers)
	want := each * float64(len(out.updates))
	for i := range out.updates {
		if i%o.BatchUpdates < o.ForwardPasses {
			want += each / 3
		}
	}
	if math.Abs(last.Trainer.Busy-want) > 1e-9*want {
		t.Fatalf("seed %d: trainers were busy for %g, want %g", s.seed, last.Trainer.Busy, want)
	}
	if n := len(out.state.Coming); o.UpdatesInFlight > 0 && n > o.UpdatesInFlight {
		t.Fatalf("seed %d: weights of %d updates are under way, want at most %d", s.seed, n, o.UpdatesInFlight)
	}
	inFlight := 0
	for _, w := range out.state.Workers {
		if w.Busy {
			inFlight++
		}
	}
	inFlight += len(out.state.Parked)
	if made := len(out.inserts) + len(out.drops) + len(out.state.Groups) + inFlight; uint64(made) != out.state.NextJob {
		t.Fatalf("seed %d: %d jobs dispatched, %d accounted for", s.seed, out.state.NextJob, made)
	}
	if b := out.buffer; b.Inserted != b.present()+b.Left || uint64(b.Inserted) != last.Inserted {
		t.Fatalf("seed %d: buffer took %d, holds %d, lost %d; the pipeline says %d", s.seed, b.Inserted, b.present(),
			b.Left, last.Inserted)
	}
}

// balancedPrompts holds what the chooser counted against what the pipeline did.
func balancedPrompts(t *testing.T, s setup, out outcome) {
	t.Helper()
	if out.chooser == nil {
		return
	}
	replayed := uint64(0)
	count := func(yes bool) {
		if yes {
			replayed++
		}
	}
	for _, in := range slices.Concat(out.inserts, out.drops) {
		count(in.Replayed)
	}
	for _, w := range out.state.Workers {
		count(w.Busy && w.Replayed)
	}
	for _, g := range out.state.Groups {
		count(g.Replayed)
	}
	for _, p := range out.state.Parked {
		count(p.Replayed)
	}
	if c := out.chooser.Stats(); c.Fresh+c.Replayed != out.state.NextJob || c.Replayed != replayed ||
		int(c.Buffer.Reported) != len(out.inserts)+len(out.drops) {
		t.Fatalf("seed %d: %d fresh prompts and %d replayed, %d reported; the pipeline has %d jobs, %d about "+
			"replayed prompts, %d groups inserted, %d dropped", s.seed, c.Fresh, c.Replayed, c.Buffer.Reported,
			out.state.NextJob, replayed, len(out.inserts), len(out.drops))
	}
}

func TestResultsDoNotDependOnGoroutineScheduling(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for seed := range uint64(tests.Count(30, 10)) {
		s := randomSetup(seed)
		s.opts.Concurrency = 1
		want := s.run(t, nil)
		for _, procs := range []int{1, 2} {
			runtime.GOMAXPROCS(procs)
			s.opts.Concurrency = 1 + int(seed%4)
			r := newReleaser(seed)
			got := s.run(t, func(p pipeline.Parts) pipeline.Parts {
				p.Generator = delayedGenerator{p.Generator, r}
				p.Learner = delayedLearner{p.Learner, r}
				return p
			})
			r.close()
			same(t, seed, got, want)
		}
	}
}

// releaser holds goroutines up and lets them go in random order.
type releaser struct {
	arrive chan chan struct{}
	ended  chan struct{}
}

func newReleaser(seed uint64) *releaser {
	r := &releaser{arrive: make(chan chan struct{}), ended: make(chan struct{})}
	go r.serve(rollout.Stream(seed, "test/release", 0))
	return r
}

func (r *releaser) serve(rng *rand.Rand) {
	defer close(r.ended)
	var held []chan struct{}
	for {
		if len(held) == 0 {
			c, ok := <-r.arrive
			if !ok {
				return
			}
			held = append(held, c)
		}
		for range rng.IntN(20) { // give others the chance to arrive
			runtime.Gosched()
			select {
			case c := <-r.arrive:
				held = append(held, c)
			default:
			}
		}
		i := rng.IntN(len(held))
		close(held[i])
		held[i] = held[len(held)-1]
		held = held[:len(held)-1]
	}
}

func (r *releaser) wait() {
	c := make(chan struct{})
	r.arrive <- c
	<-c
}

func (r *releaser) close() {
	close(r.arrive)
	<-r.ended
}

type delayedGenerator struct {
	pipeline.Generator
	r *releaser
}

func (d delayedGenerator) Start(job pipeline.Job) (pipeline.Generation, error) {
	g, err := d.Generator.Start(job)
	return delayedGeneration{g, d.r}, err
}

type delayedGeneration struct {
	pipeline.Generation
	r *releaser
}

func (d delayedGeneration) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	d.r.wait()
	return d.Generation.Continue(ctx, w, n)
}

type delayedLearner struct {
	pipeline.Learner
	r *releaser
}

func (d delayedLearner) Step(ctx context.Context, bs []*rollout.Batch) (pipeline.Measured, error) {
	d.r.wait()
	return d.Learner.Step(ctx, bs)
}

// naive is the plainest buffer that keeps the contract: a slice per shard. With queue it is consumed
// from the front and bounded; without, the newest are kept and drawn with replacement, but for fresh draws, which are
// the oldest that were never given as fresh.
type naive struct {
	capacity int // rollouts per shard
	queue    bool
	seed     uint64
	order    []int // shards that the first groups are dealt to; the rest in turn

	Version        rollout.Version
	Shards         [][]entry
	Dealt          int // groups
	Next           rollout.ID
	Samples        uint64 // batches drawn
	Inserted, Left int
}

type entry struct {
	ID    rollout.ID
	Group uint64
	Mean  float32
	Given bool // as fresh
	R     *rollout.Rollout
}

func newNaive(shards, capacity int, queue bool) *naive {
	return &naive{capacity: capacity, queue: queue, Shards: make([][]entry, shards), seed: 1}
}

// clone is a snapshot of the buffer.
func (n *naive) clone() *naive {
	c := *n
	c.Shards = nil
	for _, s := range n.Shards {
		c.Shards = append(c.Shards, slices.Clone(s))
	}
	return &c
}

func (n *naive) present() int {
	sum := 0
	for _, s := range n.Shards {
		sum += len(s)
	}
	return sum
}

func (n *naive) Report(context.Context, ...rollout.Feedback) error { return nil }

func (n *naive) Len(context.Context) (int, error) { return n.present(), nil }

func (n *naive) Insert(_ context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	var ids []rollout.ID
	for _, g := range groups {
		s := &n.Shards[n.Dealt%len(n.Shards)]
		if n.Dealt < len(n.order) {
			s = &n.Shards[n.order[n.Dealt]]
		}
		if n.queue && len(*s)+len(g.Rollouts) > n.capacity {
			return nil, fmt.Errorf("insert group %d: %w", n.Dealt, rollout.ErrFull)
		}
		var mean float32
		for _, r := range g.Rollouts {
			if r.Version() > n.Version {
				return nil, fmt.Errorf("version %d: %w", r.Version(), rollout.ErrAhead)
			}
			mean += r.Reward / float32(len(g.Rollouts))
		}
		for _, r := range g.Rollouts {
			n.Next++
			*s = append(*s, entry{ID: n.Next, Group: uint64(n.Dealt), Mean: mean, R: r})
			ids = append(ids, n.Next)
			n.Inserted++
		}
		if over := len(*s) - n.capacity; over > 0 {
			*s = slices.Clone((*s)[over:])
			n.Left += over
		}
		n.Dealt++
	}
	return ids, nil
}

func (n *naive) Sample(_ context.Context, req rollout.Request) (*rollout.Batch, error) {
	s := &n.Shards[req.Shard]
	var fresh []int
	for i, k := range *s {
		if !k.Given && len(fresh) < req.Fresh {
			fresh = append(fresh, i)
		}
	}
	if len(*s) < req.Size || len(fresh) < req.Fresh {
		return nil, fmt.Errorf("%d of %d are there, %d of %d fresh: %w", len(*s), req.Size, len(fresh), req.Fresh,
			rollout.ErrStarved)
	}
	b := &rollout.Batch{ID: rollout.BatchID(n.Samples), Version: n.Version, Shard: req.Shard}
	rng := rollout.Stream(n.seed, "naive", n.Samples)
	n.Samples++
	for i := range req.Size {
		given := i < req.Fresh
		switch {
		case given:
			i = fresh[i]
			(*s)[i].Given = true
		case !n.queue:
			i = rng.IntN(len(*s))
		}
		b.Draws = append(b.Draws, n.draw((*s)[i], given))
	}
	if n.queue {
		*s = slices.Clone((*s)[req.Size:])
		n.Left += req.Size
	}
	return b, nil
}

func (n *naive) draw(k entry, fresh bool) rollout.Draw {
	return rollout.Draw{
		ID: k.ID, Group: k.Group, Rollout: k.R, Weight: 1, GroupMean: k.Mean, Fresh: fresh,
		Staleness: int32(n.Version - k.R.Version()),
	}
}

func (n *naive) Advance(_ context.Context, v rollout.Version) error {
	if v < n.Version {
		return fmt.Errorf("advance from %d back to %d", n.Version, v)
	}
	n.Version = v
	return nil
}
