package browse

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	styleText string
	//go:embed text.js
	sharedText string
	//go:embed page.js
	scriptText string
)

// policy is the content security policy of the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page at /rollouts and what it asks for below: find, one and score, and its script and style sheet.
// Source returns the table that a request names by the parameter table of the address, or run, a run whose last
// checkpoint has the table: the page hands both on, and shows what it was given. A source that is a [Scorer] can score.
// Status is the status code of an error of a source that is neither [ErrGone] nor rollout.ErrInvalid.
func Handler(source func(r *http.Request) (Source, error), status func(error) int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rollouts", text("text/html", pageText))
	mux.HandleFunc("GET /rollouts/page.css", text("text/css", figures.Palette+styleText))
	mux.HandleFunc("GET /rollouts/text.js", text("text/javascript", sharedText))
	mux.HandleFunc("GET /rollouts/page.js", text("text/javascript", scriptText))
	answer := func(ask func(Source, *http.Request) (any, error)) http.HandlerFunc {
		return answered(status, func(r *http.Request) (any, error) {
			of, err := source(r)
			if err != nil {
				return nil, err
			}
			return ask(of, r)
		})
	}
	mux.HandleFunc("GET /rollouts/find", answer(find))
	mux.HandleFunc("GET /rollouts/one", answer(one))
	mux.HandleFunc("GET /rollouts/score", answer(score))
	return guarded(mux)
}

// answered answers requests with JSON, errors by their status code.
func answered(status func(error) int, ask func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := ask(r)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case err == nil:
		case errors.Is(err, rollout.ErrInvalid):
			w.WriteHeader(http.StatusBadRequest)
		case errors.Is(err, ErrGone):
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(status(err))
		}
		if err != nil {
			found = map[string]string{"error": err.Error()}
		}
		_ = json.NewEncoder(w).Encode(found) // the reader may be gone
	}
}

// guarded keeps pages from asking any other host, and from being framed and kept.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

func text(kind, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		_, _ = io.WriteString(w, content)
	}
}

func find(of Source, r *http.Request) (any, error) {
	values := r.URL.Query()
	q := replay.Query{Where: values.Get("where"), Order: values.Get("order"), Text: values.Get("text"),
		Prompt: values.Get("prompt")}
	group, err := whole(values, "group")
	if err != nil {
		return nil, err
	}
	q.Group = uint64(group)
	if q.Skip, err = whole(values, "skip"); err != nil {
		return nil, err
	}
	if q.Limit, err = whole(values, "limit"); err != nil {
		return nil, err
	}
	return of.Rollouts(r.Context(), q)
}

func one(of Source, r *http.Request) (any, error) {
	id, err := whole(r.URL.Query(), "id")
	if err != nil {
		return nil, err
	}
	return of.Rollout(r.Context(), rollout.ID(id))
}

func score(of Source, r *http.Request) (any, error) {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return nil, fmt.Errorf("scoring takes time, and another page asked for it: open this one: %w", rollout.ErrInvalid)
	}
	id, err := whole(r.URL.Query(), "id")
	if err != nil {
		return nil, err
	}
	s, ok := of.(Scorer)
	if !ok {
		s = Table{} // says what can be done
	}
	return s.Score(r.Context(), rollout.ID(id))
}

// whole returns a parameter that is a whole number; 0 if it is not given.
func whole(values url.Values, key string) (int, error) {
	value := values.Get(key)
	if value == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %.40q: give a whole number, at least 0: %w", key, value, rollout.ErrInvalid)
	}
	return n, nil
}
