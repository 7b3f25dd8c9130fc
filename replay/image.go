package replay

import (
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// image is a table's whole state as it is saved, all but the rollouts by encoding/gob. Rollouts stand once each, however many
// slots and remembered batches share them, and are referred to by their place.
type image struct {
	Options   identity
	Version   rollout.Version
	LastID    rollout.ID
	LastGroup uint64
	Refused   uint64
	Ignored   uint64
	Inserted  []answerOf[idRange]
	Ratios    ratios
	Moved     rollout.Version // when the age decay did last
	Rollouts  []*rollout.Rollout
	Shards    []shardImage
}

// identity is the options that a table must share with the snapshot it is restored from: all that
// change what the same operations do, the clock apart.
type identity struct {
	Capacity          int
	CapacityBytes     int64
	Retention         Retention
	PositiveFraction  float64
	PositiveThreshold float32
	Sampler           Sampler
	MaxStaleness      int
	MaxUses           int
	MinSize           int
	Unit              Unit
	GroupSize         int
	StepReturns       int
	StepDiscount      float64 // 0 without step returns, as in snapshots from before there were any
	Priority          priorityIdentity
	Shards            int
	Advantage         string
	Seed              uint64
}

// priorityIdentity is a Prioritization without its function, which no snapshot can hold; the zero value without one.
type priorityIdentity struct {
	Base                        Base
	Epsilon, Exponent, AgeDecay float64
	Decay                       Decay
	TargetESS                   float64
	Spread                      Spread
	Entry                       Entry
	Beta                        float64
	BetaVersions                int
	Normalisation               Normalisation
}

type shardImage struct {
	Items        []item
	Links        []links
	Rollouts     []int32 // by slot, into image.Rollouts; none where free
	Free         []int32
	Present      int
	Bytes        int64
	Remaining    int64
	Sampler      samplerState
	Fresh        freshQueue
	Recent, Kept list
	Heads        []headImage // of the ages, by version
	Batches      uint64
	Leases       []leaseImage // in the order given
	Answered     []answerOf[batchImage]
	Counts       counts
}

type headImage struct {
	Version rollout.Version
	Slot    int32
}

type leaseImage struct {
	Request  string
	Slots    []int32
	Deadline time.Time
	Batch    batchImage
}

type batchImage struct {
	Batch    rollout.Batch // its draws without rollouts
	Rollouts []int32       // of the draws, into image.Rollouts
}

func (t *Table) identity() identity {
	o := t.options
	var priority priorityIdentity
	if p := o.Prioritization; p != nil {
		priority = priorityIdentity{
			p.Base, p.Epsilon, p.Exponent, p.AgeDecay, p.Decay, p.TargetESS, p.Spread, p.Entry, p.Beta, p.BetaVersions, p.Normalisation,
		}
	}
	discount := 0.0
	if o.StepReturns != 0 {
		discount = o.StepDiscount
	}
	return identity{
		StepReturns: o.StepReturns, StepDiscount: discount,
		Capacity: o.Capacity, CapacityBytes: o.CapacityBytes, Retention: o.Retention,
		PositiveFraction: o.PositiveFraction, PositiveThreshold: o.PositiveThreshold, Sampler: o.Sampler,
		MaxStaleness: o.MaxStaleness, MaxUses: o.MaxUses, MinSize: o.MinSize, Shards: o.Shards,
		Advantage: string(o.Advantage), Seed: o.Seed, Unit: o.Unit, GroupSize: o.GroupSize, Priority: priority,
	}
}
