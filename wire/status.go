package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
)

// Code says what an error is to whoever called. On the wire it stands before the message, "full: …", so that clients of any
// language can tell a retryable error from the others.
type Code string

// The codes.
const (
	Invalid         Code = "invalid"         // the request can never be served
	Full            Code = "full"            // no room, within the timeout: retry
	Starved         Code = "starved"         // too few rollouts, within the timeout: retry
	Ahead           Code = "ahead"           // a rollout is newer than the table: retry after the trainer advanced it
	NoLease         Code = "no_lease"        // the batch is not on lease
	NotFound        Code = "not_found"       // no such table, checkpoint or action
	Exists          Code = "exists"          // a table of that name has another definition
	Unauthenticated Code = "unauthenticated" // no token, or not one that is known
	Denied          Code = "denied"          // the token does not give that right
	TooLarge        Code = "too_large"       // a message above the limit
	Closing         Code = "closing"         // the service is stopping: retry elsewhere or later
	Failed          Code = "failed"          // the service could not do it: the disk, or a defect
)

// ErrNotFound, ErrExists, ErrDenied, ErrClosing and ErrTooLarge are what the codes of those names come to in Go, as
// rollout.ErrFull and its kin are for theirs; ErrDenied stands for unauthenticated too.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists with another definition")
	ErrDenied   = errors.New("not allowed")
	ErrClosing  = errors.New("service is stopping")
	ErrTooLarge = errors.New("message is too large")
)

// Status is an error as JSON, for streams that go on after it.
type Status struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

type kind struct {
	code Code
	grpc codes.Code
	is   error // nil: told by its code alone
}

// kinds returns the codes in the order in which errors are tried against them.
func kinds() []kind {
	return []kind{
		{Full, codes.ResourceExhausted, rollout.ErrFull},
		{Starved, codes.Unavailable, rollout.ErrStarved},
		{Ahead, codes.FailedPrecondition, rollout.ErrAhead},
		{NoLease, codes.FailedPrecondition, rollout.ErrNoLease},
		{TooLarge, codes.ResourceExhausted, ErrTooLarge},
		{Invalid, codes.InvalidArgument, rollout.ErrInvalid},
		{NotFound, codes.NotFound, ErrNotFound},
		{Exists, codes.AlreadyExists, ErrExists},
		{Unauthenticated, codes.Unauthenticated, ErrDenied},
		{Denied, codes.PermissionDenied, ErrDenied},
		{Closing, codes.Unavailable, ErrClosing},
		{Failed, codes.Internal, nil},
	}
}

// CodeOf returns the code of an error.
func CodeOf(err error) Code {
	var coded *codedError
	if errors.As(err, &coded) {
		return coded.code
	}
	for _, k := range kinds() {
		if k.is != nil && errors.Is(err, k.is) {
			return k.code
		}
	}
	return Failed
}

// Retryable tells whether the same request may succeed later.
func (c Code) Retryable() bool { return slices.Contains([]Code{Full, Starved, Ahead, Closing}, c) }

// ToGRPC returns an error as a grpc status whose message begins with its code. The end of a context stays what it is.
func ToGRPC(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	code := CodeOf(err)
	for _, k := range kinds() {
		if k.code == code {
			return status.Errorf(k.grpc, "%s: %s", code, shorten(err.Error()))
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// maxMessage is how long a status's message may be, in bytes: it travels in a header, of which many clients take 8 KB in all,
// where bytes that are no plain ASCII take three each.
const maxMessage = 2500

// shorten leaves out the middle of a text that is too long: what is wrong stands at its beginning, what to do at its end.
func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const half = maxMessage/2 - 32
	return strings.ToValidUTF8(text[:half], "") + fmt.Sprintf(" … (%d bytes) … ", len(text)-2*half) + strings.ToValidUTF8(text[len(text)-half:], "")
}

// FromGRPC is the error that a status of ours stands for: it wraps rollout.ErrFull and its kin, or an error of this package. What
// grpc itself says of a message above its limit is TooLarge. Any other error is returned as it is.
func FromGRPC(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	code, message, found := strings.Cut(s.Message(), ": ")
	if found {
		if e := (Status{Code(code), message}).Err(); e != nil {
			return e
		}
	}
	if s.Code() == codes.ResourceExhausted { // grpc answers before any handler can
		return Errorf(TooLarge, "%s", s.Message())
	}
	return err
}

// Err is the error that a status stands for, nil if its code is not known.
func (s Status) Err() error {
	for _, k := range kinds() {
		if k.code == s.Code {
			return &codedError{code: s.Code, message: s.Message, is: k.is}
		}
	}
	return nil
}

// StatusOf is an error as JSON can hold it.
func StatusOf(err error) *Status { return &Status{Code: CodeOf(err), Message: err.Error()} }

// codedError is an error with a code of its own.
type codedError struct {
	code    Code
	message string
	is      error
}

// Errorf returns an error with a code.
func Errorf(code Code, format string, args ...any) error {
	return Status{code, fmt.Sprintf(format, args...)}.Err()
}

func (e *codedError) Error() string { return e.message }
func (e *codedError) Unwrap() error { return e.is }
