package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// feed records what a Live does with its parts, in order.
type feed struct {
	calls    []string
	version  rollout.Version
	inserted uint64
	starved  bool // Sample waits for ever
}

func (f *feed) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *feed) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	f.note("sample %d", req.Size)
	if f.starved {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b := &rollout.Batch{Version: f.version}
	for i := range req.Size {
		r := &rollout.Rollout{Reward: float32(i % 2)}
		b.Draws = append(b.Draws, rollout.Draw{Rollout: r, Staleness: 1, Uses: int32(i % 2)})
	}
	f.inserted += uint64(req.Size) / 2
	return b, nil
}

func (f *feed) Report(context.Context, ...rollout.Feedback) error { f.note("report"); return nil }

func (f *feed) Advance(_ context.Context, v rollout.Version) error {
	f.note("advance %d", v)
	f.version = v
	return nil
}

func (f *feed) Inserted(context.Context) (rollouts, groups uint64, err error) {
	return f.inserted, f.inserted / 2, nil
}

func (f *feed) Settle(context.Context) error { f.note("settle"); return nil }

type stepper struct {
	feed    *feed
	version rollout.Version
}

func (s *stepper) Step(_ context.Context, b []*rollout.Batch) (Measured, error) {
	s.version++
	s.feed.note("step at staleness %d", b[0].Draws[0].Staleness)
	return Measured{}, nil
}

func (s *stepper) Weights() Weights { return Weights{Version: s.version} }

func live(t *testing.T, o Options, f *feed, began rollout.Version, state LiveState, hook func(Update) error) *Live {
	t.Helper()
	l, err := NewLive(o, LiveParts{Feed: f, Learner: &stepper{f, began}, OnUpdate: hook,
		Publish: func(_ context.Context, w Weights) error { f.note("publish %d", w.Version); return nil }}, state)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestALiveRunPublishesBeforeItAdvances(t *testing.T) {
	f := &feed{}
	var seen []Update
	l := live(t, Options{Workers: 2, Trainers: 1, Batch: 8, Group: 2, BatchUpdates: 2, PublishEvery: 2, Updates: 3}, f, 0,
		LiveState{}, func(u Update) error {
			f.note("record %d", u.Version)
			seen = append(seen, u)
			return nil
		})
	if err := l.Run(t.Context()); err != nil || !l.Finished() {
		t.Fatalf("%v, finished %t", err, l.Finished())
	}
	want := []string{"publish 0", "advance 0",
		"sample 8", "step at staleness 1", "report", "advance 1", "record 1",
		"step at staleness 2", "report", "publish 2", "advance 2", "record 2", "settle",
		"sample 8", "step at staleness 1", "report", "advance 3", "record 3", "settle"}
	if !slices.Equal(f.calls, want) {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(f.calls, ", "), strings.Join(want, ", "))
	}
	u := seen[2]
	if u.Used != 24 || u.Inserted != 8 || u.NewRollouts != 4 || u.NewGroups != 2 || u.NewReward != 0 ||
		u.BatchReward != 0.5 || u.StalenessMean != 1 || u.Compute != 3*l.Options().UpdateCompute ||
		!(u.Trainer.Busy > 0) || u.Time < u.Trainer.Busy {
		t.Errorf("the third update is %+v", u)
	}
}

// A run that goes on at a later version counts what a crash undid as compute, and publishes what it begins with.
func TestALiveRunGoesOn(t *testing.T) {
	f := &feed{version: 7}
	state := LiveState{Used: 40, Inserted: 20, Time: 9, Busy: 5, Stalled: 4}
	l := live(t, Options{Workers: 2, Trainers: 1, Batch: 8, Group: 2, Updates: 9}, f, 8, state, nil)
	if err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := l.State()
	if f.calls[0] != "publish 8" || f.version != 9 || s.Used != 48 || s.Time <= 9 || s.Busy <= 5 || s.Stalled < 4 {
		t.Errorf("%v, version %d, %+v", f.calls, f.version, s)
	}
}

// With 2 workers and a batch of 8, an update costs 8 (1 + 2) = 24 without a wait. Batches have 8, 0, 7 and 4 fresh
// rollouts: with one update on each and mu 3, 8 + 3 of them are 32, 8, 29 and 20; with two and mu 6, 8 + 6/2 of them.
func TestALiveRunCountsTheFreshRolloutsThatItWaitsFor(t *testing.T) {
	for updates, want := range map[int][]float64{1: {32, 56, 85, 109}, 2: {32, 64, 88, 112}} {
		fresh := func(v rollout.Version) int { return []int{8, 0, 7, 4}[int(v)/updates] }
		o := Options{Workers: 2, Trainers: 1, Batch: 8, Group: 2, RolloutCost: 3 * float64(updates),
			BatchUpdates: updates, PublishEvery: updates, ComputeBudget: want[3], FreshAt: fresh}
		f, got := &feed{}, []float64(nil)
		l := live(t, o, f, 0, LiveState{}, func(u Update) error { got = append(got, u.Compute); return nil })
		if err := l.Run(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d updates on each batch: compute %v, want %v; %v", updates, got, want, err)
		}
		again := live(t, o, &feed{version: 3}, 3, l.State(), nil)
		if c := again.compute(); c != want[2] {
			t.Errorf("resumed after 3 updates: compute %v, want %v", c, want[2])
		}
	}
}

func TestAWaitingLiveRunIsStopped(t *testing.T) {
	f := &feed{starved: true}
	l := live(t, Options{Workers: 1, Trainers: 1, Batch: 8, Group: 2, Updates: 9}, f, 0, LiveState{}, nil)
	ended := make(chan error)
	go func() { ended <- l.Run(t.Context()) }()
	l.Stop()
	if err := <-ended; err != nil || l.Finished() {
		t.Errorf("%v, finished %t", err, l.Finished())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l = live(t, Options{Workers: 1, Trainers: 1, Batch: 8, Group: 2, Updates: 9}, f, 0, LiveState{}, nil)
	if err := l.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestALiveRunRefusesWhatItCannotDo(t *testing.T) {
	for want, o := range map[string]Options{
		"trainers: 2": {Workers: 1, Trainers: 2, Batch: 8, Group: 2},
		"mode: sync":  {Workers: 1, Trainers: 1, Batch: 8, Group: 2, Mode: Sync},
	} {
		if _, err := NewLive(o, LiveParts{}, LiveState{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}
