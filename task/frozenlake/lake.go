package frozenlake

import (
	"math/rand/v2"
	"strings"

	"github.com/reprise-rl/reprise/task"
)

// Tiles of a map.
const (
	start  = 'S'
	frozen = 'F'
	hole   = 'H'
	goal   = 'G'
	player = 'P' // in observations, on whatever tile
)

// Actions, by their numbers in Gymnasium.
const (
	left = iota
	down
	right
	up
)

// names returns the names of the actions, in their order.
func names() []string { return []string{"Left", "Down", "Right", "Up"} }

// lake is a map: rows of tiles, all of one length.
type lake []string

// standard returns Gymnasium's map of a size, nil where it has none.
func standard(size int) lake {
	switch size {
	case 4:
		return lake{"SFFF", "FHFH", "FFFH", "HFFG"}
	case 8:
		return lake{"SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"}
	}
	return nil
}

// random draws a map: S and G in opposite corners, every other tile frozen with probability p, else a hole, drawn anew until
// there is a path from S to G.
func random(r *rand.Rand, size int, p float64) lake {
	for {
		tiles := make([]byte, size*size)
		for i := range tiles {
			tiles[i] = hole
			if r.Float64() < p {
				tiles[i] = frozen
			}
		}
		tiles[0], tiles[size*size-1] = start, goal
		l := make(lake, size)
		for row := range l {
			l[row] = string(tiles[row*size : (row+1)*size])
		}
		if l.crossable(0) {
			return l
		}
	}
}

func (l lake) columns() int      { return len(l[0]) }
func (l lake) states() int       { return len(l) * len(l[0]) }
func (l lake) tile(s int) byte   { return l[s/len(l[0])][s%len(l[0])] }
func (l lake) ends(s int) bool   { return l.tile(s) == hole || l.tile(s) == goal }
func (l lake) String() string    { return strings.Join(l, "/") }
func (l lake) isGoal(s int) bool { return l.tile(s) == goal }

// cells returns the states of all tiles for which a condition holds.
func (l lake) cells(wanted func(s int) bool) []int {
	var list []int
	for s := range l.states() {
		if wanted(s) {
			list = append(list, s)
		}
	}
	return list
}

// move returns the state one step in a direction, or the same state at the edge.
func (l lake) move(s, action int) int {
	row, column := s/l.columns(), s%l.columns()
	switch action {
	case left:
		column = max(column-1, 0)
	case down:
		row = min(row+1, len(l)-1)
	case right:
		column = min(column+1, l.columns()-1)
	case up:
		row = max(row-1, 0)
	}
	return row*l.columns() + column
}

// crossable reports whether a path leads from a state to a goal without a hole.
func (l lake) crossable(from int) bool {
	seen := make([]bool, l.states())
	for frontier := []int{from}; len(frontier) > 0; {
		s := frontier[len(frontier)-1]
		frontier = frontier[:len(frontier)-1]
		if l.isGoal(s) {
			return true
		}
		if seen[s] || l.ends(s) {
			continue
		}
		seen[s] = true
		for a := range names() {
			frontier = append(frontier, l.move(s, a))
		}
	}
	return false
}

// ice is what moves and rewards are like.
type ice struct {
	slippery bool
	success  float64    // probability of the direction meant, where slippery
	rewards  [3]float64 // of reaching the goal, a hole, a frozen tile
}

// table returns the transitions in Gymnasium's order. Slippery, an action has three outcomes: its own direction stands between
// the two at right angles. In holes and goals every action stays, done, for nothing.
func (l lake) table(of ice) task.Transitions {
	actions := len(names())
	t := make(task.Transitions, l.states())
	for s := range t {
		t[s] = make([][]task.Outcome, actions)
		for a := range t[s] {
			switch {
			case l.ends(s):
				t[s][a] = []task.Outcome{{Probability: 1, Next: s, Done: true}}
			case of.slippery:
				aside := (1 - of.success) / 2
				t[s][a] = []task.Outcome{
					l.outcome(s, (a+actions-1)%actions, aside, of),
					l.outcome(s, a, of.success, of),
					l.outcome(s, (a+1)%actions, aside, of),
				}
			default:
				t[s][a] = []task.Outcome{l.outcome(s, a, 1, of)}
			}
		}
	}
	return t
}

// outcome is a move in one direction.
func (l lake) outcome(s, direction int, probability float64, of ice) task.Outcome {
	next := l.move(s, direction)
	reward := of.rewards[2]
	switch l.tile(next) {
	case goal:
		reward = of.rewards[0]
	case hole:
		reward = of.rewards[1]
	}
	return task.Outcome{Probability: probability, Next: next, Reward: reward, Done: l.ends(next)}
}
