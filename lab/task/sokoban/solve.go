package sokoban

import (
	"math/bits"
	"slices"
)

// The maximum number of positions that a search keeps: tens of megabytes, and a second or two. The first search
// minimizes steps. If it grows too large a second one minimizes pushes, for which far fewer positions differ.
const (
	stepPositions = 300_000
	pushPositions = 400_000
)

// outcome of a search.
type outcome int

const (
	solved     outcome = iota
	unsolvable         // there is no way
	tooLarge           // the search ended without an answer
)

// solve returns actions that solve a room: moves, and pushes that push a box. They have the fewest steps, or the fewest
// pushes if the search for the fewest steps grows too large.
func solve(r *room, p position) ([]action, outcome) {
	d := newDistances(r)
	plan, outcome := newSearch(r, d, true, stepPositions).run(p)
	if outcome == tooLarge {
		plan, outcome = newSearch(r, d, false, pushPositions).run(p)
	}
	return plan, outcome
}

// node is a position after a push, or the first position.
type node struct {
	position        // if pushes count, the player stands on the least cell of its region
	player   cell   // where it stands
	pushed   action // the push that led here; noOperation: the first
	closed   bool
	parent   int32
	cost     int32 // pushes so far, or steps
	left     int32 // a lower bound of the pushes that are left
}

// search is A* over the positions after pushes; between two pushes there is a shortest walk. The least number of pushes
// left is a consistent lower bound for both costs, so the first solution expanded is the best.
type search struct {
	room      *room
	distances *distances
	freeze    freeze
	steps     bool // the cost is steps; else pushes
	limit     int  // of nodes

	nodes []node
	index map[position]int32
	open  buckets
	walk  reach // of the node being expanded
}

func newSearch(r *room, d *distances, steps bool, limit int) *search {
	return &search{
		room: r, distances: d, steps: steps, limit: limit, index: map[position]int32{},
		freeze: freeze{room: r, dead: &d.dead},
	}
}

func (s *search) run(start position) ([]action, outcome) {
	s.add(node{position: start, player: start.player, parent: -1, left: int32(s.distances.assign(s.room, &start))})
	for {
		i, any := s.open.pop()
		switch {
		case !any:
			return nil, unsolvable
		case s.nodes[i].closed:
			continue
		case s.nodes[i].left == 0:
			return s.plan(i), solved
		case len(s.nodes) >= s.limit:
			return nil, tooLarge
		}
		s.nodes[i].closed = true
		s.expand(i)
	}
}

// expand adds every push that is possible after a walk.
func (s *search) expand(i int32) {
	n := s.nodes[i]
	occupied := s.room.occupied(&n.position)
	s.walk.walk(s.room, n.player, &occupied)
	for box, at := range n.boxes[:s.room.boxes] {
		for d := range directions {
			by := s.room.offset(d)
			behind, beyond := at-by, at+by
			if s.walk.steps[behind] == unreached || occupied[beyond] || s.distances.dead[beyond] {
				continue
			}
			next := node{position: n.position, player: at, pushed: push(d), parent: i, cost: n.cost + 1}
			if s.steps {
				next.cost += int32(s.walk.steps[behind])
			}
			s.room.shift(&next.position, box, beyond)
			s.freeze.occupied = occupied
			s.freeze.occupied[at], s.freeze.occupied[beyond] = false, true
			if !s.freeze.locks(beyond) {
				s.add(next)
			}
		}
	}
}

// add opens a node, unless its position was reached at no higher cost.
func (s *search) add(n node) {
	n.position.player = n.player
	if !s.steps {
		n.position.player = s.region(&n)
	}
	at, known := s.index[n.position]
	if known {
		if s.nodes[at].cost <= n.cost {
			return
		}
		n.left = s.nodes[at].left
		s.nodes[at] = n
	} else {
		if n.left = int32(s.distances.assign(s.room, &n.position)); n.left >= far {
			return
		}
		at = int32(len(s.nodes))
		s.index[n.position] = at
		s.nodes = append(s.nodes, n)
	}
	s.open.push(int(n.cost+n.left), at)
}

// region returns the least cell of the player's region.
func (s *search) region(n *node) cell {
	var w reach
	occupied := s.room.occupied(&n.position)
	w.walk(s.room, n.player, &occupied)
	return w.least
}

// plan goes back from the last push to the first and fills in the walks.
func (s *search) plan(last int32) []action {
	var pushes []int32
	for i := last; s.nodes[i].parent >= 0; i = s.nodes[i].parent {
		pushes = append(pushes, i)
	}
	slices.Reverse(pushes)
	var plan []action
	for _, i := range pushes {
		n, before := s.nodes[i], s.nodes[s.nodes[i].parent]
		occupied := s.room.occupied(&before.position)
		s.walk.walk(s.room, before.player, &occupied)
		plan = s.walk.path(s.room, n.player-s.room.offset(n.pushed.direction()), plan)
		plan = append(plan, n.pushed)
	}
	return plan
}

// buckets is a queue of nodes by estimate, a small integer that is never less than one already popped, since the bound
// is consistent. Among equal estimates the last pushed comes first, which goes deep.
type buckets struct {
	of    [][]int32
	least int
}

func (b *buckets) push(estimate int, i int32) {
	for len(b.of) <= estimate {
		b.of = append(b.of, nil)
	}
	b.of[estimate] = append(b.of[estimate], i)
}

func (b *buckets) pop() (i int32, any bool) {
	for ; b.least < len(b.of); b.least++ {
		if of := b.of[b.least]; len(of) > 0 {
			i, b.of[b.least] = of[len(of)-1], of[:len(of)-1]
			return i, true
		}
	}
	return 0, false
}

// far is the distance of unreachable cells.
const far = 1 << 12

// distances are the least numbers of pushes that bring a box from a cell to a target if there are no other boxes.
type distances struct {
	to   [maxBoxes][maxCells]int16 // by target and cell; far if impossible
	dead [maxCells]bool            // no target can be reached from here
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

// pull plays backwards from a target with one box and a player who can be anywhere. It returns the cells that the box
// can come from.
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

// assign returns the least sum of pushes that brings each box to its own target, at least far if that is impossible. It
// is a lower bound of the pushes left, and falls by at most one per push.
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

// reach is where the player can walk without pushing.
type reach struct {
	steps [maxCells]int16 // from the player's cell, or unreached
	cells []cell          // those reached, nearest first
	least cell            // the lowest of them, which identifies the region
}

const unreached = -1

// walk finds where the player can walk; occupied are the cells of walls and boxes.
func (w *reach) walk(r *room, from cell, occupied *[maxCells]bool) {
	for i := range r.rows * r.columns {
		w.steps[i] = unreached
	}
	w.steps[from] = 0
	w.cells = append(w.cells[:0], from)
	w.least = from
	for i := 0; i < len(w.cells); i++ {
		at := w.cells[i]
		w.least = min(w.least, at)
		for d := range directions {
			if to := at + r.offset(d); !occupied[to] && w.steps[to] == unreached {
				w.steps[to] = w.steps[at] + 1
				w.cells = append(w.cells, to)
			}
		}
	}
}

// path appends the moves from the player's cell to a reached cell.
func (w *reach) path(r *room, to cell, plan []action) []action {
	start := len(plan)
	for range w.steps[to] {
		plan = append(plan, 0)
	}
	for i := len(plan) - 1; i >= start; i-- {
		for d := range directions {
			from := to - r.offset(d)
			if w.steps[from] != unreached && w.steps[from] == w.steps[to]-1 {
				plan[i], to = move(d), from
				break
			}
		}
	}
	return plan
}

// occupied marks the walls and boxes.
func (r *room) occupied(p *position) [maxCells]bool {
	o := r.wall
	for _, b := range p.boxes[:r.boxes] {
		o[b] = true
	}
	return o
}

// freeze finds boxes that can never be pushed again. A position with such a box off its target cannot be solved.
type freeze struct {
	room     *room
	dead     *[maxCells]bool
	occupied [maxCells]bool // walls, boxes
	solid    [maxCells]bool // walls, and the boxes in held
	held     []cell         // boxes that hold one another: each is frozen if the others are
}

// locks reports whether the box on a cell and the boxes that hold it are frozen, one of them off its target.
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

// frozen reports whether a box is blocked in both directions. Meanwhile it counts as solid for its neighbours; if it
// turns out not to be frozen, they are no longer held either.
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

// blocked reports whether a box cannot be pushed along an axis: one of its sides is solid, or both are dead cells, or a
// box beside it is frozen itself.
func (f *freeze) blocked(at, by cell) bool {
	one, other := at+by, at-by
	if f.solid[one] || f.solid[other] || f.dead[one] && f.dead[other] {
		return true
	}
	return f.box(one) && f.frozen(one) || f.box(other) && f.frozen(other)
}

func (f *freeze) box(at cell) bool { return f.occupied[at] && !f.solid[at] }
