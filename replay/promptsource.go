package replay

import (
	"math/rand/v2"
	"slices"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// promptSource is what a source of [PoolPrompts] has beyond others. Of each prompt that the batch has fresh rollouts of
// it draws others that the shard holds, as RePO, RLEP, ARPO and ExGRPO do. It visits all of these prompts' rollouts.
type promptSource struct {
	order      *formula.Formula // nil: at random
	freshWhere *formula.Formula // nil: all
}

func newPromptSource(s Source) (p promptSource) {
	if s.Order != "" {
		p.order, _ = formula.Score(s.Order) // Validate has parsed all
	}
	if s.FreshWhere != "" {
		p.freshWhere, _ = formula.Condition(s.FreshWhere)
	}
	return p
}

// replaceFresh has picks of the i-th source take the places of fresh sources' picks of their prompts, which are passed
// over.
func (s *shard) replaceFresh(random *rand.Rand, i int) {
	s.beginPrompts()
	for _, x := range s.picked {
		if x.source > 0 && s.suppliers[x.source].Pool == PoolFresh { // the request has all that it asks for
			s.freshPrompts.add(s.rollouts[x.slot].PromptID, x.slot)
		}
	}
	for _, prompt := range s.freshPrompts.order {
		old := s.freshPrompts.of[prompt]
		for _, slot := range old[:s.pickOfPrompt(random, i, prompt, len(old))] {
			s.taken[slot] = passedOver
			s.passOver(slot)
		}
	}
	s.picked = slices.DeleteFunc(s.picked, func(x pick) bool { return s.taken[x.slot] == passedOver })
}

// drawOfPrompts adds up to want draws of the i-th source to a batch.
func (s *shard) drawOfPrompts(random *rand.Rand, i, want int, batch *rollout.Batch) {
	s.beginPrompts()
	for k, slot := range s.drawn {
		if batch.Draws[k].Fresh {
			s.freshPrompts.add(s.rollouts[slot].PromptID, slot)
		}
	}
	for _, prompt := range s.freshPrompts.order {
		want -= s.pickOfPrompt(random, i, prompt, want)
	}
	s.addPicked(batch)
}

// What becomes of a rollout in a batch, as sources of [PoolPrompts] know it.
const (
	isTaken = iota + 1
	passedOver
)

// beginPrompts notes what the batch holds, or is about to.
func (s *shard) beginPrompts() {
	if s.taken == nil {
		s.taken = make(map[int32]int)
	}
	s.freshPrompts.reset()
	for _, slot := range s.drawn {
		s.taken[slot] = isTaken
	}
	for _, x := range s.picked {
		s.taken[x.slot] = isTaken
	}
}

// pickOfPrompt picks rollouts of a prompt for the i-th source, up to most, and returns how many.
func (s *shard) pickOfPrompt(random *rand.Rand, i int, prompt string, most int) int {
	p := s.suppliers[i]
	if f := p.prompts.freshWhere; f != nil {
		for _, slot := range s.freshPrompts.of[prompt] {
			if !p.row.unitHolds(f, slot) {
				return 0
			}
		}
	}
	if p.PerPrompt > 0 {
		most = min(most, p.PerPrompt)
	}
	if most < 1 {
		return 0
	}
	s.findCandidates(prompt, p.where, p.prompts.order, func(slot int32) bool {
		return s.taken[slot] != 0 || s.waitsFresh(slot)
	})
	most = min(most, len(s.candidates))
	for k := range most {
		slot, probability := s.candidate(random, k, p.prompts.order != nil)
		s.taken[slot] = isTaken
		s.picked = append(s.picked, pick{slot, probability, i})
	}
	return most
}

// byPrompt groups what is of prompts, which are in the order of the first of each.
type byPrompt[T any] struct {
	of    map[string][]T
	order []string
}

func (g *byPrompt[T]) reset() {
	if g.of == nil {
		g.of = make(map[string][]T)
	}
	clear(g.of)
	g.order = g.order[:0]
}

func (g *byPrompt[T]) add(prompt string, x T) {
	if len(g.of[prompt]) == 0 {
		g.order = append(g.order, prompt)
	}
	g.of[prompt] = append(g.of[prompt], x)
}
