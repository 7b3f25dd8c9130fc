package cliffwalking

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/gridworld"
)

// Task lets a player walk along a cliff. It is safe for concurrent use.
type Task struct {
	seed    uint64
	view    view
	rules   gridworld.Rules
	world   *gridworld.World
	plan    func() *gridworld.Plan
	trained []int // cells that training begins in
	heldOut []task.Prompt
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{seed: seed, rules: s.Rules(names())}
	t.view = view{slippery: s.Slippery, protocol: t.rules.Protocol}
	t.world = &gridworld.World{Table: table(s.Slippery), Goal: func(s int) bool { return s == goal }, Look: t.view.observe}
	t.plan = gridworld.Planner(t.world, t.rules)
	heldOut := []int{start}
	t.trained = heldOut
	if s.RandomStart {
		var cells []int
		for c := range start {
			cells = append(cells, c)
		}
		heldOut, t.trained = gridworld.DealStarts(cells, nil, s.HeldOut)
		t.trained = append(t.trained, start) // nothing else can teach what to do there: its row has no other cell
	}
	for i := range s.HeldOut {
		p := t.prompt(heldOut[i%len(heldOut)])
		p.ID += "#" + strconv.Itoa(i)
		t.heldOut = append(t.heldOut, p)
	}
	return t, nil
}

// Train returns the i-th training prompt; without random_start all are one.
func (t *Task) Train(i uint64) task.Prompt {
	return t.prompt(t.trained[rollout.Stream(t.seed, "cliffwalking train", i).IntN(len(t.trained))])
}

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// prompt begins in a cell.
func (t *Task) prompt(at int) task.Prompt {
	state := strconv.Itoa(at)
	return task.Prompt{ID: "cliffwalking/" + state, Text: t.view.prompt(at), State: state}
}

// MaxTurns returns the most turns of an episode.
func (t *Task) MaxTurns() int { return t.rules.MaxTurns }

// Reset begins an episode; the seed decides where the player slips. It panics if the prompt is none of this task's.
func (t *Task) Reset(p task.Prompt, seed uint64) task.Episode {
	s, err := strconv.Atoi(p.State)
	if err != nil || s < 0 || s > start {
		panic(fmt.Sprintf("cliffwalking: prompt %q has state %q, which is no cell to begin in", p.ID, p.State))
	}
	return gridworld.Begin(t.world, t.rules, s, rollout.Stream(seed, "cliffwalking slips", 0), t.plan)
}

// Transitions returns Gymnasium's table: by state (12 x row + column) and action (0 up, 1 right, 2 down, 3 left).
func (t *Task) Transitions() task.Transitions { return table(t.view.slippery) }

// Characters returns every character that prompts, observations and actions use.
func (t *Task) Characters() string {
	texts := append(t.rules.Actions(), t.rules.Write(0, 1))
	for at := range height * width {
		observation, _ := t.view.observe(at, true)
		texts = append(texts, t.view.prompt(at), observation)
	}
	return gridworld.Alphabet(texts...)
}
