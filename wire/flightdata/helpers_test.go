package flightdata_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a Flight service over this package: DoGet sends its batches, DoPut and DoExchange send back what they
// receive.
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
		grpc.InitialWindowSize(32<<20), grpc.InitialConnWindowSize(64<<20), grpc.WriteBufferSize(256<<10),
		grpc.ReadBufferSize(256<<10))...)
	flight.RegisterFlightServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(),
		append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit)),
			grpc.WithInitialWindowSize(32<<20), grpc.WithInitialConnWindowSize(64<<20), grpc.WithWriteBufferSize(256<<10),
			grpc.WithReadBufferSize(256<<10))...)
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

// ours returns the options of a server and a client with this package.
func ours() ([]grpc.ServerOption, grpc.DialOption) {
	return []grpc.ServerOption{flightdata.ServerOption()}, grpc.WithDefaultCallOptions(flightdata.CallOption())
}

// stock is a Flight service of Arrow's own. It records the batches of DoPut.
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

// equal reports whether two batches are equal.
func equal(a, b arrow.RecordBatch) bool { return array.RecordEqual(a, b) }

// draws returns n rollouts of the given tokens.
func draws(r *rand.Rand, n, tokens int) []rollout.Draw {
	all := make([]rollout.Draw, n)
	for i := range all {
		x := &rollout.Rollout{PromptID: fmt.Sprint("prompt ", i), Temperature: 1, TopP: 1, Reward: r.Float32(),
			Tokens: make([]int32, tokens), Mask: make([]uint8, tokens), Logprobs: make([]float32, tokens),
			Versions: make([]rollout.Version, tokens)}
		for k := range tokens {
			x.Tokens[k], x.Mask[k], x.Logprobs[k], x.Versions[k] = r.Int32(), 1, -r.Float32(), 3
		}
		all[i] = rollout.Draw{ID: rollout.ID(i + 1), Group: uint64(i), Rollout: x, Probability: r.Float64(), Weight: 1}
	}
	return all
}

func sampleSchema(t testing.TB) *arrow.Schema {
	t.Helper()
	s, err := wire.SampleSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sampled returns random batches of the sampling schema, some of them empty.
func sampled(t testing.TB, n int) []arrow.RecordBatch {
	t.Helper()
	var g wire.Gatherer
	r := rand.New(rand.NewPCG(1, 2))
	batches := make([]arrow.RecordBatch, n)
	for i := range batches {
		var err error
		if batches[i], err = g.Batch(draws(r, r.IntN(9), 1+r.IntN(3000)), sampleSchema(t)); err != nil {
			t.Fatal(err)
		}
	}
	return batches
}

// uncommon returns a batch of types that only Arrow's reader knows.
func uncommon(t testing.TB, seed uint64) arrow.RecordBatch {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	word := array.NewDictionaryBuilder(memory.DefaultAllocator,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8,
			ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	view := array.NewStringViewBuilder(memory.DefaultAllocator)
	for range 20 {
		text := fmt.Sprint("a prompt that is longer than twelve bytes ", r.IntN(5))
		if err := word.AppendString(text); err != nil {
			t.Fatal(err)
		}
		view.AppendString(text)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "word", Type: word.Type(), Nullable: true},
		{Name: "view", Type: view.Type(), Nullable: true}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{word.NewArray(), view.NewArray()}, 20)
}

// zeros returns a batch that compresses well.
func zeros(t testing.TB, n int) arrow.RecordBatch {
	t.Helper()
	b := array.NewInt32Builder(memory.DefaultAllocator)
	b.AppendValues(make([]int32, n), nil)
	return array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "zeros", Type: arrow.PrimitiveTypes.Int32}}, nil),
		[]arrow.Array{b.NewArray()}, int64(n))
}

// lentBatch returns a batch of one column in memory of an allocator.
func lentBatch(a memory.Allocator, n int) arrow.RecordBatch {
	b := memory.NewBufferWithAllocator(a.Allocate(4*n), a)
	d := array.NewData(arrow.PrimitiveTypes.Int32, n, []*memory.Buffer{nil, b}, nil, 0, 0)
	b.Release()
	c := array.NewInt32Data(d)
	d.Release()
	defer c.Release()
	return array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "numbers", Type: arrow.PrimitiveTypes.Int32}},
		nil), []arrow.Array{c}, int64(n))
}
