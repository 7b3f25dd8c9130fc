// Package objective holds the losses that a language model learns with: graph nodes in, loss and
// metrics out. It knows neither the model (package policy makes the log-probs), nor where a
// rollout's advantage comes from (package advantage), nor the optimizer.
//
//   - [GRPO]: the clipped surrogate on importance ratios pi/b, by token or by sequence (METHODS section 5, grpo).
//   - [Variant]: the same loss under the name of a method that differs in its advantages: [ReinforcePP],
//     [ReinforcePPBaseline], [RLOO] and [DrGRPO].
//   - [OffPolicyGRPO]: clipped around r' = pi_k/b, less the divergence from a reference policy ([OG] eq. 6 and 7).
//   - [PPO]: the same surrogate on a critic's advantages, and the clipped value loss that the critic learns from.
//   - [AsymRE]: log-probs weighted by the reward above a shifted baseline, no ratio (METHODS section 5, asymre;
//     [ER] App. E).
//   - [SFT]: cross-entropy, for the supervised warm-up.
//
// [Methods] lists those that learn from rewards, with the advantages that each takes; [Needs] says what one reads beside
// what every step has.
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
