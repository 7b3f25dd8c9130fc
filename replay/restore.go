package replay

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/reprise-rl/reprise/rollout"
)

// Restore replaces the table's whole state by a snapshot's. The table must have the options of the one
// that was written; only the clock, the lease timeout and the vocabulary's size may differ. A snapshot
// that is damaged, cut off, of another format or of other options is refused and changes nothing.
// Rollouts are new copies. No more than the snapshot is read from r, and beside both the old state and the new
// one little memory is needed; of format 2, which earlier builds wrote, once more the snapshot's size.
func (t *Table) Restore(r io.Reader) error {
	im, err := readImage(r, t.accepts)
	if err != nil {
		return fmt.Errorf("restoring a table: %w", err)
	}
	fresh := make([]*shard, len(im.Shards))
	for i := range im.Shards {
		fresh[i] = newShard(t.options, i)
		if err := fresh[i].setImage(&im.Shards[i], im); err != nil {
			return fmt.Errorf("restoring shard %d: %w", i, err)
		}
	}
	t.lockAll()
	defer t.unlockAll()
	for i, s := range t.shards {
		s.shard = fresh[i]
	}
	t.version, t.lastID, t.lastGroup = im.Version, im.LastID, im.LastGroup
	t.refused, t.ignored = im.Refused, im.Ignored
	t.ratios, t.moved = im.Ratios, im.Moved
	t.inserted = newMemory[idRange](rememberedInsertions)
	for _, a := range im.Inserted {
		t.inserted.put(a.ID, a.Answer)
	}
	if t.notes != nil {
		t.track()
	}
	return nil
}

// accepts tells what of a snapshot does not go with the table.
func (t *Table) accepts(im *image) error {
	if err := sameOptions(im.Options, t.identity()); err != nil {
		return err
	}
	if len(im.Shards) != len(t.shards) {
		return fmt.Errorf("%d shards, the options say %d: %w", len(im.Shards), len(t.shards), rollout.ErrInvalid)
	}
	return nil
}

// sameOptions names every option in which a snapshot differs from the table.
func sameOptions(theirs, ours identity) error {
	return errors.Join(differences("", reflect.ValueOf(theirs), reflect.ValueOf(ours))...)
}

func differences(place string, a, b reflect.Value) (problems []error) {
	for i := range a.NumField() {
		name := place + a.Type().Field(i).Name
		x, y := a.Field(i), b.Field(i)
		switch {
		case x.Kind() == reflect.Struct:
			problems = append(problems, differences(name+".", x, y)...)
		case x.Interface() != y.Interface():
			problems = append(problems, fmt.Errorf("%s is %v in the snapshot and %v in the table: give the table the snapshot's: %w", name, x, y, rollout.ErrInvalid))
		}
	}
	return problems
}

// setImage fills a new shard from its image.
func (s *shard) setImage(im *shardImage, all *image) error {
	if len(im.Rollouts) != len(im.Items) || len(im.Links) != len(im.Items) {
		return fmt.Errorf("%d slots have %d rollouts and %d links: %w", len(im.Items), len(im.Rollouts), len(im.Links), rollout.ErrInvalid)
	}
	s.items, s.links, s.free = im.Items, im.Links, im.Free
	s.rollouts = make([]*rollout.Rollout, 0, len(im.Rollouts))
	for _, place := range im.Rollouts {
		r, err := all.rollout(place)
		if err != nil {
			return err
		}
		s.rollouts = append(s.rollouts, r)
	}
	s.version, s.present, s.bytes, s.remaining = all.Version, im.Present, im.Bytes, im.Remaining
	s.sampler.setState(im.Sampler)
	s.fresh = im.Fresh
	if s.retention != nil {
		s.retention.recent, s.retention.kept = im.Recent, im.Kept
	}
	for _, h := range im.Heads {
		s.ages.heads[h.Version] = h.Slot
	}
	for slot, r := range s.rollouts {
		if r != nil && !s.items[slot].is(gone) {
			s.index.add(int32(slot))
		}
	}
	s.batches, s.counts = im.Batches, im.Counts
	for _, l := range im.Leases {
		b, err := all.batch(l.Batch)
		if err != nil {
			return err
		}
		s.leases = append(s.leases, &lease{Request: l.Request, Slots: l.Slots, Batch: b, Deadline: l.Deadline})
	}
	for _, a := range im.Answered {
		b, err := all.batch(a.Answer)
		if err != nil {
			return err
		}
		s.answered.put(a.ID, b)
	}
	return nil
}

func (im *image) rollout(place int32) (*rollout.Rollout, error) {
	if place == none {
		return nil, nil
	}
	if place < 0 || int(place) >= len(im.Rollouts) {
		return nil, fmt.Errorf("rollout %d of %d is referred to: %w", place, len(im.Rollouts), rollout.ErrInvalid)
	}
	return im.Rollouts[place], nil
}

func (im *image) batch(bi batchImage) (*rollout.Batch, error) {
	b := bi.Batch
	if len(bi.Rollouts) != len(b.Draws) {
		return nil, fmt.Errorf("batch %d has %d draws of %d rollouts: %w", b.ID, len(b.Draws), len(bi.Rollouts), rollout.ErrInvalid)
	}
	for i, place := range bi.Rollouts {
		r, err := im.rollout(place)
		if err != nil {
			return nil, err
		}
		b.Draws[i].Rollout = r
	}
	return &b, nil
}
