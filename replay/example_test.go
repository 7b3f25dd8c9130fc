package replay_test

import (
	"context"
	"fmt"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// A group of two answers enters, and is learned from twice.
func Example() {
	ctx := context.Background()
	table, err := replay.New(replay.Options{Capacity: 1024, MaxStaleness: 8, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := func(token int32, reward float32) *rollout.Rollout {
		return rollout.New("2+2", []int32{2, 2}, rollout.Completion{
			Tokens: []int32{token}, Logprobs: []float32{-0.7}, Reward: reward,
		})
	}
	ids, err := table.Insert(ctx, rollout.Group{Rollouts: []*rollout.Rollout{answer(4, 1), answer(5, 0)}, Size: 2})
	fmt.Println(ids, err)
	for v := rollout.Version(1); v <= 2; v++ {
		if err := table.Advance(ctx, v); err != nil {
			fmt.Println(err)
		}
		batch, err := table.Sample(ctx, rollout.Request{Size: 2})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, d := range batch.Draws {
			fmt.Printf("batch %d: rollout %d, advantage %+.1f, staleness %d, used %d times before\n", batch.ID, d.ID,
				d.Advantage, d.Staleness, d.Uses)
		}
	}
	_, err = table.Sample(ctx, rollout.Request{Size: 3})
	fmt.Println(err)
	// Output:
	// [1 2] <nil>
	// batch 1: rollout 2, advantage -1.0, staleness 1, used 0 times before
	// batch 1: rollout 1, advantage +1.0, staleness 1, used 0 times before
	// batch 2: rollout 1, advantage +1.0, staleness 2, used 1 times before
	// batch 2: rollout 2, advantage -1.0, staleness 2, used 1 times before
	// sampling 3 from the table, where 2 can be drawn: table holds too few rollouts
}

// Rollouts with a large advantage are drawn more often, old ones less; a trainer reports back.
func Example_prioritized() {
	ctx := context.Background()
	table, err := replay.New(replay.Options{Capacity: 1024, Sampler: replay.Prioritized, AgeDecay: 20,
		ImportanceAnneal: new(1000), Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("half-life %.0f versions\n", table.Options().HalfLife(20))
	for _, v := range []rollout.Version{0, 23} {
		if err := table.Advance(ctx, v); err != nil {
			fmt.Println(err)
		}
		group := rollout.Group{}
		for _, reward := range []float32{1, 0, 0, 0} {
			group.Rollouts = append(group.Rollouts, rollout.New("2+2", []int32{2, 2}, rollout.Completion{
				Tokens: []int32{4}, Logprobs: []float32{-0.7}, Version: v, Reward: reward,
			}))
		}
		if _, err := table.Insert(ctx, group); err != nil {
			fmt.Println(err)
		}
	}
	batch, err := table.Sample(ctx, rollout.Request{Size: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	var measured []rollout.Feedback
	for _, d := range batch.Draws {
		fmt.Printf("rollout %d, advantage %+.2f, staleness %d, probability %.3f, weight %.2f\n", d.ID, d.Advantage,
			d.Staleness, d.Probability, d.Weight)
		measured = append(measured, rollout.Feedback{ID: d.ID, Staleness: d.Staleness, Advantage: rollout.Measured(0.1),
			Tokens: 1, RatioSum: 1.1, RatioSquares: 1.21})
	}
	fmt.Println(table.Report(ctx, measured...))
	// Output:
	// half-life 23 versions
	// rollout 7, advantage -0.58, staleness 0, probability 0.135, weight 0.99
	// rollout 5, advantage +1.73, staleness 0, probability 0.261, weight 0.75
	// rollout 6, advantage -0.58, staleness 0, probability 0.135, weight 0.99
	// rollout 1, advantage +1.73, staleness 23, probability 0.131, weight 1.00
	// <nil>
}
