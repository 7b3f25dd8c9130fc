package journal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal/segments"
)

// ErrDamaged is returned for a journal whose content is not what was written.
var ErrDamaged = segments.ErrDamaged

// Damage is one problem of a journal.
type Damage struct {
	segments.Damage
	Cut uint64 // of the first message concerned; 0: of none
}

// String reads: cut 7, segment 000001-3f9ac2d1e5b40718.seg, offset 4711, message 12: 320 bytes are no message, and …
func (d Damage) String() string {
	if d.Cut == 0 {
		return d.Damage.String()
	}
	return fmt.Sprintf("cut %d, %s", d.Cut, d.Damage)
}

// locate names the cut of a damage that was found just now.
func (f *fold) locate(d segments.Damage) Damage {
	switch {
	case d.Position == 0:
		return Damage{Damage: d}
	case f.cut != nil:
		return Damage{d, f.cut.number}
	}
	return Damage{d, f.number + 1}
}

// Report is the content of a journal in numbers, and its damage.
type Report struct {
	Path     string
	LogBytes int64
	Segments int
	Messages int
	Cut      uint64 // number of the last
	Version  rollout.Version
	Rollouts int // in the table
	Requests int // insertions remembered
	Salvaged bool
	Torn     int64    // bytes at the end that were not known to be on disk: they are no damage
	Left     int      // messages among them that could be read
	Damage   []Damage // at most 1,000
	More     int      // further ones

	// With damage.
	Lost           Tally  // what the missing messages had; rollouts whose removal is missing may have come back
	LostEnd        bool   // no message follows the last damage, which would say what is lost there
	FollowMessages int    // intact ones after the first damage
	FollowRollouts uint64 // in them
	Surplus        int    // rollouts that Salvage left out: the oldest of more than the table's state counts
	Definition     []byte `json:"-"` // of the table
	before         Tally  // what the log had before the first damage
	messagesBefore int
}

// maxDamages is how many damages are reported. All are counted.
const maxDamages = 1000

// Whole reports whether nothing is damaged.
func (r *Report) Whole() bool { return len(r.Damage) == 0 }

// String describes the journal in one line, and each damage in another.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d bytes in %s, cut %d, version %d: %d rollouts, %d insertions remembered", r.Path,
		r.LogBytes, words.Plural(r.Segments, "segment"), r.Cut, r.Version, r.Rollouts, r.Requests)
	if r.Torn > 0 {
		b.WriteString("; " + (&Recovery{Torn: r.Torn, Left: r.Left}).tail())
	}
	if r.Salvaged {
		b.WriteString("; salvaged from a damaged one")
	}
	if r.Whole() {
		return b.String() + "; whole"
	}
	for _, d := range r.Damage {
		fmt.Fprintf(&b, "\n  %s", d)
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "\n  and %d more", r.More)
	}
	return b.String() + "\n  " + r.consequences()
}

// consequences says what the damage costs.
func (r *Report) consequences() string {
	text := fmt.Sprintf("%s with %s follow", words.Plural(r.FollowMessages, "intact message"),
		words.Plural(r.FollowRollouts, "rollout"))
	if l := &r.Lost; *l != (Tally{}) {
		text += fmt.Sprintf("; what is missing had %d rollouts, %d uses, %d insertions and %d removals", l.Rollouts, l.Uses,
			l.Insertions, l.Removals)
	}
	if r.LostEnd {
		text += "; no message follows the last damage, so what was lost there is not known"
	}
	if r.Lost.Removals > 0 {
		text += "; as many rollouts that had left the table may have come back"
	}
	if r.Surplus > 0 {
		text += fmt.Sprintf("; the %d oldest were left out, as the table had %d fewer", r.Surplus, r.Surplus)
	}
	return text
}

// Is reports whether a folder holds a journal.
func Is(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), segments.Suffix) })
}

// Verify reads a whole journal that no process has open. The error is of a journal that cannot be read; damage is in
// the report.
func Verify(path string) (*Report, error) { return verify(Options{Path: path}.withDefaults()) }

func verify(o Options) (*Report, error) {
	_, r, err := inspect(o, false)
	return r, err
}

// inspect reads a journal that no process has open, with the rollouts or not.
func inspect(o Options, keep bool) (*fold, *Report, error) {
	l, err := segments.Open(o.Path, o.segments(), true)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the journal %s: %w", o.Path, err)
	}
	f, r, err := examine(l, keep)
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, nil, fmt.Errorf("reading the journal %s: %w", o.Path, err)
	}
	return f, r, nil
}

// examine reads a log through, whatever is damaged.
func examine(l *segments.Log, keep bool) (*fold, *Report, error) {
	f, r := newFold(keep), &Report{Path: l.String(), Segments: l.Segments()}
	found := func(d segments.Damage) error {
		if r.Whole() {
			r.before, r.messagesBefore = f.had(), r.Messages
		}
		if len(r.Damage) < maxDamages {
			r.Damage = append(r.Damage, f.locate(d))
		} else {
			r.More++
		}
		f.gap()
		return nil
	}
	f.damaged = func(position uint64, err error) { _ = found(segments.Damage{Position: position, What: err.Error()}) }
	err := l.Walk(func(list []Message) error {
		err := f.add(list)
		r.Messages += len(list)
		return err
	}, found)
	problems := f.finish()
	if err == nil && f.torn {
		err = l.CutAfter(f.end)
	}
	if err != nil {
		return nil, nil, err
	}
	if r.Whole() {
		for _, what := range problems {
			_ = found(segments.Damage{What: what})
		}
	}
	r.fill(l, f)
	return f, r, nil
}

func (r *Report) fill(l *segments.Log, f *fold) {
	r.LogBytes, r.Cut, r.Rollouts, r.Requests = l.Size(), f.number, f.ids.count(), len(f.requests)
	r.Salvaged, r.Definition = f.saved, f.state[definitionKey]
	if r.Torn, r.Left = l.Torn(); f.table != nil {
		r.Version = f.table.Version
	}
	if r.Lost = f.lost; !r.Whole() {
		r.FollowMessages = r.Messages - r.messagesBefore
		r.LostEnd = f.missing
		if before := r.before.Rollouts + f.lost.Rollouts; f.tally.Rollouts > before { // unless they are in a torn cut
			r.FollowRollouts = f.tally.Rollouts - before
		}
	}
}

// refusal names the first damages of a log and the remedy. Without damage it returns the error of reading.
func refusal(l *segments.Log, reading error) error {
	_, r, err := examine(l, false)
	if err != nil || r.Whole() {
		return errors.Join(reading, err)
	}
	const most = 5
	text := ""
	for _, d := range r.Damage[:min(most, len(r.Damage))] {
		text += d.String() + "; "
	}
	if n := len(r.Damage) + r.More - most; n > 0 {
		text += fmt.Sprintf("and %d more; ", n)
	}
	return fmt.Errorf("%w: %s%s; keep the folder, and save the rest of it with: reprise journal salvage %s --out NEW",
		ErrDamaged, text, r.consequences(), l)
}

// Salvage writes everything intact of a journal into a new one. [Open] makes a table of it, in which missing rollouts
// count as evicted by damage. Rollouts whose removal is missing come back, but no more than the table held: the oldest
// are taken for those that had left. The report is of the old journal. The error is of one that cannot be read, has
// nothing to save, or cannot be written.
func Salvage(from, to string) (*Report, error) {
	return salvage(Options{Path: from}.withDefaults(), to)
}

func salvage(o Options, to string) (*Report, error) {
	f, r, err := inspect(o, true)
	if err != nil {
		return nil, err
	}
	if r.Definition == nil {
		return r, fmt.Errorf("salvaging %s: the definition of its table is lost: %w", o.Path, ErrDamaged)
	}
	b := f.batch()
	if f.table != nil {
		// The state counts no rollouts that came after it.
		known, _ := slices.BinarySearchFunc(b.all, f.table.LastID+1, func(k replay.Stored, id rollout.ID) int {
			return cmp.Compare(k.ID, id)
		})
		r.Surplus = max(0, known-f.table.Present())
		b.all, r.Rollouts = b.all[r.Surplus:], len(b.all)-r.Surplus
	}
	if f.saved || !r.Whole() {
		b.flags = flagSaved
	}
	l, err := segments.Create(to, o.segments())
	if err == nil {
		_, err = newLogWriter(l, o).write([]*batch{b}, true)
		err = l.MoveInPlace(err)
	}
	if err == nil {
		err = errors.Join(l.Sync(), l.Close())
	}
	if err != nil {
		err = fmt.Errorf("salvaging into %s: %w", to, err)
	}
	return r, err
}

// batch returns the table as a batch that replaces everything.
func (f *fold) batch() *batch {
	b := &batch{rewrite: true, keep: len(f.requests), requests: f.requests}
	for _, k := range f.stored {
		b.all = append(b.all, k)
	}
	slices.SortFunc(b.all, func(x, y replay.Stored) int { return cmp.Compare(x.ID, y.ID) })
	for key, value := range f.state {
		if key != tableKey || f.table != nil {
			b.addState(key, value)
		}
	}
	return b
}
