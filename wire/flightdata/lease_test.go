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
	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// hash sums up what a batch holds, but for bitmaps of nulls, which may be padded.
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

// throttled is a connection that is read in small pieces, with pauses that let the other end run ahead.
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

// counting counts the memory that is out, and scribbles over what comes back: who still reads it reads nonsense.
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

// pooledBatch is a batch over memory of a pool.
func pooledBatch(r *rand.Rand, schema *arrow.Schema, g *wire.Gatherer, tokens int) (arrow.RecordBatch, error) {
	return g.Batch(draws(r, 1+r.IntN(4), tokens), schema)
}

func TestPooledMemoryStaysUntilASlowReaderHasIt(t *testing.T) {
	const batches = 2000
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
	conn := serve(t, service, server, dial, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
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
	// The reader goes away in the middle: what was lent comes back once gRPC has noticed. One message may be lost to the pool, though
	// not to the garbage collector: gRPC does not free what it is given just after it has closed the stream. The connection stays: with it
	// gRPC would forget what the stream had in line, too.
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
