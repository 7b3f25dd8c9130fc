package policy

import (
	"context"
	"math"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// maxLogRatio bounds the exponents of ratios like package objective.
const maxLogRatio = 20.0

func clampLogRatio(x float64) float64 { return min(max(x, -maxLogRatio), maxLogRatio) }

// measureBatches adds the metrics of the batches themselves.
func measureBatches(metrics map[string]float64, batches []*rollout.Batch) {
	var n, zeroVariance, fresh, tokens, weights, squares float64
	smallest := math.Inf(1)
	for _, b := range batches {
		for _, d := range b.Draws {
			n++
			tokens += float64(countPolicyTokens(d.Rollout))
			if d.GroupStd == 0 {
				zeroVariance++
			}
			if d.Fresh {
				fresh++
			}
			w := float64(d.Weight)
			weights += w
			squares += w * w
			smallest = min(smallest, w)
		}
	}
	metrics["zero_variance"], metrics["response_length"] = zeroVariance/n, tokens/n
	metrics["fresh_share"] = fresh / n
	metrics["weight_mean"], metrics["weight_min"] = weights/n, smallest
	if squares > 0 {
		metrics["weight_ess"] = min(weights*weights/(n*squares), 1) // equal weights exceed 1 by their rounding
	}
}

// measurePasses adds the metrics of what prepare computed.
func (l *Learner) measurePasses(metrics map[string]float64, shards [][]pass, batches []*rollout.Batch) {
	var draws, dropped, tokens, tdError, kl, experts float64
	for _, b := range batches {
		draws += float64(len(b.Draws))
	}
	for p := range eachPass(shards) {
		for i, d := range p.draws {
			if p.isFiltered(i) {
				dropped++
			}
			experts += float64(p.expert[i])
			if p.keep[i] == 0 {
				continue
			}
			n := float64(countPolicyTokens(d.Rollout))
			tokens += n
			if p.tdError != nil {
				tdError += n * p.tdError[i]
			}
			if l.options.KLPenalty > 0 {
				kl += p.referenceKL(i)
			}
		}
	}
	if l.options.MaxLogRatio > 0 {
		metrics["filtered"] = dropped / draws
	}
	if g, ok := l.options.Objective.(objective.GRPO); ok && g.Experts.Term != "" {
		metrics["experts"] = experts / draws
	}
	if tokens == 0 {
		return
	}
	if l.options.Advantage == advantage.Critic {
		metrics["td_error"] = tdError / tokens
	}
	if l.options.KLPenalty > 0 {
		metrics["kl_reference"] = kl / tokens
	}
}

// referenceKL returns the sum over the policy's tokens of draw i of k3 = exp(d) - 1 - d, d = log pi_ref - log pi.
func (p *pass) referenceKL(i int) (sum float64) {
	for at := range p.policyIndices(i) {
		d := clampLogRatio(float64(p.reference[at]) - float64(p.current[at]))
		sum += math.Expm1(d) - d
	}
	return sum
}

// feedback returns the measurements of each draw of the pass: rows and, with LogitGradients, norms of the gradient
// program.
func (p *pass) feedback(rows []objective.Row, norms []float32) []rollout.Feedback {
	list := make([]rollout.Feedback, len(p.draws))
	for i, d := range p.draws {
		list[i] = rollout.Feedback{
			ID: d.ID, Staleness: d.Staleness, Advantage: rollout.Measured(rows[i].AbsAdvantage),
			Tokens: rows[i].Tokens, RatioSum: rows[i].RatioSum, RatioSquares: rows[i].RatioSquares,
		}
		if p.tdError != nil {
			list[i].TDError = rollout.Measured(p.tdError[i])
		}
		if norms != nil && norms[i] == norms[i] { // NaN for a draw of weight 0
			list[i].GradNorm = rollout.Measured(float64(norms[i]))
		}
	}
	return list
}

// noFeedback is the feedback of a draw that is in no pass.
func (l *Learner) noFeedback(d rollout.Draw) rollout.Feedback {
	f := rollout.Feedback{ID: d.ID, Staleness: d.Staleness, Advantage: rollout.Measured(0)}
	if l.options.Advantage == advantage.Critic {
		f.TDError = rollout.Measured(0)
	}
	if l.options.LogitGradients {
		f.GradNorm = rollout.Measured(0)
	}
	return f
}

// measureBound adds the improvement lower bound of [OG] theorem 1 for the weights after a step, pi, and those at the
// start of its batch, pi_k, against the behaviour policy b:
//
//	bound            L - 2 (1-sigma)/sigma TV(pi, b) - 2 TV(pi_k, b), at most J(pi) - J(pi_k) in expectation
//	bound_gain       L = mean rho A
//	bound_tv         TV(pi, b) = mean |rho - 1|/2
//	bound_tv_start   TV(pi_k, b) likewise
//	bound_scale      s, the largest reward of the batch minus the smallest: bound and gain are in units of it
//
// The means are over the draws with log-probs whose group's rewards differ, by their importance weights. Rewards are
// scaled to [0, 1], (r - smallest)/s. A = (r - mean)/sigma with the group's scaled mean and sigma = sqrt(var +
// advantage.Epsilon), at most 1. Rho is the ratio of whole rollouts, exp(sum log pi - log b), because the theorem's
// distance is between distributions of whole answers; it is clamped to [e^-20, e^20]. Without such a draw, or with one
// reward for all, there is no bound.
func (l *Learner) measureBound(
	ctx context.Context, metrics map[string]float64, shards [][]pass, batches []*rollout.Batch, start *Weights,
) error {
	scale := rewardRange(batches)
	if scale == 0 {
		return nil
	}
	var sums boundSums
	for p := range eachPass(shards) {
		now, err := l.scoreOnce(ctx, p, l.weights)
		if err != nil {
			return err
		}
		then, err := l.scoreOnce(ctx, p, start)
		if err != nil {
			return err
		}
		for i, d := range p.draws {
			if d.GroupStd <= 0 || p.expert[i] != 0 {
				continue
			}
			std := float64(d.GroupStd) / scale
			sigma := min(math.Sqrt(std*std+advantage.Epsilon), 1)
			sums.add(float64(d.Weight), boundTerm{
				ratio: p.rolloutRatio(i, now.Logprobs), start: p.rolloutRatio(i, then.Logprobs),
				advantage: (float64(d.Rollout.Reward) - float64(d.GroupMean)) / scale / sigma, sigma: sigma,
			})
		}
	}
	if sums.weight > 0 {
		sums.put(metrics)
		metrics["bound_scale"] = scale
	}
	return nil
}

// rewardRange returns the largest reward of all draws minus the smallest.
func rewardRange(batches []*rollout.Batch) float64 {
	smallest, largest := math.Inf(1), math.Inf(-1)
	for _, b := range batches {
		for _, d := range b.Draws {
			r := float64(d.Rollout.Reward)
			smallest, largest = min(smallest, r), max(largest, r)
		}
	}
	return largest - smallest
}

// rolloutRatio returns exp of the sum of logprobs - log b over draw i; logprobs is [rows, length].
func (p *pass) rolloutRatio(i int, logprobs []float32) float64 {
	return math.Exp(clampLogRatio(p.logRatio(i, logprobs, p.behaviour)))
}

// boundTerm is one draw's part of the bound.
type boundTerm struct {
	ratio, start     float64 // of the rollout, pi/b and pi_k/b
	advantage, sigma float64 // by scaled rewards
}

// boundSums adds up terms by the weights of their draws.
type boundSums struct{ weight, gain, loss, tv, tvStart float64 }

func (s *boundSums) add(weight float64, t boundTerm) {
	tv, tvStart := math.Abs(t.ratio-1)/2, math.Abs(t.start-1)/2
	s.weight += weight
	s.gain += weight * t.ratio * t.advantage
	s.loss += weight * (2*(1-t.sigma)/t.sigma*tv + 2*tvStart)
	s.tv += weight * tv
	s.tvStart += weight * tvStart
}

// put adds the metrics.
func (s *boundSums) put(metrics map[string]float64) {
	metrics["bound"] = (s.gain - s.loss) / s.weight
	metrics["bound_gain"] = s.gain / s.weight
	metrics["bound_tv"], metrics["bound_tv_start"] = s.tv/s.weight, s.tvStart/s.weight
}
