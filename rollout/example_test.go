package rollout_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
)

// A log-prob recorded as a probability is refused by name.
func ExampleGroup_Validate() {
	r := &rollout.Rollout{
		PromptID: "2+2",
		Tokens:   []int32{2, 2, 4}, Mask: []uint8{0, 0, 1},
		Logprobs: []float32{0, 0, 0.5}, Versions: []rollout.Version{-1, -1, 0},
		Temperature: 1, TopP: 1, Reward: 1,
	}
	g := rollout.Group{Rollouts: []*rollout.Rollout{r}, Size: 1}
	fmt.Println(g.Validate(rollout.Limits{Vocab: 16}))
	r.Logprobs[2] = -0.69
	fmt.Println(g.Validate(rollout.Limits{Vocab: 16}))
	// Output:
	// row 0: logprobs[2] is 0.5: give the natural log of the token's probability, finite and at most 0
	// <nil>
}
