package study

import (
	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
)

// Measurements says in the calculator's terms what was measured of runs that are seeds of one configuration: one or more, all by their
// gradients or all by a proxy. The cost of a rollout, mu, and the new rollouts per update are the caller's, 0 where they are not known. Of
// variances only ratios matter, so each run's are in units of its first, that of fresh rollouts.
func Measurements(runs []*results.Noise, cost, fresh float64) design.Measurements {
	m := design.Measurements{RolloutCost: cost, NewPerUpdate: fresh, Proxy: runs[0].Proxy}
	for _, n := range runs {
		unit := n.ByStaleness[0].Variance
		for _, s := range n.ByStaleness {
			m.Noise = append(m.Noise, design.Noise{
				Staleness: s.Age, Variance: s.Variance / unit, Count: max(s.Rollouts, int(s.Tokens)), Error: known(s.Error) / unit,
			})
		}
		for _, b := range n.MicroBatches {
			m.Means = append(m.Means, design.MeanNoise{Draws: b.Draws, Variance: b.Variance / unit, Count: b.Batches})
		}
	}
	return m
}

// known returns a value, 0 if it is not known.
func known(n results.Number) float64 {
	if !n.Known() {
		return 0
	}
	return n.Float()
}
