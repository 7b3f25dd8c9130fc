package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/wire"
)

// node is a real service that can be cut off and started again at its address, with what its journals hold.
type node struct {
	t       testing.TB
	options service.Options
	at      string // host:port
	stop    func()

	mu     sync.Mutex
	answer error   // instead of the next answer to an insertion, which enters all the same
	refuse []error // then of the streams of insertions, before anything is read
}

func (n *node) address() string { return "grpc://" + n.at }

func (n *node) start() {
	n.t.Helper()
	n.options.Logger = slog.New(slog.DiscardHandler)
	s, err := service.New(n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	l, err := net.Listen("tcp", n.at)
	if err != nil {
		n.t.Fatal(err)
	}
	n.at = l.Addr().String()
	g := grpc.NewServer(append(s.GRPCOptions(nil), grpc.ChainStreamInterceptor(n.spoil))...)
	s.Register(g)
	go g.Serve(l)
	n.stop = sync.OnceFunc(func() {
		g.Stop() // first, so that callers are cut off in the middle
		s.Stop(context.Background())
	})
}

// spoil has insertions answered with the errors that are set.
func (n *node) spoil(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !strings.HasSuffix(info.FullMethod, "/DoPut") {
		return next(server, s)
	}
	n.mu.Lock()
	if n.answer == nil && len(n.refuse) > 0 {
		err := n.refuse[0]
		n.refuse = n.refuse[1:]
		n.mu.Unlock()
		return wire.ToGRPC(err)
	}
	n.mu.Unlock()
	spoiled := &spoiledAnswer{ServerStream: s, node: n}
	err := next(server, spoiled)
	if spoiled.err != nil {
		return wire.ToGRPC(spoiled.err)
	}
	return err
}

type spoiledAnswer struct {
	grpc.ServerStream
	node *node
	err  error
}

func (s *spoiledAnswer) SendMsg(m any) error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if s.err, s.node.answer = s.node.answer, nil; s.err != nil {
		return s.err
	}
	return s.ServerStream.SendMsg(m)
}

// nodes starts services; with journals where durable.
func nodes(t testing.TB, n int, durable bool) []*node {
	t.Helper()
	list := make([]*node, n)
	for i := range list {
		list[i] = &node{t: t, at: "127.0.0.1:0"}
		if durable {
			list[i].options.Data = t.TempDir()
		}
		list[i].start()
		t.Cleanup(func() { list[i].stop() })
	}
	return list
}

func dialAll(t testing.TB, list []*node, o client.AllOptions) *client.Services {
	t.Helper()
	var addresses []string
	for _, n := range list {
		addresses = append(addresses, n.address())
	}
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := client.DialAll(context.Background(), addresses, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// inParts returns a new table in parts over n services.
func inParts(
	t testing.TB, n int, definition wire.Table, o client.AllOptions,
) ([]*node, *client.Services, *client.PartedTable) {
	t.Helper()
	list := nodes(t, n, true)
	s := dialAll(t, list, o)
	definition.Name = "lab"
	if _, err := s.Create(context.Background(), definition); err != nil {
		t.Fatal(err)
	}
	return list, s, s.Table("lab")
}

func mustNot(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// some returns groups of prompts that no other call has.
func some(groups, size int, name string) (list []rollout.Group) {
	for i := range groups {
		list = append(list, named(fmt.Sprintf("%s/%d", name, i), size))
	}
	return list
}

func TestDrawsOverServicesHaveTheProbabilitiesAndWeightsOfOneTable(t *testing.T) {
	t.Parallel()
	o := replay.Options{Sampler: replay.Prioritized, PriorityBase: replay.BaseReward, ImportanceBeta: new(0.7),
		PriorityExponent: 1}
	_, _, w := inParts(t, 3, wire.Table{Options: o}, client.AllOptions{Scope: client.AllParts})
	ctx := t.Context()
	base, total := make(map[rollout.ID]float64), 0.0
	for i := range 40 {
		g := named(fmt.Sprint(i), 1)
		g.Rollouts[0].Reward = float32(1 + i*i)
		ids, err := w.Insert(ctx, g)
		mustNot(t, err)
		base[ids[0]] = float64(1+i*i) + 1e-6
		total += base[ids[0]]
	}
	counts := make(map[int]int)
	for range 20 {
		b, err := w.Sample(ctx, rollout.Request{Size: 16})
		mustNot(t, err)
		largest := 0.0
		for _, d := range b.Draws {
			largest = max(largest, math.Pow(40*base[d.ID]/total, -0.7))
		}
		if math.Abs(b.LogWeightScale-math.Log(largest)) > 1e-9 {
			t.Fatalf("log weight scale %v, want %v", b.LogWeightScale, math.Log(largest))
		}
		for _, d := range b.Draws {
			if want := base[d.ID] / total; math.Abs(d.Probability/want-1) > 1e-9 {
				t.Errorf("probability %v, want %v", d.Probability, want)
			}
			want := float32(math.Pow(40*base[d.ID]/total, -0.7) / largest)
			if math.Abs(float64(d.Weight/want-1)) > 1e-6 {
				t.Errorf("weight %v, want %v", d.Weight, want)
			}
			part, _ := parted.Cut(uint64(d.ID))
			counts[part]++
		}
	}
	if len(counts) != 3 {
		t.Errorf("draws came from parts %v", counts)
	}
	scanned := 0.0
	mustNot(t, w.Scan(ctx, 16, func(draws []rollout.Draw) error {
		for _, d := range draws {
			if want := base[d.ID] / total; math.Abs(d.Probability/want-1) > 1e-9 {
				t.Errorf("scanned with probability %v, want %v", d.Probability, want)
			}
			scanned += d.Probability
		}
		return nil
	}))
	if math.Abs(scanned-1) > 1e-9 {
		t.Errorf("the probabilities of all sum to %v", scanned)
	}
	mustNot(t, w.Report(ctx, rollout.Feedback{ID: 1}, rollout.Feedback{ID: rollout.ID(parted.Join(2, 1))}))
	mustNot(t, w.Update(ctx, []rollout.ID{1, rollout.ID(parted.Join(1, 1))}, []float64{1, 2}))
	if err := w.Update(ctx, []rollout.ID{rollout.ID(parted.Join(7, 1))}, []float64{1}); !errors.Is(err,
		rollout.ErrInvalid) {
		t.Errorf("a priority of part 7 of 3: %v", err)
	}
	st, err := w.Statistics(ctx)
	mustNot(t, err)
	if st.Inserted != 40 || st.Present != 40 || st.Acknowledged != 320 || st.UsesPresent.Count() != 40 {
		t.Errorf("%d inserted, %d present, %d acknowledged, uses of %d", st.Inserted, st.Present, st.Acknowledged,
			st.UsesPresent.Count())
	}
}

// Each part takes the rewards of its own rollouts, once under the call's request id.
func TestRewardsGoToTheirParts(t *testing.T) {
	t.Parallel()
	_, _, w := inParts(t, 3, wire.Table{Options: replay.Options{Capacity: 63, PendingRewards: 60}}, client.AllOptions{})
	groups := some(9, 2, "p")
	for _, g := range groups {
		for _, r := range g.Rollouts {
			r.Reward = float32(math.NaN())
		}
	}
	ids, err := w.Insert(t.Context(), groups...)
	mustNot(t, err)
	given := rollout.Rewards{RequestID: "r", By: "judge", IDs: ids, Values: make([]float32, len(ids))}
	for i, want := range []rollout.Rewarded{{Rewarded: 18, Entered: 18}, {Rewarded: 18, Entered: 18}} {
		done, err := w.Reward(t.Context(), given)
		if mustNot(t, err); done != want {
			t.Errorf("call %d gave %+v, want %+v", i, done, want)
		}
	}
	st, err := w.Statistics(t.Context())
	if mustNot(t, err); st.WaitingRewards != 0 || st.Present != 18 {
		t.Errorf("the statistics are %+v", st)
	}
	given.RequestID, given.IDs, given.Values = "s", []rollout.ID{rollout.ID(parted.Join(7, 1))}, []float32{1}
	if _, err := w.Reward(t.Context(), given); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("a reward of part 7 of 3: %v", err)
	}
}

func TestATableInPartsRefusesDrawsByPrompt(t *testing.T) {
	t.Parallel()
	_, _, w := inParts(t, 2, wire.Table{Options: replay.Options{Capacity: 64, PromptIndex: true}}, client.AllOptions{})
	_, err := w.Insert(t.Context(), some(4, 2, "p")...)
	mustNot(t, err)
	_, err = w.Sample(t.Context(), rollout.Request{Prompts: []string{"p/0"}, PerPrompt: 1})
	if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), "prompts: this table is in 2 parts") {
		t.Errorf("got %v", err)
	}
}

func TestATrainerDrawsFromItsOwnPartsInTurns(t *testing.T) {
	t.Parallel()
	list, s, w := inParts(t, 4, wire.Table{}, client.AllOptions{})
	ctx := t.Context()
	_, err := w.Insert(ctx, some(64, 1, "a")...)
	mustNot(t, err)
	for trainers, own := range map[int][][]int{1: {{0, 1, 2, 3}}, 2: {{0, 2}, {1, 3}}, 6: {4: {0}, 5: {1}}} {
		for trainer, parts := range own {
			if parts == nil {
				continue
			}
			mine := dialAll(t, list, client.AllOptions{Trainer: trainer, Trainers: trainers}).Table("lab")
			seen := make(map[int]int)
			for range 2 * len(parts) {
				b, err := mine.Sample(ctx, rollout.Request{Size: 2})
				mustNot(t, err)
				part, _ := parted.Cut(uint64(b.ID))
				seen[part]++
			}
			for _, p := range parts {
				if seen[p] != 2 {
					t.Errorf("trainer %d of %d took %v, want each of %v twice", trainer, trainers, seen, parts)
				}
			}
		}
	}
	one := dialAll(t, list, client.AllOptions{Trainer: 1, Trainers: 4}).Table("lab")
	b, err := one.Sample(ctx, rollout.Request{Size: 2, ID: "again"})
	mustNot(t, err)
	c, err := one.Sample(ctx, rollout.Request{Size: 2, ID: "again"})
	mustNot(t, err)
	if b.ID != c.ID || !c.Repeated {
		t.Errorf("a repeated request got batch %d after %d", c.ID, b.ID)
	}
	list[1].stop()
	b, err = one.Sample(ctx, rollout.Request{Size: 2})
	mustNot(t, err)
	if part, _ := parted.Cut(uint64(b.ID)); part == 1 {
		t.Error("a batch came from a service that is down")
	}
	_ = s
}

func TestAPartThatIsDownIsLeftOutUntilItIsBack(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		list, _, w := inParts(t, 3, wire.Table{}, client.AllOptions{Scope: client.AllParts})
		ctx := t.Context()
		_, err := w.Insert(ctx, some(60, 1, "a")...)
		mustNot(t, err)
		mustNot(t, w.Advance(ctx, 1))
		before, err := w.Len(ctx)
		mustNot(t, err)
		list[1].stop()
		mustNot(t, w.Advance(ctx, 5))
		ids, err := w.Insert(ctx, some(30, 1, "b")...)
		mustNot(t, err)
		for _, id := range ids {
			if part, _ := parted.Cut(uint64(id)); part == 1 {
				t.Fatal("a group went to a service that is down")
			}
		}
		for range 5 {
			b, err := w.Sample(ctx, rollout.Request{Size: 20})
			mustNot(t, err)
			for _, d := range b.Draws {
				if part, _ := parted.Cut(uint64(d.ID)); part == 1 {
					t.Fatal("a rollout came from a service that is down")
				}
			}
		}
		st, err := w.Statistics(ctx)
		mustNot(t, err)
		if !slices.Equal(st.Down, []int{1}) || st.Version != 5 || st.Present >= before+30 {
			t.Errorf("down: %v, version %d, %d present", st.Down, st.Version, st.Present)
		}
		lost := before + 30 - st.Present
		if !keeps {
			list[1].options.Data = t.TempDir() // the machine was replaced
		}
		list[1].start()
		tests.Until(t, "the part is back", func() bool {
			st, err = w.Statistics(ctx)
			return err == nil && st.Down == nil
		})
		want := before + 30
		if !keeps {
			want -= lost
		}
		if st.Present != want {
			t.Errorf("journal kept: %v: %d present, want %d", keeps, st.Present, want)
		}
		c, err := client.Dial(ctx, list[1].address(), client.Options{})
		mustNot(t, err)
		info, err := c.Table("lab").Info(ctx)
		mustNot(t, err)
		if info.Version != 5 || info.Definition.Seed != 1 {
			t.Errorf("it came back at version %d with seed %d", info.Version, info.Definition.Seed)
		}
		mustNot(t, c.Close())
		moved := 0
		ids, err = w.Insert(ctx, some(30, 1, "c")...)
		mustNot(t, err)
		for _, id := range ids {
			if part, _ := parted.Cut(uint64(id)); part == 1 {
				moved++
			}
		}
		if moved == 0 {
			t.Error("no new group went to the part that is back")
		}
	}
}

func TestAnInsertionThatFindsOnePartFullCompletesOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	_, _, w := inParts(t, 2, wire.Table{Options: replay.Options{Sampler: "fifo", Capacity: 16}}, client.AllOptions{})
	ctx := t.Context()
	way := func(batchID string, n int) (at [2]int) {
		for i, g := range some(n, 1, "a") {
			at[parted.Order(parted.Key(g.Rollouts[0].PromptID, batchID, i), 2)[0]]++
		}
		return at
	}
	find := func(name string, n int, fits func(at [2]int) bool) string {
		for i := 0; ; i++ {
			if id := fmt.Sprint(name, "-", i); fits(way(id, n)) {
				return id
			}
		}
	}
	_, err := w.InsertOnce(ctx, find("first", 4, func(at [2]int) bool { return at[0] == 4 }), some(4, 1, "a")...)
	mustNot(t, err)
	id := find("second", 8, func(at [2]int) bool { return at[0] == 5 }) // where there is room for 4
	groups := some(8, 1, "a")
	_, err = w.InsertOnce(ctx, id, groups...)
	var partial *client.InsertError
	if !errors.As(err, &partial) || !errors.Is(err, rollout.ErrFull) || len(partial.Uncertain) > 0 ||
		!strings.Contains(err.Error(), id) {
		t.Fatalf("an insertion into a part without room: %v", err)
	}
	entered := 0
	for i, ids := range partial.Entered {
		if entered += len(ids); len(ids) == 1 && !strings.Contains(err.Error(), fmt.Sprintf("%d as rollouts", i)) {
			t.Errorf("group %d has entered, which the error does not say: %v", i, err)
		}
	}
	n, lenErr := w.Len(ctx)
	mustNot(t, lenErr)
	if entered != 3 || n != 7 {
		t.Fatalf("%d groups are said to have entered, %d have", entered, n)
	}
	left := map[rollout.ID]bool{}
	for taken := 0; taken < 12; { // a batch makes room for what could not enter
		b, err := w.Sample(ctx, rollout.Request{Size: 1})
		mustNot(t, err)
		left[b.Draws[0].ID] = true
		if taken++; taken < 12 {
			if _, err = w.InsertOnce(ctx, id, groups...); err != nil && !errors.Is(err, rollout.ErrFull) {
				t.Fatal(err)
			}
		}
	}
	if n, err := w.Len(ctx); err != nil || n != 0 || len(left) != 12 {
		t.Errorf("%d of 12 rollouts came out, and %d are left, %v", len(left), n, err)
	}
	if again, err := w.InsertOnce(ctx, id, groups...); err != nil || len(again) != 8 {
		t.Errorf("repeated once more it gave %v, %v", again, err)
	}
	// Without a batch id of the caller's the error must not look like one after which programs just repeat.
	for err = nil; err == nil; {
		_, err = w.Insert(ctx, some(3, 1, "a")...)
	}
	if errors.As(err, &partial) == errors.Is(err, rollout.ErrFull) {
		t.Errorf("a queue without room: %v", err)
	}
}

func TestAGroupThatMayHaveEnteredGoesToNoOtherPart(t *testing.T) {
	t.Parallel()
	elsewhere, closing := wire.ElsewhereError("", "nobody has it"), wire.Errorf(wire.Closing, "stopping")
	for _, c := range []struct {
		answer error
		ends   bool // the call
	}{
		{wire.Errorf(wire.Interrupted, "stopped"), false},
		{wire.Errorf(wire.DiskFull, "perhaps not on disk"), true},
		{wire.Errorf(wire.Failed, "broken journal"), true},
	} {
		t.Run(c.answer.Error(), func(t *testing.T) {
			t.Parallel()
			list, _, w := inParts(t, 2, wire.Table{}, client.AllOptions{})
			ctx := t.Context()
			groups := some(1, 2, "a")
			home := parted.Order(parted.Key(groups[0].Rollouts[0].PromptID, "once", 0), 2)[0]
			n := list[home]
			n.mu.Lock()
			n.answer = c.answer
			n.refuse = append([]error{elsewhere}, slices.Repeat([]error{closing}, 12)...) // until it counts as down
			n.mu.Unlock()
			ids, err := w.InsertOnce(ctx, "once", groups...)
			var partial *client.InsertError
			if c.ends {
				if !errors.As(err, &partial) || !slices.Equal(partial.Uncertain, []int{0}) {
					t.Fatalf("%v: %v", c.answer, err)
				}
				n.stop()
				short, cancel := context.WithTimeout(ctx, time.Second)
				if _, err = w.InsertOnce(short, "once", groups...); !errors.As(err, &partial) {
					t.Errorf("%v: repeated while its part was down: %v", c.answer, err)
				}
				cancel()
				n.start()
				ids, err = w.InsertOnce(ctx, "once", groups...)
			}
			mustNot(t, err)
			present, err := w.Len(ctx)
			mustNot(t, err)
			part, _ := parted.Cut(uint64(ids[0]))
			if len(ids) != 2 || part != home || present != 2 {
				t.Errorf("%v: %d rollouts of 2 are in, with ids %v, of part %d", c.answer, present, ids, home)
			}
			if n.mu.Lock(); n.answer != nil || len(n.refuse) > 0 {
				t.Errorf("%v: it was not asked %d times more", c.answer, len(n.refuse))
			}
			n.mu.Unlock()
		})
	}
}

func TestAnInsertionIntoAPartThatNobodyOwnsRestsBetweenAttempts(t *testing.T) {
	t.Parallel()
	list, _, _ := inParts(t, 1, wire.Table{}, client.AllOptions{})
	w := dialAll(t, list, client.AllOptions{Options: client.Options{RetryFor: time.Second}}).Table("lab")
	const many = 10_000
	list[0].mu.Lock()
	list[0].refuse = slices.Repeat([]error{wire.ElsewhereError("", "nobody has it")}, many)
	list[0].mu.Unlock()
	_, err := w.Insert(t.Context(), some(1, 1, "a")...)
	list[0].mu.Lock()
	defer list[0].mu.Unlock()
	if attempts := many - len(list[0].refuse); !errors.Is(err, client.ErrUnreachable) || attempts > 40 {
		t.Errorf("after %d attempts in a second: %v", attempts, err)
	}
}

func TestATableOfTheSameNameAsADroppedOneIsAnother(t *testing.T) {
	t.Parallel()
	_, s, w := inParts(t, 2, wire.Table{}, client.AllOptions{})
	ctx := t.Context()
	_, err := w.InsertOnce(ctx, "once", some(8, 1, "a")...)
	mustNot(t, err)
	mustNot(t, w.Advance(ctx, 500))
	mustNot(t, s.Drop(ctx, "lab"))
	_, err = s.Create(ctx, wire.Table{Name: "lab"})
	mustNot(t, err)
	_, err = w.InsertOnce(ctx, "once", some(8, 1, "a")...)
	mustNot(t, err)
	info, err := w.Info(ctx)
	mustNot(t, err)
	if info.Present != 8 || info.Version != 0 {
		t.Errorf("%d rollouts of 8 are in, at version %d", info.Present, info.Version)
	}
}

func TestAPartThatComesBackIsNotSetBackBelowTheOthers(t *testing.T) {
	t.Parallel()
	list, _, w := inParts(t, 2, wire.Table{}, client.AllOptions{})
	ctx := t.Context()
	mustNot(t, w.Advance(ctx, 1))
	list[1].stop()
	_, err := w.Insert(ctx, some(4, 1, "a")...) // notices that it is down
	mustNot(t, err)
	list[1].start()
	other := dialAll(t, list, client.AllOptions{}).Table("lab")
	mustNot(t, other.Advance(ctx, 7))
	tests.Until(t, "the part is back", func() bool {
		st, err := w.Statistics(ctx)
		return err == nil && st.Down == nil
	})
	for _, n := range list {
		c, err := client.Dial(ctx, n.address(), client.Options{})
		mustNot(t, err)
		if info, err := c.Table("lab").Info(ctx); err != nil || info.Version != 7 {
			t.Errorf("%s is at version %d, %v", n.at, info.Version, err)
		}
		mustNot(t, c.Close())
	}
}

func TestAnInsertionWithoutAnAnswerEndsWithThePatience(t *testing.T) {
	t.Parallel()
	list, _, _ := inParts(t, 2, wire.Table{}, client.AllOptions{})
	w := dialAll(t, list, client.AllOptions{Options: client.Options{RetryFor: time.Second}}).Table("lab")
	ctx := t.Context()
	groups := some(1, 1, "a")
	n := list[parted.Order(parted.Key(groups[0].Rollouts[0].PromptID, "once", 0), 2)[0]]
	interrupted := wire.Errorf(wire.Interrupted, "stopped")
	n.mu.Lock()
	n.answer, n.refuse = interrupted, slices.Repeat([]error{interrupted}, 10_000)
	n.mu.Unlock()
	began := time.Now()
	_, err := w.InsertOnce(ctx, "once", groups...)
	var partial *client.InsertError
	if !errors.As(err, &partial) || !slices.Equal(partial.Uncertain, []int{0}) || time.Since(began) > 20*time.Second {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	n.mu.Lock()
	n.refuse = nil
	n.mu.Unlock()
	_, err = w.InsertOnce(ctx, "once", groups...)
	mustNot(t, err)
	if present, err := w.Len(ctx); err != nil || present != 1 {
		t.Errorf("%d present, %v", present, err)
	}
}

// Random operations by one program, while services go down and come back with their journals: every rollout enters
// once, whatever is repeated, and every draw is counted as it was settled.
func TestATableInPartsKeepsItsBooksWhateverGoesDown(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		for _, scope := range []client.Scope{client.OwnParts, client.AllParts} {
			t.Run(fmt.Sprint(scope, seed), func(t *testing.T) {
				t.Parallel()
				countsAddUp(t, seed, scope)
			})
		}
	}
}

func countsAddUp(t *testing.T, seed uint64, scope client.Scope) {
	list, _, w := inParts(t, 3, wire.Table{Options: replay.Options{Sampler: replay.Uniform, Capacity: 100_000}},
		client.AllOptions{Scope: scope})
	ctx := t.Context()
	r := rollout.Stream(seed, "books", 0)
	inserted, used, returned, version := 0, 0, 0, rollout.Version(0)
	ids := make(map[rollout.ID]string)
	down := -1
	insert := func(name string, groups []rollout.Group) []rollout.ID {
		for range 20 {
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			got, err := w.InsertOnce(short, name, groups...)
			cancel()
			if err == nil {
				return got
			}
			var partial *client.InsertError
			if !errors.As(err, &partial) && short.Err() == nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if down >= 0 { // it may have it: written to a connection that was cut
				list[down].start()
				down = -1
			}
		}
		t.Fatalf("seed %d: %s does not enter", seed, name)
		return nil
	}
	for step := range 120 {
		switch op := r.IntN(10); {
		case op < 4:
			name := fmt.Sprint("step-", step)
			groups := some(1+r.IntN(6), 1+r.IntN(3), name)
			var first []rollout.ID
			for again := range 1 + r.IntN(3) {
				got := insert(name, groups)
				if again > 0 && !slices.Equal(got, first) {
					t.Fatalf("seed %d: repeated, %s got other ids: %v after %v", seed, name, got, first)
				}
				if first == nil {
					first = got
				}
			}
			i := 0
			for _, g := range groups {
				for _, x := range g.Rollouts {
					if before, known := ids[first[i]]; known {
						t.Fatalf("seed %d: id %d of %s is that of %s", seed, first[i], x.PromptID, before)
					}
					ids[first[i]] = x.PromptID
					i++
				}
			}
			inserted += len(first)
		case op < 8 && inserted > 0:
			size := 1 + r.IntN(12)
			draw, settle := w.Sample, func(*rollout.Batch) error { used += size; return nil }
			if op == 7 {
				draw = w.Lease
				settle = func(b *rollout.Batch) error { returned += size; return w.Release(ctx, b.ID) }
			}
			b, err := draw(ctx, rollout.Request{Size: size})
			if errors.Is(err, rollout.ErrStarved) {
				continue // the parts that are up may be empty
			}
			mustNot(t, err)
			if len(b.Draws) != size {
				t.Fatalf("seed %d: %d draws, want %d", seed, len(b.Draws), size)
			}
			for _, d := range b.Draws {
				if ids[d.ID] != d.Rollout.PromptID {
					t.Fatalf("seed %d: %d is %s, which was inserted as %q", seed, d.ID, d.Rollout.PromptID, ids[d.ID])
				}
			}
			mustNot(t, settle(b))
		case op == 8:
			version++
			mustNot(t, w.Advance(ctx, version))
		case op == 9 && down < 0:
			down = r.IntN(3)
			list[down].stop()
		case op == 9:
			list[down].start()
			down = -1
		}
	}
	if down >= 0 {
		list[down].start()
	}
	var st *wire.TableStatistics
	tests.Until(t, "all parts are up", func() (up bool) {
		var err error
		st, err = w.Statistics(ctx)
		return err == nil && st.Down == nil
	})
	if int(st.Inserted) != inserted || st.Present != inserted {
		t.Errorf("seed %d: %d inserted and %d present, want %d", seed, st.Inserted, st.Present, inserted)
	}
	if rollout.Version(st.Version) != version {
		t.Errorf("seed %d: version %d, want %d", seed, st.Version, version)
	}
	if uses := st.UsesPresent.Sum(); int(st.Acknowledged) > used || float64(st.Acknowledged) != uses {
		t.Errorf("seed %d: %d draws acknowledged, %v uses, %d taken", seed, st.Acknowledged, uses, used)
	}
	if down < 0 && st.OnLease != 0 {
		t.Errorf("seed %d: %d draws on lease", seed, st.OnLease)
	}
}

// As with one service, through connections that are cut at random: an insertion whose answer is lost stays with its
// part, and a queue gives each rollout once, or names it.
func TestNothingEntersAPartTwiceOverConnectionsThatBreak(t *testing.T) {
	tests.LongShared(t)
	t.Parallel()
	const parts, producers, trainers, rounds, each, size, seed = 3, 3, 2, 25, 4, 2, 11
	var addresses []string
	var proxies []*cutter
	for i, n := range nodes(t, parts, false) {
		proxy, through := newCutter(t, n.at, seed+uint64(i))
		proxies, addresses = append(proxies, proxy), append(addresses, through)
	}
	s, err := client.DialAll(t.Context(), addresses, client.AllOptions{
		Options: client.Options{CallTimeout: 5 * time.Second}, Logger: slog.New(slog.DiscardHandler)})
	mustNot(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const all = producers * rounds * each * size
	tests.Until(t, "the table is made", func() bool {
		_, err = s.Create(ctx, wire.Table{Name: "lab", Options: replay.Options{Sampler: "fifo", Capacity: 4 * all}})
		return err == nil
	})
	table := s.Table("lab").Waiting(client.Forever)
	var wait sync.WaitGroup
	for p := range producers {
		wait.Go(func() {
			for i := range rounds {
				name := fmt.Sprintf("%d/%d", p, i)
				groups := some(each, size, name)
				for {
					_, err := table.InsertOnce(ctx, name, groups...)
					if err == nil {
						break
					}
					if ctx.Err() != nil {
						t.Errorf("seed %d: insert: %v", seed, err)
						return
					}
				}
			}
		})
	}
	var mu sync.Mutex
	type delivery struct {
		prompt       string
		first, later int // deliveries that name no earlier one, and those that do
	}
	drawn := make(map[rollout.ID]*delivery)
	var left atomic.Int64
	left.Store(all)
	for range trainers {
		wait.Go(func() {
			for n := size; left.Load() > 0 && ctx.Err() == nil; {
				b, err := table.Waiting(50*time.Millisecond).Sample(ctx, rollout.Request{Size: n})
				if n = size; err != nil {
					n = 1 // an odd one may be left, where some came twice
					continue
				}
				mu.Lock()
				for _, d := range b.Draws {
					if drawn[d.ID] == nil {
						drawn[d.ID] = &delivery{prompt: d.Rollout.PromptID}
						left.Add(-1)
					}
					if d.Redelivered {
						drawn[d.ID].later++
					} else {
						drawn[d.ID].first++
					}
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	perPrompt, cuts := make(map[string]int), uint64(0)
	again := 0
	for id, d := range drawn {
		perPrompt[d.prompt]++
		if d.first > 1 {
			t.Errorf("seed %d: %d was delivered %d times without a word", seed, id, d.first)
		}
		again += d.first + d.later - 1
	}
	for prompt, n := range perPrompt {
		if n != size {
			t.Errorf("seed %d: %d rollouts of %s were drawn, want %d", seed, n, prompt, size)
		}
	}
	for _, p := range proxies {
		cuts += p.cuts.Load()
		p.whole.Store(true)
	}
	if len(drawn) != all || cuts < 10 {
		t.Errorf("seed %d: %d of %d rollouts were drawn, with %d cuts", seed, len(drawn), all, cuts)
	}
	t.Logf("%d cuts, %d rollouts delivered again", cuts, again)
}

// A machine that is gone refuses nothing, and its connections stay open.
func TestAServiceThatFallsSilentIsLeftOutSoon(t *testing.T) {
	tests.Long(t) // it is asked twice for two seconds whether it is there
	t.Parallel()
	var addresses []string
	var proxies []*cutter
	for i, n := range nodes(t, 2, false) {
		proxy, through := newCutter(t, n.at, uint64(i))
		proxy.whole.Store(true)
		proxies, addresses = append(proxies, proxy), append(addresses, through)
	}
	s, err := client.DialAll(t.Context(), addresses, client.AllOptions{Scope: client.AllParts,
		Logger: slog.New(slog.DiscardHandler)})
	mustNot(t, err)
	defer s.Close()
	ctx := t.Context()
	_, err = s.Create(ctx, wire.Table{Name: "lab"})
	mustNot(t, err)
	w := s.Table("lab")
	_, err = w.Insert(ctx, some(40, 1, "a")...)
	mustNot(t, err)

	proxies[1].silent.Lock()
	began := time.Now()
	b, err := w.Sample(ctx, rollout.Request{Size: 8})
	took := time.Since(began)
	proxies[1].silent.Unlock()
	mustNot(t, err)
	for _, d := range b.Draws {
		if part, _ := parted.Cut(uint64(d.ID)); part == 1 {
			t.Fatal("a rollout came from a service that is silent")
		}
	}
	if took > 20*time.Second { // where an answer may take a minute
		t.Errorf("a batch took %v", took)
	}

	tests.Until(t, "the part is back", func() bool {
		st, err := w.Statistics(ctx)
		return err == nil && st.Down == nil
	})
	name := ""
	for i := 0; name == "" || parted.Order(parted.Key("b/0", name, 0), 2)[0] != 1; i++ {
		name = fmt.Sprint("once-", i)
	}
	proxies[1].silent.Lock()
	var ids []rollout.ID
	inserted := make(chan error, 1)
	go func() {
		var err error
		ids, err = w.InsertOnce(ctx, name, some(1, 1, "b")...)
		inserted <- err
	}()
	tests.Until(t, "the part is down", func() bool {
		st, err := w.Statistics(ctx)
		return err == nil && st.Down != nil
	})
	proxies[1].silent.Unlock()
	mustNot(t, <-inserted)
	present, err := w.Len(ctx)
	mustNot(t, err)
	if part, _ := parted.Cut(uint64(ids[0])); part != 1 || present != 41 {
		t.Errorf("sent to part 1 while it was silent, a group is in part %d, of %d", part, present)
	}
}

func TestStreamsOverPartsSettleWhatWasTakenAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, scope := range []client.Scope{client.OwnParts, client.AllParts} {
		_, _, w := inParts(t, 3, wire.Table{Options: replay.Options{Sampler: replay.Uniform}},
			client.AllOptions{Scope: scope})
		ctx := t.Context()
		_, err := w.Insert(ctx, some(48, 1, "a")...)
		mustNot(t, err)
		for _, ahead := range []bool{false, true} {
			before, err := w.Statistics(ctx)
			mustNot(t, err)
			none := 0
			s, err := w.Stream(ctx, wire.SampleRequest{Size: 6, Prefetch: &none})
			mustNot(t, err)
			s.ReuseMemory()
			if ahead {
				s.ReadAhead()
			}
			for range 10 {
				b := take(t, s.Next)
				if len(b.Draws) != 6 {
					t.Fatalf("%d draws", len(b.Draws))
				}
			}
			take(t, s.Exchange) // releases the tenth
			mustNot(t, w.Advance(ctx, rollout.Version(before.Version)+1))
			if b := take(t, s.Next); b.Version != rollout.Version(before.Version)+1 && ahead {
				t.Errorf("after an advance a batch of version %d came", b.Version)
			}
			mustNot(t, s.Acknowledge(ctx)) // the twelfth
			mustNot(t, s.Close())
			most := before.Acknowledged + 6*11
			tests.Until(t, fmt.Sprintf("%s, ahead %v: all is settled", scope, ahead), func() bool {
				st, err := w.Statistics(ctx)
				mustNot(t, err)
				least := most
				if ahead { // Close may cut short the request that settles the batch before the last, in any of the parts
					least -= 6
				}
				return st.OnLease == 0 && st.Acknowledged >= least && st.Acknowledged <= most
			})
		}
	}
}

func TestAGateInPartsGrantsItsGroupsAndTheyGoToThePartThatGranted(t *testing.T) {
	t.Parallel()
	_, _, w := inParts(t, 2, wire.Table{Gate: &wire.Gate{RolloutsPerUpdate: 16}, Options: replay.Options{GroupSize: 2},
		Prompts: &prompts.Options{Fraction: 1, Band: 0.5, MaxReuse: 10}}, client.AllOptions{})
	ctx := t.Context()
	granted := 0
	for {
		a, err := w.Start(ctx, 3, 2)
		mustNot(t, err)
		if a.Groups == 0 {
			break
		}
		granted += a.Groups
		part, _ := parted.Cut(a.Grant)
		given := 0 // of a grant of several, one is given back
		if a.Groups > 1 {
			given = 1
		}
		answer, err := w.InsertGroups(ctx, client.Insertion{Grant: a.Grant},
			some(a.Groups-given, 2, fmt.Sprint(granted))...)
		mustNot(t, err)
		for _, id := range answer.IDs {
			if at, _ := parted.Cut(id); at != part {
				t.Errorf("a group of part %d's grant went to part %d", part, at)
			}
		}
		if given > 0 {
			mustNot(t, w.Abandon(ctx, a.Grant, given))
		}
		if granted -= given; granted > 8 {
			t.Fatalf("%d groups of 2 were granted, of 16 rollouts", granted)
		}
	}
	if granted != 8 {
		t.Errorf("%d groups of 2 entered under grants, want all of 16 rollouts", granted)
	}
	results := make([]wire.PromptResult, 20)
	for i := range results {
		results[i] = wire.PromptResult{Prompt: wire.Prompt{ID: fmt.Sprint(i)}, Correct: 1, Total: 2}
	}
	mustNot(t, w.PromptsReport(ctx, results...))
	next, err := w.PromptsNext(ctx, 8)
	mustNot(t, err)
	st, err := w.Statistics(ctx)
	mustNot(t, err)
	if len(next.Prompts) != 8 || st.Prompts.Held != 20 || st.Gate.RolloutsPerUpdate != 16 || st.Gate.Started != 16 {
		t.Errorf("%d prompts of %d, gate %+v", len(next.Prompts), st.Prompts.Held, st.Gate)
	}
}

func TestACheckpointOfAllPartsBringsAllBack(t *testing.T) {
	t.Parallel()
	list, s, w := inParts(t, 2, wire.Table{Options: replay.Options{Capacity: 101, MinSize: 3, CapacityBytes: 1 << 30}},
		client.AllOptions{})
	ctx := t.Context()
	info, err := w.Info(ctx)
	mustNot(t, err)
	if d := info.Definition; d.Capacity != 102 || d.MinSize != 4 || d.CapacityBytes != 1<<30 || d.Name != "lab" {
		t.Errorf("the table is %+v", d)
	}
	_, err = w.Insert(ctx, some(20, 1, "a")...)
	mustNot(t, err)
	mustNot(t, w.Advance(ctx, 4))
	saved, err := w.Checkpoint(ctx, "one")
	mustNot(t, err)
	_, err = w.Insert(ctx, some(20, 1, "b")...)
	mustNot(t, err)
	mustNot(t, w.Rewind(ctx, 2))
	back, err := w.Restore(ctx, "one")
	mustNot(t, err)
	if saved.Present != 20 || back.Present != 20 || back.Version != 4 {
		t.Errorf("%d were saved, %d at version %d restored", saved.Present, back.Present, back.Version)
	}
	list[0].stop()
	short := dialAll(t, list, client.AllOptions{Options: client.Options{RetryFor: 400 * time.Millisecond}}).Table("lab")
	if _, err := short.Checkpoint(ctx, "two"); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a checkpoint without a part: %v", err)
	}
	list[0].start()
	tests.Until(t, "all parts are up", func() bool {
		st, err := w.Statistics(ctx)
		return err == nil && st.Down == nil
	})
	mustNot(t, s.Drop(ctx, "lab"))
	if _, err := w.Info(ctx); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("a dropped table: %v", err)
	}
}

// A cluster finds the parts of a table from 0 on: without part 0 there is no table, with it all parts are to be found.
func TestPartZeroIsCreatedLastAndDroppedLast(t *testing.T) {
	t.Parallel()
	list := nodes(t, 3, true)
	s := dialAll(t, list, client.AllOptions{Options: client.Options{RetryFor: time.Millisecond}})
	first, err := client.Dial(t.Context(), list[0].address(), client.Options{})
	mustNot(t, err)
	t.Cleanup(func() { _ = first.Close() })
	has := func() bool {
		_, err := first.Table("lab").Info(t.Context())
		if err != nil && !errors.Is(err, wire.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	create := func() bool { _, err := s.Create(t.Context(), wire.Table{Name: "lab"}); return err == nil }
	drop := func() bool { return s.Drop(t.Context(), "lab") == nil }

	list[1].stop()
	if create() || has() {
		t.Error("part 0 was made, although another could not be")
	}
	list[1].start()
	tests.Until(t, "creation", create)
	list[1].stop()
	if drop() || !has() {
		t.Error("part 0 was dropped, although another could not be")
	}
	list[1].start()
	tests.Until(t, "drop", drop)
	if has() {
		t.Error("part 0 is still there")
	}
}

func TestAConnectionToSeveralServicesIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	list := nodes(t, 1, false)
	for _, c := range []struct {
		addresses []string
		o         client.AllOptions
		want      string
	}{
		{nil, client.AllOptions{}, "addresses: 0"},
		{[]string{list[0].address(), list[0].address()}, client.AllOptions{}, "want it once"},
		{[]string{list[0].address()}, client.AllOptions{Trainer: 2, Trainers: 2}, "trainer: 2: want 0 to 1"},
		{[]string{list[0].address()}, client.AllOptions{Scope: "all"}, "want own or global"},
	} {
		if _, err := client.DialAll(t.Context(), c.addresses, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %+v: %v, want %q", c.addresses, c.o, err, c.want)
		}
	}
	s := dialAll(t, list, client.AllOptions{})
	if _, err := s.CreateParts(t.Context(), wire.Table{Name: "lab"}, 2); err == nil {
		t.Error("two parts were made on one service")
	}
}

// The client has found the service down several times, so that it would not try it again for two seconds.
func TestTheNextCallAfterAServiceIsBackReachesIt(t *testing.T) {
	t.Parallel()
	list, _, w := inParts(t, 3, wire.Table{}, client.AllOptions{Scope: client.AllParts})
	ctx := t.Context()
	_, err := w.Insert(ctx, some(60, 1, "a")...)
	mustNot(t, err)
	for name, call := range map[string]func() error{
		"scan": func() error {
			found, total := 0, 0.0
			err := w.Scan(ctx, 16, func(draws []rollout.Draw) error {
				for _, d := range draws {
					found, total = found+1, total+d.Probability
				}
				return nil
			})
			if err == nil && (found != 60 || math.Abs(total-1) > 1e-9) {
				err = fmt.Errorf("%d rollouts of 60 came, with probabilities that sum to %v", found, total)
			}
			return err
		},
		"checkpoint": func() error {
			saved, err := w.Checkpoint(ctx, "all")
			if err == nil && saved.Present != 60 {
				err = fmt.Errorf("%d rollouts of 60 were saved", saved.Present)
			}
			return err
		},
		"acknowledge": func() error {
			err := w.Acknowledge(ctx, rollout.BatchID(parted.Join(1, 99)))
			if errors.Is(err, rollout.ErrNoLease) {
				return nil
			}
			return fmt.Errorf("a batch that nobody has: %w", err)
		},
	} {
		list[1].stop()
		tests.Until(t, "the part counts as down", func() bool {
			st, err := w.Statistics(ctx)
			return err == nil && slices.Equal(st.Down, []int{1})
		})
		list[1].start()
		if err := call(); err != nil {
			t.Errorf("%s: the first call after the service is back: %v", name, err)
		}
		tests.Until(t, "all parts are up", func() bool {
			st, err := w.Statistics(ctx)
			return err == nil && st.Down == nil
		})
	}
}
