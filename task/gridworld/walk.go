package gridworld

import (
	"math/rand/v2"
	"sync"

	"github.com/reprise-rl/reprise/task"
)

// World is one map.
type World struct {
	Table task.Transitions
	Goal  func(state int) bool                                           // whether an episode that ends there ended in success
	Look  func(state int, invalid bool) (observation string, png []byte) // what the player is told, also after a text that was no action
}

// Rules are those of an episode beside the world's.
type Rules struct {
	Protocol
	MaxSteps      int     // actions; a turn that holds none counts as one
	MaxTurns      int     // turns
	InvalidReward float64 // of a turn that is no action, in place of a step's; the player stays
}

// Walk is an episode in a world. It is a task.Expert and a task.Actor.
type Walk struct {
	world        *World
	rules        Rules
	state        int
	steps, turns int
	luck         *rand.Rand
	plan         func() *Plan
}

// Planner returns what plans for a world: it solves it at the first call, and may be shared by walks.
func Planner(w *World, r Rules) func() *Plan {
	return sync.OnceValue(func() *Plan { return Solve(w.Table, r.MaxSteps) })
}

// Begin begins an episode; plan is a Planner of the world.
func Begin(w *World, r Rules, start int, luck *rand.Rand, plan func() *Plan) *Walk {
	return &Walk{world: w, rules: r, state: start, luck: luck, plan: plan}
}

// Step takes the actions of a turn one after the other until the episode is over. A text that holds no actions leaves the
// player where they are, costs a step of the limit and earns the rules' InvalidReward.
func (w *Walk) Step(response string) task.Step {
	w.turns++
	actions, ok := w.rules.Parse(response)
	step := task.Step{Invalid: !ok}
	reward := 0.0
	if !ok {
		w.steps++
		reward = w.rules.InvalidReward
	}
	for _, a := range actions {
		if step.Done || w.steps >= w.rules.MaxSteps {
			break
		}
		o := w.draw(w.world.Table[w.state][a])
		w.state = o.Next
		w.steps++
		reward += o.Reward
		step.Done = o.Done
	}
	step.Reward = float32(reward)
	switch {
	case step.Done:
		step.Correct = w.world.Goal(w.state)
	case w.left() == 0:
		step.Done, step.Cut = true, true
	default:
		step.Text, step.Image = w.world.Look(w.state, step.Invalid)
	}
	return step
}

// draw draws an outcome: the first whose cumulative probability is above a uniform number, the last if rounding leaves none.
func (w *Walk) draw(outcomes []task.Outcome) task.Outcome {
	u, sum := w.luck.Float64(), 0.0
	for _, o := range outcomes {
		if sum += o.Probability; sum > u {
			return o
		}
	}
	return outcomes[len(outcomes)-1]
}

// left returns how many steps can still be taken, at one per turn.
func (w *Walk) left() int { return max(0, min(w.rules.MaxSteps-w.steps, w.rules.MaxTurns-w.turns)) }

// Advise writes the best action, and where luck has no part in it as many of the best next ones as a turn may hold.
func (w *Walk) Advise() string {
	left := w.left()
	if left == 0 {
		return w.rules.Write(0)
	}
	if len(w.world.Table[w.state][0]) == 1 { // otherwise one action per turn is all that is advised
		left = min(w.rules.MaxSteps-w.steps, (w.rules.MaxTurns-w.turns)*w.rules.PerTurn)
	}
	var actions []int
	for state := w.state; len(actions) < min(w.rules.PerTurn, left); {
		a := w.plan().Action(state, left-len(actions))
		actions = append(actions, a)
		outcomes := w.world.Table[state][a]
		if len(outcomes) != 1 || outcomes[0].Done {
			break
		}
		state = outcomes[0].Next
	}
	return w.rules.Write(actions...)
}

// Actions returns the text of each action alone.
func (w *Walk) Actions() []string { return w.rules.Actions() }
