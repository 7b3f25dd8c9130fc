package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// longestWait is how long the service is asked to wait at once: a lost connection is found out in between.
const longestWait = 30 * time.Second

// left returns how long a call that began then may still wait.
func (t *Table) left(ctx context.Context, began time.Time) time.Duration {
	left := t.wait
	if t.wait != Forever {
		left -= time.Since(began)
	}
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return left
}

// waitOut calls once with how long the service is to wait, again and again while it answers with the error that waiting
// may help against and the table's wait is not over.
func (t *Table) waitOut(ctx context.Context, against error, once func(wait time.Duration) error) error {
	began := time.Now()
	for {
		err := once(min(max(t.left(ctx, began), 0), longestWait))
		if !errors.Is(err, against) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if t.left(ctx, began) <= 0 {
			return err
		}
	}
}

// failed names the table in an error.
func (t *Table) failed(verb string, err error) error {
	return fmt.Errorf("table %s of %s: %s: %w", t.name, t.client.address, verb, err)
}
