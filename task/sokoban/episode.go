package sokoban

import (
	"github.com/reprise-rl/reprise/task"
)

// episode is a task.Expert and a task.Actor.
type episode struct {
	task  *Task
	board board
	taken int // steps, of Settings.MaxSteps
	turns int // of Settings.MaxTurns
	guide guide
}

// Step lets the actions of a turn act, until the episode is over. A text that is not of the format changes nothing, takes
// one step and costs the penalty.
func (e *episode) Step(response string) task.Step {
	actions := e.task.notation.read(response)
	s := task.Step{Invalid: len(actions) == 0}
	reward := 0.0
	if s.Invalid {
		e.taken++
		reward = *e.task.settings.InvalidPenalty
	}
	for _, a := range actions {
		before := e.board.position
		gained, complete := e.board.act(a)
		e.guide.follow(a, before, e.board.position)
		e.taken++
		reward += gained
		if s.Correct = complete; complete || e.taken == e.task.settings.MaxSteps {
			break
		}
	}
	s.Reward = float32(reward)
	e.turns++
	s.Cut = !s.Correct && (e.taken == e.task.settings.MaxSteps || e.turns == e.task.settings.MaxTurns)
	if s.Done = s.Correct || s.Cut; !s.Done {
		s.Text = e.task.notation.answer(&e.board, !s.Invalid)
	}
	return s
}

// Actions returns the texts of turns of one action.
func (e *episode) Actions() []string {
	texts := make([]string, len(e.task.actions))
	for i, a := range e.task.actions {
		texts[i] = e.task.notation.write([]Action{a})
	}
	return texts
}

// Advise returns the next actions of a plan that solves the level from where it stands, as many as a turn may have. Where
// there is none, or none was found, it is an action that does no harm.
func (e *episode) Advise() string {
	plan := e.guide.plan(&e.board)
	if len(plan) == 0 {
		return e.task.notation.write([]Action{e.harmless()})
	}
	actions := make([]Action, min(len(plan), e.task.settings.ActionsPerTurn))
	for i := range actions {
		actions[i] = e.task.available(plan[i])
	}
	return e.task.notation.write(actions)
}

// available returns a move as the push that does the same where there are no moves.
func (t *Task) available(a Action) Action {
	if t.settings.Actions == Push && !a.pushes() {
		return push(a.direction())
	}
	return a
}

// harmless returns an action that changes nothing if there is one, else one that moves no box if there is one.
func (e *episode) harmless() Action {
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

// guide holds a plan and follows what is done, so that levels are solved anew only where the plan was left.
type guide struct {
	actions []Action // left of the plan
	known   bool     // actions, or their absence, are up to date
	lost    bool     // there is no plan from here, nor from anywhere that can be reached
}

// plan returns the actions that lead from a board to its solution, none if there are none.
func (g *guide) plan(b *board) []Action {
	if !g.known && !g.lost {
		actions, outcome := solve(b.room, b.position)
		g.actions, g.known, g.lost = actions, true, outcome == Unsolvable
	}
	return g.actions
}

// follow notes that an action led from a position to another. What does as the plan says goes on with it; what changes
// nothing keeps it, and where none was found, none is looked for until a box has moved.
func (g *guide) follow(a Action, before, after position) {
	switch {
	case before == after, g.known && len(g.actions) == 0 && before.boxes == after.boxes:
	case len(g.actions) > 0 && a.direction() == g.actions[0].direction():
		g.actions = g.actions[1:]
	default:
		g.actions, g.known = nil, false
	}
}
