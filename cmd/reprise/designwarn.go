package main

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/design"
)

// caveat stands under every recommendation.
const caveat = "The theory is of plain SGD near the end of long training, and ranks configurations; the laboratory trains with Adam, so that the savings are no forecast."

// warn adds where the theory does not reach, and what makes the recommendation doubtful.
func (found *calculation) warn() {
	add := func(wrong bool, text string, args ...any) {
		if wrong {
			found.warnings = append(found.warnings, fmt.Sprintf(text, args...))
		}
	}
	o, p, f := found.best, found.plan, found.fleet
	law, isLaw := found.theory.Profile.(design.PowerLaw)
	add(found.costFrom != "given" && found.costFrom != "measured" || found.correlationFrom == "supposed" || found.noiseFrom == "supposed",
		"What is marked as supposed was measured by nobody: --from RUN measures it in a run.")
	switch o.Where {
	case design.AtOne:
		if isLaw && law.Exponent >= 0.5 {
			add(true, "Noise exponent %.4g: the theory's optimum exists below 0.5 alone; from there on x = 1 and y = 1/sqrt(m (rho + 1)) are the best that it knows.", law.Exponent)
		} else {
			add(true, "The cost is least at a horizon of less than one version, where the theory does not reach: x = 1 and y = 1/sqrt(m (rho + 1)) are taken instead.")
		}
	case design.AtInfinity:
		add(true, "x* is infinite: the noise does not grow with staleness, which no run of any length bears out; the capacity is what --most-capacity allows.")
		add(math.IsInf(o.Y, 1), "y* is infinite as well: without correlation the theory would use each rollout for ever; the workers are as few as the batch's division allows for that reason alone.")
	case design.AtEnd:
		add(true, "The profile ends after %s and the cost still falls there: give a longer one, or measure a run with a larger buffer.", inVersions(o.X))
	}
	capped := p.AtLimit && p.Capacity+p.Trainers > f.MostCapacity
	add(capped, "The capacity of %d is at its limit, and a larger buffer would cost less still: raise --most-capacity (%d) if memory allows.", p.Capacity, f.MostCapacity)
	add(p.AtLimit && !capped && o.Where != design.AtEnd, "At these GPUs the profile ends, after %s, before the cost rises: give a longer one, or measure a run with a larger buffer.", inVersions(found.theory.Profile.Reach()))
	if measured := lastMeasured(found.noise); isLaw && measured > 0 {
		beyond := max(o.X, p.Horizon)
		add(beyond > measured+1, "The power law rests on measurements up to staleness %.3g; of a horizon of %s it is a guess: measure a run with a larger buffer.", measured, inVersions(beyond))
	}
	late := p.Staleness - p.Horizon - 1 // 2D
	add(late > p.Horizon, "A group takes a worker %.3g updates, so that rollouts are up to twice as many versions old when they come in, which the horizon of %.3g does not count: smaller groups or larger batches make them fresher.", late/2, p.Horizon)
	found.warnOfSavings()
	found.warnOfDivision()
	add(found.refused != nil, "The laboratory refuses this configuration: %v.", found.refused)
	add(true, caveat)
}

// lastMeasured returns the greatest staleness measured, 0 of none.
func lastMeasured(noise []design.Noise) float64 {
	last := 0.0
	for _, n := range noise {
		last = max(last, n.Staleness)
	}
	return last
}

// warnOfSavings says what the savings are held against.
func (found *calculation) warnOfSavings() {
	p := found.plan
	if p.ReplayRatio < 1 {
		found.warnings = append(found.warnings, fmt.Sprintf("At a replay ratio of %.3g more rollouts are generated than are trained on, and some are never used: training that uses each once (replay.sampler=lifo) with fewer workers pays for less.", p.ReplayRatio))
	}
	switch once := found.savedOnce(p.Objective); {
	case p.Savings <= 0:
		found.warnings = append(found.warnings, "Even against on-policy batches drawn with replacement nothing is saved: on-policy training with W/T near mu is the better choice.")
	case once < 0:
		least := ""
		if found.grows() {
			least = "at least "
		}
		found.warnings = append(found.warnings, fmt.Sprintf("The savings of %.1f%% are against on-policy batches drawn with replacement, J(1, 1), as [ER] has them; training that uses each rollout exactly once, as reprise train does without replay, draws nothing twice: beside it the theory has this configuration cost %s%.1f%% more.",
			100*p.Savings, least, -100*once))
	}
}

// warnOfDivision says which batch would allow a better division of the GPUs.
func (found *calculation) warnOfDivision() {
	p, f := found.plan, found.fleet
	y := found.best.Y
	if math.IsInf(y, 1) {
		return
	}
	ideal := int(float64(f.GPUs) * y / (found.cost + y))
	for trainers := max(1, ideal); trainers <= min(ideal+1, f.GPUs-1); trainers++ {
		batch := max(1, int(math.Round(float64(f.Batch)/float64(trainers)))) * trainers
		if f.Batch%trainers == 0 || batch < f.Group {
			continue
		}
		other := f
		other.Batch, other.MostCapacity = batch, max(f.MostCapacity, batch)
		better, err := found.theory.Configure(other)
		if err == nil && better.Trainers == trainers && better.Savings > p.Savings+0.01 {
			found.warnings = append(found.warnings, fmt.Sprintf("A batch of %d cannot be shared by %d trainers: --batch %d would let %d workers and %d trainers save %.1f%% instead of %.1f%%.",
				f.Batch, trainers, batch, better.Workers, better.Trainers, 100*better.Savings, 100*p.Savings))
			return
		}
	}
}
