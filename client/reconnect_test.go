package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/reprise-rl/reprise/internal/tests"
)

// bare is a service that answers every call with Unimplemented, which is an answer.
func bare(t *testing.T, at string) (address string, stop func()) {
	t.Helper()
	var l net.Listener
	tests.Until(t, "the port, which another test's connection may have for a moment", func() bool {
		var err error
		l, err = net.Listen("tcp", at)
		return err == nil
	})
	s := grpc.NewServer()
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String(), s.Stop
}

// Here gRPC by itself would not connect again for an hour.
func TestACallFindsAServiceThatIsBackWhateverItSawBefore(t *testing.T) {
	t.Parallel()
	at, stop := bare(t, "127.0.0.1:0")
	c, err := newClient("grpc://"+at, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.conn.Close()
	c.lookTime = time.Minute
	err = c.connect(grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Minute,
		Backoff: backoff.Config{BaseDelay: time.Hour, MaxDelay: time.Hour}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx := t.Context()
	for name, again := range map[string]func() error{
		"retried": func() error { return c.retry(ctx, 0, c.listActions) },
		"not retried": func() error {
			c.lookAgain(ctx)
			return c.attempt(ctx, 0, c.listActions)
		},
	} {
		if err := c.ping(ctx); err != nil {
			t.Fatalf("%s: before: %v", name, err)
		}
		stop()
		for range 3 {
			if err := c.retryFor(ctx, time.Millisecond, 0, c.listActions); err == nil {
				t.Fatalf("%s: a service that is down answered", name)
			}
		}
		_, stop = bare(t, at)
		if err := again(); err != nil {
			t.Errorf("%s: the first call after it is back: %v", name, err)
		}
	}
}

func TestALinkThatWasDownIsLookedAtBeforeACallFails(t *testing.T) {
	t.Parallel()
	at, stop := bare(t, "127.0.0.1:0")
	s, err := DialAll(t.Context(), []string{"grpc://" + at}, AllOptions{Options: Options{RetryFor: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l := s.links[0]
	l.client.lookTime = time.Minute
	for _, waits := range []bool{true, false} {
		stop()
		for range 6 { // the pauses grow to maxDown
			l.wentDown(fmt.Errorf("%w: it refuses", ErrUnreachable))
		}
		tries := s.attempts()
		tries.began = tries.began.Add(-time.Minute) // RetryFor is over
		if !tries.again(t.Context(), waits) || l.ready() == nil {
			t.Fatal("a look at a service that is down found it up")
		}
		if tries.again(t.Context(), waits) {
			t.Error("the last attempt was not the last")
		}
		_, stop = bare(t, at)
		tries = s.attempts()
		tries.began = tries.began.Add(-time.Minute)
		if tries.again(t.Context(), waits); l.ready() != nil {
			t.Errorf("waits %v: before the call fails the service counts as down: %v", waits, l.ready())
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s.attempts().again(ended, true) {
		t.Error("a call whose context has ended goes on")
	}
}

func TestAServiceThatIsNotThereIsToldWithTheRemedy(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	socket := filepath.Join(t.TempDir(), "none")
	nobody := httptest.NewServer(nil)
	nobody.Close()
	for address, want := range map[string]string{
		"grpc://" + web.Listener.Addr().String(): "an HTTP server answers there, not gRPC: want the address of the " +
			"service (serve --listen), not that of its dashboard (--http)",
		"grpc://" + nobody.Listener.Addr().String(): "nothing listens there: start reprise serve, or check the address",
		"grpc+unix://" + socket:                     "there is no such socket: start reprise serve, or check the address",
	} {
		c, err := newClient(address, Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = c.retryFor(t.Context(), time.Millisecond, 0, c.listActions)
		if !errors.Is(err, ErrUnreachable) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q at its end", address, err, want)
		}
		c.conn.Close()
	}
}
