package replay

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Snapshot writes the table's whole state, samplers, leases and remembered requests included, as of one
// moment: a table restored from it does what this one would have done (invariant 5). Equal states are written
// in equal bytes.
//
// Every lock is held while what the table knows of its rollouts is copied, some 120 bytes of each. The rollouts
// themselves, which nobody changes, are written afterwards, one by one; those that are evicted meanwhile
// stay in memory until then.
func (t *Table) Snapshot(w io.Writer) error {
	if err := t.hold().image().write(w); err != nil {
		return fmt.Errorf("writing a table's snapshot: %w", err)
	}
	return nil
}

// moment is a table as it was when its locks were held: copies of everything but what is never changed.
type moment struct {
	im     image // without what refers to rollouts
	shards []shardMoment
}

// shardMoment is what of a shard refers to rollouts.
type shardMoment struct {
	rollouts []*rollout.Rollout // by slot
	leases   []*lease
	answered []answerOf[*rollout.Batch]
}

// hold copies the table's state under every lock.
func (t *Table) hold() *moment {
	t.lockAll()
	defer t.unlockAll()
	m := &moment{im: image{
		Options: t.identity(), Version: t.version, LastID: t.lastID, LastGroup: t.lastGroup,
		Refused: t.refused, Ignored: t.ignored, Moved: t.moved,
		Ratios:   ratios{Bins: slices.Clone(t.ratios.Bins), Version: t.ratios.Version},
		Inserted: t.inserted.list(),
	}}
	for _, s := range t.shards {
		m.im.Shards = append(m.im.Shards, s.hold())
		m.shards = append(m.shards, shardMoment{slices.Clone(s.rollouts), slices.Clone(s.leases), s.answered.list()})
	}
	return m
}

// hold copies everything that does not refer to rollouts.
func (s *shard) hold() shardImage {
	im := shardImage{
		Items: slices.Clone(s.items), Links: slices.Clone(s.links), Free: slices.Clone(s.free),
		Present: s.present, Bytes: s.bytes, Remaining: s.remaining,
		Sampler: s.sampler.state(), Fresh: s.fresh, Recent: newList(arrivalList), Kept: newList(arrivalList),
		Batches: s.batches, Counts: s.counts.clone(),
	}
	if s.retention != nil {
		im.Recent, im.Kept = s.retention.recent, s.retention.kept
	}
	if s.ages != nil {
		for _, v := range slices.Sorted(maps.Keys(s.ages.heads)) {
			im.Heads = append(im.Heads, headImage{v, s.ages.heads[v]})
		}
	}
	return im
}

// image numbers the rollouts, which completes the image. It needs no lock.
func (m *moment) image() *image {
	g := &gathering{number: make(map[*rollout.Rollout]int32)}
	for i := range m.shards {
		from, to := &m.shards[i], &m.im.Shards[i]
		to.Rollouts = make([]int32, len(from.rollouts))
		for slot, r := range from.rollouts {
			to.Rollouts[slot] = g.place(r)
		}
		for _, l := range from.leases {
			to.Leases = append(to.Leases, leaseImage{l.Request, l.Slots, l.Deadline, g.batch(l.Batch)})
		}
		for _, a := range from.answered {
			to.Answered = append(to.Answered, answerOf[batchImage]{a.ID, g.batch(a.Answer)})
		}
	}
	m.im.Rollouts = g.rollouts
	return &m.im
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
