package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// answersOf inserts one answer a group to prompts, with rewards 1.
func answersOf(t *testing.T, table *Table, prompts ...string) {
	t.Helper()
	for _, id := range prompts {
		r := someRollout(rollout.Stream(1, "answers", 0), id, table.Version())
		r.Reward = 1
		mustInsert(t, table, rollout.Group{Rollouts: []*rollout.Rollout{r}})
	}
}

func TestAPromptKeepsItsNewestRightAnswers(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Retention: KeepPositive, PositiveFraction: 0.75, PositivesPerPrompt: 2})
	answersOf(t, table, "easy", "hard", "easy", "easy", "easy", "easy", "last", "last")
	var kept []rollout.ID
	for _, h := range table.Inspect().Held() {
		kept = append(kept, h.ID)
	}
	want := []rollout.ID{2, 5, 6, 7, 8} // hard, the newest two of easy, and the two that are kept whatever their reward
	if len(kept) != len(want) {
		t.Fatalf("kept %v, want %v", kept, want)
	}
	for i := range want {
		if kept[i] != want[i] {
			t.Errorf("kept %v, want %v", kept, want)
		}
	}
}

// Of each batch the given share comes from the reserved part, uniformly; every unit of that part is drawn alike.
func TestAShareOfEachBatchComesFromTheReservedPart(t *testing.T) {
	const size, batches = 8, 4000
	table := mustNew(t, Options{Capacity: 40, Retention: KeepPositive, PositiveFraction: 0.25, PositiveShare: 0.5,
		Sampler: Distinct, Seed: 3})
	for range 40 {
		answersOf(t, table, "p")
	}
	counts := make(map[rollout.ID]float64)
	for range batches {
		b, err := table.Sample(ctx, rollout.Request{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		reserved, seen := 0, make(map[rollout.ID]bool)
		for _, d := range b.Draws {
			if d.ID <= 10 {
				reserved++
			}
			if seen[d.ID] {
				t.Fatalf("a batch holds rollout %d twice", d.ID)
			}
			seen[d.ID] = true
			counts[d.ID]++
		}
		if reserved < size/2 {
			t.Fatalf("%d of %d draws are from the reserved part, want %d or more", reserved, size, size/2)
		}
	}
	// A reserved rollout is in the positive half with chance 4/10; the other half falls on it with (6/10) x 4/36.
	for id, n := range counts {
		p := 4.0 / 36
		if id <= 10 {
			p = 0.4 + 0.6*4/36
		}
		if sigma := math.Sqrt(batches * p * (1 - p)); math.Abs(n-batches*p) > 5*sigma {
			t.Errorf("rollout %d was drawn %v times, want %.0f ± %.0f", id, n, batches*p, sigma)
		}
	}
	if len(counts) != 40 {
		t.Errorf("%d rollouts were drawn, want 40", len(counts))
	}
}

// What the reserved part does not have is drawn from the whole table.
func TestAnEmptyReservedPartLeavesTheBatchToTheSampler(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Retention: KeepPositive, PositiveFraction: 0.5, PositiveShare: 1})
	answersOf(t, table, "a", "b", "c")
	b, err := table.Sample(ctx, rollout.Request{Size: 3})
	if err != nil || len(b.Draws) != 3 {
		t.Errorf("got %v, %v, want 3 draws", b, err)
	}
}

// Of four places: the least score leaves, the oldest among equals, and the newcomer if it is that.
func TestTheRolloutOfTheLeastScoreLeaves(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4, Retention: KeepScored, Score: "reward - uses", Sampler: Ordered,
		Order: "reward"})
	held := func(want ...rollout.ID) {
		t.Helper()
		var got []rollout.ID
		for _, h := range table.Inspect().Held() {
			got = append(got, h.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("it holds %v, want %v", got, want)
		}
	}
	mustInsert(t, table, group(0, 1, 3, 1, 2)) // scores 1, 3, 1, 2
	mustInsert(t, table, group(0, 0))
	held(1, 2, 3, 4)
	mustInsert(t, table, group(0, 1))
	held(2, 3, 4, 6)
	for range 3 {
		mustSample(t, table, rollout.Request{Size: 1}) // the second, which then has score 0
	}
	mustInsert(t, table, group(0, 1))
	held(3, 4, 6, 7)
	mustInsert(t, table, group(0, 5, 5))
	held(4, 7, 8, 9)
}

// Of two places a prompt, the newest keep theirs, or those of the largest score.
func TestAPromptKeepsSoMany(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{KeptPerPrompt: 2}, "[a=2 a=3 b=1]"},
		{Options{KeptPerPrompt: 2, Retention: KeepScored, Score: "reward"}, "[a=3 a=4 b=1]"},
	} {
		c.o.Capacity = 8
		table := mustNew(t, c.o)
		for _, answer := range []struct {
			prompt string
			reward float32
		}{{"a", 1}, {"a", 4}, {"b", 1}, {"a", 3}, {"a", 2}} {
			g := group(0, answer.reward)
			g.Rollouts[0].PromptID = answer.prompt
			mustInsert(t, table, g)
		}
		var got []string
		for _, h := range table.Inspect().Held() {
			got = append(got, fmt.Sprintf("%s=%g", h.Rollout.PromptID, h.Rollout.Reward))
		}
		if slices.Sort(got); fmt.Sprint(got) != c.want {
			t.Errorf("%s keeps %v, want %s", c.o.Retention, got, c.want)
		}
	}
}

// Newcomers of a small score leave at once, which a source that waits for them says.
func TestAStarvedSampleSaysWhatLeftByItsScore(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, Retention: KeepScored, Score: "reward",
		Sources: []Source{{Name: "fresh", Pool: PoolFresh, Share: "1", Wait: true}}})
	mustInsert(t, table, group(0, 1, 1, 1, 1, 1, 1, 1, 1))
	mustSample(t, table, rollout.Request{Size: 8})
	mustInsert(t, table, group(0, 0, 0, 0, 0))
	_, err := table.Sample(ctx, rollout.Request{Size: 4})
	want := "which holds 0 (4 left because their score, reward, was the least, perhaps as they entered: insert"
	if !errors.Is(err, rollout.ErrStarved) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
