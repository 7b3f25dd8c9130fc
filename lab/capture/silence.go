package capture

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Bounds on how long a call waits for either side: a session with a call under way does not expire.
const (
	engineSilence = 10 * time.Minute // without a byte of the engine's answer
	agentSilence  = 2 * time.Minute  // until an agent has taken an event, or a part of an answer
)

// silence is how long either side may be silent.
type silence struct{ engine, agent time.Duration }

// timed is an answer each part of which the agent has to take in time.
type timed struct {
	http.ResponseWriter
	limit time.Duration
}

// Unwrap is for [http.ResponseController].
func (t timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t timed) Write(p []byte) (int, error) {
	// A writer without deadlines is not that of a connection.
	_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Now().Add(t.limit))
	return t.ResponseWriter.Write(p)
}

// watch ends a request to the engine once the engine has been silent for too long.
type watch struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// watch begins to wait for the engine. An answer that does not stream begins when all of it is made: it may take as
// long as a session waits.
func (c *Capture) watch(ctx context.Context, stream bool) (context.Context, *watch) {
	w := &watch{limit: c.silence.engine}
	if !stream {
		w.limit = max(w.limit, c.options.Deadline)
	}
	ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(w.limit, func() { w.cancel(fmt.Errorf("the engine was silent for %v", w.limit)) })
	return ctx, w
}

func (w *watch) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// body returns an answer's body, of which each read is waited for as long.
func (w *watch) body(of io.ReadCloser) io.ReadCloser {
	w.timer.Stop()
	return watchedBody{of, w}
}

type watchedBody struct {
	io.ReadCloser
	watch *watch
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.watch.timer.Reset(b.watch.limit)
	defer b.watch.timer.Stop()
	return b.ReadCloser.Read(p)
}
