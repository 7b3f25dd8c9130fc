package flightdata_test

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// giving returns a service of batches, each with its number as app_metadata.
func giving(batches []arrow.RecordBatch) *echo {
	return &echo{schema: batches[0].Schema(), give: func(w *flightdata.Writer) error {
		for i, b := range batches {
			if err := w.Write(b, []byte{byte(i)}); err != nil {
				return err
			}
		}
		return nil
	}}
}

// readAll compares what a stream brings with batches.
func readAll(t *testing.T, r *flightdata.Reader, want []arrow.RecordBatch) {
	t.Helper()
	for i := range want {
		f, err := r.Next()
		if err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		if !equal(f.Batch, want[i]) || len(f.Metadata) != 1 || f.Metadata[0] != byte(i) {
			t.Errorf("batch %d is not what was sent, or metadata is %v", i, f.Metadata)
		}
		f.Batch.Release()
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last batch: %v", err)
		}
	}
}

func TestBatchesArriveUnchanged(t *testing.T) {
	server, dial := ours()
	want := sampled(t, 12)
	conn := serve(t, giving(want), server, dial)
	stream, err := flight.NewFlightServiceClient(conn).DoGet(context.Background(), &flight.Ticket{})
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, flightdata.NewReader(stream, flightdata.Options{}), want)
	if stream, err = flight.NewFlightServiceClient(conn).DoGet(context.Background(), &flight.Ticket{}); err != nil {
		t.Fatal(err)
	}
	readAll(t, flightdata.NewReader(stream, flightdata.Options{Allocator: new(wire.Pool)}), want)
}

func TestAStockClientReadsFromOurServer(t *testing.T) {
	want := sampled(t, 12)
	conn := serve(t, giving(want), []grpc.ServerOption{flightdata.ServerOption()})
	stream, err := flight.NewFlightServiceClient(conn).DoGet(context.Background(), &flight.Ticket{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	for i := range want {
		if !r.Next() || !equal(r.RecordBatch(), want[i]) || r.LatestAppMetadata()[0] != byte(i) {
			t.Fatalf("batch %d: %v", i, r.Err())
		}
	}
	if r.Next() || r.Err() != nil {
		t.Errorf("after the last batch: %v", r.Err())
	}
}

func TestWeReadFromAStockServer(t *testing.T) {
	_, dial := ours()
	want := sampled(t, 12)
	conn := serve(t, &stock{batches: want}, nil, dial)
	stream, err := flight.NewFlightServiceClient(conn).DoGet(context.Background(), &flight.Ticket{})
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, flightdata.NewReader(stream, flightdata.Options{}), want)
}

func TestWePutToAStockServer(t *testing.T) {
	_, dial := ours()
	want := sampled(t, 6)
	s := &stock{}
	conn := serve(t, s, nil, dial)
	stream, err := flight.NewFlightServiceClient(conn).DoPut(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	w := flightdata.NewWriter(stream, want[0].Schema(), &flight.FlightDescriptor{Type: flight.DescriptorPATH,
		Path: []string{"table"}})
	for i, b := range want {
		if err := w.Write(b, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if result, err := stream.Recv(); err != nil || result.AppMetadata[0] != byte(i) {
			t.Fatalf("batch %d: %v, %v", i, result, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for i := range want {
		if !equal(s.got[i], want[i]) {
			t.Errorf("batch %d is not what was put", i)
		}
	}
}

// put sends batches with a stock writer to our service, and returns those it received and the stream's error.
func put(t *testing.T, o flightdata.Options, batches []arrow.RecordBatch, write ...ipc.Option) ([]arrow.RecordBatch,
	error) {
	t.Helper()
	var got []arrow.RecordBatch
	service := &echo{options: o, taken: func(d *flight.FlightDescriptor, f flightdata.Frame) error {
		if len(d.GetPath()) != 1 || d.Path[0] != "table" {
			t.Errorf("the descriptor is %v", d)
		}
		f.Batch.Retain()
		got = append(got, f.Batch)
		return nil
	}}
	conn := serve(t, service, []grpc.ServerOption{flightdata.ServerOption()})
	stream, err := flight.NewFlightServiceClient(conn).DoPut(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	w := flight.NewRecordWriter(stream, append(write, ipc.WithSchema(batches[0].Schema()))...)
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"table"}})
	for _, b := range batches {
		if w.Write(b) != nil {
			break // the error is the stream's
		}
	}
	w.Close()
	stream.CloseSend()
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return got, nil
		} else if err != nil {
			return got, err
		}
	}
}

func TestAStockClientPutsToOurServer(t *testing.T) {
	for name, write := range map[string][]ipc.Option{"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}} {
		for kind, want := range map[string][]arrow.RecordBatch{"rollouts": sampled(t, 5),
			"dictionaries and views": {uncommon(t, 1), uncommon(t, 2), uncommon(t, 2)}} {
			got, err := put(t, flightdata.Options{Allocator: new(wire.Pool)}, want, write...)
			if err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			for i := range want {
				if i >= len(got) || !equal(got[i], want[i]) {
					t.Errorf("%s, %s: batch %d of %d is not what was put", name, kind, i, len(got))
				}
			}
		}
	}
}

func TestMessagesAboveTheLimitAreRefused(t *testing.T) {
	want := sampled(t, 3)
	for name, write := range map[string][]ipc.Option{"plain": nil, "compressed": {ipc.WithZstd()}} {
		// The compressed body is small enough, and too large once it is not compressed any more.
		o := flightdata.Options{MaxBytes: 40_000}
		got, err := put(t, o, []arrow.RecordBatch{zeros(t, 20_000)}, write...)
		if err = wire.FromGRPC(err); !errors.Is(err, wire.ErrTooLarge) || len(got) > 0 {
			t.Errorf("%s: took %d batches, %v", name, len(got), err)
		}
		if got, err := put(t, o, []arrow.RecordBatch{zeros(t, 2_000)}, write...); err != nil || len(got) != 1 {
			t.Errorf("%s: took %d batches below the limit, %v", name, len(got), err)
		}
	}
	if got, err := put(t, flightdata.Options{MaxBytes: 1 << 10},
		[]arrow.RecordBatch{uncommon(t, 1), want[0]}); !errors.Is(wire.FromGRPC(err), wire.ErrTooLarge) {
		t.Errorf("took %d batches with dictionaries, %v", len(got), err)
	}
}

func TestMetadataTravelsAloneOnAnExchange(t *testing.T) {
	server, dial := ours()
	batches := sampled(t, 3)
	conn := serve(t, &echo{schema: batches[0].Schema()}, server, dial)
	stream, err := flight.NewFlightServiceClient(conn).DoExchange(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	w := flightdata.NewWriter(stream, batches[0].Schema(), &flight.FlightDescriptor{Type: flight.DescriptorPATH,
		Path: []string{"table"}})
	r := flightdata.NewReader(stream, flightdata.Options{})
	for i, b := range batches {
		if err := w.WriteMetadata([]byte("alone")); err != nil {
			t.Fatal(err)
		}
		if f, err := r.Next(); err != nil || f.Batch != nil || string(f.Metadata) != "alone" {
			t.Fatalf("got %+v, %v", f, err)
		}
		if err := w.Write(b, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if f, err := r.Next(); err != nil || !equal(f.Batch, b) || f.Metadata[0] != byte(i) {
			t.Fatalf("got %+v, %v", f, err)
		}
	}
	if r.Descriptor() != nil {
		t.Errorf("descriptor %v: want none of a server", r.Descriptor())
	}
	stream.CloseSend()
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// hash hashes the content of a batch without its validity bitmaps, which may be padded.
func hash(rec arrow.RecordBatch) uint64 {
	h := fnv.New64a()
	var visit func(arrow.ArrayData)
	visit = func(d arrow.ArrayData) {
		for i, b := range d.Buffers() {
			if b != nil && i > 0 {
				h.Write(b.Bytes())
			}
		}
		for _, c := range d.Children() {
			visit(c)
		}
	}
	for _, c := range rec.Columns() {
		visit(c.Data())
	}
	return h.Sum64()
}

// throttled is a connection that is read slowly, so that the sender runs ahead.
type throttled struct {
	net.Conn
	read atomic.Int64
}

func (c *throttled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), 32<<10)])
	if before := c.read.Load(); before>>21 != c.read.Add(int64(n))>>21 {
		time.Sleep(time.Millisecond) // not to wait for anything, but to be slow
	}
	return n, err
}

// counting counts blocks in use and overwrites freed ones, so that a reader of freed memory reads garbage.
type counting struct {
	wire.Pool
	out atomic.Int64
}

func (c *counting) Allocate(n int) []byte {
	c.out.Add(1)
	return c.Pool.Allocate(n)
}

func (c *counting) Free(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
	c.out.Add(-1)
	c.Pool.Free(b)
}

// pooledBatch returns a batch in pooled memory.
func pooledBatch(r *rand.Rand, schema *arrow.Schema, g *wire.Gatherer, tokens int) (arrow.RecordBatch, error) {
	return g.Batch(draws(r, 1+r.IntN(4), tokens), schema)
}

func TestPooledMemoryIsHeldUntilASlowReaderHasReadIt(t *testing.T) {
	const batches = 500
	var g wire.Gatherer
	schema := sampleSchema(t)
	hashes := make(chan uint64, batches)
	var done atomic.Int64
	service := &echo{schema: schema, give: func(w *flightdata.Writer) error {
		r := rand.New(rand.NewPCG(1, 1))
		for range batches {
			rec, err := pooledBatch(r, schema, &g, 1+r.IntN(4000))
			if err != nil {
				return err
			}
			hashes <- hash(rec)
			err = w.WriteThen(rec, nil, func() { done.Add(1) })
			rec.Release() // the next batch may take the memory as soon as gRPC has let go of it
			if err != nil {
				return err
			}
		}
		close(hashes)
		return nil
	}}
	server, dial := ours()
	conn := serve(t, service, server, dial,
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return &throttled{Conn: c}, err
		}))
	stream, err := flight.NewFlightServiceClient(conn).DoGet(context.Background(), &flight.Ticket{})
	if err != nil {
		t.Fatal(err)
	}
	pool := &counting{}
	r := flightdata.NewReader(stream, flightdata.Options{Allocator: pool})
	for i := range batches {
		f, err := r.Next()
		if err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		if got, want := hash(f.Batch), <-hashes; got != want {
			t.Fatalf("batch %d has hash %x, not %x", i, got, want)
		}
		f.Batch.Release()
		if n := pool.out.Load(); n != 0 {
			t.Fatalf("after batch %d was released %d blocks are out", i, n)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if n := done.Load(); n != batches {
		t.Errorf("%d of %d batches are done", n, batches)
	}
}

func TestABrokenStreamReturnsItsMemory(t *testing.T) {
	// The reader leaves in the middle: lent memory comes back once gRPC has noticed. One message may be lost to the
	// pool, but not to the garbage collector: gRPC does not free a message that it gets just after it has closed the
	// stream. The connection stays, because without it gRPC would also drop the stream's queue.
	const most = 2 // that message, and the batch that made the schema
	pool := &counting{}
	returned := make(chan struct{})
	values := func() arrow.RecordBatch { return lentBatch(pool, 100_000) }
	service := &echo{schema: values().Schema(), give: func(w *flightdata.Writer) error {
		defer close(returned)
		for {
			rec := values()
			err := w.Write(rec, nil)
			rec.Release()
			if err != nil {
				return err
			}
		}
	}}
	server, dial := ours()
	conn := serve(t, service, server, dial)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := flight.NewFlightServiceClient(conn).DoGet(ctx, &flight.Ticket{})
	if err != nil {
		t.Fatal(err)
	}
	r := flightdata.NewReader(stream, flightdata.Options{})
	for range 3 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-returned
	for deadline := time.Now().Add(10 * time.Second); pool.out.Load() > most; {
		if time.Now().After(deadline) {
			t.Fatalf("%d blocks never came back", pool.out.Load()-most)
		}
		time.Sleep(time.Millisecond)
	}
}
