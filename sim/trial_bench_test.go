package sim_test

import (
	"context"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/sim"
	"github.com/reprise-rl/reprise/task"
)

// BenchmarkTrial runs a million rollouts through 7,168 workers and 1,024 trainers, with lengths of a heavy tail, stragglers, late
// rewards, weights that travel and a limit to the updates in flight: what `reprise design --sim` does for each of its buffers. The
// design asks for less than 30 s on two cores.
func BenchmarkTrial(b *testing.B) {
	const trainers, batch = 1024, 16384
	for _, c := range []struct {
		name     string
		sampler  replay.Sampler
		capacity int
		sync     pipeline.WeightSync
	}{
		{"buffer", replay.Distinct, 4 * batch, pipeline.ByGroup},
		{"lifo", replay.LIFO, 2 * batch, pipeline.ByGroup},
		{"fifo", replay.FIFO, 2 * batch, pipeline.ByGroup},
		{"buffer/by-token", replay.Distinct, 4 * batch, pipeline.ByToken},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				table, err := replay.New(replay.Options{Sampler: c.sampler, Capacity: c.capacity, Shards: trainers})
				if err != nil {
					b.Fatal(err)
				}
				r, err := sim.Trial{
					Options: pipeline.Options{
						Workers: 7168, Trainers: trainers, Batch: batch, Group: 16, RolloutCost: 6.84,
						WeightTransfer: 8, UpdatesInFlight: 2, WeightSync: c.sync,
					},
					Workload: sim.Workload{
						Seed: 1, Lengths: sim.Lognormal{Median: 1000, Sigma: 1, Max: 16384}, Stragglers: 0.02, Slowness: 3,
						Rewards: task.Latency{Distribution: task.Exponential, Mean: 20},
					},
					Buffer: table, Rollouts: 1_000_000, Skip: 250_000,
				}.Run(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(100*r.TrainersStalled(), "%stalled")
				b.ReportMetric(float64(r.End.Inserted), "rollouts")
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/trial")
			b.ReportMetric(0, "ns/op")
		})
	}
}
