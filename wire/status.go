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

// Code classifies errors for callers. A status message begins with it, "full: …", so that clients in any language can
// tell retryable errors from the others.
type Code string

// The codes.
const (
	Invalid         Code = "invalid"         // the request can never succeed
	Full            Code = "full"            // no room within the timeout: retry
	Starved         Code = "starved"         // too few rollouts within the timeout: retry
	Ahead           Code = "ahead"           // a rollout is newer than the table: retry after the trainer advanced it
	NoLease         Code = "no_lease"        // the batch is not on lease
	NotFound        Code = "not_found"       // no such table, checkpoint or action
	Exists          Code = "exists"          // a table of that name has another definition
	Unauthenticated Code = "unauthenticated" // no token, or an unknown one
	Denied          Code = "denied"          // the token lacks the right
	TooLarge        Code = "too_large"       // a message above the limit
	Closing         Code = "closing"         // the service is stopping and did nothing: retry elsewhere or later
	DiskFull        Code = "disk_full"       // the disk has no space left: retry once it has
	Failed          Code = "failed"          // the service failed: the disk, or a defect

	// another service owns the table now, at the address that [AddressOf] returns: ask there; without an address nobody
	// does: retry
	Elsewhere Code = "elsewhere"

	// the service stopped, or lost the table to another, during the call, which may have been carried out: repeat it
	// under its id
	Interrupted Code = "interrupted"
)

// Errors that those codes become in Go, beside rollout.ErrFull and its kin. ErrDenied is also Unauthenticated.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("exists with another definition")
	ErrDenied    = errors.New("not allowed")
	ErrClosing   = errors.New("service is stopping")
	ErrTooLarge  = errors.New("message is too large")
	ErrDiskFull  = errors.New("the disk of the service is full")
	ErrElsewhere = errors.New("another service owns the table")

	ErrInterrupted = errors.New("the call was interrupted")
)

type kind struct {
	code Code
	grpc codes.Code
	is   error // nil: known by its code alone
}

// kinds returns the codes in the order in which [CodeOf] tries them.
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
		{DiskFull, codes.Unavailable, ErrDiskFull},
		{Elsewhere, codes.Unavailable, ErrElsewhere},
		{Interrupted, codes.Unavailable, ErrInterrupted},
		{Failed, codes.Internal, nil},
	}
}

// Retryable reports whether the same request may succeed later.
func (c Code) Retryable() bool {
	return slices.Contains([]Code{Full, Starved, Ahead, Closing, DiskFull, Elsewhere, Interrupted}, c)
}

// codedError is an error with a code.
type codedError struct {
	code    Code
	message string
	address string
	is      error
}

func (e *codedError) Error() string { return e.message }
func (e *codedError) Unwrap() error { return e.is }

// Errorf returns an error with a code.
func Errorf(code Code, format string, args ...any) error {
	return Status{Code: code, Message: fmt.Sprintf(format, args...)}.Err()
}

// ElsewhereError returns an error with code [Elsewhere]. The address is that of the service to ask, "" while there is
// none.
func ElsewhereError(address, format string, args ...any) error {
	return Status{Code: Elsewhere, Message: fmt.Sprintf(format, args...), Address: address}.Err()
}

// AddressOf returns the address of the service to ask after an error with code [Elsewhere], "" while there is none.
func AddressOf(err error) string {
	var coded *codedError
	if errors.As(err, &coded) {
		return coded.address
	}
	return ""
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

// Status is an error as JSON, for streams that go on after it.
type Status struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Address string `json:"address,omitempty"` // of code elsewhere: the service to ask
}

// StatusOf returns the status of an error.
func StatusOf(err error) *Status {
	return &Status{Code: CodeOf(err), Message: err.Error(), Address: AddressOf(err)}
}

// Err returns the error of a status, nil if its code is unknown.
func (s Status) Err() error {
	for _, k := range kinds() {
		if k.code == s.Code {
			return &codedError{code: s.Code, message: s.Message, address: s.Address, is: k.is}
		}
	}
	return nil
}

// ToGRPC returns an error as a gRPC status whose message begins with the code, "full: …", and with code elsewhere with
// the address after it, which may be empty: "elsewhere: grpc://b:7447: …". Errors of a context keep their own codes.
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
			if code == Elsewhere {
				return status.Errorf(k.grpc, "%s: %s: %s", code, AddressOf(err), shorten(err.Error()))
			}
			return status.Errorf(k.grpc, "%s: %s", code, shorten(err.Error()))
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// FromGRPC is the inverse of [ToGRPC]: the error wraps rollout.ErrFull and its kin, or an error of this package. gRPC's
// own error for a message above its limit becomes TooLarge. Any other error is returned as it is.
func FromGRPC(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	code, message, found := strings.Cut(s.Message(), ": ")
	if found {
		var address string
		if Code(code) == Elsewhere {
			address, message, _ = strings.Cut(message, ": ")
		}
		if e := (Status{Code(code), message, address}).Err(); e != nil {
			return e
		}
	}
	if s.Code() == codes.ResourceExhausted { // gRPC refuses the message before any handler sees it
		return Errorf(TooLarge, "%s", s.Message())
	}
	return err
}

// maxMessage bounds a status's message, in bytes. It travels in a header, where bytes other than ASCII take three each,
// and many clients accept 8 KB of headers in all.
const maxMessage = 2500

// shorten leaves out the middle of a long text: the problem stands at its beginning, the remedy at its end.
func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const half = maxMessage/2 - 32
	head, tail := strings.ToValidUTF8(text[:half], ""), strings.ToValidUTF8(text[len(text)-half:], "")
	return fmt.Sprintf("%s … (%d bytes) … %s", head, len(text)-2*half, tail)
}

// clip shortens a value for an error's text.
func clip(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:most], len(text))
}
