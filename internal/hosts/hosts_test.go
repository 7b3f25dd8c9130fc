package hosts_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/hosts"
)

func TestAttackPagesAreServedUnderTheNamesOfTheServiceOnly(t *testing.T) {
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	at := &net.TCPAddr{IP: net.IPv4zero, Port: 7448}
	pages := hosts.Only(served, at, []string{"", "Replay.Example", "2001:DB8:0::7"})
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:7448": 200, "localhost.:1": 200, "127.0.0.1:9000": 200, "127.8.9.1": 200,
		"[::1]:7448": 200, "[::1]": 200, "[::ffff:127.0.0.1]:1": 200,
		"0.0.0.0:7448": 200, "192.0.2.7:7448": 200, // where it listens, and where the connection came to
		"replay.example": 200, "replay.example.:443": 200, "REPLAY.example:1": 200, "[2001:db8::7]:7448": 200,
		"": 421, "evil.example": 421, "evil.example:7448": 421, "localhost.evil.example": 421, "evil.localhost": 421,
		"a.replay.example": 421, "replay.example.evil.example": 421, "192.0.2.8:7448": 421,
		"127.0.0.1.evil.example": 421,
		"[2001:db8::8]:7448":     421, "localhost@evil.example": 421, "evil.example#localhost": 421, "2130706433": 421,
	} {
		local := context.WithValue(t.Context(), http.LocalAddrContextKey,
			&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 7448})
		r := httptest.NewRequestWithContext(local, http.MethodGet, "/", nil)
		r.Host = host
		answer := httptest.NewRecorder()
		pages.ServeHTTP(answer, r)
		if answer.Code != want {
			t.Errorf("Host %q: %d, want %d", host, answer.Code, want)
		}
		if want == http.StatusMisdirectedRequest && !strings.Contains(answer.Body.String(), "http_hosts") {
			t.Errorf("Host %q: %q names no remedy", host, answer.Body)
		}
	}
	for name, want := range map[string]bool{
		"replay.example": true, "10.0.0.7": true, "2001:db8::7": true, "node_7": true,
		"": false, "https://x": false, "x:1": false, "[::1]": false, "*": false, "a b": false,
	} {
		if hosts.Valid(name) != want {
			t.Errorf("Valid(%q) is %v", name, !want)
		}
	}
}
