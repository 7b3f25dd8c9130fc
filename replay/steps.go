package replay

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/rollout"
)

// ToTheEnd is the Options.StepReturns of returns that run to the end of the episode.
const ToTheEnd = -1

// part is what becomes an item: a rollout of a group, or a step of one.
type part struct {
	rollout *rollout.Rollout
	of      int // the place in the group of the rollout that it is part of
}

// split takes the parts of a group: its rollouts, or the steps of them.
func (t *Table) split(a *arrivals, g rollout.Group, row int) error {
	a.parts = a.parts[:0]
	for i, r := range g.Rollouts {
		if t.options.Unit != UnitStep {
			a.parts = append(a.parts, part{r, i})
			continue
		}
		steps, err := t.steps(r)
		if err != nil {
			err.Row = row + i
			return err
		}
		for _, s := range steps {
			a.parts = append(a.parts, part{s, i})
		}
	}
	if capacity := t.options.shardCapacity(); len(a.parts) > capacity { // of rollouts, check refused it
		return &rollout.FieldError{
			Row: row, Field: "group", Value: fmt.Sprintf("%d steps", len(a.parts)),
			Remedy: fmt.Sprintf("insert groups of no more steps than a shard's capacity %d, or raise capacity", capacity),
		}
	}
	return nil
}

// steps returns the steps of a rollout, whose rewards are their turns', or what StepReturns makes of them.
func (t *Table) steps(r *rollout.Rollout) ([]*rollout.Rollout, *rollout.FieldError) {
	steps, err := r.Steps()
	if err != nil || t.options.StepReturns == 0 || len(r.Turns) == 0 {
		return steps, err
	}
	for i, reward := range r.Returns(t.options.StepReturns, t.options.StepDiscount) {
		if math.IsInf(float64(reward), 0) {
			return nil, &rollout.FieldError{Field: "turns", Value: fmt.Sprintf("rewards whose return from turn %d on is %v", i, reward), Remedy: "give rewards whose sums are finite"}
		}
		steps[i].Reward, steps[i].Turns[0].Reward = reward, reward
	}
	return steps, nil
}
