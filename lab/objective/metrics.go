package objective

import (
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/core/graph" //lint:ignore ST1001 graph code reads as formulas
)

// The entries of Output.Sums, over the tokens that count. They add up over shards, except sumMaxRatio: the largest
// holds.
const (
	sumLoss       = iota
	sumTokens     // tokens that count
	sumRollouts   // rows with such tokens
	sumClipped    // tokens whose term a clip decides
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

	// With a reference policy: the tokens, and k3 of KL(pi || pi_ref).
	sumReferenced
	sumReferenceKL

	// With a critic: the tokens, the terms of the value loss, the terms that its clip decides, and R the returns and
	// E = R - V, and their squares.
	sumValued
	sumValueLoss
	sumValueClipped
	sumReturn
	sumReturn2
	sumError
	sumError2

	// For each correction: the tokens, those that it touched, and the rollouts with such.
	sumCorrected
	sumTouched        = sumCorrected + numCorrections
	sumTouchedRollout = sumTouched + numCorrections

	numSums = sumTouchedRollout + numCorrections
)

// The columns of Output.Rows.
const (
	rowTokens       = iota // tokens that count and have a log b
	rowAbsAdvantage        // mean over them of |advantage|
	rowRho                 // sum over them of rho = pi/b
	rowRho2                // sum of rho^2
	numRowColumns
)

// diagnostics is what an objective knows of its terms; nil: it has no such terms.
type diagnostics struct {
	clipped      *Node // [B, T] bool: a clip decides the term
	referenceKL  *Node // [B, T] k3 of KL(pi || pi_ref)
	valueLoss    *Node // [B, T] terms of the value loss
	valueClipped *Node // [B, T] bool: its clip decides the term

	corrected [numCorrections]*Node // [B, T] bool: the correction changed the term
}

// output adds the sums and rows of the metrics to a loss. Sums of inputs that are nil are 0.
func (s shard) output(loss *Node, d diagnostics) Output {
	var sums [numSums]*Node
	rows := [numRowColumns]*Node{rowTokens: s.length}
	sums[sumLoss] = loss
	sums[sumTokens] = ReduceAllSum(s.length)
	sums[sumRollouts] = ReduceAllSum(s.maskedRows(OnesLike(s.length)))
	sums[sumNegLogprob] = Neg(ReduceAllSum(s.logp))
	if d.clipped != nil {
		sums[sumClipped] = s.count(d.clipped)
	}
	if d.referenceKL != nil {
		sums[sumReferenced], sums[sumReferenceKL] = sums[sumTokens], ReduceAllSum(s.masked(d.referenceKL))
	}
	for i, touched := range d.corrected {
		if touched != nil {
			row := ReduceSum(ConvertDType(touched, s.mask.DType()), 1)
			sums[sumCorrected+i], sums[sumTouched+i] = sums[sumTokens], ReduceAllSum(row)
			sums[sumTouchedRollout+i] = ReduceAllSum(MinScalar(row, 1))
		}
	}
	if d.valueLoss != nil {
		s.addCriticSums(&sums, d)
	}
	if s.in.Entropy != nil {
		sums[sumEntropy] = ReduceAllSum(s.masked(s.in.Entropy))
	}
	if s.in.Advantage != nil {
		rows[rowAbsAdvantage] = s.rowMean(Abs(s.masked(s.in.Advantage)))
		sums[sumRowAbsAdv] = ReduceAllSum(rows[rowAbsAdvantage])
	}
	if s.in.Behaviour != nil {
		s.addRatioSums(&sums, &rows)
	}
	for i := range rows {
		if s.in.Expert != nil && i != rowAbsAdvantage && rows[i] != nil {
			rows[i] = Where(NotEqual(s.in.Expert, ZerosLike(s.in.Expert)), ZerosLike(rows[i]), rows[i])
		}
	}
	return Output{Loss: loss, Sums: stack(sums[:], ZerosLike(loss), 0), Rows: stack(rows[:], ZerosLike(s.length), -1)}
}

// addRatioSums measures the ratios (METHODS section 2).
func (s shard) addRatioSums(sums *[numSums]*Node, rows *[numRowColumns]*Node) {
	logRatio := StopGradient(s.logRatio())
	clamped := ClipScalar(logRatio, -maxLogRatio, maxLogRatio)
	rho := s.masked(Exp(clamped))
	row := s.maskedRows(boundedExp(s.rowMean(logRatio)))
	sums[sumClamped] = s.count(NotEqual(clamped, logRatio))
	sums[sumRho] = ReduceAllSum(rho)
	sums[sumRho2] = ReduceAllSum(Square(rho))
	rows[rowRho], rows[rowRho2] = ReduceSum(rho, 1), ReduceSum(Square(rho), 1)
	sums[sumMaxRatio] = ReduceAllMax(rho)
	sums[sumRowRho] = ReduceAllSum(row)
	sums[sumRowRho2] = ReduceAllSum(Square(row))
	sums[sumK1] = Neg(ReduceAllSum(logRatio))
	sums[sumK3] = ReduceAllSum(Sub(Expm1(clamped), clamped)) // Expm1: near ratio 1, exp(d)-1-d is all rounding
}

// addCriticSums measures the critic's fit.
func (s shard) addCriticSums(sums *[numSums]*Node, d diagnostics) {
	sums[sumValueLoss], sums[sumValueClipped] = ReduceAllSum(d.valueLoss), s.count(d.valueClipped)
	target := s.masked(s.in.Returns)
	miss := Sub(target, s.masked(s.in.Values))
	sums[sumValued] = sums[sumTokens]
	sums[sumReturn], sums[sumReturn2] = ReduceAllSum(target), ReduceAllSum(Square(target))
	sums[sumError], sums[sumError2] = ReduceAllSum(miss), ReduceAllSum(Square(miss))
}

// count returns how many tokens that count have flag [B, T] set.
func (s shard) count(flag *Node) *Node {
	return ReduceAllSum(ConvertDType(LogicalAnd(s.counts, flag), s.mask.DType()))
}

// stack joins nodes along a new axis, without gradient; nil nodes are zero.
func stack(nodes []*Node, zero *Node, axis int) *Node {
	for i, n := range nodes {
		if n == nil {
			n = zero
		}
		nodes[i] = StopGradient(n)
	}
	return Stack(nodes, axis)
}

// Row holds the values of Output.Rows for one rollout, over its tokens that count. All are 0 for a row that is not kept
// or has no policy tokens, and for inputs that the objective was not given. A row without log-probs has none of the
// ratios that Combine counts as 1: all but AbsAdvantage are 0.
type Row struct {
	Tokens       float64 // their number, those of the ratios
	AbsAdvantage float64 // mean of |advantage|
	RatioSum     float64 // sum of rho = pi/b, within [e^-20, e^20] as in Combine's metrics
	RatioSquares float64 // sum of rho^2
}

// ReadRows returns the values of an Output.Rows node of B rows. It panics if they are not whole rows.
func ReadRows[F float32 | float64](values []F) []Row {
	if len(values)%numRowColumns != 0 {
		panic(fmt.Sprintf("objective: %d values of rows: want a multiple of %d", len(values), numRowColumns))
	}
	rows := make([]Row, len(values)/numRowColumns)
	for i := range rows {
		v := values[i*numRowColumns:]
		rows[i] = Row{
			Tokens: float64(v[rowTokens]), AbsAdvantage: float64(v[rowAbsAdvantage]),
			RatioSum: float64(v[rowRho]), RatioSquares: float64(v[rowRho2]),
		}
	}
	return rows
}

// Sums holds the values of Output.Sums.
type Sums [numSums]float64

// ReadSums returns the values of an Output.Sums node. It panics if their number is wrong.
func ReadSums[F float32 | float64](values []F) (s Sums) {
	if len(values) != numSums {
		panic(fmt.Sprintf("objective: %d sums: want %d", len(values), numSums))
	}
	for i, v := range values {
		s[i] = float64(v)
	}
	return s
}

// Combine turns the sums of all shards of a batch into metrics by name. It adds shards in the order given, so equal
// shards give equal bits.
//
//	loss                 of the batch
//	tokens               that count: produced by the policy, in kept rows
//	nll                  mean of -log pi over tokens
//	entropy              mean over tokens, in nats
//	abs_advantage        mean over rollouts of the mean |advantage| of their tokens
//	clip_fraction        share of tokens whose term a clip decides, of cispo whose ratio it changes; those that a
//	                     correction drops count too
//	mean_ratio           mean over tokens of rho = pi/b; 1 only in expectation
//	max_ratio            the largest rho
//	ratio_clamped        tokens whose ratio left [e^-20, e^20] and was clamped to it
//	ess                  ESS/n by token: (sum rho)^2 / (n sum rho^2), in (0, 1]
//	ess_rollout          the same by rollout, with rho = exp(mean log rho)
//	chi_square           1/ess - 1: mean rho^2 / (mean rho)^2 - 1, never negative
//	chi_square_rollout   the same of ess_rollout
//	d2                   log(1 + chi_square) = -log ess, the Renyi divergence of order 2 in nats
//	d2_rollout           the same of ess_rollout
//	kl_k1                KL(b || pi) as mean of log b - log pi
//	kl_k3                KL(b || pi) as mean of rho - 1 - log rho, never negative
//	kl_reference         KL(pi || pi_ref) as mean of exp(d) - 1 - d, d = log pi_ref - log pi, over the tokens drawn
//	value_loss           mean over tokens of the value loss's terms
//	value_clip_fraction  share of tokens whose term of the value loss its clip decides
//	value_mean           mean over tokens of the critic's values
//	explained_variance   1 - Var(R - V)/Var(R) over tokens, R the returns; at most 1; absent if all R are (nearly) equal
//
//	corrected_NAME            share of tokens that a correction changed or dropped; see [Correction.Name]
//	corrected_NAME_rollouts   share of rollouts with such tokens
//
// If no token counts, only loss and tokens are present. mean_ratio to kl_k3 need behaviour log-probs, kl_reference a
// reference policy, value_loss to explained_variance a critic, and corrected_NAME that correction.
func Combine(shards []Sums) map[string]float64 {
	var sum Sums
	for _, shard := range shards {
		for k, v := range shard {
			if k == sumMaxRatio {
				sum[k] = max(sum[k], v)
			} else {
				sum[k] += v
			}
		}
	}
	metrics := map[string]float64{"loss": sum[sumLoss], "tokens": sum[sumTokens]}
	tokens, rollouts := sum[sumTokens], sum[sumRollouts]
	if tokens == 0 {
		return metrics
	}
	metrics["nll"] = sum[sumNegLogprob] / tokens
	metrics["entropy"] = sum[sumEntropy] / tokens
	metrics["abs_advantage"] = sum[sumRowAbsAdv] / rollouts
	metrics["clip_fraction"] = sum[sumClipped] / tokens
	if sum[sumRho] > 0 { // every ratio is above 0
		metrics["mean_ratio"] = sum[sumRho] / tokens
		metrics["max_ratio"] = sum[sumMaxRatio]
		metrics["ratio_clamped"] = sum[sumClamped]
		addSpread(metrics, "", sum[sumRho], sum[sumRho2], tokens)
		addSpread(metrics, "_rollout", sum[sumRowRho], sum[sumRowRho2], rollouts)
		metrics["kl_k1"] = sum[sumK1] / tokens
		metrics["kl_k3"] = sum[sumK3] / tokens
	}
	if n := sum[sumReferenced]; n > 0 {
		metrics["kl_reference"] = sum[sumReferenceKL] / n
	}
	for i, name := range correctionNames() {
		if n := sum[sumCorrected+i]; n > 0 {
			metrics["corrected_"+name] = sum[sumTouched+i] / n
			metrics["corrected_"+name+"_rollouts"] = sum[sumTouchedRollout+i] / rollouts
		}
	}
	if n := sum[sumValued]; n > 0 {
		metrics["value_loss"] = sum[sumValueLoss] / n
		metrics["value_clip_fraction"] = sum[sumValueClipped] / n
		metrics["value_mean"] = (sum[sumReturn] - sum[sumError]) / n
		variance := func(x, x2 float64) float64 { return x2/n - x/n*(x/n) }
		// less is the rounding of float32 sums
		if of := variance(sum[sumReturn], sum[sumReturn2]); of > 1e-6*sum[sumReturn2]/n {
			metrics["explained_variance"] = 1 - max(variance(sum[sumError], sum[sumError2]), 0)/of
		}
	}
	return metrics
}

// addSpread adds ESS/n in (0, 1] and the divergences that follow from it (METHODS section 2), all finite. Float32 sums
// may exceed the bound of 1 by their rounding.
func addSpread(metrics map[string]float64, suffix string, sum, squares, n float64) {
	ess := min(sum*sum/(n*squares), 1)
	chi := 1/ess - 1
	metrics["ess"+suffix], metrics["chi_square"+suffix], metrics["d2"+suffix] = ess, chi, math.Log1p(chi)
}
