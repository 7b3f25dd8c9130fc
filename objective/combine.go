package objective

import (
	"fmt"
	"math"
)

// Sums is what Output.Sums holds once computed.
type Sums [NumSums]float64

// ReadSums copies the values of an Output.Sums node, of which there are NumSums; another number is a
// mistake of the program and panics.
func ReadSums[F float32 | float64](values []F) Sums {
	if len(values) != NumSums {
		panic(fmt.Sprintf("objective: %d sums: want %d", len(values), NumSums))
	}
	var s Sums
	for i, v := range values {
		s[i] = float64(v)
	}
	return s
}

// Combine turns the sums of all shards of one batch into metrics by name. Shards are added in the
// order given, so that the same shards give the same bits.
//
//	loss                 of the batch
//	tokens               that count: produced by the policy, in kept rows
//	nll                  mean of -log pi over tokens
//	entropy              mean over tokens, in nats
//	abs_advantage        mean over rollouts of the mean |advantage| of their tokens
//	clip_fraction        share of tokens whose term a clip decided
//	mean_ratio           mean over tokens of rho = pi/b; 1 only in expectation
//	max_ratio            the largest rho
//	ratio_clamped        tokens whose ratio left [e^-20, e^20] and was held there
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
//	value_clip_fraction  share of tokens whose term of the value loss its clip decided
//	value_mean           mean over tokens of the critic's values
//	explained_variance   1 - Var(R - V)/Var(R) over tokens, R the returns; at most 1. Not there when all R are (nearly) equal
//
// Without a token that counts only loss and tokens are there, without behaviour log-probs the
// entries from mean_ratio to kl_k3 are not; kl_reference is there with a reference policy, what follows it with a critic.
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
	putReference(metrics, sum)
	putCritic(metrics, sum)
	if sum[sumRho] == 0 { // a ratio is above 0: there were none
		return metrics
	}
	metrics["mean_ratio"] = sum[sumRho] / tokens
	metrics["max_ratio"] = sum[sumMaxRatio]
	metrics["ratio_clamped"] = sum[sumClamped]
	putSpread(metrics, "", effective(sum[sumRho], sum[sumRho2], tokens))
	putSpread(metrics, "_rollout", effective(sum[sumRowRho], sum[sumRowRho2], rollouts))
	metrics["kl_k1"] = sum[sumK1] / tokens
	metrics["kl_k3"] = sum[sumK3] / tokens
	return metrics
}

func putReference(metrics map[string]float64, sum Sums) {
	if n := sum[sumReferenced]; n > 0 {
		metrics["kl_reference"] = sum[sumReferenceKL] / n
	}
}

// putCritic adds how well the critic's values fit the returns.
func putCritic(metrics map[string]float64, sum Sums) {
	n := sum[sumValued]
	if n == 0 {
		return
	}
	metrics["value_loss"] = sum[sumValueLoss] / n
	metrics["value_clip_fraction"] = sum[sumValueClipped] / n
	metrics["value_mean"] = (sum[sumReturn] - sum[sumError]) / n
	variance := func(x, x2 float64) float64 { return x2/n - x/n*(x/n) }
	if of := variance(sum[sumReturn], sum[sumReturn2]); of > 1e-6*sum[sumReturn2]/n { // less is the rounding of float32 sums
		metrics["explained_variance"] = 1 - max(variance(sum[sumError], sum[sumError2]), 0)/of
	}
}

// putSpread adds an ESS/n in (0, 1] and the divergences that follow from it (METHODS section 2), all finite.
func putSpread(metrics map[string]float64, suffix string, ess float64) {
	chi := 1/ess - 1
	metrics["ess"+suffix], metrics["chi_square"+suffix], metrics["d2"+suffix] = ess, chi, math.Log1p(chi)
}

// effective returns ESS/n; float32 sums may exceed the bound of 1 by their rounding.
func effective(sum, squares, n float64) float64 { return min(sum*sum/(n*squares), 1) }
