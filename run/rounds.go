package run

import (
	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
)

// rounds asks the first so many training prompts over and over, in their order. It keeps nothing of its own.
type rounds struct {
	limit  uint64
	chosen pipeline.Prompts // what chooses among them; nil: each comes in its turn
}

// Choose returns the number of the prompt of a job, below the limit.
func (r rounds) Choose(job uint64, v rollout.Version) (prompt uint64, replayed bool) {
	if r.chosen != nil {
		job, replayed = r.chosen.Choose(job, v)
	}
	return job % r.limit, replayed
}

// Report passes on what came of a prompt.
func (r rounds) Report(v rollout.Version, prompt uint64, replayed bool, rollouts []*rollout.Rollout) error {
	if r.chosen == nil {
		return nil
	}
	return r.chosen.Report(v, prompt, replayed, rollouts)
}
