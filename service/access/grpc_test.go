package access_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

// flightServer answers GetFlightInfo and ListFlights for those who may read the table "math".
type flightServer struct {
	flight.BaseFlightServer
	policy *access.Policy
}

func (s *flightServer) GetFlightInfo(ctx context.Context, _ *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	if err := s.policy.Authorize(ctx, "math", false); err != nil {
		return nil, wire.ToGRPC(err)
	}
	who, _ := access.From(ctx)
	return &flight.FlightInfo{AppMetadata: []byte(who.Name)}, nil
}

func (s *flightServer) ListFlights(_ *flight.Criteria, out flight.FlightService_ListFlightsServer) error {
	info, err := s.GetFlightInfo(out.Context(), nil)
	if err != nil {
		return err
	}
	return out.Send(info)
}

// serveFlight starts a server with a policy on loopback and returns its address.
func serveFlight(t *testing.T, p *access.Policy, config *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	options := []grpc.ServerOption{grpc.UnaryInterceptor(p.Unary()), grpc.StreamInterceptor(p.Stream())}
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

// ask makes a unary call and a stream with some headers, and returns for whom the server took the caller.
func ask(t *testing.T, c flight.Client, headers ...string) (string, error) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), headers...)
	info, err := c.GetFlightInfo(ctx, &flight.FlightDescriptor{})
	var listed *flight.FlightInfo
	stream, streamErr := c.ListFlights(ctx, &flight.Criteria{})
	if streamErr == nil {
		listed, streamErr = stream.Recv()
	}
	if fmt.Sprint(err) != fmt.Sprint(streamErr) || !proto.Equal(info, listed) {
		t.Errorf("a call got %v, %v and a stream %v, %v", info, err, listed, streamErr)
	}
	return string(info.GetAppMetadata()), wire.FromGRPC(err)
}

func TestCallsAndStreamsAreAuthenticated(t *testing.T) {
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
		{[]string{"authorization", "Bearer " + trainerToken, "authorization", "Bearer " + trainerToken}, "", wire.Unauthenticated},
		{nil, "", wire.Unauthenticated},
	} {
		name, err := ask(t, c, test.headers...)
		if name != test.name || (err == nil) != (test.code == "") || (err != nil && wire.CodeOf(err) != test.code) {
			t.Errorf("%v: taken for %q, %v (code %s)", test.headers, name, err, wire.CodeOf(err))
		}
	}
}

func TestAPasswordIsTradedForATokenByTheHandshake(t *testing.T) {
	p := policyOf(t, "tokens: [{name: trainer, token: "+trainerToken+", read: ['*']}]")
	c := dial(t, serveFlight(t, p, nil), nil)
	ctx, err := c.AuthenticateBasicToken(t.Context(), "anybody", trainerToken)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := c.GetFlightInfo(ctx, &flight.FlightDescriptor{}); err != nil || string(info.AppMetadata) != "trainer" {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := c.AuthenticateBasicToken(t.Context(), "anybody", "nonsense"); wire.CodeOf(wire.FromGRPC(err)) != wire.Unauthenticated {
		t.Errorf("a wrong password: %v", err)
	}
}

func TestCertificatesStandForTokensOrBesideThem(t *testing.T) {
	ca := newAuthority(t, "tests")
	folder := t.TempDir()
	chain, key := ca.issue("server")
	certificates, err := access.NewCertificates(access.TLS{
		Certificate: write(t, folder, "server.pem", chain), Key: write(t, folder, "server.key", key),
		ClientCA: write(t, folder, "ca.pem", ca.pem()), Clients: access.ClientsOptional,
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
		config := &tls.Config{RootCAs: ca.pool()}
		for _, n := range names {
			config.Certificates = append(config.Certificates, ca.client(n))
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
		name, err := ask(t, test.client, headers...)
		if name != test.name || (err == nil) != (test.name != "") || (err != nil && wire.CodeOf(err) != wire.Unauthenticated) {
			t.Errorf("%s: taken for %q, %v", test.what, name, err)
		}
	}
}
