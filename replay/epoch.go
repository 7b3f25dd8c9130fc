package replay

import "math/rand/v2"

// epoch draws without replacement until all present were drawn, then anew. Ready: still to come in
// this epoch, arrivals included; rest: drawn in this epoch. When an epoch ends within a batch, what
// the batch has drawn of it is held, so that no rollout comes twice, and is ready once the batch ends.
type epoch struct {
	decked
	drawn []int32 // in this batch, before its epoch ended
}

func (e *epoch) draw(r *rand.Rand) (int32, float64) {
	d := &e.deck
	if d.ready == d.held {
		e.turn()
	}
	s, p := d.pick(r, d.held, d.ready)
	d.readyToRest(s)
	e.drawn = append(e.drawn, s)
	return s, p
}

// turn starts the next epoch. It happens at most once a batch, which is never larger than the deck.
func (e *epoch) turn() {
	d := &e.deck
	for _, s := range e.drawn {
		if d.has(s) {
			d.restToReady(s)
			d.readyToHeld(s)
		}
	}
	d.ready = d.len()
}

func (e *epoch) end() {
	e.deck.held = 0
	e.drawn = e.drawn[:0]
}

// took counts a slot as drawn in this epoch.
func (e *epoch) took(s int32) {
	if !e.deck.inRest(s) {
		e.deck.readyToRest(s)
	}
	e.drawn = append(e.drawn, s)
}

// restore makes a slot that the epoch counts as drawn ready again.
func (e *epoch) restore(s int32) {
	switch {
	case !e.deck.has(s):
		e.deck.addReady(s)
	case e.deck.inRest(s):
		e.deck.restToReady(s)
	}
}
