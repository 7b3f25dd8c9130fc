package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// conditions and orders are expressions with what they say, told once more in Go.
func conditions() map[string]func(h *Held) bool {
	return map[string]func(h *Held) bool{
		"":                         func(*Held) bool { return true },
		"reward > 0":               func(h *Held) bool { return h.Rollout.Reward > 0 },
		"age > 2 && uses == 0":     func(h *Held) bool { return h.Age > 2 && h.Uses == 0 },
		"truncated or advantage<0": func(h *Held) bool { return h.Rollout.Truncated || h.Advantage < 0 },
		"meta.difficulty >= 0.5":   func(h *Held) bool { return h.Rollout.Meta["difficulty"] == "0.5" },
		"tokens > 100":             func(*Held) bool { return false },
	}
}

func orders() map[string]func(h *Held) float64 {
	return map[string]func(h *Held) float64{
		"":             nil,
		"-reward":      func(h *Held) float64 { return -float64(h.Rollout.Reward) },
		"age + tokens": func(h *Held) float64 { return float64(h.Age + len(h.Rollout.Tokens)) },
		"meta.difficulty": func(h *Held) float64 {
			if h.Rollout.Meta["difficulty"] == "" {
				return math.NaN()
			}
			return 0.5
		},
	}
}

// oneOf returns a key of a map, the same for the same stream.
func oneOf[V any](random *rand.Rand, of map[string]V) string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys[random.IntN(len(keys))]
}

// searched fills a table that evicts, with draws and versions between the insertions.
func searched(t testing.TB, random *rand.Rand, o Options, groups int) *Table {
	table := mustNew(t, o)
	for i := range groups {
		g := someGroup(random, 1+random.IntN(4), table.Version())
		for _, r := range g.Rollouts {
			r.PromptID = fmt.Sprint("P", i%20)
			r.Truncated = random.IntN(4) == 0
			if r.Text = []string{"", "The Answer is 4", "ÄRGER", "none"}[random.IntN(4)]; random.IntN(2) == 0 {
				r.Meta = map[string]string{"difficulty": "0.5"}
			}
		}
		mustInsert(t, table, g)
		if i%16 == 15 {
			if err := table.Advance(ctx, table.Version()+1); err != nil {
				t.Fatal(err)
			}
			mustSample(t, table, rollout.Request{Size: 4, Shard: random.IntN(table.options.Shards)})
		}
	}
	return table
}

// The reference looks at everything that the table holds and sorts all of it.
func TestFindAgreesWithAPlainSearch(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	for number, o := range []Options{
		{Capacity: 64}, {Capacity: 64, Shards: 2, MaxStaleness: 4},
		{Capacity: 2*scanned + 100, Sampler: Prioritized, Shards: 2},
	} {
		random := rollout.Stream(seed, "find", uint64(number))
		table := searched(t, random, o, o.Capacity*2/3)
		for range 100_000 / (o.Capacity + 1000) {
			q := Query{Where: oneOf(random, conditions()), Order: oneOf(random, orders()),
				Text: []string{"", "answer", "ärger", "p1", "nowhere"}[random.IntN(5)],
				Skip: random.IntN(30), Limit: random.IntN(40)}
			if random.IntN(4) == 0 {
				q.Prompt = "P7"
			}
			if random.IntN(4) == 0 {
				q.Group = uint64(o.Capacity*2/3 - random.IntN(20))
			}
			matched, page, err := table.Inspect().Find(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			want := plainly(table, q)
			if matched != len(want) {
				t.Fatalf("%+v: %d match, want %d", q, matched, len(want))
			}
			want = want[min(q.Skip, len(want)):]
			want = want[:min(q.Limit, len(want))]
			if got := heldIDs(page); !slices.Equal(got, heldIDs(want)) {
				t.Fatalf("%+v: the page is %v, want %v", q, got, heldIDs(want))
			}
			places, err := table.Inspect().Where(ctx, q.Where)
			all := heldIDs(plainly(table, Query{Where: q.Where}))
			slices.Sort(all)
			if got := heldIDs(table.Inspect().At(places)); err != nil || !slices.Equal(got, all) {
				t.Fatalf("where %q: %v, %v, want %v", q.Where, got, err, all)
			}
			for _, h := range page[:min(1, len(page))] {
				by := 0.0
				if order := orders()[q.Order]; order != nil {
					by = order(&h)
				}
				if cmp.Compare(h.Order, by) != 0 {
					t.Fatalf("%+v: rollout %d is ordered by %g, want %g", q, h.ID, h.Order, by)
				}
				h.Order = 0
				if again, ok := table.Inspect().Get(h.ID); !ok || fmt.Sprint(again) != fmt.Sprint(h) {
					t.Fatalf("Get(%d) is %+v, Find's row %+v", h.ID, again, h)
				}
			}
		}
	}
}

func plainly(table *Table, q Query) (list []Held) {
	for _, h := range table.Inspect().Held() {
		has := func(text string) bool { return strings.Contains(strings.ToLower(text), q.Text) }
		if conditions()[q.Where](&h) && (has(h.Rollout.Text) || has(h.Rollout.PromptID)) &&
			(q.Prompt == "" || q.Prompt == h.Rollout.PromptID) && (q.Group == 0 || q.Group == h.Group) {
			list = append(list, h)
		}
	}
	order := orders()[q.Order]
	slices.SortFunc(list, func(a, b Held) int {
		if order != nil {
			if c := cmp.Compare(order(&b), order(&a)); c != 0 {
				return c
			}
		}
		return cmp.Compare(b.ID, a.ID)
	})
	return list
}

func heldIDs(list []Held) []rollout.ID {
	ids := make([]rollout.ID, len(list))
	for i, h := range list {
		ids[i] = h.ID
	}
	return ids
}

func TestFindRefusesWhatADrawByPromptRefuses(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, PromptIndex: true})
	for want, q := range map[string]Query{
		"where: ": {Where: "reward"}, "order: ": {Order: "reward >"}, "use uses": {Where: "use == 0"},
		"skip is -1": {Skip: -1}, "limit is -1": {Limit: -1}, "limit is 1001: ask for 0 to 1000": {Limit: 1001},
	} {
		_, _, err := table.Inspect().Find(ctx, q)
		if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: the error is %v, want one with %q", q, err, want)
		}
		_, drawing := table.Sample(ctx, rollout.Request{Prompts: []string{"p"}, PerPrompt: 1, Where: q.Where, Order: q.Order})
		if (q.Where != "" || q.Order != "") && (drawing == nil || drawing.Error() != err.Error()) {
			t.Errorf("%+v: Find says %v, a draw %v", q, err, drawing)
		}
	}
	if _, ok := table.Inspect().Get(1); ok {
		t.Error("an empty table has rollout 1")
	}
	mustInsert(t, table, group(0, 1, 0, 1))
	if n, page, err := table.Inspect().Find(ctx, Query{Skip: math.MaxInt, Limit: 1000}); n != 3 || len(page) != 0 || err != nil {
		t.Errorf("behind the last rollout are %d of %d, error %v", len(page), n, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := table.Inspect().Find(ended, Query{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a search whose context has ended says %v", err)
	}
}

// What is there throughout is found once, whatever comes and leaves beside it: run with -race.
func TestFindSeesWhatStaysWhileOthersComeAndLeave(t *testing.T) {
	table := mustNew(t, Options{Capacity: 3 * scanned, Shards: 2, MaxStaleness: 2, Pin: "reward == 7"})
	const stay = 2 * scanned
	for range stay / 4 {
		mustInsert(t, table, group(0, 7, 7, 7, 7))
	}
	var busy sync.WaitGroup
	stop := make(chan struct{})
	for worker := range 2 {
		busy.Go(func() {
			random := rollout.Stream(uint64(worker), "find", 0)
			for v := 1; ; v++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := table.Insert(ctx, someGroup(random, 4, table.Version()))
				if v%8 == 0 {
					err = errors.Join(err, table.Advance(ctx, table.Version()+1))
				}
				if err != nil {
					t.Error(err)
					return
				}
				mustSample(t, table, rollout.Request{Size: 4, Shard: worker})
			}
		})
	}
	for range 20 {
		n, page, err := table.Inspect().Find(ctx, Query{Where: "reward == 7", Order: "age", Limit: MostFound})
		if n != stay || len(page) != MostFound || err != nil {
			t.Errorf("found %d, %d of them on the page, error %v: want %d and %d", n, len(page), err, stay, MostFound)
		}
	}
	close(stop)
	busy.Wait()
}

// The baseline is one pass over the rollouts' rewards in a slice.
func BenchmarkFind(b *testing.B) {
	const held = 100_000
	groups := groupsOf(64, 512, 128, rollout.Stream(1, "find", 0))
	for _, g := range groups {
		for _, r := range g.Rollouts {
			r.Text = strings.Repeat("The quick brown fox jumps over it. ", 60)
		}
	}
	table := mustNew(b, Options{Capacity: held})
	var rewards []*rollout.Rollout
	for i := range held / benchGroup {
		mustInsert(b, table, groups[i%len(groups)])
		rewards = append(rewards, groups[i%len(groups)].Rollouts...)
	}
	n := 0
	plain := timed(func() {
		for _, r := range rewards {
			if r.Reward < 0.5 {
				n++
			}
		}
	})
	for _, c := range []struct {
		name string
		Query
	}{
		{"newest", Query{Limit: 100}},
		{"filter", Query{Where: "reward < 0.5 && age >= 0 && uses == 0", Limit: 100}},
		{"sort", Query{Order: "mean_logprob", Limit: 100}},
		{"text", Query{Text: "no such words", Limit: 100}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := table.Inspect().Find(ctx, c.Query); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/plain, "x-one-pass")
		})
	}
}
