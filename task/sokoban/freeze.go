package sokoban

// freeze finds boxes that cannot be pushed again on the way to any solution. A position in which one of them is off its
// target cannot be solved.
type freeze struct {
	room     *room
	dead     *[maxCells]bool
	occupied [maxCells]bool // walls, boxes
	solid    [maxCells]bool // walls, and the boxes of held
	held     []cell         // boxes that hold one another, each of them if the others do
}

// locks reports whether the box on a cell, and the boxes that hold it, are frozen with one of them off its target.
func (f *freeze) locks(at cell) bool {
	f.solid = f.room.wall
	f.held = f.held[:0]
	if !f.frozen(at) {
		return false
	}
	for _, b := range f.held {
		if !f.room.target[b] {
			return true
		}
	}
	return false
}

// frozen reports whether a box is blocked both ways. It counts as solid for the boxes that it asks; if it is not frozen
// after all, they are no longer held either.
func (f *freeze) frozen(at cell) bool {
	others := len(f.held)
	f.solid[at] = true
	f.held = append(f.held, at)
	if f.blocked(at, f.room.offset(right)) && f.blocked(at, f.room.offset(down)) {
		return true
	}
	for _, b := range f.held[others:] {
		f.solid[b] = false
	}
	f.held = f.held[:others]
	return false
}

// blocked reports whether a box cannot be pushed along an axis: one of its sides is solid, or both are cells that no box may
// be pushed to, or there is a box beside it that is frozen itself.
func (f *freeze) blocked(at, by cell) bool {
	one, other := at+by, at-by
	if f.solid[one] || f.solid[other] || f.dead[one] && f.dead[other] {
		return true
	}
	return f.box(one) && f.frozen(one) || f.box(other) && f.frozen(other)
}

func (f *freeze) box(at cell) bool { return f.occupied[at] && !f.solid[at] }
