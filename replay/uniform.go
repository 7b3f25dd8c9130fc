package replay

import "math/rand/v2"

// uniform draws independently and with replacement: the sampler of the analysis ([ER] §3). All slots
// are ready at all times.
type uniform struct{ decked }

func (u *uniform) draw(r *rand.Rand) (int32, float64) { return u.deck.pick(r, 0, u.deck.len()) }

// distinct draws without replacement within a batch ([ER] listing 5): a partial Fisher-Yates shuffle
// whose drawn part is ready again, by one assignment, when the batch ends.
type distinct struct{ decked }

func (d *distinct) draw(r *rand.Rand) (int32, float64) {
	s, p := d.deck.pick(r, d.deck.held, d.deck.ready)
	d.deck.readyToHeld(s)
	return s, p
}

func (d *distinct) took(s int32) { d.deck.readyToHeld(s) }
func (d *distinct) end()         { d.deck.held = 0 }
