package policy

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// estimateAdvantages computes the advantages and returns of kind Critic: GAE for each draw, where the return of a token
// is its advantage plus its value. Then it normalises the advantages of all tokens that count in the step together to
// mean 0 and population variance 1, as is usual with PPO.
//
// The reward of a rollout is on the policy's last token; with several turns, each turn's reward is on its last token.
// What follows the last token counts 0, even if the rollout was truncated: verifiers reward the rollout as a whole.
func (l *Learner) estimateAdvantages(shards [][]pass) error {
	if l.options.Advantage != advantage.Critic {
		return nil
	}
	for p := range eachPass(shards) {
		if l.options.StoredValues {
			p.values = make([]float32, p.rows*p.length)
		}
		p.returns, p.tdError = make([]float32, p.rows*p.length), make([]float64, len(p.draws))
		for i, d := range p.draws {
			if l.options.StoredValues {
				if len(d.Rollout.Values) != len(d.Rollout.Tokens) {
					return fmt.Errorf("values: stored: rollout %d has no stored values: want recompute, or rollouts "+
						"of a generator whose model has a value head", d.ID)
				}
				copy(p.values[i*p.length:], d.Rollout.Values)
			}
			p.estimate(i, l.options.GAE)
		}
	}
	normalize(shards)
	return nil
}

// estimate writes the advantages, returns and error of draw i.
func (p *pass) estimate(i int, gae advantage.GAE) {
	r := p.draws[i].Rollout
	from, to := i*p.length, i*p.length+len(r.Tokens)
	t := advantage.Trajectory{Rewards: tokenRewards(r), Values: p.values[from:to], Mask: r.Mask}
	if p.keep[i] != 0 {
		advantage.GAE{Gamma: gae.Gamma}.Advantages(p.advantage[from:to], t) // one-step errors
		var sum, n float64
		for at := range p.policyIndices(i) {
			sum += math.Abs(float64(p.advantage[at]))
			n++
		}
		p.tdError[i] = sum / max(n, 1)
	}
	gae.Advantages(p.advantage[from:to], t)
	for j := from; j < to; j++ {
		p.returns[j] = p.advantage[j] + p.values[j]
	}
}

// tokenRewards returns the reward of each token [L] of a rollout.
func tokenRewards(r *rollout.Rollout) []float32 {
	rewards := make([]float32, len(r.Tokens))
	if len(r.Turns) > 1 {
		for _, t := range r.Turns {
			rewards[t.End-1] += t.Reward
		}
		return rewards
	}
	for j := len(r.Mask) - 1; j >= 0; j-- { // of one turn the rollout's, which for stored steps may be an n-step return
		if r.Mask[j] == 1 {
			rewards[j] = r.Reward
			break
		}
	}
	return rewards
}

// penalise computes the advantages of kinds Batch and GroupBatch with a KLPenalty, see [Learning].
func (l *Learner) penalise(shards [][]pass) {
	if l.options.KLPenalty == 0 {
		return
	}
	for p := range eachPass(shards) {
		for i, d := range p.draws {
			from, remaining := i*p.length, float64(d.Rollout.Reward)
			if l.options.Advantage == advantage.GroupBatch {
				remaining -= float64(d.GroupMean)
			}
			for j := len(d.Rollout.Mask) - 1; j >= 0; j-- {
				if d.Rollout.Mask[j] == 1 {
					remaining -= l.options.KLPenalty * (float64(p.current[from+j]) - float64(p.reference[from+j]))
					p.advantage[from+j] = float32(remaining)
				}
			}
		}
	}
	normalize(shards)
}

// normalize shifts and scales the advantages of all tokens that count in the step.
func normalize(shards [][]pass) {
	var all []float32
	each := func(visit func(a *float32)) {
		for p := range eachPass(shards) {
			for i := range p.draws {
				if p.keep[i] == 0 {
					continue
				}
				for at := range p.policyIndices(i) {
					visit(&p.advantage[at])
				}
			}
		}
	}
	each(func(a *float32) { all = append(all, *a) })
	advantage.Normalize(all)
	next := 0
	each(func(a *float32) { *a = all[next]; next++ })
}
