package server_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/service/server"
)

// start starts a service that ends with the test, and returns its configuration with the address of its pages.
func start(t *testing.T, config server.Config) server.Config {
	t.Helper()
	s, err := server.Start(t.Context(), config, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	_, config.HTTP, _ = strings.Cut(s.Addresses.HTTP, "://")
	return config
}

func TestAServiceIsAskedForItsHealthAsItIsConfigured(t *testing.T) {
	port := func(c server.Config) string { return c.HTTP[strings.LastIndex(c.HTTP, ":"):] }
	certificate, key, ca := nettest.NewAuthority(t, "clients").Files("service")
	files := access.TLS{Certificate: certificate, Key: key, ClientCA: ca, Clients: access.ClientsRequired}
	plain := start(t, server.Config{Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	secure := start(t, server.Config{Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", TLS: files})
	otherCertificate, otherKey, _ := nettest.NewAuthority(t, "others").Files("service")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }))
	defer page.Close()
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"status": "stopping", "tables": 1}`)
	}))
	defer failing.Close()
	for _, c := range []struct {
		name   string
		config server.Config
		want   string // of the error; "" for none
	}{
		{"as it is", plain, ""},
		{"listening everywhere", server.Config{HTTP: "0.0.0.0" + port(plain)}, ""},
		{"with TLS and certificates of clients", secure, ""},
		{"with TLS, asked without", server.Config{HTTP: secure.HTTP}, "no service of tables"},
		{"another certificate", server.Config{HTTP: secure.HTTP,
			TLS: access.TLS{Certificate: otherCertificate, Key: otherKey}}, "shows another certificate than that in"},
		{"no pages", server.Config{HTTP: server.Off}, "http: off"},
		{"no port", server.Config{HTTP: "127.0.0.1:0"}, "with the port at which"},
		{"nobody", server.Config{HTTP: nettest.FreeAddresses(t, 1)[0]}, "no service answers"},
		{"another page", server.Config{HTTP: strings.TrimPrefix(page.URL, "http://")}, "no service of tables"},
		{"a service that stops", server.Config{HTTP: strings.TrimPrefix(failing.URL, "http://")}, "the service is stopping"},
	} {
		err := server.CheckHealth(t.Context(), c.config)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
