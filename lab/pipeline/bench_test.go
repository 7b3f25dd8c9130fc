package pipeline_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/replay"
)

// BenchmarkMachine runs whole schedules without a model, on a replay table and on a queue: what the
// machine, the table and sim's token-wise rollouts (8 tokens each) cost together per rollout
// generated. The largest has the 8,192 GPUs of a big cluster.
func BenchmarkMachine(b *testing.B) {
	for _, c := range []struct{ workers, trainers, batch, updates int }{
		{6, 2, 240, 2000},
		{448, 64, 4096, 200},
		{7168, 1024, 16384, 62},
	} {
		for _, sampler := range []replay.Sampler{replay.Distinct, replay.FIFO} {
			b.Run(fmt.Sprintf("W=%d/T=%d/%s", c.workers, c.trainers, sampler), func(b *testing.B) {
				capacity := 4 * c.batch
				if sampler.Consumes() {
					capacity = 2 * c.batch
				}
				var rollouts, updates float64
				for b.Loop() {
					opts := pipeline.Options{
						Workers: c.workers, Trainers: c.trainers, Batch: c.batch, Group: 16, RolloutCost: 6.84,
						Updates: c.updates,
					}
					p := parts(newTable(b, replay.Options{Capacity: capacity, Sampler: sampler, Shards: c.trainers}))
					p.Generator = &sim.Generator{Lengths: sim.Constant(8)}
					var last pipeline.Update
					m, err := pipeline.New(opts, p, pipeline.Hooks{
						OnUpdate: func(_ *pipeline.Machine, u pipeline.Update) error { last = u; return nil },
					})
					if err != nil {
						b.Fatal(err)
					}
					if err := m.Run(context.Background()); err != nil {
						b.Fatal(err)
					}
					rollouts += float64(last.Inserted)
					updates += float64(last.Version)
				}
				s := b.Elapsed().Seconds()
				b.ReportMetric(s*1e9/rollouts, "ns/rollout")
				b.ReportMetric(s*1e6/updates, "µs/update")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
