package replay

import "math/rand/v2"

// unseen draws what was never drawn, then any other, without replacement within a batch. Ready: never
// drawn; rest: drawn before.
type unseen struct {
	decked
	store *store
}

func (u *unseen) draw(r *rand.Rand) (int32, float64) {
	d := &u.deck
	if d.ready > d.held {
		s, p := d.pick(r, d.held, d.ready)
		d.readyToHeld(s)
		return s, p
	}
	s, p := d.pick(r, d.ready, d.len())
	u.took(s)
	return s, p
}

func (u *unseen) end() {
	d := &u.deck
	for d.held > 0 {
		s := d.slots[d.held-1]
		d.heldToReady(s)
		d.readyToRest(s)
	}
}

// used counts a slot as drawn before.
func (u *unseen) used(s, _ int32) { u.deck.readyToRest(s) }

// took holds a slot, which counts as drawn from then on.
func (u *unseen) took(s int32) {
	if u.deck.inRest(s) {
		u.deck.restToReady(s)
	}
	u.deck.readyToHeld(s)
}

// restore makes a slot never drawn again if no other draw of it counts or is on lease.
func (u *unseen) restore(s int32) {
	d := &u.deck
	if !d.has(s) {
		d.addRest(s)
	}
	if it := &u.store.items[s]; d.inRest(s) && it.Uses == 0 && it.Leased == 0 {
		d.restToReady(s)
	}
}
