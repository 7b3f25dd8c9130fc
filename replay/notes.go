package replay

import "github.com/reprise-rl/reprise/rollout"

// tableNotes is what a tracked table notes beside its shards between two cuts.
type tableNotes struct {
	anew     bool
	requests []Insertion
}

// notes is what a shard of a tracked table notes between two cuts: a byte per slot, and each noted slot once, so that they
// never take more than the table itself does.
type notes struct {
	marks   []uint8 // by slot
	slots   []int32 // that have a mark
	removed []rollout.ID
	bytes   int64 // of payload that came since the last cut and is present
}

const (
	noteListed  uint8 = 1 << iota // is in slots
	noteEntered                   // came since the last cut
	noteChanged                   // was there at the last cut and has other uses, flags or base
)

func newNotes(slots int) *notes { return &notes{marks: make([]uint8, slots)} }

// note makes a shard note what changes.
func (s *shard) note(n *notes) {
	s.notes = n
	if s.retention != nil {
		s.retention.notes = n
	}
}

func (n *notes) set(slot int32, mark uint8) {
	for int(slot) >= len(n.marks) {
		n.marks = append(n.marks, 0)
	}
	if n.marks[slot]&noteListed == 0 {
		n.slots = append(n.slots, slot)
	}
	n.marks[slot] |= noteListed | mark
}

// entered notes an arrival.
func (n *notes) entered(slot int32, bytes int64) {
	n.set(slot, noteEntered)
	n.bytes += bytes
}

// changed notes that something of a present rollout did.
func (n *notes) changed(slot int32) { n.set(slot, noteChanged) }

// left notes an eviction. What came since the last cut leaves no trace.
func (n *notes) left(slot int32, it *item) {
	if int(slot) < len(n.marks) {
		entered := n.marks[slot]&noteEntered != 0
		n.marks[slot] &= noteListed
		if entered {
			n.bytes -= it.Bytes
			return
		}
	}
	n.removed = append(n.removed, it.ID)
}
