package client_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// known is what a test knows of a rollout of a table in parts.
type known struct {
	id     uint64
	prompt string
	reward float32
}

// keptInParts inserts 24 groups of 2 of 12 prompts, and returns what it knows of them. Some rewards are alike.
func keptInParts(t *testing.T, w *client.PartedTable) (list []known) {
	t.Helper()
	random := rollout.Stream(1, "rollouts in parts", 0)
	for i := range 24 {
		g := named(fmt.Sprint("p", i%12), 2)
		for _, r := range g.Rollouts {
			r.Reward = float32(random.IntN(6)) / 3
		}
		ids, err := w.Insert(t.Context(), g)
		mustNot(t, err)
		for k, id := range ids {
			list = append(list, known{uint64(id), g.Rollouts[k].PromptID, g.Rollouts[k].Reward})
		}
	}
	return list
}

// before compares two rollouts by their place in a list that is ordered by a number.
func (k known) before(other known, by func(known) float64) int {
	a, b := by(k), by(other)
	switch {
	case math.IsNaN(a) != math.IsNaN(b):
		return map[bool]int{true: 1, false: -1}[math.IsNaN(a)]
	case !math.IsNaN(a) && a != b:
		return cmp.Compare(b, a)
	}
	partA, idA := parted.Cut(k.id)
	partB, idB := parted.Cut(other.id)
	return cmp.Or(cmp.Compare(idB, idA), cmp.Compare(partA, partB))
}

func TestRolloutsOfPartsAreListedAsThoseOfOneTable(t *testing.T) {
	t.Parallel()
	_, _, w := inParts(t, 3, wire.Table{Options: replay.Options{Capacity: 300}}, client.AllOptions{})
	all := keptInParts(t, w)
	parts := make(map[int]bool)
	for _, k := range all {
		part, _ := parted.Cut(k.id)
		parts[part] = true
	}
	if len(parts) != 3 {
		t.Fatalf("the rollouts are in parts %v, want 3", parts)
	}
	for _, c := range []struct {
		where, order string
		holds        func(known) bool
		by           func(known) float64
	}{
		{"", "", func(known) bool { return true }, func(known) float64 { return 0 }},
		{"", "reward", func(known) bool { return true }, func(k known) float64 { return float64(k.reward) }},
		{"reward > 0.5", "-reward", func(k known) bool { return k.reward > 0.5 },
			func(k known) float64 { return -float64(k.reward) }},
		{"", "reward > 1 ? log(0 - 1) : reward", func(known) bool { return true }, func(k known) float64 {
			if k.reward > 1 {
				return math.NaN()
			}
			return float64(k.reward)
		}},
		{"reward < 0", "", func(k known) bool { return k.reward < 0 }, func(known) float64 { return 0 }},
	} {
		want := slices.DeleteFunc(slices.Clone(all), func(k known) bool { return !c.holds(k) })
		slices.SortFunc(want, func(a, b known) int { return a.before(b, c.by) })
		for skip := 0; skip <= len(want); skip += 7 {
			page, err := w.Rollouts(t.Context(), replay.Query{Where: c.where, Order: c.order, Skip: skip, Limit: 7})
			mustNot(t, err)
			var got, wanted []uint64
			for _, r := range page.Rows {
				got = append(got, uint64(r.ID))
			}
			for _, k := range want[skip:min(skip+7, len(want))] {
				wanted = append(wanted, k.id)
			}
			if page.Matched != len(want) || !slices.Equal(got, wanted) || len(page.Down) > 0 {
				t.Errorf("where %q order %q from %d: %d found, %v, want %d and %v", c.where, c.order, skip, page.Matched, got,
					len(want), wanted)
			}
		}
	}
	for want, q := range map[string]replay.Query{
		"ask for the first 1000": {Skip: 995, Limit: 6},
		"skip is -1":             {Skip: -1, Limit: 6},
		"limit is 1001":          {Limit: 1001},
		"use reward":             {Where: "rewrd > 0", Limit: 1},
	} {
		_, err := w.Rollouts(t.Context(), q)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v gave %v, want %q", q, err, want)
		}
	}
}

func TestARolloutOfAPartIsShownByTheTablesIds(t *testing.T) {
	t.Parallel()
	list, _, w := inParts(t, 3, wire.Table{Options: replay.Options{Capacity: 300, History: 100}},
		client.AllOptions{Options: client.Options{RetryFor: 200 * time.Millisecond}})
	all := keptInParts(t, w)
	_, err := w.Sample(t.Context(), rollout.Request{Size: 4})
	mustNot(t, err)
	last := all[len(all)-1]
	var drawn int
	for _, k := range all {
		shown, err := w.Rollout(t.Context(), rollout.ID(k.id))
		mustNot(t, err)
		part, _ := parted.Cut(k.id)
		inGroup := slices.ContainsFunc(shown.Mates, func(r browse.Row) bool { return uint64(r.ID) == k.id })
		if of, _ := parted.Cut(shown.Group); uint64(shown.ID) != k.id || of != part || len(shown.Mates) != 2 || !inGroup {
			t.Fatalf("rollout %d is shown as %d of group %d with %+v", k.id, shown.ID, shown.Group, shown.Mates)
		}
		if n := len(shown.Others.Rows); n != 2 || shown.Others.Rows[0].PromptID != k.prompt ||
			shown.Others.Rows[0].Group == shown.Group {
			t.Errorf("rollout %d has %d others of its prompt: %+v", k.id, n, shown.Others.Rows)
		}
		if shown.Life == nil || uint64(shown.Life.ID) != k.id || shown.Life.Group != shown.Group {
			t.Fatalf("the life of rollout %d is %+v", k.id, shown.Life)
		}
		for _, e := range shown.Life.Events {
			if e.Draw != nil {
				drawn++
				if of, _ := parted.Cut(uint64(e.Draw.Batch)); of != part {
					t.Errorf("rollout %d was drawn in batch %d, of another part", k.id, e.Draw.Batch)
				}
			}
		}
		page, err := w.Rollouts(t.Context(), replay.Query{Group: shown.Group, Limit: 9})
		if mustNot(t, err); page.Matched != 2 {
			t.Errorf("group %d has %d rollouts", shown.Group, page.Matched)
		}
		if page, err = w.Rollouts(t.Context(), replay.Query{Except: shown.Group, Limit: 9}); page.Matched != len(all)-2 {
			t.Errorf("%d rollouts are of other groups than %d, error %v", page.Matched, shown.Group, err)
		}
	}
	if drawn == 0 {
		t.Error("no life tells of a draw")
	}
	for _, id := range []uint64{parted.Join(1, 1<<40), parted.Join(77, 1)} {
		if _, err := w.Rollout(t.Context(), rollout.ID(id)); !errors.Is(err, browse.ErrGone) &&
			!errors.Is(err, wire.ErrNotFound) {
			t.Errorf("rollout %d: %v", id, err)
		}
	}
	home, _ := parted.Cut(last.id)
	list[home].stop()
	page, err := w.Rollouts(t.Context(), replay.Query{Limit: 100})
	mustNot(t, err)
	if !slices.Equal(page.Down, []int{home}) || page.Matched == 0 || page.Matched >= len(all) {
		t.Errorf("without part %d: %d found, down are %v", home, page.Matched, page.Down)
	}
	if _, err := w.Rollout(t.Context(), rollout.ID(last.id)); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a rollout of a part that is down: %v", err)
	}
}
