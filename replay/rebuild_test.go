package replay

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// whole is a recovery of a table of eight rollouts, some of them used.
func whole(t *testing.T, o Options) Recovered {
	t.Helper()
	table, random := mustNew(t, o), rollout.Stream(1, "test", 0)
	table.Durable().Track()
	if err := table.Advance(ctx, 3); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := table.Server().InsertOnce(ctx, fmt.Sprint("batch ", i), someGroup(random, 2, 3)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := table.Sample(ctx, rollout.Request{Size: 4}); err != nil {
			t.Fatal(err)
		}
	}
	var l ledger
	l.apply(t, table.Durable().Cut())
	return l.recovered(t)
}

// What no table can have held is refused, and the refusal names it.
func TestWhatDoesNotFitTogetherIsRefused(t *testing.T) {
	o := Options{Capacity: 10, MaxUses: 10}
	for want, change := range map[string]func(r *Recovered){
		"its state is missing":               func(r *Recovered) { r.State = nil },
		"seed is 7 in the snapshot and none": func(r *Recovered) { r.State.Identity = Options{Seed: 7}.identity() },
		"its state has 2 shards":             func(r *Recovered) { r.State.Shards = append(r.State.Shards, shardState{}) },
		"3 insertions are remembered":        func(r *Recovered) { r.Requests = r.Requests[1:] },
		"is remembered, of 8 given":          func(r *Recovered) { r.Requests[0].First = 8 },
		"of ids 5 to 9223372036854775811":    func(r *Recovered) { r.Requests[1] = Insertion{"batch 1", 5, math.MaxInt64} },
		"to 1 is remembered, of 8 given":     func(r *Recovered) { r.Requests[1] = Insertion{"batch 1", math.MaxUint64, 3} },
		"it holds 7 rollouts, its state":     func(r *Recovered) { r.Stored = r.Stored[1:] },
		"is there twice":                     func(r *Recovered) { r.Stored[1] = r.Stored[0] },
		"rollout 99 is none of the 8":        func(r *Recovered) { r.Stored[0].ID = 99 },
		"has no content":                     func(r *Recovered) { r.Stored[0].Rollout = nil },
		"has 10 uses, max_uses is 10":        func(r *Recovered) { r.Stored[0].Uses = 10 },
		"the table is at 1":                  func(r *Recovered) { r.State.Version = 1 },
		"was used at version 4":              func(r *Recovered) { r.Stored[0].LastUse = 4 },
		"is of group 9 of 4":                 func(r *Recovered) { r.Stored[0].Group = 9 },
		"has marks 11000000":                 func(r *Recovered) { r.Stored[0].Marks = 0b11000000 },
		"is reserved as correct with":        func(r *Recovered) { r.Stored[0].Marks |= MarkReserved },
		"come to 13, its state says 12":      func(r *Recovered) { r.Stored[0].Uses++ },
	} {
		r := whole(t, o)
		change(&r)
		table := mustNew(t, o)
		_, err := table.Durable().Rebuild(r)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("got %v, want %s", err, want)
		}
		if table.present() != 0 || table.Version() != 0 {
			t.Errorf("%s: the table holds %d at version %d", want, table.present(), table.Version())
		}
	}
	r := whole(t, o)
	used := mustNew(t, o)
	if err := used.Advance(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := used.Durable().Rebuild(r); err == nil {
		t.Error("a table that was used before was rebuilt")
	}
}
