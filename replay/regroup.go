package replay

import (
	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/rollout"
)

// DrawAdvantage is what the advantage of a draw compares its reward with. The bias of each: docs/METHODS.md, section 3.
type DrawAdvantage string

// What advantages compare with.
const (
	// the group that the rollout entered with, or the advantage that it came with
	AdvantageStored    DrawAdvantage = "stored"
	AdvantageRegrouped DrawAdvantage = "regroup"  // the draws of its prompt in the batch, fresh and replayed
	AdvantageSplit     DrawAdvantage = "split"    // of these the fresh ones if it is fresh, else the replayed ones
	AdvantageBaseline  DrawAdvantage = "baseline" // the rollouts of its prompt that the shard holds at the draw
)

// Values returns everything that advantages may compare with.
func (DrawAdvantage) Values() []string {
	return texts(AdvantageStored, AdvantageRegrouped, AdvantageSplit, AdvantageBaseline)
}

// regrouping is scratch for advantages at the draw.
type regrouping struct {
	draws   byPrompt[int]
	rewards []float32 // that are compared
	values  []float32 // of the draws of a prompt: rewards, then advantages
}

// regroup gives the draws of a batch advantages as draw_advantage says: O(1) for each draw, and with baseline O(1) for
// each rollout of its prompts.
func (s *shard) regroup(batch *rollout.Batch) {
	if s.options.DrawAdvantage == AdvantageSplit {
		s.regroupThose(batch, func(d *rollout.Draw) bool { return d.Fresh })
		s.regroupThose(batch, func(d *rollout.Draw) bool { return !d.Fresh })
		return
	}
	s.regroupThose(batch, func(*rollout.Draw) bool { return true })
}

// regroupThose does so for some of the draws, as if the batch had no others.
func (s *shard) regroupThose(batch *rollout.Batch, those func(d *rollout.Draw) bool) {
	x, kind := &s.regrouping, s.options.Advantage
	x.draws.reset()
	for i := range batch.Draws {
		if d := &batch.Draws[i]; those(d) {
			x.draws.add(d.Rollout.PromptID, i)
		}
	}
	for _, prompt := range x.draws.order {
		draws := x.draws.of[prompt]
		x.values = x.values[:0]
		for _, i := range draws {
			x.values = append(x.values, batch.Draws[i].Rollout.Reward)
		}
		compared := x.values
		if s.options.DrawAdvantage == AdvantageBaseline {
			x.rewards = x.rewards[:0]
			for slot := s.prompts.first(prompt); slot != none; slot = s.prompts.after(slot, prompt) {
				if !s.items[slot].is(waits) {
					x.rewards = append(x.rewards, s.rollouts[slot].Reward)
				}
			}
			compared = x.rewards
		}
		advantage.Among(x.values, x.values, compared, kind)
		for k, i := range draws {
			batch.Draws[i].Advantage = x.values[k]
		}
	}
}
