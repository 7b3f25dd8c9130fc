package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/service/cluster"
	"github.com/reprise-rl/reprise/service/server"
	"github.com/reprise-rl/reprise/wire"
)

// certify writes a node's certificate, and that of its authority.
func certify(t *testing.T) access.TLS {
	t.Helper()
	certificate, key, ca := nettest.NewAuthority(t, "nodes").Files("node")
	return access.TLS{Certificate: certificate, Key: key, ClientCA: ca, Clients: access.ClientsOptional}
}

// Nodes show one another certificates and a secret. One with another authority's certificate, or with another secret,
// is left out. A table that a stopping node hands over has all of its rollouts but for their routed experts.
func TestNodesLetOnlyOneAnotherIn(t *testing.T) {
	tests.Long(t)
	good, other, dir := certify(t), certify(t), t.TempDir()
	for name, text := range map[string]string{"secret": "sixteen letters!", "other": "another sixteen!"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := nettest.FreeAddresses(t, 5)
	var log lines
	folders := make([]string, 5)
	for i := range folders {
		folders[i] = t.TempDir()
	}
	start := func(i int, tls access.TLS, secret string, timeout time.Duration) (*server.Server, error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return server.Start(ctx, server.Config{Listen: "127.0.0.1:0", HTTP: server.Off, TLS: tls,
			Options: service.Options{Data: folders[i]}, Cluster: cluster.Options{Node: fmt.Sprintf("n%d", i),
				Listen: at[i], Peers: at[:3], Domain: fmt.Sprintf("rack-%d", i), SecretFile: filepath.Join(dir, secret)},
		}, "test", slog.New(slog.NewTextHandler(&log, nil)))
	}
	servers, errs := make([]*server.Server, 5), make([]error, 5)
	var all sync.WaitGroup
	for i := range servers {
		all.Go(func() {
			switch i {
			case 3:
				servers[i], errs[i] = start(i, other, "secret", 20*time.Second)
			case 4:
				servers[i], errs[i] = start(i, good, "other", 20*time.Second)
			default:
				servers[i], errs[i] = start(i, good, "secret", 2*time.Minute)
			}
		})
	}
	all.Wait()
	var addresses []string
	t.Cleanup(func() {
		for _, s := range servers[:3] {
			if s != nil {
				_, _ = s.Stop()
			}
		}
	})
	for i, s := range servers {
		switch {
		case i < 3 && errs[i] != nil:
			t.Fatal(errs[i])
		case i < 3:
			addresses = append(addresses, s.Addresses.GRPC)
		case !errors.Is(errs[i], context.DeadlineExceeded) || !strings.Contains(errs[i].Error(), "want 2 nodes up"):
			t.Errorf("node %d was let in: %v", i, errs[i])
		}
	}
	s, err := client.DialAll(t.Context(), addresses, client.AllOptions{
		Options: client.Options{CA: good.ClientCA, RetryFor: time.Minute}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := wire.Table{Name: "lab", Options: replay.Options{Capacity: 100}}
	if _, err := s.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	w.Capacity = 200
	if _, err := s.Create(t.Context(), w); !errors.Is(err, wire.ErrExists) {
		t.Errorf("a table with another definition: %v", err)
	}
	loseExperts(t, s, servers, folders, &log)
	if err := s.Drop(t.Context(), "lab"); err != nil {
		t.Error(err)
	}
	if _, err := s.Table("lab").Info(t.Context()); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("a dropped table: %v", err)
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), what)
}

// loseExperts inserts a rollout with routed experts into a table, and has its owner stop.
func loseExperts(t *testing.T, s *client.Services, servers []*server.Server, folders []string,
	log *lines) {
	const earlier = "a-log-of-another-table-of-that-name"
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(folder, "experts", "experts", earlier), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w := wire.Table{Name: "experts", Options: replay.Options{Capacity: 100}}
	if _, err := s.CreateParts(t.Context(), w, 1); err != nil {
		t.Fatal(err)
	}
	r := rollout.New("p", []int32{1, 2}, rollout.Completion{Tokens: []int32{3}, Logprobs: []float32{-1}})
	r.RoutedExperts = []uint16{1, 2, 3}
	table := s.Table("experts")
	if _, err := table.Insert(t.Context(), rollout.Group{Rollouts: []*rollout.Rollout{r}}); err != nil {
		t.Fatal(err)
	}
	draw := func() *rollout.Rollout {
		b, err := table.Sample(t.Context(), rollout.Request{Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		return b.Draws[0].Rollout
	}
	if got := draw(); !slices.Equal(got.RoutedExperts, r.RoutedExperts) {
		t.Errorf("the owner has the experts %v", got.RoutedExperts)
	}
	for i := range servers {
		left, err := os.ReadDir(filepath.Join(folders[i], "experts", "experts"))
		if err == nil && left[0].Name() != earlier { // it is the owner
			if len(left) != 1 {
				t.Errorf("it has the experts of %d tables of that name", len(left))
			}
			if _, err := servers[i].Stop(); err != nil {
				t.Error(err)
			}
			servers[i] = nil
			break
		}
	}
	if got := draw(); !slices.Equal(got.Tokens, r.Tokens) || len(got.RoutedExperts) > 0 {
		t.Errorf("another node has %+v", got)
	}
	if !log.has("routed_experts are lost") {
		t.Error("the log does not say that they are lost")
	}
}
