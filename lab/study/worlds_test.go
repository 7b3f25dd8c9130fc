package study

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// behaviour is what a made-up run does. Accuracy rises from 0.05 towards level, and from three quarters of the budget
// on lies drop lower.
type behaviour struct {
	level, speed, drop float64
	rough              float64 // every other evaluation lies so much higher, the others lower
	passGain           float64 // of pass@k on pass@1, for the largest k
	failsAt            float64 // share of the budget at which it ends with an error; 0: it does not
	staleness, since   uint64  // of every use
	cost, uses         float64 // mu and replay ratio as measured
	stalled, clock     float64 // share of GPU time; time per compute
}

// usual is a run that learns.
func usual() behaviour {
	return behaviour{level: 0.9, speed: 3, staleness: 1, since: 1, cost: 5.28, uses: 1, clock: 1}
}

func (b behaviour) accuracy(share float64) float64 {
	a := 0.05 + (b.level-0.05)*(1-math.Exp(-b.speed*share))
	if share >= 0.75 {
		a -= b.drop
	}
	return max(0, a)
}

// madeUp returns a run with a behaviour.
func madeUp(c run.Config, seed uint64, b behaviour) *results.Run {
	r := &results.Run{Seed: seed}
	eval := func(k int, g float64) {
		e := results.Eval{
			Update: 10 * k, Grid: g, Compute: g, ComputeBusy: g, ComputeAll: g, Clock: g * b.clock, Problems: 400,
			Pass1: b.accuracy(g/(c.Budget.Compute*unit(c))) + b.rough*float64(1-2*(k%2)),
		}
		for _, n := range c.Evaluate.PassAt {
			if c.Evaluate.Samples > 0 {
				e.PassAt = append(e.PassAt,
					results.PassRate{K: n, Rate: e.Pass1 + b.passGain*float64(n-1)/float64(labPassAt-1)})
			}
		}
		r.Evals = append(r.Evals, e)
	}
	eval(0, 0)
	steps := grid(c, 1)
	for k, g := range steps {
		if b.failsAt > 0 && g > b.failsAt*steps[len(steps)-1] {
			return r
		}
		eval(k+1, g)
	}
	end := steps[len(steps)-1]
	gpu := func(n int) []results.GPU {
		return slices.Repeat([]results.GPU{{Busy: 1 - b.stalled, Stalled: b.stalled}}, n)
	}
	r.Updates = []results.Update{{Update: 10 * len(steps), Inserted: 1000, Used: uint64(1000 * b.uses)}}
	r.Timings = []results.Timing{{Generate: 2, Learn: 1}}
	r.Summary = &results.Summary{
		Seed: seed, Ended: "budget", Clock: end * b.clock, Compute: end, RolloutCostMeasured: results.Num(b.cost),
		ReplayRatio: results.Num(b.uses),
		Staleness:   results.Histogram{{b.staleness, 10}}, SinceLastUse: results.Histogram{{b.since, 10}},
		Uses: results.Histogram{{uint64(b.uses), 10}}, NeverUsed: 1,
		WorkerTimes: gpu(c.Pipeline.Workers), TrainerTimes: gpu(c.Pipeline.Trainers),
	}
	return r
}

// world is the behaviour of every arm and seed.
type world func(a Arm, seed uint64) behaviour

// foundIn returns a study's runs in a world.
func foundIn(s Study, o Options, w world) *Found {
	f := &Found{Options: o}
	for _, a := range s.Arms(o) {
		f.Arms = append(f.Arms, runsIn(a, upTo(o.Seeds, 0), w))
	}
	if s.Pilots != nil {
		for _, p := range s.Pilots(o) {
			for _, a := range p.Arms {
				f.pilots = append(f.pilots, runsIn(a, upTo(2, pilotSeed), w))
			}
		}
	}
	return f
}

// runsIn returns the runs of an arm in a world.
func runsIn(a Arm, seeds []uint64, w world) Runs {
	runs := Runs{Arm: a}
	for _, seed := range seeds {
		r := madeUp(a.Config, seed, w(a, seed))
		if r.Summary == nil {
			runs.Failed = append(runs.Failed, "seed: the gradient's norm is NaN")
		}
		runs.Runs = append(runs.Runs, r)
	}
	return runs
}

// judged is the judgement on a world.
func judged(t *testing.T, s Study, o Options, w world) Judgement {
	t.Helper()
	j, err := s.Judge(foundIn(s, o, w))
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	checkPage(t, s.Name, j)
	return j
}

// checkPage fails if a judgement cannot be drawn.
func checkPage(t *testing.T, name string, j Judgement) {
	t.Helper()
	if len(j.Findings) == 0 {
		t.Errorf("%s finds nothing", name)
	}
	for _, x := range j.Findings {
		if x.Source == "" || x.Claim == "" || x.Found == "" || x.Why == "" {
			t.Errorf("%s: a finding is incomplete: %+v", name, x)
		}
		if !slices.Contains([]results.Verdict{results.Holds, results.DoesNotHold, results.Inconclusive, results.Untested},
			x.Verdict) {
			t.Errorf("%s: the verdict is %q", name, x.Verdict)
		}
	}
	for _, s := range j.Sections {
		for _, g := range s.Grids {
			for _, row := range g.Rows {
				if len(row) != len(g.Columns) {
					t.Errorf("%s, %s, %s: a row has %d cells, want %d", name, s.Title, g.Title, len(row),
						len(g.Columns))
				}
			}
		}
		for _, fig := range s.Figures {
			checkFigure(t, name+", "+s.Title, fig)
		}
	}
}

func checkFigure(t *testing.T, where string, f results.Figure) {
	t.Helper()
	if f.Map != nil {
		if len(f.Map.Values) != len(f.Map.Rows) {
			t.Errorf("%s, %s: the map has %d rows of values, want %d", where, f.Title, len(f.Map.Values),
				len(f.Map.Rows))
		}
		for _, row := range f.Map.Values {
			if len(row) != len(f.Map.Columns) {
				t.Errorf("%s, %s: the map has a row of %d values, want %d", where, f.Title, len(row),
					len(f.Map.Columns))
			}
		}
	}
	for _, c := range f.Curves {
		if len(c.At) == 0 || c.Name == "" {
			t.Errorf("%s, %s: a curve %q has %d points", where, f.Title, c.Name, len(c.At))
		}
		for _, p := range c.At {
			if math.IsNaN(p.X) || math.IsInf(p.X, 0) {
				t.Errorf("%s, %s: %s has a point at %v", where, f.Title, c.Name, p.X)
			}
		}
	}
}

// alternating is 1 on odd seeds and −1 on even ones.
func alternating(seed uint64) float64 { return 2*float64(seed%2) - 1 }

func replays(a Arm) bool { return a.Config.Replays() }

// invention makes up synchronous runs, with their updates, from functions of the arm and the part of the budget.
type invention struct {
	accuracy  func(arm string, part float64) float64 // held-out, after a part of the budget
	zero      func(arm string, part float64) float64 // share of groups of zero variance; nil: 0.4
	advantage func(arm string, part float64) float64 // mean |advantage|; nil: 0.5
	// accuracies after the start differ by so much, up on one seed and down on the next
	noise float64
	// part of the budget at which a run ends with an error; 0, or nil: it does not
	fails   func(arm string, seed uint64) float64
	missing func(arm string, seed uint64) bool // wrote nothing; nil: none
}

// invent returns the made-up runs of a study.
func (w invention) invent(s Study, o Options) *Found {
	f := &Found{Options: o}
	arms := s.Arms(o)
	for i, a := range arms {
		// no two arms, and no two pairs of neighbours, differ alike
		level := math.Pow(float64(i+1)/float64(len(arms)), 2)
		runs := Runs{Arm: a}
		for seed := uint64(1); seed <= uint64(o.Seeds); seed++ {
			if w.missing != nil && w.missing(a.Name, seed) {
				runs.Failed = append(runs.Failed, fmt.Sprintf("seed %d: it could not begin", seed))
				continue
			}
			r := w.run(a, seed, level)
			if r.Summary == nil {
				runs.Failed = append(runs.Failed, fmt.Sprintf("seed %d: the gradient's norm is NaN", seed))
			}
			runs.Runs = append(runs.Runs, r)
		}
		f.Arms = append(f.Arms, runs)
	}
	return f
}

// run invents a run with evaluations on the whole grid and an update for each step of compute.
func (w invention) run(a Arm, seed uint64, level float64) *results.Run {
	c := a.Config
	cost := bufferUnit(c)
	if c.Pipeline.Mode == "sync" {
		cost = float64(c.Pipeline.Batch) * (1 + c.Pipeline.RolloutCost/float64(updatesPerBatch(c)))
	}
	end, whole := c.Budget.Compute*unit(c), 1.0
	if w.fails != nil {
		if at := w.fails(a.Name, seed); at > 0 {
			whole = at
		}
	}
	of := func(f func(string, float64) float64, otherwise, part float64) results.Number {
		if f == nil {
			return results.Num(otherwise)
		}
		return results.Num(f(a.Name, part))
	}
	r := &results.Run{Seed: seed}
	for n := 1; float64(n)*cost <= end*whole; n++ {
		part := float64(n) * cost / end
		r.Updates = append(r.Updates, results.Update{
			Update: n, Compute: float64(n) * cost, Clock: float64(n) * cost / 8,
			Inserted:     uint64(freshRollouts(c, float64(n))),
			ZeroVariance: of(w.zero, 0.4, part), MeanAbsAdvantage: of(w.advantage, 0.5, part), ESS: results.Num(1),
			StalenessMean: results.Num(0),
		})
	}
	shift := w.noise * level * []float64{-1, 1, -0.5, 0.5, 0.2}[seed%5]
	for _, step := range append([]float64{0}, grid(c, whole)...) {
		n := int(math.Ceil(step/cost - 1e-9))
		accuracy := w.accuracy(a.Name, step/end)
		if step > 0 {
			accuracy += shift
		}
		r.Evals = append(r.Evals, results.Eval{Update: n, Grid: step, Compute: float64(n) * cost,
			Clock: float64(n) * cost / 8, Problems: 400, Pass1: accuracy})
	}
	if whole == 1 {
		r.Summary = &results.Summary{Seed: seed, Ended: "budget", Updates: len(r.Updates)}
	}
	return r
}

// judged returns a study's findings on made-up runs.
func (w invention) judged(t *testing.T, s Study, o Options) []results.Finding {
	t.Helper()
	j, err := s.Judge(w.invent(s, o))
	if err != nil {
		t.Fatal(err)
	}
	checkPage(t, s.Name, j)
	return j.Findings
}

// expect compares verdicts.
func expect(t *testing.T, findings []results.Finding, want ...results.Verdict) {
	t.Helper()
	if len(findings) != len(want) {
		t.Fatalf("%d findings, want %d", len(findings), len(want))
	}
	for i, f := range findings {
		if f.Verdict != want[i] {
			t.Errorf("%d. %q: %s, want %s\n  found: %s\n  why: %s", i, f.Claim, f.Verdict, want[i], f.Found, f.Why)
		}
	}
}

// alikeVerdicts repeats a verdict.
func alikeVerdicts(n int, v results.Verdict) []results.Verdict {
	list := make([]results.Verdict, n)
	for i := range list {
		list[i] = v
	}
	return list
}
