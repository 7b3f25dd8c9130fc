package service

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/internal/faults"
	"github.com/reprise-rl/reprise/wire"
)

// guarded is a stream whose context ends with the time of a stop too.
type guarded struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the guarded context.
func (g guarded) Context() context.Context { return g.ctx }

// guard is around every call: it ends the call's context when the time of a stop is up, and turns a panic into an
// error.
func (s *Service) guard(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.cut, cancel)()
	err = s.recovered(info.FullMethod, func() error { return next(server, guarded{stream, ctx}) })
	if s.cut.Err() != nil && status.Code(err) == codes.Canceled && stream.Context().Err() == nil {
		return wire.ToGRPC(errInterrupted())
	}
	if _, isStatus := status.FromError(err); !isStatus {
		return wire.ToGRPC(err)
	}
	return err
}

// recovered runs a part of a call. A panic of it becomes an error, so that it ends the call and not the process.
func (s *Service) recovered(part string, run func() error) error {
	err := faults.Recovered(part, run)
	if fault, ok := err.(*faults.Error); ok { //nolint:errorlint // one within is a journal's, and is known
		s.panics.Add(1)
		s.log.Error("a call panicked", "part", part, "panic", fault.Found, "stack", string(fault.Stack))
		err = wire.Errorf(wire.Failed, "%s: a fault in the service ended this call: its log says which; report it", part)
	}
	return err
}
