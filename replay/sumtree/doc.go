// Package sumtree draws units with probability proportional to their weights, and lets the weights
// change: both in O(log N) for N units. It is what a prioritized sampler stands on.
//
// A [Tree] holds the weights and their sums; [Min] has the same shape and holds minima. Units are
// numbered from 0. Both start empty, [Tree.Grow] and [Min.Grow] make room, and a unit leaves by taking
// the weight 0 (in a Min, the value +Inf).
//
// # Shape
//
// Sixteen values make a node, two cache lines. Level 0 is the units; a value of any other level belongs
// to a node of the level below. Ten million units take six levels, and an update or a draw touches one
// node in each, of which all but the last two or three stay in cache. Levels are arrays without
// pointers: 8.53 bytes per unit, and up to a quarter more where units arrived one by one.
//
// # Promises
//
//   - The probability of unit i is At(i)/Total(), up to rounding. A draw starts from a multiple of
//     2^-53, so it does not resolve shares finer than that.
//   - Sums do not drift: an update recomputes them from the sixteen values below in a fixed order,
//     never by adding differences. Equal weights give equal sums, whatever happened before.
//   - A unit of weight 0 is never drawn, whatever rounding does.
//   - The same weights and random numbers draw the same units on every machine: what decides is
//     additions and subtractions in a fixed order, which no compiler may fuse.
//   - Weights are finite and at least 0. Anything else panics, as an index out of range does: it is a
//     mistake in the program. So does drawing when the total is 0 or overflowed to +Inf: [Tree.Scale]
//     brings weights down in time.
//   - Updates and draws allocate nothing.
//
// Methods that only read ([Tree.At], [Tree.Total], [Tree.Find], [Tree.FindAll], [Tree.Stratified],
// [Tree.Independent], [Min.Least] and the like) may run concurrently with one another; anything that
// writes needs the caller's lock. What a weight means, and when weights change, is left to the caller.
package sumtree
