package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// rawCodec sends and receives bytes as they are; *[]byte is the only type it knows.
type rawCodec struct{}

// Marshal returns the bytes.
func (rawCodec) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return nil, fmt.Errorf("%T is no *[]byte", v)
}

// Unmarshal copies the bytes.
func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no *[]byte", v)
	}
	*b = append((*b)[:0], data...)
	return nil
}

// Name is that of the codec which servers expect.
func (rawCodec) Name() string { return "proto" }

// callTimeout bounds one call of those who send nonsense.
const callTimeout = 3 * time.Second

// send makes a call of raw messages and returns how many answers came before its end, nil being a good one.
func send(ctx context.Context, conn *grpc.ClientConn, method string, messages ...[]byte) (answers int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/arrow.flight.protocol.FlightService/"+method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if err := stream.SendMsg(&m); err != nil {
			break // RecvMsg says why
		}
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	for {
		var answer []byte
		if err := stream.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return answers, nil
		} else if err != nil {
			return answers, err
		}
		answers++
	}
}

// rawConnection is a connection that carries raw messages.
func rawConnection(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20), grpc.MaxCallSendMsgSize(256<<20)))
}
