package study

import (
	"math"
	"slices"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// measure is a quantity of a run of an arm, NaN where the run does not have it.
type measure func(Runs, *results.Run) float64

// A run that ends with an error has lost its policy: from there on its accuracy counts as 0, and a target that it had not reached
// it never reaches. What it had reached before stays.

// unit is the compute of an update without replay, B(1 + mu), in which compute is shown.
func unit(c run.Config) float64 {
	return float64(float64(c.Pipeline.Batch) * (1 + c.Pipeline.RolloutCost))
}

// bufferUnit is the compute of an update with replay, B(1 + W/T).
func bufferUnit(c run.Config) float64 {
	return float64(float64(c.Pipeline.Batch) * (1 + float64(c.Pipeline.Workers)/float64(c.Pipeline.Trainers)))
}

// failed reports whether a run ended with an error.
func failed(r *results.Run) bool { return r.Summary == nil }

// best is a run's largest accuracy.
func best(_ Runs, r *results.Run) float64 { return results.BestPass1(r.Evals).Float() }

// last is the accuracy of a run's last policy.
func last(_ Runs, r *results.Run) float64 {
	switch n := len(r.Evals); {
	case n == 0:
		return math.NaN()
	case failed(r):
		return 0
	default:
		return r.Evals[n-1].Pass1
	}
}

// fall is the largest loss of accuracy after a run's best until then.
func fall(_ Runs, r *results.Run) float64 {
	if len(r.Evals) == 0 {
		return math.NaN()
	}
	top, fall := 0.0, 0.0
	for _, e := range r.Evals {
		top = max(top, e.Pass1)
		fall = max(fall, top-e.Pass1)
	}
	if failed(r) {
		return max(fall, top)
	}
	return fall
}

// crashed reports whether a run failed or ended with less than half of its best accuracy.
func crashed(a Runs, r *results.Run) bool { return failed(r) || last(a, r) < best(a, r)/2 }

// meanOver returns the mean accuracy over the first part, in (0, 1], of the budget: how fast a run learns, whatever the target.
func meanOver(part float64) measure {
	return func(a Runs, r *results.Run) float64 {
		if len(r.Evals) == 0 {
			return math.NaN()
		}
		var sum, n float64
		for _, g := range grid(a.Config, part) {
			if p := accuracyAt(r, g); !math.IsNaN(p) {
				sum += p
			} else if !failed(r) {
				continue // an interrupted run says nothing of what it did not come to
			}
			n++
		}
		return sum / n
	}
}

// grid returns the steps of compute after the start at which an arm is evaluated, over the first part of its budget.
func grid(c run.Config, part float64) []float64 {
	var steps []float64
	for k := 1; float64(k)*c.Evaluate.Every <= c.Budget.Compute*part+1e-9; k++ {
		steps = append(steps, float64(k)*c.Evaluate.Every*unit(c))
	}
	return steps
}

// accuracyAt returns the accuracy of the evaluation that was due at a step of compute, NaN if there is none.
func accuracyAt(r *results.Run, step float64) float64 {
	i := slices.IndexFunc(r.Evals, func(e results.Eval) bool { return math.Abs(e.Grid-step) < 1e-6*step })
	if i < 0 {
		return math.NaN()
	}
	return r.Evals[i].Pass1
}

// toTarget is the compute at which a run reached its arm's target, in updates without replay; infinite where it did not.
func toTarget(a Runs, r *results.Run) float64 {
	return reached(a, r, func(x results.Reach) results.Number { return x.Compute }) / unit(a.Config)
}

// clockToTarget is the virtual time at which a run reached its arm's target.
func clockToTarget(a Runs, r *results.Run) float64 {
	return reached(a, r, func(x results.Reach) results.Number { return x.Clock })
}

func reached(a Runs, r *results.Run, of func(results.Reach) results.Number) float64 {
	if len(r.Evals) == 0 {
		return math.NaN()
	}
	where := results.ReachOf(r.Evals, a.Config.Evaluate.Target)
	if !where.Reached {
		return math.Inf(1)
	}
	return of(where).Float()
}

// toOwnBest is the compute to 98% of a run's own best accuracy, in updates without replay.
func toOwnBest(a Runs, r *results.Run) float64 {
	return results.ComputeToShare(r.Evals, 0.98).Float() / unit(a.Config)
}

// inSummary is a quantity of summary.json.
func inSummary(of func(*results.Summary) results.Number) measure {
	return func(_ Runs, r *results.Run) float64 {
		if r.Summary == nil {
			return math.NaN()
		}
		return of(r.Summary).Float()
	}
}

// over returns a measure of every run that has it, by ascending seed.
func (a Runs) over(m measure) []float64 {
	var values []float64
	for _, r := range a.Runs {
		if v := m(a, r); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

// median is the median of a measure over an arm's runs, NaN if none has it.
func (a Runs) median(m measure) float64 { return results.Median(a.over(m)) }

// on is a measure on one seed, NaN if there is no such run.
func (a Runs) on(seed uint64, m measure) float64 {
	r := a.Seed(seed)
	if r == nil {
		return math.NaN()
	}
	return m(a, r)
}

// seedsOf returns the seeds that any of the arms has, ascending.
func seedsOf(arms ...Runs) []uint64 {
	var list []uint64
	for _, a := range arms {
		for _, r := range a.Runs {
			list = append(list, r.Seed)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// crashes counts the runs that crashed.
func (a Runs) crashes() int {
	n := 0
	for _, r := range a.Runs {
		if crashed(a, r) {
			n++
		}
	}
	return n
}
