// Package rollout is the vocabulary that every part of Reprise shares: [Rollout] and [Group], what
// a table hands out ([Batch] of [Draw]s), [Version] and [Span], the counts a table keeps ([Stats],
// [Histogram]), random streams ([Stream]), and the validation that bad input meets at the door
// (invariant 9 of the design; [Limits], [FieldError]).
//
// A [Rollout] is immutable once it has entered a table: tables, batches and snapshots share it by
// reference. The types of this package do not lock; who shares a mutable one guards it.
//
// It depends on nothing but the standard library.
package rollout
