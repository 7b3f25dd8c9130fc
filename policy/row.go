package policy

import (
	"math/rand/v2"

	"github.com/reprise-rl/reprise/rollout"
)

// Row is one sequence being generated. The slices but Images have one length L, the tokens so far; they are laid out as in
// rollout.Rollout, and a rollout may take them over when the generation is finished.
type Row struct {
	Tokens    []int32           // [L] prompt, turns of the policy, and what an environment said between them
	Mask      []uint8           // [L] 1 where the policy produced the token
	Logprobs  []float32         // [L] log-softmax(logits/temperature) over the whole vocabulary, before top-p; 0 where Mask is 0
	Versions  []rollout.Version // [L] that produced the token; NoVersion where Mask is 0
	Values    []float32         // [L] of the critic before the token, 0 where Mask is 0; nil without a value head
	Images    [][]byte          // PNG, in the order of their runs of image tokens
	Prompt    int               // tokens of the prompt
	Turn      int               // index of the first token of the latest turn
	Done      bool              // the turn is over: it met a stop token or is out of room
	Truncated bool              // the turn is out of room without a stop token
	rng       *rand.Rand
}

// read appends tokens that the policy did not produce; its next turn begins behind them.
func (r *Row) read(in Input, critic bool) {
	for _, t := range in.Tokens {
		r.put(t, 0, 0, rollout.NoVersion)
		if critic {
			r.Values = append(r.Values, 0)
		}
	}
	r.Images = append(r.Images, in.Images...)
	r.Turn, r.Done, r.Truncated = len(r.Tokens), false, false
}

// put appends a token.
func (r *Row) put(token int32, mask uint8, logprob float32, v rollout.Version) {
	r.Tokens, r.Mask = append(r.Tokens, token), append(r.Mask, mask)
	r.Logprobs, r.Versions = append(r.Logprobs, logprob), append(r.Versions, v)
}

// ahead returns how many more tokens the turn has room for.
func (r *Row) ahead(turn, positions int) int {
	if r.Done {
		return 0
	}
	return min(turn-(len(r.Tokens)-r.Turn), positions-len(r.Tokens))
}
