package sokoban

import (
	"math/rand/v2"
	"slices"
)

// shape is what generated levels have in common.
type shape struct {
	size      int // rows and columns including walls, 5 to 16
	boxes     int // 1 to 4
	minPushes int // minimum number of pushes that solve a level
}

// generate makes a level that can be solved. It digs a room, puts the boxes onto targets and plays backwards, pulling
// instead of pushing, to all positions within reach. The level begins in one of those that have no box on a target.
// First the number of pushes that it needs is drawn, all that occur being equally likely. It reports false if no such
// position of the room is minPushes away.
func generate(s shape, random *rand.Rand) (level, bool) {
	r, floor := dig(s.size, random)
	if len(floor) < 2*s.boxes+1 {
		return level{}, false
	}
	random.Shuffle(len(floor), func(i, j int) { floor[i], floor[j] = floor[j], floor[i] })
	r.targets = slices.Sorted(slices.Values(floor[:s.boxes]))
	for _, t := range r.targets {
		r.target[t] = true
	}
	r.boxes = s.boxes
	begin := slices.DeleteFunc(playBackwards(r, s.minPushes, random), func(p []position) bool { return len(p) == 0 })
	if len(begin) == 0 {
		return level{}, false
	}
	positions := begin[random.IntN(len(begin))]
	p := positions[random.IntN(len(positions))]
	occupied := r.occupied(&p)
	var w reach
	w.walk(r, p.player, &occupied)
	p.player = w.cells[random.IntN(len(w.cells))]
	return level{room: r, start: p}, true
}

// turn is the probability that digging turns to another direction.
const turn = 0.4

// dig makes a room: a walk from a cell inside digs blocks of one to four cells until half to nine tenths of the inside
// is floor, a share drawn for every room. It returns the cells of the floor, all connected, in ascending order.
func dig(size int, random *rand.Rand) (*room, []cell) {
	r := &room{rows: size, columns: size}
	for i := range size * size {
		r.wall[i] = true
	}
	inner := size - 2
	want := inner * inner * (50 + random.IntN(41)) / 100
	row, column := random.IntN(inner), random.IntN(inner)
	d := direction(random.IntN(int(directions)))
	for dug := 0; dug < want; {
		height, width := 1+random.IntN(2), 1+random.IntN(2)
		for i := min(row, inner-height); i < min(row, inner-height)+height; i++ {
			for j := min(column, inner-width); j < min(column, inner-width)+width; j++ {
				if at := (i+1)*size + j + 1; r.wall[at] {
					r.wall[at] = false
					dug++
				}
			}
		}
		if random.Float64() < turn {
			d = direction(random.IntN(int(directions)))
		}
		row, column = stepWithin(row, column, d, inner)
	}
	var floor []cell
	for i := range size * size {
		if !r.wall[i] {
			floor = append(floor, cell(i))
		}
	}
	return r, floor
}

// stepWithin takes a step in a square, or none at its edge.
func stepWithin(row, column int, d direction, side int) (int, int) {
	switch d {
	case up:
		row--
	case down:
		row++
	case left:
		column--
	case right:
		column++
	}
	return min(max(row, 0), side-1), min(max(column, 0), side-1)
}

// Limits of the positions that a level is chosen from. Small rooms have fewer.
const (
	backwardsWidth     = 64   // positions with the same number of pulls; if there are more, some are drawn
	backwardsPositions = 2000 // in all, nearest to the end first
)

// backwards is a breadth-first search from the end of a room, pulling instead of pushing.
type backwards struct {
	room *room
	met  map[position]bool // with the player on the least cell of its region
	next []position        // one pull further than the current layer
	walk reach             // of the position being pulled from
}

// playBackwards returns the positions met that have no box on a target and need at least a number of pushes, by that
// number. The number is exact if all positions were visited, else a lower bound.
func playBackwards(r *room, minPushes int, random *rand.Rand) [][]position {
	b := backwards{room: r, met: map[position]bool{}}
	b.begin()
	var enough [][]position
	var bound *distances // after positions were left out: a shorter way may have been among them
	for pulls := 0; len(b.next) > 0 && len(b.met) < backwardsPositions; pulls++ {
		layer, whole := b.layer(random)
		for _, p := range layer {
			pushes := pulls
			if bound != nil {
				pushes = bound.assign(r, &p)
			}
			if pushes < minPushes || r.onTarget(p) > 0 {
				continue
			}
			for len(enough) <= pushes-minPushes {
				enough = append(enough, nil)
			}
			enough[pushes-minPushes] = append(enough[pushes-minPushes], p)
		}
		if !whole && bound == nil {
			bound = newDistances(r)
		}
	}
	return enough
}

// begin adds the solved positions, with the player on every free cell.
func (b *backwards) begin() {
	var solved position
	copy(solved.boxes[:], b.room.targets)
	occupied := b.room.occupied(&solved)
	for at := range b.room.rows * b.room.columns {
		if !occupied[at] {
			solved.player = cell(at)
			b.next = append(b.next, solved)
		}
	}
}

// layer returns the new positions one pull further, and pulls from them. It is not the whole layer if it may exceed its
// width.
func (b *backwards) layer(random *rand.Rand) (layer []position, whole bool) {
	found := b.next
	b.next = nil
	if len(found) > backwardsWidth {
		random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	}
	for _, p := range found {
		if len(layer) == backwardsWidth {
			return layer, false
		}
		occupied := b.room.occupied(&p)
		b.walk.walk(b.room, p.player, &occupied)
		if p.player = b.walk.least; b.met[p] {
			continue
		}
		b.met[p] = true
		layer = append(layer, p)
		b.pull(&p, &occupied)
	}
	return layer, true
}

// pull adds the result of every pull from a position: the player beside a box steps back and takes it along.
func (b *backwards) pull(p *position, occupied *[maxCells]bool) {
	for box, at := range p.boxes[:b.room.boxes] {
		for d := range directions {
			by := b.room.offset(d)
			beside, back := at+by, at+by+by
			if b.walk.steps[beside] == unreached || occupied[back] {
				continue
			}
			next := *p
			b.room.shift(&next, box, beside)
			next.player = back
			b.next = append(b.next, next)
		}
	}
}
