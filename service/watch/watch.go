package watch

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
)

// Defaults of Options.
const (
	DefaultInterval = 2 * time.Second
)

// An observation is shown for as long as fresh, or aging times what it took to make if that is longer: several pages and scrapes
// at once cost one, and looking takes a twentieth of the time at most. Watching on its own, Run keeps to a hundredth.
const (
	fresh  = 200 * time.Millisecond
	aging  = 20
	seldom = 100

	// One observation that a busy machine held up does not leave the page as it was, or a hole in its lines, for minutes.
	oldest  = 5 * time.Second
	longest = 15 * time.Second
)

// Options configure a Watch.
type Options struct {
	Policy   *access.Policy // who may see what; nil: everyone everything
	Interval time.Duration  // between the points of the lines of rates; 0: DefaultInterval
	Version  string         // of the program, shown at the foot of the page and in reprise_build_info
	Logger   *slog.Logger   // nil: nothing is logged
}

// Watch answers HTTP requests about a service. It is safe for concurrent use.
type Watch struct {
	options Options
	source  func() service.Observation
	history history
	page    *page
	metrics *metrics
	routes  *http.ServeMux

	mu     sync.Mutex // held while the source is asked
	latest *service.Observation
	asked  time.Time
	took   time.Duration // to observe, the last time
}

// New returns a watch of what a source observes.
func New(source func() service.Observation, o Options) (*Watch, error) {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	page, err := newPage()
	if err != nil {
		return nil, err
	}
	w := &Watch{
		options: o, source: source, page: page, metrics: newMetrics(o.Version), routes: http.NewServeMux(),
		history: history{keep: int(lineSpan/o.Interval) + 1},
	}
	w.routes.HandleFunc("GET /healthz", w.health)
	w.routes.Handle("GET /metrics", o.Policy.HTTP(http.HandlerFunc(w.scrape)))
	w.routes.Handle("GET /{$}", o.Policy.HTTP(w.dashboard(false)))
	w.routes.Handle("GET /fragment", o.Policy.HTTP(w.dashboard(true)))
	return w, nil
}

// ServeHTTP answers /, /fragment (the page's body), /metrics and /healthz.
func (w *Watch) ServeHTTP(answer http.ResponseWriter, r *http.Request) { w.routes.ServeHTTP(answer, r) }

// Run notes what the service has counted, every interval until the context ends; less often where that would cost too much.
func (w *Watch) Run(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		o, took := w.observe()
		w.history.note(&o)
		again.Reset(max(w.options.Interval, min(seldom*took, longest)))
	}
}

// observe returns an observation that is fresh, and how long it took to make. Its parts are shared: they are only read.
func (w *Watch) observe() (service.Observation, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.latest == nil || now.Sub(w.asked) >= max(fresh, min(aging*w.took, oldest)) {
		o := w.source()
		w.latest, w.asked, w.took = &o, time.Now(), time.Since(now)
	}
	return *w.latest, w.took
}

// dashboard answers with the page, or with its body alone.
func (w *Watch) dashboard(bodyOnly bool) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		o, _ := w.observe()
		if err := w.page.write(answer, w.viewOf(r.Context(), &o, r.URL.Query().Get("table")), bodyOnly); err != nil {
			w.options.Logger.Error("writing the dashboard", "error", err)
		}
	})
}

// Health is the answer of /healthz.
type Health struct {
	Status string `json:"status"`           // ok, stopping or failed
	Reason string `json:"reason,omitempty"` // told to callers that are known
	Tables int    `json:"tables"`
}

// health answers 200 while the service serves, 503 while it stops or a journal has failed.
func (w *Watch) health(answer http.ResponseWriter, r *http.Request) {
	o, _ := w.observe()
	h := Health{Status: "ok", Tables: len(o.Tables)}
	switch {
	case o.Err != nil:
		h.Status, h.Reason = "failed", o.Err.Error()
	case o.Stopping:
		h.Status, h.Reason = "stopping", "the service is stopping"
	}
	if _, err := w.options.Policy.Authenticate(r); err != nil {
		h.Reason = ""
	}
	answer.Header().Set("Content-Type", "application/json")
	answer.Header().Set("Cache-Control", "no-store")
	if h.Status != "ok" {
		answer.WriteHeader(http.StatusServiceUnavailable)
	}
	if err := json.NewEncoder(answer).Encode(h); err != nil {
		w.options.Logger.Debug("writing /healthz", "error", err)
	}
}
