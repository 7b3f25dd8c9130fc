package rollout_test

import (
	"math"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

func TestTheRowsOfARequestAreBounded(t *testing.T) {
	two := []string{"a", "b"}
	for _, c := range []struct {
		req  rollout.Request
		want int
	}{
		{rollout.Request{Size: 7}, 7},
		{rollout.Request{Prompts: two, PerPrompt: 3}, 6},
		{rollout.Request{Prompts: two, PerPrompt: math.MaxInt}, math.MaxInt},
		{rollout.Request{Prompts: two, PerPrompt: math.MaxInt/2 + 1}, math.MaxInt},
		{rollout.Request{Prompts: two, PerPrompt: math.MaxInt / 2}, math.MaxInt - 1},
	} {
		if got := c.req.MaxRows(); got != c.want {
			t.Errorf("%+v may have %d rows, want %d", c.req, got, c.want)
		}
	}
}

func TestTheDrawsOfABatchAreGroupedByPrompt(t *testing.T) {
	b := rollout.Batch{Draws: []rollout.Draw{{ID: 1}, {ID: 2}, {ID: 3}}, PromptCounts: []int{0, 2, 0, 1}}
	var got []rollout.ID
	for i, draws := range b.ByPrompt() {
		got = append(got, rollout.ID(100*i+len(draws)))
		for _, d := range draws {
			got = append(got, d.ID)
		}
		if i == 1 {
			break
		}
	}
	if want := []rollout.ID{0, 102, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range (&rollout.Batch{Draws: b.Draws}).ByPrompt() {
		t.Error("a batch of no prompts has groups")
	}
}
