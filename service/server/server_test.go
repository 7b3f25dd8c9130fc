package server

import (
	"io"
	"log/slog"
	"net"
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
	for _, head := range []string{"GET / HTTP/1.1\r\nHost:\r\n", "GET / HTTP/1.1\r\nHost: :80\r\n", "GET / HTTP/1.0\r\n"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.Addresses.HTTP, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(head + "Connection: close\r\n\r\n"))
		answer, err := io.ReadAll(conn)
		_ = conn.Close()
		if err != nil || !strings.Contains(string(answer), " 421 ") {
			t.Errorf("%q: %.200q, %v: want status 421", head, answer, err)
		}
	}
	if err := (Config{HTTPHosts: []string{"https://x"}}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "http_hosts[0]: https://x: want a host without scheme and port") {
		t.Errorf("a URL for a host: %v", err)
	}
}
