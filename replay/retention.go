package replay

import (
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// retention decides what leaves a full shard. With retention scored that is the unit of the least score, at the time of
// an insertion. Otherwise it has a recent part and, with retention positive, a part reserved for
// correct rollouts, both in order of arrival. When the oldest recent rollout no longer fits it moves to the reserved
// part if it is correct, and leaves otherwise. Rollouts that leave for other reasons free room in their own part.
//
// Bytes are divided like counts. A queue has no retention: it refuses insertions instead.
type retention struct {
	store                      *store
	recent, reserved           list
	recentSize, reservedSize   int
	recentBytes, reservedBytes int64 // math.MaxInt64: not bounded

	perPrompt int                // most reserved rollouts of one prompt; 0: not bounded
	prompts   map[string][]int32 // the reserved slots of each prompt, the oldest first; nil if perPrompt is 0

	maxUses   int32     // 0: not bounded
	draws     bool      // whether batches have draws from the reserved part
	positives positives // makes them; empty if draws is false

	scored *scored // nil unless the retention is scored

	changes *changeLog // of the shard
}

// scored ranks the units of a shard, the first that leaves first. A unit's score is a function of what the shard knows
// of it at its version, so snapshots and journals have nothing of it. A change of a unit costs O(log N); scores that
// read age or since_use are computed for all, O(N log N), before something leaves at another version.
type scored struct {
	*score
	leaving ranking
	known   bool
	version rollout.Version // of the scores
}

// weigh gives a unit, named by its first slot, its rank, or leaves that to follow.
func (x *scored) weigh(first int32) {
	if x.known {
		x.leaving.set(first, -x.ofUnit(first))
	}
}

// follow ranks all units if their scores are not those of the present version.
func (x *scored) follow() {
	s := x.row.shard
	if x.known && (!x.byAge || x.version == s.version) {
		return
	}
	x.known, x.version = true, s.version
	x.leaving.clear()
	for slot := range s.items {
		if s.holds(int32(slot)) && s.units.isFirst(&s.store, int32(slot)) {
			x.weigh(int32(slot))
		}
	}
}

// leavesBefore reports whether one rollout leaves before another, with retention fifo or scored.
func (r *retention) leavesBefore(a, b int32) bool {
	if r.scored == nil {
		return r.store.items[a].ID < r.store.items[b].ID
	}
	r.scored.follow()
	return r.scored.leaving.before(a, b)
}

// trim evicts until the shard is within its bounds again (invariant 2), after a unit was added.
func (r *retention) trim(evict func(s int32)) {
	for r.recent.Len > r.recentSize || r.recent.Bytes > r.recentBytes {
		r.scored.follow()
		evict(r.scored.leaving.heap[0])
	}
}

// positives draws from the reserved part.
type positives struct{ distinct }

// size returns how many slots the batch can still have.
func (p *positives) size() int { return p.slotSet.len() - p.slotSet.held }

func newRetention(o Options, st *store) *retention {
	r := &retention{
		store: st, recent: newList(arrivalList), reserved: newList(arrivalList),
		recentSize: o.recentCapacity(), reservedSize: o.correctCapacity(),
		recentBytes: o.recentBytes(), reservedBytes: o.correctBytes(),
		perPrompt: o.PositivesPerPrompt, maxUses: int32(o.MaxUses),
		draws: slices.ContainsFunc(o.composition(), func(s Source) bool { return s.Pool == PoolReserved }),
	}
	if r.perPrompt > 0 {
		r.prompts = make(map[string][]int32)
	}
	return r
}

// add adds an arrival, after makeRoom.
func (r *retention) add(s int32) { r.recent.push(r.store, s) }

// readmit takes a rollout of a rebuilt table back into the part it was in. Rollouts come in the order of their arrival.
func (r *retention) readmit(s int32) {
	if r.store.items[s].is(reserved) {
		r.reserve(s)
	} else {
		r.recent.push(r.store, s)
	}
}

// reserve puts a slot into the reserved part, which has room for it.
func (r *retention) reserve(s int32) {
	r.reserved.push(r.store, s)
	r.indexPrompt(s)
	r.restore(s)
}

// indexPrompt notes that the newest reserved slot has its prompt.
func (r *retention) indexPrompt(s int32) {
	if r.perPrompt > 0 {
		id := r.store.rollouts[s].PromptID
		r.prompts[id] = append(r.prompts[id], s)
	}
}

// remove removes a slot from the part that holds it.
func (r *retention) remove(s int32) {
	if r.scored != nil {
		r.scored.leaving.remove(s)
	}
	if !r.store.items[s].is(reserved) {
		r.recent.remove(r.store, s)
		return
	}
	r.reserved.remove(r.store, s)
	r.positives.remove(s)
	if r.perPrompt == 0 {
		return
	}
	id := r.store.rollouts[s].PromptID
	slots := r.prompts[id]
	at := slices.Index(slots, s)
	if slots = slices.Delete(slots, at, at+1); len(slots) == 0 {
		delete(r.prompts, id)
	} else {
		r.prompts[id] = slots
	}
}

// makeRoom evicts until an arrival of the given bytes fits (invariant 2). It fits an empty shard, as insertion checks.
// evict calls remove.
func (r *retention) makeRoom(bytes int64, evict func(s int32)) {
	if r.scored != nil {
		return // trim does, when the newcomer has a score
	}
	for r.recent.Len >= r.recentSize || r.recent.Bytes > r.recentBytes-bytes {
		s := r.recent.Head
		it := &r.store.items[s]
		if !it.is(correct) || r.reservedSize == 0 || it.Bytes > r.reservedBytes {
			evict(s)
			continue
		}
		if r.perPrompt > 0 {
			if same := r.prompts[r.store.rollouts[s].PromptID]; len(same) == r.perPrompt {
				evict(same[0])
			}
		}
		for r.reserved.Len >= r.reservedSize || r.reserved.Bytes > r.reservedBytes-it.Bytes {
			evict(r.reserved.Head)
		}
		r.recent.remove(r.store, s)
		it.set(reserved)
		if r.changes != nil {
			r.changes.changed(s)
		}
		r.reserve(s)
	}
}

// exhaust makes a slot that reached max_uses undrawable, and restore drawable if it is reserved and has uses left.
func (r *retention) exhaust(s int32) { r.positives.remove(s) }

func (r *retention) restore(s int32) {
	it := &r.store.items[s]
	if r.draws && it.is(reserved) && (r.maxUses == 0 || it.Uses+it.Leased < r.maxUses) {
		r.positives.restore(s)
	}
}

// setImage takes over what a snapshot holds, after the store.
func (r *retention) setImage(im *shardImage) {
	if r.scored != nil {
		r.scored.known = false
	}
	r.recent, r.reserved = im.Recent, im.Reserved
	r.positives.setState(im.Positives)
	for s := r.reserved.Head; s != none; s = r.store.links[s].Of[r.reserved.Kind].Next {
		r.indexPrompt(s)
	}
}
