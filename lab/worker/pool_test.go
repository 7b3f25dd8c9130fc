package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/rollout"
)

// patient is an engine on a fake clock.
type patient struct {
	engine.Engine
	health   func(context.Context) error
	generate func(context.Context, engine.Request) ([]engine.Completion, error)
}

func (e patient) Health(ctx context.Context) error                 { return e.health(ctx) }
func (e patient) Version(context.Context) (rollout.Version, error) { return 0, nil }
func (e patient) String() string                                   { return "patient" }
func (e patient) Generate(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
	return e.generate(ctx, r)
}

func healthy(context.Context) error { return nil }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func answers(_ context.Context, r engine.Request) ([]engine.Completion, error) {
	return make([]engine.Completion, r.N), nil
}

// during supervises engines on a fake clock while a test runs.
func during(t *testing.T, test func(ctx context.Context, p *pool), engines ...engine.Engine) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(engines, Options{Pause: 50 * time.Millisecond}, slog.New(slog.DiscardHandler))
		close(p.looked)
		ctx, cancel := context.WithCancel(t.Context())
		for _, m := range p.members {
			go p.manage(ctx, m, func(context.Context, engine.Engine) (*engine.Report, error) { return &engine.Report{}, nil })
		}
		synctest.Wait()
		test(ctx, p)
		cancel()
		synctest.Wait()
	})
}

// lines is a log whose lines are received one after another.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A probe that hangs is waited for, since a server may be slow, but not in silence. One that was answered is not named.
func TestASlowProbeIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := make(lines, 9)
		p := newPool([]engine.Engine{patient{health: hang}, patient{health: healthy}}, Options{},
			slog.New(slog.NewTextHandler(log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		for _, m := range p.members {
			go p.manage(ctx, m, func(ctx context.Context, e engine.Engine) (*engine.Report, error) {
				return &engine.Report{}, e.Health(ctx)
			})
		}
		time.Sleep(slowProbe - time.Second)
		synctest.Wait()
		if len(log) > 0 {
			t.Errorf("logged too early: %s", <-log)
		}
		if got := <-log; !strings.Contains(got, "still probing an engine") || !strings.Contains(got, "engine=patient") {
			t.Errorf("logged %q", got)
		}
		synctest.Wait()
		if len(log) > 0 {
			t.Errorf("the engine that answered is named: %s", <-log)
		}
		cancel()
		synctest.Wait()
	})
}

// An engine that hangs is withdrawn when its health has been asked for twice in vain, and its requests go to another,
// or wait until it is back.
func TestRequestsOfAnEngineThatHangsGoElsewhere(t *testing.T) {
	const away = 5 * time.Minute
	wedged := func() engine.Engine { // well at the start, and when it was away for long enough
		var began time.Time
		state := func(ctx context.Context) error {
			if since := time.Since(began); since == 0 || since > away {
				return nil
			}
			return hang(ctx)
		}
		return patient{
			health: func(ctx context.Context) error {
				if began.IsZero() {
					began = time.Now()
				}
				return state(ctx)
			},
			generate: func(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
				time.Sleep(time.Second)
				if err := state(ctx); err != nil {
					return nil, err
				}
				return answers(ctx, r)
			},
		}
	}
	during(t, func(ctx context.Context, p *pool) {
		began := time.Now()
		if _, err := p.generate(ctx, engine.Request{N: 1}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < away || took > away+time.Minute {
			t.Errorf("an engine that hung for %v has answered after %v", away, took)
		}
	}, wedged())
	during(t, func(ctx context.Context, p *pool) {
		began := time.Now()
		if _, err := p.generate(ctx, engine.Request{N: 1}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > maxUnhealthy*(healthEvery+healthTimeout) {
			t.Errorf("beside another engine the request has taken %v", took)
		}
		if s := p.stats(); s[0].Ready || s[0].Failures != 1 || s[1].Completions != 1 {
			t.Errorf("%+v", s)
		}
	}, wedged(), patient{health: healthy, generate: answers})
}

// An engine that says it is healthy and answers nothing is tried less and less often, and its errors end a request only
// after many.
func TestAnEngineThatOnlyFailsIsTriedLessOften(t *testing.T) {
	for _, c := range []struct {
		err   error
		ended bool // the request ends with it
	}{
		{fmt.Errorf("503: %w", engine.ErrUnavailable), false},
		{errors.New("500: out of memory"), true},
	} {
		var requests atomic.Int32
		fails := func(context.Context, engine.Request) ([]engine.Completion, error) {
			requests.Add(1)
			return nil, c.err
		}
		during(t, func(ctx context.Context, p *pool) {
			brief, cancel := context.WithTimeout(ctx, 10*time.Minute)
			defer cancel()
			_, err := p.generate(brief, engine.Request{N: 1})
			if c.ended != errors.Is(err, c.err) || !c.ended && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v ended a request with %v", c.err, err)
			}
			if n := requests.Load(); n < 10 || n > 150 {
				t.Errorf("%v: %d requests in ten minutes", c.err, n)
			}
		}, patient{health: healthy, generate: fails})
	}
}
