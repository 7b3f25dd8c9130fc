package design

import "math"

// grid returns J over all splits that run and capacities B, 2B, 4B, … to well beyond the best one.
func (t Theory) grid(f Fleet, best int) Grid {
	var g Grid
	for n := f.Batch; n <= min(f.MostCapacity, max(4*best, 16*f.Batch)); n *= 2 {
		g.Capacities = append(g.Capacities, n)
	}
	base := t.OnPolicy()
	for _, trainers := range divisors(f.Batch, f.GPUs-1) {
		s := t.share(f, trainers)
		g.Splits = append(g.Splits, s.split)
		objective, savings := make([]float64, len(g.Capacities)), make([]float64, len(g.Capacities))
		for i, n := range g.Capacities {
			objective[i] = math.NaN()
			if n >= s.low && n <= s.high {
				objective[i] = s.objective(n)
			}
			savings[i] = 1 - objective[i]/base
		}
		g.Objective = append(g.Objective, objective)
		g.Savings = append(g.Savings, savings)
	}
	return g
}
