package main

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/design"
)

// inVersions writes a horizon.
func inVersions(x float64) string {
	if x == 1 {
		return "1 version"
	}
	return amount(x) + " versions"
}

// amount writes a number that may be infinite.
func amount(x float64) string {
	if math.IsInf(x, 1) {
		return "infinitely many"
	}
	return fmt.Sprintf("%.4g", x)
}

// counted writes how many there are of something.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// percent writes a share.
func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// saves says in words what a share of compute saved means, negative where it is spent on top.
func saves(share float64) string {
	if share < 0 {
		return fmt.Sprintf("costs %.1f%% more", -100*share)
	}
	return fmt.Sprintf("saves %.1f%%", 100*share)
}

// why explains the recommendation, a paragraph for each of its numbers.
func (found *calculation) why() []string {
	return []string{found.whyReplay(), found.whyHorizon(), found.whySavings(), found.whyConfiguration()}
}

// generation returns the share of compute that goes into generating at a replay ratio y: R/(R + m B).
func (found *calculation) generation(y float64) float64 { return 1 / (1 + found.theory.TrainCost*y) }

func (found *calculation) whyReplay() string {
	m, o := found.theory.TrainCost, found.best
	text := fmt.Sprintf("Generating a rollout costs %.4g times as much as training on it, so that on-policy training puts %s of its compute into generation.",
		found.cost, percent(found.generation(1)))
	if math.IsInf(o.Y, 1) {
		return text + " Draws share no noise and old rollouts are as good as new ones here, so that nothing speaks against using each for ever: the replay ratio has no optimum."
	}
	text += fmt.Sprintf(" Used %.3g times each, rollouts take %s of it. ", o.Y, percent(found.generation(o.Y)))
	shared := ""
	if rho := found.theory.Correlation; rho > 0 {
		shared = fmt.Sprintf(", and the noise they share (correlation %.3g) does not average out", rho)
	}
	return text + fmt.Sprintf("Fewer uses would pay too much for generation; more would fill batches with repetitions of too few rollouts%s. At the optimum y* = 1/sqrt(m (rho + 1/x*)), with m = %.4g.", shared, m)
}

func (found *calculation) whyHorizon() string {
	o := found.best
	switch o.Where {
	case design.AtInfinity:
		return "The noise does not grow with staleness, so that a larger buffer is always better: its draws are more different and no worse. Memory is the limit, not the theory."
	case design.AtOne:
		text := "Noise grows so fast with staleness that no rollout is worth keeping beyond the version that it was made for: x* = 1."
		if o.Y > 1 {
			text += " What remains is to use a fresh rollout more than once before it goes."
		}
		return text
	case design.AtEnd:
		return fmt.Sprintf("The cost still falls where the noise profile ends, at %s: the best horizon lies there or beyond.", inVersions(o.X))
	}
	return fmt.Sprintf("A longer buffer makes the draws of a batch more different from one another, but older: up to %s the first is worth more, beyond that the noise of stale rollouts%s.",
		inVersions(o.X), found.growth())
}

// growth says how noise grows, to be put after its name.
func (found *calculation) growth() string {
	if law, ok := found.theory.Profile.(design.PowerLaw); ok {
		return fmt.Sprintf(", whose variance grows as staleness^%.3g, outweighs it", 2*law.Exponent)
	}
	return " outweighs it, as the profile has it"
}

func (found *calculation) whySavings() string {
	o := found.best
	return fmt.Sprintf("The compute to bring the gradient down to a given size goes as J: at the optimum %.4g, on-policy J(1, 1) = %.4g, so that replay %s at best. After much compute C, in rollouts generated, theorem 3.4 bounds the mean squared gradient by 8 sqrt(6 J F0 L/C) = %.4g sqrt(F0 L/C) at its best learning rate, F0 being how far the objective has to fall and L its smoothness.",
		o.Objective, found.theory.OnPolicy(), saves(o.Savings), asymptotic(o.Objective))
}

// asymptotic returns what theorem 3.4 at its best learning rate has before sqrt(F0 L/C): 12 F0/(eta T) + 8 eta L S is least at
// 2 sqrt(96 F0 L S/T) = 8 sqrt(6 F0 L S/T), and S/T is J over the compute C = (R + m B) T. [ER] appendix C.3.1 prints half of it, 4 sqrt 6.
func asymptotic(objective float64) float64 { return 8 * math.Sqrt(6*objective) }

func (found *calculation) whyConfiguration() string {
	p := found.plan
	text := fmt.Sprintf("%s to %s fix the replay ratio at mu T/W = %.3g, and a buffer of %d the horizon at N/R = %s.",
		counted(p.Workers, "worker"), counted(p.Trainers, "trainer"), p.ReplayRatio, p.Capacity, inVersions(p.Horizon))
	splits := 0
	for t := 1; t < found.fleet.GPUs; t++ {
		if found.fleet.Batch%t == 0 {
			splits++
		}
	}
	if ways := found.fleet.GPUs - 1; ways > 1 {
		text += fmt.Sprintf(" Of the %d ways to divide %d GPUs, %d can run: trainers take equal parts of a batch of %d.", ways, found.fleet.GPUs, splits, found.fleet.Batch)
	}
	if lost := found.best.Savings - p.Savings; lost >= 0.0005 && !math.IsInf(found.best.X, 1) {
		text += fmt.Sprintf(" Whole GPUs and whole batches cost %.1f points of the savings that the optimum would bring.", 100*lost)
	}
	return text
}
