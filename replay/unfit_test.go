package replay

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// untouched is a recovery of a table at version 5 with eight rollouts of versions 2 to 5, none of them used.
func untouched(t *testing.T, o Options) Recovered {
	t.Helper()
	table := mustNew(t, o)
	table.Durable().Track()
	if err := table.Advance(ctx, 5); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		mustInsert(t, table, group(rollout.Version(2+i), 0, 1))
	}
	var l ledger
	l.apply(t, table.Durable().Cut())
	return l.recovered(t)
}

// What depends on the options is checked against the table's, though they are the same by name.
func TestWhatNoTableOfTheseOptionsCanHoldIsRefused(t *testing.T) {
	priority := Options{Sampler: Prioritized}
	positive := Options{Capacity: 16, Retention: KeepPositive, PositiveFraction: 0.25, CapacityBytes: 16 << 10}
	each := func(change func(k *Stored)) func(r *Recovered) {
		return func(r *Recovered) {
			for i := range r.Stored {
				change(&r.Stored[i])
			}
		}
	}
	for _, c := range []struct {
		name   string
		o      Options
		want   string
		change func(r *Recovered)
	}{
		{"a shard of another", Options{Shards: 2}, "in shard 1 of 2", each(func(k *Stored) { k.Shard = 1 })},
		{"a shard that is none", Options{Shards: 2}, "in shard 7 of 2", each(func(k *Stored) { k.Shard = 7 })},
		{"a used one in a queue", Options{Sampler: FIFO}, "has 1 uses", each(func(k *Stored) { k.Uses = 1 })},
		{"uses below 0", Options{}, "has -1 uses", each(func(k *Stored) { k.Uses = -1 })},
		{"a use before all", Options{}, "was used at version -2", each(func(k *Stored) { k.LastUse = -2 })},
		{"a priority of 0", priority, "has priority 0", each(func(k *Stored) { k.Base = 0 })},
		{"a priority that is none", priority, "has priority NaN", each(func(k *Stored) { k.Base = math.NaN() })},
		{"an infinite priority", priority, "has priority +Inf", each(func(k *Stored) { k.Base = math.Inf(1) })},
		{"one that is too old", Options{MaxStaleness: 3}, "is of version 1, max_staleness 3", func(r *Recovered) {
			r.Stored[0].Rollout = group(1, 1).Rollouts[0]
		}},
		{"a version below 0", Options{}, "has tokens of versions -4", func(r *Recovered) { r.Stored[0].Rollout = group(-4, 1).Rollouts[0] }},
		{"half a group", Options{Unit: UnitGroup, GroupSize: 2}, "has 1 rollouts, group_size is 2", func(r *Recovered) {
			r.Stored = r.Stored[:0:0]
			r.Stored = append(r.Stored, Stored{Usage: Usage{ID: 1, LastUse: rollout.NoVersion}, Group: 1, Rollout: group(2, 1).Rollouts[0]})
		}},
		{"more kept than are set aside", positive, "more than its capacity", each(func(k *Stored) { k.Marks |= MarkReserved })},
		{"acknowledgements nobody made", Options{}, "its state says 3", func(r *Recovered) { r.State.Shards[0].Counts.Acknowledged = 3 }},
	} {
		r := untouched(t, c.o)
		c.change(&r)
		table := mustNew(t, c.o)
		if _, err := table.Durable().Rebuild(r); err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if table.present() != 0 || table.Version() != 0 {
			t.Errorf("%s: the table holds %d at version %d", c.name, table.present(), table.Version())
		}
	}
	for _, o := range []Options{{Shards: 2}, {Sampler: FIFO}, {MaxStaleness: 3}, {Unit: UnitGroup, GroupSize: 2}, priority, positive} { // unchanged they fit
		if _, err := mustNew(t, o).Durable().Rebuild(untouched(t, o)); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Capacities are checked as what they bound, count and bytes, recent and kept.
func TestMoreThanTheCapacityIsRefused(t *testing.T) {
	bytes := group(2, 1).Rollouts[0].Bytes()
	for name, c := range map[string]struct{ had, has Options }{
		"rollouts":       {Options{Capacity: 8}, Options{Capacity: 7}},
		"in a queue":     {Options{Capacity: 8, Sampler: FIFO}, Options{Capacity: 7, Sampler: FIFO}},
		"bytes":          {Options{CapacityBytes: 8 * bytes}, Options{CapacityBytes: 8*bytes - 1}},
		"bytes in queue": {Options{CapacityBytes: 8 * bytes, Sampler: FIFO}, Options{CapacityBytes: 8*bytes - 1, Sampler: FIFO}},
	} {
		r := untouched(t, c.had)
		r.State.Identity = mustNew(t, c.has).options.identity()
		if _, err := mustNew(t, c.has).Durable().Rebuild(r); err == nil || !strings.Contains(err.Error(), "more than its capacity") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
