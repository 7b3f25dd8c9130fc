package task

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Distributions of a Latency.
const (
	Constant    = "constant"
	Exponential = "exponential"
	Lognormal   = "lognormal"
)

// Latency simulates how long it takes to reward a group: a judge model, a test run, a person. The zero value takes no
// time.
type Latency struct {
	Distribution string  `yaml:"distribution"` // constant, exponential or lognormal; empty: constant
	Mean         float64 `yaml:"mean"`         // in units of virtual time; 0 to 1e9
	Sigma        float64 `yaml:"sigma"`        // of the logarithm, lognormal only; at most 4; 0: 1
}

// Resolve fills in the defaults.
func (l *Latency) Resolve() {
	l.Distribution = cmp.Or(l.Distribution, Constant)
	if l.Distribution == Lognormal {
		l.Sigma = cmp.Or(l.Sigma, 1)
	}
}

// Validate reports every problem with the settings, each an [option.Error].
func (l Latency) Validate() error {
	l.Resolve()
	var problems option.Problems
	known := []string{Constant, Exponential, Lognormal}
	problems.Check(slices.Contains(known, l.Distribution), "distribution", l.Distribution, "%s",
		strings.Join(known, ", "))
	problems.Check(l.Mean >= 0 && l.Mean <= 1e9, "mean", l.Mean, "0 to 1e9 units of virtual time")
	if l.Distribution == Lognormal {
		problems.Check(l.Sigma > 0 && l.Sigma <= 4, "sigma", l.Sigma, "above 0, at most 4")
	} else {
		problems.Check(l.Sigma == 0, "sigma", l.Sigma, "0: only %s has one", Lognormal)
	}
	return problems.Err()
}

// Draw returns the latency of a group: a pure function of the run's seed and the group's number. The settings must be
// valid.
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
