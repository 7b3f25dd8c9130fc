package advantage

// GAE is generalised advantage estimation: A_t = sum_k (gamma lambda)^k delta_{t+k} with delta_t =
// r_t + gamma V_{t+1} - V_t, over the tokens that the policy produced.
type GAE struct {
	Gamma  float64 // discount per token, in [0, 1]
	Lambda float64 // 0: one-step errors, 1: Monte Carlo returns minus values
}

// DefaultGAE returns gamma 1 and lambda 0.95, the usual choice for language models.
func DefaultGAE() GAE { return GAE{Gamma: 1, Lambda: 0.95} }

// Trajectory is what GAE reads of one rollout.
type Trajectory struct {
	Rewards   []float32 // [L] per token; the reward of the whole on its last policy token
	Values    []float32 // [L] the critic's value before the token
	Mask      []uint8   // [L] 1 where the policy produced the token; nil: everywhere
	Bootstrap float32   // value after the last token: 0 where the episode ended, the critic's where it was cut
}

// Advantages writes the advantage of each token to dst [L], 0 where the mask is 0: from one policy
// token the next state is the next policy token, over whatever the environment said between; a
// reward on an environment's token counts to the policy token before it. It panics if lengths
// differ. The return to which a critic is fitted is the advantage plus the value.
func (g GAE) Advantages(dst []float32, t Trajectory) {
	sameLength(dst, t.Rewards)
	sameLength(dst, t.Values)
	if t.Mask != nil && len(t.Mask) != len(dst) {
		panic("advantage: the mask's length differs from the rewards'")
	}
	next, carried, between := float64(t.Bootstrap), 0.0, 0.0
	for i := len(dst) - 1; i >= 0; i-- {
		reward := float64(t.Rewards[i])
		if t.Mask != nil && t.Mask[i] == 0 {
			dst[i] = 0
			between += reward
			continue
		}
		value := float64(t.Values[i])
		carried = reward + between + g.Gamma*next - value + g.Gamma*g.Lambda*carried
		dst[i] = float32(carried)
		next, between = value, 0
	}
}
