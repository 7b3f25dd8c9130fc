package study

import (
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// measure is a quantity of one run of an arm, NaN if the run does not have it.
//
// A run that failed has lost its policy. From there on its accuracy counts as 0, and a target that it had not reached
// is never reached. What it had reached before counts.
type measure func(Runs, *results.Run) float64

// failed reports whether a run ended with an error.
func failed(r *results.Run) bool { return r.Summary == nil }

// unit is the compute of an update without replay, B(1 + mu). Pages show compute in this unit.
func unit(c run.Config) float64 {
	return float64(float64(c.Pipeline.Batch) * (1 + c.Pipeline.RolloutCost))
}

// bufferUnit is the compute of an update with replay, B(1 + W/T).
func bufferUnit(c run.Config) float64 {
	return float64(float64(c.Pipeline.Batch) * (1 + float64(c.Pipeline.Workers)/float64(c.Pipeline.Trainers)))
}

// Accuracy.

// level is the accuracy that a run reached: the end of its isotonic curve.
func level(a Runs, r *results.Run) float64 { return results.Level(a.evalsOf(r)).Float() }

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

// roughness is the variance of a run's accuracy about a smooth curve, and the most of it that sampling explains.
func roughness(a Runs, r *results.Run) (variance, sampling float64) {
	v, s := results.Roughness(a.evalsOf(r))
	return v.Float(), s.Float()
}

// wavering is the root of that variance, and sampled of what sampling explains at most.
func wavering(a Runs, r *results.Run) float64 { v, _ := roughness(a, r); return math.Sqrt(v) }
func sampled(a Runs, r *results.Run) float64  { _, s := roughness(a, r); return math.Sqrt(s) }

// crashed reports whether a run failed or ended with less than half of its highest accuracy.
func crashed(a Runs, r *results.Run) bool {
	highest := 0.0
	for _, e := range r.Evals {
		highest = max(highest, e.Pass1)
	}
	return failed(r) || last(a, r) < highest/2
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

// overTheRun is meanOver(1) in words, and lastThree settled.
const (
	overTheRun = "mean pass@1 over the run"
	lastThree  = "mean of the last three evaluations"
)

// meanOver returns the mean accuracy over the first share, in (0, 1], of the budget. It tells how fast a run learns
// without a target.
func meanOver(share float64) measure { return meanBetweenShares(0, share) }

// meanBetweenShares returns the mean accuracy over the evaluations after one share of the budget, up to another. The
// one before the first update does not count; one that a run failed before counts as 0, one that was interrupted not at
// all.
func meanBetweenShares(from, to float64) measure {
	return func(a Runs, r *results.Run) float64 {
		if len(r.Evals) == 0 {
			return math.NaN()
		}
		return mean(checkpoints(a, r, from, to))
	}
}

// meanOverSteps is meanOver(1) with the steps at which there is no evaluation, as one update passed several of them: such
// a step counts with the accuracy after that update. Without them, costly updates would leave out low accuracies.
func meanOverSteps(a Runs, r *results.Run) float64 {
	if len(r.Evals) == 0 {
		return math.NaN()
	}
	var list []float64
	for _, step := range grid(a.Config, 1) {
		after := slices.IndexFunc(r.Evals, func(e results.Eval) bool { return e.Grid >= step*(1-1e-9) })
		switch {
		case after >= 0:
			list = append(list, r.Evals[after].Pass1)
		case failed(r):
			list = append(list, 0)
		}
	}
	return mean(list)
}

// checkpoints returns the accuracies that meanBetweenShares averages.
func checkpoints(a Runs, r *results.Run, from, to float64) (list []float64) {
	for _, step := range grid(a.Config, to) {
		if p := accuracyAtStep(step)(a, r); step > from*a.Config.Budget.Compute*unit(a.Config)*(1+1e-9) && !math.IsNaN(p) {
			list = append(list, p)
		}
	}
	return list
}

// grid returns the steps of compute after the start at which an arm is evaluated, over the first share of its budget.
func grid(c run.Config, share float64) []float64 {
	var steps []float64
	for k := 1; float64(k)*c.Evaluate.Every <= c.Budget.Compute*share+1e-9; k++ {
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

// accuracyAtStep is a run's accuracy at a step of compute, 0 after it failed.
func accuracyAtStep(step float64) measure {
	return func(_ Runs, r *results.Run) float64 {
		v := accuracyAt(r, step)
		if math.IsNaN(v) && failed(r) && len(r.Evals) > 0 {
			return 0
		}
		return v
	}
}

// settling is how many evaluations accuracy is averaged over where single ones, of a few hundred problems each, vary by
// some hundredths.
const settling = 3

// settled is the mean accuracy of a run's last three evaluations.
func settled(a Runs, r *results.Run) float64 { return settledAt(math.Inf(1), freshRollouts)(a, r) }

// settledAt is the mean accuracy of the last three evaluations up to a point on a scale. A run that failed before that
// point has lost its policy; a run that was interrupted before it counts as far as it came.
func settledAt(point float64, on scale) measure {
	return func(a Runs, r *results.Run) float64 {
		var seen []float64
		for _, e := range r.Evals {
			if e.Update > 0 && on(a.Config, float64(e.Update)) <= point {
				seen = append(seen, e.Pass1)
			}
		}
		switch n := len(r.Evals); {
		case failed(r) && n > 0 && on(a.Config, float64(r.Evals[n-1].Update)) < point:
			return 0
		case len(seen) == 0:
			return math.NaN()
		}
		return mean(seen[max(len(seen)-settling, 0):])
	}
}

// scale is how far a run of a configuration has come by an update.
type scale func(c run.Config, update float64) float64

func updateCount(_ run.Config, update float64) float64 { return update }

// freshRollouts is how many rollouts a synchronous run has generated by an update.
func freshRollouts(c run.Config, update float64) float64 {
	return math.Ceil(update/float64(updatesPerBatch(c))) * float64(c.Pipeline.Batch)
}

// updatesPerBatch is how many updates follow each batch of fresh rollouts.
func updatesPerBatch(c run.Config) int { return max(c.Pipeline.BatchUpdates, 1) * (1 + c.Replay.Mix) }

// end is how far the furthest of the arm's runs came. It is infinite if all failed, so that the other arm decides what
// is compared.
func (a Runs) end(on scale) float64 {
	far := math.Inf(-1)
	for _, r := range a.Runs {
		if n := len(r.Evals); n > 0 && !failed(r) {
			far = max(far, on(a.Config, float64(r.Evals[n-1].Update)))
		}
	}
	if math.IsInf(far, -1) {
		return math.Inf(1)
	}
	return far
}

// The target.

// toTarget is the compute at which a run reached its arm's target, in updates without replay; infinite if it did not.
func toTarget(a Runs, r *results.Run) float64 {
	return reached(a, r, func(x results.Reach) results.Number { return x.Compute }) / unit(a.Config)
}

// clockToTarget is the virtual time at which a run reached its arm's target.
func clockToTarget(a Runs, r *results.Run) float64 {
	return reached(a, r, func(x results.Reach) results.Number { return x.Clock })
}

// atTheEnd is a run as if it had reached its target at its last evaluation, however high: a measure of the compute or
// the clock to the target is then all that it spent. A run that failed has spent its budget.
func atTheEnd(a Runs, r *results.Run) *results.Run {
	evals := slices.Clone(a.evalsOf(r))
	end := evals[len(evals)-1]
	end.Pass1 = 1
	reached := *r
	reached.Evals = append(evals, end)
	return &reached
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

// toOwnLevel is the compute to 98% of the accuracy that a run reached, in updates without replay.
func toOwnLevel(a Runs, r *results.Run) float64 {
	return results.ComputeToShare(r.Evals, 0.98).Float() / unit(a.Config)
}

// Metrics and the summary.

// metric is a number of a line of metrics.jsonl.
type metric func(*results.Update) results.Number

func freshReward(u *results.Update) results.Number   { return u.Reward }
func zeroVariance(u *results.Update) results.Number  { return u.ZeroVariance }
func absAdvantage(u *results.Update) results.Number  { return u.MeanAbsAdvantage }
func effectiveSize(u *results.Update) results.Number { return u.ESS }
func meanStaleness(u *results.Update) results.Number { return u.StalenessMean }
func promptShare(u *results.Update) results.Number   { return u.PromptShare }

// meanOf is the mean of a metric over a run's updates within the first share, in (0, 1], of the budget.
func meanOf(of metric, share float64) measure {
	return func(a Runs, r *results.Run) float64 {
		return meanBetween(r, of, math.Inf(-1), share*a.Config.Budget.Compute*unit(a.Config)*(1+1e-9))
	}
}

// meanBetween is the mean of a metric over a run's updates after some compute, up to another. A line of a condensed run
// stands for the updates since the line before, and counts if the middle of them lies between.
func meanBetween(r *results.Run, of metric, from, to float64) float64 {
	var sum, n float64
	var before results.Update
	for i := range r.Updates {
		u := &r.Updates[i]
		middle, updates := (before.Compute+u.Compute)/2, float64(u.Update-before.Update)
		if v := of(u); v.Known() && middle > from && middle <= to {
			sum += v.Float() * updates
			n += updates
		}
		before = *u
	}
	return sum / n
}

// inSummary is a quantity of summary.json.
func inSummary(of func(*results.Summary) float64) measure {
	return func(_ Runs, r *results.Run) float64 {
		if r.Summary == nil {
			return math.NaN()
		}
		return of(r.Summary)
	}
}

func replayRatio(s *results.Summary) float64 { return s.ReplayRatio.Float() }

// expectedReplayRatio is mu T/W.
func expectedReplayRatio(c run.Config) float64 {
	return c.Pipeline.RolloutCost * float64(c.Pipeline.Trainers) / float64(c.Pipeline.Workers)
}

// Over seeds.

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

// median is the median of a measure over an arm's runs, NaN if no run has it.
func (a Runs) median(m measure) float64 { return results.Median(a.over(m)) }

// on is a measure on one seed, NaN if there is no such run.
func (a Runs) on(seed uint64, m measure) float64 {
	r := a.Seed(seed)
	if r == nil {
		return math.NaN()
	}
	return m(a, r)
}

// mean is the mean of the values that are numbers, NaN if there are none.
func mean(values []float64) float64 {
	var sum, n float64
	for _, v := range values {
		if !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	return sum / n
}
