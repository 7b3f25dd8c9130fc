// Package rollout is the vocabulary that every part of Reprise shares: [Rollout] and [Group], what
// a table hands out ([Batch] of [Draw]s), [Version], the counts a table keeps ([Stats],
// [Histogram]), and the validation that bad input meets at the door (invariant 9).
//
// It depends on nothing but the standard library.
package rollout
