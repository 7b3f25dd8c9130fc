package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/cluster"
	"github.com/reprise-rl/reprise/service/server"
	"github.com/reprise-rl/reprise/wire"
)

// startCluster starts three nodes in this process and returns their addresses.
func startCluster(tb testing.TB) (addresses []string) {
	tb.Helper()
	peers := nettest.FreeAddresses(tb, 3)
	servers, errs := make([]*server.Server, 3), make([]error, 3)
	var all sync.WaitGroup
	for i := range servers {
		config := server.Config{Listen: "127.0.0.1:0", HTTP: server.Off, Options: service.Options{Data: tb.TempDir()},
			Cluster: cluster.Options{Node: fmt.Sprintf("n%d", i), Listen: peers[i], Peers: peers,
				Domain: fmt.Sprintf("rack-%d", i)}}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			servers[i], errs[i] = server.Start(ctx, config, "test", slog.New(slog.DiscardHandler))
		})
	}
	all.Wait()
	for i, s := range servers {
		if errs[i] != nil {
			tb.Fatal(errs[i])
		}
		tb.Cleanup(func() { _, _ = s.Stop() })
		addresses = append(addresses, s.Addresses.GRPC)
	}
	return addresses
}

// Tokens of a rollout of 64 KB, at 13 bytes each, and rollouts in a group.
const (
	ingestTokens = 64 << 10 / 13
	ingestGroup  = 8
)

func ingestGroups(n int) (list []rollout.Group) {
	for i := range n {
		var g rollout.Group
		for range ingestGroup {
			g.Rollouts = append(g.Rollouts, rollout.New(fmt.Sprint(i), make([]int32, 64), rollout.Completion{
				Tokens: make([]int32, ingestTokens-64), Logprobs: make([]float32, ingestTokens-64)}))
		}
		list = append(list, g)
	}
	return list
}

// ingest inserts groups from four clients at once, and returns megabytes a second.
func ingest(b *testing.B, addresses []string) float64 {
	b.Helper()
	s, err := client.DialAll(b.Context(), addresses, client.AllOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := s.Create(b.Context(), wire.Table{Name: "lab", Options: replay.Options{Capacity: 3 * 1024}})
		if err == nil {
			break
		} else if time.Now().After(end) {
			b.Fatal(err)
		}
	}
	groups, table := ingestGroups(8), s.Table("lab")
	var next, bytes atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range 4 {
		all.Go(func() {
			for int(next.Add(1)) <= 4*b.N {
				if _, err := table.Insert(b.Context(), groups...); err != nil {
					b.Error(err)
					return
				}
				for _, g := range groups {
					bytes.Add(ingestGroup * g.Rollouts[0].Bytes())
				}
			}
		})
	}
	all.Wait()
	return float64(bytes.Load()) / 1e6 / time.Since(began).Seconds()
}

// publish publishes messages of 64 KB to a replicated stream, and returns megabytes a second.
func publish(b *testing.B) float64 {
	b.Helper()
	at := nettest.FreeAddresses(b, 3)
	var first *natsserver.Server
	for i := range at {
		host, port, _ := net.SplitHostPort(at[i])
		o := &natsserver.Options{ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: natsserver.RANDOM_PORT,
			JetStream: true, StoreDir: b.TempDir(), SyncAlways: true, NoSigs: true,
			Cluster: natsserver.ClusterOpts{Name: "bench", Host: host}}
		if _, err := fmt.Sscan(port, &o.Cluster.Port); err != nil {
			b.Fatal(err)
		}
		for j := range at {
			if j != i {
				o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: at[j]})
			}
		}
		s, err := natsserver.NewServer(o)
		if err != nil {
			b.Fatal(err)
		}
		s.Start()
		b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if first == nil {
			first = s
		}
	}
	conn, err := nats.Connect("", nats.InProcessServer(first))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(128))
	if err != nil {
		b.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}, Replicas: 3})
		cancel()
		if err == nil {
			break
		} else if time.Now().After(end) {
			b.Fatal(err)
		}
	}
	message := make([]byte, 64<<10)
	n := 4 * b.N * 8 * ingestGroup
	began := time.Now()
	for range n {
		if _, err := js.PublishAsync("a", message, jetstream.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	return float64(n*len(message)) / 1e6 / time.Since(began).Seconds()
}

// Ingest into a table of three parts in a cluster of three nodes, beside one durable service and beside messages of the
// same size to one replicated stream of JetStream, all with every byte synced. All nodes share this machine's disk and
// cores. Run it with -benchtime 20x.
func BenchmarkIngest(b *testing.B) {
	for b.Loop() {
	}
	s, err := server.Start(b.Context(), server.Config{Listen: "127.0.0.1:0", HTTP: server.Off,
		Options: service.Options{Data: b.TempDir()}}, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	one := ingest(b, []string{s.Addresses.GRPC})
	if _, err := s.Stop(); err != nil {
		b.Fatal(err)
	}
	plain, replicated := publish(b), ingest(b, startCluster(b))
	b.ReportMetric(one, "service-MB/s")
	b.ReportMetric(plain, "JetStream-MB/s")
	b.ReportMetric(replicated, "cluster-MB/s")
	b.ReportMetric(replicated/plain, "cluster/JetStream")
	b.ReportMetric(replicated/27, "of-1,024-GPUs")
	b.ReportMetric(0, "ns/op")
}
