package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// rehearsal is a generator and the trainers of a table's shards, without waits or a clock.
type rehearsal struct {
	t        testing.TB
	table    *table
	pending  []*insertion // granted and not inserted
	drawn    []bool       // by shard, in this update
	inserted int
}

func rehearse(t testing.TB, s *Service, w wire.Table) *rehearsal {
	t.Helper()
	d, err := complete(w)
	if err != nil {
		t.Fatal(err)
	}
	store, err := replay.New(d.Options)
	if err != nil {
		t.Fatal(err)
	}
	r := &rehearsal{t: t, table: s.newTable(d, store), drawn: make([]bool, d.Shards)}
	if err := r.table.loadJournaled(nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// generate starts and inserts groups until it would have to wait, or has inserted a few that no gate bounds.
func (r *rehearsal) generate() (moved bool) {
	ctx, size := context.Background(), max(r.table.GroupSize, 1)
	for range 64 {
		if len(r.pending) == 0 {
			v := r.table.version()
			number, n, err := r.table.gate.Load().Start(r.table.now(), 1, size, v, r.table.room(size))
			if err != nil || n == 0 {
				return moved
			}
			r.pending = []*insertion{{InsertRequest: wire.InsertRequest{Grant: number},
				groups: []rollout.Group{group(size, v)}, rows: size, items: size}}
			for _, x := range r.pending[0].groups[0].Rollouts {
				x.PromptID = fmt.Sprint(r.inserted) // kept_per_prompt leaves most of other prompts
			}
		}
		if _, err := r.table.tryInsert(ctx, r.pending[0]); err != nil {
			if !errors.Is(err, rollout.ErrFull) {
				r.t.Fatal(err)
			}
			return moved
		}
		r.pending, moved, r.inserted = nil, true, r.inserted+size
		if r.table.Gate == nil && r.table.limiter == nil && r.inserted%(3*size) == 0 {
			return moved
		}
	}
	return moved
}

// train draws a batch of every shard and then advances. It returns an error that no wait mends.
func (r *rehearsal) train(batch int) (moved bool, err error) {
	req := drawRequest{Request: rollout.Request{Size: batch}, useAtDraw: true}
	left := 0
	for req.Shard = range r.drawn {
		if r.drawn[req.Shard] {
			continue
		}
		_, err := r.table.tryDraw(context.Background(), req, nil)
		if errors.Is(err, rollout.ErrStarved) {
			err = r.table.neverFilled(batch, err)
		}
		switch {
		case err == nil:
			r.drawn[req.Shard], moved = true, true
		case errors.Is(err, rollout.ErrStarved):
			left++
		default:
			return false, err
		}
	}
	if left == 0 {
		clear(r.drawn)
		return true, r.table.rollouts.Advance(context.Background(), r.table.version()+1)
	}
	return moved, nil
}

// run makes updates until nobody can do anything, or an update takes more turns than any needs.
func (r *rehearsal) run(batch, updates int) (made int, err error) {
	for still, turns := 0, 0; still < 3 && turns < 100 && made < updates; turns++ {
		moved := r.generate()
		trained, err := r.train(batch)
		if err != nil {
			return made, err
		}
		if still++; moved || trained { // a starved sample lets an insertion in, so one still turn is no end
			still = 0
		}
		if now := int(r.table.version()); now > made {
			made, turns = now, 0
		}
	}
	return made, nil
}

// maxMade runs a definition with every size of batch until one makes the given updates, and returns the most made.
func maxMade(t testing.TB, s *Service, w wire.Table, updates int) (most, batch int, err error) {
	for size := 1; size <= w.Capacity/w.Shards && most < updates; size++ {
		if made, e := rehearse(t, s, w).run(size, updates); made >= most {
			most, batch, err = made, size, e
		}
	}
	return most, batch, err
}

func pick[T any](random *rand.Rand, list ...T) T { return list[random.IntN(len(list))] }

// anyDefinition returns a definition of which some get stuck.
func anyDefinition(random *rand.Rand) wire.Table {
	w := wire.Table{Name: "a"}
	if w.Sampler = pick(random, replay.Samplers()...); w.Sampler == replay.Ordered {
		w.Cooldown = pick(random, 0, 1, 3, 50)
	}
	w.Shards = pick(random, 1, 1, 2)
	w.GroupSize = pick(random, 0, 1, 2, 3, 4, 8)
	share := max(w.GroupSize, 1) + random.IntN(16)
	w.Capacity = w.Shards * share
	w.MinSize = pick(random, 0, 0, 1, random.IntN(share+1), share)
	w.MaxStaleness = pick(random, 0, 0, 0, 1, 2, 5)
	if w.GroupSize > 0 && random.IntN(4) == 0 {
		w.Unit = replay.UnitGroup
	}
	if !w.Sampler.Consumes() {
		w.MaxUses = pick(random, 0, 0, 1, 2, 3)
	}
	if w.GroupSize > 0 && w.Unit != replay.UnitGroup && random.IntN(3) == 0 {
		if w.Select = 1 + random.IntN(w.GroupSize); !w.Sampler.Consumes() && random.IntN(2) == 0 {
			w.Select, w.KeptPerPrompt = 0, w.Select
		}
	}
	if random.IntN(2) == 0 {
		ratio := pick(random, 0.5, 0.75, 1, 1, 1.5, 2, 3)
		least := max(1, ratio*float64(max(w.GroupSize, 1)))
		w.Limiter = &wire.Limiter{SamplesPerInsert: ratio, ErrorBuffer: least + pick(random, 0, 0.5, 1, 4, 16)}
	}
	if random.IntN(3) > 0 {
		w.Gate = &wire.Gate{RolloutsPerUpdate: pick(random, 0.25, 0.5, 1, 1.5, 2, 3, 4, 8, 16),
			MaxStaleness: random.IntN(6)}
	}
	return w
}

// conservative reports whether a definition may be refused although it could go on: see [checkProgress].
func conservative(w wire.Table, why string) bool {
	ends := w.Sampler.Consumes() || w.MaxUses > 0
	return w.Cooldown > 0 ||
		w.Sampler.Consumes() && w.MaxStaleness > 0 && strings.Contains(why, "limiter.samples_per_insert") ||
		w.MaxUses > 0 && !w.Sampler.Consumes() && strings.Contains(why, "after ") ||
		ends && w.MaxStaleness > 0 && strings.Contains(why, "max_staleness: ")
}

func TestAttackDefinitionsThatPassGoOnAndThoseRefusedAreStuck(t *testing.T) {
	s, err := New(Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 10))
	t.Logf("seed %d", seed)
	passed, refused, named, definitions := 0, 0, 0, tests.Count(600, 150)
	for range definitions {
		w := anyDefinition(random)
		if w.Options.Validate() != nil {
			continue
		}
		problems := checkProgress(w)
		about := fmt.Sprintf("%+v limiter %+v gate %+v", w.Options.WithDefaults(), w.Limiter, w.Gate)
		if len(problems) == 0 {
			passed++
			if made, batch, err := maxMade(t, s, w, 300); made < 300 {
				t.Fatalf("stuck after %d updates of %d: %v\n%s", made, batch, err, about)
			}
			continue
		}
		refused++
		why := problems.Err().Error()
		if conservative(w, why) {
			named++
			continue
		}
		if made, batch, _ := maxMade(t, s, w, 1500); made == 1500 {
			t.Fatalf("batches of %d go on, and it was refused: %s\n%s", batch, why, about)
		}
	}
	t.Logf("%d passed, %d refused, %d of them conservatively", passed, refused, named)
	if passed < definitions/10 || refused < definitions/10 || named > refused*2/3 { // of 60 refused, 40%, within 6%
		t.Error("the definitions are no fair sample")
	}
}

func TestAttackDefinitionsThatDeadlockAreRefusedWithTheArithmetic(t *testing.T) {
	v := serve(t, Options{})
	for want, w := range map[string]wire.Table{
		"limiter.samples_per_insert: 0.5: want at least 1 with sampler fifo": {
			Options: replay.Options{Sampler: replay.FIFO, Capacity: 16},
			Limiter: &wire.Limiter{SamplesPerInsert: 0.5, ErrorBuffer: 8}},
		"gate.rollouts_per_update: 1: want at least 2: with limiter.samples_per_insert 0.5 each rollout is drawn 0.5": {
			Limiter: &wire.Limiter{SamplesPerInsert: 0.5, ErrorBuffer: 8}, Gate: &wire.Gate{RolloutsPerUpdate: 1}},
		"gate.rollouts_per_update: 0.5: want at least 1: with cooldown 3 each": {
			Options: replay.Options{Sampler: replay.Ordered, Cooldown: 3},
			Gate:    &wire.Gate{RolloutsPerUpdate: 0.5, MaxStaleness: 4}},
		"gate.rollouts_per_update: 2: want at least 4: with sampler fifo and 2 of each group of 8": {
			Options: replay.Options{Sampler: replay.FIFO, GroupSize: 8, Select: 2},
			Gate:    &wire.Gate{RolloutsPerUpdate: 2, MaxStaleness: 3}},
		"min_size, before which no update begins, in 4 whole groups of 8, of which select and kept_per_prompt leave 3": {
			Options: replay.Options{MinSize: 10, GroupSize: 8, KeptPerPrompt: 3},
			Gate:    &wire.Gate{RolloutsPerUpdate: 31}},
		"limiter.samples_per_insert: 0.2: want at least 0.25 with sampler fifo": {
			Options: replay.Options{Sampler: replay.FIFO, Capacity: 16, GroupSize: 8, Select: 2},
			Limiter: &wire.Limiter{SamplesPerInsert: 0.2, ErrorBuffer: 8}},
		"gate.rollouts_per_update: 0.5: want at least 1: with sampler lifo": {
			Options: replay.Options{Sampler: replay.LIFO}, Gate: &wire.Gate{RolloutsPerUpdate: 0.5, MaxStaleness: 4}},
		"gate.max_staleness: 0: want (max_staleness + 1) x rollouts_per_update, now 10, to reach the 10 rollouts of " +
			"min_size, before which no update begins, in 2 whole groups of 8": {
			Options: replay.Options{MinSize: 10, GroupSize: 8}, Gate: &wire.Gate{RolloutsPerUpdate: 10}},
		"max_staleness: 2: want (max_staleness + 1) x gate.rollouts_per_update, now 0.75, to keep 1": {
			Options: replay.Options{MaxStaleness: 2}, Gate: &wire.Gate{RolloutsPerUpdate: 0.25, MaxStaleness: 9}},
		"min_size: 10: want at most 8, the whole groups of group_size 8": {
			Options: replay.Options{Sampler: replay.FIFO, Capacity: 10, GroupSize: 8, MinSize: 10}},
		"limiter.error_buffer: 4: want at least 8 draws, the smallest batch": {
			Options: replay.Options{Unit: replay.UnitGroup, GroupSize: 8},
			Limiter: &wire.Limiter{SamplesPerInsert: 0.5, ErrorBuffer: 4}},
	} {
		w.Name = "a"
		_, err := try[any](v, wire.CreateTable, w)
		checkRefusal(t, err, wire.Invalid, want)
	}
}

// The batch is the trainer's: one that the gate never lets together is refused when it is asked for.
func TestAttackABatchThatTheGateNeverLetsTogetherIsRefused(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Limiter: &wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 64},
		Gate: &wire.Gate{RolloutsPerUpdate: 8, MaxStaleness: 1}})
	_, err := v.get(wire.SampleRequest{Table: "a", Size: 32})
	checkRefusal(t, err, wire.Invalid, "size is 32", "(max_staleness + 1) x rollouts_per_update = 16", "at most 16")
	_, err = v.get(wire.SampleRequest{Table: "a", Size: 16, TimeoutMS: ms(0)})
	checkRefusal(t, err, wire.Starved)

	v.create(wire.Table{Name: "s", Options: replay.Options{GroupSize: 8, Select: 2},
		Gate: &wire.Gate{RolloutsPerUpdate: 8, MaxStaleness: 1}})
	_, err = v.get(wire.SampleRequest{Table: "s", Size: 5})
	checkRefusal(t, err, wire.Invalid, "size is 5", "2 groups of 8, of which select and kept_per_prompt leave 2",
		"at most 4")

	v.create(wire.Table{Name: "q", Options: replay.Options{Sampler: replay.FIFO, Capacity: 10, GroupSize: 8}})
	v.fill("q", group(8, 0))
	_, err = v.get(wire.SampleRequest{Table: "q", Size: 9})
	checkRefusal(t, err, wire.Invalid, "holds 8 of 10, with no room for another group of 8: ask for at most 8")
}

// A journal of before may hold such a definition: its rollouts are not lost.
func TestAJournalWithADefinitionThatWouldBeRefusedTodayIsRead(t *testing.T) {
	text := `{"name":"a","sampler":"fifo","limiter":{"samples_per_insert":0.5,"error_buffer":8}}`
	if _, err := readDefinition([]byte(text)); err != nil {
		t.Error(err)
	}
}

func TestAttackColumnsOfATableAreBounded(t *testing.T) {
	v := serve(t, Options{})
	w := wire.Table{Name: "a"}
	for i := range 65 {
		w.Columns = append(w.Columns, wire.Column{Name: fmt.Sprintf("x_%d", i), Type: "int8"})
	}
	_, err := try[any](v, wire.CreateTable, w)
	checkRefusal(t, err, wire.Invalid, "columns: 65: want at most 64")
	w.Columns = []wire.Column{{Name: "x_a", Type: "struct<" + strings.Repeat("a:int8,", 1000) + "b:int8>"}}
	_, err = try[any](v, wire.CreateTable, w)
	checkRefusal(t, err, wire.Invalid, "columns[0].type: 7014 characters: want at most 4096")
}
