package wire_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// A client encodes an insertion, the service decodes it; the service encodes draws, the client decodes them.
func Example() {
	columns, err := wire.ExtraFields([]wire.Column{{Name: "x_source", Type: "utf8"}})
	if err != nil {
		panic(err)
	}
	answer := rollout.New("2+2=", []int32{17}, rollout.Completion{
		Tokens: []int32{4, 9}, Logprobs: []float32{-0.25, -0.5}, Version: 7, Reward: 1,
	})
	rows, err := wire.Rows([]rollout.Group{{Rollouts: []*rollout.Rollout{answer}}}, columns)
	if err != nil {
		panic(err)
	}
	groups, order, err := wire.Groups(rows, columns)
	if err != nil {
		panic(err)
	}
	fmt.Println("row 0 is rollout", order[0], "of", len(groups), "group, with tokens", groups[0].Rollouts[0].Tokens)

	schema, err := wire.SampleSchema([]string{"id", "tokens", "weight"}, columns...)
	if err != nil {
		panic(err)
	}
	var gatherer wire.Gatherer
	batch, err := gatherer.Batch([]rollout.Draw{{ID: 5, Rollout: groups[0].Rollouts[0], Weight: 0.5}}, schema)
	if err != nil {
		panic(err)
	}
	defer batch.Release()
	draws, err := wire.Draws(batch, columns)
	if err != nil {
		panic(err)
	}
	fmt.Println("drew rollout", draws[0].ID, "of weight", draws[0].Weight, "with tokens", draws[0].Rollout.Tokens)
	// Output:
	// row 0 is rollout 0 of 1 group, with tokens [17 4 9]
	// drew rollout 5 of weight 0.5 with tokens [17 4 9]
}
