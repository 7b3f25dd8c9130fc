package policy

import "github.com/reprise-rl/reprise/rollout"

// memory is what is known of a pass beyond its step: the steps of a batch make the same passes.
type memory struct {
	extent   extent
	rollouts []*rollout.Rollout // of its draws, which are immutable
	known    map[*Weights]opinion
}

// remember keeps what is known of a step's passes if the next step is on the same batch.
func (l *Learner) remember(shards [][]pass) {
	l.memory = nil
	if l.step%l.options.Updates == 0 {
		return
	}
	l.memory = make([][]memory, len(shards))
	for i, s := range shards {
		for _, p := range s {
			of := memory{extent: extent{rows: p.rows, length: p.length}, known: map[*Weights]opinion{}}
			for _, d := range p.draws {
				of.rollouts = append(of.rollouts, d.Rollout)
			}
			for _, w := range []*Weights{l.weights, l.startOfBatch(), l.reference} { // what the next step may ask again
				if said, ok := p.known[w]; ok {
					of.known[w] = said
				}
			}
			l.memory[i] = append(l.memory[i], of)
		}
	}
}

// recall gives passes what is known of them from the step before. Those of other rollouts get nothing.
func (l *Learner) recall(shards [][]pass) {
	for i, s := range shards {
		for j := range s {
			if i < len(l.memory) && j < len(l.memory[i]) && l.memory[i][j].of(&s[j]) {
				s[j].known = l.memory[i][j].known
			}
		}
	}
}

// of tells whether a memory is of the pass.
func (m memory) of(p *pass) bool {
	if m.extent != (extent{rows: p.rows, length: p.length}) || len(m.rollouts) != len(p.draws) {
		return false
	}
	for i, d := range p.draws {
		if m.rollouts[i] != d.Rollout {
			return false
		}
	}
	return true
}
