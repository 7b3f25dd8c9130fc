package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/lab/results"
)

// made describes a synthetic run that looks like a real one.
type made struct {
	arm      string
	seed     uint64
	updates  int
	rate     float64 // of learning, per update
	cost     float64 // compute per update
	collapse int     // update from which the run falls apart; 0: never
	noEvals  bool
	running  bool   // no summary yet
	salt     uint64 // tells runs of one seed apart
}

const (
	madeTarget = 0.65
	madeGrid   = 25_000
	madeBatch  = 256
)

// make returns the run.
func (m made) make() *results.Run {
	rng := rand.New(rand.NewPCG(m.seed, uint64(len(m.arm))+m.salt<<8))
	run := &results.Run{Seed: m.seed, Config: m.config()}
	skill, next := 0.36+0.02*rng.Float64(), 0.0
	fresh := 256.0
	if m.arm == results.ReplayArm {
		fresh = 145
	}
	for u := 0; u <= m.updates; u++ {
		compute := m.cost * float64(u)
		if u > 0 {
			skill += m.rate * (0.82 - skill)
			if m.collapse > 0 && u > m.collapse {
				skill *= 0.985
			}
			run.Updates = append(run.Updates, m.update(u, skill, fresh, rng))
			run.Timings = append(run.Timings, results.Timing{Update: u, Elapsed: 0.2 * float64(u), Learn: 0.1})
		}
		if compute >= next && !m.noEvals {
			run.Evals = append(run.Evals, m.eval(u, next, skill, rng))
			next += madeGrid
		}
	}
	if !m.running {
		run.Summary = m.summary(run, rng)
	}
	return run
}

func (m made) update(u int, skill, fresh float64, rng *rand.Rand) results.Update {
	noisy := func(v, by float64) results.Number { return results.Num(v + by*rng.NormFloat64()) }
	x := float64(u)
	broken := m.collapse > 0 && u > m.collapse
	drift := 0.002
	if m.arm == results.ReplayArm {
		drift = 0.012 + 0.01*math.Exp(-x/80)
	}
	up := results.Update{
		Update: u, Version: u, Clock: m.cost * x / 8, Compute: m.cost * x, ComputeBusy: 1.02 * m.cost * x,
		ComputeAll: 1.1 * m.cost * x,
		Inserted:   uint64(fresh * x), Used: uint64(madeBatch * x), ReplayRatio: results.Num(madeBatch / fresh),
		Reward: noisy(skill-0.05, 0.03), BatchReward: noisy(skill-0.08, 0.02), Loss: noisy(-0.01, 0.01),
		Entropy: noisy(0.9*math.Exp(-x/300)+0.15, 0.02), KLK1: noisy(drift, drift/5),
		KLK3:         results.Num(drift * math.Exp(0.3*rng.NormFloat64())),
		ClipFraction: results.Num(math.Abs(2*drift + 0.004*rng.NormFloat64())), MeanRatio: noisy(1, 0.002),
		ESS:              results.Num(1 - 3*drift - 0.01*rng.Float64()),
		GradNorm:         results.Num(0.4 * math.Exp(0.4*rng.NormFloat64())),
		ZeroVariance:     results.Num(min(1, math.Abs(skill-0.3+0.05*rng.NormFloat64()))),
		MeanAbsAdvantage: noisy(0.7, 0.05),
		StalenessMean:    noisy(min(x, madeBatch/fresh*8), 0.4), StalenessMax: results.Num(min(x, 31)),
		ResponseLength: noisy(3.4, 0.1),
		WorkerBusy:     results.Num(0.97), WorkerStalled: results.Num(0.03), TrainerBusy: results.Num(0.9),
		TrainerStalled: results.Num(0.1), TableSize: 1024,
	}
	if m.arm == results.ReplayArm {
		up.Other = map[string]results.Number{"max_ratio": noisy(2, 0.3), "ratio_clamped": results.Num(0)}
	}
	if u == 200 {
		up.GradNorm = results.Num(900) // a lone spike
	}
	if broken {
		up.Entropy, up.KLK3, up.ESS = noisy(2.2, 0.2), results.Num(3*math.Exp(rng.NormFloat64())),
			results.Num(0.05*rng.Float64())
		if u%40 == 0 {
			up.Loss, up.GradNorm, up.KLK3 = results.Number{}, results.Number{}, results.Number{}
		}
	}
	return up
}

func (m made) eval(u int, grid, skill float64, rng *rand.Rand) results.Eval {
	compute := m.cost * float64(u)
	clip := func(v float64) float64 { return math.Round(max(0, min(1, v))*400) / 400 }
	e := results.Eval{
		Update: u, Version: u, Grid: grid, Compute: compute, ComputeBusy: 1.02 * compute, ComputeAll: 1.1 * compute,
		Clock:    compute / 8,
		Problems: 400, Pass1: clip(skill + 0.012*rng.NormFloat64()), Samples: 16, MeanLength: results.Num(3.4),
	}
	for _, k := range []int{1, 2, 4, 8, 16} {
		e.PassAt = append(e.PassAt, results.PassRate{K: k, Rate: clip(1 - (1-skill+0.03)*math.Pow(float64(k), -0.6))})
	}
	return e
}

func (m made) summary(run *results.Run, rng *rand.Rand) *results.Summary {
	last := run.Updates[len(run.Updates)-1]
	s := &results.Summary{
		Name: "arithmetic, addition below 100", Arm: m.arm, Task: "arithmetic", Seed: m.seed, Ended: "budget",
		Updates: m.updates, Version: m.updates, Parameters: 101_376, Workers: 6, Trainers: 2, BatchSize: madeBatch,
		Capacity: 1024,
		Clock:    last.Clock, Compute: last.Compute, ComputeBusy: last.ComputeBusy, ComputeAll: last.ComputeAll,
		RolloutCost: 5.28, RolloutCostMeasured: results.Num(5.31), ComputeRatio: 0.637,
		NewPerUpdate:        results.Num(144.2),
		NewPerUpdatePlanned: 145.5,
		ReplayRatio:         last.ReplayRatio, ReplayRatioPlanned: 1.76, Inserted: last.Inserted, Used: last.Used,
		NeverUsed: last.Inserted / 9,
		Evicted:   map[string]uint64{"capacity": last.Inserted}, Target: results.Num(madeTarget),
		Build: results.Build{Go: "go1.27.1", GoMLX: "v0.28.16", Revision: "0123456789abcdef"},
	}
	s.AddAccuracy(run.Evals)
	if m.arm == results.BaselineArm {
		s.Uses, s.Capacity, s.Workers, s.Trainers, s.ComputeRatio = results.Histogram{{1, last.Inserted}}, 512, 7, 1, 1
		s.Staleness = results.Histogram{{0, 200}, {1, 5000}, {2, 2100}, {3, 90}}
	} else {
		for v := range uint64(32) {
			s.Staleness = append(s.Staleness, [2]uint64{v, 900 + uint64(rng.IntN(200)) - 20*v})
			s.SinceLastUse = append(s.SinceLastUse, [2]uint64{v, uint64(2000 * math.Exp(-float64(v)/6))})
		}
		poisson := 1000.0
		for v := range uint64(9) {
			s.Uses = append(s.Uses, [2]uint64{v, uint64(poisson)})
			poisson *= 1.76 / float64(v+1)
		}
	}
	for i := range s.Workers {
		s.WorkerTimes = append(s.WorkerTimes, results.GPU{Busy: last.Clock * (0.96 - 0.005*float64(i)),
			Stalled: last.Clock * (0.04 + 0.005*float64(i))})
	}
	for range s.Trainers {
		s.TrainerTimes = append(s.TrainerTimes,
			results.GPU{Busy: last.Clock * 0.88, Stalled: last.Clock * 0.08, Idle: last.Clock * 0.04})
	}
	return s
}

func (m made) config() string {
	return fmt.Sprintf("name: arithmetic, addition below 100\nseed: %d\ntask:\n  name: arithmetic\n  operations: "+
		"[add]\n  below: 100\n"+
		"pipeline:\n  workers: 6\n  trainers: 2\n  batch: %d\nreplay:\n  sampler: distinct\n  capacity: 1024 # "+
		"rollouts & <groups>\n", m.seed, madeBatch)
}

// madeComparison returns a comparison of that many seeds, with its verdict.
func madeComparison(t *testing.T, seeds, updates int) *results.Comparison {
	t.Helper()
	c := &results.Comparison{}
	p := results.Protocol{Name: "Addition below 100", Task: "arithmetic", Target: madeTarget}
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		b := made{arm: results.BaselineArm, seed: seed, updates: updates, rate: 0.006, cost: madeBatch * 6.28}.make()
		r := made{arm: results.ReplayArm, seed: seed, updates: updates * 157 / 100, rate: 0.0056,
			cost: madeBatch * 4}.make()
		c.Baseline, c.Replay = append(c.Baseline, b), append(c.Replay, r)
		p.Baseline = append(p.Baseline, results.SeedEvals{Seed: seed, Evals: b.Evals})
		p.Replay = append(p.Replay, results.SeedEvals{Seed: seed, Evals: r.Evals})
	}
	var err error
	if c.Compare, err = results.NewCompare(p); err != nil {
		t.Fatal(err)
	}
	return c
}

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
		Base: "advantage", Exponent: alpha, AgeDecay: results.Num(tau), Auto: auto, Decay: "before_exponent",
		HalfLife: results.Num(tau / alpha * math.Ln2),
		Draws:    "stratified", Entry: "own", Beta: results.Num(1), Normalised: "batch",
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
		s.ESSByAge = append(s.ESSByAge, results.AgeESS{Age: low, Last: last,
			ESS: math.Exp(-float64(low)/90) - 0.02*rng.Float64(), Tokens: 1e5})
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
	p := &results.PromptReplay{Fraction: 0.75, Band: 0.3, Cooldown: 5, MaxReuse: 10, Held: 880, Replayed: 14_000,
		Fresh: 6_000}
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
	names := []string{"on-policy", "uniform", "PER", "PER, age decay 500", "age decay set by ESS", "mix of 2",
		"prompt replay", "positive 0.2"}
	arms := make([]results.NamedRuns, n)
	for i := range arms {
		arms[i].Name = names[i]
		for seed := uint64(1); seed <= uint64(seeds); seed++ {
			m := made{arm: results.ReplayArm, seed: seed, updates: updates, rate: 0.004 + 0.0007*float64(i),
				cost: madeBatch * 4,
				salt: uint64(i)}
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

// saturating returns a curve that rises to a level, with noise and, where asked for, a spread.
func saturating(name string, colour int, level, rate float64, points int, spread float64,
	rng *rand.Rand) results.Curve {
	c := results.Curve{Name: name, Colour: colour}
	for i := range points {
		x := float64(i) * 8000
		y := level - (level-0.34)*math.Exp(-rate*float64(i)/float64(points)*4) + 0.008*rng.NormFloat64()
		p := results.Point{X: x, Y: results.Num(y)}
		if spread > 0 {
			p.Low, p.High = results.Num(y-spread*(0.6+rng.Float64())), results.Num(y+spread*(0.6+rng.Float64()))
		}
		c.At = append(c.At, p)
	}
	return c
}

// sectionOfCurves has a large figure and two small ones.
func sectionOfCurves(rng *rand.Rand) results.Section {
	large := results.Figure{Title: "Accuracy against compute",
		Note: "Median over 4 seeds; the band lies between the quartiles.",
		X:    results.Axis{Title: "compute: rollouts through one trainer"},
		Y:    results.Axis{Title: "held-out pass@1, greedy"}}
	for i, name := range []string{"no replay", "N = 512, W/T = (6,2)", "N = 2048, W/T = (6,2)"} {
		large.Curves = append(large.Curves, saturating(name, i, 0.72+0.04*float64(i), 1+0.4*float64(i), 26, 0.02, rng))
		for range 4 {
			seed := saturating(name, i, 0.70+0.04*float64(i)+0.02*rng.NormFloat64(), 1+0.4*float64(i), 26, 0, rng)
			seed.Thin = true
			large.Curves = append(large.Curves, seed)
		}
	}
	large.Curves[0].At[12].Y, large.Curves[0].At[12].Low = results.Number{}, results.Number{}
	large.Guides = []results.Guide{{Name: "target 0.65", Y: results.Num(0.65)},
		{Name: "on-policy’s budget", X: results.Num(120_000)}}
	large.Marks = []results.MarkedAt{{Name: "first reached", X: 80_000, Y: 0.65}}
	theory := results.Figure{Title: "Objective against staleness horizon", Note: "J relative to its least value.",
		X: results.Axis{Title: "x = N/R", Log: true},
		Y: results.Axis{Title: "J/J*", Low: results.Num(1), High: results.Num(2)}}
	for i, mu := range []float64{1, 2.5, 5.28, 10} {
		c := results.Curve{Name: fmt.Sprintf("μ = %g", mu), Colour: i, Dashed: true}
		for x := 1.0; x <= 200; x *= 1.1 {
			c.At = append(c.At, results.Point{X: x, Y: results.Num(1 + 0.4*math.Pow(math.Log(x/(3*mu)), 2)/mu)})
		}
		theory.Curves = append(theory.Curves, c)
	}
	measured := results.Curve{Name: "measured", Colour: 7, Points: true}
	for _, x := range []float64{2, 4, 8, 16, 32, 64} {
		y := 1 + 0.1*math.Pow(math.Log(x/15), 2)
		measured.At = append(measured.At, results.Point{X: x, Y: results.Num(y), Low: results.Num(y - 0.06),
			High: results.Num(y + 0.08)})
	}
	theory.Curves = append(theory.Curves, measured)
	theory.Marks = []results.MarkedAt{{Name: "recommended", X: 14, Y: 1.02}}
	variance := results.Figure{Title: "Noise against staleness",
		X: results.Axis{Title: "staleness, versions", Log: true},
		Y: results.Axis{Title: "σ² of a rollout's gradient", Log: true}}
	fit, data := results.Curve{Name: "fitted power law", Colour: 1, Dashed: true},
		results.Curve{Name: "run", Colour: 1, Points: true}
	for s := 1.0; s <= 64; s *= 2 {
		y := 3e-4 * math.Pow(s, 0.4)
		fit.At = append(fit.At, results.Point{X: s, Y: results.Num(y)})
		data.At = append(data.At, results.Point{X: s, Y: results.Num(y * math.Exp(0.15*rng.NormFloat64()))})
	}
	variance.Curves = []results.Curve{fit, data}
	return results.Section{Title: "Accuracy",
		Text:    []string{"What each arm came to on the held-out problems, at equal compute."},
		Figures: []results.Figure{large, theory, variance}}
}

// sectionOfMaps has a small map beside a plot, and a broad one below.
func sectionOfMaps() results.Section {
	small := results.HeatMap{Columns: []string{"256", "512", "1024", "2048", "4096"},
		Rows: []string{"(6,2)", "(5,3)", "(4,4)"}, Digits: 3, Unit: "best accuracy"}
	for i := range small.Rows {
		var row []results.Number
		for j := range small.Columns {
			row = append(row, results.Num(0.82-0.03*math.Pow(float64(j)-2.4+float64(i)/2, 2)-0.04*float64(i)))
		}
		small.Values = append(small.Values, row)
	}
	small.Values[2][4] = results.Number{}
	broad := results.HeatMap{Digits: 2, Unit: "compute over on-policy", Less: true}
	for j := range 14 {
		broad.Columns = append(broad.Columns, fmt.Sprint(256<<(j/2)+64*(j%2)))
	}
	for i := range 7 {
		broad.Rows = append(broad.Rows, fmt.Sprintf("(%d,%d)", 7-i, 1+i))
		var row []results.Number
		for j := range broad.Columns {
			row = append(row, results.Num(0.6+0.01*math.Pow(float64(j-5), 2)+0.05*math.Pow(float64(i-2), 2)))
		}
		broad.Values = append(broad.Values, row)
	}
	fine := results.HeatMap{Digits: 2, Unit: "savings"}
	for j := range 60 {
		fine.Columns = append(fine.Columns, fmt.Sprint(j+1))
	}
	for i := range 24 {
		fine.Rows = append(fine.Rows, fmt.Sprintf("%.1f", 0.5+0.25*float64(i)))
		var row []results.Number
		for j := range fine.Columns {
			row = append(row, results.Num(math.Sin(float64(j)/12)*math.Cos(float64(i)/9)))
		}
		fine.Values = append(fine.Values, row)
	}
	x, y := results.Axis{Title: "buffer capacity N, rollouts"}, results.Axis{Title: "inference and training GPUs (W,T)"}
	return results.Section{Title: "Buffer and split", Figures: []results.Figure{
		{Title: "Best accuracy by buffer and split", X: x, Y: y, Map: &small, Note: "Median over 4 seeds.",
			Marks: []results.MarkedAt{{Name: "best of all", X: 2, Y: 0},
				{Name: "recommended by the theory", X: 2, Y: 0},
				{Name: "default", X: 1, Y: 1}}},
		{Title: "Nothing came of this", X: x, Y: y,
			Curves: []results.Curve{{Name: "diverged", At: []results.Point{{X: 1}}}}},
		{Title: "What if: compute by split and capacity", X: x, Y: y, Map: &broad,
			Marks: []results.MarkedAt{{Name: "recommended", X: 5, Y: 2}}},
		{Title: "Savings over the whole plane", X: results.Axis{Title: "x"}, Y: results.Axis{Title: "y"}, Map: &fine,
			Marks: []results.MarkedAt{{Name: "optimum", X: 20, Y: 4}}},
	}}
}

// sectionOfArms has as many curves as colours and shapes can tell apart, and a threesome of small figures.
func sectionOfArms(arms int, rng *rand.Rand) results.Section {
	pareto := results.Figure{Title: "Optimality curves", X: results.Axis{Title: "compute", Log: true},
		Y: results.Axis{Title: "best median accuracy so far"}}
	for i := range arms {
		c := saturating(fmt.Sprintf("rate %de-4, N = %d", 2+2*(i%5), 256<<(i/5)), i, 0.6+0.2*rng.Float64(), 1, 26, 0,
			rng)
		c.At = c.At[1:]
		pareto.Curves = append(pareto.Curves, c)
		for range 3 {
			seed := saturating("", i, 0.6+0.2*rng.Float64(), 1, 26, 0, rng)
			seed.At, seed.Thin = seed.At[1:], true
			pareto.Curves = append(pareto.Curves, seed)
		}
	}
	section := results.Section{Title: "Every configuration", Figures: []results.Figure{pareto}}
	return section
}

// sectionOfThree has three figures of a size, and tables.
func sectionOfThree(rng *rand.Rand) results.Section {
	section := results.Section{Title: "Dynamics", Text: []string{"Distributions over all uses of a run, by arm."}}
	for _, title := range []string{"Staleness at use", "Uses at eviction", "Time since last use"} {
		f := results.Figure{Title: title, X: results.Axis{Title: "versions"}, Y: results.Axis{Title: "% of uses"}}
		for i, name := range []string{"queue", "buffer"} {
			c := results.Curve{Name: name, Colour: i}
			for x := range 30 {
				c.At = append(c.At, results.Point{X: float64(x),
					Y: results.Num(10 * math.Exp(-float64(x)/(3+9*float64(i))) * (1 + 0.1*rng.NormFloat64()))})
			}
			f.Curves = append(f.Curves, c)
		}
		section.Figures = append(section.Figures, f)
	}
	section.Grids = []results.Grid{
		{Title: "Arm by arm", Note: "Medians over seeds with their quartiles.",
			Columns: []string{"Arm", "Best accuracy", "Compute to 98%", "Savings", "Why"}, Rows: [][]string{
				{"no replay", "0.712 (0.701–0.723)", "161,280", "–",
					"The queue gives each rollout once, so that nothing is saved by definition."},
				{"N = 512 & <more>", "0.755 (0.741–0.760)", "98,304", "39% (31–44%)",
					"Reuse pays for the noise that it brings."},
				{"N = 2048", "0.761 (0.752–0.771)", "not reached", "−4% (−12–3%)",
					"Old rollouts cost more than they bring."},
			}},
		{Title: "Without rows", Columns: []string{"Seed", "Compute"}},
	}
	return section
}

// madeStudy returns a study with everything in it.
func madeStudy(arms int) *results.Study {
	rng := rand.New(rand.NewPCG(11, 6))
	s := &results.Study{
		Format: results.Format, Name: "buffer-size", Seeds: 4,
		Machine: results.Machine{System: "linux/amd64", CPU: "An Eight-Core Processor", Cores: 2},
		Build:   results.Build{Go: "go1.27.1", GoMLX: "v0.28.16", Revision: "0123456789abcdef"}, AtOnce: 2,
		Seconds: 2712,
		Began:   time.Date(2026, 11, 20, 9, 15, 0, 0, time.UTC), Ended: time.Date(2026, 11, 20, 9, 39, 0, 0, time.UTC),
	}
	for i := range arms {
		a := results.StudyArm{Name: fmt.Sprintf("N = %d", 256<<i)}
		for seed := range 4 {
			a.Folders = append(a.Folders, fmt.Sprintf("../runs/%016x", 0xabc0*i+seed))
		}
		if i > 0 {
			a.Differs = []string{fmt.Sprintf("replay.capacity: %d", 256<<i), "replay.sampler: distinct",
				"pipeline.workers: 6"}
		}
		s.Arms = append(s.Arms, a)
	}
	s.Arms[1].Failed = []string{"seed 3: the loss is not finite at update 121"}
	s.Sheet = results.Sheet{
		Kind: "Study", Title: "How large a buffer?", Lead: []string{
			"[ER] asks how accuracy depends on the capacity of the buffer and on how GPUs are split between " +
				"generating and training.",
			"Each arm trains the same model on the same task from the same warm start; capacity and split alone " +
				"differ.",
		},
		Findings: []results.Finding{
			{Source: "[ER] fig. 3, left",
				Claim:   "A small buffer reaches the accuracy of on-policy training with less compute.",
				Found:   "The median ratio of compute to 0.65 is 0.61 (IQR 0.56–0.66) at N = 512, over 4 seeds.",
				Verdict: results.Holds, Why: "holds if the 95% bootstrap interval of the median ratio lies below 1."},
			{Source: "[ER] fig. 3, right", Claim: "pass@k for large k gains most, because replay keeps rare solutions.",
				Found: "pass@16 is 0.912 with replay and 0.915 without: a difference of −0.003 (95% interval −0.011 " +
					"to 0.004).",
				Verdict: results.DoesNotHold, Why: "holds if the interval of the difference lies above 0; does not " +
					"hold if it lies below 0.005."},
			{Source: "[ER] fig. 13", Claim: "Very large buffers collapse late.",
				Found: "One of four seeds collapsed at N = 4096; none did elsewhere.", Verdict: results.Inconclusive,
				Why: "inconclusive below two collapses in one arm; holds if the largest buffer has more than all " +
					"others together."},
		},
		Sections: []results.Section{sectionOfCurves(rng), sectionOfMaps(), sectionOfThree(rng), sectionOfArms(12, rng)},
		Facts: []results.Fact{{Name: "Machine", Text: "An Eight-Core Processor, linux/amd64, 2 cores"},
			{Name: "Command", Text: "reprise study buffer-size --seeds 4"},
			{Name: "Commit of the runs", Text: "0123456789ab"}},
	}
	return s
}
