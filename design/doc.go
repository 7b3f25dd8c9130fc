// Package design is the theory of replay as a calculator: from what a rollout costs, how far rollouts of a buffer are correlated and
// how noise grows with staleness, to the staleness horizon and the replay ratio at which a unit of compute buys most progress, and to a
// configuration that runs.
//
// A [Theory] has a [Profile] of noise, either a [PowerLaw] or a [Table]; [Fit] makes both from [Measurements] of a run. [Theory.Optimum]
// gives the best [Point], [Theory.Configure] the best [Plan] for a [Fleet] of GPUs, [Theory.Bound] the bound that J stands for. [BoundGRPO] is
// apart from these: what [OG] theorem 1 promises of a single step.
//
// All are pure functions; formulas, names and errata are those of docs/METHODS.md, Theory of design ([ER] §3 and appendix C). Costs
// are in units of one rollout's generation here: m = training cost / rollout cost = 1/mu.
//
// # On-policy
//
// Savings are against J(1, 1), an on-policy batch as the analysis draws it: with replacement, from as many rollouts as it has. Training
// that uses each rollout exactly once does better, its J being sigma2(0)(1 + m), and savings against it are smaller by far:
// [Theory.SavingsOnce]. That needs sigma2(0). A table gives it; a power law does not unless it is flat, because its sbar2 is an
// integral in which staleness 0 is a point without weight.
//
// # What it leaves out
//
// The analysis is of plain SGD with compute without end, draws that are uniform with replacement, and noise that depends on staleness
// alone. It knows neither Adam nor clipping nor a stall, and its bias term vanishes in the limit, so that stale gradients cost it
// nothing but variance.
package design
