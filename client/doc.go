// Package client is the Go client of a replay service: it puts rollouts into tables on another machine and takes batches
// from them.
//
// A [Client] is a connection, made by [Dial]; a [Table] is a table of the service by its name. A Table's Insert, Sample, Report,
// Advance and Len are those of replay.Table, so that a program that trains on an embedded table trains on a remote one
// unchanged. Errors wrap rollout.ErrFull, ErrStarved, ErrAhead, ErrInvalid and ErrNoLease as there, or wire.ErrNotFound and its
// kin; they name the service and the table.
//
// # Promises
//
// Nothing is inserted twice and no draw is made twice: every insertion has a batch id and every sample a request id, under which
// it is repeated when the connection breaks or the service restarts, for as long as Options.Patience says ([ErrUnreachable]
// after that). Calls end with their context. All methods of Client and Table may be called concurrently.
//
// # Waiting
//
// A Table answers rollout.ErrFull and rollout.ErrStarved at once, for programs that know better what to do meanwhile; the one
// that [Table.Waiting] returns has the service wait for room or rollouts first. A [Stream] is for trainers that take batch after
// batch: the service draws and packs the next one ahead, and a batch counts as used once the next is asked for.
//
// # Memory
//
// The rollouts of a batch share one block of memory, which lives as long as any of them is referred to: a program that keeps
// single rollouts copies them.
package client
