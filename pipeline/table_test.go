package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/sim"
)

func newTable(t testing.TB, o replay.Options) *replay.Table {
	t.Helper()
	table, err := replay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestScheduleOfEightGPUsKeepsToTheMethods(t *testing.T) {
	// B = 240, G = 16, mu = 6.84 (Qwen3-0.6B in [ER]), FIFO of N = 1008, 1,000 updates. The replay ratio
	// is uses/insertions over the whole run, the filling of the buffer included; the greatest staleness
	// is that of any use in the run.
	const capacity, mu = 1008, 6.84
	for _, gpus := range [][2]int{{6, 2}, {5, 3}, {4, 4}} {
		for _, sampler := range []replay.Sampler{replay.Uniform, replay.Distinct} {
			opts := pipeline.Options{
				Workers: gpus[0], Trainers: gpus[1], Batch: 240, Group: 16, RolloutCost: mu, Updates: 1000,
			}
			table := newTable(t, replay.Options{Capacity: capacity, Sampler: sampler, Shards: opts.Trainers, Seed: 1})
			r := run(t, opts, parts(table))
			w, tr := float64(opts.Workers), float64(opts.Trainers)
			last := r.last()

			expected := mu * tr / w
			if ratio := last.ReplayRatio(); math.Abs(ratio/expected-1) > 0.05 {
				t.Errorf("%v %s: replay ratio is %.3f, want %.3f within 5%%", gpus, sampler, ratio, expected)
			}
			greatest := 0.0
			for _, u := range r.updates {
				greatest = max(greatest, float64(u.StalenessMax))
			}
			perUpdate, generation := 240*w/tr/mu, 16*mu*tr/240 // R, D
			horizon := capacity / perUpdate
			if greatest < horizon || greatest > horizon+2*generation+1 {
				t.Errorf("%v %s: greatest staleness is %g, want %.2f to %.2f", gpus, sampler, greatest, horizon, horizon+2*generation+1)
			}
			if g := last.Compute / (1000 * 240 * (1 + mu)); math.Abs(g-(1+w/tr)/(1+mu)) > 1e-12 {
				t.Errorf("%v %s: gamma is %.4f, want %.4f", gpus, sampler, g, (1+w/tr)/(1+mu))
			}
			if est := last.RolloutCost(); math.Abs(est/mu-1) > 0.05 {
				t.Errorf("%v %s: mu is estimated at %.3f, want %.2f within 5%%", gpus, sampler, est, mu)
			}
			stats := table.Stats()
			if stats.Inserted != last.Inserted || stats.Acknowledged != last.Used || float64(stats.Staleness.Max()) != greatest {
				t.Errorf("%v %s: the table counts %d inserted, %d uses, staleness %d; the pipeline %d, %d, %g", gpus, sampler,
					stats.Inserted, stats.Acknowledged, stats.Staleness.Max(), last.Inserted, last.Used, greatest)
			}
			t.Logf("%v %-8s replay ratio %.3f (expected %.3f), greatest staleness %g (%.2f to %.2f), gamma %.3f, mu estimate %.3f, trainers stalled %.2f%%",
				gpus, sampler, last.ReplayRatio(), expected, greatest, horizon, horizon+2*generation+1,
				(1+w/tr)/(1+mu), last.RolloutCost(), 100*last.Trainer.Stalled/last.Time)
		}
	}
}

func TestAQueueTableMakesWhoeverIsFasterStall(t *testing.T) {
	// Without replay, mu = 6.84: with W/T = 6 workers fall short of what trainers take (W/T < mu), with 8
	// they exceed it. The queue holds 2B.
	for _, c := range []struct{ workers, trainers int }{{6, 1}, {8, 1}} {
		for _, sampler := range []replay.Sampler{replay.FIFO, replay.LIFO} {
			opts := pipeline.Options{Workers: c.workers, Trainers: c.trainers, Batch: 240, Group: 16, RolloutCost: 6.84, Updates: 400}
			r := run(t, opts, parts(newTable(t, replay.Options{Capacity: 480, Sampler: sampler, Shards: c.trainers})))
			last := r.last()
			var busy, stalled float64
			for _, w := range last.Workers {
				busy += w.Busy / last.Time / float64(c.workers)
				stalled += w.Stalled / last.Time / float64(c.workers)
			}
			trainer := last.Trainer.Busy / last.Time
			// The slower side is always busy, the faster its share: trainers (W/T)/mu, workers mu T/W.
			ratio := float64(c.workers) / float64(c.trainers) / 6.84
			wantTrainer, wantWorker := min(1, ratio), min(1, 1/ratio)
			if math.Abs(trainer-wantTrainer) > 0.02 || math.Abs(busy-wantWorker) > 0.02 || math.Abs(busy+stalled-1) > 1e-9 {
				t.Errorf("%+v %s: trainers busy %.3f, want %.3f; workers busy %.3f, want %.3f, stalled %.3f",
					c, sampler, trainer, wantTrainer, busy, wantWorker, stalled)
			}
		}
	}
}

func TestAnInterruptedRunOnATableEndsInTheSameTable(t *testing.T) {
	for _, sampler := range replay.Samplers() {
		opts := pipeline.Options{
			Workers: 3, Trainers: 2, Batch: 24, Group: 4, RolloutCost: 2.5, Updates: 60, WeightTransfer: 3,
			WeightSync: pipeline.ByToken, Chunk: 3, MaxTokens: 8,
			RewardLatency: func(job uint64) float64 { return float64(job * 7 % 5) },
		}
		o := replay.Options{Capacity: 64, Sampler: sampler, Shards: 2, Seed: 3}
		if !sampler.Consumes() {
			opts.Mix = 2 // a queue has nothing to replay
		}
		whole, wholeTable := playTable(t, opts, o, 0)
		parted, partedTable := playTable(t, opts, o, 23)
		if got, want := fmt.Sprintf("%+v", parted), fmt.Sprintf("%+v", whole); got != want {
			t.Errorf("%s: records differ after the interruption", sampler)
		}
		if got, want := partedTable.Stats(), wholeTable.Stats(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: tables differ at the end:\n got %+v\nwant %+v", sampler, got, want)
		}
		var got, want bytes.Buffer
		if err := partedTable.Snapshot(&got); err != nil {
			t.Fatal(err)
		}
		if err := wholeTable.Snapshot(&want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s: snapshots of the tables differ", sampler)
		}
	}
}

// playTable runs on a table, interrupted after an update where kill is above 0.
func playTable(t *testing.T, opts pipeline.Options, o replay.Options, kill int) ([]pipeline.Update, *replay.Table) {
	t.Helper()
	var r record
	hooks := r.hooks()
	observe := hooks.OnUpdate
	hooks.OnUpdate = func(m *pipeline.Machine, u pipeline.Update) error {
		if int(u.Version) == kill {
			m.Stop()
		}
		return observe(m, u)
	}
	table := newTable(t, o)
	m, err := pipeline.New(opts, parts(table), hooks)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if kill == 0 {
		return r.updates, table
	}
	state, weights, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := table.Snapshot(&saved); err != nil {
		t.Fatal(err)
	}
	table = newTable(t, o)
	if err := table.Restore(&saved); err != nil {
		t.Fatal(err)
	}
	p := parts(table)
	p.Learner = &sim.Learner{Version: state.Version}
	if m, err = pipeline.Resume(opts, p, hooks, state, weights); err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r.updates, table
}
