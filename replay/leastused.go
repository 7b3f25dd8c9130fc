package replay

import (
	"math/rand/v2"
	"slices"
)

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

// used counts draws from before.
func (l *leastUsed) used(s, uses int32) {
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

// remove leaves alone what is not there; what is held does not come back.
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
	l.took(s)
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

// took counts a draw and holds its slot until the batch ends.
func (l *leastUsed) took(s int32) {
	l.take(s)
	l.uses[s]++
	l.held = append(l.held, s)
}

// restore counts one draw less.
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
