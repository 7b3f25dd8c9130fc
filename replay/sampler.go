package replay

import (
	"math/rand/v2"
	"slices"
)

// sampler decides which slot is drawn next. Each method costs O(1) per slot, of prioritized O(log N); the shard's lock guards
// it. A batch is took for each fresh draw, begin and draws if there are others, and end, with nothing between but remove of
// what was just drawn.
type sampler interface {
	// add makes a new arrival drawable.
	add(s int32)
	// remove makes a slot undrawable; one that is so already is left alone.
	remove(s int32)
	// took tells that a drawable slot was drawn otherwise, as fresh, before the others of the batch. A sampler that does not
	// replace does not draw it again in that batch.
	took(s int32)
	// restore takes back a draw that was not acknowledged: the slot is owed a draw again.
	restore(s int32)
	// used tells that a slot just added was drawn so many times before, in a table that is rebuilt.
	used(s int32, uses int32)
	// size returns how many slots can be drawn.
	size() int

	// begin prepares n draws.
	begin(r *rand.Rand, n int)
	// draw returns a slot and the probability with which this draw fell on it (invariant 4). There
	// is one to draw: size was checked against the batch.
	draw(r *rand.Rand) (s int32, probability float64)
	end()

	// state and setState are for snapshots, between batches. A state shares nothing with the sampler that returned it.
	state() samplerState
	setState(samplerState)
}

// samplerState is any sampler's state, for encoding/gob.
type samplerState struct {
	Slots, Pos []int32
	Ready      int
	Queue      list
	Uses       []int32
	Weights    weightState
}

func newSampler(o *Options, st *store) sampler {
	switch o.Sampler {
	case LIFO, FIFO:
		return &queue{store: st, waiting: newList(arrivalList), newestFirst: o.Sampler == LIFO}
	case Prioritized:
		return newPrioritized(o.Prioritization, st, unitsOf(o.Unit))
	case LeastUsed:
		return &leastUsed{}
	case Uniform:
		return &uniform{}
	case Epoch:
		return &epoch{}
	case Unseen:
		return &unseen{store: st}
	default:
		return &distinct{}
	}
}

// decked is what the samplers that draw from a deck share.
type decked struct{ deck deck }

func (d *decked) add(s int32)           { d.deck.addReady(s) }
func (d *decked) remove(s int32)        { d.deck.remove(s) }
func (d *decked) used(int32, int32)     {}
func (d *decked) size() int             { return d.deck.len() }
func (d *decked) begin(*rand.Rand, int) {}
func (d *decked) took(int32)            {}
func (d *decked) end()                  {}

// restore puts back a slot that its draws on lease had exhausted.
func (d *decked) restore(s int32) {
	if !d.deck.has(s) {
		d.deck.addReady(s)
	}
}

func (d *decked) state() samplerState {
	return samplerState{Slots: slices.Clone(d.deck.slots), Pos: slices.Clone(d.deck.pos), Ready: d.deck.ready}
}

func (d *decked) setState(st samplerState) {
	d.deck = deck{slots: st.Slots, pos: st.Pos, ready: st.Ready}
}

// pick returns one of slots[from:to] and its probability.
func (d *deck) pick(r *rand.Rand, from, to int) (int32, float64) {
	n := to - from
	return d.slots[from+int(r.Uint64N(uint64(n)))], 1 / float64(n)
}
