package replay

import (
	"math"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// split makes the units of a group.
func (m *model) split(g rollout.Group) (units []*modelUnit) {
	var compared []float32 // rewards, or the returns of steps
	var parts [][]*rollout.Rollout
	for _, r := range g.Rollouts {
		of := []*rollout.Rollout{r}
		if m.o.Unit == UnitStep {
			of = m.steps(r)
		}
		if m.o.StepReturns == 0 {
			compared = append(compared, r.Reward)
		} else {
			for _, part := range of {
				compared = append(compared, part.Reward)
			}
		}
		parts = append(parts, of)
	}
	moments := advantage.MomentsOf(compared)
	advantages := make([]float32, len(compared))
	advantage.OfGroup(advantages, compared, m.o.Advantage)
	next := 0
	for i, r := range g.Rollouts {
		for _, part := range parts[i] {
			at := i
			if m.o.StepReturns != 0 {
				at = next
			}
			next++
			it := &modelItem{r: part, advantage: advantages[at], mean: float32(moments.Mean), std: float32(moments.Std())}
			if m.o.Unit == UnitGroup && i > 0 {
				units[0].items = append(units[0].items, it)
				continue
			}
			units = append(units, &modelUnit{
				items: []*modelItem{it}, correct: r.Reward >= *m.o.PositiveThreshold, lastUse: rollout.NoVersion,
			})
		}
	}
	return units
}

// steps makes the steps of a rollout, the reward of each by its definition.
func (m *model) steps(r *rollout.Rollout) []*rollout.Rollout {
	steps, _ := r.Steps()
	if m.o.StepReturns == 0 || len(r.Turns) == 0 {
		return steps
	}
	for i := range steps {
		sum := 0.0
		for k := i; k < len(r.Turns) && (m.o.StepReturns < 0 || k < i+m.o.StepReturns); k++ {
			sum += math.Pow(m.o.StepDiscount, float64(k-i)) * float64(r.Turns[k].Reward)
		}
		steps[i].Reward = float32(sum)
		steps[i].Turns = []rollout.Turn{r.Turns[i]}
		steps[i].Turns[0].Reward = float32(sum)
	}
	return steps
}
