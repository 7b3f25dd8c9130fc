package replay

import (
	"maps"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// ages groups slots by the rollout's version, so that those that became too old are found without looking
// at the others. Slots of a version are linked through links.Down and links.Up.
type ages struct {
	store *store
	heads map[rollout.Version]int32
}

func (a *ages) add(s int32) {
	v := a.store.items[s].Version
	if head, ok := a.heads[v]; ok {
		a.store.links[s].Down = head
		a.store.links[head].Up = s
	}
	a.heads[v] = s
}

func (a *ages) remove(s int32) {
	at := &a.store.links[s]
	v := a.store.items[s].Version
	if at.Down != none {
		a.store.links[at.Down].Up = at.Up
	}
	switch {
	case at.Up != none:
		a.store.links[at.Up].Down = at.Down
	case at.Down != none:
		a.heads[v] = at.Down
	default:
		delete(a.heads, v)
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
	for s, ok := a.heads[v]; ok; s, ok = a.heads[v] {
		evict(s) // with others of its unit, of whatever version
	}
}
