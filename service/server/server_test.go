package server

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestAttackARebindingNameReadsNoPage(t *testing.T) {
	s, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		HTTPHosts: []string{"replay.example"}}, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	defer http.DefaultClient.CloseIdleConnections()
	for host, want := range map[string]int{"": 200, "localhost:1": 200, "replay.example": 200, "evil.example": 421} {
		for _, path := range []string{"/", "/metrics", "/healthz"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Addresses.HTTP+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host // "" sends the address
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			refused := strings.Contains(string(text), "http_hosts")
			if err != nil || answer.StatusCode != want || refused != (want != 200) {
				t.Errorf("%s with Host %q: %d %.200q, %v: want %d", path, host, answer.StatusCode, text, err, want)
			}
		}
	}
	if err := (Config{HTTPHosts: []string{"https://x"}}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "http_hosts[0]: https://x: want a host without scheme and port") {
		t.Errorf("a URL for a host: %v", err)
	}
}
