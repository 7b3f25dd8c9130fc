package sokoban

import "slices"

// The most positions that a search keeps: tens of megabytes, and a second or two. First it looks for the fewest steps; where
// that is too much, for the fewest pushes, of which there are far fewer positions to tell apart.
const (
	stepPositions = 300_000
	pushPositions = 400_000
)

// Outcome of a search.
type Outcome int

// The outcomes.
const (
	Solved     Outcome = iota
	Unsolvable         // there is no way
	TooLarge           // the search ended without an answer
)

// Solve returns actions that solve a level: moves, and pushes that push a box. They have the fewest steps, or the fewest
// pushes where the search for the fewest steps grows too large.
func Solve(l Level) ([]Action, Outcome) {
	return solve(l.room, l.start)
}

func solve(r *room, p position) ([]Action, Outcome) {
	d := newDistances(r)
	plan, outcome := newSearch(r, d, true, stepPositions).run(p)
	if outcome == TooLarge {
		plan, outcome = newSearch(r, d, false, pushPositions).run(p)
	}
	return plan, outcome
}

// node is a position after a push, or the first.
type node struct {
	position        // if pushes count, the player stands on the least cell of its region
	player   cell   // where it stands
	pushed   Action // the push that led here; NoOperation: the first
	closed   bool
	parent   int32
	cost     int32 // pushes so far, or steps
	left     int32 // a lower bound of the pushes that are left
}

// search is A* over positions after pushes: what lies between two pushes is a shortest walk. The least number of pushes
// left is a consistent bound of both costs, so that the first solution taken up is the best.
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

func (s *search) run(start position) ([]Action, Outcome) {
	s.add(node{position: start, player: start.player, parent: -1, left: int32(s.distances.assign(s.room, &start))})
	for {
		i, any := s.open.pop()
		switch {
		case !any:
			return nil, Unsolvable
		case s.nodes[i].closed:
			continue
		case s.nodes[i].left == 0:
			return s.plan(i), Solved
		case len(s.nodes) >= s.limit:
			return nil, TooLarge
		}
		s.nodes[i].closed = true
		s.expand(i)
	}
}

// expand adds every push that can be made after a walk.
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

// region returns the least cell of the region in which the player stands.
func (s *search) region(n *node) cell {
	var w reach
	occupied := s.room.occupied(&n.position)
	w.walk(s.room, n.player, &occupied)
	return w.least
}

// plan goes back from the last push to the first and fills in the walks.
func (s *search) plan(last int32) []Action {
	var pushes []int32
	for i := last; s.nodes[i].parent >= 0; i = s.nodes[i].parent {
		pushes = append(pushes, i)
	}
	slices.Reverse(pushes)
	var plan []Action
	for _, i := range pushes {
		n, before := s.nodes[i], s.nodes[s.nodes[i].parent]
		occupied := s.room.occupied(&before.position)
		s.walk.walk(s.room, before.player, &occupied)
		plan = s.walk.path(s.room, n.player-s.room.offset(n.pushed.direction()), plan)
		plan = append(plan, n.pushed)
	}
	return plan
}

// buckets is a queue of nodes by estimate, a small integer that is never less than one that was popped, since the bound is
// consistent. Of equal ones the last pushed comes first, which goes deep.
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
