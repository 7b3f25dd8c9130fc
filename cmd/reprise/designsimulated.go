package main

import (
	"slices"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/sim"
)

// simulated is what a schedule without a model came to, as JSON has it. Times are in units of training on one rollout.
type simulated struct {
	Workers     int     `json:"workers"`
	Trainers    int     `json:"trainers"`
	Batch       int     `json:"batch"`
	Group       int     `json:"group"`
	RolloutCost float64 `json:"rollout_cost"`
	Rollouts    int     `json:"rollouts"` // generated for each arm
	Skipped     int     `json:"skipped"`  // of them, before anything was measured
	Seed        uint64  `json:"seed"`

	Lengths        simLengths    `json:"lengths"`
	Batching       string        `json:"batching"`
	Stragglers     simStragglers `json:"stragglers"`
	RewardLatency  simLatency    `json:"reward_latency"`
	WeightTransfer float64       `json:"weight_transfer"`
	WeightSync     string        `json:"weight_sync"`
	InFlight       int           `json:"updates_in_flight"` // 0: no limit

	ComputeRatio        float64  `json:"compute_ratio"`         // gamma
	ExpectedReplayRatio float64  `json:"expected_replay_ratio"` // mu T/W
	GroupUpdates        float64  `json:"group_updates"`         // D, updates while a group is generated
	Delay               float64  `json:"delay"`                 // mean time from the beginning of a group until it may enter
	Pace                float64  `json:"pace"`                  // of the workers, 1 without stragglers
	StalenessBound      float64  `json:"staleness_bound"`       // of the buffer: N/R + 2D + 1, for lengths that are alike
	Arms                []simArm `json:"arms"`
	Words               []string `json:"words"`
	Warnings            []string `json:"warnings"`
	Seconds             float64  `json:"seconds"` // wall time of all arms
}

type simLengths struct {
	Median float64 `json:"median"`
	Sigma  float64 `json:"sigma"`
	Max    int     `json:"max"`
	Mean   float64 `json:"mean"`
}

type simStragglers struct {
	Share  float64 `json:"share"`
	Factor float64 `json:"factor"`
}

type simLatency struct {
	Mean  float64 `json:"mean"`
	Sigma float64 `json:"sigma"`
}

// simArm is what one of queues and buffer showed.
type simArm struct {
	Name     string `json:"name"`
	Sampler  string `json:"sampler"`
	Capacity int    `json:"capacity"`

	Updates         int       `json:"updates"`
	Time            float64   `json:"time"`
	Speed           float64   `json:"speed"`            // updates, as a share of those of trainers who never wait
	TrainersStalled float64   `json:"trainers_stalled"` // share of the time
	WorkersStalled  float64   `json:"workers_stalled"`  // the same, in the mean over workers
	WorkerStalls    simSpread `json:"worker_stalls"`    // share of the time, over workers
	Waits           simSpread `json:"waits"`            // of the trainers before each update, in times of an update, B/T
	NewPerUpdate    float64   `json:"rollouts_per_update"`
	ReplayRatio     float64   `json:"replay_ratio"`
	ComputeBusy     float64   `json:"compute_busy"` // of an update by the clock, in updates without replay, B(1 + mu)
	ComputeAll      float64   `json:"compute_all"`  // the same with all stalls

	Staleness     simCounts `json:"staleness"`      // of draws, in versions
	MeanStaleness simCounts `json:"mean_staleness"` // the same in the mean over tokens
	Uses          simCounts `json:"uses"`           // of the rollouts that left
	NeverUsed     float64   `json:"never_used"`     // share of them
	SinceLastUse  simCounts `json:"since_last_use"` // in updates, of draws that were not the first
}

// simSpread is quantiles of what was measured.
type simSpread struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// simCounts is a histogram and its quantiles.
type simCounts struct {
	Count  uint64  `json:"count"`
	Mean   float64 `json:"mean"`
	Median int64   `json:"median"`
	P90    int64   `json:"p90"`
	P99    int64   `json:"p99"`
	Max    int64   `json:"max"`

	Histogram rollout.Histogram `json:"histogram"` // [[value, count], …]
}

// newSimulated gathers what the arms showed.
func newSimulated(s schedules, records []*sim.Record, seconds float64) *simulated {
	o, w := s.options, s.workload
	x := &simulated{
		Workers: o.Workers, Trainers: o.Trainers, Batch: o.Batch, Group: o.Group, RolloutCost: o.RolloutCost,
		Rollouts: s.rollouts, Skipped: s.skip, Seed: w.Seed,
		Batching: string(w.Batching), Stragglers: simStragglers{w.Stragglers, w.Slowness}, RewardLatency: simLatency{w.Rewards.Mean, w.Rewards.Sigma},
		WeightTransfer: o.WeightTransfer, WeightSync: string(o.WeightSync), InFlight: o.UpdatesInFlight,
		ComputeRatio: o.ComputeRatio(), ExpectedReplayRatio: o.ExpectedReplayRatio(), GroupUpdates: o.GroupUpdates(), Delay: w.Delay(), Pace: w.Pace(),
		StalenessBound: o.StalenessBound(s.capacity), Warnings: []string{}, Seconds: seconds,
	}
	if l, ok := w.Lengths.(sim.Lognormal); ok {
		x.Lengths = simLengths{l.Median, l.Sigma, l.Max, sim.Mean(l)}
	}
	for i, sampler := range simArms() {
		x.Arms = append(x.Arms, newSimArm(armName(sampler), string(sampler), s.room(sampler), o, records[i]))
	}
	x.Words = x.inWords()
	if s.raised != "" {
		x.Warnings = append(x.Warnings, s.raised)
	}
	x.Warnings = append(x.Warnings, x.warn(s)...)
	return x
}

func newSimArm(name, sampler string, capacity int, o pipeline.Options, r *sim.Record) simArm {
	waits := slices.Clone(r.Waits)
	for i := range waits {
		waits[i] /= o.StepTime()
	}
	a := simArm{
		Name: name, Sampler: sampler, Capacity: capacity, Updates: r.Updates, Time: r.Time, Speed: r.Speed(),
		TrainersStalled: r.TrainersStalled(), WorkersStalled: r.WorkersStalled(), WorkerStalls: spreadOf(r.WorkerStalls), Waits: spreadOf(waits),
		NewPerUpdate: r.NewPerUpdate(), ReplayRatio: r.ReplayRatio(), ComputeBusy: r.BusyCompute(), ComputeAll: r.AllCompute(),
		Staleness: countsOf(r.Staleness), MeanStaleness: countsOf(r.MeanStaleness), Uses: countsOf(r.Uses), SinceLastUse: countsOf(r.SinceLastUse),
	}
	if n := r.Uses.Count(); n > 0 {
		a.NeverUsed = float64(r.Uses.Of(0)) / float64(n)
	}
	return a
}

func countsOf(h rollout.Histogram) simCounts {
	return simCounts{h.Count(), h.Mean(), h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Max(), h}
}

// spreadOf returns quantiles: the least value with at least so large a share at or below it.
func spreadOf(values []float64) simSpread {
	sorted := slices.Sorted(slices.Values(values))
	at := func(percent int) float64 { return sorted[max(0, (percent*len(sorted)+99)/100-1)] }
	return simSpread{at(50), at(90), at(99), at(100)}
}
