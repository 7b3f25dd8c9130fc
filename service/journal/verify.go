package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// ErrDamaged is returned for a journal whose content is not what was written.
var ErrDamaged = errors.New("journal is damaged")

// Damage is one problem of a journal.
type Damage struct {
	Segment  string // file in the journal's folder; "": of the journal as a whole
	Offset   int64  // in the segment
	Position uint64 // of the first message concerned; 0: of none
	Cut      uint64 // that the message is of; 0: of none
	What     string
}

// locate names the cut of a damage that was found just now.
func (f *fold) locate(d Damage) Damage {
	if d.Position != 0 {
		d.Cut = f.number + 1
		if f.cut != nil {
			d.Cut = f.cut.number
		}
	}
	return d
}

// String reads: segment 000001-3f9ac2d1e5b40718.seg, offset 4711, message 12, cut 7: 320 bytes are no message, …
func (d Damage) String() string {
	var at []string
	if d.Segment != "" {
		at = append(at, fmt.Sprintf("segment %s, offset %d", d.Segment, d.Offset))
	}
	if d.Position != 0 {
		at = append(at, fmt.Sprintf("message %d", d.Position))
	}
	if d.Cut != 0 {
		at = append(at, fmt.Sprintf("cut %d", d.Cut))
	}
	if len(at) == 0 {
		return d.What
	}
	return strings.Join(at, ", ") + ": " + d.What
}

// Lost counts what the missing messages of a journal had. Lost removals may have brought rollouts back that had left.
type Lost struct{ Rollouts, Removals, Uses, Insertions uint64 }

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
	Lost           Lost
	FollowMessages int    // intact ones after the first damage
	FollowRollouts uint64 // in them
	Surplus        int    // rollouts that Salvage left out: the oldest of more than the table's state counts
	Definition     []byte `json:"-"` // of the table
	firstDamage    tally  // what the log had before it
	beforeTheFirst int    // messages
}

// maxDamages is how many damages are reported. All are counted.
const maxDamages = 1000

// Whole reports whether nothing is damaged.
func (r *Report) Whole() bool { return len(r.Damage) == 0 }

// String describes the journal in one line, and each damage in another.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d bytes in %d segments, cut %d, version %d: %d rollouts, %d insertions remembered", r.Path,
		r.LogBytes, r.Segments, r.Cut, r.Version, r.Rollouts, r.Requests)
	if r.Torn > 0 {
		b.WriteString("; " + (&Recovery{Torn: r.Torn, Left: r.Left}).tail())
	}
	if r.Salvaged {
		b.WriteString("; salvaged from a damaged one")
	}
	if r.Whole() {
		b.WriteString("; whole")
		return b.String()
	}
	for _, d := range r.Damage {
		fmt.Fprintf(&b, "\n  %s", d)
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "\n  and %d more", r.More)
	}
	fmt.Fprintf(&b, "\n  %s", r.consequences())
	return b.String()
}

// consequences says what the damage costs.
func (r *Report) consequences() string {
	l := &r.Lost
	text := fmt.Sprintf("%d intact messages with %d rollouts follow", r.FollowMessages, r.FollowRollouts)
	if *l != (Lost{}) {
		text += fmt.Sprintf("; what is missing had %d rollouts, %d uses, %d insertions and %d removals", l.Rollouts, l.Uses,
			l.Insertions, l.Removals)
	}
	if l.Removals > 0 {
		text += "; as many rollouts that had left the table may have come back"
	}
	if r.Surplus > 0 {
		text += fmt.Sprintf("; the %d oldest were left out, as the table had %d fewer", r.Surplus, r.Surplus)
	}
	return text
}

// Verify reads a whole journal that no process has open. The error is of a journal that cannot be read; damage is in the
// report.
func Verify(path string) (*Report, error) { return verify(Options{Path: path}.withDefaults()) }

func verify(o Options) (*Report, error) {
	l, err := openSegments(o.Path, o, true)
	if err != nil {
		return nil, fmt.Errorf("reading the journal %s: %w", o.Path, err)
	}
	_, r, err := l.examine(false)
	return r, errors.Join(err, l.Close())
}

// examine reads the log through, whatever is damaged.
func (l *segmentLog) examine(keep bool) (*fold, *Report, error) {
	f, r := newFold(keep), &Report{Path: l.folder, Segments: len(l.segments)}
	found := func(d Damage) {
		if len(r.Damage) == 0 {
			r.firstDamage, r.beforeTheFirst = f.had(), r.Messages
		}
		if len(r.Damage) >= maxDamages {
			r.More++
			return
		}
		r.Damage = append(r.Damage, f.locate(d))
	}
	f.damaged = func(position uint64, err error) { found(Damage{Position: position, What: err.Error()}) }
	var err error
	l.end, err = l.walk(func(list []Message) error {
		err := f.add(list)
		r.Messages += len(list)
		return err
	}, func(d Damage) error {
		found(d)
		f.gap()
		return nil
	})
	problems := f.finish()
	if err == nil && f.torn {
		err = l.cutAfter(f.end)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the journal %s: %w", l.folder, err)
	}
	if r.Whole() {
		for _, what := range problems {
			found(Damage{What: what})
		}
	}
	r.fill(l, f)
	return f, r, nil
}

func (r *Report) fill(l *segmentLog, f *fold) {
	r.LogBytes, r.Cut, r.Rollouts, r.Requests = l.Size(), f.number, f.ids.count(), len(f.requests)
	r.Salvaged, r.Torn, r.Left, r.Definition = f.saved, l.end.torn, l.end.left, f.state[definitionKey]
	if f.table != nil {
		r.Version = f.table.Version
	}
	if r.Whole() {
		return
	}
	r.Lost = Lost{f.lost.rollouts, f.lost.removals, f.lost.uses, f.lost.insertions}
	followed := f.tally
	followed.sub(r.firstDamage)
	followed.sub(f.lost)
	r.FollowMessages, r.FollowRollouts = r.Messages-r.beforeTheFirst, followed.rollouts
}

// refusal names the first damages and the remedy. Without damage it returns the error of reading.
func (l *segmentLog) refusal(reading error) error {
	_, r, err := l.examine(false)
	if err != nil || r.Whole() {
		return errors.Join(reading, err)
	}
	const most = 5
	var b strings.Builder
	for _, d := range r.Damage[:min(most, len(r.Damage))] {
		fmt.Fprintf(&b, "%s; ", d)
	}
	if n := len(r.Damage) + r.More - most; n > 0 {
		fmt.Fprintf(&b, "and %d more; ", n)
	}
	return fmt.Errorf("%w: %s%s; keep the folder, and save the rest of it with: reprise journal salvage %s --out NEW",
		ErrDamaged, b.String(), r.consequences(), l.folder)
}

// Salvage writes everything intact of a journal into a new one. [Open] makes a table of it, in which missing rollouts
// count as evicted by damage. Rollouts whose removal is missing come back, but no more than the table held: the oldest
// are taken for those that had left. The report is of the old journal. The error is of one that cannot be read, has
// nothing to save, or cannot be written.
func Salvage(from, to string) (*Report, error) {
	return salvage(Options{Path: from}.withDefaults(), to)
}

func salvage(o Options, to string) (*Report, error) {
	into := o
	into.Path = to
	l, err := openSegments(o.Path, o, true)
	if err != nil {
		return nil, fmt.Errorf("reading the journal %s: %w", o.Path, err)
	}
	f, r, err := l.examine(true)
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	if r.Definition == nil {
		return r, fmt.Errorf("salvaging %s: the definition of its table is lost: %w", o.Path, ErrDamaged)
	}
	b := f.batch()
	r.Surplus = b.dropOldest(f.table)
	r.Rollouts = len(b.all)
	if f.saved || !r.Whole() {
		b.flags = flagSaved
	}
	written, err := createSegments(into)
	if err == nil {
		_, err = newLogWriter(written, into).write([]*batch{b}, true)
		err = written.moveInPlace(to, err)
	}
	if err == nil {
		err = errors.Join(written.Sync(), written.Close())
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
			b.state = append(b.state, named{key, value})
		}
	}
	return b
}

// dropOldest leaves no more rollouts than a table's state counts.
func (b *batch) dropOldest(state *replay.State) (dropped int) {
	if state == nil {
		return 0
	}
	dropped = max(0, len(b.all)-state.Present())
	b.all = b.all[dropped:]
	return dropped
}
