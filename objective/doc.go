// Package objective holds the losses that a language model learns with: graph nodes in, loss and
// metrics out. It knows neither the model (package policy makes the log-probs), nor where a
// rollout's advantage comes from (package advantage), nor the optimizer.
//
//   - [GRPO]: the clipped surrogate on importance ratios pi/b, by token or by sequence (METHODS
//     section 5, grpo). With advantages normalised over the batch it is REINFORCE++'s loss.
//   - [AsymRE]: log-probs weighted by the reward above a shifted baseline, no ratio (METHODS
//     section 5, asymre; [ER] App. E).
//   - [SFT]: cross-entropy, for the supervised warm-up.
//
// Each is a plain struct of options whose zero value is the documented default, and an [Objective].
//
// A batch is divided over trainers, and one program runs per shard. So the denominators are inputs
// ([Inputs.Rollouts], [Inputs.Tokens]) that speak of the whole batch: the losses of all shards, and
// their gradients, add up to those of the batch. Metrics travel the same way, as sums in
// [Output.Sums] that [Combine] turns into numbers to log. What they are made of is in [Output.Rows], a [Row]
// for each rollout.
//
// Positions that the policy did not produce and rows that are not kept count nowhere and get a
// gradient of exactly zero, whatever stands there, NaN included.
package objective
