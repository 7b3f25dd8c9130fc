package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// bigTrial has 64 workers, of which a quarter are slow, and 8 trainers: groups of 8, batches of 256.
func bigTrial(rollouts int) Trial {
	return Trial{
		Options: pipeline.Options{Workers: 64, Trainers: 8, RolloutCost: 5.28, Batch: 256, Group: 8},
		Workload: Workload{Seed: 3, Lengths: Lognormal{Median: 500, Sigma: 1, Max: 8192}, Stragglers: 0.25,
			Slowness: 3},
		Rollouts: rollouts, Skip: rollouts / 4,
	}
}

// inParts runs a trial on a table in parts.
func inParts(t *testing.T, trial Trial, d InParts, part replay.Options) (*PartedTable, *Record) {
	t.Helper()
	p, err := NewPartedTable(d, trial.Options.Trainers, part)
	if err != nil {
		t.Fatal(err)
	}
	trial.Buffer = p
	r, err := trial.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

func TestGlobalDrawsFromPartsAreThoseOfOneTable(t *testing.T) {
	tests.Long(t)
	// One table of one shard beside eight parts, in eight schedules of the same seeds: means of paired differences, with
	// their standard errors. With one trainer both draw each batch without replacement from everything. Parts keep the
	// newest rollouts each, so a rollout's time in the table varies; its mean is that of one table.
	const seeds, capacity, parts = 8, 4096, 8
	differences := map[string][]float64{}
	for seed := range uint64(seeds) {
		trial := bigTrial(30_000)
		trial.Options.Trainers, trial.Options.RolloutCost, trial.Workload.Seed = 1, 42, seed
		table, err := replay.New(replay.Options{Sampler: replay.Distinct, Capacity: capacity, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		trial.Buffer = table
		one, err := trial.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, all := inParts(t, trial, InParts{Parts: parts, Scope: Global},
			replay.Options{Sampler: replay.Distinct, Capacity: capacity / parts, Seed: seed})
		if all.Rollouts != one.Rollouts || all.Updates != one.Updates || all.Used != one.Used || all.Time != one.Time {
			t.Fatalf("seed %d: the schedules differ: %d rollouts and %d updates in parts, %d and %d in one table", seed,
				all.Rollouts, all.Updates, one.Rollouts, one.Updates)
		}
		_, own := inParts(t, trial, InParts{Parts: parts, Scope: Own},
			replay.Options{Sampler: replay.Distinct, Capacity: capacity / parts, Seed: seed})
		if a, b := own.SinceLastUse.Mean(), one.SinceLastUse.Mean(); math.Abs(a/b-1) < 0.1 {
			t.Fatalf("seed %d: uses are %g updates apart in batches from one part, %g in one table: no difference shows", seed,
				a, b)
		}
		for what, of := range map[string]func(r *Record) float64{
			"mean staleness":       func(r *Record) float64 { return r.Staleness.Mean() },
			"mean uses":            func(r *Record) float64 { return r.Uses.Mean() },
			"never used":           func(r *Record) float64 { return float64(r.Uses.Of(0)) / float64(r.Uses.Count()) },
			"since the last use":   func(r *Record) float64 { return r.SinceLastUse.Mean() },
			"staleness of a tenth": func(r *Record) float64 { return float64(r.Staleness.Quantile(0.9)) },
		} {
			differences[what] = append(differences[what], of(all)/of(one)-1)
		}
	}
	for what, list := range differences {
		mean, squares := 0.0, 0.0
		for _, d := range list {
			mean += d / seeds
		}
		for _, d := range list {
			squares += (d - mean) * (d - mean)
		}
		// t of 7 degrees of freedom is beyond 5.41 once in 1,000 times. A part keeps its newest 64 groups while 64 s enter
		// all parts, where s varies by sqrt(64)/64: so much moves a mean by a few thousandths.
		bound := 0.005 + 5.41*math.Sqrt(squares/(seeds-1)/seeds)
		t.Logf("%s: parts are %+.4f of one table, want 0 +- %.4f", what, mean, bound)
		if math.Abs(mean) > bound {
			t.Errorf("%s: parts differ from one table by %+.4f, want 0 +- %.4f", what, mean, bound)
		}
	}
}

func TestQueuesDrawFromAllParts(t *testing.T) {
	trial := bigTrial(20_000)
	for _, scope := range []Scope{Own, Global} {
		p, r := inParts(t, trial, InParts{Parts: 8, Scope: scope}, replay.Options{Sampler: replay.FIFO, Capacity: 128})
		if r.Uses.Max() != 1 || r.Uses.Of(0) != 0 || r.ReplayRatio() < 0.98 || r.ReplayRatio() > 1.02 {
			t.Errorf("scope %s: rollouts of a queue are used %v times", scope, r.Uses)
		}
		for i, table := range p.tables {
			if s, err := table.Stats(t.Context()); err != nil || s.Inserted < 20_000/16 || s.Drawn+200 < s.Inserted {
				t.Errorf("scope %s: part %d took %d and gave %d: %v", scope, i, s.Inserted, s.Drawn, err)
			}
		}
	}
}

func TestTrainersDrawFromTheirOwnParts(t *testing.T) {
	for _, c := range []struct {
		trainers, parts int
		lost            int
		want            string
	}{
		{2, 6, -1, "[0 2 4] [1 3 5]"},
		{2, 6, 2, "[0 4] [1 3 5]"},
		{2, 3, 1, "[0 2] [0 2]"}, // none of the second trainer's is there
		{5, 3, -1, "[0] [1] [2] [0] [1]"},
		{5, 3, 0, "[1 2] [1] [2] [1 2] [1]"},
		{1, 4, -1, "[0 1 2 3]"},
	} {
		p, err := NewPartedTable(InParts{Parts: c.parts, Scope: Own}, c.trainers, replay.Options{Capacity: 8})
		if err != nil {
			t.Fatal(err)
		}
		p.lost = c.lost
		var got []string
		for trainer := range c.trainers {
			got = append(got, fmt.Sprint(p.own(trainer)))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%d trainers own of %d parts, without %d, %s, want %s", c.trainers, c.parts, c.lost, text, c.want)
		}
	}
	// Each trainer takes turns among its own.
	trial := bigTrial(20_000)
	p, _ := inParts(t, trial, InParts{Parts: 16, Scope: Own}, replay.Options{Sampler: replay.Distinct, Capacity: 256})
	var drawn []float64
	for _, table := range p.tables {
		s, err := table.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		drawn = append(drawn, float64(s.Drawn))
	}
	for i, n := range drawn {
		if n < 0.9*drawn[0] || n > 1.1*drawn[0] {
			t.Errorf("part %d gave %g rollouts, part 0 %g", i, n, drawn[0])
		}
	}
}

// rolloutGroup is a group of two of a prompt.
func rolloutGroup(prompt uint64, v rollout.Version) rollout.Group {
	g := rollout.Group{Size: 2}
	for i := range 2 {
		g.Rollouts = append(g.Rollouts, &rollout.Rollout{PromptID: fmt.Sprint(prompt), Temperature: 1, TopP: 1,
			Tokens: []int32{int32(prompt), int32(i)}, Mask: []uint8{0, 1}, Logprobs: []float32{0, -1},
			Versions: []rollout.Version{rollout.NoVersion, v}})
	}
	return g
}

func TestTheRolloutsOfLostPartsAreAccountedForExactly(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := InParts{Parts: 2 + rng.IntN(7), Scope: []Scope{Own, Global}[rng.IntN(2)], LostEvery: 4,
			LostUpdates: 1 + rng.IntN(3), ForGood: rng.IntN(2) == 0}
		sampler := []replay.Sampler{replay.Distinct, replay.FIFO}[rng.IntN(2)]
		p, err := NewPartedTable(d, 2, replay.Options{Sampler: sampler, Capacity: 40, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		var inserted, used, drawnWhileLost uint64
		for v := range rollout.Version(60) {
			if err := p.Advance(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			for range rng.IntN(12) {
				if ids, err := p.Insert(t.Context(), rolloutGroup(rng.Uint64N(1000), v)); err == nil {
					inserted += uint64(len(ids))
				} else if sampler != replay.FIFO {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			for trainer := range 2 {
				b, err := p.Sample(t.Context(), rollout.Request{Size: 6, Shard: trainer})
				if err != nil {
					continue // starved
				}
				used += 6
				for _, draw := range b.Draws {
					if part := int(draw.ID >> 48); part == p.lost {
						drawnWhileLost++
					}
				}
			}
			s, err := p.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			reachable, err := p.Len(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			away := 0
			if p.lost >= 0 {
				if away, err = p.tables[p.lost].Len(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			evicted := uint64(0)
			for _, n := range s.Evicted {
				evicted += n
			}
			if s.Inserted != inserted || s.Acknowledged != used || s.Present != reachable+away ||
				s.Inserted != uint64(s.Present)+evicted || s.Evicted[rollout.EvictedByDamage] != p.Absence.Gone ||
				uint64(s.UsesPresent.Sum()+s.UsesAtEviction.Sum()) != used ||
				s.UsesAtEviction.Count() != evicted || s.UsesAtEviction.Of(0) != s.NeverUsed || drawnWhileLost > 0 {
				t.Fatalf("seed %d, version %d, %+v: of %d inserted and %d used rollouts %d can be drawn and %d are away "+
					"(%d draws of them): %+v", seed, v, d, inserted, used, reachable, away, drawnWhileLost, s)
			}
		}
		if a := p.Absence; a.Losses != 15 || a.Rollouts == 0 || d.ForGood != (a.Gone == a.Rollouts) ||
			!d.ForGood && a.Gone != 0 || a.Rerouted == 0 {
			t.Errorf("seed %d, %+v: %+v", seed, d, a)
		}
	}
}

func TestAComparisonShowsPartsBesideOneTable(t *testing.T) {
	run := func(d InParts) *Comparison {
		trial := bigTrial(16_000)
		x, err := Compare(t.Context(), trial, 4096, d)
		if err != nil {
			t.Fatal(err)
		}
		x.Seconds = 0
		return x
	}
	d := InParts{Parts: 8, Scope: Own, LostEvery: 20, LostUpdates: 10}
	x := run(d)
	if len(x.Arms) != 5 || x.InParts != d || x.Arms[4].Absence.Losses < 2 || x.Arms[3].Absence.Rerouted == 0 ||
		x.Arms[2].Absence != nil {
		t.Fatalf("%d arms: %+v", len(x.Arms), x)
	}
	text := x.Text()
	for _, want := range []string{"buffer, 8 parts", "fifo queue, 8 parts", "(draws of scope own)", "A part was lost"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	again, err1 := json.Marshal(run(d))
	if first, err2 := json.Marshal(x); err1 != nil || err2 != nil || string(first) != string(again) {
		t.Error("the same schedule twice differs")
	}
	one := run(InParts{})
	for i, arm := range one.Arms {
		a, err1 := json.Marshal(arm)
		if b, err2 := json.Marshal(x.Arms[i]); err1 != nil || err2 != nil || string(a) != string(b) {
			t.Errorf("the %s differs beside parts", arm.Name)
		}
	}
}

func TestWrongTablesInPartsAreRefused(t *testing.T) {
	for want, d := range map[string]InParts{
		"parts: 1: want 2":         {Parts: 1, Scope: Own},
		"parts: 257: want":         {Parts: 257, Scope: Own},
		"scope: all: want own":     {Parts: 2, Scope: "all"},
		"lost_updates: -1: want 1": {Parts: 2, Scope: Own, LostUpdates: -1},
		"lost_every: 5: want more": {Parts: 2, Scope: Own, LostUpdates: 5, LostEvery: 5},
	} {
		if _, err := Compare(t.Context(), bigTrial(40_000), 4096, d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", d, err, want)
		}
	}
}
