package sokoban

import "math/rand/v2"

// What bounds the positions that a level is chosen from. Small rooms have fewer.
const (
	backwardsWidth     = 64   // positions with one number of pulls; of more, some are drawn
	backwardsPositions = 2000 // in all; those nearest to the end come first
)

// backwards is a search from the end of a room, breadth first: pulling takes the place of pushing.
type backwards struct {
	room *room
	met  map[position]bool // with the player on the least cell of its region
	next []position        // one pull further than those being pulled from
	walk reach             // of the position being pulled from
}

// playBackwards returns the positions met that have no box on a target and need at least so many pushes to the end, by that
// number: exact where all positions were gone through, else the least that it can be.
func playBackwards(r *room, minPushes int, random *rand.Rand) [][]position {
	b := backwards{room: r, met: map[position]bool{}}
	b.begin()
	var enough [][]position
	var bound *distances // once positions have been left out, since then a shorter way may have been too
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

// begin adds the solved positions, the player on every cell that the boxes on the targets leave.
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

// layer returns the positions one pull further that were not met yet, and pulls from them. It is not the whole layer if there
// may be more than its width.
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

// pull adds what every pull from a position leads to: the player beside a box steps back and takes it along.
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
