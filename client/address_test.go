package client

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

func TestAddressesAreReadAsTheyAreWritten(t *testing.T) {
	for _, c := range []struct{ text, canonical, target string }{
		{"grpc://127.0.0.1:7000", "grpc://127.0.0.1:7000", "dns:///127.0.0.1:7000"},
		{"grpc://gpu-7", "grpc://gpu-7:7447", "dns:///gpu-7:7447"},
		{"grpc+tls://replay.example.org/", "grpc+tls://replay.example.org:7447", "dns:///replay.example.org:7447"},
		{"grpc://[::1]:7000", "grpc://[::1]:7000", "dns:///[::1]:7000"},
		{"grpc+unix:///run/reprise.sock", "grpc+unix:///run/reprise.sock", "unix:///run/reprise.sock"},
	} {
		a, err := parseAddress(c.text)
		if err != nil || a.String() != c.canonical || a.target() != c.target {
			t.Errorf("%s is %v (%s), %v: want %s (%s)", c.text, a, a.target(), err, c.canonical, c.target)
		}
	}
}

func TestInvalidAddressesAreRefusedWithTheValidForms(t *testing.T) {
	for _, text := range []string{"", "localhost:7447", "http://a:1", "grpc://", "grpc:///x", "grpc://a:1/b",
		"grpc://u@a:1", "grpc+unix://rel", "grpc+unix:///", "grpc://:7447", "grpc://a:", "grpc://::1:7"} {
		if a, err := parseAddress(text); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("%q is %v, %v", text, a, err)
		}
	}
}

func TestTheLastPartOfATablesAddressIsItsName(t *testing.T) {
	for _, c := range []struct{ text, service, table string }{
		{"grpc://127.0.0.1:7447/lab", "grpc://127.0.0.1:7447", "lab"},
		{"grpc+tls://h/run_1.a", "grpc+tls://h:7447", "run_1.a"},
		{"grpc+unix:///run/reprise.sock/lab", "grpc+unix:///run/reprise.sock", "lab"},
	} {
		service, table, err := SplitTable(c.text)
		if err != nil || service != c.service || table != c.table {
			t.Errorf("%s is %s, %s, %v", c.text, service, table, err)
		}
	}
	for _, text := range []string{"lab", "grpc://host:7447", "grpc://host/", "grpc+unix:///lab", "grpc://host/a b",
		"grpc://host/a/b", ""} {
		if service, table, err := SplitTable(text); err == nil {
			t.Errorf("%q is table %q of %q", text, table, service)
		}
	}
}

func FuzzSplitTable(f *testing.F) {
	for _, text := range []string{"grpc://127.0.0.1:7447/lab", "grpc+unix:///a/b/c", "grpc+tls://[::1]/x",
		"grpc://a:b:c/d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		service, table, err := SplitTable(text)
		if err != nil {
			return
		}
		again, name, err := SplitTable(service + "/" + table)
		if err != nil || again != service || name != table {
			t.Errorf("%q is %q of %q, which reads back as %q of %q, %v", text, table, service, name, again, err)
		}
	})
}

func TestTLSIsHeldToTheAuthorityAndTheClientsCertificateIsShown(t *testing.T) {
	t.Parallel()
	a := nettest.NewAuthority(t, "tests")
	cert, key, ca := a.Files("trainer")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t, replay.Options{})
	f.serveOn(t, l, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{a.Pair("server")},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool()})))
	address := "grpc+tls://" + l.Addr().String()
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(" secret-7\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	table := dial(t, address, Options{CA: ca, Cert: cert, Key: key, TokenFile: tokenFile,
		ServerName: "replay.test"}).Table("lab")
	if _, err := table.Insert(context.Background(), group("a", 1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Sample(context.Background(), rollout.Request{Size: 2}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(f.tokens, "Bearer secret-7") {
		t.Errorf("the service saw the tokens %q", f.tokens)
	}
	impatient := Options{RetryFor: 30 * time.Millisecond}
	for name, o := range map[string]Options{
		"no authority":   {Cert: cert, Key: key},
		"no certificate": {CA: ca},
		"another name":   {CA: ca, Cert: cert, Key: key, ServerName: "other.test"},
	} {
		o.RetryFor = impatient.RetryFor
		if c, err := Dial(context.Background(), address, o); err == nil {
			c.Close()
			t.Errorf("%s: connected", name)
		}
	}
}

func TestATokenLeavesTheMachineByTLSOnly(t *testing.T) {
	for address, fine := range map[string]bool{
		"grpc://10.0.0.7": false, "grpc://gpu-7:7447": false, "grpc://[2001:db8::1]": false,
		"grpc://127.0.0.1.example.org": false, "grpc://0.0.0.0": false,
		"grpc://127.0.0.1": true, "grpc://127.9.9.9": true, "grpc://localhost": true, "grpc://[::1]": true,
		"grpc+unix:///s": true, "grpc+tls://gpu-7": true,
	} {
		a, err := parseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		token, err := Options{Token: "secret"}.bearer(a)
		if (err == nil) != fine || err == nil && token != "secret" || err != nil &&
			(strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "grpc+tls://")) {
			t.Errorf("a token to %s: %q, %v", address, token, err)
		}
		if _, err := (Options{}).bearer(a); err != nil {
			t.Errorf("no token to %s: %v", address, err)
		}
	}
}

func TestEveryProblemOfTheOptionsIsReportedAtOnce(t *testing.T) {
	err := Options{Token: "a", TokenFile: "b", Cert: "c", MaxMessageBytes: 5, CallTimeout: -1}.Validate()
	if err == nil {
		t.Fatal("they were taken")
	}
	for _, want := range []string{"token_file: b: want", "certificate: c: want", "max_message_bytes: 5: want",
		"call_timeout: -1ns: want"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err := (Options{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}

func TestFilesThatCannotBeUsedAreNamed(t *testing.T) {
	_, _, ca := nettest.NewAuthority(t, "tests").Files("trainer")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		address string
		o       Options
		says    string
	}{
		{"grpc+tls://127.0.0.1:1", Options{CA: "/nowhere.pem"}, "ca: open /nowhere.pem"},
		{"grpc+tls://127.0.0.1:1", Options{CA: empty}, "ca: " + empty},
		{"grpc+tls://127.0.0.1:1", Options{Cert: ca, Key: empty}, "certificate: " + ca},
		{"grpc://127.0.0.1:1", Options{CA: ca}, "want grpc+tls://"},
		{"grpc://127.0.0.1:1", Options{TokenFile: "/nowhere"}, "token_file: open /nowhere"},
		{"grpc://127.0.0.1:1", Options{TokenFile: empty}, "token_file: " + empty},
		{"grpc://127.0.0.1:1", Options{Token: "a\nb"}, "token: want printable"},
		{"nonsense", Options{}, "address: \"nonsense\""},
	} {
		conn, err := Dial(context.Background(), c.address, c.o)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.says, err)
		}
	}
}

func TestTheAddressesOfPartsNameOneTable(t *testing.T) {
	services, table, err := SplitTables("grpc://a:1/lab, grpc+unix:///run/b.sock/lab")
	if err != nil || table != "lab" || !slices.Equal(services, []string{"grpc://a:1", "grpc+unix:///run/b.sock"}) {
		t.Errorf("%v of %q, %v", services, table, err)
	}
	for _, bad := range []string{"", "grpc://a:1/lab,grpc://b:1/other", "grpc://a:1/lab,", "grpc://a:1/lab,b"} {
		if _, _, err := SplitTables(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
