package sim

import (
	"context"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

// Learner counts steps. The zero value has taken none.
type Learner struct {
	Version rollout.Version
}

// Step counts one. It measures the mean of the draws' importance weights ("weight") and a digest of
// what was drawn, by trainer and in order ("digest", an integer below 2^53).
func (l *Learner) Step(ctx context.Context, batches []*rollout.Batch) (pipeline.Measured, error) {
	if err := ctx.Err(); err != nil {
		return pipeline.Measured{}, err
	}
	var h uint64
	var weight, n float64
	for _, b := range batches {
		for _, d := range b.Draws {
			h = mix(h, uint64(d.ID), uint64(d.Rollout.Tokens[len(d.Rollout.Tokens)-1]), uint64(d.Staleness))
			weight += float64(d.Weight)
			n++
		}
	}
	l.Version++
	return pipeline.Measured{Metrics: map[string]float64{"digest": float64(h >> 11), "weight": weight / n}}, nil
}

// Weights returns the version.
func (l *Learner) Weights() pipeline.Weights { return pipeline.Weights{Version: l.Version} }
