// Package watch serves the state of a service over HTTP: /healthz for supervisors, /metrics for Prometheus, and a
// dashboard at / for people, with the rollouts of each table at /rollouts?table=NAME and a page to give them rewards at
// /label?table=NAME (package browse); POST /reward?table=NAME takes rewards of programs.
//
// [New] makes a [Watch] from a function that observes the service. [Watch.ServeHTTP] answers requests; [Watch.Run]
// records the counters at an interval, so that the dashboard can show rates. The page is rendered on the server, with
// its charts as SVG. A short script replaces its body every two seconds; without scripts the browser reloads it.
// Package figures shows the charts' values and smooths the rates, as in reports. A content security policy keeps the page from
// asking any other host.
//
// Package access decides who may read which table: the dashboard and /metrics show a caller the tables it may read, and
// of the connections its own and those that work on such a table.
// /healthz answers everyone, since supervisors seldom have a token, but gives its reasons to authenticated callers
// only.
package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

// DefaultInterval is the interval of Options.
const DefaultInterval = 2 * time.Second

// Observing costs a large service time, so an observation is reused by all requests within minAge, or within ageFactor
// times the time it took: requests spend at most a twentieth of the time observing. Run spends at most a hundredth. The
// maxima bound the wait after one observation that a busy machine held up.
const (
	minAge         = 200 * time.Millisecond
	ageFactor      = 20
	maxAge         = 5 * time.Second
	intervalFactor = 100
	maxInterval    = 15 * time.Second
)

// Options configure a Watch.
type Options struct {
	Policy   *access.Policy // who may read which table; nil: everyone reads everything
	Interval time.Duration  // between recorded observations; 0: DefaultInterval
	Version  string         // of the program, shown in the page's footer and in reprise_build_info
	Logger   *slog.Logger   // nil: no log

	// Rollouts returns the rollouts of a table, for the page at /rollouts; nil: there is none. The contexts of its
	// questions have the caller that Policy found.
	Rollouts func(table string) browse.Rewarder
}

// Watch answers HTTP requests about a service. It is safe for concurrent use.
type Watch struct {
	options Options
	source  func() service.Observation
	history history
	page    *page
	metrics *metrics
	routes  *http.ServeMux

	mu       sync.Mutex // held while the source observes
	latest   *service.Observation
	observed time.Time     // when latest was made
	took     time.Duration // to make latest
}

// New returns a Watch of the service that source observes.
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
		history: history{limit: int(lineSpan/o.Interval) + 1},
	}
	w.routes.HandleFunc("GET /healthz", w.health)
	w.routes.Handle("GET /metrics", o.Policy.HTTP(http.HandlerFunc(w.scrape)))
	w.routes.Handle("GET /{$}", o.Policy.HTTP(w.dashboard(false)))
	w.routes.Handle("GET /fragment", o.Policy.HTTP(w.dashboard(true)))
	if o.Rollouts != nil {
		pages := o.Policy.HTTP(browse.Handler(w.rollouts, statusOf))
		w.routes.Handle("GET /rollouts", pages)
		w.routes.Handle("GET /rollouts/", pages)
		labels := o.Policy.HTTP(browse.LabelHandler(w.label, statusOf))
		w.routes.Handle("GET /label", labels)
		w.routes.Handle("GET /label/", labels)
		w.routes.Handle("POST /reward", labels)
	}
	return w, nil
}

// rollouts returns the rollouts of the table that a request names, if the caller may read it.
func (w *Watch) rollouts(r *http.Request) (browse.Source, error) {
	name := r.URL.Query().Get("table")
	if err := w.options.Policy.Authorize(r.Context(), name, wire.ToRead); err != nil {
		return nil, err
	}
	return w.options.Rollouts(name), nil
}

// label returns the rollouts of the table that a request names, if the caller may give rewards in it.
func (w *Watch) label(r *http.Request) (browse.Rewarder, error) {
	name := r.URL.Query().Get("table")
	if err := w.options.Policy.Authorize(r.Context(), name, wire.ToLabel); err != nil {
		return nil, err
	}
	return w.options.Rollouts(name), nil
}

// statusOf returns the status code that fits an error of a service.
func statusOf(err error) int {
	switch wire.CodeOf(err) {
	case wire.Invalid, wire.TooLarge:
		return http.StatusBadRequest
	case wire.NotFound:
		return http.StatusNotFound
	case wire.Unauthenticated, wire.Denied:
		return http.StatusForbidden
	case wire.Closing, wire.Elsewhere, wire.Interrupted:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// ServeHTTP answers /, /fragment (the page's body), /rollouts, /label, /reward, /metrics and /healthz.
func (w *Watch) ServeHTTP(answer http.ResponseWriter, r *http.Request) { w.routes.ServeHTTP(answer, r) }

// Run records an observation every interval until the context ends, less often if observing is slow.
func (w *Watch) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		o, took := w.observe()
		w.history.record(&o)
		timer.Reset(max(w.options.Interval, min(intervalFactor*took, maxInterval)))
	}
}

// observe returns a recent observation and how long it took to make. Its parts are shared between requests: do not
// change them.
func (w *Watch) observe() (service.Observation, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.latest == nil || now.Sub(w.observed) >= max(minAge, min(ageFactor*w.took, maxAge)) {
		o := w.source()
		w.latest, w.observed, w.took = &o, time.Now(), time.Since(now)
	}
	return *w.latest, w.took
}

// dashboard answers with the page, or with its body only.
func (w *Watch) dashboard(bodyOnly bool) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		o, _ := w.observe()
		if err := w.page.write(answer, w.viewOf(r.Context(), &o, r.URL.Query()), bodyOnly); err != nil {
			w.options.Logger.Error("write the dashboard", "error", err)
		}
	})
}

// Health is the answer of /healthz.
type Health struct {
	Status string `json:"status"`           // ok, stopping or failed
	Reason string `json:"reason,omitempty"` // for authenticated callers
	Tables int    `json:"tables"`
	// of a cluster, for authenticated callers: failures that may take more than it promises to survive
	Risks []string `json:"risks,omitempty"`
}

// reason returns why a service is not well, "" if it is, in words that name no table that the caller may not read.
func (w *Watch) reason(ctx context.Context, o *service.Observation) string {
	switch {
	case o.Err == nil && o.Stopping:
		return "the service is stopping"
	case o.Err == nil:
		return ""
	case w.options.Policy.ReadsEverything(ctx):
		return o.Err.Error()
	case errors.Is(o.Err, wire.ErrDiskFull):
		return "the disk is full"
	}
	for _, t := range w.readable(ctx, o) {
		if t.Journal != nil && t.Journal.Err != nil {
			return fmt.Sprintf("table %q: journal: %s", t.Name, t.Journal.Err)
		}
	}
	return "something failed outside the tables that you may read: the service's log tells what"
}

// health answers 200 while the service serves, 503 if it is stopping, a journal failed or the disk is full.
func (w *Watch) health(answer http.ResponseWriter, r *http.Request) {
	o, _ := w.observe()
	h := Health{Status: "ok", Tables: len(o.Tables)}
	switch {
	case o.Err != nil:
		h.Status = "failed"
	case o.Stopping:
		h.Status = "stopping"
	}
	risks := o.Cluster != nil && len(o.Cluster.Risks) > 0
	if h.Status != "ok" || risks { // the answers of a service that is well do not wait for those who show wrong tokens
		if ctx, err := w.options.Policy.Authenticate(r); err == nil {
			if h.Reason = w.reason(ctx, &o); risks {
				h.Risks = o.Cluster.Risks
			}
		}
	}
	answer.Header().Set("Content-Type", "application/json")
	answer.Header().Set("Cache-Control", "no-store")
	if h.Status != "ok" {
		answer.WriteHeader(http.StatusServiceUnavailable)
	}
	if err := json.NewEncoder(answer).Encode(h); err != nil {
		w.options.Logger.Debug("write /healthz", "error", err)
	}
}
