package sokoban

import (
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/task"
)

// Task gives levels. It is safe for concurrent use.
type Task struct {
	settings Settings
	notation notation
	actions  []Action // those there are
	levels   source
	heldOut  []task.Prompt
}

// New generates or reads the held-out levels and returns the task; the seed orders its training levels.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{settings: s, actions: actionsOf(s.Actions)}
	t.notation = terse{t.actions, s.ActionsPerTurn}
	if s.Format == Words {
		t.notation = words{t.actions, s.ActionsPerTurn}
	}
	var heldOut []Level
	var err error
	if s.Levels == "" {
		t.levels, heldOut, err = newGenerated(s, seed)
	} else {
		t.levels, heldOut, err = newRead(s, seed)
	}
	if err != nil {
		return nil, err
	}
	for _, l := range heldOut {
		t.heldOut = append(t.heldOut, t.prompt(l))
	}
	return t, nil
}

// actionsOf returns the actions of a set, in the order of their numbers.
func actionsOf(set string) []Action {
	if set == Push {
		return []Action{PushUp, PushDown, PushLeft, PushRight}
	}
	return []Action{NoOperation, PushUp, PushDown, PushLeft, PushRight, MoveUp, MoveDown, MoveLeft, MoveRight}
}

// Train returns the i-th training level: a generated one, or each of the levels that were read once per epoch.
func (t *Task) Train(i uint64) task.Prompt { return t.prompt(t.levels.train(i)) }

// HeldOut returns the evaluation levels, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// MaxTurns returns the limit of turns.
func (t *Task) MaxTurns() int { return t.settings.MaxTurns }

// Characters returns the characters of the format.
func (t *Task) Characters() string { return t.notation.characters() }

// Reset begins an episode, which is a task.Expert and a task.Actor; nothing in it is random. It panics if the prompt's
// state is no level, which those of Train and HeldOut always are.
func (t *Task) Reset(p task.Prompt, _ uint64) task.Episode {
	l, err := Parse(p.State)
	if err != nil {
		panic(fmt.Sprintf("sokoban: the state of prompt %s: %v", p.ID, err))
	}
	return &episode{task: t, board: board{l.room, l.start}}
}

func (t *Task) prompt(l Level) task.Prompt {
	return task.Prompt{ID: l.id(), Text: t.notation.opening(&board{l.room, l.start}), State: l.String()}
}
