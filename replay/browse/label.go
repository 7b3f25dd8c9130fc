package browse

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	//go:embed label.html
	labelText string
	//go:embed label.css
	labelStyle string
	//go:embed label.js
	labelScript string
)

// Rewarder is a source whose rollouts a reader may give rewards.
type Rewarder interface {
	Source
	// Reward is [replay.Table.Reward].
	Reward(ctx context.Context, r rollout.Rewards) (rollout.Rewarded, error)
}

// mostRewardBytes bounds the body of a request: rollout.MostRewards of them take less.
const mostRewardBytes = 128 << 10

// LabelHandler serves the page by which people give rewards at /label, and takes rewards at POST /reward, of the table
// that the parameter table of the address names. The page asks [Handler] for rollouts. Source and status are as there.
//
// A request of another site's page is refused: a browser says where a request comes from, and sends JSON of another
// site's page only if it was allowed to.
func LabelHandler(source func(r *http.Request) (Rewarder, error), status func(error) int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /label", text("text/html", labelText))
	mux.HandleFunc("GET /label/page.css", text("text/css", figures.Palette+styleText+labelStyle))
	mux.HandleFunc("GET /label/page.js", text("text/javascript", labelScript))
	mux.HandleFunc("POST /reward", answered(status, func(r *http.Request) (any, error) {
		given, err := readRewards(r)
		if err != nil {
			return nil, err
		}
		of, err := source(r)
		if err != nil {
			return nil, err
		}
		return of.Reward(r.Context(), given)
	}))
	return guarded(http.NewCrossOriginProtection().Handler(mux))
}

// readRewards reads the body of POST /reward.
func readRewards(r *http.Request) (given rollout.Rewards, err error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return given, fmt.Errorf("content-type is %.60q: send application/json: %w", r.Header.Get("Content-Type"),
			rollout.ErrInvalid)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, mostRewardBytes+1))
	if err != nil {
		return given, err
	}
	if len(body) > mostRewardBytes {
		return given, fmt.Errorf("body has more than %d bytes: give at most %d rewards at once: %w", mostRewardBytes,
			rollout.MostRewards, rollout.ErrInvalid)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&given); err != nil {
		return given, fmt.Errorf("body: %s: send {\"ids\": [1], \"rewards\": [0.5], \"by\": \"judge-3\", \"request_id\": "+
			"\"…\"}: %w", err, rollout.ErrInvalid)
	}
	return given, nil
}
