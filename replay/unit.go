package replay

import (
	"math"

	"github.com/reprise-rl/reprise/rollout"
)

// Unit is what a draw falls on and what an eviction takes.
type Unit string

// The units.
const (
	UnitRollout Unit = "rollout"
	UnitStep    Unit = "step"  // one turn of a rollout: insertion splits rollouts into them, see [rollout.Rollout.Steps]
	UnitGroup   Unit = "group" // all rollouts that entered as one group of Options.GroupSize
)

// units tells which slots make up a unit. A group is known by its first rollout's slot: only that one is in the sampler and in
// the queue of the fresh.
type units bool

const groups units = true

func unitsOf(u Unit) units { return units(u == UnitGroup) }

// each visits the slots of a slot's unit.
func (u units) each(st *store, s int32, visit func(m int32)) {
	visit(s)
	if u != groups {
		return
	}
	for m := st.links[s].Mate; m != s; {
		next := st.links[m].Mate
		visit(m)
		m = next
	}
}

// first returns the slot by which a slot's unit is known.
func (u units) first(st *store, s int32) int32 {
	f := s
	u.each(st, s, func(m int32) {
		if st.items[m].ID < st.items[f].ID {
			f = m
		}
	})
	return f
}

func (u units) isFirst(st *store, s int32) bool { return u != groups || u.first(st, s) == s }

// version returns the least of a unit's versions.
func (u units) version(st *store, s int32) rollout.Version {
	if u != groups {
		return st.items[s].Version
	}
	v := rollout.Version(math.MaxInt32)
	u.each(st, s, func(m int32) { v = min(v, st.items[m].Version) })
	return v
}
