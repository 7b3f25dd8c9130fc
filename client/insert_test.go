package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestInsertionsGoOverOneStreamAndKeepTheirOrder(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	for i := range 50 {
		ids, err := table.Insert(context.Background(), group(fmt.Sprint("a", i), 1, 0),
			group(fmt.Sprint("b", i), 1, 0, 0.5))
		if err != nil {
			t.Fatal(err)
		}
		for k, id := range ids {
			if want := rollout.ID(5*i + k + 1); id != want || len(ids) != 5 {
				t.Fatalf("insertion %d got the ids %v, want from %d on", i, ids, 5*i+1)
			}
		}
	}
	if n := f.count("put"); n != 1 {
		t.Errorf("50 insertions took %d streams", n)
	}
	held := f.table.Inspect().Held()
	if len(held) != 250 || held[7].Rollout.PromptID != "b1" || held[7].Rollout.Reward != 1 ||
		held[7].Rollout.Text != "so" {
		t.Errorf("the table holds %d rollouts, the eighth is %+v", len(held), held[7].Rollout)
	}
	if sent := f.asked(); sent[0].GroupSize != 0 || *sent[0].TimeoutMS != 0 || sent[0].BatchID == sent[1].BatchID {
		t.Errorf("groups of two sizes came with %+v, then %+v", sent[0], sent[1])
	}
}

func TestAnInsertionWhoseAnswerGetsLostIsMadeOnce(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"put", "before insert", "after insert"} {
		f, table := connected(t, replay.Options{}, Options{})
		f.failing(func(m string, n int) error {
			if m == moment && n <= 3 {
				return broken()
			}
			return nil
		})
		ids, err := table.Insert(context.Background(), group("a", 1, 0))
		if err != nil || len(ids) != 2 || ids[0] != 1 {
			t.Fatalf("%s failing: ids %v, %v", moment, ids, err)
		}
		if stats := statsOf(f.table); stats.Inserted != 2 || f.count(moment) != 4 {
			t.Errorf("%s failing three times: %d rollouts were inserted in %d attempts", moment, stats.Inserted,
				f.count(moment))
		}
		sent := f.asked()
		for _, req := range sent {
			if req.BatchID != sent[0].BatchID {
				t.Errorf("%s failing: an attempt had another batch id: %+v", moment, sent)
			}
		}
	}
}

func TestAFullQueueIsAnErrorAndTheStreamContinues(t *testing.T) {
	f, table := connected(t, replay.Options{Capacity: 2, Sampler: replay.FIFO}, Options{})
	if _, err := table.Insert(context.Background(), group("a", 1, 0)); err != nil {
		t.Fatal(err)
	}
	_, err := table.Insert(context.Background(), group("b", 1, 0))
	if !errors.Is(err, rollout.ErrFull) || !strings.Contains(err.Error(), "table lab of grpc+unix://") {
		t.Errorf("a full queue says %v", err)
	}
	if n := f.count("before insert"); n != 2 {
		t.Errorf("%d attempts were made for 2 insertions", n)
	}
	if _, err := table.Sample(context.Background(), rollout.Request{Size: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Insert(context.Background(), group("b", 1, 0)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestErrorsOfAnInsertionAreThoseOfATable(t *testing.T) {
	_, table := connected(t, replay.Options{Vocab: 10}, Options{})
	ahead, wild, partial := group("a", 1), group("a", 1), group("a", 1, 0)
	ahead.Rollouts[0].Versions[1] = 3
	wild.Rollouts[0].Tokens[1] = 10
	partial.Size = 3
	for _, c := range []struct {
		group rollout.Group
		want  error
		says  string
	}{{ahead, rollout.ErrAhead, "version 3"}, {wild, rollout.ErrInvalid, "tokens[1]"}, {partial, rollout.ErrInvalid,
		"group is 2 rollouts"}, {rollout.Group{}, rollout.ErrInvalid, "0 rollouts"}} {
		if _, err := table.Insert(context.Background(), c.group); !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("want %v that says %q: %v", c.want, c.says, err)
		}
	}
	if ids, err := table.Insert(context.Background()); err != nil || len(ids) != 0 {
		t.Errorf("nothing to insert: %v, %v", ids, err)
	}
}

func TestAnInsertionIsRetriedWhileTheServiceStops(t *testing.T) {
	t.Parallel()
	f, table := connected(t, replay.Options{}, Options{})
	f.failing(func(m string, n int) error {
		if m == "before insert" && n <= 4 {
			return wire.ToGRPC(wire.Errorf(wire.Closing, "going down"))
		}
		return nil
	})
	if _, err := table.Insert(context.Background(), group("a", 1, 0)); err != nil || f.count("before insert") != 5 {
		t.Errorf("%v after %d attempts", err, f.count("before insert"))
	}
}

func TestAServiceThatStaysAwayIsUnreachableAfterThePatience(t *testing.T) {
	t.Parallel()
	f := newFake(t, replay.Options{})
	address, stop := f.listen(t)
	table := dial(t, address, Options{RetryFor: 60 * time.Millisecond}).Table("lab")
	if _, err := table.Insert(context.Background(), group("a", 1)); err != nil {
		t.Fatal(err)
	}
	stop()
	began := time.Now()
	_, err := table.Insert(context.Background(), group("b", 1))
	if took := time.Since(began); !errors.Is(err, ErrUnreachable) ||
		!strings.Contains(err.Error(), "table lab of "+address) || took > 10*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	if n, err := table.Len(context.Background()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Len is %d, %v", n, err)
	}
	if _, err := Dial(context.Background(), address, Options{RetryFor: 20 * time.Millisecond}); !errors.Is(err,
		ErrUnreachable) || !strings.Contains(err.Error(), address) {
		t.Errorf("dialing nobody: %v", err)
	}
}

func TestARestartedServiceIsFoundAgain(t *testing.T) {
	f := newFake(t, replay.Options{})
	address, stop := f.listen(t)
	table := dial(t, address, Options{}).Table("lab")
	for i := range 3 {
		if _, err := table.Insert(context.Background(), group(fmt.Sprint(i), 1, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Sample(context.Background(), rollout.Request{Size: 2}); err != nil {
			t.Fatal(err)
		}
		stop()
		stop = f.serve(t, "unix", strings.TrimPrefix(address, "grpc+unix://"))
	}
	if stats := statsOf(f.table); stats.Inserted != 6 || stats.Acknowledged != 6 {
		t.Errorf("%d inserted, %d used: want 6 and 6", stats.Inserted, stats.Acknowledged)
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	entered, leave := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(leave) })
	f.failing(func(m string, n int) error {
		if m == "before insert" || m == "before sample" || m == "before advance" {
			entered <- struct{}{}
			<-leave
		}
		return nil
	})
	for name, call := range map[string]func(context.Context) error{
		"insert": func(ctx context.Context) error { _, err := table.Insert(ctx, group("a", 1)); return err },
		"sample": func(ctx context.Context) error {
			_, err := table.Sample(ctx, rollout.Request{Size: 1})
			return err
		},
		"advance": func(ctx context.Context) error { return table.Advance(ctx, 1) },
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		mine := errors.New("mine")
		go func() { <-entered; cancel(mine) }()
		if err := call(ctx); !errors.Is(err, mine) {
			t.Errorf("%s of a canceled context: %v", name, err)
		}
	}
}

func TestALateAnswerIsAskedForAgain(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{CallTimeout: 50 * time.Millisecond})
	leave := make(chan struct{})
	t.Cleanup(func() { close(leave) })
	f.failing(func(m string, n int) error {
		if m == "after insert" && n == 1 {
			<-leave
		}
		return nil
	})
	if ids, err := table.Insert(context.Background(), group("a", 1, 0)); err != nil || ids[0] != 1 ||
		statsOf(f.table).Inserted != 2 {
		t.Errorf("ids %v, %v, %d inserted", ids, err, statsOf(f.table).Inserted)
	}
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	for _, c := range []struct {
		err  error
		want error
	}{
		{wire.ToGRPC(wire.Errorf(wire.Denied, "no")), wire.ErrDenied},
		{wire.ToGRPC(wire.Errorf(wire.Unauthenticated, "who")), wire.ErrDenied},
		{wire.ToGRPC(wire.Errorf(wire.NotFound, "no table")), wire.ErrNotFound},
		{wire.ToGRPC(wire.Errorf(wire.TooLarge, "much")), wire.ErrTooLarge},
		{wire.ToGRPC(wire.Errorf(wire.DiskFull, "disk of data")), wire.ErrDiskFull},
		{wire.ToGRPC(wire.Errorf(wire.Failed, "disk")), nil},
		{status.Error(codes.Unimplemented, "what"), nil},
	} {
		f.failing(func(m string, n int) error {
			if m == "before insert" {
				return c.err
			}
			return nil
		})
		before := f.count("before insert")
		_, err := table.Insert(context.Background(), group("a", 1))
		if err == nil || c.want != nil && !errors.Is(err, c.want) || errors.Is(err, ErrUnreachable) ||
			f.count("before insert") != before+1 {
			t.Errorf("%v became %v after %d attempts", c.err, err, f.count("before insert")-before)
		}
	}
}

func TestInsertionsOfManyGoroutinesAreMadeOnceEach(t *testing.T) {
	t.Parallel()
	f, table := connected(t, replay.Options{Capacity: 1 << 16}, Options{})
	f.failing(func(m string, n int) error {
		if m == "after insert" && n%7 == 3 || m == "before insert" && n%11 == 5 {
			return broken()
		}
		return nil
	})
	var wait sync.WaitGroup
	const producers, each = 8, 25
	for p := range producers {
		wait.Go(func() {
			for i := range each {
				if _, err := table.Insert(context.Background(), group(fmt.Sprint(p, "/", i), 1, 0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	seen := make(map[string]int)
	for _, h := range f.table.Inspect().Held() {
		seen[h.Rollout.PromptID]++
	}
	if len(seen) != producers*each {
		t.Errorf("%d groups arrived, %d were sent", len(seen), producers*each)
	}
	for prompt, n := range seen {
		if n != 2 {
			t.Errorf("the group of %s has %d rollouts in the table, not 2", prompt, n)
		}
	}
}

func TestAWaitingInsertionTellsTheServiceHowLong(t *testing.T) {
	t.Parallel()
	f, table := connected(t, replay.Options{Capacity: 2, Sampler: replay.FIFO}, Options{})
	if _, err := table.Waiting(90*time.Second).Insert(context.Background(), group("a", 1, 0)); err != nil {
		t.Fatal(err)
	}
	if ms := *f.asked()[0].TimeoutMS; ms != maxWait.Milliseconds() {
		t.Errorf("the service was to wait %d ms at once", ms)
	}
	const left = 2 * time.Second // in which a busy machine answers twice
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	// The fake does not wait, so the client asks again and again.
	_, err := table.Waiting(Forever).Insert(ctx, group("b", 1, 0))
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rollout.ErrFull) {
		t.Errorf("at the deadline: %v", err)
	}
	sent := f.asked()
	if ms := *sent[1].TimeoutMS; ms > left.Milliseconds() || len(sent) < 3 {
		t.Errorf("with %s left the service was to wait %d ms, %d times", left, ms, len(sent))
	}
}

func TestABatchAboveTheLimitIsTooLarge(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{MaxMessageBytes: 16 << 10})
	big := group("a", 1, 0)
	big.Rollouts[0].Text = strings.Repeat("x", 20<<10)
	if _, err := table.Insert(context.Background(), big); !errors.Is(err, wire.ErrTooLarge) ||
		!strings.Contains(err.Error(), "max_message_bytes") {
		t.Errorf("inserted: %v", err)
	}
	if _, err := f.table.Insert(context.Background(), big); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Sample(context.Background(), rollout.Request{Size: 2}); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("sampled: %v", err)
	}
	if _, err := table.Insert(context.Background(), group("b", 1)); err != nil {
		t.Errorf("a small one after it: %v", err)
	}
}

// statsOf returns a table's statistics.
func statsOf(table *replay.Table) rollout.Stats {
	stats, err := table.Stats(context.Background())
	if err != nil {
		panic(err)
	}
	return stats
}
