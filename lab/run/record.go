package run

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// usage is how the GPUs had used their time at the last recorded update; a line of metrics.jsonl holds the shares since
// then. Checkpoints hold it by its field names.
type usage struct {
	Clock           float64
	Worker, Trainer pipeline.GPUTime // means over GPUs
}

func newUsage(u pipeline.Update) usage {
	m := usage{Clock: u.Time, Trainer: u.Trainer}
	n := float64(len(u.Workers))
	for _, w := range u.Workers {
		m.Worker.Busy += w.Busy / n
		m.Worker.Stalled += w.Stalled / n
		m.Worker.Idle += w.Idle / n
	}
	return m
}

// line returns a line of metrics.jsonl for the pipeline's record of an update, and remembers the update's usage.
func (m *usage) line(u pipeline.Update, tableSize int) results.Update {
	measured := maps.Clone(u.Metrics)
	take := func(name string) results.Number {
		n := results.Named(measured, name)
		delete(measured, name)
		return n
	}
	now := newUsage(u)
	share := func(after, before float64) results.Number {
		return results.Num((after - before) / (now.Clock - m.Clock))
	}
	worker := share
	if len(u.Workers) == 0 { // they are other programs, which the run knows nothing of
		worker = func(float64, float64) results.Number { return results.Num(math.NaN()) }
	}
	l := results.Update{
		Update: int(u.Version), Version: int(u.Version), Clock: u.Time,
		Compute: u.Compute, ComputeBusy: u.ComputeBusy(), ComputeAll: u.ComputeAll(),
		Inserted: u.Inserted, Used: u.Used, ReplayRatio: results.Num(u.ReplayRatio()),
		BatchReward: results.Num(u.BatchReward),
		Loss:        take("loss"), Entropy: take("entropy"), KLK1: take("kl_k1"), KLK3: take("kl_k3"),
		ClipFraction: take("clip_fraction"), MeanRatio: take("mean_ratio"), ESS: take("ess"),
		ESSRollout: take("ess_rollout"),
		ChiSquare:  take("chi_square"), D2: take("d2"), GradNorm: take("grad_norm"),
		ZeroVariance: take("zero_variance"), MeanAbsAdvantage: take("abs_advantage"),
		ResponseLength: take("response_length"),
		StalenessMean:  results.Num(u.StalenessMean), StalenessMax: results.Num(float64(u.StalenessMax)),
		WorkerBusy:     worker(now.Worker.Busy, m.Worker.Busy),
		WorkerStalled:  worker(now.Worker.Stalled, m.Worker.Stalled),
		WorkerIdle:     worker(now.Worker.Idle, m.Worker.Idle),
		TrainerBusy:    share(now.Trainer.Busy, m.Trainer.Busy),
		TrainerStalled: share(now.Trainer.Stalled, m.Trainer.Stalled),
		TrainerIdle:    share(now.Trainer.Idle, m.Trainer.Idle),
		TableSize:      tableSize,
	}
	l.WeightMean, l.WeightMin = take("weight_mean"), take("weight_min")
	l.WeightESS, l.FreshShare = take("weight_ess"), take("fresh_share")
	if u.NewRollouts+u.DroppedGroups > 0 {
		l.Reward = results.Num(u.NewReward)
	}
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		addOther(&l, name, measured[name])
	}
	*m = now
	return l
}

// addOther adds a measurement that not all runs have.
func addOther(l *results.Update, name string, value float64) {
	if l.Other == nil {
		l.Other = make(map[string]results.Number)
	}
	l.Other[name] = results.Num(value)
}

// addTable adds to a line what did not enter the table, and what the table and the prompt buffer hold.
func (s *session) addTable(l *results.Update, u pipeline.Update, seen tableState) {
	if s.config.Pipeline.FilterGroups {
		l.Dropped, l.DroppedGroups = results.Num(float64(u.Dropped)), results.Num(float64(u.DroppedGroups))
		l.GeneratedPerInserted = results.Num(u.GeneratedPerInserted())
	}
	if s.config.Pipeline.OverProvision > 0 {
		addOther(l, "parked_groups", float64(u.Parked))
		addOther(l, "resumed_groups", float64(u.Resumed))
	}
	if s.chooser != nil {
		l.PromptsHeld = results.Num(float64(s.chooser.Stats().Buffer.Held))
		if groups := u.NewGroups + u.DroppedGroups; groups > 0 {
			l.PromptShare = results.Num(float64(u.ReplayedPrompts) / float64(groups))
		}
	}
	if !s.config.Replays() {
		return
	}
	for i, n := range u.SourceCounts {
		addOther(l, "source_"+s.config.Replay.Sources[i].Name, float64(n)/float64(s.config.Pipeline.Batch))
	}
	l.NeverDrawn = results.Num(seen.neverUsed)
	l.AgeDecay = results.Num(seen.ageDecay)
}

// histogram converts a histogram to its form in a summary.
func histogram(h *rollout.Histogram) results.Histogram {
	var out results.Histogram
	for _, b := range h.Bins() {
		out = append(out, [2]uint64{uint64(b.Value), b.Count})
	}
	return out
}

// summarise returns the summary of the run. If ctx has ended it leaves out what takes long to compute.
func (s *session) summarise(ctx context.Context, ended string) (*results.Summary, error) {
	o := s.machine.Options()
	table, err := s.table.summary(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	stats, last := table.stats, s.last
	sum := &results.Summary{
		Format: results.Format, Name: s.config.Name, Task: s.config.taskName(), Seed: s.config.Seed, Ended: ended,
		Updates: int(last.Version), Version: int(last.Version), Parameters: int64(s.start.model.Config().Parameters()),
		Workers: o.Workers, Trainers: o.Trainers, BatchSize: o.Batch, Capacity: s.table.Options().Capacity,
		Clock: last.Time, Compute: last.Compute,
		RolloutCost: o.RolloutCost, ComputeRatio: o.UpdateCompute / o.QueueCompute(),
		NewPerUpdatePlanned: o.NewPerUpdate(), ReplayRatioPlanned: o.ExpectedReplayRatio(),
		Inserted: stats.Inserted, Used: last.Used, NeverUsed: stats.NeverUsed, Evicted: make(map[string]uint64),
		Staleness: histogram(&stats.Staleness), TokenStaleness: histogram(&stats.MeanStaleness),
		Uses: histogram(&stats.UsesAtEviction), UsesPresent: histogram(&stats.UsesPresent),
		SinceLastUse: histogram(&stats.SinceLastUse),
		Build:        results.ThisBuild(),
	}
	switch {
	case !s.config.Replays(): // a queue hands out each rollout once: the faster side stalls
		sum.NewPerUpdatePlanned, sum.ReplayRatioPlanned = float64(o.Batch)/float64(o.BatchUpdates),
			float64(o.BatchUpdates)
	case o.Mode == pipeline.Sync:
		sum.NewPerUpdatePlanned = float64(o.SyncRollouts) / float64(o.SyncUpdates)
		sum.ReplayRatioPlanned = float64(o.Batch) / sum.NewPerUpdatePlanned
	}
	if per := float64(last.Stored) / float64(last.Inserted); last.Inserted > 0 { // steps per rollout; else 1
		if s.config.Replays() {
			sum.ReplayRatioPlanned /= per
		} else {
			sum.NewPerUpdatePlanned /= per
		}
	}
	for cause, n := range stats.Evicted {
		sum.Evicted[string(cause)] = n
	}
	if last.Version > 0 {
		sum.ComputeBusy, sum.ComputeAll = last.ComputeBusy(), last.ComputeAll()
		if len(last.Workers) > 0 {
			sum.RolloutCostMeasured = results.Num(last.RolloutCost())
		}
		if o.ByClock() {
			sum.ComputeRatio = last.Compute / (float64(last.Version) * o.QueueCompute())
		}
		if o.FilterGroups {
			sum.Dropped = results.Num(float64(last.Dropped))
			sum.GeneratedPerInserted = results.Num(last.GeneratedPerInserted())
		}
		sum.NewPerUpdate = results.Num(float64(last.Inserted) / float64(last.Version))
		sum.ReplayRatio = results.Num(last.ReplayRatio())
		for _, w := range last.Workers {
			sum.WorkerTimes = append(sum.WorkerTimes, results.GPU(w))
		}
		for range last.Trainers {
			sum.TrainerTimes = append(sum.TrainerTimes, results.GPU(last.Trainer))
		}
	}
	s.addSampling(sum, table)
	sum.PromptReplay, sum.TooLong = s.promptReplay(), s.tooLong
	s.addAccuracy(ctx, sum)
	return sum, nil
}

// addSampling adds how the table drew and what it holds.
func (s *session) addSampling(sum *results.Summary, table tableSummary) {
	sum.ESSByAge = table.ess
	o := s.table.Options()
	if !s.config.Replays() {
		return
	}
	never := float64(sum.NeverUsed)
	if len(sum.UsesPresent) > 0 && sum.UsesPresent[0][0] == 0 {
		never += float64(sum.UsesPresent[0][1])
	}
	sum.Sampling = &results.Sampling{
		Sampler: string(o.Sampler), Unit: string(o.Unit), Mix: s.config.Replay.Mix,
		FreshShare: s.machine.Options().FreshShare,
		NeverUsed:  results.Num(never / float64(sum.Inserted)), Priority: priorityState(o, table),
	}
}

// priorityState returns the state of sampler prioritized, nil with another.
func priorityState(o replay.Options, table tableSummary) *results.Priority {
	if o.Sampler != replay.Prioritized {
		return nil
	}
	tau := table.ageDecay
	out := &results.Priority{
		Base: cmp.Or(o.Priority, string(o.PriorityBase)), Exponent: o.PriorityExponent, AgeDecay: results.Num(tau),
		Auto:  o.TargetESS > 0,
		Decay: string(o.DecayOrder), HalfLife: results.Num(o.HalfLife(tau)), Draws: string(o.Draws),
		Entry: string(o.Entry),
		Beta:  results.Num(o.BetaAt(table.stats.Version)), Normalised: string(o.ImportanceNorm),
	}
	if o.TargetESS > 0 {
		out.TargetESS = results.Num(o.TargetESS)
	}
	out.ByAge = table.ages
	return out
}

// addAccuracy adds the results of the evaluations.
func (s *session) addAccuracy(ctx context.Context, sum *results.Summary) {
	if len(s.evaluations) == 0 {
		return
	}
	first, last := s.evaluations[0], s.evaluations[len(s.evaluations)-1]
	sum.Mismatch = last.Mismatch
	if _, ok := s.task.(task.Environment); ok {
		sum.RewardFirst, sum.RewardLast = first.Reward, last.Reward
		sum.Expert, sum.Random = bounds(ctx, s.task, s.evaluator.problems)
	}
	if t := s.config.Evaluate.Target; t > 0 {
		sum.Target = results.Num(t)
	}
	sum.AddAccuracy(s.evaluations)
}
