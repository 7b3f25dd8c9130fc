package replay

import (
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/replay/sealed"
	"github.com/reprise-rl/reprise/rollout"
)

// image is a table's whole state as it is saved, all but the rollouts by encoding/gob. Rollouts stand once each,
// however many slots and remembered batches share them, and are referred to by their place.
type image struct {
	Identity  string // see Options.identity
	Version   rollout.Version
	LastID    rollout.ID
	LastGroup uint64
	Refused   uint64
	Ignored   uint64
	Inserted  []answerOf[idRange]
	Labels    []Labelling
	Ratios    ratios
	Moved     rollout.Version // when the age decay did last
	Rollouts  []*rollout.Rollout
	Shards    []shardImage
}

type shardImage struct {
	Items            []item
	Links            []links
	Rollouts         []int32 // by slot, into image.Rollouts; none where free
	Free             []int32
	Present          int
	Bytes            int64
	Remaining        int64
	Sampler          samplerState
	Fresh            freshQueue
	Recent, Reserved list
	Positives        samplerState // what positive_share draws from
	Heads            []headImage  // of the ages, by version
	Batches, Skipped uint64
	Leases           []leaseImage   // in the order given
	Waiting          []waitingImage // by deadline
	Answered         []answerOf[batchImage]
	Counts           counts
}

type headImage struct {
	Version rollout.Version
	Slot    int32
}

type waitingImage struct {
	Group    uint64
	Slots    []int32
	Deadline time.Time
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

// Snapshot writes the table's whole state, samplers, leases and remembered requests included, as of one moment: a table
// restored from it does what this one would have done (invariant 5). Equal states are written in equal bytes.
//
// It holds every lock while it copies what the table knows of its rollouts, some 120 bytes each. The rollouts are
// immutable and written afterwards, one by one; those evicted meanwhile stay in memory until then.
func (t *Table) Snapshot(w io.Writer) error {
	if err := t.hold().image().write(w); err != nil {
		return fmt.Errorf("writing a table's snapshot: %w", err)
	}
	return nil
}

// moment is a copy of a table, made under its locks. It shares what never changes.
type moment struct {
	im     image // without what refers to rollouts
	shards []shardMoment
}

// shardMoment is the part of a shard that refers to rollouts.
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
		Identity: t.identity, Version: t.version, LastID: t.lastID, LastGroup: t.lastGroup,
		Refused: t.refused, Ignored: t.ignored, Moved: t.ageDecayMoved,
		Ratios:   ratios{Bins: slices.Clone(t.ratios.Bins), Version: t.ratios.Version},
		Inserted: t.insertedBefore.list(), Labels: t.labels.list(),
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
		Sampler: s.sampler.state(), Fresh: s.fresh, Recent: newList(arrivalList), Reserved: newList(arrivalList),
		Batches: s.batches, Skipped: s.skipped, Counts: s.counts.clone(),
	}
	for i := range im.Links {
		im.Links[i].Chain = none // whoever restores makes the index anew, and its chains in another order
	}
	if s.retention != nil {
		im.Recent, im.Reserved, im.Positives = s.retention.recent, s.retention.reserved, s.retention.positives.state()
	}
	if s.ages != nil {
		for _, v := range slices.Sorted(maps.Keys(s.ages.heads)) {
			im.Heads = append(im.Heads, headImage{v, s.ages.heads[v]})
		}
	}
	if s.waiting != nil {
		im.Waiting = s.waiting.image()
	}
	return im
}

// image completes the image by numbering the rollouts. It needs no lock.
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

// A snapshot is a sealed stream: a gob stream of an image without its columns, the columns in pieces, and the rollouts,
// each behind its length as a varint, ended by a length of 0.
func snapshotFormat() sealed.Format { return sealed.Format{Magic: "reprtab", Version: 5} }

// write writes the image, in little memory beside it.
func (im *image) write(w io.Writer) error {
	out := snapshotFormat().NewWriter(w)
	encoder := gob.NewEncoder(out)
	err := encoder.Encode(im.withoutColumns())
	for _, c := range im.columns() {
		if err == nil {
			err = c.write(encoder)
		}
	}
	if err == nil {
		err = writeRollouts(out, im.Rollouts)
	}
	if err != nil {
		return err
	}
	return out.Close()
}

func writeRollouts(w io.Writer, list []*rollout.Rollout) (err error) {
	var head [binary.MaxVarintLen64]byte
	var body []byte
	for _, r := range list {
		if body, err = r.AppendBinary(body[:0]); err != nil {
			return err
		}
		if _, err = w.Write(head[:binary.PutUvarint(head[:], uint64(len(body)))]); err != nil {
			return err
		}
		if _, err = w.Write(body); err != nil {
			return err
		}
	}
	_, err = w.Write([]byte{0})
	return err
}

// readImage reads what write wrote, with little memory besides the image. It calls accept as soon as the options are
// known.
func readImage(r io.Reader, accept func(*image) error) (*image, error) {
	in, err := snapshotFormat().NewReader(r)
	if err != nil {
		return nil, err
	}
	im := new(image)
	values := gob.NewDecoder(in)
	if err := values.Decode(im); err != nil {
		return nil, fmt.Errorf("decoding: %w", cutShort(err))
	}
	if err := accept(im); err != nil {
		return nil, err
	}
	for _, c := range im.columns() {
		if err := c.read(values); err != nil {
			return nil, fmt.Errorf("decoding: %w", cutShort(err))
		}
	}
	if im.Rollouts, err = readRollouts(in); err != nil {
		return nil, err
	}
	return im, in.End()
}

func readRollouts(in *sealed.Reader) (list []*rollout.Rollout, err error) {
	var body []byte
	for {
		length, err := binary.ReadUvarint(in)
		if err == nil && length == 0 {
			return list, nil
		}
		if err == nil {
			body, err = appendRead(body[:0], in, length)
		}
		r := new(rollout.Rollout)
		if err == nil {
			err = r.UnmarshalBinary(body)
		}
		if err != nil {
			return nil, fmt.Errorf("reading rollout %d: %w", len(list), cutShort(err))
		}
		list = append(list, r)
	}
}

// appendRead appends length bytes of r. It allocates at most as much again as it has read, so that a false length costs
// nothing.
func appendRead(b []byte, r io.Reader, length uint64) ([]byte, error) {
	const first = 1 << 16
	for length > 0 {
		n := int(min(length, uint64(max(len(b), first))))
		b = slices.Grow(b, n)
		if _, err := io.ReadFull(r, b[len(b):len(b)+n]); err != nil {
			return b, err
		}
		b = b[:len(b)+n]
		length -= uint64(n)
	}
	return b, nil
}

// cutShort turns an early end into io.ErrUnexpectedEOF.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// column is a slice of an image that grows with the table. It is written in pieces, so that no buffer holds all of it.
type column interface {
	write(to *gob.Encoder) error
	read(from *gob.Decoder) error
	drop()
}

// Elements of a piece: of columns by slot, and of columns of batches, which have some hundred draws each.
const (
	slotPiece  = 1 << 12
	batchPiece = 1 << 4
)

// columns returns the columns in the order in which they are written.
func (im *image) columns() []column {
	list := []column{pieces[answerOf[idRange]]{&im.Inserted, slotPiece}}
	for i := range im.Shards {
		list = append(list, im.Shards[i].columns()...)
	}
	return list
}

func (im *shardImage) columns() []column {
	st, w := &im.Sampler, &im.Sampler.Weights
	return []column{
		pieces[item]{&im.Items, slotPiece}, pieces[links]{&im.Links, slotPiece}, pieces[int32]{&im.Rollouts, slotPiece},
		pieces[int32]{&im.Free, slotPiece}, pieces[int32]{&st.Slots, slotPiece}, pieces[int32]{&st.Pos, slotPiece},
		pieces[int32]{&st.Uses, slotPiece},
		pieces[float64]{&w.Bases, slotPiece}, pieces[float64]{&w.Weights, slotPiece}, pieces[float64]{&w.Leasts,
			slotPiece},
		pieces[leaseImage]{&im.Leases, batchPiece}, pieces[answerOf[batchImage]]{&im.Answered, batchPiece},
	}
}

// withoutColumns returns a copy of everything else.
func (im *image) withoutColumns() *image {
	rest := *im
	rest.Rollouts, rest.Shards = nil, slices.Clone(im.Shards)
	for _, c := range rest.columns() {
		c.drop()
	}
	return &rest
}

// pieces is a column of pieces of size elements; a shorter one, perhaps empty, is the last.
type pieces[T any] struct {
	of   *[]T
	size int
}

func (p pieces[T]) drop() { *p.of = nil }

func (p pieces[T]) write(to *gob.Encoder) error {
	for left := *p.of; ; {
		n := min(len(left), p.size)
		if err := to.Encode(left[:n]); err != nil || n < p.size {
			return err
		}
		left = left[n:]
	}
}

func (p pieces[T]) read(from *gob.Decoder) error {
	*p.of = nil
	for {
		var piece []T // a new one: gob leaves alone what is zero
		if err := from.Decode(&piece); err != nil {
			return err
		}
		*p.of = append(*p.of, piece...)
		if len(piece) < p.size {
			return nil
		}
	}
}

// Restore replaces the table's whole state by a snapshot's, but gives no id that either has given before: ids of
// rollouts, groups and batches go on above both. The table must have the options of the one that was written, except
// for the clock, lease_seconds, vocab, max_tokens, prompt_index, unknown_logprobs and history. A snapshot that is
// damaged, cut off, of another format or of other options is refused and changes nothing. Rollouts are new copies.
// Restore reads no more than the snapshot from r, and needs little memory besides the old state and the new.
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
		fresh[i].skipTo(s.given())
		fresh[i].recorded = s.recorded
		s.shard = fresh[i]
	}
	t.version, t.lastID = im.Version, max(t.lastID, im.LastID)
	// The next group goes to the same shard as after the snapshot.
	t.lastGroup = im.LastGroup + roundUp(max(t.lastGroup, im.LastGroup)-im.LastGroup, uint64(len(t.shards)))
	t.refused, t.ignored = im.Refused, im.Ignored
	t.ratios, t.ageDecayMoved = im.Ratios, im.Moved
	t.insertedBefore = newAnswers[idRange](rememberedInsertions)
	t.batchIDs.Store(0)
	for _, a := range im.Inserted {
		t.rememberInsertion(a.ID, a.Answer)
	}
	t.setLabels(im.Labels)
	if t.changes != nil {
		t.track()
	}
	return nil
}

// accepts refuses a snapshot that does not fit the table.
func (t *Table) accepts(im *image) error {
	if err := sameIdentity(im.Identity, t.options); err != nil {
		return err
	}
	if len(im.Shards) != len(t.shards) {
		return fmt.Errorf("%d shards, the options say %d: %w", len(im.Shards), len(t.shards), rollout.ErrInvalid)
	}
	return nil
}

// setImage fills a new shard from its image.
func (s *shard) setImage(im *shardImage, all *image) error {
	if len(im.Rollouts) != len(im.Items) || len(im.Links) != len(im.Items) {
		return fmt.Errorf("%d slots have %d rollouts and %d links: %w", len(im.Items), len(im.Rollouts), len(im.Links),
			rollout.ErrInvalid)
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
		s.retention.setImage(im)
	}
	for _, h := range im.Heads {
		s.ages.heads[h.Version] = h.Slot
	}
	for slot, r := range s.rollouts {
		switch it := &s.items[slot]; {
		case r == nil:
		case it.is(evicted):
			s.leftLeased += it.Bytes + RolloutOverhead
		default:
			s.index.add(int32(slot))
		}
	}
	s.indexPrompts()
	for _, g := range im.Waiting {
		s.waiting.add(&waitingGroup{number: g.Group, deadline: g.Deadline, slots: g.Slots})
	}
	s.batches, s.skipped, s.counts = im.Batches, im.Skipped, im.Counts
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
		if s.retention == nil {
			s.consumed.put(s.consumed.of(a.ID, b))
		}
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
		return nil, fmt.Errorf("batch %d has %d draws of %d rollouts: %w", b.ID, len(b.Draws), len(bi.Rollouts),
			rollout.ErrInvalid)
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
