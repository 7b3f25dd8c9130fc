package replay

import (
	"fmt"
	"math"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// prioritizations are option sets that between them have every option at every value, or near.
func prioritizations() []Prioritization {
	var list []Prioritization
	add := func(change func(p *Prioritization)) {
		p := DefaultPrioritization()
		change(&p)
		list = append(list, p)
	}
	add(func(p *Prioritization) {})
	add(func(p *Prioritization) {
		p.Base, p.Decay, p.Spread, p.Normalisation, p.AgeDecay = BaseTDError, AfterExponent, Independent, ByTable, 3
	})
	add(func(p *Prioritization) {
		p.Base, p.Entry, p.Normalisation, p.BetaVersions, p.AgeDecay = BaseGradNorm, EnterMax, ByTable, 100, 20
	})
	add(func(p *Prioritization) { p.Base, p.Entry, p.Exponent, p.Beta = BaseReward, EnterMax, 2, 1 })
	add(func(p *Prioritization) {
		p.Base, p.Spread, p.AgeDecay, p.Epsilon, p.BetaVersions = BaseFunction, Independent, math.Inf(1), 0.1, 30
		p.Function = func(r *rollout.Rollout, advantage float32) float64 {
			return float64(len(r.Tokens)) - 10*float64(advantage)
		}
	})
	add(func(p *Prioritization) {
		p.Base, p.AgeDecay, p.TargetESS, p.Normalisation = BaseRecency, 10, 0.8, ByTable
	})
	add(func(p *Prioritization) { p.Entry, p.TargetESS, p.Spread, p.Beta = EnterMax, 0.9, Independent, 0 })
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
				o.Prioritization = &p
				runTrials(t, o, 1)
			}
		}
	}
}

func runTrials(t *testing.T, o Options, seeds uint64) {
	name := fmt.Sprintf("%s/capacity=%d,bytes=%d,staleness=%d,uses=%d,shards=%d,%s%s", o.Sampler, o.Capacity, o.CapacityBytes, o.MaxStaleness, o.MaxUses, o.Shards, o.Retention, o.Unit)
	if p := o.Prioritization; p != nil {
		name += fmt.Sprintf("/%s,%s,%s", p.Base, p.Spread, p.Entry)
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
