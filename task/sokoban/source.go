package sokoban

import (
	"fmt"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// heldOutSeed is the seed of the held-out levels: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736533

// source of training levels.
type source interface {
	// train returns the i-th training level.
	train(i uint64) Level
}

// generated makes training levels that are not held out.
type generated struct {
	shape   Shape
	seed    uint64
	wanted  int             // held-out levels
	heldOut map[string]bool // by id
}

// roomsPerLevel is how many rooms may be dug for one held-out level before the settings are given up.
const roomsPerLevel = 1000

func newGenerated(s Settings, seed uint64) (*generated, []Level, error) {
	g := &generated{shape: s.shape(), seed: seed, wanted: s.HeldOut, heldOut: make(map[string]bool, s.HeldOut)}
	var heldOut []Level
	again := 0
	for i := uint64(0); len(heldOut) < s.HeldOut; i++ {
		l, ok := g.level(heldOutSeed, "sokoban held-out", i)
		if !ok {
			return nil, nil, &task.SettingError{Key: "min_pushes", Value: s.MinPushes,
				Want: fmt.Sprintf("fewer: among %d rooms of %dx%[2]d with boxes: %d, none needed as many", roomsPerLevel, s.Size, s.Boxes)}
		}
		if !g.heldOut[l.id()] {
			g.heldOut[l.id()] = true
			heldOut = append(heldOut, l)
		} else if again++; again > len(heldOut)+roomsPerLevel {
			return nil, nil, g.tooMany()
		}
	}
	for i := range uint64(roomsPerLevel) { // training has to find others
		if l, ok := g.level(heldOutSeed, "sokoban others", i); ok && !g.heldOut[l.id()] {
			return g, heldOut, nil
		}
	}
	return nil, nil, g.tooMany()
}

func (g *generated) tooMany() error {
	return &task.SettingError{Key: "held_out", Value: g.wanted,
		Want: fmt.Sprintf("fewer, or larger rooms: hardly more than %d levels of this kind are found", len(g.heldOut))}
}

// level generates a level of a stream.
func (g *generated) level(seed uint64, purpose string, i uint64) (Level, bool) {
	random := rollout.Stream(seed, purpose, i)
	for range roomsPerLevel {
		if l, ok := Generate(g.shape, random); ok {
			return l, true
		}
	}
	return Level{}, false
}

func (g *generated) train(i uint64) Level {
	random := rollout.Stream(g.seed, "sokoban train", i)
	for { // held-out levels were found in the same way: others come
		if l, ok := Generate(g.shape, random); ok && !g.heldOut[l.id()] {
			return l
		}
	}
}

// read gives the levels of files.
type read struct {
	levels []Level
	order  task.Order
}

func newRead(s Settings, seed uint64) (*read, []Level, error) {
	levels, err := ReadPath(s.Levels)
	if err != nil {
		return nil, nil, fmt.Errorf("levels: %w", err)
	}
	levels = distinct(levels, map[string]bool{})
	var heldOut []Level
	if s.HeldOutLevels != "" {
		if heldOut, err = ReadPath(s.HeldOutLevels); err != nil {
			return nil, nil, fmt.Errorf("held_out_levels: %w", err)
		}
		heldOut = choose(distinct(heldOut, map[string]bool{}), s.HeldOut)
	} else {
		n := s.HeldOut
		if n == 0 {
			n = max(1, len(levels)/10)
		}
		heldOut = choose(levels, n)
	}
	taken := map[string]bool{}
	for _, l := range heldOut {
		taken[l.id()] = true
	}
	levels = distinct(levels, taken)
	if len(levels) == 0 || len(heldOut) == 0 {
		return nil, nil, fmt.Errorf("levels: %s: %d training and %d held-out levels remain: want at least one of each", s.Levels, len(levels), len(heldOut))
	}
	return &read{levels, task.Order{Seed: seed, Purpose: "sokoban train", N: len(levels)}}, heldOut, nil
}

func (r *read) train(i uint64) Level { return r.levels[r.order.At(i)] }

// distinct returns the levels that are not taken, each once, and takes them.
func distinct(levels []Level, taken map[string]bool) []Level {
	var list []Level
	for _, l := range levels {
		if id := l.id(); !taken[id] {
			taken[id] = true
			list = append(list, l)
		}
	}
	return list
}

// choose returns n of the levels, the same for every seed and in their order; all for 0 or more than there are.
func choose(levels []Level, n int) []Level {
	if n == 0 || n >= len(levels) {
		return levels
	}
	var picked []Level
	for _, at := range (task.Order{Seed: heldOutSeed, Purpose: "sokoban held-out", N: len(levels)}).Pick(n) {
		picked = append(picked, levels[at])
	}
	return picked
}
