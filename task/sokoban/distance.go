package sokoban

import "math/bits"

// far is the distance of what cannot be reached.
const far = 1 << 12

// distances are how many pushes it takes at least to bring a box from a cell to a target, were there no other boxes.
type distances struct {
	to   [maxBoxes][maxCells]int16 // by target and cell; far where it cannot be
	dead [maxCells]bool            // from where no target can be reached
	best []int16                   // scratch of assign, by set of targets
}

func newDistances(r *room) *distances {
	d := &distances{best: make([]int16, 1<<len(r.targets))}
	for i := range d.dead {
		d.dead[i] = true
	}
	for i, t := range r.targets {
		for _, at := range d.pull(r, i, t) {
			d.dead[at] = false
		}
	}
	return d
}

// pull plays backwards from a target with one box and a player who can be anywhere. It returns the cells that the box can
// have come from.
func (d *distances) pull(r *room, target int, from cell) []cell {
	to := &d.to[target]
	for i := range to {
		to[i] = far
	}
	to[from] = 0
	queue := []cell{from}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for k := range directions {
			by := r.offset(k)
			before := at - by // the box came from here, pushed by a player behind it
			if r.wall[before] || r.wall[before-by] || to[before] != far {
				continue
			}
			to[before] = to[at] + 1
			queue = append(queue, before)
		}
	}
	return queue
}

// assign returns the least sum of pushes that brings each box to a target of its own, at least far if that cannot be. It is
// a lower bound of the pushes that are left, and falls by at most one with a push.
func (d *distances) assign(r *room, p *position) int {
	n := r.boxes
	best := d.best
	for set := 1; set < len(best); set++ {
		best[set] = far
	}
	// best[set] is for the first boxes, as many as there are targets in the set.
	for set := range len(best) - 1 {
		if best[set] >= far {
			continue
		}
		at := p.boxes[bits.OnesCount(uint(set))]
		for t := range n {
			if set&(1<<t) == 0 {
				with := set | 1<<t
				best[with] = min(best[with], best[set]+d.to[t][at])
			}
		}
	}
	return int(best[len(best)-1])
}
