package policy

import (
	"math"

	"github.com/reprise-rl/reprise/advantage"
)

// penalise makes the advantages of kinds Batch and GroupBatch with a KLPenalty, see Learning.
func (l *Learner) penalise(shards [][]pass) {
	if l.options.KLPenalty == 0 {
		return
	}
	for p := range eachPass(shards) {
		for i := range p.draws {
			p.penalise(i, l.options.KLPenalty, l.options.Advantage)
		}
	}
	normalize(shards)
}

// penalise writes the advantages of draw i before their normalisation.
func (p *pass) penalise(i int, coefficient float64, kind advantage.Kind) {
	d, from := p.draws[i], i*p.length
	togo := float64(d.Rollout.Reward)
	if kind == advantage.GroupBatch {
		togo -= float64(d.GroupMean)
	}
	for j := len(d.Rollout.Mask) - 1; j >= 0; j-- {
		if d.Rollout.Mask[j] == 1 {
			togo -= coefficient * (float64(p.current[from+j]) - float64(p.reference[from+j]))
			p.advantage[from+j] = float32(togo)
		}
	}
}

// referenceKL returns the sum over the policy's tokens of draw i of exp(d) - 1 - d, d = log pi_ref - log pi held within +-20.
func (p *pass) referenceKL(i int) (sum float64) {
	from := i * p.length
	for j, m := range p.draws[i].Rollout.Mask {
		if m == 1 {
			d := min(max(float64(p.reference[from+j])-float64(p.current[from+j]), -maxLogRatio), maxLogRatio)
			sum += math.Expm1(d) - d
		}
	}
	return sum
}
