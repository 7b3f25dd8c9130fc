// Package cliffwalking is CliffWalking with exactly the rules of Gymnasium's CliffWalking-v1 (after example 6.6 of
// Sutton and Barto): a player walks from one end of a cliff to the other and pays 1 for every step. A step over the
// edge costs 100 and leads back to the start.
//
// A [Task] is a task.Environment whose episodes are task.Experts (by value iteration) and task.Actors. It is also
// task.Tabular and a task.Alphabet.
//
// There is one map with one start, so nothing can be held out: evaluation prompts equal the training prompt and differ
// in luck. With random_start they begin in cells that training never begins in; the original start is always trained
// on.
package cliffwalking

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Settings of the task. The zero value is Gymnasium's CliffWalking-v1 with a limit of 200 steps, where Gymnasium has
// none.
type Settings struct {
	Slippery           bool `yaml:"slippery"`     // a third of the steps go to either side of the intended direction
	RandomStart        bool `yaml:"random_start"` // episodes begin in any cell from which the goal can be reached
	gridworld.Settings `yaml:",inline"`
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	heldOut := 1
	switch {
	case s.RandomStart:
		heldOut = 9
	case s.Slippery:
		heldOut = 100
	}
	s.Settings.Resolve(200, 2*stepReward, heldOut)
}

// Validate reports every problem with the settings, each an [option.Error].
func (s Settings) Validate() error {
	s.Resolve()
	var problems option.Problems
	s.Settings.Validate(&problems)
	if s.RandomStart {
		problems.Check(s.HeldOut >= 1 && s.HeldOut <= start, "held_out", s.HeldOut,
			"0 (9) to %d, the cells besides the start that episodes may begin in", start)
	} else {
		problems.Check(s.HeldOut >= 1 && s.HeldOut <= maxHeldOut, "held_out", s.HeldOut, "0 (the default) to %d",
			maxHeldOut)
	}
	return problems.Err()
}

const maxHeldOut = 10_000

// The map: the cliff is between start and goal in the last row.
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

// letters and names are of the actions, by Gymnasium's numbers.
const letters = "URDL"

func names() []string { return []string{"Up", "Right", "Down", "Left"} }

// isCliff reports whether a state is a cell of the cliff.
func isCliff(s int) bool { return s > start && s < goal }

// table returns the transitions in Gymnasium's order. As there, the cells of the cliff and the goal have transitions
// like any other, although no episode goes on from them.
func table(slippery bool) task.Transitions {
	odds := []float64{1}
	if slippery {
		odds = []float64{1.0 / 3, 1.0 / 3, 1.0 / 3}
	}
	return gridworld.Slide(height*width, len(letters), odds, func(s, direction int) task.Outcome {
		next := gridworld.Move(s, height, width, letters[direction])
		if isCliff(next) {
			return task.Outcome{Next: start, Reward: fallReward}
		}
		return task.Outcome{Next: next, Reward: stepReward, Done: next == goal}
	})
}

// Task lets a player walk along a cliff. It is safe for concurrent use.
type Task struct {
	seed     uint64
	slippery bool
	world    *gridworld.World
	trained  []int // cells that training begins in
	heldOut  []task.Prompt
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{seed: seed, slippery: s.Slippery, trained: []int{start}}
	t.world = &gridworld.World{
		Table: table(s.Slippery), Protocol: s.Protocol(letters, names()), Settings: s.Settings,
		Goal: func(s int) bool { return s == goal }, Look: t.observe,
	}
	heldOut := t.trained
	if s.RandomStart {
		var cells []int
		for c := range start {
			cells = append(cells, c)
		}
		heldOut, t.trained = gridworld.SplitStarts(cells, nil, s.HeldOut)
		t.trained = append(t.trained, start) // no other start teaches what to do there
	}
	t.heldOut = t.world.HeldOut(heldOut, t.prompt)
	return t, nil
}

// Train returns the i-th training prompt; without random_start all are the same.
func (t *Task) Train(i uint64) task.Prompt {
	return t.prompt(t.trained[rollout.Stream(t.seed, "cliffwalking train", i).IntN(len(t.trained))])
}

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// prompt begins in a cell.
func (t *Task) prompt(at int) task.Prompt {
	state := strconv.Itoa(at)
	return task.Prompt{ID: "cliffwalking/" + state, Text: t.opening(at), State: state}
}

// Chat reports whether prompts and observations are messages for a chat template.
func (t *Task) Chat() bool { return t.world.Settings.Format == task.Chat }

// MaxTurns returns the maximum number of turns of an episode.
func (t *Task) MaxTurns() int { return t.world.Settings.MaxTurns }

// Reset starts an episode; the seed determines where the player slips. It panics if the prompt is not one of this
// task's.
func (t *Task) Reset(p task.Prompt, seed uint64) task.Episode {
	s, err := strconv.Atoi(p.State)
	if err != nil || s < 0 || s > start {
		panic(fmt.Sprintf("cliffwalking: prompt %q: no episode begins in state %q", p.ID, p.State))
	}
	return t.world.Begin(s, rollout.Stream(seed, "cliffwalking slips", 0))
}

// Transitions returns Gymnasium's table: by state (12 × row + column) and action (0 up, 1 right, 2 down, 3 left).
func (t *Task) Transitions() task.Transitions { return table(t.slippery) }

// Characters returns every character that prompts, observations and actions use.
func (t *Task) Characters() string {
	var texts []string
	for at := range height * width {
		observation, _ := t.observe(at, true)
		texts = append(texts, t.opening(at), observation)
	}
	return t.world.Characters(texts...)
}

// cell names a cell by its row, 0 to 3 from the top, and its column, a to l from the left: the start is 3a, the goal
// 3l. The map is always the same, so a small model needs no more.
func cell(at int) string { return string([]byte{'0' + byte(at/width), 'a' + byte(at%width)}) }

// picture draws the map, one line per row.
func picture(at int) string {
	var b strings.Builder
	for s := range height * width {
		tile := byte('.')
		switch {
		case s == at:
			tile = 'P'
		case s == start:
			tile = 'S'
		case s == goal:
			tile = 'G'
		case isCliff(s):
			tile = 'C'
		}
		b.WriteByte(tile)
		if s%width == width-1 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// observe returns what the player is shown after a turn.
func (t *Task) observe(at int, invalid bool) (string, []byte) {
	if !task.InWords(t.world.Settings.Format) {
		return cell(at), nil
	}
	return t.world.Protocol.Reply(invalid) + "The map now:\n" + picture(at), nil
}

// opening returns the text of a prompt.
func (t *Task) opening(at int) string {
	if !task.InWords(t.world.Settings.Format) {
		return cell(at)
	}
	slips := "Every step goes the way you say; at the edge of the map you stay where you are."
	if t.slippery {
		slips = "The ground is slippery: a step goes the way you say in one of three cases, and to either side of it " +
			"in one each; at the edge of the map you stay where you are."
	}
	return "Walk along a cliff to the goal, in as few steps as you can. P is you, S the start, C the cliff, G the " +
		"goal.\n" + slips +
		" A step over the cliff takes you back to the start and costs as much as 100 steps.\n" +
		t.world.Protocol.Request() +
		"\nThe map:\n" + picture(at)
}
