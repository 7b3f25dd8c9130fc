package replay

import (
	"maps"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// ages groups slots by the rollout's version, so that those that became too old are found without looking
// at the others. Slots of a version are linked through item.Down and item.Up.
type ages struct {
	store *store
	heads map[rollout.Version]int32
}

func (a *ages) add(s int32) {
	it := &a.store.items[s]
	head, ok := a.heads[it.Version]
	it.Up, it.Down = none, none
	if ok {
		it.Down = head
		a.store.items[head].Up = s
	}
	a.heads[it.Version] = s
}

func (a *ages) remove(s int32) {
	it := &a.store.items[s]
	if it.Down != none {
		a.store.items[it.Down].Up = it.Up
	}
	switch {
	case it.Up != none:
		a.store.items[it.Up].Down = it.Down
	case it.Down != none:
		a.heads[it.Version] = it.Down
	default:
		delete(a.heads, it.Version)
	}
}

// expire evicts all of versions in [from, before), older ones first. Evict calls remove. It looks at
// the versions between or at those present, whichever are fewer: with one call per version that is
// O(1) each, and each rollout is evicted once.
func (a *ages) expire(from, before int64, evict func(s int32)) {
	if before-from > int64(len(a.heads)) {
		for _, v := range slices.Sorted(maps.Keys(a.heads)) {
			if int64(v) >= before {
				break
			}
			a.expireVersion(v, evict)
		}
		return
	}
	for v := max(from, 0); v < before; v++ {
		a.expireVersion(rollout.Version(v), evict)
	}
}

func (a *ages) expireVersion(v rollout.Version, evict func(s int32)) {
	s, ok := a.heads[v]
	for ok && s != none {
		down := a.store.items[s].Down
		evict(s)
		s = down
	}
}
