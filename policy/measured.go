package policy

import (
	"math"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// Measured is what a step saw.
//
// Feedback has an entry for every draw, trainer by trainer in the order of the draws; a rollout drawn twice has two. It
// is of the weights that the step began with, and of the tokens that counted: a rollout that MaskZeroVariance or
// MaxLogRatio took out of the loss has 0 tokens, advantage 0 and gradient norm 0, so that the entries add up to what
// Metrics says of the batch.
// Advantage is what the step used: the draw's or, token by token, the rollout's, also where the objective reads rewards
// instead (asymre); with a critic or a KLPenalty the normalised one. TDError is known with a critic: the mean of |delta_t|
// over the policy's tokens, delta_t = r_t + gamma V_{t+1} - V_t by the values that the advantages come from; 0, as the
// rest, where the rollout is not in the loss. GradNorm is known with [Learning.LogitGradients].
type Measured struct {
	Metrics  map[string]float64
	Feedback []rollout.Feedback
}

// measureBatches adds what the batches themselves show.
func measureBatches(measured map[string]float64, batches []*rollout.Batch) {
	var n, flat, fresh, tokens, weights, squares float64
	least := math.Inf(1)
	for _, b := range batches {
		for _, d := range b.Draws {
			n++
			tokens += float64(policyTokens(d.Rollout))
			if d.GroupStd == 0 {
				flat++
			}
			if d.Fresh {
				fresh++
			}
			w := float64(d.Weight)
			weights += w
			squares += w * w
			least = min(least, w)
		}
	}
	measured["zero_variance"], measured["response_length"] = flat/n, tokens/n
	measured["fresh_share"] = fresh / n
	measured["weight_mean"], measured["weight_min"] = weights/n, least
	if squares > 0 {
		measured["weight_ess"] = min(weights*weights/(n*squares), 1) // equal weights exceed 1 by their rounding
	}
}

// measurePasses adds what was found out before the gradient.
func (l *Learner) measurePasses(measured map[string]float64, shards [][]pass) {
	var draws, dropped, tokens, tdError, kl float64
	for p := range eachPass(shards) {
		for i, d := range p.draws {
			draws++
			if p.drops(i) {
				dropped++
			}
			if p.keep[i] == 0 {
				continue
			}
			n := float64(policyTokens(d.Rollout))
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
		measured["filtered"] = dropped / draws
	}
	if tokens == 0 {
		return
	}
	if l.options.Advantage == advantage.Critic {
		measured["td_error"] = tdError / tokens
	}
	if l.options.KLPenalty > 0 {
		measured["kl_reference"] = kl / tokens
	}
}

// feedback says of each draw of the pass what the gradient program gave: a row, and a norm if it was asked for.
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
		if norms != nil && norms[i] == norms[i] { // NaN: a draw of weight 0 shows none
			list[i].GradNorm = rollout.Measured(float64(norms[i]))
		}
	}
	return list
}

// logitGradientNorms makes Feedback.GradNorm [B] of the loss's gradient with respect to the logits [B, S-1, V], as
// [Learning.LogitGradients] defines it. The scale comes before the squares, which would else underflow at small weights.
func logitGradientNorms(gradient, rollouts, weight *Node) *Node {
	scaled := Mul(gradient, Reshape(Div(rollouts, weight), -1, 1, 1))
	return Sqrt(ReduceSum(ReduceSum(Square(scaled), -1), -1))
}
