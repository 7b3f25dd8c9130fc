package sokoban

import (
	"slices"

	"github.com/reprise-rl/reprise/lab/task"
)

// action is one of gym-sokoban's nine, by its numbers.
type action int

// A push moves the player too, and is a move if there is no box. A move never moves a box.
const (
	noOperation action = iota
	pushUp
	pushDown
	pushLeft
	pushRight
	moveUp
	moveDown
	moveLeft
	moveRight
)

// push returns the action that pushes in a direction.
func push(d direction) action { return pushUp + action(d) }

// move returns the action that moves in a direction.
func move(d direction) action { return moveUp + action(d) }

// direction returns the direction of an action other than noOperation.
func (a action) direction() direction { return direction(a-1) % directions }

// pushes reports whether an action may move a box.
func (a action) pushes() bool { return a >= pushUp && a <= pushRight }

// The rewards of gym-sokoban.
const (
	rewardStep     = -0.1 // for every step
	rewardOn       = 1    // for a step that puts a box onto a target
	rewardOff      = -1   // for a step that takes a box off a target
	rewardComplete = 10   // for the step after which all boxes are on targets
)

// board is a game in progress.
type board struct {
	*room
	position
}

// act applies an action and returns its reward, and whether all boxes are on targets now. An action that is not
// possible changes nothing and costs a step.
func (b *board) act(a action) (reward float64, complete bool) {
	before := b.onTarget(b.position)
	if a != noOperation {
		b.step(a.direction(), a.pushes())
	}
	after := b.onTarget(b.position)
	reward = rewardStep
	switch {
	case after > before:
		reward += rewardOn
	case after < before:
		reward += rewardOff
	}
	if after == b.room.boxes {
		return reward + rewardComplete, true
	}
	return reward, false
}

// step moves the player by one cell, and with it the box there, if that may and can be pushed.
func (b *board) step(d direction, pushes bool) {
	by := b.offset(d)
	to := b.player + by
	if b.wall[to] {
		return
	}
	if box := b.box(&b.position, to); box >= 0 {
		beyond := to + by
		if !pushes || b.wall[beyond] || b.box(&b.position, beyond) >= 0 {
			return
		}
		b.shift(&b.position, box, beyond)
	}
	b.player = to
}

// episode is a task.Expert and a task.Actor.
type episode struct {
	task  *Task
	board board
	steps int
	turns int
	guide guide
}

// Step applies the actions of a turn until the episode is over. A text that is not an action changes nothing, takes one
// step and costs the penalty.
func (e *episode) Step(response string) task.Step {
	limits := e.task.settings.Settings
	actions, ok := e.task.protocol.Parse(response)
	s := task.Step{Invalid: !ok}
	reward := 0.0
	if s.Invalid {
		e.steps++
		reward = *limits.InvalidPenalty
	}
	for _, k := range actions {
		a, before := e.task.actions[k], e.board.position
		gained, complete := e.board.act(a)
		e.guide.follow(a, before, e.board.position)
		e.steps++
		reward += gained
		if s.Correct = complete; complete || e.steps == limits.MaxSteps {
			break
		}
	}
	s.Reward = float32(reward)
	e.turns++
	s.Cut = !s.Correct && (e.steps == limits.MaxSteps || e.turns == limits.MaxTurns)
	if s.Done = s.Correct || s.Cut; !s.Done {
		s.Text = e.task.observe(&e.board, s.Invalid)
	}
	return s
}

// Actions returns the texts of turns of one action.
func (e *episode) Actions() []string { return e.task.protocol.Actions() }

// Advise returns the next actions of a plan that solves the level from here, as many as a turn may hold. If no plan was
// found, it returns an action that does no harm.
func (e *episode) Advise() string {
	plan := e.guide.plan(&e.board)
	if len(plan) == 0 {
		plan = []action{e.harmless()}
	}
	numbers := make([]int, min(len(plan), e.task.settings.ActionsPerTurn))
	for i := range numbers {
		a := plan[i]
		if e.task.settings.Actions == Push && !a.pushes() { // without moves the push does the same
			a = push(a.direction())
		}
		numbers[i] = slices.Index(e.task.actions, a)
	}
	return e.task.protocol.Write(numbers...)
}

// harmless returns an action that changes nothing, if there is one, else one that moves no box, if there is one.
func (e *episode) harmless() action {
	best, least := e.task.actions[0], 3
	for _, a := range e.task.actions {
		after := e.board
		after.act(a)
		change := 0
		switch {
		case after.position.boxes != e.board.position.boxes:
			change = 2
		case after.position != e.board.position:
			change = 1
		}
		if change < least {
			best, least = a, change
		}
	}
	return best
}

// guide keeps a plan while the player follows it, so that a level is solved again only if the plan was left.
type guide struct {
	actions []action // the rest of the plan
	known   bool     // actions, or their absence, are up to date
	lost    bool     // there is no plan from here, nor from anywhere reachable
}

// plan returns the actions that solve a board, none if there are none.
func (g *guide) plan(b *board) []action {
	if !g.known && !g.lost {
		actions, outcome := solve(b.room, b.position)
		g.actions, g.known, g.lost = actions, true, outcome == unsolvable
	}
	return g.actions
}

// follow notes that an action led from one position to another. The plan survives an action that follows it or changes
// nothing. If no plan was found, none is searched for until a box has moved.
func (g *guide) follow(a action, before, after position) {
	switch {
	case before == after, g.known && len(g.actions) == 0 && before.boxes == after.boxes:
	case len(g.actions) > 0 && a.direction() == g.actions[0].direction():
		g.actions = g.actions[1:]
	default:
		g.actions, g.known = nil, false
	}
}
