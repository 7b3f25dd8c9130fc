package replay

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// prioritizations are option sets that between them have every option at every value, or near.
func prioritizations() []Options {
	var list []Options
	add := func(change func(p *Options)) {
		p := prioritizedOptions()
		change(&p)
		list = append(list, p)
	}
	add(func(p *Options) {})
	add(func(p *Options) {
		p.PriorityBase, p.Decay, p.Draws, p.ImportanceNorm, p.AgeDecay = BaseTDError, AfterExponent, Independent, ByTable, 3
	})
	add(func(p *Options) {
		p.PriorityBase, p.Entry, p.ImportanceNorm, p.ImportanceAnneal, p.AgeDecay = BaseGradNorm, EnterMax, ByTable, new(100), 20
	})
	add(func(p *Options) {
		p.PriorityBase, p.Entry, p.PriorityExponent, p.ImportanceBeta = BaseReward, EnterMax, 2, new(1.0)
	})
	add(func(p *Options) {
		p.PriorityBase, p.Draws, p.AgeDecay, p.PriorityEpsilon, p.ImportanceAnneal = BaseFunction, Independent, Versions(math.Inf(1)), 0.1, new(30)
		p.PriorityFunction = func(r *rollout.Rollout, advantage float32) float64 {
			return float64(len(r.Tokens)) - 10*float64(advantage)
		}
	})
	add(func(p *Options) {
		p.PriorityBase, p.AgeDecay, p.TargetESS, p.ImportanceNorm = BaseRecency, 10, 0.8, ByTable
	})
	add(func(p *Options) {
		p.Entry, p.TargetESS, p.Draws, p.ImportanceBeta = EnterMax, 0.9, Independent, new(0.0)
	})
	return list
}

// Whatever is done, the table does what the definitions say: invariants 1, 2, 3, 5, 7 and 11, and the
// probabilities of 4.
func TestTableAgreesWithTheModelUnderRandomOperations(t *testing.T) {
	bounds := []Options{
		{Capacity: 12},
		{Capacity: 12, MaxStaleness: 2, Unit: UnitStep},
		{Capacity: 12, MaxUses: 2, Unit: UnitStep, StepReturns: 2, StepDiscount: 0.5},
		{Capacity: 24, Shards: 2, Unit: UnitStep, StepReturns: ToTheEnd},
		{Capacity: 12, MaxUses: 2, MinSize: 4},
		{Capacity: 12, CapacityBytes: 900},
		{Capacity: 24, Shards: 2, MaxUses: 3, MaxStaleness: 3},
		{Capacity: 12, Retention: KeepPositive, PositiveFraction: 0.25},
		{Capacity: 24, Shards: 3, Retention: KeepPositive, PositiveFraction: 0.5, MaxUses: 2, MaxStaleness: 4, Unit: UnitStep},
		{Capacity: 18, Unit: UnitGroup, GroupSize: 3, MaxUses: 2, MaxStaleness: 30},
		{Capacity: 22, Unit: UnitGroup, GroupSize: 2, Shards: 2, MaxStaleness: 5},
		{Capacity: 14, Unit: UnitGroup, GroupSize: 2, CapacityBytes: 1200, MaxUses: 1},
	}
	for _, kind := range Samplers() {
		for _, o := range bounds {
			o.Sampler = kind
			if kind.Consumes() {
				o.MaxUses, o.Retention, o.PositiveFraction = 0, "", 0
				if o.Unit == UnitGroup {
					continue
				}
			}
			if kind != Prioritized {
				runTrials(t, o, 3)
				continue
			}
			for _, p := range prioritizations() {
				runTrials(t, withPriorities(p, o), 1)
			}
		}
	}
}

func runTrials(t *testing.T, o Options, seeds uint64) {
	name := fmt.Sprintf("%s/capacity=%d,bytes=%d,staleness=%d,uses=%d,shards=%d,%s%s", o.Sampler, o.Capacity, o.CapacityBytes, o.MaxStaleness, o.MaxUses, o.Shards, o.Retention, o.Unit)
	if o.Sampler == Prioritized {
		name += fmt.Sprintf("/%s,%s,%s", o.PriorityBase, o.Draws, o.Entry)
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		steps := 250
		if testing.Short() {
			seeds, steps = 1, 80
		}
		for seed := range seeds {
			tr := newTrial(t, o, seed)
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			for i := range steps {
				tr.step()
				tr.check()
				if i%5 == 0 {
					tr.checkStats()
				}
			}
		}
	})
}

// prioritizedOptions are those of sampler prioritized with its defaults.
func prioritizedOptions() Options { return Options{Sampler: Prioritized}.WithDefaults() }

// withPriorities returns o with sampler prioritized and the priority options of p.
func withPriorities(p, o Options) Options {
	o.Sampler = Prioritized
	o.PriorityBase, o.PriorityEpsilon, o.PriorityExponent, o.PriorityFunction = p.PriorityBase, p.PriorityEpsilon, p.PriorityExponent, p.PriorityFunction
	o.AgeDecay, o.Decay, o.TargetESS, o.Draws, o.Entry = p.AgeDecay, p.Decay, p.TargetESS, p.Draws, p.Entry
	o.ImportanceBeta, o.ImportanceAnneal, o.ImportanceNorm = p.ImportanceBeta, p.ImportanceAnneal, p.ImportanceNorm
	return o
}

// statsOf returns a table's statistics.
func statsOf(table *Table) rollout.Stats {
	s, err := table.Stats(context.Background())
	if err != nil {
		panic(err)
	}
	return s
}

// Priority is the base that a test gives a rollout.
type Priority struct {
	ID    rollout.ID
	Value float64
}

func updateOf(table *Table, priorities ...Priority) error {
	ids, values := make([]rollout.ID, len(priorities)), make([]float64, len(priorities))
	for i, p := range priorities {
		ids[i], values[i] = p.ID, p.Value
	}
	return table.Update(context.Background(), ids, values)
}

func setTau(table *Table, tau float64) {
	table.mu.Lock()
	defer table.mu.Unlock()
	table.setAgeDecay(tau)
}
