package replay

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// answer is one answer of a naive memory.
type answer struct {
	id     string
	weight int64
}

func TestTheLatestAnswersAreRememberedWithinTheirWeight(t *testing.T) {
	for seed := range uint64(50) {
		random := rollout.Stream(seed, "memory", 0)
		limit, least, most := 1+random.IntN(12), random.IntN(4), int64(random.IntN(60))
		m := newAnswers[int64](limit)
		m.bound = bound[int64]{func(v int64) int64 { return v }, most, least}
		var want []answer
		var earlier, then []answerOf[int64] // what list returned, and a copy
		for i := range 300 {
			if random.IntN(20) == 0 {
				odd := func(v int64) bool { return v%2 == 1 }
				m.forget(odd)
				want = slices.DeleteFunc(want, func(a answer) bool { return odd(a.weight) })
			}
			a := answer{fmt.Sprint("id-", i), random.Int64N(20)}
			m.put(a.id, a.weight)
			want = append(want, a)
			if len(want) > limit {
				want = want[1:]
			}
			for total := sumOf(want); total > most && len(want) > least; want = want[1:] {
				total -= want[0].weight
			}
			var got []answer
			m.each(func(id string, v int64) { got = append(got, answer{id, v}) })
			if !slices.Equal(got, want) || len(m.answers) != len(want) || m.weight != sumOf(want) {
				t.Fatalf("seed %d, step %d: %v (%d answers, weight %d), want %v", seed, i, got, len(m.answers), m.weight, want)
			}
			if !slices.Equal(earlier, then) {
				t.Fatalf("seed %d, step %d: the list changed to %v, was %v", seed, i, earlier, then)
			}
			earlier = m.list()
			then = slices.Clone(earlier)
			for at, w := range want {
				if earlier[at] != (answerOf[int64]{w.id, w.weight}) {
					t.Fatalf("seed %d, step %d: the list is %v, want %v", seed, i, earlier, want)
				}
				if v, ok := m.get(w.id); !ok || v != w.weight {
					t.Fatalf("seed %d, step %d: %s is %d, %v, want %d", seed, i, w.id, v, ok, w.weight)
				}
			}
		}
	}
}

func sumOf(answers []answer) (total int64) {
	for _, a := range answers {
		total += a.weight
	}
	return total
}

func TestLargeBatchesThatWereConsumedAreNotHeldForTheirRequests(t *testing.T) {
	const tokens = 4 << 20 // 52 MB of payload in each batch
	table, err := New(Options{Sampler: FIFO, Capacity: 64})
	if err != nil {
		t.Fatal(err)
	}
	big := &rollout.Rollout{
		PromptID: "p", Temperature: 1, TopP: 1, Tokens: make([]int32, tokens), Mask: make([]uint8, tokens),
		Logprobs: make([]float32, tokens), Versions: make([]rollout.Version, tokens),
	}
	for i := range big.Mask {
		big.Mask[i] = 1
	}
	for i := range 20 {
		if _, err := table.Insert(t.Context(), rollout.Group{Rollouts: []*rollout.Rollout{big}}); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Sample(t.Context(), rollout.Request{Size: 1, ID: fmt.Sprint("request-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(table.shards[0].answered.answers); n != rememberedAlways {
		t.Errorf("%d batches are remembered, want %d", n, rememberedAlways)
	}
	for i, a := range table.shards[0].answered.ring[:20-rememberedAlways] {
		if a.Answer != nil {
			t.Errorf("batch %d was forgotten and is still held", i)
		}
	}
	again, err := table.Sample(t.Context(), rollout.Request{Size: 1, ID: "request-19"})
	if err != nil || len(again.Draws) != 1 || again.Draws[0].ID != 20 {
		t.Errorf("the last request repeated got %v, %v", again, err)
	}
}
