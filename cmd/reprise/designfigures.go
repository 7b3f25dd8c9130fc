package main

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/results"
)

// drawnEpsilon is the epsilon under the root of a group's deviation that puts the ends of [OG] figure 1 where they are, at 9.
const drawnEpsilon = 0.01

// highestCost is where curves of figure 5 end, in units of on-policy training.
const highestCost = 2

const zeroVarianceText = "[OG] theorem 1 holds a step away from the behaviour policy against the improvement that it promises, weighted by (1 - sigma)/sigma: much where nearly all or nearly none of a group's rollouts are right. learner.mask_zero_variance takes groups whose rewards are all alike out of the loss; how many those are depends on the group's size."

// spaced returns n numbers from low to high at equal ratios.
func spaced(low, high float64, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = low * math.Pow(high/low, float64(i)/float64(n-1))
	}
	return list
}

// curve draws a function, broken where it has no finite value.
func curve(name string, colour int, xs []float64, f func(x float64) float64) results.Curve {
	c := results.Curve{Name: name, Colour: colour}
	for _, x := range xs {
		c.At = append(c.At, results.Point{X: x, Y: results.Num(f(x))})
	}
	return c
}

// variant is a theory beside the given one.
type variant struct {
	name   string
	theory design.Theory
}

// variants returns the given theory, then others of less and more noise and correlation.
func (found *calculation) variants() []variant {
	t := found.theory
	list := []variant{{found.noiseName(t) + " (as known)", t}}
	add := func(t design.Theory) { list = append(list, variant{found.noiseName(t), t}) }
	if law, ok := t.Profile.(design.PowerLaw); ok {
		for _, a := range []float64{law.Exponent / 2, min(2*law.Exponent, 0.45)} {
			if law.Exponent == 0 {
				a = map[bool]float64{true: 0.05, false: 0.2}[len(list) == 1]
			}
			if a != law.Exponent {
				add(design.Theory{TrainCost: t.TrainCost, Correlation: t.Correlation, Profile: design.PowerLaw{Exponent: a, Scale: law.Scale}})
			}
		}
	}
	for _, rho := range []float64{t.Correlation / 4, min(1, max(0.1, 4*t.Correlation))} {
		if rho != t.Correlation {
			add(design.Theory{TrainCost: t.TrainCost, Correlation: rho, Profile: t.Profile})
		}
	}
	return list
}

// noiseName names a theory by noise and correlation.
func (found *calculation) noiseName(t design.Theory) string {
	if law, ok := t.Profile.(design.PowerLaw); ok {
		return fmt.Sprintf("a %.3g, rho %.3g", law.Exponent, t.Correlation)
	}
	return fmt.Sprintf("profile, rho %.3g", t.Correlation)
}

// figure4 shows x* and y* over the rollout cost ([ER] figure 4).
func (found *calculation) figure4() []results.Figure {
	costs := spaced(max(0.02, found.cost/50), found.cost*50, 141)
	of := func(title, symbol, axis string, pick func(design.Optimum) float64, at float64) results.Figure {
		f := results.Figure{
			Title: title, Note: "[ER] figure 4 for the parameters given: the dearer generation is, the longer rollouts are worth keeping and the more often worth using; noise and correlation speak against it. No line where it is infinite.",
			X:      results.Axis{Title: "rollout cost mu", Log: true},
			Y:      results.Axis{Title: axis, Log: true},
			Guides: []results.Guide{{Name: fmt.Sprintf("mu %.4g", found.cost), X: results.Num(found.cost)}},
		}
		for i, v := range found.variants() {
			f.Curves = append(f.Curves, curve(v.name, i, costs, func(mu float64) float64 {
				t := v.theory
				t.TrainCost = 1 / mu
				return pick(t.Optimum())
			}))
		}
		if !math.IsInf(at, 1) {
			f.Marks = []results.MarkedAt{{Name: fmt.Sprintf("%s %.4g", symbol, at), X: found.cost, Y: at}}
		}
		return f
	}
	o := found.best
	return []results.Figure{
		of("Optimal staleness horizon over the rollout cost", "x*", "x* = N/R, versions", func(o design.Optimum) float64 { return o.X }, o.X),
		of("Optimal replay ratio over the rollout cost", "y*", "y* = B/R, uses of each rollout", func(o design.Optimum) float64 { return o.Y }, o.Y),
	}
}

// figure5 shows the cost over the horizon with the best replay ratio for each ([ER] figure 5).
func (found *calculation) figure5() []results.Figure {
	high := 100.0
	if !math.IsInf(found.best.X, 1) {
		high = max(high, 10*found.best.X)
	}
	f := results.Figure{
		Title: "Cost over the staleness horizon", Note: "[ER] figure 5 for the parameters given, each horizon with its best replay ratio, J(x, y*(x))/J(1, 1): below 1 replay saves. [ER] draws the root of J. Points are the optima; lines end where replay costs twice as much as on-policy training.",
		X:      results.Axis{Title: "staleness horizon x = N/R, versions", Log: true},
		Y:      results.Axis{Title: "J(x, y*(x)) / J(1, 1)", Low: results.Num(0), High: results.Num(highestCost)},
		Guides: []results.Guide{{Name: "on-policy, drawn with replacement", Y: results.Num(1)}},
	}
	if found.grows() {
		f.Guides = append(f.Guides, results.Guide{Name: "on-policy, each used once, at most", Y: results.Num(found.once() / found.theory.OnPolicy())})
	} else {
		f.Guides = append(f.Guides, results.Guide{Name: "on-policy, each used once", Y: results.Num(found.once() / found.theory.OnPolicy())})
	}
	optima := results.Curve{Name: "optimum x*", Points: true}
	for i, v := range found.exponents() {
		f.Curves = append(f.Curves, curve(v.name, i, spaced(1, min(high, v.theory.Profile.Reach()), 121), func(x float64) float64 {
			j := v.theory.Envelope(x) / v.theory.OnPolicy()
			if j > highestCost {
				return math.NaN()
			}
			return j
		}))
		if o := v.theory.Optimum(); !math.IsInf(o.X, 1) && o.X <= high {
			optima.At = append(optima.At, results.Point{X: o.X, Y: results.Num(o.Objective / v.theory.OnPolicy())})
		}
	}
	optima.Colour = len(f.Curves)
	f.Curves = append(f.Curves, optima)
	return []results.Figure{f}
}

// exponents returns the given theory and the power laws that figure 5 of [ER] spans.
func (found *calculation) exponents() []variant {
	t := found.theory
	list := []variant{{found.noiseName(t) + " (as known)", t}}
	given, isLaw := t.Profile.(design.PowerLaw)
	for _, a := range []float64{0, 0.05, 0.1, 0.2, 0.3, 0.5} {
		if isLaw && given.Exponent == a {
			continue
		}
		law := design.Theory{TrainCost: t.TrainCost, Correlation: t.Correlation, Profile: design.PowerLaw{Exponent: a}}
		list = append(list, variant{found.noiseName(law), law})
	}
	return list
}

// figureGRPO shows what hinders prompts that are nearly always or nearly never solved ([OG] figure 1), and how many groups show nothing.
func (found *calculation) figureGRPO() []results.Figure {
	const steps = 200
	inside := make([]float64, 0, steps+1)
	for i := range steps + 1 {
		inside = append(inside, float64(i)/steps)
	}
	g := found.fleet.Group
	weight := func(p float64) float64 {
		return design.NormalisedRewardWeight(design.BernoulliDeviation(p, drawnEpsilon))
	}
	seen := results.Curve{Name: fmt.Sprintf("success rates that a group of %d can show", g), Colour: 1, Points: true}
	for k := 0; k <= g && g <= 64; k++ {
		p := float64(k) / float64(g)
		seen.At = append(seen.At, results.Point{X: p, Y: results.Num(weight(p))})
	}
	bound := results.Figure{
		Title: "What a step is held against", Note: fmt.Sprintf("[OG] figure 1: (1 - sigma)/sigma with sigma = sqrt(p (1 - p) + epsilon). An epsilon of %g puts the ends at 9, where theirs are; smaller ones send them to infinity.", drawnEpsilon),
		X: results.Axis{Title: "success rate p of a prompt"}, Y: results.Axis{Title: "(1 - sigma)/sigma"},
		Curves: []results.Curve{curve("any success rate", 0, inside, weight)},
	}
	if len(seen.At) > 0 {
		bound.Curves = append(bound.Curves, seen)
	}
	silent := results.Figure{
		Title: "Groups that teach nothing", Note: "The share of groups whose rewards are all alike, p^G + (1 - p)^G: they have no advantage, and masking takes them out.",
		X: results.Axis{Title: "success rate p of a prompt"}, Y: results.Axis{Title: "share of groups", Low: results.Num(0), High: results.Num(1)},
	}
	for i, size := range sizes(g) {
		silent.Curves = append(silent.Curves, curve(fmt.Sprintf("groups of %d", size), i, inside, func(p float64) float64 {
			return math.Pow(p, float64(size)) + math.Pow(1-p, float64(size))
		}))
	}
	return []results.Figure{bound, silent}
}

// sizes returns group sizes to compare, the given one first.
func sizes(group int) []int {
	list := []int{group}
	for _, other := range []int{4, 16, 64} {
		if other != group {
			list = append(list, other)
		}
	}
	return list
}
