package service

import (
	"context"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/wire"
)

func (t *table) promptsHere() error {
	if t.prompts == nil {
		return wire.Errorf(wire.Invalid, "table %q has no prompt replay: want prompts in its definition", t.Name)
	}
	return nil
}

// promptsNext takes prompts to ask again.
func promptsNext(_ context.Context, t *table, r *wire.PromptsRequest) (any, error) {
	if r.Batch < 1 || r.Batch > math.MaxInt32 {
		return nil, wire.Errorf(wire.Invalid, "batch: %d: want the prompts of a batch, 1 to %d", r.Batch, math.MaxInt32)
	}
	answer := wire.PromptsAnswer{Prompts: []wire.Prompt{}}
	err := t.alive(func() error {
		if err := t.promptsHere(); err != nil {
			return err
		}
		v := t.version()
		answer.Version = int32(v)
		for _, p := range t.prompts.Next(v, r.Batch) {
			answer.Prompts = append(answer.Prompts, wire.Prompt{ID: p.ID, Ref: p.Ref})
		}
		return nil
	})
	return answer, err
}

// promptsReport tells what came of prompts.
func promptsReport(_ context.Context, t *table, r *wire.PromptResults) (any, error) {
	results := make([]prompts.Result, len(r.Results))
	for i, x := range r.Results {
		if err := checkID(fmt.Sprintf("results[%d].id", i), x.ID); err != nil {
			return nil, err
		}
		results[i] = prompts.Result{Prompt: prompts.Prompt{ID: x.ID, Ref: x.Ref}, Correct: x.Correct, Total: x.Total, Replayed: x.Replayed}
	}
	err := t.alive(func() error {
		if err := t.promptsHere(); err != nil {
			return err
		}
		return t.prompts.Report(t.version(), results...)
	})
	return t.noted(err)
}
