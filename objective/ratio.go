package objective

import (
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// maxLogRatio bounds the exponent of a ratio: rho stays within [e^-20, e^20] = [2e-9, 5e8], so that
// rho^2 summed over a batch is finite in float32. Beyond it the ratio is constant and has no
// gradient. Training that reaches it is lost anyway; how many tokens do is a metric
// (ratio_clamped).
const maxLogRatio = 20.0

// Ratio says over what an importance ratio pi/b is taken.
type Ratio string

const (
	// TokenRatio is pi(token)/b(token), as practice has it. It is the default.
	TokenRatio Ratio = "token"
	// SequenceRatio is one ratio for all tokens of a rollout, the geometric mean
	// exp(mean_t (log pi - log b)) as in GSPO, not the product, whose variance grows with length.
	SequenceRatio Ratio = "sequence"
)

// logRatio returns log pi - log b, [B, T]; 0 where the token does not count.
func (s shard) logRatio() *Node { return Sub(s.logp, s.only(s.in.Behaviour)) }

// exponentiate returns exp of a log-ratio held within +-maxLogRatio.
func exponentiate(logRatio *Node) *Node {
	return Exp(ClipScalar(logRatio, -maxLogRatio, maxLogRatio))
}
