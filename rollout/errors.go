package rollout

import "errors"

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
)
