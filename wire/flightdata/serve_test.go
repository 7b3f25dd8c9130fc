package flightdata_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a Flight service over this package: DoGet gives its batches, DoPut and DoExchange take batches and give back what came.
type echo struct {
	flight.BaseFlightServer
	options flightdata.Options
	give    func(w *flightdata.Writer) error
	schema  *arrow.Schema
	taken   func(d *flight.FlightDescriptor, f flightdata.Frame) error
}

func (e *echo) DoGet(_ *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	return e.give(flightdata.NewWriter(stream, e.schema, nil))
}

func (e *echo) DoPut(stream flight.FlightService_DoPutServer) error {
	r := flightdata.NewReader(stream, e.options)
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = e.taken(r.Descriptor(), f)
		}
		if f.Batch != nil {
			f.Batch.Release()
		}
		if err == nil {
			err = stream.Send(&flight.PutResult{AppMetadata: f.Metadata})
		}
		if err != nil {
			return wire.ToGRPC(err)
		}
	}
}

func (e *echo) DoExchange(stream flight.FlightService_DoExchangeServer) error {
	r := flightdata.NewReader(stream, e.options)
	var w *flightdata.Writer
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return wire.ToGRPC(err)
		}
		if w == nil {
			w = flightdata.NewWriter(stream, e.schema, nil)
		}
		if f.Batch == nil {
			err = w.WriteMetadata(f.Metadata)
		} else {
			err = w.Write(f.Batch, f.Metadata)
			f.Batch.Release()
		}
		if err != nil {
			return err
		}
	}
}

const limit = 1 << 30

// serve runs a Flight service on the loopback and returns a connection to it.
func serve(t testing.TB, s flight.FlightServer, server []grpc.ServerOption, dial ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(server, grpc.MaxRecvMsgSize(limit),
		grpc.InitialWindowSize(32<<20), grpc.InitialConnWindowSize(64<<20), grpc.WriteBufferSize(256<<10), grpc.ReadBufferSize(256<<10))...)
	flight.RegisterFlightServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit)),
		grpc.WithInitialWindowSize(32<<20), grpc.WithInitialConnWindowSize(64<<20), grpc.WithWriteBufferSize(256<<10), grpc.WithReadBufferSize(256<<10))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// ours makes both ends of this package.
func ours() ([]grpc.ServerOption, grpc.DialOption) {
	return []grpc.ServerOption{flightdata.ServerOption()}, grpc.WithDefaultCallOptions(flightdata.CallOption())
}

// stock is a Flight service of Arrow's own, whose DoPut and DoExchange give back what came.
type stock struct {
	flight.BaseFlightServer
	batches []arrow.RecordBatch
	got     []arrow.RecordBatch
}

func (s *stock) DoGet(_ *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(stream, ipc.WithSchema(s.batches[0].Schema()))
	for i, b := range s.batches {
		if err := w.WriteWithAppMetadata(b, []byte{byte(i)}); err != nil {
			return err
		}
	}
	return w.Close()
}

func (s *stock) DoPut(stream flight.FlightService_DoPutServer) error {
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	defer r.Release()
	for r.Next() {
		r.RecordBatch().Retain()
		s.got = append(s.got, r.RecordBatch())
		if err := stream.Send(&flight.PutResult{AppMetadata: r.LatestAppMetadata()}); err != nil {
			return err
		}
	}
	return r.Err()
}

// equal tells whether two batches hold the same.
func equal(a, b arrow.RecordBatch) bool { return array.RecordEqual(a, b) }
