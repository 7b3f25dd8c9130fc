package catalog

import (
	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/cliffwalking"
	"github.com/reprise-rl/reprise/task/frozenlake"
)

// FrozenLake is the configuration of the frozenlake task.
type FrozenLake struct {
	Name                string `yaml:"name" json:"name"`
	frozenlake.Settings `yaml:",inline"`
}

// New makes the task.
func (c *FrozenLake) New(seed uint64) (task.Task, error) {
	return made(frozenlake.New(c.Settings, seed))
}

// CliffWalking is the configuration of the cliffwalking task.
type CliffWalking struct {
	Name                  string `yaml:"name" json:"name"`
	cliffwalking.Settings `yaml:",inline"`
}

// New makes the task.
func (c *CliffWalking) New(seed uint64) (task.Task, error) {
	return made(cliffwalking.New(c.Settings, seed))
}
