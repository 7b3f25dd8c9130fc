package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/service/access"
)

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
	if code != http.StatusUnauthorized || !strings.HasPrefix(question, "Basic ") || !strings.Contains(body, "no token") {
		t.Errorf("without a token: %d, %q, asks %q", code, body, question)
	}
	if code, _, _ := get(func(r *http.Request) { r.SetBasicAuth("x", "nonsense") }); code != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d", code)
	}
	if code, body, _ := get(func(r *http.Request) { r.SetBasicAuth("x", trainerToken) }); code != http.StatusOK || body != "hello trainer" {
		t.Errorf("with a password: %d, %q", code, body)
	}
	if code, body, _ := get(func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+trainerToken) }); code != http.StatusOK || body != "hello trainer" {
		t.Errorf("with a bearer token: %d, %q", code, body)
	}
}

func TestPagesTakeAVerifiedCertificateForAToken(t *testing.T) {
	p := policyOf(t, "tokens: [{name: grafana, certificate: node, read: ['*']}]")
	chain := []*x509.Certificate{{Subject: pkix.Name{CommonName: "node"}}}
	for what, c := range map[string]struct {
		state *tls.ConnectionState
		ok    bool
	}{
		"verified":     {&tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}, true},
		"not verified": {&tls.ConnectionState{PeerCertificates: chain}, false},
		"no TLS":       {nil, false},
	} {
		ctx, err := p.Recognise((&http.Request{TLS: c.state, Header: http.Header{}}))
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
