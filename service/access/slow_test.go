package access

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/wire"
)

const rightToken = "right-0123456789abc"

// attacked is a policy with one right token, and its log.
func attacked(t *testing.T) (*Policy, *strings.Builder) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	text := "tokens: [{name: a, token: " + rightToken + ", read: ['*']}]"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := new(strings.Builder)
	p, err := NewPolicy(Options{Tokens: path, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return p, log
}

// show shows a token from an address, and returns how long the answer took.
func show(ctx context.Context, p *Policy, from, token string) (time.Duration, error) {
	r := &http.Request{RemoteAddr: from, Header: http.Header{}}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	began := time.Now()
	_, err := p.Authenticate(r.WithContext(ctx))
	return time.Since(began), err
}

func TestAttackWrongTokensAreSlowedAndRightOnesAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log := attacked(t)
		wrong := func(from string, want time.Duration) {
			t.Helper()
			took, err := show(t.Context(), p, from, "guess")
			if wire.CodeOf(err) != wire.Unauthenticated || took != want {
				t.Errorf("a wrong token from %s: %v after %v, want it after %v", from, err, took, want)
			}
		}
		for range freeFailures {
			wrong("192.0.2.7:1000", 0)
		}
		for _, d := range []time.Duration{1, 2, 4, 8, 16, 32, 50, 50} {
			wrong("192.0.2.7:1001", d*firstDelay)
		}
		if took, err := show(t.Context(), p, "192.0.2.7:1002", rightToken); err != nil || took != 0 {
			t.Errorf("the right token from the same address: %v after %v", err, took)
		}
		if took, err := show(t.Context(), p, "192.0.2.7:1003", ""); err == nil || took != 0 {
			t.Errorf("no token, as a browser begins: %v after %v", err, took)
		}
		wrong("192.0.2.7:1004", maxDelay)
		wrong("192.0.2.8:1000", 0)
		for i := range freeFailures {
			wrong(fmt.Sprintf("[2001:db8::%d]:1000", i), 0)
		}
		wrong("[2001:db8::ffff]:1000", firstDelay) // the same network
		if _, err := show(t.Context(), p, "192.0.2.7:1", "x"); !strings.Contains(err.Error(), "came from 192.0.2.7") {
			t.Errorf("a slowed answer does not say why: %v", err)
		}
		time.Sleep(forgetAfter + time.Second)
		wrong("192.0.2.7:1000", 0)
		if n := strings.Count(log.String(), "from=192.0.2.7 "); n != 2 {
			t.Errorf("%d lines about the address, want one at first and one after a minute:\n%s", n, log)
		}
		if !strings.Contains(log.String(), "from=192.0.2.7 count=20 ") || strings.Contains(log.String(), "guess") {
			t.Errorf("the log does not count what was refused, or shows it:\n%s", log)
		}
	})
}

func TestAttackAFloodOfWrongTokensHoldsLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log := attacked(t)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 10_000 {
			_, _ = show(gone, p, fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), "guess")
		}
		if n, lines := len(p.failures.peers), strings.Count(log.String(), "\n"); n > maxPeers+1 || lines > n {
			t.Errorf("%d addresses are remembered, %d lines logged", n, lines)
		}
		p, _ = attacked(t)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 1000 {
			calls.Go(func() { _, _ = show(ctx, p, "10.0.0.1:1", "guess") })
		}
		synctest.Wait()
		if got := p.failures.peers["10.0.0.1"].waiting; got != maxWaiting {
			t.Errorf("%d answers wait, want %d", got, maxWaiting)
		}
		began := time.Now()
		cancel()
		calls.Wait()
		if got := p.failures.peers["10.0.0.1"].waiting; got != 0 || time.Since(began) != 0 {
			t.Errorf("%d answers wait for callers that left, %v later", got, time.Since(began))
		}
		time.Sleep(forgetAfter)
		for i := range 10_000 {
			_, _ = show(gone, p, fmt.Sprintf("10.1.%d.%d:1", i/256, i%256), "guess")
		}
		if n := len(p.failures.peers); n > maxPeers+1 {
			t.Errorf("%d addresses are remembered", n)
		}
	})
}
