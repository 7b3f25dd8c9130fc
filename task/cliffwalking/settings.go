package cliffwalking

import (
	"errors"

	"github.com/reprise-rl/reprise/task/gridworld"
)

// Settings of the task; the zero value is Gymnasium's CliffWalking-v1, with a limit of 200 steps, as it has none.
type Settings struct {
	Slippery           bool `yaml:"slippery" json:"slippery"` // steps go to either side of the way meant as often as there
	gridworld.Settings `yaml:",inline"`
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	heldOut := 1
	switch {
	case s.RandomStart:
		heldOut = 9
	case s.Slippery:
		heldOut = 100
	}
	s.Fill(200, 2*stepReward, heldOut)
}

// Validate reports everything that is wrong with the settings, each problem a *task.SettingError.
func (s Settings) Validate() error {
	s.Resolve()
	var errs []error
	bad := gridworld.Collect(&errs)
	s.Check(bad)
	if s.RandomStart && s.HeldOut > start {
		bad("held_out", s.HeldOut, "at most %d, the cells beside the start that episodes may begin in", start)
	}
	return errors.Join(errs...)
}
