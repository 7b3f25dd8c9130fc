package objective

import (
	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// The entries of Output.Sums, over the tokens that count (sumLoss: the loss). All add up over
// shards but sumMaxRatio, of which the largest holds.
const (
	sumLoss       = iota
	sumTokens     // tokens that count
	sumRollouts   // rows with such tokens
	sumClipped    // tokens whose term a clip decided
	sumClamped    // tokens with |log pi - log b| above maxLogRatio
	sumRho        // rho = pi/b by token
	sumRho2       // rho^2
	sumMaxRatio   // the largest rho
	sumRowRho     // exp(mean log rho) by rollout
	sumRowRho2    // its square
	sumK1         // log b - log pi
	sumK3         // rho - 1 - log rho
	sumEntropy    // of the policy
	sumRowAbsAdv  // by rollout, the mean over its tokens of |advantage|
	sumNegLogprob // -log pi

	// Of an objective with a reference policy: tokens that it was given for (0: there is none), k3 of KL(pi || pi_ref).
	sumReferenced
	sumReferenceKL

	// Of an objective with a critic: tokens with a value (0: there is none), terms of the value loss, terms that its
	// clip decided; R the returns and E = R - V, and their squares.
	sumValued
	sumValueLoss
	sumValueClipped
	sumReturn
	sumReturn2
	sumError
	sumError2

	NumSums // length of Output.Sums
)

// measured is what an objective saw on its way to the loss; nil is what it has not.
type measured struct {
	clipped      *Node // [B, T] bool: a clip decides the term
	referenceKL  *Node // [B, T] k3 of KL(pi || pi_ref)
	valueLoss    *Node // [B, T] terms of the value loss
	valueClipped *Node // [B, T] bool: its clip decides the term
}

// output adds the sums of the metrics, and the rows behind them, to a loss. What an objective was not given is not
// measured: its sums are 0.
func (s shard) output(loss *Node, seen measured) Output {
	var sums [NumSums]*Node
	rows := [numRowColumns]*Node{rowTokens: s.length}
	zero := ZerosLike(loss)
	for i := range sums {
		sums[i] = zero
	}
	sums[sumLoss] = loss
	sums[sumTokens] = ReduceAllSum(s.length)
	sums[sumRollouts] = ReduceAllSum(s.rows(OnesLike(s.length)))
	sums[sumNegLogprob] = Neg(ReduceAllSum(s.logp))
	if seen.clipped != nil {
		sums[sumClipped] = s.count(seen.clipped)
	}
	if seen.referenceKL != nil {
		sums[sumReferenced], sums[sumReferenceKL] = sums[sumTokens], ReduceAllSum(s.only(seen.referenceKL))
	}
	if seen.valueLoss != nil {
		sums[sumValueLoss], sums[sumValueClipped] = ReduceAllSum(seen.valueLoss), s.count(seen.valueClipped)
		s.criticSums(&sums)
	}
	if s.in.Entropy != nil {
		sums[sumEntropy] = ReduceAllSum(s.only(s.in.Entropy))
	}
	if s.in.Advantage != nil {
		rows[rowAbsAdvantage] = s.rowMean(Abs(s.only(s.in.Advantage)))
		sums[sumRowAbsAdv] = ReduceAllSum(rows[rowAbsAdvantage])
	}
	if s.in.Behaviour != nil {
		s.ratioSums(&sums, &rows)
	}
	for i := range sums {
		sums[i] = StopGradient(sums[i])
	}
	return Output{Loss: loss, Sums: Stack(sums[:], 0), Rows: s.stack(rows)}
}

// ratioSums adds what is measured of the ratios (METHODS section 2).
func (s shard) ratioSums(sums *[NumSums]*Node, rows *[numRowColumns]*Node) {
	logRatio := StopGradient(s.logRatio())
	held := ClipScalar(logRatio, -maxLogRatio, maxLogRatio)
	rho := s.only(Exp(held))
	row := s.rows(exponentiate(s.rowMean(logRatio)))
	sums[sumClamped] = s.count(NotEqual(held, logRatio))
	sums[sumRho] = ReduceAllSum(rho)
	sums[sumRho2] = ReduceAllSum(Square(rho))
	rows[rowRho], rows[rowRho2] = ReduceSum(rho, 1), ReduceSum(Square(rho), 1)
	sums[sumMaxRatio] = ReduceAllMax(rho)
	sums[sumRowRho] = ReduceAllSum(row)
	sums[sumRowRho2] = ReduceAllSum(Square(row))
	sums[sumK1] = Neg(ReduceAllSum(logRatio))
	sums[sumK3] = ReduceAllSum(Sub(Expm1(held), held)) // Expm1: near ratio 1, exp(d)-1-d is all rounding
}

// criticSums adds what is measured of the critic's fit.
func (s shard) criticSums(sums *[NumSums]*Node) {
	target := s.only(s.in.Returns)
	miss := Sub(target, s.only(s.in.Values))
	sums[sumValued] = sums[sumTokens]
	sums[sumReturn], sums[sumReturn2] = ReduceAllSum(target), ReduceAllSum(Square(target))
	sums[sumError], sums[sumError2] = ReduceAllSum(miss), ReduceAllSum(Square(miss))
}

// count returns how many tokens that count have flag [B, T] set.
func (s shard) count(flag *Node) *Node {
	return ReduceAllSum(ConvertDType(LogicalAnd(s.counts, flag), s.mask.DType()))
}
