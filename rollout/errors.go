package rollout

import (
	"errors"
	"fmt"
)

var (
	// ErrFull is returned when a bounded queue has no room for an insertion. It is retryable: room
	// comes when trainers sample.
	ErrFull = errors.New("table is full")
	// ErrStarved is returned when a table holds too little to fill a batch. It is retryable after the
	// next insertion.
	ErrStarved = errors.New("table holds too few rollouts")
	// ErrAhead is returned when an insertion carries a version newer than the table's. It is
	// retryable after the table has been advanced.
	ErrAhead = errors.New("rollout is ahead of the table's version")
	// ErrInvalid is returned for input that no retry can make acceptable; nothing of it is kept.
	ErrInvalid = errors.New("invalid input")
	// ErrNoLease is returned when a batch is settled that is not on lease: it was acknowledged,
	// released or expired before, or never drawn.
	ErrNoLease = errors.New("batch is not on lease")
)

// FieldError names what is wrong with a rollout or a group and what to do about it. It wraps
// [ErrInvalid].
type FieldError struct {
	Row    int    // of the insertion, from 0; of the group if a group was validated by itself
	Field  string // as on the wire, with the entry: logprobs[17]
	Value  string // what was found
	Remedy string // what is expected instead
}

// Error reads: row 3: logprobs[17] is 0.25: …
func (e *FieldError) Error() string {
	return fmt.Sprintf("row %d: %s is %s: %s", e.Row, e.Field, e.Value, e.Remedy)
}

// Unwrap makes every FieldError an ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }
