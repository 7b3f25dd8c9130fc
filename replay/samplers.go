package replay

import (
	"math/rand/v2"
	"slices"
)

// sampler decides which slot is drawn next. Each method costs O(1) per slot, with prioritized O(log N). The shard's
// lock guards it. For a batch the shard calls holdForBatch for each fresh draw, begin and draw for the others, and end;
// between them it only removes what was just drawn.
type sampler interface {
	// add makes a new arrival drawable.
	add(s int32)
	// remove makes a slot undrawable. It does nothing if it already is.
	remove(s int32)
	// holdForBatch notes that the shard has put a slot into the batch. A sampler without replacement does not draw it
	// again in that batch.
	holdForBatch(s int32)
	// restore takes back a draw of a slot that was not acknowledged.
	restore(s int32)
	// setUses sets the earlier draws of a slot just added, when a table is rebuilt.
	setUses(s int32, uses int32)
	// size returns how many slots can be drawn.
	size() int

	// begin prepares n draws.
	begin(r *rand.Rand, n int)
	// draw returns a slot and the probability of this draw (invariant 4). There is a slot to draw: size was checked
	// against the batch.
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
		return newPrioritized(o, st, unitsOf(o.Unit))
	case LeastUsed:
		return &leastUsed{}
	case Ordered:
		return new(ordered) // newShard makes it know the shard
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

// slotSampler is the common part of samplers that draw from a slotSet.
type slotSampler struct{ slotSet slotSet }

func (d *slotSampler) add(s int32)           { d.slotSet.addReady(s) }
func (d *slotSampler) remove(s int32)        { d.slotSet.remove(s) }
func (d *slotSampler) setUses(int32, int32)  {}
func (d *slotSampler) size() int             { return d.slotSet.len() }
func (d *slotSampler) begin(*rand.Rand, int) {}
func (d *slotSampler) holdForBatch(int32)    {}
func (d *slotSampler) end()                  {}

// restore adds a slot that its draws on lease had exhausted.
func (d *slotSampler) restore(s int32) {
	if !d.slotSet.has(s) {
		d.slotSet.addReady(s)
	}
}

func (d *slotSampler) state() samplerState {
	return samplerState{Slots: slices.Clone(d.slotSet.slots), Pos: slices.Clone(d.slotSet.pos), Ready: d.slotSet.ready}
}

func (d *slotSampler) setState(st samplerState) {
	d.slotSet = slotSet{slots: st.Slots, pos: st.Pos, ready: st.Ready}
}

// pick returns one of slots[from:to] and its probability.
func (d *slotSet) pick(r *rand.Rand, from, to int) (int32, float64) {
	n := to - from
	return d.slots[from+int(r.Uint64N(uint64(n)))], 1 / float64(n)
}

// slotSet holds the slots that a sampler may draw, in three zones of one array: held, drawn already in the batch being
// drawn; ready, drawn from now; rest, drawn from later. Every operation is a constant number of swaps, so nothing is
// shuffled or copied however many there are.
type slotSet struct {
	slots []int32
	pos   []int32 // by slot, its place in slots; none: not in the slotSet
	held  int     // slots[:held]
	ready int     // slots[held:ready]; slots[ready:] rest
}

func (d *slotSet) len() int { return len(d.slots) }

func (d *slotSet) has(s int32) bool { return int(s) < len(d.pos) && d.pos[s] != none }

// addRest puts a new slot into the rest zone.
func (d *slotSet) addRest(s int32) {
	for int(s) >= len(d.pos) {
		d.pos = append(d.pos, none)
	}
	d.pos[s] = int32(len(d.slots))
	d.slots = append(d.slots, s)
}

// addReady puts a new slot into the ready zone.
func (d *slotSet) addReady(s int32) {
	d.addRest(s)
	d.restToReady(s)
}

// remove removes a slot, if the set holds it.
func (d *slotSet) remove(s int32) {
	if !d.has(s) {
		return
	}
	if int(d.pos[s]) < d.held {
		d.heldToReady(s)
	}
	if int(d.pos[s]) < d.ready {
		d.readyToRest(s)
	}
	last := len(d.slots) - 1
	d.swap(int(d.pos[s]), last)
	d.slots = d.slots[:last]
	d.pos[s] = none
}

func (d *slotSet) inRest(s int32) bool { return int(d.pos[s]) >= d.ready }

func (d *slotSet) readyToHeld(s int32) {
	d.swap(int(d.pos[s]), d.held)
	d.held++
}

func (d *slotSet) heldToReady(s int32) {
	d.held--
	d.swap(int(d.pos[s]), d.held)
}

func (d *slotSet) readyToRest(s int32) {
	d.ready--
	d.swap(int(d.pos[s]), d.ready)
}

func (d *slotSet) restToReady(s int32) {
	d.swap(int(d.pos[s]), d.ready)
	d.ready++
}

func (d *slotSet) swap(i, j int) {
	if i == j {
		return
	}
	a, b := d.slots[i], d.slots[j]
	d.slots[i], d.slots[j] = b, a
	d.pos[b], d.pos[a] = int32(i), int32(j)
}

// queue gives each rollout once, the newest or the oldest first: training without replay. A draw leaves the queue at
// once and, not acknowledged, goes back to where its age belongs.
type queue struct {
	store       *store
	waiting     list
	newestFirst bool
}

func (q *queue) add(s int32) { q.waiting.push(q.store, s) }

// remove does nothing for a drawn slot, which is unlinked already.
func (q *queue) remove(s int32) {
	if !q.out(s) {
		q.waiting.remove(q.store, s)
	}
}

// out reports whether a slot is unlinked.
func (q *queue) out(s int32) bool {
	at := &q.store.links[s].Of[q.waiting.Kind]
	return at.Prev == none && at.Next == none && q.waiting.Head != s
}

func (q *queue) restore(s int32)       { q.waiting.insertByID(q.store, s, q.newestFirst) }
func (q *queue) setUses(int32, int32)  {}
func (q *queue) size() int             { return q.waiting.Len }
func (q *queue) begin(*rand.Rand, int) {}
func (q *queue) holdForBatch(int32)    {}
func (q *queue) end()                  {}

func (q *queue) draw(*rand.Rand) (int32, float64) {
	s := q.waiting.Head
	if q.newestFirst {
		s = q.waiting.Tail
	}
	q.waiting.remove(q.store, s)
	return s, 1
}

func (q *queue) state() samplerState      { return samplerState{Queue: q.waiting} }
func (q *queue) setState(st samplerState) { q.waiting = st.Queue }

// uniform draws independently and with replacement: the sampler of the analysis ([ER] §3). All slots are ready at all
// times.
type uniform struct{ slotSampler }

func (u *uniform) draw(r *rand.Rand) (int32, float64) { return u.slotSet.pick(r, 0, u.slotSet.len()) }

// distinct draws without replacement within a batch ([ER] listing 5): a partial Fisher-Yates shuffle whose drawn part
// is ready again, by one assignment, when the batch ends.
type distinct struct{ slotSampler }

func (d *distinct) draw(r *rand.Rand) (int32, float64) {
	s, p := d.slotSet.pick(r, d.slotSet.held, d.slotSet.ready)
	d.slotSet.readyToHeld(s)
	return s, p
}

// holdForBatch does nothing for a slot that the set lacks: retention draws from a part of the table.
func (d *distinct) holdForBatch(s int32) {
	if d.slotSet.has(s) {
		d.slotSet.readyToHeld(s)
	}
}
func (d *distinct) end() { d.slotSet.held = 0 }

// epoch draws without replacement until every slot was drawn, then starts over. Ready slots are still to come in this
// epoch, arrivals included; rest slots were drawn in it. When an epoch ends within a batch, the batch's draws of it are
// held until the batch ends, so that no rollout comes twice.
type epoch struct {
	slotSampler
	drawn []int32 // in this batch, before its epoch ended
}

func (e *epoch) draw(r *rand.Rand) (int32, float64) {
	d := &e.slotSet
	if d.ready == d.held {
		e.turn()
	}
	s, p := d.pick(r, d.held, d.ready)
	d.readyToRest(s)
	e.drawn = append(e.drawn, s)
	return s, p
}

// turn starts the next epoch. It happens at most once a batch, which is never larger than the slotSet.
func (e *epoch) turn() {
	d := &e.slotSet
	for _, s := range e.drawn {
		if d.has(s) {
			d.restToReady(s)
			d.readyToHeld(s)
		}
	}
	d.ready = d.len()
}

func (e *epoch) end() {
	e.slotSet.held = 0
	e.drawn = e.drawn[:0]
}

// holdForBatch counts a slot as drawn in this epoch.
func (e *epoch) holdForBatch(s int32) {
	if !e.slotSet.inRest(s) {
		e.slotSet.readyToRest(s)
	}
	e.drawn = append(e.drawn, s)
}

// restore makes a slot that the epoch counts as drawn ready again.
func (e *epoch) restore(s int32) {
	switch {
	case !e.slotSet.has(s):
		e.slotSet.addReady(s)
	case e.slotSet.inRest(s):
		e.slotSet.restToReady(s)
	}
}

// unseen draws slots that were never drawn, then any other, without replacement within a batch. Ready slots were never
// drawn, rest slots were.
type unseen struct {
	slotSampler
	store *store
}

func (u *unseen) draw(r *rand.Rand) (int32, float64) {
	d := &u.slotSet
	if d.ready > d.held {
		s, p := d.pick(r, d.held, d.ready)
		d.readyToHeld(s)
		return s, p
	}
	s, p := d.pick(r, d.ready, d.len())
	u.holdForBatch(s)
	return s, p
}

func (u *unseen) end() {
	d := &u.slotSet
	for d.held > 0 {
		s := d.slots[d.held-1]
		d.heldToReady(s)
		d.readyToRest(s)
	}
}

// setUses counts a slot as drawn before.
func (u *unseen) setUses(s, _ int32) { u.slotSet.readyToRest(s) }

// holdForBatch holds a slot for this batch, and counts it as drawn.
func (u *unseen) holdForBatch(s int32) {
	if u.slotSet.inRest(s) {
		u.slotSet.restToReady(s)
	}
	u.slotSet.readyToHeld(s)
}

// restore makes a slot unseen again if it has no use and no other draw on lease.
func (u *unseen) restore(s int32) {
	d := &u.slotSet
	if !d.has(s) {
		d.addRest(s)
	}
	if it := &u.store.items[s]; d.inRest(s) && it.Uses == 0 && it.Leased == 0 {
		d.restToReady(s)
	}
}

// leastUsed draws those with the fewest draws first, at random among equals, without replacement within a batch.
type leastUsed struct {
	levels [][]int32 // slots by number of draws
	pos    []int32   // by slot, its place in its level; none: not there
	uses   []int32   // by slot, draws that count or are on lease
	lowest int       // no level below has a slot
	count  int
	held   []int32 // drawn in this batch
}

func (l *leastUsed) add(s int32) {
	for int(s) >= len(l.pos) {
		l.pos, l.uses = append(l.pos, none), append(l.uses, 0)
	}
	l.uses[s] = 0
	l.put(s)
}

// setUses counts draws from before.
func (l *leastUsed) setUses(s, uses int32) {
	l.take(s)
	l.uses[s] = uses
	l.put(s)
}

// put makes a slot drawable.
func (l *leastUsed) put(s int32) {
	n := int(l.uses[s])
	for n >= len(l.levels) {
		l.levels = append(l.levels, nil)
	}
	l.pos[s] = int32(len(l.levels[n]))
	l.levels[n] = append(l.levels[n], s)
	l.lowest = min(l.lowest, n)
	l.count++
}

func (l *leastUsed) has(s int32) bool { return int(s) < len(l.pos) && l.pos[s] != none }

// remove does nothing for a slot that is not there. A held slot does not come back.
func (l *leastUsed) remove(s int32) {
	for i := len(l.held) - 1; i >= 0; i-- { // it is the last, as a rule
		if l.held[i] == s {
			l.held[i] = none
			return
		}
	}
	if l.has(s) {
		l.take(s)
	}
}

func (l *leastUsed) take(s int32) {
	level := l.levels[l.uses[s]]
	last := level[len(level)-1]
	level[l.pos[s]] = last
	l.pos[last] = l.pos[s]
	l.pos[s] = none
	l.levels[l.uses[s]] = level[:len(level)-1]
	l.count--
}

func (l *leastUsed) size() int { return l.count }

func (l *leastUsed) begin(*rand.Rand, int) {}

func (l *leastUsed) draw(r *rand.Rand) (int32, float64) {
	for len(l.levels[l.lowest]) == 0 {
		l.lowest++
	}
	level := l.levels[l.lowest]
	s, p := level[r.IntN(len(level))], 1/float64(len(level))
	l.holdForBatch(s)
	return s, p
}

func (l *leastUsed) end() {
	for _, s := range l.held {
		if s != none {
			l.put(s)
		}
	}
	l.held = l.held[:0]
}

// holdForBatch counts a draw and holds its slot until the batch ends.
func (l *leastUsed) holdForBatch(s int32) {
	l.take(s)
	l.uses[s]++
	l.held = append(l.held, s)
}

// restore takes one draw off the count.
func (l *leastUsed) restore(s int32) {
	if l.has(s) {
		l.take(s)
	}
	l.uses[s]--
	l.put(s)
}

func (l *leastUsed) state() samplerState {
	slots := make([]int32, 0, l.count)
	for _, level := range l.levels {
		slots = append(slots, level...)
	}
	return samplerState{Slots: slots, Uses: slices.Clone(l.uses)}
}

func (l *leastUsed) setState(st samplerState) {
	*l = leastUsed{uses: st.Uses, pos: make([]int32, len(st.Uses))}
	for i := range l.pos {
		l.pos[i] = none
	}
	for _, s := range st.Slots {
		l.put(s)
	}
}
