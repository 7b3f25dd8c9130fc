package policy

import (
	"context"
	"math"

	"github.com/reprise-rl/reprise/advantage"
)

// maxLogRatio bounds the exponents of ratios as package objective does.
const maxLogRatio = 20.0

// bound measures the improvement lower bound of [OG] theorem 1 with the weights after a step, pi, and those at the start
// of its batch, pi_k = start, against the behaviour policy b:
//
//	bound            L - 2 (1-sigma)/sigma TV(pi, b) - 2 TV(pi_k, b), no more than J(pi) - J(pi_k) in expectation
//	bound_gain       L = mean rho A
//	bound_tv         TV(pi, b) = mean |rho - 1|/2
//	bound_tv_start   TV(pi_k, b) likewise
//	bound_scale      s, the greatest reward of the batch minus the least: bound and gain are in units of it
//
// The means are over the draws whose group's rewards differ, by their importance weights. Rewards are scaled to [0, 1],
// (r - least)/s; A = (r - mean)/sigma with the group's scaled mean and sigma = sqrt(var + advantage.Epsilon), at most 1.
// Rho is the ratio of whole rollouts, exp(sum log pi - log b), as the theorem's distance is between distributions of
// whole answers, held within e^-20 and e^20. Without such a draw, or with one reward for all, there is no bound.
func (l *Learner) bound(ctx context.Context, measured map[string]float64, shards [][]pass, start *Weights) error {
	scale := rewardRange(shards)
	if scale == 0 {
		return nil
	}
	var total boundTerms
	for p := range eachPass(shards) {
		now, err := l.ask(ctx, p, l.weights)
		if err != nil {
			return err
		}
		then, err := l.ask(ctx, p, start)
		if err != nil {
			return err
		}
		for i, d := range p.draws {
			if d.GroupStd <= 0 {
				continue
			}
			sigma := min(math.Sqrt(square(float64(d.GroupStd)/scale)+advantage.Epsilon), 1)
			total.add(float64(d.Weight), boundTerm{
				ratio: p.rolloutRatio(i, now.logprobs), start: p.rolloutRatio(i, then.logprobs),
				advantage: (float64(d.Rollout.Reward) - float64(d.GroupMean)) / scale / sigma, sigma: sigma,
			})
		}
	}
	total.put(measured)
	if total.weight > 0 {
		measured["bound_scale"] = scale
	}
	return nil
}

// boundTerm is one draw of a bound.
type boundTerm struct {
	ratio, start     float64 // of the rollout, pi/b and pi_k/b
	advantage, sigma float64 // by scaled rewards
}

// boundTerms adds up the terms of a bound by the weights of their draws.
type boundTerms struct{ weight, gain, loss, tv, tvStart float64 }

func (s *boundTerms) add(weight float64, t boundTerm) {
	tv, tvStart := math.Abs(t.ratio-1)/2, math.Abs(t.start-1)/2
	s.weight += weight
	s.gain += weight * t.ratio * t.advantage
	s.loss += weight * (2*(1-t.sigma)/t.sigma*tv + 2*tvStart)
	s.tv += weight * tv
	s.tvStart += weight * tvStart
}

// put adds the metrics, if there was a draw of any weight.
func (s *boundTerms) put(measured map[string]float64) {
	if s.weight == 0 {
		return
	}
	measured["bound"] = (s.gain - s.loss) / s.weight
	measured["bound_gain"] = s.gain / s.weight
	measured["bound_tv"], measured["bound_tv_start"] = s.tv/s.weight, s.tvStart/s.weight
}

// rolloutRatio returns exp of the sum of logprobs - log b over draw i, logprobs being [rows, length].
func (p *pass) rolloutRatio(i int, logprobs []float32) float64 {
	return math.Exp(min(max(p.logRatio(i, logprobs), -maxLogRatio), maxLogRatio))
}

// rewardRange returns the greatest reward of all draws minus the least.
func rewardRange(shards [][]pass) float64 {
	least, greatest := math.Inf(1), math.Inf(-1)
	for p := range eachPass(shards) {
		for _, d := range p.draws {
			r := float64(d.Rollout.Reward)
			least, greatest = min(least, r), max(greatest, r)
		}
	}
	return greatest - least
}

func square(x float64) float64 { return x * x }
