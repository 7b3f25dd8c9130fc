package rollout_test

import (
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
)

func ExampleNew() {
	prompt, answer := []int32{2, 10, 2}, []int32{4, 1}
	r := rollout.New("2+2", prompt, rollout.Completion{Tokens: answer, Logprobs: []float32{-0.5, -0.25},
		Version: 7, Reward: 1})
	r.Temperature = 0.8 // what New leaves at its default is set afterwards
	fmt.Println(r.Mask, r.Logprobs, r.Versions)
	fmt.Println(r.Validate(rollout.Limits{Vocab: 16}))
	// Output:
	// [0 0 0 1 1] [0 0 0 -0.5 -0.25] [-1 -1 -1 7 7]
	// <nil>
}

// A log-prob recorded as a probability is refused by name.
func ExampleGroup_Validate() {
	r := rollout.New("2+2", []int32{2, 2}, rollout.Completion{Tokens: []int32{4}, Logprobs: []float32{0.5}, Reward: 1})
	g := rollout.Group{Rollouts: []*rollout.Rollout{r}, Size: 1}
	fmt.Println(g.Validate(rollout.Limits{Vocab: 16}))
	r.Logprobs[2] = -0.69
	fmt.Println(g.Validate(rollout.Limits{Vocab: 16}))
	// Output:
	// row 0: logprobs[2] is 0.5: give the natural log of the token's probability, finite and at most 0
	// <nil>
}
