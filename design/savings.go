package design

// OnPolicy returns J(1, 1): a batch drawn with replacement from as many rollouts, all of the current policy.
func (t Theory) OnPolicy() float64 { return t.Objective(Point{1, 1}) }

// Savings returns 1 - J(p)/J(1, 1), the share of compute that p saves against on-policy training by the same analysis.
func (t Theory) Savings(p Point) float64 { return 1 - t.Objective(p)/t.OnPolicy() }

// OnPolicyOnce returns sigma2(0)(1 + m), J of on-policy training that uses each rollout exactly once, which draws nothing twice and so has
// no 1/N and no correlation. It is false where the profile does not give sigma2(0): a power law that grows does not.
func (t Theory) OnPolicyOnce() (float64, bool) {
	s := t.Profile.At(0)
	return s * (1 + t.TrainCost), s == s
}

// SavingsOnce returns 1 - J(p)/(sigma2(0)(1 + m)), the share of compute that p saves against on-policy training that uses each rollout exactly
// once. It is false where the profile does not give sigma2(0).
func (t Theory) SavingsOnce(p Point) (float64, bool) {
	once, ok := t.OnPolicyOnce()
	return 1 - t.Objective(p)/once, ok
}
