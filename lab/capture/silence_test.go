package capture

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/tests"
)

const firstEvent = `{"id": "x", "prompt_token_ids": [1], "choices": [{"index": 0, "delta": {"content": "%s"}}]}`

// inFront serves a capture in front of an engine, and returns its address.
func inFront(t *testing.T, silence silence, chat http.HandlerFunc) (c *Capture, url string) {
	t.Helper()
	c, _ = recovered(t, oneCall)
	server := httptest.NewServer(chat)
	t.Cleanup(server.Close)
	g, err := engine.OpenGateway(engine.Options{Dialect: engine.VLLM, Address: server.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	c.gateway, c.silence, c.memory.limit = g, silence, 1<<30
	web := httptest.NewServer(c.Handler())
	t.Cleanup(web.Close)
	return c, web.URL
}

// under returns how many calls of the session are under way.
func under(c *Capture) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions["a"].under
}

func TestACallEndsWhenTheEngineIsSilent(t *testing.T) {
	for _, events := range []int{0, 1} {
		c, url := inFront(t, silence{engine: 20 * time.Millisecond, agent: time.Hour},
			func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // else the server does not see the request end
				for range events {
					fmt.Fprintf(w, "data: "+firstEvent+"\n\n", "4")
					http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})
		answer, err := http.Post(url+"/sessions/a/v1/chat/completions", "application/json",
			strings.NewReader(`{"messages": [{}], "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || !strings.Contains(string(text), "the engine was silent for 20ms") {
			t.Errorf("after %d events: %d: %s, %v", events, answer.StatusCode, text, err)
		}
		tests.Until(t, "the call has ended", func() bool { return under(c) == 0 })
	}
}

func TestACallEndsWhenTheAgentTakesNothing(t *testing.T) {
	ended := make(chan struct{})
	c, url := inFront(t, silence{engine: time.Hour, agent: 20 * time.Millisecond},
		func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			io.Copy(io.Discard, r.Body)
			for r.Context().Err() == nil {
				fmt.Fprintf(w, "data: "+firstEvent+"\n\n", strings.Repeat("4", 64<<10))
			}
		})
	agent, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	const body = `{"messages": [{}], "stream": true}`
	if _, err := fmt.Fprintf(agent, "POST /sessions/a/v1/chat/completions HTTP/1.1\r\nHost: a\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	<-ended
	tests.Until(t, "the call has ended", func() bool { return under(c) == 0 })
}
