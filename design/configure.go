package design

import (
	"errors"
	"fmt"
	"math"
)

// Configure returns the runnable configuration with the least J, with what lies around it: integers W + T = GPUs, T | B, T | N, and N at least
// B, R and G T (the laboratory wants a group to fit into a trainer's part of the buffer) and at most the fleet's MostCapacity and Reach R.
//
// All T that divide B are tried, and for each the least over all multiples of T is exact: it lies at an end of the range or next to
// one of the few horizons where J may turn. Of equals the smaller T and N win.
func (t Theory) Configure(f Fleet) (Plan, error) {
	if err := errors.Join(t.Validate(), f.Validate()); err != nil {
		return Plan{}, err
	}
	f = f.WithDefaults()
	best, found := share{}, false
	n, least := 0, math.Inf(1)
	for _, trainers := range divisors(f.Batch, f.GPUs-1) {
		s := t.share(f, trainers)
		if at, j, ok := s.best(); ok && j < least {
			best, found, n, least = s, true, at, j
		}
	}
	if !found {
		return Plan{}, t.unfit(f)
	}
	return Plan{
		Configuration: best.at(n),
		Group:         f.Group,
		Most:          f.MostCapacity,
		AtLimit:       best.presses(n),
		Neighbours:    t.neighbours(f, best, n),
		Grid:          t.grid(f, n),
	}, nil
}

// unfit says why no split of a fleet runs.
func (t Theory) unfit(f Fleet) error {
	reach, remedy := "", "want a larger one, or another number of GPUs"
	if end := t.Profile.Reach(); !math.IsInf(end, 1) {
		reach, remedy = fmt.Sprintf(", and at most %v R, as far as the profile reaches", end), "want a larger one, a longer profile, or another number of GPUs"
	}
	return fmt.Errorf("most_capacity: %d: no split of %d GPUs has a capacity of at least %d rollouts and R within it%s: %s", f.MostCapacity, f.GPUs, f.Batch, reach, remedy)
}

// At returns what the theory says of a configuration that is given, runnable or not: any T below the fleet's GPUs and any N of at
// least 1. Horizons below 1 and beyond the profile have no J.
func (t Theory) At(f Fleet, trainers, capacity int) Configuration {
	return t.share(f.WithDefaults(), trainers).at(capacity)
}

// share is a split of the fleet's GPUs and the capacities that it allows.
type share struct {
	theory       Theory
	fleet        Fleet
	split        Split
	newPerUpdate float64 // R
	low, high    int     // N, multiples of T; none if high < low
}

func (t Theory) share(f Fleet, trainers int) share {
	s := share{theory: t, fleet: f, split: Split{f.GPUs - trainers, trainers}}
	r := float64(f.Batch) * float64(s.split.Workers) / float64(trainers) * t.TrainCost
	// R is often whole, and a horizon of exactly 1 must not fail to be one by the rounding of mu.
	if whole := math.Round(r); math.Abs(r-whole) <= 1e-12*r {
		r = whole
	}
	s.newPerUpdate = r
	high := math.Floor(min(float64(f.MostCapacity), t.Profile.Reach()*r*(1+1e-12)))
	s.high = int(high) / trainers * trainers
	low := max(float64(f.Batch), math.Ceil(r), float64(f.Group)*float64(trainers))
	if low > high {
		s.low, s.high = 1, 0
		return s
	}
	s.low = (int(low) + trainers - 1) / trainers * trainers
	return s
}

// horizon returns N/R, at most the end of the profile where N rounds to it.
func (s share) horizon(n int) float64 {
	x := float64(n) / s.newPerUpdate
	if reach := s.theory.Profile.Reach(); x > reach && x <= reach*(1+1e-9) {
		return reach
	}
	return x
}

func (s share) point(n int) Point {
	return Point{s.horizon(n), float64(s.fleet.Batch) / s.newPerUpdate}
}

// objective returns J, NaN where the theory does not reach.
func (s share) objective(n int) float64 {
	p := s.point(n)
	if p.X < 1 || p.X > s.theory.Profile.Reach() {
		return math.NaN()
	}
	return s.theory.Objective(p)
}

// best returns the capacity with the least J, the smallest of several, and false if the split allows none.
func (s share) best() (n int, j float64, ok bool) {
	if s.high < s.low {
		return 0, 0, false
	}
	n, j = s.low, s.objective(s.low)
	try := func(at int) {
		at = min(max(at, s.low), s.high)
		if value := s.objective(at); value < j || value == j && at < n {
			n, j = at, value
		}
	}
	try(s.high)
	step := s.split.Trainers
	s.theory.Profile.turns(s.theory.Correlation+s.newPerUpdate/float64(s.fleet.Batch), func(x float64) {
		below := int(min(x*s.newPerUpdate, float64(s.high))) / step * step
		try(below)
		try(below + step)
	})
	return n, j, true
}

// presses reports whether J falls further, or is not known, just above the capacity n.
func (s share) presses(n int) bool {
	if n+s.split.Trainers <= s.high {
		return false
	}
	beyond := s.objective(n + s.split.Trainers)
	return beyond != beyond || beyond < s.objective(n)
}

// at returns the configuration with capacity n.
func (s share) at(n int) Configuration {
	mu := 1 / s.theory.TrainCost
	w, t, b := float64(s.split.Workers), float64(s.split.Trainers), float64(s.fleet.Batch)
	p := s.point(n)
	generation := float64(s.fleet.Group) * mu * t / b // D, in updates
	j := s.objective(n)
	return Configuration{
		Workers: s.split.Workers, Trainers: s.split.Trainers, Capacity: n, Batch: s.fleet.Batch,
		RolloutsPerUpdate: s.newPerUpdate,
		ComputeRatio:      (1 + w/t) / (1 + mu),
		ReplayRatio:       p.Y,
		Horizon:           p.X,
		Staleness:         p.X + 2*generation + 1,
		Objective:         j,
		Savings:           1 - j/s.theory.OnPolicy(),
	}
}

// divisors returns the divisors of n that are at most limit, ascending.
func divisors(n, limit int) []int {
	var low, high []int
	for d := 1; d*d <= n && d <= limit; d++ {
		if n%d != 0 {
			continue
		}
		low = append(low, d)
		if other := n / d; other != d && other <= limit {
			high = append(high, other)
		}
	}
	for i := len(high) - 1; i >= 0; i-- {
		low = append(low, high[i])
	}
	return low
}
