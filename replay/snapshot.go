package replay

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/replay/sealed"
	"github.com/reprise-rl/reprise/rollout"
)

// snapshots is what tables are saved as.
func snapshots() sealed.Format { return sealed.Format{Magic: "reprtab", Version: 2} }

// image is a table's whole state for encoding/gob. Rollouts stand once each, however many slots and
// remembered batches share them, and are referred to by their place.
type image struct {
	Options   identity
	Version   rollout.Version
	LastID    rollout.ID
	LastGroup uint64
	Refused   uint64
	Ignored   uint64
	Inserted  []answerImage[idRange]
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

type answerImage[V any] struct {
	ID     string
	Answer V
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
	Answered     []answerImage[batchImage]
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

// gathering numbers the rollouts of an image as they are met.
type gathering struct {
	rollouts []*rollout.Rollout
	number   map[*rollout.Rollout]int32
}

func (g *gathering) place(r *rollout.Rollout) int32 {
	if r == nil {
		return none
	}
	n, ok := g.number[r]
	if !ok {
		n = int32(len(g.rollouts))
		g.number[r] = n
		g.rollouts = append(g.rollouts, r)
	}
	return n
}

func (g *gathering) batch(b *rollout.Batch) batchImage {
	im := batchImage{Batch: *b}
	im.Batch.Draws = slices.Clone(b.Draws)
	for i := range im.Batch.Draws {
		im.Rollouts = append(im.Rollouts, g.place(b.Draws[i].Rollout))
		im.Batch.Draws[i].Rollout = nil
	}
	return im
}

// Snapshot writes the table's whole state, samplers, leases and remembered requests included, as of one
// moment: a table restored from it does what this one would have done (invariant 5).
func (t *Table) Snapshot(w io.Writer) error {
	b, err := t.seal()
	if err != nil {
		return fmt.Errorf("encoding a table: %w", err)
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("writing a table's snapshot: %w", err)
	}
	return nil
}

// seal holds every lock while it encodes: items, counts and decks are read where they stand.
func (t *Table) seal() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.shards {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	g := &gathering{number: make(map[*rollout.Rollout]int32)}
	im := image{
		Options: t.identity(), Version: t.version, LastID: t.lastID, LastGroup: t.lastGroup,
		Refused: t.refused, Ignored: t.ignored, Ratios: t.ratios, Moved: t.moved,
	}
	t.inserted.each(func(id string, r idRange) {
		im.Inserted = append(im.Inserted, answerImage[idRange]{id, r})
	})
	for _, s := range t.shards {
		im.Shards = append(im.Shards, s.image(g))
	}
	im.Rollouts = g.rollouts
	return snapshots().Seal(&im)
}

func (s *shard) image(g *gathering) shardImage {
	im := shardImage{
		Items: s.items, Links: s.links, Free: s.free, Present: s.present, Bytes: s.bytes, Remaining: s.remaining,
		Sampler: s.sampler.state(), Fresh: s.fresh, Recent: newList(arrivalList), Kept: newList(arrivalList), Batches: s.batches, Counts: s.counts,
	}
	for _, r := range s.rollouts {
		im.Rollouts = append(im.Rollouts, g.place(r))
	}
	if s.retention != nil {
		im.Recent, im.Kept = s.retention.recent, s.retention.kept
	}
	if s.ages != nil {
		for _, v := range slices.Sorted(maps.Keys(s.ages.heads)) {
			im.Heads = append(im.Heads, headImage{v, s.ages.heads[v]})
		}
	}
	for _, l := range s.leases {
		im.Leases = append(im.Leases, leaseImage{l.Request, l.Slots, l.Deadline, g.batch(l.Batch)})
	}
	s.answered.each(func(id string, b *rollout.Batch) {
		im.Answered = append(im.Answered, answerImage[batchImage]{id, g.batch(b)})
	})
	return im
}
