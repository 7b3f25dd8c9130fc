package run

import (
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/wire"
)

// definition writes a table's options as a service takes them.
func definition(name string, o replay.Options) wire.Table {
	return wire.Table{
		Name: name, Capacity: o.Capacity, CapacityBytes: o.CapacityBytes, Retention: string(o.Retention),
		PositiveFraction: o.PositiveFraction, PositiveThreshold: o.PositiveThreshold,
		Sampler: string(o.Sampler), MaxStaleness: o.MaxStaleness, MaxUses: o.MaxUses, MinSize: o.MinSize,
		Unit: string(o.Unit), GroupSize: o.GroupSize, StepReturns: o.StepReturns, StepDiscount: o.StepDiscount,
		Shards: o.Shards, Advantage: string(o.Advantage), Vocab: o.Vocab, Seed: o.Seed, Priority: priority(o.Prioritization),
	}
}

func priority(p *replay.Prioritization) *wire.Priority {
	if p == nil {
		return nil
	}
	return &wire.Priority{
		Base: string(p.Base), Epsilon: p.Epsilon, Exponent: p.Exponent, AgeDecay: wire.Versions(p.AgeDecay), Decay: string(p.Decay),
		TargetESS: p.TargetESS, Draws: string(p.Spread), Entry: string(p.Entry), Beta: p.Beta, BetaVersions: p.BetaVersions,
		Normalisation: string(p.Normalisation),
	}
}
