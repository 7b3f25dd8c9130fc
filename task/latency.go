package task

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
)

// Distributions of a Latency.
const (
	Constant    = "constant"
	Exponential = "exponential"
	Lognormal   = "lognormal"
)

// Latency simulates the time that it takes to reward a group: a judge model, a test run, a person.
// The zero value takes no time.
type Latency struct {
	Distribution string  `yaml:"distribution" json:"distribution"` // constant, exponential or lognormal; empty: constant
	Mean         float64 `yaml:"mean" json:"mean"`                 // of the latency, in units of virtual time; 0 <= mean <= 1e9
	Sigma        float64 `yaml:"sigma" json:"sigma"`               // of the logarithm, lognormal only; 0 < sigma <= 4; 0: 1
}

// Resolve fills in the defaults.
func (l *Latency) Resolve() {
	if l.Distribution == "" {
		l.Distribution = Constant
	}
	if l.Distribution == Lognormal && l.Sigma == 0 {
		l.Sigma = 1
	}
}

// Validate reports everything that is wrong with the settings, each problem a *SettingError.
func (l Latency) Validate() error {
	l.Resolve()
	var errs []error
	bad := func(key string, value any, want string) {
		errs = append(errs, &SettingError{Key: key, Value: value, Want: want})
	}
	switch l.Distribution {
	case Constant, Exponential, Lognormal:
	default:
		bad("distribution", l.Distribution, strings.Join([]string{Constant, Exponential, Lognormal}, ", "))
	}
	if !(l.Mean >= 0 && l.Mean <= 1e9) {
		bad("mean", l.Mean, "0 <= mean <= 1e9 units of virtual time")
	}
	if l.Distribution == Lognormal && !(l.Sigma > 0 && l.Sigma <= 4) {
		bad("sigma", l.Sigma, "0 < sigma <= 4")
	}
	if l.Distribution != Lognormal && l.Sigma != 0 {
		bad("sigma", l.Sigma, fmt.Sprintf("0: only %s has one", Lognormal))
	}
	return errors.Join(errs...)
}

// Draw returns the latency of a group, a pure function of the seed of the run and the number of the
// group within it. The settings have to be valid.
func (l Latency) Draw(seed, group uint64) float64 {
	l.Resolve()
	r := rollout.Stream(seed, "reward latency", group)
	switch l.Distribution {
	case Exponential:
		return l.Mean * r.ExpFloat64()
	case Lognormal: // the mean of exp(N(m, s)) is exp(m + s^2/2)
		return l.Mean * math.Exp(l.Sigma*r.NormFloat64()-l.Sigma*l.Sigma/2)
	}
	return l.Mean
}
