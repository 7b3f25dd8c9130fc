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
	AdvantageBaseline  DrawAdvantage = "baseline" // the rollouts of its prompt that the shard holds at the draw
)

// Values returns everything that advantages may compare with.
func (DrawAdvantage) Values() []string {
	return texts(AdvantageStored, AdvantageRegrouped, AdvantageBaseline)
}

// regrouping is scratch for advantages at the draw.
type regrouping struct {
	prompts map[string][]int // the draws of each prompt
	order   []string         // of the prompts
	rewards []float32        // that are compared
	values  []float32        // of the draws of a prompt: rewards, then advantages
}

// regroup gives the draws of a batch advantages as draw_advantage says: O(1) for each draw, and with baseline O(1) for
// each rollout of its prompts.
func (s *shard) regroup(batch *rollout.Batch) {
	x, kind := &s.regrouping, s.options.Advantage
	if x.prompts == nil {
		x.prompts = make(map[string][]int)
	}
	clear(x.prompts)
	x.order = x.order[:0]
	for i := range batch.Draws {
		prompt := batch.Draws[i].Rollout.PromptID
		if len(x.prompts[prompt]) == 0 {
			x.order = append(x.order, prompt)
		}
		x.prompts[prompt] = append(x.prompts[prompt], i)
	}
	for _, prompt := range x.order {
		draws := x.prompts[prompt]
		x.values = x.values[:0]
		for _, i := range draws {
			x.values = append(x.values, batch.Draws[i].Rollout.Reward)
		}
		compared := x.values
		if s.options.DrawAdvantage == AdvantageBaseline {
			x.rewards = x.rewards[:0]
			for slot := s.prompts.first(prompt); slot != none; slot = s.prompts.after(slot, prompt) {
				x.rewards = append(x.rewards, s.rollouts[slot].Reward)
			}
			compared = x.rewards
		}
		advantage.Among(x.values, x.values, compared, kind)
		for k, i := range draws {
			batch.Draws[i].Advantage = x.values[k]
		}
	}
}
