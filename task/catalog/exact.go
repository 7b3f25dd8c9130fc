package catalog

import (
	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/geometry"
	"github.com/reprise-rl/reprise/task/maths"
)

// Geometry is the configuration of the geometry task.
type Geometry struct {
	Name              string `yaml:"name" json:"name"`
	geometry.Settings `yaml:",inline"`
}

// New makes the task.
func (c *Geometry) New(seed uint64) (task.Task, error) { return made(geometry.New(c.Settings, seed)) }

// Math is the configuration of the math task.
type Math struct {
	Name           string `yaml:"name" json:"name"`
	maths.Settings `yaml:",inline"`
}

// New reads the files and makes the task.
func (c *Math) New(seed uint64) (task.Task, error) { return made(maths.New(c.Settings, seed)) }
