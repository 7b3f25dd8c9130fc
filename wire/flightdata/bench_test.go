package flightdata_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// floor is a raw socket: a byte 'g' gets a batch of bytes; any other byte is followed by a batch and gets one byte.
type floor struct {
	conn  net.Conn
	batch []byte
}

func newFloor(b *testing.B, size int) *floor {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		batch, one := make([]byte, size), make([]byte, 1)
		for {
			if _, err := io.ReadFull(c, one); err != nil {
				return
			}
			if one[0] == 'g' {
				_, err = c.Write(batch)
			} else if _, err = io.ReadFull(c, batch); err == nil {
				_, err = c.Write(one)
			}
			if err != nil {
				return
			}
		}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		conn.Close()
		listener.Close()
		<-done
	})
	return &floor{conn, make([]byte, size)}
}

func (f *floor) get() error {
	if _, err := f.conn.Write([]byte{'g'}); err != nil {
		return err
	}
	_, err := io.ReadFull(f.conn, f.batch)
	return err
}

func (f *floor) put() error {
	_, err1 := f.conn.Write([]byte{'p'})
	_, err2 := f.conn.Write(f.batch)
	_, err3 := io.ReadFull(f.conn, f.batch[:1])
	return errors.Join(err1, err2, err3)
}

// answering answers each app_metadata of an exchange with a batch, as a table's service does.
type answering struct {
	flight.BaseFlightServer
	draws    []rollout.Draw
	gatherer wire.Gatherer
	pool     wire.Pool
}

func (a *answering) DoExchange(stream flight.FlightService_DoExchangeServer) error {
	schema, err := wire.SampleSchema(nil)
	if err != nil {
		return err
	}
	r, w := flightdata.NewReader(stream, flightdata.Options{}), flightdata.NewWriter(stream, schema, nil)
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		rec, err := a.gatherer.Batch(a.draws, schema)
		if err != nil {
			return err
		}
		err = w.Write(rec, nil)
		rec.Release()
		if err != nil {
			return err
		}
	}
}

func (a *answering) DoPut(stream flight.FlightService_DoPutServer) error {
	r := flightdata.NewReader(stream, flightdata.Options{Allocator: &a.pool})
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		_, _, err = wire.Groups(f.Batch, nil)
		f.Batch.Release()
		if err == nil {
			err = stream.Send(&flight.PutResult{})
		}
		if err != nil {
			return err
		}
	}
}

// BenchmarkLoopback measures a batch from the service until it is decoded, and an insertion until the service has
// decoded it, in turns with the same bytes over a raw socket.
func BenchmarkLoopback(b *testing.B) {
	for _, tokens := range []int{256, 4096} {
		service := &answering{draws: draws(rand.New(rand.NewPCG(1, 1)), 64, tokens)}
		server, dial := ours()
		client := flight.NewFlightServiceClient(serve(b, service, server, dial))
		raw := newFloor(b, 64*tokens*13)
		b.Run(fmt.Sprintf("get/64x%d", tokens), func(b *testing.B) {
			stream, err := client.DoExchange(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			defer stream.CloseSend()
			w, r := flightdata.NewWriter(stream, nil, nil),
				flightdata.NewReader(stream, flightdata.Options{Allocator: new(wire.Pool)})
			compare(b, 64*tokens*13, raw.get, func() error {
				if err := w.WriteMetadata([]byte("next")); err != nil {
					return err
				}
				f, err := r.Next()
				if err != nil {
					return err
				}
				_, err = wire.Draws(f.Batch, nil)
				f.Batch.Release()
				return err
			})
		})
		b.Run(fmt.Sprintf("put/64x%d", tokens), func(b *testing.B) {
			stream, err := client.DoPut(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			defer stream.CloseSend()
			groups := make([]rollout.Group, len(service.draws))
			for i, d := range service.draws {
				groups[i].Rollouts = []*rollout.Rollout{d.Rollout}
			}
			var g wire.Gatherer
			schema := wire.InsertSchema()
			w := flightdata.NewWriter(stream, schema, nil)
			compare(b, 64*tokens*13, raw.put, func() error {
				rec, err := g.Rows(groups, schema)
				if err != nil {
					return err
				}
				err = w.Write(rec, nil)
				rec.Release()
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			})
		})
	}
}

// compare measures both in turns and reports medians: bytes per second, and the share of the floor's speed.
func compare(b *testing.B, size int, floor, ours func() error) {
	var base, own []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := floor(); err != nil {
			b.Fatal(err)
		}
		base = append(base, time.Since(start))
		start = time.Now()
		if err := ours(); err != nil {
			b.Fatal(err)
		}
		own = append(own, time.Since(start))
	}
	slices.Sort(base)
	slices.Sort(own)
	median, most := own[len(own)/2], base[len(base)/2]
	b.ReportMetric(float64(size)/median.Seconds()/1e9, "GB/s")
	b.ReportMetric(float64(size)/most.Seconds()/1e9, "raw-GB/s")
	b.ReportMetric(most.Seconds()/median.Seconds(), "of-raw")
	b.ReportMetric(float64(median.Microseconds()), "p50-us")
}
