package policy_test

import (
	"context"
	"fmt"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// A model of 3,000 parameters learns to count in a circle: random weights, supervised steps, then a continuation in two
// turns and what the model thinks of a circle.
func Example() {
	model, err := policy.NewModel(hf.Config{
		ModelType: hf.Llama, VocabSize: 5, HiddenSize: 16, IntermediateSize: 32, NumHiddenLayers: 1,
		NumAttentionHeads: 2, NumKeyValueHeads: 1, MaxPositionEmbeddings: 16, TieWordEmbeddings: true,
		BOSTokenID: hf.NoToken, PadTokenID: hf.NoToken,
	})
	if err != nil {
		panic(err)
	}
	weights, err := model.Initial(1)
	if err != nil {
		panic(err)
	}
	learner, err := model.NewLearner(weights,
		policy.Learning{Objective: objective.SFT{}, Optimizer: policy.Adam{LearningRate: 0.02}})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 40 {
		if _, err := learner.Step(ctx, []*rollout.Batch{circle()}); err != nil {
			panic(err)
		}
	}
	// greedy
	generation, err := model.Start(policy.Plain([]int32{3}, []int32{0, 1}), nil, policy.Sampling{MaxTokens: 3})
	if err != nil {
		panic(err)
	}
	if _, err := generation.Continue(ctx, learner.Weights(), 0); err != nil {
		panic(err)
	}
	for i, row := range generation.Rows() {
		fmt.Println(row.Tokens[:row.Prompt], row.Tokens[row.Prompt:])
		next := (row.Tokens[len(row.Tokens)-1] + 1) % 5
		// we say one, then it is the model's turn
		if _, err := generation.Extend(i, policy.Input{Tokens: []int32{next}}); err != nil {
			panic(err)
		}
	}
	if _, err := generation.Continue(ctx, learner.Weights(), 0); err != nil {
		panic(err)
	}
	for _, row := range generation.Rows() {
		fmt.Println(row.Tokens[:row.Turn], row.Tokens[row.Turn:])
	}
	for _, w := range []*policy.Weights{weights, learner.Weights()} {
		scores, err := model.Score(ctx, w, policy.Plain([]int32{2, 3, 4, 0}), 1)
		if err != nil {
			panic(err)
		}
		fmt.Printf("version %d finds 4 after 2 3 likely: %v\n", w.Version, scores[0].Logprobs[2] > -0.1)
	}
	// Output:
	// [3] [4 0 1]
	// [0 1] [2 3 4]
	// [3 4 0 1 2] [3 4 0]
	// [0 1 2 3 4 0] [1 2 3]
	// version 0 finds 4 after 2 3 likely: false
	// version 40 finds 4 after 2 3 likely: true
}

// circle is five demonstrations of counting from 0 to 4 and on from 0, each from another number, all tokens after the
// first to be imitated.
func circle() *rollout.Batch {
	batch := &rollout.Batch{}
	for start := range int32(5) {
		r := &rollout.Rollout{Temperature: 1}
		for i := range int32(9) {
			r.Tokens = append(r.Tokens, (start+i)%5)
			r.Mask = append(r.Mask, uint8(min(i, 1)))
			r.Logprobs = append(r.Logprobs, 0)
		}
		batch.Draws = append(batch.Draws, rollout.Draw{Rollout: r, Weight: 1})
	}
	return batch
}
