package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/wire"
)

// act carries out an action of the service; wait is how long it may take beyond the usual. A nil answer expects none.
func (c *Client) act(ctx context.Context, table, kind string, body, answer any, wait time.Duration) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("table %s of %s: %s: %w", table, c.address, kind, err)
	}
	err = c.repeat(ctx, c.options.Patience, wait, func(ctx context.Context, attempt int) error {
		err := c.actOnce(ctx, kind, text, answer)
		if attempt > 0 && gone(kind) && errors.Is(understood(err), wire.ErrNotFound) {
			return nil // an earlier attempt got through
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("table %s of %s: %s: %w", table, c.address, kind, err)
	}
	return nil
}

// actAtOnce carries out an action that is not to be repeated.
func (c *Client) actAtOnce(ctx context.Context, table, kind string, body, answer any) error {
	text, err := json.Marshal(body)
	if err == nil {
		err = c.attempt(ctx, 0, 0, func(ctx context.Context, _ int) error { return c.actOnce(ctx, kind, text, answer) })
	}
	if err != nil {
		return fmt.Errorf("table %s of %s: %s: %w", table, c.address, kind, err)
	}
	return nil
}

// gone reports whether an action leaves nothing that it could be repeated on.
func gone(kind string) bool { return kind == wire.DropTable }

func (c *Client) actOnce(ctx context.Context, kind string, body []byte, answer any) error {
	stream, err := c.flight.DoAction(ctx, &flight.Action{Type: kind, Body: body})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		result, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && (!first || answer == nil):
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the service answered nothing where JSON was expected: is it of another version?")
		case err != nil:
			return err
		case first && answer != nil:
			if err := json.Unmarshal(result.Body, answer); err != nil {
				return fmt.Errorf("reading the answer %.100q: %w", result.Body, err)
			}
		}
	}
}
