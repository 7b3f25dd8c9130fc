package replay

// retention decides what leaves when a shard is full. The newest rollouts are recent; the oldest of them
// that no longer fits is kept if it is correct and room was set aside for such, else it leaves. Both
// parts are in order of arrival. What leaves for other reasons frees room in its own part, which
// comes to the same table as moving the newest kept back: it would be the next to leave the recent.
//
// Bytes are divided like counts. A queue has no retention: it refuses instead.
type retention struct {
	store                  *store
	recent, kept           list
	recentSize, keptSize   int
	recentBytes, keptBytes int64  // math.MaxInt64: not bounded
	notes                  *notes // of the shard
}

// add takes in an arrival, after makeRoom.
func (r *retention) add(s int32) { r.recent.push(r.store, s) }

// remove forgets a slot that leaves.
func (r *retention) remove(s int32) {
	if r.store.items[s].is(kept) {
		r.kept.remove(r.store, s)
	} else {
		r.recent.remove(r.store, s)
	}
}

// makeRoom evicts until an arrival of that many bytes fits (invariant 2). The arrival fits an empty
// shard: insertion checks that. Evict calls remove.
func (r *retention) makeRoom(bytes int64, evict func(s int32)) {
	for r.recent.Len >= r.recentSize || r.recent.Bytes > r.recentBytes-bytes {
		s := r.recent.Head
		it := &r.store.items[s]
		if !it.is(correct) || r.keptSize == 0 || it.Bytes > r.keptBytes {
			evict(s)
			continue
		}
		for r.kept.Len >= r.keptSize || r.kept.Bytes > r.keptBytes-it.Bytes {
			evict(r.kept.Head)
		}
		r.recent.remove(r.store, s)
		it.set(kept)
		if r.notes != nil {
			r.notes.changed(s)
		}
		r.kept.push(r.store, s)
	}
}
