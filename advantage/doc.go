// Package advantage turns rewards into advantages, numbers in and numbers out: how much better a
// rollout was than what was to be expected of it.
//
// What was to be expected is a matter of [Kind]. The group-relative kinds ([Group], [NoStd],
// [LeaveOneOut]) compare a rollout with the others of its prompt and are computed once, when the whole
// group enters a table ([OfGroup]). The others are computed over a training batch at each use, because
// they depend on what it is trained with ([OfBatch]) or on a critic that changes ([GAE]).
//
// Rewards must be finite. Sums run in the order given and in float64, so equal input gives equal
// output to the bit. Nothing here keeps state; everything is safe for concurrent use.
package advantage
