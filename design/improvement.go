package design

import "math"

// NormalisedRewardWeight returns (1 - sigma)/sigma, by which a step away from the behaviour policy is held against the improvement that
// [OG] theorem 1 promises; sigma = sqrt(variance + epsilon) of a prompt's rewards, in (0, 1].
func NormalisedRewardWeight(sigma float64) float64 { return (1 - sigma) / sigma }

// BernoulliDeviation returns sigma = sqrt(p (1-p) + epsilon) of a reward that is 1 with probability p and else 0. Figure 1 of [OG] shows
// [NormalisedRewardWeight] of it over p. It does not say its epsilon; its ends are at 9, where 0.01 puts them.
func BernoulliDeviation(p, epsilon float64) float64 { return math.Sqrt(p*(1-p) + epsilon) }

// BoundGRPO returns the least improvement of the expected reward of a prompt that [OG] theorem 1 promises, rewards being in [0, 1]:
//
//	L - 2 (1 - sigma)/sigma TV(pi, b) - 2 TV(pi_k, b)
//
// with the surrogate L = E_b[(pi/b) A], the behaviour policy b, the policy before the step pi_k and after it pi, and total variations in
// [0, 1]. On-policy, b = pi_k, the last term is 0 (corollary 1).
//
// It is true and never above TV(pi, b)(2 sigma - 1)/sigma: sigma L is a difference of mean rewards, at most TV(pi, b). The sigma of rewards in [0, 1] is
// at most 1/2 ([OG] says 1/4, which is what the variance is at most), so but for epsilon the bound never promises an improvement; it limits
// a deterioration.
func BoundGRPO(surrogate, sigma, step, lag float64) float64 {
	return surrogate - 2*NormalisedRewardWeight(sigma)*step - 2*lag
}
