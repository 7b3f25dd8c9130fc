package service

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// benched is a service on loopback TCP with a client that copies no more than the service does.
func benched(b *testing.B, o Options) flight.FlightServiceClient {
	b.Helper()
	o.Logger = quiet()
	s, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	g := grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(s.Listener(l)) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(flightdata.CallOption(), grpc.MaxCallRecvMsgSize(1<<28),
			grpc.MaxCallSendMsgSize(1<<28)),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithReadBufferSize(socketBuffer), grpc.WithWriteBufferSize(socketBuffer))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := conn.Close(); err != nil {
			b.Error(err)
		}
		if _, err := s.Stop(context.Background()); err != nil {
			b.Error(err)
		}
		g.Stop()
		<-ended
	})
	return flight.NewFlightServiceClient(conn)
}

// sizes are rollouts of a batch, and tokens of each.
func sizes() map[string][2]int {
	return map[string][2]int{"64x256": {64, 256}, "64x4096": {64, 4096}}
}

func BenchmarkInsert(b *testing.B) {
	for name, size := range sizes() {
		b.Run(name, func(b *testing.B) {
			client := benched(b, Options{Tables: []wire.Table{{Name: "a", Options: replay.Options{Capacity: 1024}}}})
			benchInsert(b, client, size)
		})
		b.Run(name+"/durable", func(b *testing.B) {
			client := benched(b, Options{Data: b.TempDir(),
				Tables: []wire.Table{{Name: "a", Options: replay.Options{Capacity: 1024}}}})
			benchInsert(b, client, size)
		})
	}
}

func benchGroups(size [2]int) []rollout.Group {
	groups := make([]rollout.Group, size[0])
	for i := range groups {
		groups[i] = one(answer(size[1]-2, 0, 0))
	}
	return groups
}

func benchInsert(b *testing.B, client flight.FlightServiceClient, size [2]int) {
	rec := rows(b, benchGroups(size)...)
	defer rec.Release()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.DoPut(ctx)
	if err != nil {
		b.Fatal(err)
	}
	w := flightdata.NewWriter(stream, rec.Schema(), path("a"))
	b.SetBytes(recordBytes(rec))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(rec, nil); err != nil {
			b.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*size[0])/b.Elapsed().Seconds(), "rollouts/s")
}

func BenchmarkSample(b *testing.B) {
	for name, size := range sizes() {
		for _, prefetch := range []int{0, 1} {
			b.Run(name+map[int]string{0: "", 1: "/prefetch"}[prefetch], func(b *testing.B) {
				client := benched(b, Options{Tables: []wire.Table{{Name: "a",
					Options: replay.Options{Capacity: 1024}}}})
				benchSample(b, client, size, prefetch)
			})
		}
	}
}

func benchSample(b *testing.B, client flight.FlightServiceClient, size [2]int, prefetch int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	put, err := client.DoPut(ctx)
	if err != nil {
		b.Fatal(err)
	}
	rec := rows(b, benchGroups(size)...)
	defer rec.Release()
	w := flightdata.NewWriter(put, rec.Schema(), path("a"))
	for range 4 {
		if err := w.Write(rec, nil); err != nil {
			b.Fatal(err)
		}
		if _, err := put.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	stream, err := client.DoExchange(ctx)
	if err != nil {
		b.Fatal(err)
	}
	request, err := json.Marshal(wire.SampleRequest{Table: "a", Size: size[0], Prefetch: &prefetch})
	if err != nil {
		b.Fatal(err)
	}
	out := flightdata.NewWriter(stream, rec.Schema(), path("a"))
	in := flightdata.NewReader(stream, flightdata.Options{Allocator: new(wire.Pool)})
	var bytes int64
	b.ReportAllocs()
	for b.Loop() {
		if err := out.WriteMetadata(request); err != nil {
			b.Fatal(err)
		}
		frame, err := in.Next()
		if err == io.EOF || err != nil {
			b.Fatal(err)
		}
		bytes = recordBytes(frame.Batch)
		frame.Batch.Release()
	}
	b.SetBytes(bytes)
	b.ReportMetric(float64(b.N*size[0])/b.Elapsed().Seconds(), "rollouts/s")
}

// A batch is drawn while insertions into a durable table go on: most batches have a rollout whose write is under way.
func BenchmarkSampleWhileInserting(b *testing.B) {
	size := sizes()["64x256"]
	for _, prefetch := range []int{0, 1} {
		b.Run(map[int]string{0: "64x256", 1: "64x256/prefetch"}[prefetch], func(b *testing.B) {
			client := benched(b, Options{Data: b.TempDir(),
				Tables: []wire.Table{{Name: "a", Options: replay.Options{Capacity: 1024}}}})
			ctx, cancel := context.WithCancel(context.Background())
			put, err := client.DoPut(ctx)
			if err != nil {
				b.Fatal(err)
			}
			rec := rows(b, benchGroups(size)...)
			defer rec.Release()
			w := flightdata.NewWriter(put, rec.Schema(), path("a"))
			inserted, ended := 0, make(chan struct{})
			go func() {
				defer close(ended)
				for ; w.Write(rec, nil) == nil; inserted += size[0] {
					if _, err := put.Recv(); err != nil {
						return
					}
				}
			}()
			benchSample(b, client, size, prefetch)
			cancel()
			<-ended
			b.ReportMetric(float64(inserted)/b.Elapsed().Seconds(), "inserted/s")
		})
	}
}
