package pipeline

import (
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// Update is the record of one update at its end. "So far" means since the start of the run.
type Update struct {
	Version rollout.Version // of the weights after it, which is the number of updates so far
	Time    float64         // of the virtual clock

	Inserted uint64    // K_infer, rollouts that entered the buffer so far
	Stored   uint64    // what they became in it so far: more if the buffer stores steps
	Dropped  uint64    // rollouts generated and dropped so far, see Options.FilterGroups
	Used     uint64    // K_train, rollouts trained on so far, every use counted, those by Options.BatchUpdates too
	Compute  float64   // so far: UpdateCompute of each; ComputeBusy where that is not known before, but in a Live
	Workers  []GPUTime // so far, by worker
	Trainer  GPUTime   // so far, of each trainer: they step together
	Trainers int       // T

	StalenessMean float64 // of the batch's draws, in versions
	StalenessMax  int32
	BatchReward   float64 // mean over the batch's draws
	FreshDraws    int     // of the batch, see Options.Mix, FreshShare; 0 in further updates on the same batch

	SourceCounts []int // of the batch's draws, how many each source of the buffer gave; nil if it has none

	NewRollouts     int     // inserted since the previous update
	NewGroups       int     // their groups
	DroppedGroups   int     // groups dropped since the previous update
	NewReward       float64 // mean reward of the rollouts inserted or dropped, 0 if there are none
	ReplayedPrompts int     // groups of replayed prompts, inserted or dropped, see Prompts
	Parked          int     // groups begun and not finished at the end of the update, see Options.OverProvision
	Resumed         int     // parked groups that were resumed since the previous update

	Metrics map[string]float64 // measured by the learner
}

// ReplayRatio returns the uses so far per rollout, or step, that entered the buffer.
func (u Update) ReplayRatio() float64 { return float64(u.Used) / float64(u.Stored) }

// RolloutCost returns the estimate of mu, (K_train/T)/(K_infer/W) (METHODS 1). It counts stalled GPUs as working.
func (u Update) RolloutCost() float64 {
	return float64(u.Used) / float64(u.Trainers) / (float64(u.Inserted+u.Dropped) / float64(len(u.Workers)))
}

// GeneratedPerInserted returns the rollouts generated so far for each that entered the buffer: 1 without FilterGroups.
func (u Update) GeneratedPerInserted() float64 {
	return float64(u.Inserted+u.Dropped) / float64(u.Inserted)
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

// recordUpdate returns the record of the update that has just ended.
func (m *Machine) recordUpdate() Update {
	c, t := &m.counts, &m.trainer
	c.Used += uint64(m.opts.Batch)
	u := m.gpuTimes()
	u.Version, u.Time, u.Compute, u.Metrics = m.version, m.now, m.compute(), t.measured.Metrics
	u.Inserted, u.Stored, u.Dropped, u.Used = c.Inserted, c.Stored, c.Dropped, c.Used
	u.NewRollouts, u.NewGroups, u.DroppedGroups, u.ReplayedPrompts = c.rollouts, c.groups, c.dropped, c.replayed
	u.Parked, u.Resumed = len(m.parked), c.resumed
	u.describe(t.batches)
	if c.rewarded > 0 {
		u.NewReward = c.rewardSum / float64(c.rewarded)
	}
	*c = counts{Inserted: c.Inserted, Stored: c.Stored, Dropped: c.Dropped, Used: c.Used}
	return u
}

// gpuTimes returns an update with nothing but the GPUs' times.
func (m *Machine) gpuTimes() Update {
	u := Update{
		Workers: make([]GPUTime, len(m.workers)), Trainer: m.trainer.account.At(m.now), Trainers: m.opts.Trainers,
	}
	for i := range m.workers {
		u.Workers[i] = m.workers[i].account.At(m.now)
	}
	return u
}

// describe sets what an update says of its batches.
func (u *Update) describe(batches []*rollout.Batch) {
	var staleness int64
	draws := 0
	for _, batch := range batches {
		u.FreshDraws += countFresh(batch)
		draws += len(batch.Draws)
		for i, n := range batch.SourceCounts {
			u.SourceCounts = append(u.SourceCounts, make([]int, max(0, i+1-len(u.SourceCounts)))...)
			u.SourceCounts[i] += n
		}
		for _, d := range batch.Draws {
			staleness += int64(d.Staleness)
			u.StalenessMax = max(u.StalenessMax, d.Staleness)
			u.BatchReward += float64(d.Rollout.Reward)
		}
	}
	u.StalenessMean = float64(staleness) / float64(draws)
	u.BatchReward /= float64(draws)
}

// compute returns the compute so far: by formula, or by the clock where what an update costs depends on the rewards.
func (m *Machine) compute() float64 {
	if m.opts.ByClock() {
		return m.gpuTimes().ComputeBusy()
	}
	return float64(m.version) * m.opts.UpdateCompute
}

// counts is what the next Update reports. The exported fields are totals; the others are since the last update, and are
// 0 at a Snapshot.
type counts struct {
	Inserted uint64
	Stored   uint64
	Dropped  uint64
	Used     uint64

	rollouts, groups int // inserted
	dropped          int // groups
	rewarded         int // rollouts, inserted or dropped
	rewardSum        float64
	replayed         int // groups of replayed prompts, inserted or dropped
	resumed          int // groups
}

func (c *counts) insert(g generated, stored int) {
	c.Inserted += uint64(len(g.rollouts))
	c.Stored += uint64(stored)
	c.rollouts += len(g.rollouts)
	c.groups++
	c.generate(g)
}

func (c *counts) drop(g generated) {
	c.Dropped += uint64(len(g.rollouts))
	c.dropped++
	c.generate(g)
}

func (c *counts) generate(g generated) {
	c.rewarded += len(g.rollouts)
	if g.replayed {
		c.replayed++
	}
	for _, r := range g.rollouts {
		c.rewardSum += float64(r.Reward)
	}
}

// GPUTime is how a GPU has spent its virtual time so far. The three add up to the clock.
type GPUTime struct {
	Busy    float64 // generating, or stepping
	Stalled float64 // a worker whose group finds no room; a trainer that waits for rollouts or weights
	Idle    float64 // in synchronous mode, during the others' turn
}

// Activity is what a GPU is doing.
type Activity uint8

const (
	idle Activity = iota
	busy
	stalled
)

// Account keeps the time of one GPU: Past until Since, and what it has been doing from then on. The zero value is idle
// since time 0.
type Account struct {
	Past  GPUTime
	Since float64
	Doing Activity
}

// At returns how the time was spent until now, which is not before Since.
func (a Account) At(now float64) GPUTime {
	s, d := a.Past, now-a.Since
	switch a.Doing {
	case busy:
		s.Busy += d
	case stalled:
		s.Stalled += d
	default:
		s.Idle += d
	}
	return s
}

// switchTo ends the current activity and begins another.
func (a *Account) switchTo(now float64, to Activity) {
	if a.Doing != to {
		*a = Account{Past: a.At(now), Since: now, Doing: to}
	}
}

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
