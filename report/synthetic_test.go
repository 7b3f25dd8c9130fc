package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reprise-rl/reprise/results"
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
		Update: u, Version: u, Clock: m.cost * x / 8, Compute: m.cost * x, ComputeBusy: 1.02 * m.cost * x, ComputeAll: 1.1 * m.cost * x,
		Inserted: uint64(fresh * x), Used: uint64(madeBatch * x), ReplayRatio: results.Num(madeBatch / fresh),
		Reward: noisy(skill-0.05, 0.03), BatchReward: noisy(skill-0.08, 0.02), Loss: noisy(-0.01, 0.01),
		Entropy: noisy(0.9*math.Exp(-x/300)+0.15, 0.02), KLK1: noisy(drift, drift/5), KLK3: results.Num(drift * math.Exp(0.3*rng.NormFloat64())),
		ClipFraction: results.Num(math.Abs(2*drift + 0.004*rng.NormFloat64())), MeanRatio: noisy(1, 0.002),
		ESS: results.Num(1 - 3*drift - 0.01*rng.Float64()), GradNorm: results.Num(0.4 * math.Exp(0.4*rng.NormFloat64())),
		ZeroVariance: results.Num(min(1, math.Abs(skill-0.3+0.05*rng.NormFloat64()))), MeanAbsAdvantage: noisy(0.7, 0.05),
		StalenessMean: noisy(min(x, madeBatch/fresh*8), 0.4), StalenessMax: results.Num(min(x, 31)), ResponseLength: noisy(3.4, 0.1),
		WorkerBusy: results.Num(0.97), WorkerStalled: results.Num(0.03), TrainerBusy: results.Num(0.9), TrainerStalled: results.Num(0.1), TableSize: 1024,
	}
	if m.arm == results.ReplayArm {
		up.Other = map[string]results.Number{"max_ratio": noisy(2, 0.3), "ratio_clamped": results.Num(0)}
	}
	if u == 200 {
		up.GradNorm = results.Num(900) // a lone spike
	}
	if broken {
		up.Entropy, up.KLK3, up.ESS = noisy(2.2, 0.2), results.Num(3*math.Exp(rng.NormFloat64())), results.Num(0.05*rng.Float64())
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
		Update: u, Version: u, Grid: grid, Compute: compute, ComputeBusy: 1.02 * compute, ComputeAll: 1.1 * compute, Clock: compute / 8,
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
		Updates: m.updates, Version: m.updates, Parameters: 101_376, Workers: 6, Trainers: 2, BatchSize: madeBatch, Capacity: 1024,
		Clock: last.Clock, Compute: last.Compute, ComputeBusy: last.ComputeBusy, ComputeAll: last.ComputeAll,
		RolloutCost: 5.28, RolloutCostMeasured: results.Num(5.31), ComputeRatio: 0.637, NewPerUpdate: results.Num(144.2), NewPerUpdatePlanned: 145.5,
		ReplayRatio: last.ReplayRatio, ReplayRatioPlanned: 1.76, Inserted: last.Inserted, Used: last.Used, NeverUsed: last.Inserted / 9,
		Evicted: map[string]uint64{"capacity": last.Inserted}, Pass1Best: results.BestPass1(run.Evals), Target: results.Num(madeTarget),
		ToTarget: results.ReachOf(run.Evals, madeTarget), ToOwnBest: results.ComputeToShare(run.Evals, 0.98), Build: results.Build{Go: "go1.27.1", GoMLX: "v0.28.16", Revision: "0123456789abcdef"},
	}
	if n := len(run.Evals); n > 0 {
		s.Pass1First, s.Pass1Last = results.Num(run.Evals[0].Pass1), results.Num(run.Evals[n-1].Pass1)
	}
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
		s.WorkerTimes = append(s.WorkerTimes, results.GPU{Busy: last.Clock * (0.96 - 0.005*float64(i)), Stalled: last.Clock * (0.04 + 0.005*float64(i))})
	}
	for range s.Trainers {
		s.TrainerTimes = append(s.TrainerTimes, results.GPU{Busy: last.Clock * 0.88, Stalled: last.Clock * 0.08, Idle: last.Clock * 0.04})
	}
	return s
}

func (m made) config() string {
	return fmt.Sprintf("name: arithmetic, addition below 100\nseed: %d\ntask:\n  name: arithmetic\n  operations: [add]\n  below: 100\n"+
		"pipeline:\n  workers: 6\n  trainers: 2\n  batch: %d\nreplay:\n  sampler: distinct\n  capacity: 1024 # rollouts & <groups>\n", m.seed, madeBatch)
}

// madeComparison returns a comparison of that many seeds, with its verdict.
func madeComparison(t *testing.T, seeds, updates int) *results.Comparison {
	t.Helper()
	c := &results.Comparison{}
	p := results.Protocol{Name: "Addition below 100", Task: "arithmetic", Target: madeTarget, Seed: 1}
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		b := made{arm: results.BaselineArm, seed: seed, updates: updates, rate: 0.006, cost: madeBatch * 6.28}.make()
		r := made{arm: results.ReplayArm, seed: seed, updates: updates * 157 / 100, rate: 0.0056, cost: madeBatch * 4}.make()
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
