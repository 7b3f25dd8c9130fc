package frozenlake

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/task/gridworld"
)

// Maps.
const (
	Map4x4    = "4x4"    // Gymnasium's
	Map8x8    = "8x8"    // Gymnasium's
	MapRandom = "random" // a new one for every prompt
	MapRows   = "rows"   // that of the setting rows
)

// Bounds of the settings.
const (
	maxSize   = 16
	maxTile   = 64
	maxReward = 1000
)

// Settings of the task; the zero value is Gymnasium's FrozenLake-v1: its 4x4 map, slippery, 100 steps.
type Settings struct {
	Size               int       `yaml:"size" json:"size"`                       // tiles of a side, 2 to 16; 0: that of the map or of rows, else 4
	Map                string    `yaml:"map" json:"map"`                         // 4x4, 8x8, random or rows; empty: rows if given, 4x4 or 8x8 by size, else random
	Rows               []string  `yaml:"rows" json:"rows"`                       // a map of your own: S start, F frozen, H hole, G goal
	Frozen             float64   `yaml:"frozen" json:"frozen"`                   // probability that a tile of a random map is frozen, 0.5 to 1; 0: 0.8
	Slippery           *bool     `yaml:"slippery" json:"slippery"`               // null: true
	SuccessRate        float64   `yaml:"success_rate" json:"success_rate"`       // of slippery steps, that go the way meant; to 1; 0: 1/3
	RewardSchedule     []float64 `yaml:"reward_schedule" json:"reward_schedule"` // for reaching the goal, a hole, a frozen tile; none: 1, 0, 0
	Images             bool      `yaml:"images" json:"images"`                   // observations are pictures instead of text
	Tile               int       `yaml:"tile" json:"tile"`                       // pixels of a tile's side in pictures, to 64; 0: 8
	gridworld.Settings `yaml:",inline"`
}

// Resolve fills in the defaults. The limits of steps are Gymnasium's: 100 up to 4x4, 200 on larger maps.
func (s *Settings) Resolve() {
	s.resolveMap()
	if s.Frozen == 0 {
		s.Frozen = 0.8
	}
	if s.Slippery == nil {
		slippery := true
		s.Slippery = &slippery
	}
	if s.SuccessRate == 0 {
		s.SuccessRate = 1.0 / 3
	}
	if len(s.RewardSchedule) == 0 {
		s.RewardSchedule = []float64{1, 0, 0}
	}
	if s.Tile == 0 {
		s.Tile = 8
	}
	steps := 100
	if s.Size > 4 {
		steps = 200
	}
	s.Fill(steps, -0.1, s.heldOut())
}

func (s *Settings) resolveMap() {
	if s.Size == 0 {
		switch {
		case len(s.Rows) > 0:
			s.Size = max(len(s.Rows), len(s.Rows[0]))
		case s.Map == Map8x8:
			s.Size = 8
		default:
			s.Size = 4
		}
	}
	if s.Map != "" {
		return
	}
	switch {
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

// heldOut is the default number of evaluation prompts: maps, or starts, or episodes that differ in luck, or just one.
func (s *Settings) heldOut() int {
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

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := gridworld.Collect(&errs)
	s.validateMap(bad)
	if !(s.Frozen >= 0.5 && s.Frozen <= 1) {
		bad("frozen", s.Frozen, "0.5 to 1, so that maps with a path can be found")
	}
	if !(s.SuccessRate > 0 && s.SuccessRate <= 1) {
		bad("success_rate", s.SuccessRate, "above 0, to 1")
	}
	if len(s.RewardSchedule) != 3 {
		bad("reward_schedule", s.RewardSchedule, "three rewards: for reaching the goal, a hole, a frozen tile")
	}
	for _, r := range s.RewardSchedule {
		if !(math.Abs(r) <= maxReward) {
			bad("reward_schedule", r, "rewards from -%d to %[1]d", maxReward)
		}
	}
	if s.Tile < 1 || s.Tile > maxTile {
		bad("tile", s.Tile, "1 to %d pixels", maxTile)
	}
	s.Check(bad)
	return errors.Join(errs...)
}

func (s *Settings) validateMap(bad gridworld.Report) {
	want := map[string]int{Map4x4: 4, Map8x8: 8, MapRandom: s.Size, MapRows: s.Size}
	size, known := want[s.Map]
	switch {
	case !known:
		bad("map", s.Map, "%s, %s, %s or %s", Map4x4, Map8x8, MapRandom, MapRows)
	case s.Map == MapRows:
		s.validateRows(bad)
	case len(s.Rows) > 0:
		bad("rows", strings.Join(s.Rows, "/"), "none with map %s; map: %s takes them", s.Map, MapRows)
	case s.Size != size:
		bad("size", s.Size, "0 or %d, that of map %s", size, s.Map)
	case s.Size < 2 || s.Size > maxSize:
		bad("size", s.Size, "2 to %d tiles", maxSize)
	}
	if l := s.lake(); known && s.RandomStart && l.valid() && s.HeldOut >= len(l.starts(true)) {
		bad("held_out", s.HeldOut, "fewer than %d, the cells that episodes may begin in", len(l.starts(true)))
	}
}

func (s *Settings) validateRows(bad gridworld.Report) {
	l := lake(s.Rows)
	written := l.String()
	switch {
	case len(l) < 1 || len(l) > maxSize || len(l[0]) < 1 || len(l[0]) > maxSize ||
		slices.ContainsFunc(l, func(row string) bool { return len(row) != len(l[0]) }):
		bad("rows", written, "1 to %d rows of one length, 1 to %[1]d tiles", maxSize)
	case strings.Trim(strings.Join(l, ""), string([]byte{start, frozen, hole, goal})) != "":
		bad("rows", written, "tiles S (start), F (frozen), H (hole) and G (goal) only")
	case !l.valid():
		bad("rows", written, "a start S, and a path from every S to a goal G")
	case s.Images && len(l) != l.columns():
		bad("images", true, "a square map; this one has %d x %d tiles", len(l), l.columns())
	case s.Size != max(len(l), l.columns()):
		bad("size", s.Size, "0 or %d, that of rows", max(len(l), l.columns()))
	}
}

// valid reports whether a map of rows of one length has a start, and a path from each.
func (l lake) valid() bool {
	if len(l) == 0 || len(l[0]) == 0 || slices.ContainsFunc(l, func(row string) bool { return len(row) != len(l[0]) }) {
		return false
	}
	starts := l.starts(false)
	return len(starts) > 0 && !slices.ContainsFunc(starts, func(s int) bool { return !l.crossable(s) })
}

// starts returns the cells that episodes may begin in: those of S, or any from which a goal can be reached.
func (l lake) starts(anywhere bool) []int {
	return l.cells(func(s int) bool {
		if anywhere {
			return !l.ends(s) && l.crossable(s)
		}
		return l.tile(s) == start
	})
}
