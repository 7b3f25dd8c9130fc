package prompts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/reprise-rl/reprise/replay/sealed"
	"github.com/reprise-rl/reprise/rollout"
)

// buffers is what buffers are saved as.
func buffers() sealed.Format { return sealed.Format{Magic: "reprprm", Version: 1} }

// image is a buffer's whole state for encoding/gob.
type image struct {
	Options      Options
	At           rollout.Version
	Sequence     uint64
	Reported     uint64
	ZeroVariance uint64
	Replayed     uint64
	Entries      []entryImage // by id
}

type entryImage struct {
	Prompt   Prompt
	Estimate estimate
	LastUsed rollout.Version
	Reuses   int
	Sequence uint64 // of the latest result; 0: unknown, in older snapshots
	History  history
}

// Snapshot writes the buffer's whole state as of one moment: a buffer restored from it does what this one would
// have done. Equal states are written in equal bytes.
func (b *Buffer) Snapshot(w io.Writer) error {
	im := b.image()
	if err := buffers().Write(w, &im); err != nil {
		return fmt.Errorf("writing a prompt buffer's snapshot: %w", err)
	}
	return nil
}

func (b *Buffer) image() image {
	b.mu.Lock()
	defer b.mu.Unlock()
	im := image{
		Options: b.options, At: b.at, Sequence: b.sequence,
		Reported: b.counts.Reported, ZeroVariance: b.counts.ZeroVariance, Replayed: b.counts.Replayed,
	}
	for _, id := range slices.Sorted(maps.Keys(b.entries)) {
		e := b.entries[id]
		im.Entries = append(im.Entries, entryImage{e.Prompt, e.estimate, e.lastUsed, e.reuses, e.sequence,
			e.history})
	}
	return im
}

// Restore replaces the buffer's whole state by a snapshot's. The buffer must have the options of the one that was
// written. A snapshot that is damaged, cut off, of another format or of other options is refused and changes
// nothing. No more than the snapshot is read.
func (b *Buffer) Restore(r io.Reader) error {
	var im image
	err := buffers().Open(r, &im)
	if err == nil {
		err = im.check(b.options)
	}
	if err != nil {
		return fmt.Errorf("restoring a prompt buffer: %w", err)
	}
	b.setImage(im)
	return nil
}

// check names what a buffer with the options could not have written.
func (im *image) check(o Options) error {
	var found []error
	invalid := func(format string, args ...any) {
		found = append(found, fmt.Errorf(format+": %w", append(args, rollout.ErrInvalid)...))
	}
	if im.Options.MaxPrompts == 0 { // an older snapshot
		im.Options.MaxPrompts = o.MaxPrompts
	}
	if im.Options != o {
		invalid("options are %+v in the snapshot and %+v here: give the buffer the snapshot's", im.Options, o)
	}
	if im.At < 0 {
		invalid("version is %d", im.At)
	}
	seen := make(map[uint64]bool, len(im.Entries))
	for i, e := range im.Entries {
		if i > 0 && e.Prompt.ID <= im.Entries[i-1].Prompt.ID {
			invalid("prompt %q stands after %q", e.Prompt.ID, im.Entries[i-1].Prompt.ID)
		}
		if !e.possible(o) || max(e.Sequence, e.Estimate.Sequence) > im.Sequence || seen[e.Estimate.Sequence] {
			invalid("prompt %q cannot be in the state %+v", e.Prompt.ID, e)
		}
		seen[e.Estimate.Sequence] = e.Estimate.Sequence > 0
	}
	return errors.Join(found...)
}

// possible reports whether a buffer with the options could hold the entry.
func (e *entryImage) possible(o Options) bool {
	x := e.Estimate
	switch {
	case x.Total > 0 && e.Sequence > 0 && e.Sequence != x.Sequence:
		return false
	case e.Prompt.ID == "" || e.Reuses < 0 || e.Reuses > o.MaxReuse:
		return false
	case o.scheduled():
		return e.History.possible() && (e.History.Tries > 0) == (x.Total > 0) && (x == estimate{} || x.possible()) &&
			e.LastUsed >= rollout.NoVersion
	case e.LastUsed < 0 || e.History != history{}:
		return false
	case x == estimate{}:
		return e.Reuses > 0
	}
	return x.possible() && x.medium(o.Band)
}

func (e estimate) possible() bool {
	return e.Sequence > 0 && e.Version >= 0 && e.Total > 0 && 0 <= e.Correct && e.Correct <= e.Total
}

func (h history) possible() bool {
	return 0 <= h.Streak && h.Streak <= h.Tries && 0 <= h.Correct && h.Correct <= h.Total && h.Tries <= h.Total
}

// order is by the latest result.
func (e *entryImage) order() uint64 { return max(e.Sequence, e.Estimate.Sequence) }

// setImage takes on the state of an image that was checked.
func (b *Buffer) setImage(im image) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.empty()
	b.at, b.sequence = im.At, im.Sequence
	b.counts.Reported, b.counts.ZeroVariance, b.counts.Replayed = im.Reported, im.ZeroVariance, im.Replayed
	slices.SortStableFunc(im.Entries, func(x, y entryImage) int { return cmp.Compare(x.order(), y.order()) })
	for _, ei := range im.Entries {
		e := &entry{Prompt: ei.Prompt, estimate: ei.Estimate, lastUsed: ei.LastUsed, reuses: ei.Reuses,
			sequence: ei.order(), history: ei.History}
		b.add(e)
		b.judge(e)
		b.counts.know(e)
		b.enqueue(e)
	}
	b.makeRoom()
}
