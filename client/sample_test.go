package client

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// twins returns a remote table and an embedded one with the same options and contents.
func twins(t *testing.T, o replay.Options) (*fake, *Table, *replay.Table) {
	t.Helper()
	f, table := connected(t, o, Options{})
	local, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []rollout.Group{group("a", 1, 0, 0), group("b", 0, 1, 1), group("c", 1, 0, 1)} {
		remote, err := table.Insert(context.Background(), g)
		if err != nil {
			t.Fatal(err)
		}
		own, err := local.Insert(context.Background(), g)
		if err != nil || !reflect.DeepEqual(remote, own) {
			t.Fatalf("ids %v of the service, %v of the table, %v", remote, own, err)
		}
	}
	return f, table, local
}

func TestSamplesAreThoseOfAnEmbeddedTable(t *testing.T) {
	f, table, local := twins(t, replay.Options{Sampler: replay.Prioritized, Seed: 3, Capacity: 64})
	for i := range 20 {
		got, err := table.Sample(context.Background(), rollout.Request{Size: 4})
		if err != nil {
			t.Fatal(err)
		}
		want, err := local.Sample(context.Background(), rollout.Request{Size: 4})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("batch %d differs:\n%+v\nwant\n%+v", i, got, want)
		}
		for _, b := range []both{table, local} {
			if err := b.Advance(context.Background(), rollout.Version(i+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := f.count("exchange"); n != 1 {
		t.Errorf("20 batches took %d streams", n)
	}
}

func TestDrawsByPromptAreThoseOfAnEmbeddedTable(t *testing.T) {
	_, table, local := twins(t, replay.Options{Seed: 3, Capacity: 64, PromptIndex: true})
	req := rollout.Request{Prompts: []string{"b", "nobody's", "a"}, PerPrompt: 2}
	for i := range 12 {
		if req.Where, req.Order = "", ""; i%2 == 1 {
			req.Where, req.Order = "reward >= 0.5", "-uses"
		}
		if i%3 == 2 {
			req.Prompts = []string{"nobody's"}
		}
		draws := []func(context.Context, rollout.Request) (*rollout.Batch, error){table.Sample, local.Sample}
		if i >= 6 {
			draws = []func(context.Context, rollout.Request) (*rollout.Batch, error){table.Lease, local.Lease}
		}
		got, err := draws[0](context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		want, err := draws[1](context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.PromptCounts, want.PromptCounts) || len(got.Draws) != len(want.Draws) ||
			len(want.Draws) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("draw %d differs:\n%+v\nwant\n%+v", i, got, want)
		}
	}
	req.Where = "rewrad > 0"
	if _, err := table.Sample(context.Background(), req); !errors.Is(err, rollout.ErrInvalid) ||
		!strings.Contains(err.Error(), "use reward") {
		t.Errorf("an unknown column gave %v", err)
	}
}

func TestComposedBatchesAreThoseOfAnEmbeddedTable(t *testing.T) {
	_, table, local := twins(t, replay.Options{Seed: 3, Capacity: 64, Sources: []replay.Source{
		{Name: "fresh", Pool: replay.PoolFresh, Count: 1, Where: "reward > 0", Backfill: "light"},
		{Name: "light", Share: "0.5 - version / 40", Weight: "1 / (1 + uses)", PerPrompt: 1},
	}})
	for i := range 12 {
		got, err := table.Sample(context.Background(), rollout.Request{Size: 4})
		if err != nil {
			t.Fatal(err)
		}
		want, err := local.Sample(context.Background(), rollout.Request{Size: 4})
		if err != nil || len(want.SourceCounts) != 2 || !reflect.DeepEqual(got, want) {
			t.Fatalf("draw %d differs (%v):\n%+v\nwant\n%+v", i, err, got, want)
		}
		for _, b := range []both{table, local} {
			if err := b.Advance(context.Background(), rollout.Version(i+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// both is what an embedded table and those of services have in common.
type both interface {
	Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error)
	Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error)
	Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error)
	Acknowledge(ctx context.Context, batches ...rollout.BatchID) error
	Release(ctx context.Context, batches ...rollout.BatchID) error
	Report(ctx context.Context, feedback ...rollout.Feedback) error
	Update(ctx context.Context, ids []rollout.ID, priorities []float64) error
	Reward(ctx context.Context, r rollout.Rewards) (rollout.Rewarded, error)
	Advance(ctx context.Context, v rollout.Version) error
	Rewind(ctx context.Context, v rollout.Version) error
	Len(ctx context.Context) (int, error)
	Stats(ctx context.Context) (rollout.Stats, error)
}

var _ = []both{(*replay.Table)(nil), (*Table)(nil), (*PartedTable)(nil)}

func TestABatchWhoseAnswerGetsLostIsDrawnOnce(t *testing.T) {
	t.Parallel()
	f, table, local := twins(t, replay.Options{Sampler: replay.FIFO, Capacity: 9})
	f.failing(func(m string, n int) error {
		if (m == "exchange" || m == "before sample" || m == "after sample" || m == "after acknowledge") &&
			(n == 1 || n == 4) {
			return broken()
		}
		return nil
	})
	named := 0
	for range 3 {
		got, err := table.Sample(context.Background(), rollout.Request{Size: 3})
		if err != nil {
			t.Fatal(err)
		}
		want, err := local.Sample(context.Background(), rollout.Request{Size: 3})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Draws {
			if got.Draws[i].Redelivered {
				named++
			}
			got.Draws[i].Redelivered = false
		}
		if got.Repeated || !reflect.DeepEqual(got.Draws, want.Draws) {
			t.Fatalf("drew\n%+v\nwant\n%+v", got.Draws, want.Draws)
		}
	}
	if stats := statsOf(f.table); stats.Drawn-stats.Returned != 9 || stats.Acknowledged != 9 || named == 0 {
		t.Errorf("%d draws, %d of them went back, %d uses of 9, %d named", stats.Drawn, stats.Returned,
			stats.Acknowledged, named)
	}
}

// The service loses everything but its record of the request: the batch that the client holds is the answer.
func TestAttackABatchIsKeptWhoseAcknowledgementIsAnsweredAfterARestart(t *testing.T) {
	t.Parallel()
	o := replay.Options{Sampler: replay.FIFO, Capacity: 9}
	f, table, _ := twins(t, o)
	f.failing(func(m string, n int) error {
		if m == "after acknowledge" && n == 1 {
			f.restart(t, o)
			return broken()
		}
		return nil
	})
	got, err := table.Sample(context.Background(), rollout.Request{Size: 3, ID: "mine"})
	if err != nil || got.Repeated || got.Draws[0].ID != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err = table.Sample(context.Background(), rollout.Request{Size: 3, ID: "mine"}); !errors.Is(err,
		rollout.ErrNoLease) || !strings.Contains(err.Error(), "3 rollouts (of ids 1 to 3) have left the queue") {
		t.Errorf("the same id again gave %v", err)
	}
	got, err = table.Sample(context.Background(), rollout.Request{Size: 3})
	if err != nil || got.Draws[0].ID != 4 || !got.Draws[0].Redelivered {
		t.Errorf("the next batch is %+v, %v", got, err)
	}
}

// A service that crashed without the acknowledgement draws anew, perhaps under the same batch id: what it then
// acknowledges is the answer.
func TestAttackABatchDrawnAnewAfterARestartIsTheAnswer(t *testing.T) {
	t.Parallel()
	o := replay.Options{Sampler: replay.FIFO, Capacity: 9}
	f, table, _ := twins(t, o)
	other, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Insert(t.Context(), group("after the crash", 1, 0, 1)); err != nil {
		t.Fatal(err)
	}
	f.failing(func(m string, n int) error {
		if m == "after acknowledge" && n == 1 {
			f.table = other
			return broken()
		}
		return nil
	})
	got, err := table.Sample(t.Context(), rollout.Request{Size: 3})
	if err != nil || got.ID != 1 || got.Draws[0].Rollout.PromptID != "after the crash" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A caller that ends before the acknowledgement leaves its rollouts to the next.
func TestAttackWhatACallerThatEndsHadDrawnGoesBack(t *testing.T) {
	t.Parallel()
	f, table, _ := twins(t, replay.Options{Sampler: replay.FIFO, Capacity: 9})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	f.failing(func(m string, n int) error {
		switch {
		case m == "after sample" && n == 1:
			cancel()
		case m == "end" && n == 1:
			close(ended)
		}
		return nil
	})
	if _, err := table.Sample(ctx, rollout.Request{Size: 3}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	<-ended
	for _, want := range []rollout.ID{1, 4, 7} {
		b, err := table.Sample(context.Background(), rollout.Request{Size: 3})
		if err != nil {
			t.Fatal(err)
		}
		if d := b.Draws[0]; d.ID != want || d.Redelivered != (want == 1) {
			t.Errorf("%+v: want rollout %d, redelivered if it is the first", d, want)
		}
	}
}

func TestStarvationIsAnErrorAndTheStreamContinues(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	for range 3 {
		if _, err := table.Sample(context.Background(), rollout.Request{Size: 2}); !errors.Is(err, rollout.ErrStarved) {
			t.Fatalf("an empty table gave %v", err)
		}
	}
	if _, err := table.Insert(context.Background(), group("a", 1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Sample(context.Background(), rollout.Request{Size: 2}); err != nil {
		t.Fatal(err)
	}
	if f.count("exchange") != 1 || f.count("before sample") != 4 {
		t.Errorf("%d requests on %d streams, want 4 on 1", f.count("before sample"), f.count("exchange"))
	}
	if _, err := table.Sample(context.Background(), rollout.Request{Size: -1}); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("a negative size: %v", err)
	}
}

func TestABatchThatIsNotAsAnnouncedIsAnErrorAndEndsTheStream(t *testing.T) {
	f, table, _ := twins(t, replay.Options{})
	f.extra = 1
	ended := make(chan struct{}, 1)
	f.failing(func(m string, n int) error {
		if m == "end" {
			ended <- struct{}{}
		}
		return nil
	})
	if _, err := table.Sample(context.Background(), rollout.Request{Size: 2}); err == nil ||
		!strings.Contains(err.Error(), "has 2 rows, 3 were announced") {
		t.Errorf("%v", err)
	}
	<-ended
}

func TestAStreamAcknowledgesTheBatchBefore(t *testing.T) {
	f, table, _ := twins(t, replay.Options{Sampler: replay.FIFO, Capacity: 9})
	s, err := table.Stream(context.Background(), wire.SampleRequest{Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if stats := statsOf(f.table); stats.Acknowledged != 0 || stats.Drawn != 3 {
		t.Errorf("before the next batch %d of %d draws count", stats.Acknowledged, stats.Drawn)
	}
	if _, err := s.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	if stats := statsOf(f.table); stats.Acknowledged != 3 || stats.Drawn != 6 {
		t.Errorf("after it %d of %d do", stats.Acknowledged, stats.Drawn)
	}
	third, err := s.Exchange(context.Background()) // the second goes back, and a queue delivers it again
	if err != nil || third.Draws[0].ID != 4 || first.Draws[0].ID != 1 {
		t.Errorf("after a release came %+v, %v", third, err)
	}
	if err := s.Acknowledge(context.Background()); err != nil {
		t.Fatal(err)
	}
	if stats := statsOf(f.table); stats.Acknowledged != 6 || stats.Returned != 3 {
		t.Errorf("%d used, %d went back: want 6 and 3", stats.Acknowledged, stats.Returned)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Next(context.Background()); err == nil {
		t.Error("a closed stream gave a batch")
	}
}

func TestAStreamThatBreaksGivesBackWhatWasNotAcknowledgedAndGoesOn(t *testing.T) {
	f, table, _ := twins(t, replay.Options{Sampler: replay.FIFO, Capacity: 9})
	s, err := table.Stream(context.Background(), wire.SampleRequest{Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []rollout.ID
	next := func() {
		t.Helper()
		b, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, b.Draws[0].ID)
	}
	next()
	f.failing(func(m string, n int) error {
		if m == "after sample" && n == 2 { // the request has acknowledged the first batch; the second is lost
			return broken()
		}
		return nil
	})
	next()
	next()
	if !reflect.DeepEqual(ids, []rollout.ID{1, 4, 7}) || f.count("exchange") != 2 {
		t.Errorf("batches began with %v on %d connections", ids, f.count("exchange"))
	}
	if stats := statsOf(f.table); stats.Acknowledged != 6 || stats.Returned != 3 {
		t.Errorf("%d used, %d went back: want 6 and 3", stats.Acknowledged, stats.Returned)
	}
}

func TestWhatABrokenStreamHeldIsNotReleasedAgain(t *testing.T) {
	f, table, _ := twins(t, replay.Options{Sampler: replay.FIFO, Capacity: 9})
	s, err := table.Stream(context.Background(), wire.SampleRequest{Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.failing(func(m string, n int) error {
		if m == "before sample" && n == 2 {
			return broken()
		}
		return nil
	})
	if b, err := s.Exchange(context.Background()); err != nil || len(b.Draws) != 3 {
		t.Fatalf("after the loss of the connection: %v", err)
	}
	if stats := statsOf(f.table); stats.Acknowledged != 0 || stats.Returned != 3 || stats.Drawn != 6 {
		t.Errorf("%d used, %d went back of %d", stats.Acknowledged, stats.Returned, stats.Drawn)
	}
}

func TestAStarvedStreamHasAcknowledgedTheBatchBefore(t *testing.T) {
	f, table := connected(t, replay.Options{Sampler: replay.FIFO}, Options{})
	if _, err := table.Insert(context.Background(), group("a", 1, 0)); err != nil {
		t.Fatal(err)
	}
	s, err := table.Stream(context.Background(), wire.SampleRequest{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(context.Background()); !errors.Is(err, rollout.ErrStarved) ||
		statsOf(f.table).Acknowledged != 2 {
		t.Errorf("an emptied queue: %v, %d used", err, statsOf(f.table).Acknowledged)
	}
	if err := s.Acknowledge(context.Background()); err != nil {
		t.Errorf("nothing is left to be acknowledged: %v", err)
	}
}

func TestALeaseIsSettledByItsBatch(t *testing.T) {
	f, table, _ := twins(t, replay.Options{Sampler: replay.FIFO, Capacity: 9})
	one, err := table.Lease(context.Background(), rollout.Request{Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	two, err := table.Lease(context.Background(), rollout.Request{Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(table.Release(context.Background(), one.ID),
		table.Acknowledge(context.Background(), two.ID)); err != nil {
		t.Fatal(err)
	}
	if stats := statsOf(f.table); stats.Acknowledged != 3 || stats.Returned != 3 {
		t.Errorf("%d used, %d went back: want 3 and 3", stats.Acknowledged, stats.Returned)
	}
	if err := table.Acknowledge(context.Background(), two.ID); !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("acknowledged twice: %v", err)
	}
	if len(table.leased) != 0 {
		t.Errorf("%d streams are kept for batches that are settled", len(table.leased))
	}
	if _, err := table.Lease(context.Background(), rollout.Request{Size: 9}); !errors.Is(err, rollout.ErrStarved) {
		t.Errorf("a lease of too many: %v", err)
	}
}

// streamTwin draws batches from a stream and from the embedded twin, and returns the stream's with the addresses of
// their tokens.
func streamTwin(
	t *testing.T, reuse bool, check func(got, want *rollout.Batch),
) (batches []*rollout.Batch, places map[*int32]bool) {
	t.Helper()
	f, table, local := twins(t, replay.Options{Sampler: replay.Uniform, Seed: 7, Capacity: 9})
	f.failing(func(m string, n int) error {
		if m == "after sample" && n == 30 { // the connection breaks in the middle
			return broken()
		}
		return nil
	})
	none := 0
	s, err := table.Stream(context.Background(), wire.SampleRequest{Size: 3, Prefetch: &none})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if reuse {
		s.ReuseMemory()
	}
	places = make(map[*int32]bool)
	for range 60 {
		got, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		want, err := local.Sample(context.Background(), rollout.Request{Size: 3})
		if err != nil {
			t.Fatal(err)
		}
		check(got, want)
		batches = append(batches, got)
		places[&got.Draws[0].Rollout.Tokens[0]] = true
	}
	return batches, places
}

// rollouts returns copies of what a batch drew.
func rollouts(b *rollout.Batch) []rollout.Rollout {
	var list []rollout.Rollout
	for _, d := range b.Draws {
		r := *d.Rollout
		r.Tokens = append([]int32(nil), r.Tokens...)
		r.Logprobs = append([]float32(nil), r.Logprobs...)
		list = append(list, r)
	}
	return list
}

func TestBatchesThatReuseMemoryAreValidUntilTheNext(t *testing.T) {
	batches, places := streamTwin(t, true, func(got, want *rollout.Batch) {
		for _, d := range got.Draws {
			if len(d.Rollout.Tokens) != 3 || d.Rollout.Tokens[0] != 1 || d.Rollout.Tokens[1] != 2 ||
				d.Rollout.Logprobs[2] != -0.25 || d.Rollout.Text != "so" {
				t.Fatalf("rollout %d came as %+v", d.ID, *d.Rollout)
			}
		}
		if len(got.Draws) != len(want.Draws) {
			t.Fatalf("%d draws: want %d", len(got.Draws), len(want.Draws))
		}
	})
	if len(places) == len(batches) {
		t.Errorf("%d batches had memory of their own each", len(batches))
	}
}

func TestBatchesKeepTheirMemoryByDefault(t *testing.T) {
	var before [][]rollout.Rollout
	batches, places := streamTwin(t, false, func(got, _ *rollout.Batch) { before = append(before, rollouts(got)) })
	if len(places) != len(batches) {
		t.Errorf("%d batches lay at %d places", len(batches), len(places))
	}
	for i, b := range batches {
		if !reflect.DeepEqual(rollouts(b), before[i]) {
			t.Errorf("batch %d was changed by later ones", i)
		}
	}
}

// A stream is a call in progress, of which a service allows a limited number.
func TestNoStreamIsLeftOpen(t *testing.T) {
	f, table := connected(t, replay.Options{Capacity: 8, Sampler: replay.Uniform}, Options{})
	ctx := t.Context()
	if _, err := table.Insert(ctx, group("p", 1, 2)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := table.client.Table("lab").Sample(ctx, rollout.Request{Size: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(table.samples.streams); n != 1 {
		t.Errorf("%d streams are open after samples by five Tables of one name, want 1", n)
	}
	b, err := table.Lease(ctx, rollout.Request{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.table.Release(ctx, b.ID); err != nil { // its time is over
		t.Fatal(err)
	}
	if err := table.Acknowledge(ctx, b.ID); !errors.Is(err, rollout.ErrNoLease) {
		t.Errorf("acknowledged a batch that went back: %v", err)
	}
	if n := len(table.leased); n != 0 {
		t.Errorf("%d streams of batches that went back are open", n)
	}
	again := rollout.Request{Size: 1, ID: "again"}
	if b, err = table.Lease(ctx, again); err != nil {
		t.Fatal(err)
	}
	before := table.leased[b.ID]
	if b, err = table.Lease(ctx, again); err != nil {
		t.Fatal(err)
	}
	if before == table.leased[b.ID] || before.ctx.Err() == nil {
		t.Error("the stream of a lease is open that passed to another stream")
	}
}
