package objective

import (
	"fmt"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// Normalisation says how the terms of tokens become the loss of a batch.
type Normalisation string

const (
	// PerSequence is the mean over rollouts of the mean over their tokens: every rollout counts alike.
	// It is the default.
	PerSequence Normalisation = "sequence"
	// PerToken is the mean over all tokens of the batch: every token counts alike.
	PerToken Normalisation = "token"
	// PerConstant is the mean over rollouts of the sum over tokens divided by a constant length, so
	// that long answers are neither favoured nor damped (Dr. GRPO).
	PerConstant Normalisation = "constant"
)

func (n Normalisation) orDefault() Normalisation {
	if n == "" {
		return PerSequence
	}
	return n
}

func (n Normalisation) validate(constantLength int) error {
	switch n.orDefault() {
	case PerSequence, PerToken:
		if constantLength != 0 {
			return fmt.Errorf("constant_length: %d: want 0, it is read with normalisation %q only", constantLength, PerConstant)
		}
		return nil
	case PerConstant:
		if constantLength < 1 {
			return fmt.Errorf("constant_length: %d: want at least 1 token with normalisation %q", constantLength, PerConstant)
		}
		return nil
	}
	return fmt.Errorf("normalisation: %q: want %q, %q or %q", n, PerSequence, PerToken, PerConstant)
}

// reduce returns this shard's summand of the batch's weighted mean of terms [B, T], which are 0
// where the token does not count.
func (n Normalisation) reduce(s shard, terms *Node, constantLength int) *Node {
	if n.orDefault() == PerToken {
		return Div(ReduceAllSum(Mul(s.weight, ReduceSum(terms, 1))), MaxScalar(s.in.Tokens, 1))
	}
	row := s.rowMean(terms)
	if n == PerConstant {
		row = DivScalar(ReduceSum(terms, 1), float64(constantLength))
	}
	return s.meanOverRollouts(row)
}

// meanOverRollouts returns this shard's summand of the batch's weighted mean of row [B].
func (s shard) meanOverRollouts(row *Node) *Node {
	return Div(ReduceAllSum(Mul(s.weight, row)), MaxScalar(s.in.Rollouts, 1))
}
