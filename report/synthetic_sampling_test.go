package report

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/results"
)

// prioritized gives a made run what a prioritized table measures; auto has tau follow the measured
// effective sample size, mix draws fresh rollouts too.
func prioritized(run *results.Run, auto, mix bool) *results.Run {
	rng := rand.New(rand.NewPCG(run.Seed, 5))
	const tau, alpha = 500.0, 0.6
	for i := range run.Updates {
		u := &run.Updates[i]
		x := float64(u.Update)
		beta := 0.4 + 0.6*min(1, x/400)
		u.WeightMin = results.Num(math.Pow(0.3, beta) * (0.9 + 0.1*rng.Float64()))
		u.WeightMean = results.Num(0.75 - 0.2*beta + 0.02*rng.Float64())
		u.WeightESS = results.Num(0.95 - 0.15*beta + 0.02*rng.Float64())
		u.NeverDrawn = results.Num(0.18 + 0.3*math.Exp(-x/50) + 0.01*rng.Float64())
		u.D2 = results.Num(-math.Log(u.ESS.Float()))
		u.ChiSquare = results.Num(1/u.ESS.Float() - 1)
		u.ESSRollout = results.Num(math.Sqrt(u.ESS.Float()))
		u.FreshShare = results.Num(0)
		if mix {
			u.FreshShare = results.Num(0.25)
		}
		u.AgeDecay = results.Num(tau)
		if auto {
			u.AgeDecay = results.Num(math.Round(tau * math.Exp(-float64(u.Update/100)*0.2)))
		}
	}
	if run.Summary == nil {
		return run
	}
	p := &results.Priority{
		Base: "advantage", Exponent: alpha, AgeDecay: results.Num(tau), Auto: auto, Decay: "before_exponent", HalfLife: results.Num(tau / alpha * math.Ln2),
		Draws: "stratified", Entry: "own", Beta: results.Num(1), Normalised: "batch",
	}
	if auto {
		p.TargetESS = results.Num(0.8)
		p.AgeDecay, p.HalfLife = results.Num(18), results.Num(18/alpha*math.Ln2)
	}
	total, ages := 0.0, 60
	for age := range ages {
		base := 0.8 + 0.2*math.Sin(float64(age)/9) + 0.1*rng.Float64()
		count := 120 + rng.IntN(30)
		w := float64(count) * math.Pow(base, alpha) * math.Exp(-float64(age)*alpha/p.AgeDecay.Float())
		p.ByAge = append(p.ByAge, results.AgePriority{Age: age, Count: count, Base: base, Probability: w})
		total += w
	}
	for i := range p.ByAge {
		p.ByAge[i].Probability /= total
	}
	s := run.Summary
	s.Sampling = &results.Sampling{Sampler: "prioritized", Unit: "rollout", NeverUsed: results.Num(0.21), Priority: p}
	if mix {
		s.Sampling.Mix, s.Sampling.FreshShare = 2, 0.25
	}
	for low := 0; low < 64; low = max(low+1, low*3/2) {
		last := max(low, low*3/2-1)
		s.ESSByAge = append(s.ESSByAge, results.AgeESS{Age: low, Last: last, ESS: math.Exp(-float64(low)/90) - 0.02*rng.Float64(), Tokens: 1e5})
	}
	return run
}

// withPrompts gives a made run what prompt replay measures.
func withPrompts(run *results.Run) *results.Run {
	rng := rand.New(rand.NewPCG(run.Seed, 6))
	for i := range run.Updates {
		u := &run.Updates[i]
		x := float64(u.Update)
		u.PromptsHeld = results.Num(math.Round(900*(1-math.Exp(-x/90)) + 20*rng.NormFloat64()*min(1, x/50)))
		u.PromptsHeld = results.Num(max(0, u.PromptsHeld.Float()))
		u.PromptShare = results.Num(0.75 * (1 - math.Exp(-x/20)))
	}
	if run.Summary == nil {
		return run
	}
	p := &results.PromptReplay{Fraction: 0.75, Band: 0.3, Cooldown: 5, MaxReuse: 10, Held: 880, Replayed: 14_000, Fresh: 6_000}
	for times := uint64(1); times <= 10; times++ {
		p.Reuse = append(p.Reuse, [2]uint64{times, 1200 / times})
	}
	for _, correct := range []uint64{4, 5, 6, 7, 8, 9, 10, 11, 12} {
		p.PassRates = append(p.PassRates, [2]uint64{correct * 100 / 16, uint64(80 + rng.IntN(40))})
	}
	run.Summary.PromptReplay = p
	return run
}

// madeArms returns arms of a study: on-policy, uniform, prioritized with and without decay, and so
// on, each of that many seeds.
func madeArms(n, seeds, updates int) []results.NamedRuns {
	names := []string{"on-policy", "uniform", "PER", "PER, age decay 500", "age decay set by ESS", "mix of 2", "prompt replay", "positive 0.2"}
	arms := make([]results.NamedRuns, n)
	for i := range arms {
		arms[i].Name = names[i]
		for seed := uint64(1); seed <= uint64(seeds); seed++ {
			m := made{arm: results.ReplayArm, seed: seed, updates: updates, rate: 0.004 + 0.0007*float64(i), cost: madeBatch * 4, salt: uint64(i)}
			if i == 0 {
				m.arm, m.cost, m.updates = results.BaselineArm, madeBatch*6.28, updates*64/100
			}
			run := m.make()
			run.Dir = fmt.Sprintf("runs/%d-s%d", i, seed)
			switch i {
			case 2, 3:
				prioritized(run, false, false)
			case 4, 5:
				prioritized(run, i == 4, i == 5)
			case 6:
				withPrompts(run)
			}
			if start := run.Evals; len(start) > 0 {
				start[0].Pass1 = 0.36 + 0.01*float64(seed) // a warm start in common
			}
			arms[i].Runs = append(arms[i].Runs, run)
		}
	}
	return arms
}
