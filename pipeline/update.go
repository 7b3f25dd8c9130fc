package pipeline

import (
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// Update is the record of one update at its end. "So far" is since the start of the run.
type Update struct {
	Version rollout.Version // of the weights after it; the number of updates taken
	Time    float64         // of the virtual clock

	Inserted uint64  // K_infer, rollouts that entered the buffer so far
	Stored   uint64  // what they became in it: as many, or their steps where it keeps those
	Used     uint64  // K_train, rollouts trained on so far, repeats counted, those on one batch too (Options.BatchUpdates)
	Compute  float64 // so far, by formula: updates times Options.UpdateCompute
	Workers  []Spent // so far, by worker
	Trainer  Spent   // so far, of each trainer: they step together
	Trainers int     // T

	StalenessMean float64 // of the batch's draws, in versions
	StalenessMax  int32
	BatchReward   float64 // mean over the batch's draws
	FreshDraws    int     // of the batch, draws that were asked for as fresh: see Options.Mix and FreshShare; 0 from a batch's second update on

	NewRollouts     int     // inserted since the previous update
	NewReward       float64 // their mean reward; 0 when there are none
	NewGroups       int     // their groups
	ReplayedPrompts int     // of those, groups about a replayed prompt: see Prompts

	Metrics map[string]float64 // what the learner measured
}

// ReplayRatio returns the uses so far of each rollout, or step, that the buffer took.
func (u Update) ReplayRatio() float64 { return float64(u.Used) / float64(u.Stored) }

// RolloutCost returns the estimate of mu, (K_train/T)/(K_infer/W) (METHODS 1). It counts stalled
// GPUs as if they worked.
func (u Update) RolloutCost() float64 {
	return float64(u.Used) / float64(u.Trainers) / (float64(u.Inserted) / float64(len(u.Workers)))
}

// ComputeBusy returns the compute so far by the clock: the busy time of all GPUs.
func (u Update) ComputeBusy() float64 {
	sum := float64(float64(u.Trainers) * u.Trainer.Busy)
	for _, w := range u.Workers {
		sum += w.Busy
	}
	return sum
}

// ComputeAll returns the time so far of all GPUs, (W+T) times the clock.
func (u Update) ComputeAll() float64 { return float64(len(u.Workers)+u.Trainers) * u.Time }

// Wall is real time, as opposed to that of the virtual clock.
type Wall struct {
	Generate time.Duration // in generation and verification, summed over workers
	Learn    time.Duration // in optimizer steps
}

// Wall returns the real time spent in the parts since the machine was made.
func (m *Machine) Wall() Wall {
	if m.pool == nil {
		return Wall{}
	}
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.wall
}

// books counts what an Update reports.
type books struct {
	Inserted uint64
	Stored   uint64
	Used     uint64

	// Inserted since the last update. States are taken when nothing was.
	rollouts  int
	rewardSum float64
	groups    int
	replayed  int // of the groups, those about a replayed prompt
}

func (b *books) insert(g finished, stored int) {
	b.Inserted += uint64(len(g.rollouts))
	b.Stored += uint64(stored)
	b.rollouts += len(g.rollouts)
	b.groups++
	if g.replayed {
		b.replayed++
	}
	for _, r := range g.rollouts {
		b.rewardSum += float64(r.Reward)
	}
}

// compute returns the compute so far by formula.
func (m *Machine) compute() float64 { return float64(m.version) * m.opts.UpdateCompute }

// update writes the record of the update that has just ended.
func (m *Machine) update() Update {
	b, t := &m.books, &m.trainer
	b.Used += uint64(m.opts.Batch)
	u := Update{
		Version: m.version, Time: m.now,
		Inserted: b.Inserted, Stored: b.Stored, Used: b.Used, Compute: m.compute(),
		Workers: make([]Spent, len(m.workers)), Trainer: t.account.At(m.now), Trainers: m.opts.Trainers,
		NewRollouts: b.rollouts, NewGroups: b.groups, ReplayedPrompts: b.replayed, Metrics: t.measured.Metrics,
	}
	for i := range m.workers {
		u.Workers[i] = m.workers[i].account.At(m.now)
	}
	var staleness int64
	for _, batch := range t.batches {
		u.FreshDraws += freshDraws(batch)
		for _, d := range batch.Draws {
			staleness += int64(d.Staleness)
			u.StalenessMax = max(u.StalenessMax, d.Staleness)
			u.BatchReward += float64(d.Rollout.Reward)
		}
	}
	u.StalenessMean = float64(staleness) / float64(m.opts.Batch)
	u.BatchReward /= float64(m.opts.Batch)
	if b.rollouts > 0 {
		u.NewReward = b.rewardSum / float64(b.rollouts)
	}
	*b = books{Inserted: b.Inserted, Stored: b.Stored, Used: b.Used}
	return u
}
