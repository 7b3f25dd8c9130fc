//go:build unix

package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// BenchmarkAHop compares draws and insertions at a service with those through another service, which passes every
// message on and decodes none. That is the least that a service would do which divided a table into parts for its
// clients: docs/scale.md says why clients do it.
func BenchmarkAHop(b *testing.B) {
	const tokens = 2048
	own, stop := serve()
	b.Cleanup(stop)
	hop := forwarding(b, strings.TrimPrefix(own, "grpc://"))
	table := func(address, name string) *client.Table {
		c, err := client.Dial(context.Background(), address, client.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		if _, err := c.Create(context.Background(), wire.Table{Name: name,
			Options: replay.Options{Sampler: replay.Uniform, Capacity: 1024}}); err != nil {
			b.Fatal(err)
		}
		return c.Table(name)
	}
	for _, rows := range []int{8, 64, 512} {
		groups := slices.Repeat([]rollout.Group{long(1, tokens)}, rows)
		bytes := float64(int64(rows) * groups[0].Rollouts[0].Bytes())
		insert := func(t *client.Table) {
			if _, err := t.Insert(context.Background(), groups...); err != nil {
				b.Fatal(err)
			}
		}
		draw := func(t *client.Table) {
			if _, err := t.Sample(context.Background(), rollout.Request{Size: rows}); err != nil {
				b.Fatal(err)
			}
		}
		for name, call := range map[string]func(*client.Table){"insert": insert, "draw": draw} {
			b.Run(fmt.Sprintf("%s/%d", name, rows), func(b *testing.B) {
				direct := table(own, fmt.Sprint(name, rows, "direct", b.N))
				through := table(hop, fmt.Sprint(name, rows, "hop", b.N))
				for range 1 + 512/rows {
					insert(direct)
					insert(through)
				}
				var cpu [2]time.Duration
				var slow [2][]time.Duration
				for b.Loop() { // in turns, so that what else the machine does falls on both
					for i, t := range []*client.Table{direct, through} {
						began := time.Now()
						cpu[i] += cpuOf(b, func() { call(t) })
						slow[i] = append(slow[i], time.Since(began))
					}
				}
				p99 := func(list []time.Duration) float64 {
					slices.Sort(list)
					return float64(list[len(list)*99/100].Microseconds()) / 1000
				}
				b.ReportMetric(float64(cpu[0].Nanoseconds())/float64(b.N)/bytes, "ns-direct/B")
				b.ReportMetric(float64(cpu[1])/float64(cpu[0]), "hop/direct")
				b.ReportMetric(p99(slow[0]), "ms-p99-direct")
				b.ReportMetric(p99(slow[1]), "ms-p99-hop")
			})
		}
	}
}

// forwarding starts a service that passes all calls on to another, and returns its address.
func forwarding(b *testing.B, to string) string {
	b.Helper()
	const window = 8 << 20
	onward, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithReadBufferSize(window/8), grpc.WithWriteBufferSize(window/8),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(1<<30), grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window), grpc.ReadBufferSize(window/8), grpc.WriteBufferSize(window/8),
		grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(in)
			ctx, cancel := context.WithCancel(in.Context())
			defer cancel()
			out, err := onward.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
			if err != nil {
				return err
			}
			go func() {
				if pass(in, out) == nil {
					_ = out.CloseSend()
				}
			}()
			return pass(out, in)
		}))
	go func() { _ = s.Serve(l) }()
	b.Cleanup(func() {
		s.Stop()
		_ = onward.Close()
	})
	return "grpc://" + l.Addr().String()
}

// pass passes messages on until there are no more.
func pass(from interface{ RecvMsg(any) error }, to interface{ SendMsg(any) error }) error {
	for {
		var m mem.BufferSlice
		if err := from.RecvMsg(&m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := to.SendMsg(&m); err != nil {
			return err
		}
	}
}

// raw leaves messages as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	m := *v.(*mem.BufferSlice)
	return m, nil
}

func (raw) Unmarshal(m mem.BufferSlice, v any) error {
	m.Ref()
	*v.(*mem.BufferSlice) = m
	return nil
}
