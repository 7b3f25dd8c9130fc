package service

import (
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
)

// groupSize is that of the groups that are inserted, where the batch has as many rollouts.
const groupSize = 16

// content makes so many rollouts of so many tokens, in groups, a quarter of each its prompt. Number tells contents apart.
func content(rollouts, tokens, number int) []rollout.Group {
	random := rollout.Stream(1, "bench service", uint64(number))
	var groups []rollout.Group
	for made := 0; made < rollouts; {
		g := rollout.Group{}
		for range min(groupSize, rollouts-made) {
			r := &rollout.Rollout{
				PromptID: fmt.Sprintf("bench-%04d-%06d", number, made/groupSize), Temperature: 1, TopP: 1, Reward: float32(random.IntN(2)),
				Tokens: make([]int32, tokens), Mask: make([]uint8, tokens),
				Logprobs: make([]float32, tokens), Versions: make([]rollout.Version, tokens),
			}
			for i := range tokens {
				r.Tokens[i] = random.Int32N(32000)
				r.Versions[i] = rollout.NoVersion
				if i >= tokens/4 {
					r.Mask[i], r.Versions[i], r.Logprobs[i] = 1, 0, -random.Float32()*4
				}
			}
			g.Rollouts = append(g.Rollouts, r)
			made++
		}
		groups = append(groups, g)
	}
	return groups
}

// payload is the bytes of what groups hold.
func payload(groups []rollout.Group) int64 {
	var n int64
	for _, g := range groups {
		for _, r := range g.Rollouts {
			n += r.Bytes()
		}
	}
	return n
}
