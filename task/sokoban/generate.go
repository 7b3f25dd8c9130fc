package sokoban

import (
	"math/rand/v2"
	"slices"
)

// Shape is what generated levels have in common.
type Shape struct {
	Size      int // rows and columns, walls included: 5 to 16
	Boxes     int // 1 to 4
	MinPushes int // a level needs at least so many pushes to be solved
}

// Generate makes a level that can be solved: it digs a room, puts the boxes onto targets and plays backwards, pulling
// instead of pushing, to all positions within reach. The level begins in one of those that have no box on a target; the
// pushes that it needs are drawn first, each number that occurs being as likely. It reports false if the room has no such
// position that is MinPushes away.
func Generate(s Shape, random *rand.Rand) (Level, bool) {
	r, floor := dig(s.Size, random)
	if len(floor) < 2*s.Boxes+1 {
		return Level{}, false
	}
	random.Shuffle(len(floor), func(i, j int) { floor[i], floor[j] = floor[j], floor[i] })
	r.targets = slices.Sorted(slices.Values(floor[:s.Boxes]))
	for _, t := range r.targets {
		r.target[t] = true
	}
	r.boxes = s.Boxes
	begin := slices.DeleteFunc(playBackwards(r, s.MinPushes, random), func(p []position) bool { return len(p) == 0 })
	if len(begin) == 0 {
		return Level{}, false
	}
	positions := begin[random.IntN(len(begin))]
	p := positions[random.IntN(len(positions))]
	occupied := r.occupied(&p)
	var w reach
	w.walk(r, p.player, &occupied)
	p.player = w.cells[random.IntN(len(w.cells))]
	return Level{room: r, start: p}, true
}

// turn is the probability with which the digging of a room turns to another direction.
const turn = 0.4

// dig makes a room: a walk from a cell inside digs blocks of one to four cells until half of the inside to nine tenths of
// it, a share drawn for every room, is floor. It returns the cells of the floor, all connected, in ascending order.
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

// stepWithin takes a step in a square of a side, or none at its edge.
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
