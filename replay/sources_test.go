package replay

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
)

// someSources use every key of a source, and between them columns that never change, that change with uses and that
// change with versions.
func someSources() []Source {
	return []Source{
		{Name: "fresh", Pool: PoolFresh, Share: "0.3", Where: "group_std > 0", Wait: true, Backfill: "spare"},
		{Name: "unused", Share: "version % 3 == 0 ? 0.5 : 0.2", Where: "uses == 0 || since_use > 2", Backfill: "successes"},
		{Name: "successes", Count: 1, Where: "reward > 0", Weight: "abs(advantage) + 0.1", PerPrompt: 1},
		{Name: "young", Share: "0.4", Where: "age < 2", Weight: "1 / (1 + uses)", PerPrompt: 2, Wait: true},
		{Name: "spare", Share: "0.5 - version / 40", Weight: "reward"},
	}
}

// promptSources draw of the prompts of the fresh ones: in their places, in the given order, and beside them, at random.
func promptSources() []Source {
	return []Source{
		{Name: "some", Pool: PoolFresh, Share: "0.3", Where: "group_std > 0", Backfill: "more"},
		{Name: "more", Pool: PoolFresh, Count: 1},
		{Name: "swap", Pool: PoolPrompts, Where: "reward > 0", Order: "age", PerPrompt: 1, FreshWhere: "age < 4",
			Replace: true},
		{Name: "mates", Pool: PoolPrompts, Share: "0.4", Where: "age < 4", PerPrompt: 2, Backfill: "spare"},
		{Name: "again", Pool: PoolPrompts, Count: 1, Order: "1 / (1 + uses)", FreshWhere: "reward <= 0"},
		{Name: "spare", Weight: "reward"},
	}
}

// groupSources are of tables whose units are groups of two.
func groupSources() []Source {
	return []Source{
		{Name: "fresh", Pool: PoolFresh, Count: 2, Where: "reward > 0", Wait: true},
		{Name: "spread", Share: "0.5", Where: "group_std > 0", Backfill: "old"},
		{Name: "old", Share: "0.2", Where: "age > 1", Weight: "reward + 2"},
	}
}

// told is the conditions and the numbers of those sources, and their shares, in Go.
func (m *model) told(u *modelUnit, it *modelItem, text string) float64 {
	is := func(holds bool) float64 {
		if holds {
			return 1
		}
		return 0
	}
	age := m.version - it.r.Version()
	switch text {
	case "group_std > 0":
		return is(it.std > 0)
	case "uses == 0 || since_use > 2":
		return is(u.uses == 0 || m.version-u.lastUse > 2)
	case "reward > 0":
		return is(it.r.Reward > 0)
	case "reward <= 0":
		return is(it.r.Reward <= 0)
	case "age":
		return float64(age)
	case "age < 4":
		return is(age < 4)
	case "abs(advantage) + 0.1":
		return math.Abs(float64(it.advantage)) + 0.1
	case "age < 2":
		return is(age < 2)
	case "age > 1":
		return is(age > 1)
	case "1 / (1 + uses)":
		return 1 / (1 + float64(u.uses))
	case "reward":
		return float64(it.r.Reward)
	case "reward + 2":
		return float64(it.r.Reward) + 2
	case "(abs(advantage) + group_std) / (1 + uses)":
		return (math.Abs(float64(it.advantage)) + float64(it.std)) / (1 + float64(u.uses))
	case "age < 2 ? reward : 1 / (1 + since_use)":
		switch {
		case age < 2:
			return float64(it.r.Reward)
		case u.lastUse == rollout.NoVersion:
			return 0
		}
		return 1 / (1 + float64(m.version-u.lastUse))
	case "version":
		return float64(it.r.Version())
	case "version - 2 * uses":
		return float64(it.r.Version()) - 2*float64(u.uses)
	case "reward + 1 / (1 + since_use)":
		if u.lastUse == rollout.NoVersion {
			return float64(it.r.Reward)
		}
		return float64(it.r.Reward) + 1/(1+float64(m.version-u.lastUse))
	case "reward > 0.5 ? meta.none : tokens":
		if it.r.Reward > 0.5 {
			return math.NaN()
		}
		return float64(len(it.r.Tokens))
	case "version % 3 == 0 ? 0.5 : 0.2":
		return 0.2 + 0.3*is(m.version%3 == 0)
	case "0.5 - version / 40":
		return max(0, 0.5-float64(m.version)/40)
	}
	x := 0.0
	if n, err := fmt.Sscan(text, &x); n != 1 || err != nil {
		panic("the model was not told what " + text + " is")
	}
	return x
}

// weight is that of a unit in a source, 0 if it is not in it.
func (m *model) weight(s Source, u *modelUnit) float64 {
	sum := 0.0
	for _, it := range u.items {
		if s.Where != "" && m.told(u, it, s.Where) == 0 {
			return 0
		}
		if s.Weight == "" {
			sum++
		} else {
			sum += m.told(u, it, s.Weight)
		}
	}
	return max(0, sum/float64(len(u.items)))
}

// members is what a source of the table or of the reserved part holds.
func (m *model) members(s Source, shard int) []*modelUnit {
	return slices.DeleteFunc(m.eligible(shard), func(u *modelUnit) bool {
		return m.weight(s, u) == 0 || s.Pool == PoolReserved && !u.reserved
	})
}

// asks is how many units each source is to draw of a request.
func (m *model) asks(req rollout.Request) (asked []int) {
	left := (req.Size - req.Fresh) / m.each()
	for _, s := range m.o.composition() {
		n := s.Count / m.each()
		if s.Share != "" {
			share := m.told(nil, &modelItem{r: &rollout.Rollout{}}, string(s.Share))
			n = int(math.Round(share * float64(req.Size) / float64(m.each())))
		}
		n = min(n, left)
		left -= n
		asked = append(asked, n)
	}
	return asked
}

// waits tells whether a batch waits for a source that holds too little.
func (m *model) waits(req rollout.Request) bool {
	taken := req.Fresh / m.each()
	for i, n := range m.asks(req) {
		s := m.o.composition()[i]
		held := len(m.members(s, req.Shard))
		if s.Pool == PoolFresh {
			held = len(m.fresh(req.Shard)) - taken
			taken += n
		}
		if s.Wait && held < n {
			return true
		}
	}
	return false
}

// turns says which source each draw of a batch is of.
type turns struct {
	m     *model
	shard int
	asked []int
	given []int // units
	at    int   // the source
	begun bool  // whether it has begun
	began int   // units that the batch held then

	picked []*modelUnit   // of the request and the fresh sources, those included whose places others take
	fresh  [][]*modelUnit // by source, without those
	swaps  [][]swap       // by source, in the order of the prompts

	swapped []*modelUnit // whose places others take

	// Of a source of the prompts of the batch.
	prompts []string // that are left
	ofFirst int      // draws of the first of them
}

// swap is how many draws of a prompt take the places of fresh ones.
type swap struct {
	prompt string
	n      int
}

func (m *model) turnsOf(req rollout.Request) *turns {
	if m.o.Sampler.Consumes() {
		return &turns{m: m}
	}
	asked := m.asks(req)
	t := &turns{m: m, shard: req.Shard, asked: asked, given: make([]int, len(asked)),
		fresh: make([][]*modelUnit, len(asked)), swaps: make([][]swap, len(asked))}
	waiting := m.fresh(req.Shard)
	t.picked = slices.Clone(waiting[:req.Fresh/m.each()])
	waiting = waiting[len(t.picked):]
	for _, u := range t.picked {
		u.shown = true
	}
	for i, s := range m.o.composition() {
		if s.Pool != PoolFresh {
			continue
		}
		n := min(t.asked[i], len(waiting))
		for _, u := range waiting[:n] {
			if u.shown = true; m.weight(s, u) > 0 {
				t.fresh[i] = append(t.fresh[i], u)
			}
		}
		waiting = waiting[n:]
		t.picked = append(t.picked, t.fresh[i]...)
		t.backfill(i, t.asked[i]-len(t.fresh[i]))
	}
	for i, s := range m.o.composition() {
		if s.Replace {
			t.swap(i, s)
		}
	}
	return t
}

func (t *turns) backfill(i, n int) {
	for k, other := range t.m.o.composition() {
		if k > i && other.Name == t.m.o.composition()[i].Backfill {
			t.asked[k] += n
		}
	}
}

// swap takes out the fresh ones whose places a source takes.
func (t *turns) swap(i int, s Source) {
	mates := make(map[string][]*modelUnit)
	for _, of := range t.fresh {
		for _, u := range of {
			prompt := u.items[0].r.PromptID
			if mates[prompt] == nil {
				t.swaps[i] = append(t.swaps[i], swap{prompt: prompt})
			}
			mates[prompt] = append(mates[prompt], u)
		}
	}
	for k := range t.swaps[i] {
		x := &t.swaps[i][k]
		if old := mates[x.prompt]; t.m.meet(s, old) {
			x.n = min(len(old), s.PerPrompt, len(t.ofPrompt(s, x.prompt, t.picked)))
			t.swapped = append(t.swapped, old[:x.n]...)
			for f := range t.fresh {
				t.fresh[f] = slices.DeleteFunc(t.fresh[f], func(u *modelUnit) bool { return slices.Contains(old[:x.n], u) })
			}
		}
	}
}

// meet tells whether the fresh ones of a prompt have a source draw of it.
func (m *model) meet(s Source, mates []*modelUnit) bool {
	return s.FreshWhere == "" || !slices.ContainsFunc(mates, func(u *modelUnit) bool {
		return m.told(u, u.items[0], s.FreshWhere) == 0
	})
}

// ofPrompt is what a source may draw of a prompt beside what the batch holds, in its order.
func (t *turns) ofPrompt(s Source, prompt string, batch []*modelUnit) []*modelUnit {
	m := t.m
	c := slices.DeleteFunc(m.eligible(t.shard), func(u *modelUnit) bool {
		return u.items[0].r.PromptID != prompt || !u.shown || slices.Contains(batch, u) ||
			slices.Contains(t.swapped, u) || m.weight(s, u) == 0
	})
	if s.Order != "" {
		slices.SortFunc(c, func(a, b *modelUnit) int {
			return cmp.Or(cmp.Compare(m.told(b, b.items[0], s.Order), m.told(a, a.items[0], s.Order)),
				cmp.Compare(b.items[0].id, a.items[0].id))
		})
	}
	return c
}

// next returns what the next draw may fall on and with which probability, nil if it is the sampler's.
func (t *turns) next(drawn []*modelUnit, isFresh []bool) (c []*modelUnit, of func(u *modelUnit) float64, fresh bool) {
	for ; t.at < len(t.asked); t.at, t.begun = t.at+1, false {
		s := t.m.o.composition()[t.at]
		if !t.begun {
			t.begin(s, drawn, isFresh)
		}
		if t.given[t.at] < t.asked[t.at] || s.Replace {
			if c, of, fresh = t.candidates(s, drawn, isFresh); len(c) > 0 {
				t.given[t.at]++
				return c, of, fresh
			}
		}
		if s.Pool != PoolFresh {
			t.backfill(t.at, t.asked[t.at]-t.given[t.at])
		}
	}
	return nil, nil, false
}

func (t *turns) begin(s Source, drawn []*modelUnit, isFresh []bool) {
	t.begun, t.began, t.prompts, t.ofFirst = true, len(drawn), nil, 0
	for _, x := range t.swaps[t.at] {
		t.prompts = append(t.prompts, x.prompt)
	}
	for i, u := range drawn {
		if prompt := u.items[0].r.PromptID; isFresh[i] && !s.Replace && !slices.Contains(t.prompts, prompt) {
			t.prompts = append(t.prompts, prompt)
		}
	}
}

func (t *turns) candidates(s Source, drawn []*modelUnit, isFresh []bool) ([]*modelUnit, func(*modelUnit) float64,
	bool) {
	if s.Pool == PoolFresh {
		left := t.fresh[t.at][t.given[t.at]:]
		return left[:min(1, len(left))], func(*modelUnit) float64 { return 1 }, true
	}
	if s.Pool == PoolPrompts {
		return t.ofThePrompts(s, drawn, isFresh)
	}
	total := 0.0
	c := slices.DeleteFunc(t.m.members(s, t.shard), func(u *modelUnit) bool {
		same := 0
		for _, other := range drawn[t.began:] {
			if other.items[0].r.PromptID == u.items[0].r.PromptID {
				same++
			}
		}
		return slices.Contains(drawn, u) || s.PerPrompt > 0 && same >= s.PerPrompt
	})
	for _, u := range c {
		total += t.m.weight(s, u)
	}
	return c, func(u *modelUnit) float64 { return t.m.weight(s, u) / total }, false
}

// ofThePrompts goes from one prompt to the next when it has drawn of it what it may.
func (t *turns) ofThePrompts(s Source, drawn []*modelUnit, isFresh []bool) ([]*modelUnit, func(*modelUnit) float64,
	bool) {
	for ; len(t.prompts) > 0; t.prompts, t.ofFirst = t.prompts[1:], 0 {
		prompt, most, batch := t.prompts[0], s.PerPrompt, drawn
		if s.Replace {
			x := t.swaps[t.at]
			most, batch = x[len(x)-len(t.prompts)].n, slices.Concat(drawn, t.picked)
		} else {
			var mates []*modelUnit
			for i, u := range drawn {
				if isFresh[i] && u.items[0].r.PromptID == prompt {
					mates = append(mates, u)
				}
			}
			if !t.m.meet(s, mates) {
				continue
			}
		}
		c := t.ofPrompt(s, prompt, batch)
		if len(c) == 0 || (s.PerPrompt > 0 || s.Replace) && t.ofFirst >= most {
			continue
		}
		t.ofFirst++
		if s.Order != "" {
			c = c[:1]
		}
		return c, func(*modelUnit) float64 { return 1 / float64(len(c)) }, false
	}
	return nil, nil, false
}

// check lets the last sources end, and compares what each gave with what the batch says.
func (t *turns) check(b *rollout.Batch, drawn []*modelUnit, isFresh []bool) string {
	if c, _, _ := t.next(drawn, isFresh); c != nil {
		return "a source drew less than it should"
	}
	var want []int
	for _, n := range t.given[len(t.given)-min(len(t.given), len(t.m.o.Sources)):] {
		want = append(want, n*t.m.each())
	}
	if !slices.Equal(b.SourceCounts, want) {
		return fmt.Sprintf("the sources gave %v, the batch says %v", want, b.SourceCounts)
	}
	return ""
}

func TestASourceThatCannotWorkIsRefusedByItsKeys(t *testing.T) {
	of := func(s ...Source) Options { return Options{Capacity: 64, Sources: s} }
	a, one := Source{Name: "a", Share: "0.5"}, Source{Name: "a", Count: 2, PerPrompt: 1}
	three := Source{Name: "a", Count: 3}
	with := func(change func(s *Source)) Options {
		s := a
		change(&s)
		return of(s)
	}
	kept := of(a)
	kept.Retention, kept.PositiveFraction, kept.PositiveShare = KeepPositive, 0.5, 0.5
	for want, o := range map[string]Options{
		`sources[0].name: "": want a name`:                                   of(Source{Share: "0.5"}),
		`sources[1].name: a: want one that no source before it has`:          of(a, a),
		`sources[1].share: 0.6: want at most 0.5, what the shares before it`: of(a, Source{Name: "b", Share: "0.6"}),
		`sources[1].pool: fresh: want another pool behind source a of pool table: put all`: of(a,
			Source{Name: "b", Share: "0.1", Pool: PoolFresh}),
		`sources[0].pool: stale: want table, fresh, reserved or prompts`:     with(func(s *Source) { s.Pool = "stale" }),
		`sources[0].pool: reserved: want table, fresh or prompts with posi`:  with(func(s *Source) { s.Pool = PoolReserved }),
		`sources[0].share: 1.5: want 0 to 1`:                                 with(func(s *Source) { s.Share = "1.5" }),
		`sources[0].share: -0.5: want 0 to 1`:                                with(func(s *Source) { s.Share = "-0.5" }),
		`sources[0].share: age / 9: want a number from 0 to 1, or an expres`: with(func(s *Source) { s.Share = "age / 9" }),
		`sources[0].share: "": want a share or a count, or a source before`:  with(func(s *Source) { s.Share = "" }),
		`sources[0].share: 0.5: want none with count 3: give one of them`:    with(func(s *Source) { s.Count = 3 }),
		`sources[0].count: -1: want 0 (share decides) to`:                    with(func(s *Source) { s.Count = -1 }),
		`sources[0].where: rewrad > 0: want a condition: "rewrad`: with(func(s *Source) {
			s.Where = "rewrad > 0"
		}),
		`sources[0].where: reward: want a condition: "reward": reward is a`:  with(func(s *Source) { s.Where = "reward" }),
		`sources[0].weight: age > 1: want a number: "age > 1": age > 1 is t`: with(func(s *Source) { s.Weight = "age > 1" }),
		`sources[0].weight: reward: want none with pool fresh`: with(func(s *Source) {
			s.Weight, s.Pool = "reward", PoolFresh
		}),
		`sources[0].per_prompt: 1: want 0 with pool fresh`:    with(func(s *Source) { s.PerPrompt, s.Pool = 1, PoolFresh }),
		`sources[0].per_prompt: -1: want 0 (no limit) to`:     with(func(s *Source) { s.PerPrompt = -1 }),
		`sources[0].backfill: b: want the name of a source a`: with(func(s *Source) { s.Backfill = "b" }),
		`sources[0].backfill: a: want the name of a source a`: with(func(s *Source) { s.Backfill = "a" }),
		`sources[0].per_prompt: 1: want 0 with unit group`:    {Unit: UnitGroup, GroupSize: 2, Sources: of(one).Sources},
		`sources[0].count: 3: want a multiple of group_size 2`: {Unit: UnitGroup, GroupSize: 2,
			Sources: of(three).Sources},
		`sources[0].order: -age: want none with pool table`: with(func(s *Source) { s.Order = "-age" }),
		`sources[0].order: age > 1: want a number: "age > 1": a`: with(func(s *Source) {
			s.Pool, s.Order = PoolPrompts, "age > 1"
		}),
		`sources[0].fresh_where: age < 1: want none with pool ta`: with(func(s *Source) { s.FreshWhere = "age < 1" }),
		`sources[0].fresh_where: age: want a condition: "age": a`: with(func(s *Source) {
			s.Pool, s.FreshWhere = PoolPrompts, "age"
		}),
		`sources[0].weight: reward: want none with pool prompts`: with(func(s *Source) {
			s.Pool, s.Weight = PoolPrompts, "reward"
		}),
		`sources[0].wait: true: want false with pool prompts, whi`: with(func(s *Source) {
			s.Pool, s.Wait = PoolPrompts, true
		}),
		`sources[0].replace: true: want false with pool table`:     with(func(s *Source) { s.Replace = true }),
		`sources[0].replace: true: want false but directly behind`: of(Source{Name: "a", Pool: PoolPrompts, Replace: true}),
		`sources[1].replace: true: want false with a share, a cou`: of(Source{Name: "a", Pool: PoolFresh, Share: "0.5"},
			Source{Name: "b", Pool: PoolPrompts, Share: "0.1", Replace: true}),
		`sources[0].pool: prompts: want another with unit group`: {Unit: UnitGroup, GroupSize: 2,
			Sources: []Source{{Name: "a", Pool: PoolPrompts, Count: 2}}},
		`sources: 1: want none with sampler prioritized`: {Sampler: Prioritized, Sources: of(a).Sources},
		`sources: 1: want none with sampler fifo`:        {Sampler: FIFO, Sources: of(a).Sources},
		`positive_share: 0.5: want 0 with sources`:       kept,
		`sources: 17: want at most 16`:                   of(make([]Source, 17)...),
	} {
		if _, err := New(o); err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want only %s", err, want)
		}
	}
}

func TestADrawOverPartsIsRefusedWhereEachNeedsToKnowTheOthers(t *testing.T) {
	for want, o := range map[string]Options{
		"sources is set: draw from one part at a time": {Sources: []Source{{Name: "a", Share: "0.5"}}},
		"positive_share is set: draw from one part":    {Retention: KeepPositive, PositiveFraction: 0.5, PositiveShare: 1},
		"draw_advantage is set: draw from one part":    {DrawAdvantage: AdvantageRegrouped},
		"order is set: draw from one part at a time":   {Sampler: Ordered},
	} {
		_, err := parted.Divide(rollout.Stream(1, "test", 0), mustNew(t, o).Options().DrawRule(),
			[]parted.Totals{{Units: 3}, {Units: 3}}, 3, 0)
		if !errors.Is(err, rollout.ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestABatchWaitsForASourceThatSaysSo(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, Sources: []Source{
		{Name: "right", Share: "0.5", Where: "reward >= 1", Wait: true}}})
	mustInsert(t, table, group(0, 0, 0), group(0, 1, 0))
	_, err := table.Sample(ctx, rollout.Request{Size: 4})
	if !errors.Is(err, rollout.ErrStarved) || !strings.Contains(err.Error(), "sampling 2 of source right from the table, "+
		"which holds 1 where reward >= 1: insert such rollouts, or do not wait for it") {
		t.Fatalf("got %v", err)
	}
	mustInsert(t, table, group(0, 1))
	b := mustSample(t, table, rollout.Request{Size: 4})
	if got := drawnIDs(b)[:2]; !slices.Contains(got, 3) || !slices.Contains(got, 5) || b.SourceCounts[0] != 2 {
		t.Errorf("drew %v, the sources gave %v", drawnIDs(b), b.SourceCounts)
	}
}

func TestOldRolloutsJoinTheFreshOnesOfTheirPromptInTheGivenOrder(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, DrawAdvantage: AdvantageSplit, Advantage: "no_std", Sources: []Source{
		{Name: "fresh", Pool: PoolFresh, Count: 2, Wait: true},
		{Name: "old", Pool: PoolPrompts, Count: 4, Where: "reward > 0", Order: "reward", PerPrompt: 3}}})
	mustInsert(t, table, promptGroup("a", 3, 1, 2, 0))
	first := mustSample(t, table, rollout.Request{Size: 4}) // 3 and 4 are still to come as fresh
	if !slices.Equal(drawnIDs(first)[:2], []rollout.ID{1, 2}) || !slices.Equal(first.SourceCounts, []int{2, 0}) {
		t.Errorf("drew %v, the sources gave %v", drawnIDs(first), first.SourceCounts)
	}
	mustInsert(t, table, promptGroup("b", 9))
	b := mustSample(t, table, rollout.Request{Size: 4})
	if got := drawnIDs(b); !slices.Equal(got, []rollout.ID{3, 4, 1, 2}) || !slices.Equal(b.SourceCounts, []int{2, 2}) {
		t.Errorf("drew %v, the sources gave %v", got, b.SourceCounts)
	}
	for i, want := range []float32{1, -1, 1, -1} { // fresh 2 and 0, replayed 3 and 1, each about its own mean
		if b.Draws[i].Advantage != want || b.Draws[i].Fresh != (i < 2) {
			t.Errorf("draw %d is %+v, want advantage %v", i, b.Draws[i], want)
		}
	}
}

func TestAFreshRolloutWhosePlaceIsTakenIsPassedOver(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, MaxUses: 2, Sources: []Source{
		{Name: "fresh", Pool: PoolFresh, Share: "1", Wait: true},
		{Name: "kept", Pool: PoolPrompts, Where: "reward > 0", FreshWhere: "group_mean == 0", PerPrompt: 1, Replace: true}}})
	for i, want := range [][]rollout.ID{{1, 2}, {4, 1}, {5, 6}} { // by then 1 has had its two uses
		reward := float32(1 - min(i, 1))
		mustInsert(t, table, promptGroup("a", reward, 0))
		b := mustSample(t, table, rollout.Request{Size: 2})
		if got := drawnIDs(b); !slices.Equal(got, want) {
			t.Errorf("batch %d drew %v, want %v", i, got, want)
		}
		if got := b.SourceCounts; !slices.Equal(got, []int{2 - i%2, i % 2}) {
			t.Errorf("batch %d: the sources gave %v", i, got)
		}
	}
	if s := statsOf(table); s.Present != 5 || s.UsesPresent.Bins()[0].Count != 1 {
		t.Errorf("%d are there, uses %v: want all but the first, and the third without a use", s.Present,
			s.UsesPresent.Bins())
	}
}

// Nor does another source of the fresh prompts draw it for the same batch, with replace or beside the fresh ones.
func TestWhatIsPassedOverComesBackByNoOtherSourceOfItsPrompt(t *testing.T) {
	fresh := Source{Name: "fresh", Pool: PoolFresh, Count: 2}
	right := Source{Name: "a", Pool: PoolPrompts, Where: "reward >= 1", PerPrompt: 1, Replace: true}
	for _, wrong := range []Source{
		{Name: "b", Pool: PoolPrompts, Where: "reward == 0", Order: "version", Replace: true},
		{Name: "b", Pool: PoolPrompts, Where: "reward == 0", Order: "-uses", Count: 1},
	} {
		table := mustNew(t, Options{Capacity: 64, Sources: []Source{fresh, right, wrong}})
		mustInsert(t, table, promptGroup("a", 1, 0))
		mustSample(t, table, rollout.Request{Size: 2})
		mustInsert(t, table, promptGroup("a", 0, 0)) // 1 takes the place of 3
		b := mustSample(t, table, rollout.Request{Size: 2 + wrong.Count})
		if got := drawnIDs(b); slices.Contains(got, 3) || !slices.Contains(got, 1) || !slices.Contains(got, 2) {
			t.Errorf("replace %v: drew %v, want 1, 2 and not 3", wrong.Replace, got)
		}
	}
}

// What no insertion can help is no reason to wait.
func TestABatchThatCanNeverBeFilledIsRefusedAtOnce(t *testing.T) {
	right := Source{Name: "right", Share: "0.5", Where: "reward >= 1", Wait: true}
	for want, c := range map[string]struct {
		o    Options
		size int
	}{
		"size is 1000: ask for at most the shard's capacity 8": {Options{Capacity: 8, Sources: []Source{right}}, 1000},
		"sources: right: a batch of 20 waits for 10 rollouts of it, and it can hold 8": {
			Options{Capacity: 8, Sampler: Uniform, Sources: []Source{right}}, 20},
		"sources: kept: a batch of 8 waits for 6 rollouts of it, and it can hold 4": {
			Options{Capacity: 8, Retention: KeepPositive, PositiveFraction: 0.5,
				Sources: []Source{{Name: "kept", Pool: PoolReserved, Count: 6, Wait: true}}}, 8},
	} {
		table := mustNew(t, c.o)
		mustInsert(t, table, group(0, 1, 0))
		_, err := table.Sample(ctx, rollout.Request{Size: c.size})
		if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A trainer that goes back makes last uses earlier, and its versions come again.
func TestASourceByTimeSinceUseFollowsARewind(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Sources: []Source{{Name: "rested", Count: 1, Where: "since_use >= 2",
		Wait: true}}})
	mustInsert(t, table, group(0, 1))
	at := func(v rollout.Version, set func(context.Context, rollout.Version) error) {
		t.Helper()
		if err := set(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	at(10, table.Advance)
	mustSample(t, table, rollout.Request{Size: 1})
	at(8, table.Rewind)
	at(10, table.Advance)
	if b := mustSample(t, table, rollout.Request{Size: 1}); b.SourceCounts[0] != 1 {
		t.Errorf("the sources gave %v", b.SourceCounts)
	}
}

func TestAShareThatIsNotANumberRefusesTheBatch(t *testing.T) {
	table := mustNew(t, Options{Capacity: 64, Sources: []Source{{Name: "old", Share: "sqrt(3 - version)"}}})
	mustInsert(t, table, group(0, 0, 1, 2, 3))
	for version, want := range []int{4, 4, 4, 0} { // what is above 1 counts as 1
		if err := table.Advance(ctx, rollout.Version(version)); err != nil {
			t.Fatal(err)
		}
		if b := mustSample(t, table, rollout.Request{Size: 4}); b.SourceCounts[0] != want {
			t.Errorf("at version %d it gave %v, want %d", version, b.SourceCounts, want)
		}
	}
	if err := table.Advance(ctx, 4); err != nil {
		t.Fatal(err)
	}
	_, err := table.Sample(ctx, rollout.Request{Size: 4})
	if !errors.Is(err, rollout.ErrInvalid) || !strings.Contains(err.Error(), "sources: old: share: sqrt(3 - version) is "+
		"not a number at version 4") {
		t.Errorf("got %v", err)
	}
}

// The draws of positive_share, which is a source, and of requests with fresh draws are those of earlier versions.
func TestDrawsOfPositiveShareAndFreshAreThoseOfBeforeSources(t *testing.T) {
	table := mustNew(t, Options{Capacity: 60, Retention: KeepPositive, PositiveFraction: 0.5, PositiveShare: 0.4, Seed: 5})
	random, hash := rollout.Stream(5, "test", 0), fnv.New64a()
	for range 300 {
		mustInsert(t, table, someGroup(random, 1+random.IntN(3), 0))
		if table.present() < 12 {
			continue
		}
		for _, id := range drawnIDs(mustSample(t, table, rollout.Request{Size: 10, Fresh: random.IntN(2)})) {
			hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(id)))
		}
	}
	if got, want := hash.Sum64(), uint64(0x8ba54ae98b40cdd1); got != want {
		t.Errorf("the draws have hash %#x, want %#x", got, want)
	}
}

// A prompt's rollouts are of several groups, among those of others, and some have left.
func TestASourceGivesABatchNoMoreOfAPromptThanItsCap(t *testing.T) {
	const prompts, each = 12, 8
	for _, most := range []int{1, 2} {
		table := mustNew(t, Options{Capacity: prompts * each * 3 / 4, Seed: 3,
			Sources: []Source{{Name: "a", Share: "1", PerPrompt: most}}})
		for range each / 2 {
			for i := range prompts {
				g := group(0, 1)
				for _, r := range g.Rollouts {
					r.PromptID = fmt.Sprint("prompt ", i)
				}
				mustInsert(t, table, g)
			}
		}
		for range 20 {
			given := make(map[string]int)
			for _, d := range mustSample(t, table, rollout.Request{Size: prompts * most}).Draws {
				given[d.Rollout.PromptID]++
			}
			for prompt, n := range given {
				if n != most || len(given) != prompts {
					t.Fatalf("a batch has %d rollouts of %s, want %d of each of %d prompts", n, prompt, most, prompts)
				}
			}
		}
	}
}

func BenchmarkSources(b *testing.B) {
	for _, n := range []int{50_000, 1_000_000} {
		var baseline float64
		for _, c := range []struct {
			name    string
			sources []Source
		}{
			{"baseline=plain", nil},
			{"where", []Source{{Name: "a", Share: "1", Where: "reward >= 1"}}},
			{"weight", []Source{{Name: "a", Share: "1", Weight: "abs(advantage) + 0.1"}}},
			{"uses", []Source{{Name: "a", Share: "1", Where: "uses < 1000"}}},
			{"per_prompt=1", []Source{{Name: "a", Share: "1", PerPrompt: 1}}},
			{"three", []Source{{Name: "a", Share: "0.5 - version / 400", Where: "reward >= 1", PerPrompt: 2, Backfill: "b"},
				{Name: "b", Share: "0.3", Weight: "abs(advantage)"}}},
			{"age,each=version", []Source{{Name: "a", Share: "1", Where: "age < 1000000"}}},
		} {
			table := mustNew(b, Options{Capacity: n, Seed: 1, Sources: c.sources})
			for i, g := range groupsOf(n/benchGroup, 12, 4, rollout.Stream(1, "bench", 0)) {
				for _, r := range g.Rollouts {
					r.PromptID = fmt.Sprint("prompt ", i)
				}
				mustInsert(b, table, g)
			}
			b.Run(fmt.Sprintf("rollouts=%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				mustSample(b, table, rollout.Request{Size: benchBatch}) // weighs all
				for b.Loop() {
					if strings.HasSuffix(c.name, "each=version") {
						if err := table.Advance(ctx, table.Version()+1); err != nil {
							b.Fatal(err)
						}
					}
					mustSample(b, table, rollout.Request{Size: benchBatch})
				}
				if ns := perRollout(b, benchBatch, baseline); baseline == 0 {
					baseline = ns
				}
			})
		}
	}
}
