package design

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Fleet is the GPUs and the training to find a configuration for.
type Fleet struct {
	GPUs         int // W + T, 2 to 1,000,000
	Batch        int // B, rollouts per update, 1 to 1e9
	Group        int // G, rollouts per prompt, 1 to B
	MostCapacity int // the most rollouts that the buffer may hold, B to 1e12

	FreeBatch bool    // the choice may take smaller batches
	Source    *Source // whose configuration the choice begins with, nil if there is none
}

// Validate reports every value out of its range.
func (f Fleet) Validate() error {
	var problems option.Problems
	check := func(key string, v, low, high int, unit string) {
		problems.Check(v >= low && v <= high, key, v, "%d to %d%s", low, high, unit)
	}
	check("gpus", f.GPUs, 2, 1e6, ", at least one to generate and one to train")
	check("batch", f.Batch, 1, 1e9, " rollouts")
	check("group", f.Group, 1, max(1, f.Batch), " rollouts, the batch")
	check("most_capacity", f.MostCapacity, max(1, f.Batch), 1e12, " rollouts, the batch or more")
	return problems.Err()
}

func (f Fleet) String() string {
	return fmt.Sprintf("%d GPUs, batches of %d, groups of %d, a buffer of at most %d", f.GPUs, f.Batch, f.Group,
		f.MostCapacity)
}

// Configuration is a schedule that runs, with its cost by the theory. GPUs generate and train without a pause in it, as
// in [ER] §2.
type Configuration struct {
	Workers  int `json:"workers"`  // W
	Trainers int `json:"trainers"` // T, divides Batch and Capacity
	Capacity int `json:"capacity"` // N
	Batch    int `json:"batch"`    // B

	RolloutsPerUpdate float64 `json:"rollouts_per_update"`   // R = B (W/T)/mu
	ComputeRatio      float64 `json:"compute_ratio"`         // gamma = (1 + W/T)/(1 + mu)
	ReplayRatio       float64 `json:"expected_replay_ratio"` // y = B/R = mu T/W
	Horizon           float64 `json:"staleness_horizon"`     // x = N/R, versions
	Staleness         float64 `json:"staleness_bound"`       // of a use, about the greatest: N/R + 2D + 1, D = G mu T/B
	Objective         float64 `json:"objective"`             // J(x, y)
	Savings           float64 `json:"expected_savings"`      // 1 - J/J(1, 1)
}

// Plan is the best configuration for a fleet, with its surroundings.
type Plan struct {
	Configuration
	AtLimit    bool // N is the most that the fleet allows or the profile reaches: J falls further beyond
	Neighbours []Neighbour
	Grid       Grid
}

// Neighbour is a configuration one step from another.
type Neighbour struct {
	Change string // in words: "one GPU more trains"
	Configuration
	Refused string // why it cannot run, empty if it can; J follows from the formula either way
}

// Grid is J over all splits of the GPUs that can run and a range of capacities, NaN where N is too small or the profile
// too short.
type Grid struct {
	Splits     []Split // rows, by ascending T
	Capacities []int   // columns, ascending: B, 2B, 4B, … and the best
	Objective  [][]float64
	Savings    [][]float64
}

// Split is a division of the GPUs.
type Split struct {
	Workers  int `json:"workers"`
	Trainers int `json:"trainers"`
}

// Configure returns the configuration with the least J among those that can run: integers W + T = GPUs, T | B, T | N,
// and N at least B, R and G T (a group must fit into a trainer's part of the buffer) and at most the fleet's
// MostCapacity and Reach R.
//
// It tries every T that divides B. The best multiple of T is exact: it lies at an end of the range or next to one of
// the few horizons at which J may turn. On a tie the smaller T and N win.
func (t Theory) Configure(f Fleet) (Plan, error) {
	if err := errors.Join(t.Validate(), f.Validate()); err != nil {
		return Plan{}, err
	}
	var best candidate
	n, least := 0, math.Inf(1)
	for _, trainers := range divisors(f.Batch, f.GPUs-1) {
		c := t.candidate(f, trainers)
		if at, j, ok := c.best(); ok && j < least {
			best, n, least = c, at, j
		}
	}
	if n == 0 {
		return Plan{}, t.noConfiguration(f)
	}
	return Plan{Configuration: best.at(n), AtLimit: best.atLimit(n), Neighbours: t.neighbours(f, best, n),
		Grid: t.grid(f, n)}, nil
}

// noConfiguration explains why no split of a fleet can run: a buffer holds a batch, R and a group for each trainer,
// and no more than the profile reaches.
func (t Theory) noConfiguration(f Fleet) error {
	unbounded := f
	unbounded.MostCapacity = 1e12
	least := math.MaxInt
	for _, trainers := range divisors(f.Batch, f.GPUs-1) {
		if c := t.candidate(unbounded, trainers); c.high >= c.low {
			least = min(least, c.low)
		}
	}
	if least == math.MaxInt {
		return &option.Error{Key: "gpus", Value: f.GPUs, Want: fmt.Sprintf("another number, or a longer profile: no "+
			"buffer that the profile reaches, %v times what is new per update, holds a batch of %d", t.Profile.Reach(),
			f.Batch)}
	}
	return &option.Error{Key: "most_capacity", Value: f.MostCapacity, Want: fmt.Sprintf("%d or more, or another "+
		"number of GPUs: the buffer must hold a batch of %d, what is new per update, and a group of %d for each "+
		"trainer", least, f.Batch, f.Group)}
}

// candidate is a split of the fleet's GPUs and the capacities that it allows.
type candidate struct {
	theory       Theory
	fleet        Fleet
	split        Split
	newPerUpdate float64 // R
	low, high    int     // N, multiples of T; none if high < low
}

func (t Theory) candidate(f Fleet, trainers int) candidate {
	c := candidate{theory: t, fleet: f, split: Split{f.GPUs - trainers, trainers}}
	r := float64(f.Batch) * float64(c.split.Workers) / float64(trainers) * t.TrainCost
	// R is often whole, and the rounding of mu must not lose a horizon of exactly 1.
	if whole := math.Round(r); math.Abs(r-whole) <= 1e-12*r {
		r = whole
	}
	c.newPerUpdate = r
	high := math.Floor(min(float64(f.MostCapacity), t.Profile.Reach()*r*(1+1e-12)))
	c.high = int(high) / trainers * trainers
	low := max(float64(f.Batch), math.Ceil(r), float64(f.Group)*float64(trainers))
	if low > high {
		c.low, c.high = 1, 0
		return c
	}
	c.low = (int(low) + trainers - 1) / trainers * trainers
	return c
}

// point returns x and y at a capacity. X is at most the end of the profile where N rounds to it.
func (c candidate) point(n int) Point {
	x := float64(n) / c.newPerUpdate
	if reach := c.theory.Profile.Reach(); x > reach && x <= reach*(1+1e-9) {
		x = reach
	}
	return Point{x, float64(c.fleet.Batch) / c.newPerUpdate}
}

// objective returns J, NaN outside the range of the theory.
func (c candidate) objective(n int) float64 {
	p := c.point(n)
	if p.X < 1 || p.X > c.theory.Profile.Reach() {
		return math.NaN()
	}
	return c.theory.Objective(p)
}

// best returns the capacity with the least J, the smallest of several, and false if the split allows none.
func (c candidate) best() (n int, j float64, ok bool) {
	if c.high < c.low {
		return 0, 0, false
	}
	n, j = c.low, c.objective(c.low)
	try := func(at int) {
		at = min(max(at, c.low), c.high)
		if value := c.objective(at); value < j || value == j && at < n {
			n, j = at, value
		}
	}
	try(c.high)
	step := c.split.Trainers
	c.theory.Profile.turningPoints(c.theory.Correlation+c.newPerUpdate/float64(c.fleet.Batch), func(x float64) {
		below := int(min(x*c.newPerUpdate, float64(c.high))) / step * step
		try(below)
		try(below + step)
	})
	return n, j, true
}

// atLimit reports whether J falls further, or is unknown, just above the capacity n.
func (c candidate) atLimit(n int) bool {
	if n+c.split.Trainers <= c.high {
		return false
	}
	beyond := c.objective(n + c.split.Trainers)
	return math.IsNaN(beyond) || beyond < c.objective(n)
}

// at returns the configuration with capacity n.
func (c candidate) at(n int) Configuration {
	mu := 1 / c.theory.TrainCost
	w, t, b := float64(c.split.Workers), float64(c.split.Trainers), float64(c.fleet.Batch)
	p := c.point(n)
	generation := float64(c.fleet.Group) * mu * t / b // D, in updates
	j := c.objective(n)
	return Configuration{
		Workers: c.split.Workers, Trainers: c.split.Trainers, Capacity: n, Batch: c.fleet.Batch,
		RolloutsPerUpdate: c.newPerUpdate,
		ComputeRatio:      (1 + w/t) / (1 + mu),
		ReplayRatio:       p.Y,
		Horizon:           p.X,
		Staleness:         p.X + 2*generation + 1,
		Objective:         j,
		Savings:           c.theory.savings(j),
	}
}

// neighbours returns the configurations with one GPU moved, each at its best capacity, and those with half and twice
// the capacity. Where a split with one GPU moved cannot run, the next one that can follows it. Configurations outside
// the limits are left out.
func (t Theory) neighbours(f Fleet, c candidate, n int) []Neighbour {
	all := append(t.otherSplits(f, c.split.Trainers, -1), t.otherSplits(f, c.split.Trainers, 1)...)
	for _, other := range []struct {
		change string
		n      int
	}{{"half the capacity", n / 2}, {"twice the capacity", 2 * n}} {
		if at := other.n / c.split.Trainers * c.split.Trainers; at >= c.low && at <= c.high {
			all = append(all, Neighbour{Change: other.change, Configuration: c.at(at)})
		}
	}
	return all
}

// otherSplits returns the split with step more trainers and, if that cannot run, the next one that can.
func (t Theory) otherSplits(f Fleet, trainers, step int) []Neighbour {
	change := "one GPU more generates"
	if step > 0 {
		change = "one GPU more trains"
	}
	var found []Neighbour
	for next := trainers + step; next >= 1 && next < f.GPUs && next <= f.Batch; next += step {
		runs := f.Batch%next == 0
		first := next == trainers+step
		if !runs && !first {
			continue
		}
		c := t.candidate(f, next)
		if n, _, ok := c.best(); ok {
			x := Neighbour{Change: change, Configuration: c.at(n)}
			if !first {
				x.Change = fmt.Sprintf("the next split that runs, %d + %d", c.split.Workers, c.split.Trainers)
			}
			if !runs {
				x.Refused = fmt.Sprintf("a batch of %d is no multiple of %d trainers", f.Batch, next)
			}
			found = append(found, x)
		}
		if runs {
			break
		}
	}
	return found
}

// grid returns J over all splits that can run and capacities: the best one, and B, 2B, 4B, … to well beyond it.
func (t Theory) grid(f Fleet, best int) Grid {
	var g Grid
	for n := f.Batch; n <= min(f.MostCapacity, max(4*best, 16*f.Batch)); n *= 2 {
		g.Capacities = append(g.Capacities, n)
	}
	if i, found := slices.BinarySearch(g.Capacities, best); !found {
		g.Capacities = slices.Insert(g.Capacities, i, best)
	}
	for _, trainers := range divisors(f.Batch, f.GPUs-1) {
		c := t.candidate(f, trainers)
		g.Splits = append(g.Splits, c.split)
		objective, savings := make([]float64, len(g.Capacities)), make([]float64, len(g.Capacities))
		for i, n := range g.Capacities {
			objective[i] = math.NaN()
			if n >= c.low && n <= c.high {
				objective[i] = c.objective(n)
			}
			savings[i] = t.savings(objective[i])
		}
		g.Objective = append(g.Objective, objective)
		g.Savings = append(g.Savings, savings)
	}
	return g
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
	slices.Reverse(high)
	return append(low, high...)
}
