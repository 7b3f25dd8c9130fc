package design

import "math"

// Where says where the least J was found.
type Where string

const (
	// Inside is a horizon at which J falls before and rises after.
	Inside Where = "inside"
	// AtOne is the horizon 1, below which the theory does not reach: noise grows too fast for older rollouts to be worth keeping.
	AtOne Where = "at one"
	// AtEnd is the end of a table: J may fall further beyond it.
	AtEnd Where = "at the end of the profile"
	// AtInfinity is no finite horizon: noise does not grow, and a larger buffer is always better.
	AtInfinity Where = "at infinity"
)

// Optimum is the least J.
type Optimum struct {
	Point             // x* and y*; either may be infinite
	Objective float64 // J(x*, y*)
	Savings   float64 // of [Theory.Savings], in (-Inf, 1)
	Where     Where
	Reached   bool // the theory's own optimum: Where is Inside
}

// Optimum returns the least J over all x in [1, Reach] and y > 0: x* minimises sbar2(x) (sqrt m + sqrt(rho + 1/x))^2 and y* = y*(x*). For power
// laws it is [ER]'s closed form; for tables the exact minimum, see [Table].
func (t Theory) Optimum() Optimum {
	x := t.Profile.horizon(t.TrainCost, t.Correlation)
	o := Optimum{Point: Point{x, t.BestReplay(x)}, Objective: t.Envelope(x), Where: t.where(x)}
	o.Savings = 1 - o.Objective/t.OnPolicy()
	o.Reached = o.Where == Inside
	return o
}

func (t Theory) where(x float64) Where {
	switch {
	case math.IsInf(x, 1):
		return AtInfinity
	case x == t.Profile.Reach():
		return AtEnd
	case x == 1:
		return AtOne
	}
	return Inside
}
