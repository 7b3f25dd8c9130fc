package frozenlake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/frame"
	"github.com/reprise-rl/reprise/task/gridworld"
)

// heldOutSeed is the seed of the held-out maps: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736533

// Task lets a player cross frozen lakes. It is safe for concurrent use.
type Task struct {
	settings Settings
	seed     uint64
	view     view
	rules    gridworld.Rules
	fixed    *ground // nil: maps are random
	trained  []int   // cells that training begins in, on a fixed map
	heldOut  []task.Prompt
	reserved map[string]struct{} // the held-out maps, if maps are random
}

// ground is a lake to walk on.
type ground struct {
	lake  lake
	world *gridworld.World
	plan  func() *gridworld.Plan
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	s.Rows = slices.Clone(s.Rows)
	of := ice{slippery: *s.Slippery, success: s.SuccessRate, rewards: [3]float64(s.RewardSchedule)}
	rules := s.Rules(names())
	t := &Task{
		settings: s, seed: seed, rules: rules,
		view: view{images: s.Images, pixels: s.Tile, ice: of, protocol: rules.Protocol, tiles: sprites(), painter: new(frame.Painter)},
	}
	if l := s.lake(); l != nil {
		t.fixed = t.ground(l)
		t.holdOutStarts()
		return t, nil
	}
	if err := t.holdOutMaps(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Task) ground(l lake) *ground {
	w := &gridworld.World{
		Table: l.table(t.view.ice),
		Goal:  l.isGoal,
		Look:  func(s int, invalid bool) (string, []byte) { return t.view.observe(l, s, invalid) },
	}
	return &ground{l, w, gridworld.Planner(w, t.rules)}
}

// holdOutStarts chooses the evaluation prompts on the fixed map.
func (t *Task) holdOutStarts() {
	l := t.fixed.lake
	starts := l.starts(false)
	heldOut := starts
	t.trained = starts
	if t.settings.RandomStart {
		heldOut, t.trained = gridworld.DealStarts(l.starts(true), starts, t.settings.HeldOut)
	}
	for i := range t.settings.HeldOut {
		p := t.prompt(l, heldOut[i%len(heldOut)])
		p.ID += "#" + strconv.Itoa(i)
		t.heldOut = append(t.heldOut, p)
	}
}

// holdOutMaps draws the evaluation prompts on random maps, no map twice, and makes sure that enough is left to train on.
func (t *Task) holdOutMaps() error {
	r := rollout.Stream(heldOutSeed, "frozenlake held-out", 0)
	want := t.settings.HeldOut
	t.reserved = make(map[string]struct{}, want)
	for tries := 0; len(t.heldOut) < want && tries < 100*want; tries++ {
		l := t.draw(r)
		if _, taken := t.reserved[l.String()]; !taken {
			t.reserved[l.String()] = struct{}{}
			t.heldOut = append(t.heldOut, t.prompt(l, t.start(r, l)))
		}
	}
	const tries = 1000
	others := 0
	for range tries {
		if _, taken := t.reserved[t.draw(r).String()]; !taken {
			others++
		}
	}
	if len(t.heldOut) < want || others < tries/20 {
		return &task.SettingError{Key: "held_out", Value: want, Want: fmt.Sprintf("fewer maps: of random ones of size %d with frozen %g, "+
			"%d%% would be left to train on; or larger maps", t.settings.Size, t.settings.Frozen, 100*others/tries)}
	}
	return nil
}

// draw draws a random map.
func (t *Task) draw(r *rand.Rand) lake { return random(r, t.settings.Size, t.settings.Frozen) }

// start draws the cell that an episode on a random map begins in.
func (t *Task) start(r *rand.Rand, l lake) int {
	cells := l.starts(t.settings.RandomStart)
	return cells[r.IntN(len(cells))]
}

// Train returns the i-th training prompt: a random map that is not held out, drawn as Gymnasium draws it; or the fixed map,
// with a start drawn from those that are not held out.
func (t *Task) Train(i uint64) task.Prompt {
	r := rollout.Stream(t.seed, "frozenlake train", i)
	if t.fixed != nil {
		return t.prompt(t.fixed.lake, t.trained[r.IntN(len(t.trained))])
	}
	for {
		l := t.draw(r)
		if _, taken := t.reserved[l.String()]; !taken {
			return t.prompt(l, t.start(r, l))
		}
	}
}

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// prompt begins in a cell of a map.
func (t *Task) prompt(l lake, at int) task.Prompt {
	text, png := t.view.prompt(l, at)
	state := l.String() + "@" + strconv.Itoa(at)
	return task.Prompt{ID: "frozenlake/" + state, Text: text, Image: png, State: state}
}

// MaxTurns returns the most turns of an episode.
func (t *Task) MaxTurns() int { return t.rules.MaxTurns }

// Reset begins an episode; the seed decides where the player slips. It panics if the prompt is none of this task's.
func (t *Task) Reset(p task.Prompt, seed uint64) task.Episode {
	written, at, ok := strings.Cut(p.State, "@")
	g := t.fixed
	if g == nil || g.lake.String() != written {
		l := lake(strings.Split(written, "/"))
		if !l.valid() {
			panic(fmt.Sprintf("frozenlake: prompt %q has state %q, which is no lake", p.ID, p.State))
		}
		g = t.ground(l)
	}
	s, err := strconv.Atoi(at)
	if !ok || err != nil || s < 0 || s >= g.lake.states() {
		panic(fmt.Sprintf("frozenlake: prompt %q has state %q, which is no place on the lake", p.ID, p.State))
	}
	return gridworld.Begin(g.world, t.rules, s, rollout.Stream(seed, "frozenlake slips", 0), g.plan)
}

// Transitions returns Gymnasium's table: by state (row x columns + column) and action (0 left, 1 down, 2 right, 3 up). If maps
// are random it is that of the first training prompt.
func (t *Task) Transitions() task.Transitions {
	l := t.settings.lake()
	if l == nil {
		written, _, _ := strings.Cut(t.Train(0).State, "@")
		l = strings.Split(written, "/")
	}
	return l.table(t.view.ice)
}

// ImageSize returns the pixels of a picture's side, 0 if the player sees text.
func (t *Task) ImageSize() int {
	if !t.settings.Images {
		return 0
	}
	return t.settings.Size * t.settings.Tile
}

// Characters returns every character that prompts, observations and actions use.
func (t *Task) Characters() string {
	every := lake{string([]byte{start, frozen, hole, goal})}
	texts := append(t.rules.Actions(), t.rules.Write(0, 1))
	for _, at := range every.cells(func(int) bool { return true }) {
		prompt, _ := t.view.prompt(every, at)
		observation, _ := t.view.observe(every, at, true)
		texts = append(texts, prompt, observation)
	}
	return gridworld.Alphabet(texts...)
}
