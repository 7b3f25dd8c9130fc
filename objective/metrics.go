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
	NumSums       // length of Output.Sums
)

// output adds the sums of the metrics, and the rows behind them, to a loss; clipped is nil where nothing clips. What an
// objective was not given is not measured: its sums are 0.
func (s shard) output(loss, clipped *Node) Output {
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
	if clipped != nil {
		sums[sumClipped] = s.count(clipped)
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

// count returns how many tokens that count have flag [B, T] set.
func (s shard) count(flag *Node) *Node {
	return ReduceAllSum(ConvertDType(LogicalAnd(s.counts, flag), s.mask.DType()))
}
