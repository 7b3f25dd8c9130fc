package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flightServer answers ListFlights for those who may read the table "math", with the caller's name.
type flightServer struct {
	flight.BaseFlightServer
	policy *access.Policy
}

func (s *flightServer) ListFlights(_ *flight.Criteria, out flight.FlightService_ListFlightsServer) error {
	ctx := out.Context()
	if err := s.policy.Authorize(ctx, "math", wire.ToRead); err != nil {
		return wire.ToGRPC(err)
	}
	who, _ := access.From(ctx)
	return out.Send(&flight.FlightInfo{AppMetadata: []byte(who.Name)})
}

// serveFlight starts a server with a policy on loopback and returns its address.
func serveFlight(t *testing.T, p *access.Policy, config *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	options := []grpc.ServerOption{grpc.StreamInterceptor(p.Stream())}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	server := grpc.NewServer(options...)
	flight.RegisterFlightServiceServer(server, &flightServer{policy: p})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return l.Addr().String()
}

// dial connects a stock Flight client.
func dial(t *testing.T, address string, config *tls.Config) flight.Client {
	t.Helper()
	transport := insecure.NewCredentials()
	if config != nil {
		transport = credentials.NewTLS(config)
	}
	c, err := flight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask makes a call with some headers, and returns for whom the server took the caller.
func ask(ctx context.Context, c flight.Client, headers ...string) (string, error) {
	stream, err := c.ListFlights(metadata.AppendToOutgoingContext(ctx, headers...), &flight.Criteria{})
	if err != nil {
		return "", wire.FromGRPC(err)
	}
	info, err := stream.Recv()
	return string(info.GetAppMetadata()), wire.FromGRPC(err)
}

func TestCallsAreAuthenticated(t *testing.T) {
	p := policyOf(t, fmt.Sprintf(`
tokens:
  - {name: trainer, token: %s, read: ["*"]}
  - {name: generator, token: %s, write: ["*"]}`, trainerToken, generatorToken))
	c := dial(t, serveFlight(t, p, nil), nil)
	for _, test := range []struct {
		headers []string
		name    string
		code    wire.Code
	}{
		{[]string{"authorization", "Bearer " + trainerToken}, "trainer", ""},
		{[]string{"authorization", "bearer  " + trainerToken}, "trainer", ""},
		{[]string{"authorization", "Basic dXNlcjp0cmFpbmVyLTAxMjM0NTY3ODk="}, "trainer", ""}, // user:TOKEN
		{[]string{"authorization", "Basic dXNlcjp0cmFpbmVyLTAxMjM0NTY3ODk"}, "trainer", ""},
		{[]string{"authorization", "Bearer " + generatorToken}, "", wire.Denied},
		{[]string{"authorization", "Bearer nonsense"}, "", wire.Unauthenticated},
		{[]string{"authorization", "Bearer "}, "", wire.Unauthenticated},
		{[]string{"authorization", "Basic !"}, "", wire.Unauthenticated},
		{[]string{"authorization", "Basic dXNlcg=="}, "", wire.Unauthenticated}, // no colon
		{[]string{"authorization", "Digest " + trainerToken}, "", wire.Unauthenticated},
		{[]string{"authorization", "Bearer " + trainerToken, "authorization", "Bearer " + trainerToken}, "",
			wire.Unauthenticated},
		{nil, "", wire.Unauthenticated},
	} {
		name, err := ask(t.Context(), c, test.headers...)
		if name != test.name || (err == nil) != (test.code == "") || (err != nil && wire.CodeOf(err) != test.code) {
			t.Errorf("%v: taken for %q, %v (code %s)", test.headers, name, err, wire.CodeOf(err))
		}
	}
}

func TestTheHandshakeTradesAPasswordForAToken(t *testing.T) {
	p := policyOf(t, "tokens: [{name: trainer, token: "+trainerToken+", read: ['*']}]")
	c := dial(t, serveFlight(t, p, nil), nil)
	ctx, err := c.AuthenticateBasicToken(t.Context(), "anybody", trainerToken)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := ask(ctx, c); err != nil || name != "trainer" {
		t.Errorf("%q, %v", name, err)
	}
	if _, err := c.AuthenticateBasicToken(t.Context(), "anybody",
		"nonsense"); wire.CodeOf(wire.FromGRPC(err)) != wire.Unauthenticated {
		t.Errorf("a wrong password: %v", err)
	}
}

func TestACertificateReplacesOrAccompaniesAToken(t *testing.T) {
	ca := nettest.NewAuthority(t, "tests")
	folder := t.TempDir()
	chain, key := ca.Issue("server")
	certificates, err := access.NewCertificates(access.TLS{
		Certificate: write(t, folder, "server.pem", chain), Key: write(t, folder, "server.key", key),
		ClientCA: write(t, folder, "ca.pem", ca.PEM()), Clients: access.ClientsOptional,
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := policyOf(t, fmt.Sprintf(`
tokens:
  - {name: plain, token: %s, read: ["*"]}
  - {name: certified, certificate: node, read: ["*"]}
  - {name: both, token: %s, certificate: node, read: ["*"]}`, trainerToken, generatorToken))
	address := serveFlight(t, p, certificates.Config("h2"))
	with := func(names ...string) flight.Client {
		config := &tls.Config{RootCAs: ca.Pool()}
		for _, n := range names {
			config.Certificates = append(config.Certificates, ca.Pair(n))
		}
		return dial(t, address, config)
	}
	bare, node, stranger := with(), with("node"), with("stranger")
	for _, test := range []struct {
		what   string
		client flight.Client
		token  string
		name   string
	}{
		{"a token without a certificate", bare, trainerToken, "plain"},
		{"a token with a certificate", node, trainerToken, "plain"},
		{"a certificate", node, "", "certified"},
		{"both", node, generatorToken, "both"},
		{"half of both", bare, generatorToken, ""},
		{"both with another's certificate", stranger, generatorToken, ""},
		{"a certificate that no entry has", stranger, "", ""},
		{"a wrong token with a right certificate", node, "nonsense", ""},
		{"nothing", bare, "", ""},
	} {
		var headers []string
		if test.token != "" {
			headers = []string{"authorization", "Bearer " + test.token}
		}
		name, err := ask(t.Context(), test.client, headers...)
		if name != test.name || (err == nil) != (test.name != "") ||
			(err != nil && wire.CodeOf(err) != wire.Unauthenticated) {
			t.Errorf("%s: taken for %q, %v", test.what, name, err)
		}
	}
}

func TestPagesAskForATokenAsAPassword(t *testing.T) {
	p := policyOf(t, "tokens: [{name: trainer, token: "+trainerToken+", read: ['*']}]")
	server := httptest.NewServer(p.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := access.From(r.Context())
		_, _ = io.WriteString(w, "hello "+who.Name)
	})))
	defer server.Close()
	get := func(prepare func(*http.Request)) (int, string, string) {
		r, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		prepare(r)
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body), answer.Header.Get("WWW-Authenticate")
	}
	code, body, question := get(func(*http.Request) {})
	if code != http.StatusUnauthorized || !strings.HasPrefix(question, "Basic ") ||
		!strings.Contains(body, "no token") {
		t.Errorf("without a token: %d, %q, asks %q", code, body, question)
	}
	if code, _, _ := get(func(r *http.Request) { r.SetBasicAuth("x", "nonsense") }); code != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d", code)
	}
	if code, body, _ := get(func(r *http.Request) {
		r.SetBasicAuth("x", trainerToken)
	}); code != http.StatusOK || body != "hello trainer" {
		t.Errorf("with a password: %d, %q", code, body)
	}
	if code, body, _ := get(func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+trainerToken)
	}); code != http.StatusOK || body != "hello trainer" {
		t.Errorf("with a bearer token: %d, %q", code, body)
	}
}

func TestPagesAcceptAVerifiedCertificate(t *testing.T) {
	p := policyOf(t, "tokens: [{name: grafana, certificate: node, read: ['*']}]")
	chain := []*x509.Certificate{{Subject: pkix.Name{CommonName: "node"}}}
	for what, c := range map[string]struct {
		state *tls.ConnectionState
		ok    bool
	}{
		"verified": {&tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}},
			true},
		"not verified": {&tls.ConnectionState{PeerCertificates: chain}, false},
		"no TLS":       {nil, false},
	} {
		ctx, err := p.Authenticate((&http.Request{TLS: c.state, Header: http.Header{}}))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			if who, _ := access.From(ctx); who.Name != "grafana" {
				t.Errorf("%s: taken for %q", what, who.Name)
			}
		}
	}
}

// write puts a file under a folder; a later one of the same name takes its place as a new file.
func write(t *testing.T, folder, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}
