package browse_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
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

// What is remembered of a rollout that has left is within the bound that a service charges for it.
func TestARolloutThatHasLeftTakesNoMoreThanItsBound(t *testing.T) {
	table, err := replay.New(replay.Options{Capacity: 1, Sampler: replay.Prioritized, History: 4})
	if err != nil {
		t.Fatal(err)
	}
	insert(t, table, "sum", 1)
	ctx := replay.WithCaller(t.Context(), strings.Repeat("\x01", 1000))
	for range 20 {
		f := rollout.Feedback{ID: 1, Tokens: 1, RatioSum: 1.2345678901234567e19, RatioSquares: 1.5e39}
		for _, m := range []*rollout.Measurement{&f.Advantage, &f.TDError, &f.GradNorm} {
			*m = rollout.Measured(123456.78901234567)
		}
		if err := table.Report(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	insert(t, table, "sum", 1)
	shown, err := browse.Table{Table: table}.Rollout(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(shown)
	if n := len(shown.Life.Events); err != nil || int64(len(text)) > browse.LeftBytes || n != replay.MostEvents ||
		!shown.Left {
		t.Errorf("%d events as %d bytes of JSON, want %d events in %d bytes: %v", n, len(text), replay.MostEvents,
			browse.LeftBytes, err)
	}
	if _, err := (browse.Table{Table: table}).Rollout(t.Context(), 3); !errors.Is(err, browse.ErrGone) {
		t.Errorf("a rollout that never was there: %v", err)
	}
}
