package service

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestCallersThatLeftAreNotCountedAsErrors(t *testing.T) {
	var counts tally
	for _, left := range []error{
		context.Canceled, fmt.Errorf("sending: %w", context.DeadlineExceeded), status.Error(codes.Unavailable, "transport is closing"),
		status.Error(codes.Canceled, "context canceled"),
	} {
		counts.failed(left)
	}
	if _, errors := counts.view(); len(errors) > 0 {
		t.Errorf("callers that left count as %v", errors)
	}
	for _, err := range []error{fmt.Errorf("sampling: %w", rollout.ErrStarved), wire.Errorf(wire.Closing, "stopping"), fmt.Errorf("the disk")} {
		counts.failed(err)
	}
	if _, errors := counts.view(); fmt.Sprint(errors) != "[{closing 1} {failed 1} {starved 1}]" {
		t.Errorf("errors count as %v", errors)
	}
}
