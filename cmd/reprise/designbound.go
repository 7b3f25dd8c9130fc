package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/design"
)

// boundFlags are what theorem 3.4 of [ER] asks for besides: nothing in a run tells them, so that nothing is shown unless they are given.
type boundFlags struct {
	Gap          *float64 `help:"For the bound of theorem 3.4 on the squared gradient: the objective at the start above its least."`
	Smoothness   *float64 `help:"Lipschitz constant of the gradient."`
	Updates      *int     `help:"Updates made."`
	Bias         float64  `default:"0" help:"Bias of a rollout's gradient per distance that the weights have moved since."`
	LearningRate *float64 `help:"Learning rate of plain SGD; the greatest at which the theorem holds if not given."`
}

// given reports whether the bound is asked for.
func (f boundFlags) given() bool {
	return f.Gap != nil || f.Smoothness != nil || f.Updates != nil || f.Bias != 0 || f.LearningRate != nil
}

// validate reports every flag with a wrong value at once.
func (f boundFlags) validate() error {
	if !f.given() {
		return nil
	}
	var errs []error
	check := func(ok bool, flag string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--bound-%s: %v: want %s", flag, value, want))
		}
	}
	above := func(flag string, v *float64, needed bool) {
		switch {
		case v != nil:
			check(*v > 0 && !math.IsInf(*v, 0), flag, *v, "a finite number above 0")
		case needed:
			check(false, flag, "not given", "it beside the other --bound flags: --bound-gap, --bound-smoothness and --bound-updates make a bound")
		}
	}
	above("gap", f.Gap, true)
	above("smoothness", f.Smoothness, true)
	above("learning-rate", f.LearningRate, false)
	if f.Updates == nil {
		above("updates", nil, true)
	} else {
		check(*f.Updates >= 1, "updates", *f.Updates, "1 or more")
	}
	check(f.Bias >= 0 && !math.IsInf(f.Bias, 0), "bias", f.Bias, "a finite number of 0 or more")
	return errors.Join(errs...)
}

// boundary is the bound of a configuration.
type boundary struct {
	design.Conditions
	Most  float64 `json:"most_learning_rate"`
	Bound float64 `json:"bound"` // on the mean of |gradient|^2 over the updates
}

// of returns the bound of a configuration, nil where nobody asks for it.
func (f boundFlags) of(t design.Theory, p design.Configuration) (*boundary, error) {
	if !f.given() {
		return nil, nil
	}
	b := &boundary{Conditions: design.Conditions{
		Gap: *f.Gap, Smoothness: *f.Smoothness, Bias: f.Bias, Updates: *f.Updates,
		Batch: p.Batch, Capacity: p.Capacity, NewPerUpdate: p.RolloutsPerUpdate,
	}}
	b.Most = b.MostLearningRate()
	b.LearningRate = b.Most
	if f.LearningRate != nil {
		b.LearningRate = *f.LearningRate
	}
	var err error
	b.Bound, err = t.Bound(b.Conditions)
	if refused := (*design.LearningRateError)(nil); errors.As(err, &refused) {
		return nil, fmt.Errorf("--bound-learning-rate: %v: want at most %.6g, where theorem 3.4 holds for the configuration (N %d, R %.4g)",
			refused.LearningRate, refused.Most, p.Capacity, p.RolloutsPerUpdate)
	}
	if err != nil {
		return nil, fmt.Errorf("the bound: %w", err)
	}
	return b, nil
}
