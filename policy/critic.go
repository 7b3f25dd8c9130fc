package policy

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// estimate makes the advantages and returns of kind Critic: GAE draw by draw, the return of a token being its advantage
// plus its value, and then the advantages of all tokens that count in the step normalised together to mean 0 and
// population variance 1, as is practice with PPO.
//
// The reward of a rollout stands on its last token of the policy; one of several turns has each turn's reward there in
// the turn. What comes after the last token counts 0, also where the rollout was cut: being cut is an end to a rollout
// that verifiers reward as a whole.
func (l *Learner) estimate(shards [][]pass) error {
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
					return fmt.Errorf("values: stored: rollout %d has no stored values: want recompute, or rollouts of a generator whose model has a value head", d.ID)
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
	of := advantage.Trajectory{Rewards: rewards(r), Values: p.values[from:to], Mask: r.Mask}
	oneStep := advantage.GAE{Gamma: gae.Gamma}
	oneStep.Advantages(p.advantage[from:to], of)
	if p.keep[i] != 0 {
		p.tdError[i] = meanAbsolute(p.advantage[from:to], r.Mask)
	}
	gae.Advantages(p.advantage[from:to], of)
	for j := from; j < to; j++ {
		p.returns[j] = p.advantage[j] + p.values[j]
	}
}

// rewards returns the reward of each token [L] of a rollout.
func rewards(r *rollout.Rollout) []float32 {
	list := make([]float32, len(r.Tokens))
	if len(r.Turns) > 1 {
		for _, t := range r.Turns {
			list[t.End-1] += t.Reward
		}
		return list
	}
	for j := len(r.Mask) - 1; j >= 0; j-- { // of one turn the whole's, which for stored steps may be an n-step return
		if r.Mask[j] == 1 {
			list[j] = r.Reward
			break
		}
	}
	return list
}

func meanAbsolute(x []float32, mask []uint8) float64 {
	var sum, n float64
	for j, m := range mask {
		if m == 1 {
			sum += math.Abs(float64(x[j]))
			n++
		}
	}
	return sum / max(n, 1)
}

// normalize shifts and scales the advantages of all tokens that count in the step.
func normalize(shards [][]pass) {
	var all []float32
	each := func(visit func(a *float32)) {
		for p := range eachPass(shards) {
			for i, d := range p.draws {
				for j, m := range d.Rollout.Mask {
					if m == 1 && p.keep[i] != 0 {
						visit(&p.advantage[i*p.length+j])
					}
				}
			}
		}
	}
	each(func(a *float32) { all = append(all, *a) })
	advantage.Normalize(all)
	next := 0
	each(func(a *float32) { *a = all[next]; next++ })
}
