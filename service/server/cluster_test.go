package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/cluster"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/service/server"
	"github.com/reprise-rl/reprise/wire"
)

// certify writes the certificate of an authority, and one for 127.0.0.1 that it signed.
func certify(t *testing.T) access.TLS {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	make := func(c, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, signer = c, key
		}
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		c.SerialNumber = big.NewInt(time.Now().UnixNano())
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		made, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return made, key
	}
	authority, signer := make(&x509.Certificate{Subject: pkix.Name{CommonName: "nodes"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	node, key := make(&x509.Certificate{Subject: pkix.Name{CommonName: "node"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, authority, signer)
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return access.TLS{Certificate: write("node.pem", "CERTIFICATE", node.Raw), Key: write("key.pem",
		"EC PRIVATE KEY", secret), ClientCA: write("ca.pem", "CERTIFICATE", authority.Raw), Clients: access.ClientsOptional}
}

// Nodes show one another certificates and a secret. One with another authority's certificate, or with another secret,
// is left out.
func TestNodesLetOnlyOneAnotherIn(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds; make test runs it")
	}
	good, other, dir := certify(t), certify(t), t.TempDir()
	for name, text := range map[string]string{"secret": "sixteen letters!", "other": "another sixteen!"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := freeAddresses(t, 5)
	start := func(i int, tls access.TLS, secret string, patience time.Duration) (*server.Server, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return server.Start(ctx, server.Config{Listen: "127.0.0.1:0", HTTP: server.Off, TLS: tls,
			Options: service.Options{Data: t.TempDir()}, Cluster: cluster.Options{Node: fmt.Sprintf("n%d", i),
				Listen: at[i], Peers: at[:3], Domain: fmt.Sprintf("rack-%d", i), SecretFile: filepath.Join(dir, secret)},
		}, "test", slog.New(slog.DiscardHandler))
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
	for i, s := range servers {
		switch {
		case i < 3 && errs[i] != nil:
			t.Fatal(errs[i])
		case i < 3:
			t.Cleanup(func() { _, _ = s.Stop() })
			addresses = append(addresses, s.Addresses.GRPC)
		case !errors.Is(errs[i], context.DeadlineExceeded) || !strings.Contains(errs[i].Error(), "want 2 nodes up at"):
			t.Errorf("node %d was let in: %v", i, errs[i])
		}
	}
	s, err := client.DialAll(t.Context(), addresses, client.AllOptions{Options: client.Options{CA: good.ClientCA}})
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
	if err := s.Drop(t.Context(), "lab"); err != nil {
		t.Error(err)
	}
	if _, err := s.Table("lab").Info(t.Context()); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("a dropped table: %v", err)
	}
}
