package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
)

func TestErrorsSurviveGRPC(t *testing.T) {
	for _, c := range []struct {
		err  error
		code Code
		grpc codes.Code
		is   error
	}{
		{fmt.Errorf("table a: %w", rollout.ErrFull), Full, codes.ResourceExhausted, rollout.ErrFull},
		{fmt.Errorf("table a: %w", rollout.ErrStarved), Starved, codes.Unavailable, rollout.ErrStarved},
		{fmt.Errorf("row 1: %w", rollout.ErrAhead), Ahead, codes.FailedPrecondition, rollout.ErrAhead},
		{fmt.Errorf("batch 7: %w", rollout.ErrNoLease), NoLease, codes.FailedPrecondition, rollout.ErrNoLease},
		{&rollout.FieldError{Row: 2, Field: "mask[1]", Value: "2", Remedy: "give 0 or 1"}, Invalid,
			codes.InvalidArgument, rollout.ErrInvalid},
		{Errorf(TooLarge, "message of %d bytes", 9), TooLarge, codes.ResourceExhausted, ErrTooLarge},
		{Errorf(NotFound, "table b"), NotFound, codes.NotFound, ErrNotFound},
		{Errorf(Exists, "table c"), Exists, codes.AlreadyExists, ErrExists},
		{Errorf(Unauthenticated, "no token"), Unauthenticated, codes.Unauthenticated, ErrDenied},
		{Errorf(Denied, "read only"), Denied, codes.PermissionDenied, ErrDenied},
		{Errorf(Closing, "stopping"), Closing, codes.Unavailable, ErrClosing},
		{Errorf(DiskFull, "disk of data"), DiskFull, codes.Unavailable, ErrDiskFull},
		{Errorf(Interrupted, "stopping"), Interrupted, codes.Unavailable, ErrInterrupted},
		{fmt.Errorf("inserting: %w", Errorf(Invalid, "name: bad")), Invalid, codes.InvalidArgument, rollout.ErrInvalid},
		{errors.New("disk"), Failed, codes.Internal, nil},
	} {
		sent := ToGRPC(c.err)
		s, _ := status.FromError(sent)
		if s.Code() != c.grpc || s.Message() != string(c.code)+": "+c.err.Error() || CodeOf(c.err) != c.code {
			t.Errorf("%v was sent as %v, of code %s", c.err, sent, CodeOf(c.err))
		}
		got := FromGRPC(sent)
		if got.Error() != c.err.Error() || CodeOf(got) != c.code || c.is != nil && !errors.Is(got, c.is) {
			t.Errorf("%v came back as %v, of code %s", c.err, got, CodeOf(got))
		}
		asJSON, err := json.Marshal(StatusOf(c.err))
		var back Status
		if err != nil || json.Unmarshal(asJSON, &back) != nil || CodeOf(back.Err()) != c.code ||
			back.Err().Error() != c.err.Error() {
			t.Errorf("%v came back from JSON as %v", c.err, back.Err())
		}
		if retry := c.code == Full || c.code == Starved || c.code == Ahead ||
			c.code == Closing || c.code == DiskFull || c.code == Interrupted; c.code.Retryable() != retry {
			t.Errorf("%s: retryable is %v", c.code, c.code.Retryable())
		}
	}
}

func TestTheAddressOfATableElsewhereSurvivesGRPCAndJSON(t *testing.T) {
	for _, address := range []string{"grpc://b:7447", "grpc+unix:///run/reprise.sock", ""} {
		err := fmt.Errorf("inserting: %w", ElsewhereError(address, "table lab: moved"))
		text, jsonErr := json.Marshal(StatusOf(err))
		var back Status
		if jsonErr != nil || json.Unmarshal(text, &back) != nil {
			t.Fatalf("%v became %s, %v", err, text, jsonErr)
		}
		for _, got := range []error{FromGRPC(ToGRPC(err)), back.Err()} {
			if !errors.Is(got, ErrElsewhere) || AddressOf(got) != address || got.Error() != err.Error() {
				t.Errorf("%v at %q came back as %v at %q", err, address, got, AddressOf(got))
			}
			if !CodeOf(got).Retryable() {
				t.Error("it cannot be retried")
			}
		}
	}
}

func TestContextErrorsKeepTheirCodes(t *testing.T) {
	for err, code := range map[error]codes.Code{context.Canceled: codes.Canceled,
		context.DeadlineExceeded: codes.DeadlineExceeded} {
		if got := status.Code(ToGRPC(fmt.Errorf("waiting: %w", err))); got != code {
			t.Errorf("%v was sent as %v", err, got)
		}
	}
	if ToGRPC(nil) != nil || FromGRPC(nil) != nil {
		t.Error("no error became one")
	}
}

func TestForeignErrorsAreReturnedUnchanged(t *testing.T) {
	for _, err := range []error{
		errors.New("dial tcp: refused"), status.Error(codes.Unavailable, "connection reset"),
		status.Error(codes.Internal, "unheard-of: by us"),
		status.Error(codes.Unknown, ""),
	} {
		if got := FromGRPC(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if (Status{Code: "unheard-of", Message: "m"}).Err() != nil {
		t.Error("an unknown code became an error of ours")
	}
}
