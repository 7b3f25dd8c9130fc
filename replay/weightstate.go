package replay

import (
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// weightState is what a snapshot keeps of a prioritized sampler. Weights are kept as they stand, to the last bit: computed
// anew they could differ in it, and so could draws. Fields are exported for encoding/gob.
type weightState struct {
	Tau             float64
	Ref, LeastRef   rollout.Version
	Shift, Largest  float64
	Bases           []float64
	Weights, Leasts []float64
	Count           int
}

func (p *prioritized) state() samplerState {
	st := weightState{Tau: p.tau, Ref: p.ref, LeastRef: p.leastRef, Shift: p.shift, Largest: p.largest, Bases: slices.Clone(p.bases), Count: p.count}
	st.Weights = make([]float64, 0, p.tree.Len())
	if p.least != nil {
		st.Leasts = make([]float64, 0, p.tree.Len())
	}
	for s := range p.tree.Len() {
		st.Weights = append(st.Weights, p.tree.At(s))
		if p.least != nil {
			st.Leasts = append(st.Leasts, p.least.At(s))
		}
	}
	return samplerState{Weights: st}
}

func (p *prioritized) setState(state samplerState) {
	st := state.Weights
	p.tau, p.rate = st.Tau, p.o.rate(st.Tau)
	p.ref, p.leastRef, p.shift, p.largest, p.bases, p.count = st.Ref, st.LeastRef, st.Shift, st.Largest, st.Bases, st.Count
	p.room(len(st.Weights))
	p.tree.Refill(func(leaf []float64) { copy(leaf, st.Weights) })
	if p.least != nil {
		p.least.Refill(func(leaf []float64) { copy(leaf, st.Leasts) })
	}
}
