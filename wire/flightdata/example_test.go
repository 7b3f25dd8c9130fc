package flightdata_test

import (
	"context"
	"fmt"
	"net"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// giver is a service that sends one batch.
type giver struct{ flight.BaseFlightServer }

func (giver) DoGet(_ *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	schema, err := wire.SampleSchema([]string{"id", "tokens"})
	if err != nil {
		return err
	}
	var gatherer wire.Gatherer
	batch, err := gatherer.Batch([]rollout.Draw{{ID: 1, Rollout: &rollout.Rollout{Tokens: []int32{3, 1, 4}}}}, schema)
	if err != nil {
		return err
	}
	defer batch.Release() // gRPC may write it later: the writer sees to it
	return flightdata.NewWriter(stream, schema, nil).Write(batch, []byte("first"))
}

func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(flightdata.ServerOption())
	flight.RegisterFlightServiceServer(server, &giver{})
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(flightdata.CallOption()))
	if err != nil {
		panic(err)
	}
	stream, err := flight.NewFlightServiceClient(conn).DoGet(context.Background(), &flight.Ticket{})
	if err != nil {
		panic(err)
	}
	frame, err := flightdata.NewReader(stream, flightdata.Options{}).Next()
	if err != nil {
		panic(err)
	}
	draws, err := wire.Draws(frame.Batch, nil)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s: rollout %d of tokens %v\n", frame.Metadata, draws[0].ID, draws[0].Rollout.Tokens)

	conn.Close()
	server.Stop()
	<-done
	// Output: first: rollout 1 of tokens [3 1 4]
}
