package access_test

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/service/access"
)

// shake carries out one handshake over a pipe and returns the server's common name and the protocol agreed on.
func shake(t *testing.T, server *tls.Config, client *tls.Config) (name, protocol string, err error) {
	t.Helper()
	// Both ends write their last word before they read: a socket holds it, a pipe in memory would not.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		c := tls.Server(raw, server)
		defer c.Close()
		served <- c.HandshakeContext(t.Context())
	}()
	c, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err == nil {
		state := c.(*tls.Conn).ConnectionState()
		name, protocol = state.PeerCertificates[0].Subject.CommonName, state.NegotiatedProtocol
		defer c.Close()
	}
	return name, protocol, errors.Join(err, <-served)
}

func TestACertificateIsReloadedWhenItsFilesChange(t *testing.T) {
	ca := nettest.NewAuthority(t, "tests")
	folder := t.TempDir()
	chain, key := ca.Issue("first")
	files := access.TLS{Certificate: write(t, folder, "c.pem", chain), Key: write(t, folder, "k.pem", key)}
	now := &clock{time.Unix(1000, 0)}
	certificates, err := access.NewCertificates(files, now.now, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := certificates.Config("h2", "http/1.1")
	client := &tls.Config{RootCAs: ca.Pool(), NextProtos: []string{"h2"}, ServerName: "localhost"}
	expect := func(when, want string) {
		t.Helper()
		name, protocol, err := shake(t, server, client)
		if err != nil || name != want || protocol != "h2" {
			t.Errorf("%s: %q by %q, %v; want %q", when, name, protocol, err, want)
		}
	}
	expect("at first", "first")

	chain, key = ca.Issue("second")
	write(t, folder, "c.pem", chain)
	now.forward(time.Second)
	expect("when the certificate is new and the key is not", "first")
	write(t, folder, "k.pem", key)
	expect("before a second has passed", "first")
	now.forward(time.Second)
	expect("when both are new", "second")

	chain, key = ca.Issue("third")
	write(t, folder, "c.pem", chain)
	if certificates.Reload() == nil {
		t.Error("a certificate was loaded with another's key")
	}
	write(t, folder, "k.pem", key)
	if err := certificates.Reload(); err != nil {
		t.Error(err)
	}
	expect("after a reload", "third")
}

func TestAttackAClockSteppedBackKeepsNoRevokedAuthority(t *testing.T) {
	ca, revoked := nettest.NewAuthority(t, "tests"), nettest.NewAuthority(t, "revoked")
	folder := t.TempDir()
	chain, key := ca.Issue("server")
	now := &clock{time.Unix(1_000_000, 0)}
	certificates, err := access.NewCertificates(access.TLS{
		Certificate: write(t, folder, "c.pem", chain), Key: write(t, folder, "k.pem", key),
		ClientCA: write(t, folder, "ca.pem", append(ca.PEM(), revoked.PEM()...)),
	}, now.now, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := certificates.Config("h2")
	client := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost",
		Certificates: []tls.Certificate{revoked.Pair("node")}}
	if _, _, err := shake(t, server, client); err != nil {
		t.Fatal(err)
	}
	write(t, folder, "ca.pem", ca.PEM())
	now.forward(-time.Hour)
	if _, _, err := shake(t, server, client); err == nil {
		t.Error("a certificate of an authority that was revoked before the clock went back is accepted")
	}
}

func TestClientsMustShowCertificatesThatTheirAuthoritySigned(t *testing.T) {
	ca, other := nettest.NewAuthority(t, "tests"), nettest.NewAuthority(t, "others")
	folder := t.TempDir()
	chain, key := ca.Issue("server")
	files := access.TLS{
		Certificate: write(t, folder, "c.pem", chain), Key: write(t, folder, "k.pem", key),
		ClientCA: write(t, folder, "ca.pem", ca.PEM()),
	}
	for _, c := range []struct {
		clients string
		shown   *tls.Certificate
		ok      bool
	}{
		{"", nil, false},
		{access.ClientsRequired, nil, false},
		{access.ClientsOptional, nil, true},
		{access.ClientsRequired, pointer(ca.Pair("node")), true},
		{access.ClientsOptional, pointer(ca.Pair("node")), true},
		{access.ClientsRequired, pointer(other.Pair("node")), false},
		{access.ClientsOptional, pointer(other.Pair("node")), false},
	} {
		files.Clients = c.clients
		certificates, err := access.NewCertificates(files, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}
		if c.shown != nil { // shown whether the server's list of authorities asks for it or not
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return c.shown,
					nil
			}
		}
		if _, _, err := shake(t, certificates.Config("h2"), client); (err == nil) != c.ok {
			t.Errorf("clients %q, a certificate shown: %v: %v", c.clients, c.shown != nil, err)
		}
	}
}

func pointer[T any](v T) *T { return &v }

func TestTLSBelow12IsRefused(t *testing.T) {
	ca := nettest.NewAuthority(t, "tests")
	folder := t.TempDir()
	chain, key := ca.Issue("server")
	certificates, err := access.NewCertificates(access.TLS{Certificate: write(t, folder, "c.pem", chain),
		Key: write(t, folder, "k.pem", key)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		client := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS10,
			MaxVersion: version}
		if _, _, err := shake(t, certificates.Config("h2"), client); (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}

func TestTLSSettingsReportEveryProblem(t *testing.T) {
	for settings, want := range map[access.TLS][]string{
		{Key: "k"}:         {"tls.certificate: none"},
		{Certificate: "c"}: {"tls.key: none"},
		{Certificate: "c", Key: "k", ClientCA: "a", Clients: "some"}: {`tls.clients: some: want required or optional`},
		{Certificate: "c", Key: "k", Clients: "required"}:            {"want tls.client_ca"},
		{ClientCA: "a", Clients: "x"}:                                {"tls.certificate", "tls.key", "tls.clients"},
	} {
		err := settings.Validate()
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v: want %q in it", settings, err, w)
			}
		}
		if _, err := access.NewCertificates(settings, nil, nil); err == nil {
			t.Errorf("%+v was accepted", settings)
		}
	}
	if off := (access.TLS{}); off.On() || off.Validate() != nil {
		t.Error("no settings are no TLS")
	}
	ca := nettest.NewAuthority(t, "tests")
	folder := t.TempDir()
	chain, key := ca.Issue("server")
	good := access.TLS{Certificate: write(t, folder, "c.pem", chain), Key: write(t, folder, "k.pem", key)}
	for file, broken := range map[string]access.TLS{
		"tls.certificate": {Certificate: folder + "/none", Key: good.Key},
		"tls.key":         {Certificate: good.Certificate, Key: folder + "/none"},
		"tls.client_ca":   {Certificate: good.Certificate, Key: good.Key, ClientCA: folder + "/none"},
		"no certificate":  {Certificate: good.Certificate, Key: good.Key, ClientCA: good.Key},
	} {
		if _, err := access.NewCertificates(broken, nil, nil); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%+v: %v: want %s in it", broken, err, file)
		}
	}
}
