package replay

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// promptGroup makes rollouts of a prompt with the given rewards, of version 0.
func promptGroup(prompt string, rewards ...float32) rollout.Group {
	g := group(0, rewards...)
	for _, r := range g.Rollouts {
		r.PromptID = prompt
	}
	return g
}

func TestADrawByPromptTakesTheFirstOfEachInTheGivenOrder(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, PromptIndex: true, MinSize: 32})
	mustInsert(t, table, promptGroup("a", 0, 3, 1, 3), promptGroup("b", 1, 0), promptGroup("c", 0, 0),
		promptGroup("a", 2))
	b := mustSample(t, table, rollout.Request{Prompts: []string{"c", "a", "nobody's", "b"}, PerPrompt: 3,
		Where: "reward > 0", Order: "reward"})
	if want := []rollout.ID{4, 2, 9, 5}; !slices.Equal(drawnIDs(b), want) {
		t.Errorf("drew %v, want %v: the largest rewards first, of equals the newest", drawnIDs(b), want)
	}
	if want := []int{0, 3, 0, 1}; !slices.Equal(b.PromptCounts, want) {
		t.Errorf("the prompts got %v, want %v", b.PromptCounts, want)
	}
	for i, draws := range b.ByPrompt() {
		if len(draws) != b.PromptCounts[i] {
			t.Errorf("prompt %d has %d draws, want %d", i, len(draws), b.PromptCounts[i])
		}
	}
	s := statsOf(table)
	if s.Drawn != 4 || s.Acknowledged != 4 {
		t.Errorf("%d drawn and %d acknowledged, want 4 uses", s.Drawn, s.Acknowledged)
	}
	none := mustLease(t, table, rollout.Request{Prompts: []string{"nobody's"}, PerPrompt: 1})
	if len(none.Draws) != 0 || !slices.Equal(none.PromptCounts, []int{0}) {
		t.Errorf("a prompt of nobody got %+v", none)
	}
	if err := table.Acknowledge(ctx, none.ID); err != nil {
		t.Errorf("acknowledging an empty batch: %v", err)
	}
}

// An expert's rollout enters as any other, conditions tell it by its mean log-prob, and a snapshot has it.
func TestRolloutsWithoutLogprobsEnterTablesThatTakeThem(t *testing.T) {
	expert := promptGroup("a", 1)
	expert.Rollouts[0].Logprobs[len(expert.Rollouts[0].Logprobs)-1] = float32(math.NaN())
	if _, err := mustNew(t, Options{Capacity: 8}).Insert(ctx, expert); err == nil ||
		!strings.Contains(err.Error(), "unknown_logprobs") {
		t.Errorf("a table that does not take them says %v", err)
	}
	o := Options{Capacity: 8, UnknownLogprobs: true, Sources: []Source{
		{Name: "experts", Count: 1, Where: "!known(mean_logprob)"}, {Name: "others", Count: 2, Where: "known(mean_logprob)"}}}
	table := mustNew(t, o)
	mustInsert(t, table, promptGroup("a", 0, 1), expert)
	again := mustNew(t, o)
	if err := again.Restore(bytes.NewReader(snapshotOf(t, table))); err != nil {
		t.Fatal(err)
	}
	for _, table := range []*Table{table, again} {
		batch := mustSample(t, table, rollout.Request{Size: 3})
		if !slices.Equal(batch.SourceCounts, []int{1, 2}) || batch.Draws[0].ID != 3 || batch.Draws[0].Rollout.LogprobsKnown() {
			t.Errorf("sources gave %v, the first is rollout %d", batch.SourceCounts, batch.Draws[0].ID)
		}
	}
}

// Each column is what the rollout has, by a rollout that one expression per column picks out.
func TestExpressionsReadWhatTheTableKnows(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, PromptIndex: true})
	x := rollout.New("a", []int32{1, 2, 3}, rollout.Completion{Tokens: []int32{4, 5}, Logprobs: []float32{-1, -2},
		Reward: 0.75, Version: 0})
	x.Truncated = true
	x.Turns = []rollout.Turn{{Start: 3, End: 4}, {Start: 4, End: 5}}
	x.Meta = map[string]string{"difficulty": "0.5", "source": "web"}
	y := rollout.New("a", []int32{1}, rollout.Completion{Tokens: []int32{4}, Logprobs: []float32{-0.25}, Reward: 0.25})
	mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{x, y}})
	draw := func(where string) []rollout.ID {
		return drawnIDs(mustLease(t, table, rollout.Request{Prompts: []string{"a"}, PerPrompt: 9, Where: where,
			Order: "-version * 0 + 1"}))
	}
	if got := draw("since_use > 1e9 && uses == 0"); len(got) != 2 {
		t.Errorf("%d rollouts were never used, want both", len(got))
	}
	if err := table.Advance(ctx, 2); err != nil {
		t.Fatal(err)
	}
	mustSample(t, table, rollout.Request{Prompts: []string{"a"}, PerPrompt: 1, Where: "truncated"})
	if err := table.Advance(ctx, 5); err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string][]rollout.ID{
		"reward == 0.75":                       {1},
		"advantage < 0":                        {2},
		"group_mean == 0.5 && group_std==0.25": {2, 1},
		"mean_logprob == -1.5":                 {1},
		"mean_logprob == -0.25":                {2},
		"length == 2":                          {1},
		"tokens == 2":                          {2},
		"turns == 2":                           {1},
		"not truncated":                        {2},
		"uses == 1":                            {1},
		"age == 5 && version == 0":             {2, 1},
		"since_use == 3":                       {1},
		"meta.difficulty == 0.5":               {1},
		"known(meta.source)":                   nil,
		"meta.difficulty != 0.5":               {2},
	} {
		if got := draw(where); !slices.Equal(got, want) {
			t.Errorf("%s: drew %v, want %v", where, got, want)
		}
	}
	if got := drawnIDs(mustLease(t, table, rollout.Request{Prompts: []string{"a"}, PerPrompt: 9,
		Order: "-meta.difficulty"})); !slices.Equal(got, []rollout.ID{1, 2}) {
		t.Errorf("drew %v: what has no number of that name comes last", got)
	}
}

func TestABadDrawByPromptIsRefusedForGood(t *testing.T) {
	table, off := mustNew(t, Options{Capacity: 4, PromptIndex: true}), mustNew(t, Options{Capacity: 4})
	mustInsert(t, table, group(0, 1))
	a := []string{"a"}
	for _, c := range []struct {
		table *Table
		req   rollout.Request
		want  string
	}{
		{off, rollout.Request{Prompts: a, PerPrompt: 1}, "prompts: this table has no index of them: set the option " +
			"prompt_index"},
		{table, rollout.Request{Prompts: a}, "per_prompt is 0: ask for at least 1"},
		{table, rollout.Request{Prompts: a, PerPrompt: -1}, "per_prompt is -1"},
		{table, rollout.Request{Prompts: a, PerPrompt: 1, Size: 2}, "size is 2 and fresh 0 with 1 prompts: leave them"},
		{table, rollout.Request{Prompts: a, PerPrompt: 1, Fresh: 1}, "size is 0 and fresh 1"},
		{table, rollout.Request{Prompts: a, PerPrompt: 1, Shard: 1}, "shard is 1: name one of 0 to 0"},
		{table, rollout.Request{Prompts: []string{"a", "b", "a"}, PerPrompt: 1}, `prompts: "a" is named twice`},
		{table, rollout.Request{Prompts: a, PerPrompt: 1, Where: "rewrad > 0"}, `where: "rewrad > 0": there is no ` +
			`column rewrad: use reward`},
		{table, rollout.Request{Prompts: a, PerPrompt: 1, Where: "reward"}, "where: \"reward\": reward is a number"},
		{table, rollout.Request{Prompts: a, PerPrompt: 1, Order: "reward > 0"}, "order: \"reward > 0\": reward > 0 is " +
			"true or false"},
		{table, rollout.Request{Prompts: a, PerPrompt: 1, Where: "all(1..1000, # > age)"}, "there is no function all"},
		{table, rollout.Request{Size: 1, PerPrompt: 1}, "per_prompt, where or order is given without prompts"},
		{table, rollout.Request{Size: 1, Where: "age > 0"}, "without prompts: name prompts"},
		{table, rollout.Request{Prompts: []string{}}, "size is 0"},
	} {
		if _, err := c.table.Sample(ctx, c.req); !errors.Is(err, rollout.ErrInvalid) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.req, err, c.want)
		}
	}
	if s := statsOf(table); s.Drawn != 0 {
		t.Errorf("%d were drawn", s.Drawn)
	}
	for want, o := range map[string]Options{
		"prompt_index: true: want false with unit group and with samplers lifo and fifo": {PromptIndex: true, Sampler: FIFO},
		"prompt_index: true": {PromptIndex: true, Unit: UnitGroup, GroupSize: 2},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", o, err, want)
		}
	}
}

func TestARepeatedDrawByPromptGetsTheSameBatch(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, PromptIndex: true})
	mustInsert(t, table, promptGroup("a", 0, 1, 2, 3), promptGroup("b", 0, 1, 2, 3))
	req := rollout.Request{Prompts: []string{"a", "nobody's", "b"}, PerPrompt: 2, ID: "one"}
	first := mustSample(t, table, req)
	if again := mustSample(t, table, req); again.ID != first.ID || !slices.Equal(drawnIDs(again), drawnIDs(first)) {
		t.Errorf("drew %v, then %v", drawnIDs(first), drawnIDs(again))
	}
	if s := statsOf(table); s.Acknowledged != 4 {
		t.Errorf("%d uses, want 4", s.Acknowledged)
	}
	mustSample(t, table, rollout.Request{Size: 4, ID: "plain"})
	for name, other := range map[string]rollout.Request{
		"fewer":   {Prompts: []string{"a", "b"}, PerPrompt: 2, ID: "one"},
		"others":  {Prompts: []string{"a", "nobody's", "c"}, PerPrompt: 2, ID: "one"},
		"less":    {Prompts: req.Prompts, PerPrompt: 1, ID: "one"},
		"a size":  {Size: 4, ID: "one"},
		"prompts": {Prompts: []string{"a"}, PerPrompt: 4, ID: "plain"},
	} {
		if _, err := table.Sample(ctx, other); !errors.Is(err, rollout.ErrInvalid) ||
			!strings.Contains(err.Error(), "give each request an id of its own") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Restored with the index or without it, a table is the same otherwise.
func TestTheIndexByPromptCanBeSwitchedOnLater(t *testing.T) {
	off := mustNew(t, Options{Capacity: 64})
	mustInsert(t, off, promptGroup("a", 0, 1, 2), promptGroup("b", 3), promptGroup("a", 4))
	var saved bytes.Buffer
	if err := off.Snapshot(&saved); err != nil {
		t.Fatal(err)
	}
	on := mustNew(t, Options{Capacity: 64, PromptIndex: true})
	if err := on.Restore(&saved); err != nil {
		t.Fatal(err)
	}
	b := mustSample(t, on, rollout.Request{Prompts: []string{"a"}, PerPrompt: 9, Order: "1"})
	if want := []rollout.ID{5, 3, 2, 1}; !slices.Equal(drawnIDs(b), want) {
		t.Errorf("drew %v, want %v, the newest first", drawnIDs(b), want)
	}
}

// NormaliseWeights leaves draws by prompt alone, which have no importance weights.
func TestDrawsByPromptHaveNoImportanceWeights(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, Sampler: Prioritized, PromptIndex: true})
	mustInsert(t, table, promptGroup("a", 0, 1, 2, 9))
	plain := mustSample(t, table, rollout.Request{Size: 8})
	before := make([]float32, len(plain.Draws))
	for i, d := range plain.Draws {
		before[i] = d.Weight
	}
	byPrompt := mustSample(t, table, rollout.Request{Prompts: []string{"a"}, PerPrompt: 4})
	if plain.LogWeightScale == 0 || byPrompt.LogWeightScale != 0 {
		t.Fatalf("the scales are %v and %v", plain.LogWeightScale, byPrompt.LogWeightScale)
	}
	rollout.NormaliseWeights([]*rollout.Batch{byPrompt, plain})
	for i, d := range plain.Draws {
		if d.Weight != before[i] {
			t.Errorf("a weight went from %v to %v", before[i], d.Weight)
		}
	}
	for _, d := range byPrompt.Draws {
		if d.Weight != 1 {
			t.Errorf("a draw by prompt has weight %v", d.Weight)
		}
	}
}

// TestTheIndexByPromptAgreesWithAMapOfLists grows and shrinks an index of many prompts, and checks what it takes.
func TestTheIndexByPromptAgreesWithAMapOfLists(t *testing.T) {
	tests.OneGoroutine(t)
	for seed := range uint64(4) {
		random := rollout.Stream(seed, "prompt index", 0)
		st := &store{}
		x, want := newPromptIndex(st), make(map[string][]int32)
		var held []int32
		prompts := []int{3, 100, 5000, 5000}[seed]
		for i := range 20_000 {
			if len(held) > 0 && random.IntN(5) < 1+i/8000 { // it shrinks in the end
				k := random.IntN(len(held))
				s := held[k]
				held = slices.Delete(held, k, k+1)
				id := st.rollouts[s].PromptID
				want[id] = slices.DeleteFunc(want[id], func(o int32) bool { return o == s })
				x.remove(s)
				st.release(s)
			} else {
				id := fmt.Sprint(random.IntN(prompts))
				s := st.put(&item{ID: rollout.ID(i)}, &rollout.Rollout{PromptID: id})
				x.add(s)
				held, want[id] = append(held, s), append([]int32{s}, want[id]...)
			}
			if bytes := 8*cap(x.links) + 4*len(x.heads); len(held) > 100 && len(held) == len(st.items) &&
				bytes > 16*len(held) {
				t.Fatalf("seed %d: %d bytes for %d rollouts, want at most 16 each", seed, bytes, len(held))
			}
			id := fmt.Sprint(random.IntN(prompts))
			var got []int32
			for s := x.first(id); s != none; s = x.after(s, id) {
				got = append(got, s)
			}
			if !slices.Equal(got, want[id]) {
				t.Fatalf("seed %d: prompt %s has %v, want %v", seed, id, got, want[id])
			}
		}
		if x.n != len(held) {
			t.Errorf("seed %d: it counts %d, want %d", seed, x.n, len(held))
		}
	}
}

func TestDrawsByPromptWithoutAnOrderAreUniform(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, PromptIndex: true, Seed: 3})
	mustInsert(t, table, promptGroup("a", 0, 1, 2, 3, 4))
	const draws = 4000
	var counts [6]float64
	for range draws {
		for _, d := range mustSample(t, table, rollout.Request{Prompts: []string{"a"}, PerPrompt: 2}).Draws {
			counts[d.ID]++
		}
	}
	for id, n := range counts[1:] { // each is in a batch with probability 2/5
		if mean, sd := 0.4*draws, math.Sqrt(draws*0.4*0.6); math.Abs(n-mean) > 4.5*sd {
			t.Errorf("rollout %d was drawn %v times, want %v within 4.5 x %v", id+1, n, mean, sd)
		}
	}
}

func BenchmarkSampleByPrompt(b *testing.B) {
	const prompts, per = 32, 8
	for _, n := range []int{50_000, 1_000_000} {
		table := mustNew(b, Options{Capacity: n, PromptIndex: true, Seed: 1})
		names := make([]string, n/benchGroup)
		for i, g := range groupsOf(len(names), 12, 4, rollout.Stream(1, "bench", 0)) {
			names[i] = fmt.Sprint("prompt ", i)
			for _, r := range g.Rollouts {
				r.PromptID = names[i]
			}
			mustInsert(b, table, g)
		}
		random := rollout.Stream(1, "bench", 1)
		var baseline float64
		for _, c := range []struct {
			name string
			req  rollout.Request
		}{
			{"baseline=plain", rollout.Request{Size: prompts * per}},
			{"random", rollout.Request{PerPrompt: per}},
			{"where", rollout.Request{PerPrompt: per, Where: "age < 8 && uses >= 0"}},
			{"where,order", rollout.Request{PerPrompt: per, Where: "age < 8", Order: "mean_logprob - 0.1 * uses"}},
		} {
			b.Run(fmt.Sprintf("rollouts=%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					req := c.req
					for first := random.IntN(n / benchGroup); req.Size == 0 && len(req.Prompts) < prompts; {
						req.Prompts = append(req.Prompts, names[(first+97*len(req.Prompts))%len(names)])
					}
					batch, err := table.Sample(ctx, req)
					if err != nil || len(batch.Draws) != prompts*per {
						b.Fatalf("%d draws, %v", len(batch.Draws), err)
					}
				}
				if ns := perRollout(b, prompts*per, baseline); baseline == 0 {
					baseline = ns
				}
			})
		}
	}
}
