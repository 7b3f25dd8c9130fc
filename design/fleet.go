package design

import (
	"errors"
	"fmt"
)

// Fleet is what a configuration is sought for. Zero means the default in brackets.
type Fleet struct {
	GPUs         int `json:"gpus" yaml:"gpus"`                   // W + T, 2 to 1,000,000 [8]
	Batch        int `json:"batch" yaml:"batch"`                 // B, rollouts per update, 1 to 1e9 [256]
	Group        int `json:"group" yaml:"group"`                 // G, rollouts per prompt, 1 to B [16, or B if that is less]
	MostCapacity int `json:"most_capacity" yaml:"most_capacity"` // the most rollouts that the buffer may hold, B to 1e12 [64 B, beyond which 1/N is below 1/64 of 1/B]
}

// WithDefaults returns the fleet with every zero replaced by its default.
func (f Fleet) WithDefaults() Fleet {
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&f.GPUs, 8)
	orInt(&f.Batch, 256)
	orInt(&f.Group, min(16, f.Batch))
	orInt(&f.MostCapacity, 64*f.Batch)
	return f
}

// Validate returns everything that is out of its range with the defaults in place, or nil.
func (f Fleet) Validate() error {
	f = f.WithDefaults()
	var errs []error
	check := func(key string, value, low, high int) {
		if value < low || value > high {
			errs = append(errs, fmt.Errorf("%s: %d: want %d to %d", key, value, low, high))
		}
	}
	check("gpus", f.GPUs, 2, 1e6)
	check("batch", f.Batch, 1, 1e9)
	check("group", f.Group, 1, max(1, f.Batch))
	check("most_capacity", f.MostCapacity, max(1, f.Batch), 1e12)
	return errors.Join(errs...)
}
