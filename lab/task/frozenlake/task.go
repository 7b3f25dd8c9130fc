// Package frozenlake is FrozenLake with exactly the rules of Gymnasium's FrozenLake-v1: a player crosses a frozen lake
// from S to G over frozen tiles F. The episode ends in a hole H if the player is careless, or unlucky, since the ice is
// slippery.
//
// [Settings] choose the map (Gymnasium's 4x4 or 8x8, your own, or a new random one for every prompt), how slippery the
// ice is, the rewards and limits, and whether the player sees text or pictures. A [Task] is a task.Environment whose
// episodes are task.Experts (by value iteration) and task.Actors. It is also task.Tabular, a task.Alphabet and
// task.Seeing.
//
// With random maps, the held-out prompts are maps that are never trained on. A fixed map with one start has nothing to
// hold out: evaluation prompts are that map and differ in luck. With random_start they begin in cells that training
// never begins in.
package frozenlake

import (
	"cmp"
	"fmt"
	"image/png"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/frame"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Maps.
const (
	Map4x4    = "4x4"    // Gymnasium's
	Map8x8    = "8x8"    // Gymnasium's
	MapRandom = "random" // a new one for every prompt
	MapRows   = "rows"   // given by the setting rows
)

// Limits of the settings.
const (
	maxSize    = 16
	maxTile    = 64
	maxReward  = 1000
	maxHeldOut = 10_000
)

// Settings of the task. The zero value is Gymnasium's FrozenLake-v1: its 4x4 map, slippery, 100 steps.
type Settings struct {
	// tiles per side, 2 to 16; 0: that of the map or of rows, else 4
	Size int `yaml:"size"`
	// 4x4, 8x8, random or rows; empty: rows if given, 4x4 or 8x8 by size, else random
	Map  string   `yaml:"map"`
	Rows []string `yaml:"rows"` // a map of your own: S start, F frozen, H hole, G goal
	// probability that a tile of a random map is frozen, 0.5 to 1; 0: 0.8
	Frozen   float64 `yaml:"frozen"`
	Slippery *bool   `yaml:"slippery"` // null: true
	// share of slippery steps that go the intended way; at most 1; 0: 1/3
	SuccessRate    float64   `yaml:"success_rate"`
	RewardSchedule []float64 `yaml:"reward_schedule"` // for reaching the goal, a hole, a frozen tile; none: 1, 0, 0
	Images         bool      `yaml:"images"`          // observations are pictures instead of text
	Tile           int       `yaml:"tile"`            // side of a tile in pictures in pixels, at most 64; 0: 8
	// episodes begin in any cell from which the goal can be reached
	RandomStart        bool `yaml:"random_start"`
	gridworld.Settings `yaml:",inline"`
}

// Resolve fills in the defaults. The limits of steps are Gymnasium's: 100 up to 4x4, 200 on larger maps.
func (s *Settings) Resolve() {
	s.resolveMap()
	if s.Slippery == nil {
		slippery := true
		s.Slippery = &slippery
	}
	if len(s.RewardSchedule) == 0 {
		s.RewardSchedule = []float64{1, 0, 0}
	}
	s.Frozen = cmp.Or(s.Frozen, 0.8)
	s.SuccessRate = cmp.Or(s.SuccessRate, 1.0/3)
	s.Tile = cmp.Or(s.Tile, 8)
	steps := 100
	if s.Size > 4 {
		steps = 200
	}
	s.Settings.Resolve(steps, -0.1, s.defaultHeldOut())
}

func (s *Settings) resolveMap() {
	switch {
	case s.Size != 0:
	case len(s.Rows) > 0:
		s.Size = max(len(s.Rows), len(s.Rows[0]))
	case s.Map == Map8x8:
		s.Size = 8
	default:
		s.Size = 4
	}
	switch {
	case s.Map != "":
	case len(s.Rows) > 0:
		s.Map = MapRows
	case s.Size == 4:
		s.Map = Map4x4
	case s.Size == 8:
		s.Map = Map8x8
	default:
		s.Map = MapRandom
	}
}

// defaultHeldOut is the default number of evaluation prompts: maps, starts, or episodes that differ in luck.
func (s *Settings) defaultHeldOut() int {
	switch {
	case s.Map == MapRandom:
		return 200
	case s.RandomStart:
		if l := s.lake(); l.valid() {
			return max(1, len(l.starts(true))/4)
		}
	case *s.Slippery:
		return 100
	}
	return 1
}

// lake returns the fixed map, nil if maps are random.
func (s *Settings) lake() lake {
	switch s.Map {
	case MapRows:
		return s.Rows
	case Map4x4:
		return standard(4)
	case Map8x8:
		return standard(8)
	}
	return nil
}

// Validate reports every problem with the settings, each an [option.Error].
func (s Settings) Validate() error {
	s.Resolve()
	var problems option.Problems
	s.validateMap(&problems)
	problems.Check(s.Frozen >= 0.5 && s.Frozen <= 1, "frozen", s.Frozen, "0.5 to 1: maps with a path are rare below")
	problems.Check(s.SuccessRate > 0 && s.SuccessRate <= 1, "success_rate", s.SuccessRate, "above 0, at most 1")
	problems.Check(len(s.RewardSchedule) == 3, "reward_schedule", s.RewardSchedule,
		"three rewards: for reaching the goal, a hole, a frozen tile")
	for _, r := range s.RewardSchedule {
		problems.Check(math.Abs(r) <= maxReward, "reward_schedule", r, "rewards from -%d to %[1]d", maxReward)
	}
	problems.Check(s.Tile >= 1 && s.Tile <= maxTile, "tile", s.Tile, "1 to %d pixels", maxTile)
	s.Settings.Validate(&problems)
	problems.Check(s.HeldOut >= 1 && s.HeldOut <= maxHeldOut, "held_out", s.HeldOut, "0 (the default) to %d",
		maxHeldOut)
	return problems.Err()
}

func (s *Settings) validateMap(problems *option.Problems) {
	bad := func(key string, value any, want string, args ...any) {
		problems.Check(false, key, value, want, args...)
	}
	size, known := map[string]int{Map4x4: 4, Map8x8: 8, MapRandom: s.Size, MapRows: s.Size}[s.Map]
	l := s.lake()
	switch {
	case !known:
		bad("map", s.Map, "%s, %s, %s or %s", Map4x4, Map8x8, MapRandom, MapRows)
	case s.Map != MapRows && len(s.Rows) > 0:
		bad("rows", strings.Join(s.Rows, "/"), "none with map %s; map: %s takes them", s.Map, MapRows)
	case s.Map != MapRows && s.Size != size:
		bad("size", s.Size, "0 or %d, that of map %s", size, s.Map)
	case s.Map != MapRows && (s.Size < 2 || s.Size > maxSize):
		bad("size", s.Size, "2 to %d tiles", maxSize)
	case s.Map != MapRows:
	case !l.rectangular() || len(l) > maxSize || l.columns() > maxSize:
		bad("rows", l, "1 to %d rows of one length, 1 to %[1]d tiles", maxSize)
	case strings.Trim(strings.Join(l, ""), string([]byte{start, frozen, hole, goal})) != "":
		bad("rows", l, "tiles S (start), F (frozen), H (hole) and G (goal) only")
	case !l.valid():
		bad("rows", l, "a start S, and a path from every S to a goal G")
	case s.Images && len(l) != l.columns():
		bad("images", true, "a square map; this one has %d x %d tiles", len(l), l.columns())
	case s.Size != max(len(l), l.columns()):
		bad("size", s.Size, "0 or %d, that of rows", max(len(l), l.columns()))
	}
	if known && s.RandomStart && l.valid() && s.HeldOut >= len(l.starts(true)) {
		bad("held_out", s.HeldOut, "fewer than %d, the cells that episodes may begin in", len(l.starts(true)))
	}
}

// heldOutSeed is the seed of the held-out maps: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736533

// Task lets a player cross frozen lakes. It is safe for concurrent use.
type Task struct {
	settings Settings
	seed     uint64
	ice      ice
	protocol gridworld.Protocol
	tiles    map[byte]frame.Sprite
	painter  frame.Encoder
	fixed    *ground // nil: maps are random
	trained  []int   // cells that training begins in, on a fixed map
	heldOut  []task.Prompt
	reserved map[string]struct{} // the held-out maps, if maps are random
}

// ground is a lake to walk on.
type ground struct {
	lake lake
	*gridworld.World
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	s.Rows = slices.Clone(s.Rows)
	t := &Task{
		settings: s, seed: seed, protocol: s.Protocol(letters, names()), tiles: sprites(),
		painter: frame.Encoder{Level: png.BestSpeed},
		ice:     ice{slippery: *s.Slippery, success: s.SuccessRate, rewards: [3]float64(s.RewardSchedule)},
	}
	if l := s.lake(); l != nil {
		t.fixed = t.ground(l)
		heldOut := l.starts(false)
		t.trained = heldOut
		if s.RandomStart {
			heldOut, t.trained = gridworld.SplitStarts(l.starts(true), heldOut, s.HeldOut)
		}
		t.heldOut = t.fixed.HeldOut(heldOut, func(at int) task.Prompt { return t.prompt(l, at) })
		return t, nil
	}
	if err := t.holdOutMaps(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Task) ground(l lake) *ground {
	return &ground{l, &gridworld.World{
		Table: l.table(t.ice), Protocol: t.protocol, Settings: t.settings.Settings, Goal: l.isGoal,
		Look: func(s int, invalid bool) (string, []byte) { return t.observe(l, s, invalid) },
	}}
}

// holdOutMaps draws evaluation prompts on different random maps, and checks that enough maps are left to train on.
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
	free := 0
	for range tries {
		if _, taken := t.reserved[t.draw(r).String()]; !taken {
			free++
		}
	}
	if len(t.heldOut) < want || free < tries/20 {
		return &option.Error{Key: "held_out", Value: want, Want: fmt.Sprintf("fewer maps: %d%% of the random maps of "+
			"size %d with frozen %g "+
			"would be left to train on; or larger maps", 100*free/tries, t.settings.Size, t.settings.Frozen)}
	}
	return nil
}

// draw draws a random map.
func (t *Task) draw(r *rand.Rand) lake { return random(r, t.settings.Size, t.settings.Frozen) }

// start draws the cell in which an episode on a random map begins.
func (t *Task) start(r *rand.Rand, l lake) int {
	cells := l.starts(t.settings.RandomStart)
	return cells[r.IntN(len(cells))]
}

// Train returns the i-th training prompt: a random map that is not held out, drawn as Gymnasium draws it, or the fixed
// map with a start that is not held out.
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
	text, picture := t.opening(l, at)
	state := l.String() + "@" + strconv.Itoa(at)
	return task.Prompt{ID: "frozenlake/" + state, Text: text, Image: picture, State: state}
}

// Chat reports whether prompts and observations are messages for a chat template.
func (t *Task) Chat() bool { return t.settings.Format == task.Chat }

// MaxTurns returns the maximum number of turns of an episode.
func (t *Task) MaxTurns() int { return t.settings.MaxTurns }

// Reset starts an episode; the seed determines where the player slips. It panics if the prompt is not one of this
// task's.
func (t *Task) Reset(p task.Prompt, seed uint64) task.Episode {
	written, at, _ := strings.Cut(p.State, "@")
	g := t.fixed
	if g == nil || g.lake.String() != written {
		l := lake(strings.Split(written, "/"))
		if !l.valid() {
			panic(fmt.Sprintf("frozenlake: prompt %q: state %q is not a lake", p.ID, p.State))
		}
		g = t.ground(l)
	}
	s, err := strconv.Atoi(at)
	if err != nil || s < 0 || s >= g.lake.states() {
		panic(fmt.Sprintf("frozenlake: prompt %q: state %q is not a cell of the lake", p.ID, p.State))
	}
	return g.Begin(s, rollout.Stream(seed, "frozenlake slips", 0))
}

// Transitions returns Gymnasium's table: by state (row × columns + column) and action (0 left, 1 down, 2 right, 3 up).
// If maps are random it is that of the first training prompt.
func (t *Task) Transitions() task.Transitions {
	l := t.settings.lake()
	if l == nil {
		written, _, _ := strings.Cut(t.Train(0).State, "@")
		l = strings.Split(written, "/")
	}
	return l.table(t.ice)
}

// ImageSize returns the side of a picture in pixels, 0 if the player sees text.
func (t *Task) ImageSize() int {
	if !t.settings.Images {
		return 0
	}
	return t.settings.Size * t.settings.Tile
}

// Characters returns every character that prompts, observations and actions use.
func (t *Task) Characters() string {
	every := lake{string([]byte{start, frozen, hole, goal})}
	var texts []string
	for at := range every.states() {
		prompt, _ := t.opening(every, at)
		observation, _ := t.observe(every, at, true)
		texts = append(texts, prompt, observation)
	}
	return (&gridworld.World{Protocol: t.protocol}).Characters(texts...)
}
