package browse_test

import (
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
)

// insert inserts a group of a prompt, and returns its ids.
func insert(t *testing.T, table *replay.Table, prompt string, size int) []rollout.ID {
	t.Helper()
	var g rollout.Group
	for range size {
		g.Rollouts = append(g.Rollouts, rollout.New(prompt, []int32{1}, rollout.Completion{Tokens: []int32{2},
			Logprobs: []float32{-1}}))
	}
	ids, err := table.Insert(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// A rollout is shown beside its group, itself always among it, and the other groups of its prompt, however large either
// is. Rollouts without a prompt's id have no others.
func TestARolloutIsShownBesideItsGroupAndTheOthersOfItsPrompt(t *testing.T) {
	table, err := replay.New(replay.Options{Capacity: 1000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	insert(t, table, "sum", 3)
	large := insert(t, table, "sum", 150)
	none := insert(t, table, "", 2)
	insert(t, table, "", 2)
	for _, c := range []struct {
		id            rollout.ID
		mates, others int
	}{{large[0], 64, 3}, {large[149], 64, 3}, {none[0], 2, 0}} {
		shown, err := browse.Table{Table: table}.Rollout(t.Context(), c.id)
		if err != nil {
			t.Fatal(err)
		}
		itself := slices.ContainsFunc(shown.Mates, func(r browse.Row) bool { return r.ID == c.id })
		if len(shown.Mates) != c.mates || !itself || shown.Others.Matched != c.others || len(shown.Others.Rows) != c.others {
			t.Errorf("rollout %d: %d of its group, itself among them: %t; %d of %d others", c.id, len(shown.Mates), itself,
				len(shown.Others.Rows), shown.Others.Matched)
		}
	}
}
