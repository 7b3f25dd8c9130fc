package run

import (
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/task"
)

// validate holds the shape of a new policy to what a decoder can have; a folder brings its own.
func (p Policy) validate() error {
	if p.Init != "" {
		if p.Vision.Patch != 0 {
			return fmt.Errorf("policy.vision.patch: %d: want 0 with policy.init, whose folder brings its tower", p.Vision.Patch)
		}
		return nil
	}
	var errs []error
	for _, f := range []struct {
		key   string
		value int
	}{
		{"hidden", p.Hidden}, {"intermediate", p.Intermediate}, {"layers", p.Layers}, {"heads", p.Heads}, {"kv_heads", p.KVHeads},
	} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("policy.%s: %d: want 1 or more", f.key, f.value))
		}
	}
	if p.Positions < 2 {
		errs = append(errs, fmt.Errorf("policy.positions: %d: want room for a prompt and a completion", p.Positions))
	}
	if p.Heads >= 1 && (p.Hidden%p.Heads != 0 || p.Hidden/p.Heads%2 != 0) {
		errs = append(errs, fmt.Errorf("policy.heads: %d: want a divisor of policy.hidden (%d) that leaves each head an even width", p.Heads, p.Hidden))
	}
	if p.Heads >= 1 && p.KVHeads >= 1 && p.Heads%p.KVHeads != 0 {
		errs = append(errs, fmt.Errorf("policy.kv_heads: %d: want a divisor of policy.heads (%d)", p.KVHeads, p.Heads))
	}
	return errors.Join(errs...)
}

// imageSize returns the pixels of a side of a task's images, 0 if it has none.
func imageSize(t task.Task) int {
	if s, ok := t.(task.Seeing); ok {
		return s.ImageSize()
	}
	return 0
}

// validateFor holds the tower of a new policy to the images of a task.
func (p Policy) validateFor(t task.Task, name string) error {
	if p.Init != "" {
		return nil
	}
	size, v := imageSize(t), p.Vision
	var errs []error
	if _, ok := t.(task.Alphabet); !ok {
		errs = append(errs, fmt.Errorf("policy.init: empty: want the folder of a pretrained model: task %s is written in no small alphabet", name))
	}
	switch {
	case size == 0 && v.Patch != 0:
		errs = append(errs, fmt.Errorf("policy.vision.patch: %d: want 0: task %s has no images", v.Patch, name))
	case size > 0 && (v.Patch < 1 || size%v.Patch != 0):
		errs = append(errs, fmt.Errorf("policy.vision.patch: %d: want a divisor of %d, the pixels of a side of the images of task %s", v.Patch, size, name))
	}
	if size > 0 && v.Hidden < 1 {
		errs = append(errs, fmt.Errorf("policy.vision.hidden: %d: want 1 or more", v.Hidden))
	}
	return errors.Join(errs...)
}
