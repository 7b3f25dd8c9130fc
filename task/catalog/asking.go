package catalog

import (
	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/countdown"
	"github.com/reprise-rl/reprise/task/search"
)

// Countdown is the configuration of the countdown task.
type Countdown struct {
	Name               string `yaml:"name" json:"name"`
	countdown.Settings `yaml:",inline"`
}

// New makes the task.
func (c *Countdown) New(seed uint64) (task.Task, error) { return made(countdown.New(c.Settings, seed)) }

// Search is the configuration of the search task.
type Search struct {
	Name            string `yaml:"name" json:"name"`
	search.Settings `yaml:",inline"`
}

// New reads and indexes the corpus and makes the task.
func (c *Search) New(seed uint64) (task.Task, error) { return made(search.New(c.Settings, seed)) }
