package cliffwalking

import "github.com/reprise-rl/reprise/task"

// The map: the cliff is what lies between start and goal in the last row.
const (
	height = 4
	width  = 12
	start  = (height - 1) * width // state 36
	goal   = height*width - 1     // state 47
)

// Rewards.
const (
	stepReward = -1
	fallReward = -100
)

// Actions, by their numbers in Gymnasium. The order is not FrozenLake's.
const (
	up = iota
	right
	down
	left
)

// names returns the names of the actions, in their order.
func names() []string { return []string{"Up", "Right", "Down", "Left"} }

// isCliff reports whether a state is a cell of the cliff.
func isCliff(s int) bool { return s > start && s < goal }

// move returns the state one step in a direction, or the same state at the edge of the map.
func move(s, action int) int {
	row, column := s/width, s%width
	switch action {
	case up:
		row = max(row-1, 0)
	case right:
		column = min(column+1, width-1)
	case down:
		row = min(row+1, height-1)
	case left:
		column = max(column-1, 0)
	}
	return row*width + column
}

// table returns the transitions in Gymnasium's order: slippery, the direction meant between the two at right angles, a third
// each. As there, the cells of the cliff and the goal have transitions like any other, though no episode goes on from them.
func table(slippery bool) task.Transitions {
	actions := len(names())
	t := make(task.Transitions, height*width)
	for s := range t {
		t[s] = make([][]task.Outcome, actions)
		for a := range t[s] {
			directions := []int{a}
			if slippery {
				directions = []int{(a + actions - 1) % actions, a, (a + 1) % actions}
			}
			for _, d := range directions {
				t[s][a] = append(t[s][a], outcome(s, d, 1/float64(len(directions))))
			}
		}
	}
	return t
}

// outcome is a step in one direction.
func outcome(s, direction int, probability float64) task.Outcome {
	next := move(s, direction)
	if isCliff(next) {
		return task.Outcome{Probability: probability, Next: start, Reward: fallReward}
	}
	return task.Outcome{Probability: probability, Next: next, Reward: stepReward, Done: next == goal}
}
