package prompts

import (
	"cmp"
	"container/heap"
	"container/list"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// Prompt is a prompt by name.
type Prompt struct {
	ID  string // stable, unique
	Ref uint64 // what the caller needs to ask it again: a row, a number; the latest reported is kept
}

// Result is what came of asking a prompt once: of Total responses, 1 to 2^31-1, Correct were correct. With a Difficulty
// Total may be 0: the prompt was not asked yet. It is ready at once if it is held.
type Result struct {
	Prompt
	Correct, Total int
	Replayed       bool     // handed out by Next; else it counts as used at the report
	Difficulty     *float64 // for expressions, by any measure; nil: as it was, at first not known
}

// Buffer holds prompts of medium difficulty and hands them out again. Make it with [New].
type Buffer struct {
	options  Options
	formulas formulas
	bytes    atomic.Int64 // see Bytes

	mu       sync.Mutex // guards what follows
	at       rollout.Version
	sequence uint64 // of the latest result
	entries  map[string]*entry
	reported *list.List // of the entries, the one reported longest ago first
	ready    queue      // held, replayable, and cooled down at version at; the best first
	cooling  queue      // held, replayable, and used too recently; the first to be ready first
	counts   counts
}

// entry is a prompt that is held or was replayed, or with expressions any that was reported.
type entry struct {
	Prompt
	estimate estimate        // the zero value where it is not held, unless there are expressions
	history  history         // the zero value without expressions
	lastUsed rollout.Version // NoVersion: never
	reuses   int             // times handed out by Next

	// By judge, of the above.
	held  bool
	rest  int64   // versions from one use to the next
	score float64 // with a score expression

	queue    *queue // that it is in; nil: none
	place    int    // in it
	sequence uint64 // of the latest result
	order    *list.Element
}

// history is what expressions read of a prompt beside its estimate.
type history struct {
	Tries, Streak  int64
	Correct, Total int64   // of all responses
	Step           float64 // of the latest pass rate from the one before; NaN: there was none
	Difficulty     float64 // NaN: not known
}

// entryOverhead is what an entry takes in memory besides its id, in bytes: measured, and rounded up.
const entryOverhead = 336

// New returns an empty buffer.
func New(o Options) (*Buffer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := &Buffer{options: o.WithDefaults()}
	b.formulas, _ = b.options.formulas() // Validate parsed them
	b.empty()
	return b, nil
}

// empty lets go of all entries.
func (b *Buffer) empty() {
	b.entries, b.reported = make(map[string]*entry), list.New()
	b.bytes.Store(0)
	b.ready = queue{first: func(x, y *entry) bool {
		return cmp.Or(x.estimate.compare(y.estimate), cmp.Compare(x.sequence, y.sequence)) < 0
	}}
	if b.formulas.score != nil {
		b.ready.first = func(x, y *entry) bool { // what is not known comes last
			return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.sequence, y.sequence)) < 0
		}
	}
	b.cooling = queue{first: func(x, y *entry) bool { return x.readyAt() < y.readyAt() }}
	b.counts = counts{}
}

// Options returns the buffer's options, with defaults filled in.
func (b *Buffer) Options() Options { return b.options }

// Bytes returns what the buffer takes in memory.
func (b *Buffer) Bytes() int64 { return b.bytes.Load() }

// EntryBytes is what a prompt takes in the memory of a buffer.
func EntryBytes(id string) int64 { return int64(len(id)) + entryOverhead }

// add adds an entry as the latest reported.
func (b *Buffer) add(e *entry) {
	b.entries[e.ID], e.order = e, b.reported.PushBack(e)
	b.bytes.Add(EntryBytes(e.ID))
}

// forget removes an entry that is in no queue and not counted.
func (b *Buffer) forget(e *entry) {
	delete(b.entries, e.ID)
	b.reported.Remove(e.order)
	b.bytes.Add(-EntryBytes(e.ID))
}

// makeRoom lets go of the entries beyond max_prompts.
func (b *Buffer) makeRoom() {
	for len(b.entries) > b.options.MaxPrompts {
		e := b.reported.Front().Value.(*entry)
		b.counts.forget(e)
		e.leave()
		b.forget(e)
	}
}

// Next takes up to floor(f batch) prompts for a batch from the buffer, at version now of the trainers, 0 or
// above: of those with now - last used >= cooldown that were replayed less than max_reuse times those with pass rates
// nearest to one half, among equals those estimated at the oldest version, among equals those reported first. They
// count as used at now and replayed once more; with cooldown 0, too, they come again in a later call only. Options may
// have expressions in the place of the cooldown and of the distance from one half.
func (b *Buffer) Next(now rollout.Version, batch int) []Prompt {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(max(now, 0))
	n := min(b.options.share(batch), b.ready.Len())
	if n == 0 {
		return nil
	}
	taken := make([]*entry, n)
	next := make([]Prompt, n)
	for i := range taken {
		e := b.ready.top()
		e.leave()
		taken[i], next[i] = e, e.Prompt
	}
	for _, e := range taken {
		b.counts.Replayed++
		b.change(e, func() { e.lastUsed, e.reuses = b.at, e.reuses+1 })
	}
	return next
}

// change changes an entry that is in no queue, and puts it where it belongs then.
func (b *Buffer) change(e *entry, change func()) {
	b.counts.forget(e)
	change()
	b.judge(e)
	b.counts.know(e)
	b.enqueue(e)
}

// judge finds out whether an entry is held, how long it rests between two uses, and its score.
func (b *Buffer) judge(e *entry) {
	f := &b.formulas
	if e.held = e.estimate.medium(b.options.Band); f.keep != nil {
		e.held = f.keep.Holds(e)
	}
	if e.rest = int64(b.options.Cooldown); f.interval != nil {
		e.rest = 0 // also where it is not known
		if n := f.interval.Number(e); n > 0 {
			e.rest = int64(min(n, math.MaxInt32))
		}
	}
	if f.score != nil {
		e.score = f.score.Number(e)
	}
}

// Skip returns the probability with which a fresh prompt that has an id is passed over: 0 without the option.
func (b *Buffer) Skip(id string) float64 {
	if b.formulas.skip == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[id]
	if e == nil {
		return 0
	}
	if p := b.formulas.skip.Number(e); p > 0 {
		return min(p, 1)
	}
	return 0
}

// turn sets the clock and moves what has cooled down by then to the ready.
func (b *Buffer) turn(now rollout.Version) {
	if now < b.at {
		b.rewind(now)
	}
	b.at = now
	for e := b.cooling.top(); e != nil && b.cool(e); e = b.cooling.top() {
		e.leave()
		b.ready.add(e)
	}
}

// rewind lets what was used or estimated after v count as of v, and all cool down anew from there.
func (b *Buffer) rewind(v rollout.Version) {
	b.at = v
	b.ready.entries, b.cooling.entries = nil, nil
	for _, e := range b.entries {
		e.queue = nil
		b.change(e, func() {
			e.lastUsed = min(e.lastUsed, v)
			e.estimate.Version = min(e.estimate.Version, v)
		})
	}
}

// readyAt returns the version from which an entry has cooled down.
func (e *entry) readyAt() int64 {
	if e.lastUsed == rollout.NoVersion {
		return math.MinInt64
	}
	return int64(e.lastUsed) + e.rest
}

// cool reports whether an entry has cooled down.
func (b *Buffer) cool(e *entry) bool { return e.readyAt() <= int64(b.at) }

// enqueue puts an entry that is in no queue where it belongs.
func (b *Buffer) enqueue(e *entry) {
	switch {
	case !e.held || e.reuses >= b.options.MaxReuse:
	case b.cool(e):
		b.ready.add(e)
	default:
		b.cooling.add(e)
	}
}

// Report tells the buffer at version now of the trainers, 0 or above, what came of prompts: a prompt with 0 < p < 1 and
// |p - 1/2| <= band enters, or gets the new estimate and Ref; any other leaves. (With the option keep, one of which
// that is true is held, and all others stay known.) A replayed one was used at the version
// of the Next that handed it out, which the result does not change; any other, and one that no Next ever handed out,
// was fresh and counts as used at now. Beyond max_prompts the prompt reported longest ago leaves, with its count of
// reuses. Results are taken in order; if one is refused (see [rollout.ErrInvalid]) none is taken.
func (b *Buffer) Report(now rollout.Version, results ...Result) error {
	if err := b.check(now, results); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range results {
		b.report(now, r)
	}
	return nil
}

// check names everything that is wrong with results.
func (b *Buffer) check(now rollout.Version, results []Result) error {
	var found []error
	if now < 0 {
		found = append(found, fmt.Errorf("version is %d: give the number of updates, at least 0: %w", now,
			rollout.ErrInvalid))
	}
	for i, r := range results {
		refuse := func(bad bool, field string, value int, remedy string) {
			if bad {
				found = append(found, &rollout.FieldError{Row: i, Field: field, Value: fmt.Sprint(value),
					Remedy: remedy})
			}
		}
		if r.ID == "" {
			found = append(found, &rollout.FieldError{Row: i, Field: "id", Value: "empty",
				Remedy: "give the prompt's stable name"})
		}
		refuse(r.Total < 0 || r.Total > math.MaxInt32 || r.Total == 0 && r.Difficulty == nil, "total", r.Total,
			fmt.Sprintf("give the number of responses, 1 to %d", math.MaxInt32))
		if d := r.Difficulty; d != nil && (!b.options.scheduled() || math.IsNaN(*d)) {
			found = append(found, &rollout.FieldError{Row: i, Field: "difficulty", Value: fmt.Sprint(*d),
				Remedy: "give a number, to a buffer with keep, score, interval or skip, which may read it"})
		}
		refuse(r.Correct < 0 || r.Correct > max(r.Total, 0), "correct", r.Correct,
			"give how many of the responses were correct, 0 to total")
	}
	if len(found) > 0 {
		return fmt.Errorf("report on %d prompts: %w", len(results), errors.Join(found...))
	}
	return nil
}

// report takes one result.
func (b *Buffer) report(now rollout.Version, r Result) {
	b.sequence++
	e := b.entries[r.ID]
	switch {
	case e == nil:
		e = &entry{Prompt: r.Prompt, lastUsed: rollout.NoVersion, sequence: b.sequence}
		if b.options.scheduled() {
			e.history.Step, e.history.Difficulty = math.NaN(), math.NaN()
		}
		b.add(e)
		b.counts.know(e)
	case r.Total > 0:
		b.reported.MoveToBack(e.order)
	}
	e.leave()
	b.change(e, func() {
		if r.Difficulty != nil {
			e.history.Difficulty = *r.Difficulty
		}
		if r.Total > 0 {
			b.learn(e, now, r)
		}
	})
	if !e.held && !b.options.scheduled() {
		b.change(e, func() { e.estimate, e.Ref = estimate{}, 0 })
		if e.reuses == 0 {
			b.counts.forget(e)
			b.forget(e)
			return
		}
	}
	b.makeRoom()
}

// learn takes a result of at least one response.
func (b *Buffer) learn(e *entry, now rollout.Version, r Result) {
	b.counts.report(r)
	if b.options.scheduled() {
		e.history.add(e.estimate, r)
	}
	if !r.Replayed || e.reuses == 0 {
		e.lastUsed = now
	}
	e.Ref, e.sequence = r.Ref, b.sequence
	e.estimate = estimate{int32(r.Correct), int32(r.Total), now, b.sequence}
}

// add takes the result that follows on an estimate.
func (h *history) add(before estimate, r Result) {
	h.Step = float64(r.Correct)/float64(r.Total) - before.rate()
	h.Tries++
	h.Correct += int64(r.Correct)
	h.Total += int64(r.Total)
	if h.Streak++; r.Correct > 0 && r.Correct < r.Total {
		h.Streak = 0
	}
}

// Value is [formula.Row]'s.
func (e *entry) Value(c formula.Column) float64 {
	h := &e.history
	switch c {
	case formula.PassRate:
		return e.estimate.rate()
	case formula.MeanPassRate:
		return float64(h.Correct) / float64(h.Total)
	case formula.PassRateStep:
		return h.Step
	case formula.PassRateVersion:
		if e.estimate.Total == 0 {
			return math.NaN()
		}
		return float64(e.estimate.Version)
	case formula.Tries:
		return float64(h.Tries)
	case formula.Streak:
		return float64(h.Streak)
	case formula.Reuses:
		return float64(e.reuses)
	case formula.Difficulty:
		return h.Difficulty
	}
	panic(fmt.Sprintf("formula column %d has no value", c)) // a mistake of the program
}

// Meta is [formula.Row]'s: prompts have none.
func (e *entry) Meta(string) float64 { return math.NaN() }

// queue holds entries with the first by its order on top. Every entry knows its place, so that one whose order changes
// is taken out before: a queue holds nothing stale. O(log n) each.
type queue struct {
	entries []*entry
	first   func(a, b *entry) bool
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (q *queue) Len() int           { return len(q.entries) }
func (q *queue) Less(i, j int) bool { return q.first(q.entries[i], q.entries[j]) }

func (q *queue) Swap(i, j int) {
	q.entries[i], q.entries[j] = q.entries[j], q.entries[i]
	q.entries[i].place, q.entries[j].place = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.place = len(q.entries)
	q.entries = append(q.entries, e)
}

func (q *queue) Pop() any {
	last := len(q.entries) - 1
	e := q.entries[last]
	q.entries[last] = nil
	q.entries = q.entries[:last]
	return e
}

// add puts an entry in that is in no queue.
func (q *queue) add(e *entry) {
	e.queue = q
	heap.Push(q, e)
}

// top returns the first entry, nil if there is none.
func (q *queue) top() *entry {
	if len(q.entries) == 0 {
		return nil
	}
	return q.entries[0]
}

// leave takes the entry out of the queue that it is in, if any.
func (e *entry) leave() {
	if e.queue != nil {
		heap.Remove(e.queue, e.place)
		e.queue = nil
	}
}

// estimate is what the latest report of a prompt says of it.
type estimate struct {
	Correct, Total int32 // pass rate Correct/Total; Total is 0 where there is no estimate
	Version        rollout.Version
	Sequence       uint64 // of the report's result, from 1
}

// distance returns the numerator of |p - 1/2| = |2 Correct - Total| / (2 Total).
func (e estimate) distance() int64 {
	d := 2*int64(e.Correct) - int64(e.Total)
	return max(d, -d)
}

// rate returns the pass rate, NaN where there is no estimate.
func (e estimate) rate() float64 { return float64(e.Correct) / float64(e.Total) }

// medium reports whether the prompt is one to keep: 0 < p < 1 and |p - 1/2| <= band. The quotient is rounded once, as
// the band's literal was, so that a pass rate on the edge is within.
func (e estimate) medium(band float64) bool {
	return 0 < e.Correct && e.Correct < e.Total && float64(e.distance())/float64(2*int64(e.Total)) <= band
}

// compare orders estimates by priority -|p - 1/2|, best first, then the oldest first; what is no estimate comes last.
// Totals are below 2^31, so that the products are exact.
func (e estimate) compare(o estimate) int {
	if e.Total == 0 || o.Total == 0 {
		return cmp.Compare(min(o.Total, 1), min(e.Total, 1))
	}
	return cmp.Or(
		cmp.Compare(e.distance()*int64(o.Total), o.distance()*int64(e.Total)),
		cmp.Compare(e.Version, o.Version),
		cmp.Compare(e.Sequence, o.Sequence),
	)
}

// percent returns the pass rate in hundredths, rounded down.
func (e estimate) percent() int64 { return 100 * int64(e.Correct) / int64(e.Total) }

// Stats is what a [Buffer] holds and has counted since it was made.
type Stats struct {
	Held     int // prompts whose latest pass rate is within the band, or of which keep is true
	Eligible int // of them, those that a Next at the version of the latest one would still hand out
	Spent    int // of them, those replayed max_reuse times already

	Reported     uint64 // results
	ZeroVariance uint64 // of them, those with all responses correct or none: there is nothing to learn from them
	Replayed     uint64 // prompts handed out, repeats counted

	Reuses    rollout.Histogram // prompts that are held or were replayed, by how often they were replayed
	PassRates rollout.Histogram // held prompts by pass rate, in hundredths, rounded down
}

// Stats returns the present statistics. They are kept up as the buffer changes: no prompt is looked at.
func (b *Buffer) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.counts
	s := Stats{
		Held: c.Held, Eligible: b.ready.Len(),
		Reported: c.Reported, ZeroVariance: c.ZeroVariance, Replayed: c.Replayed,
	}
	s.Spent = s.Held - b.ready.Len() - b.cooling.Len()
	s.Reuses.Merge(&c.Reuses)
	s.PassRates.Merge(&c.PassRates)
	return s
}

// counts is what Stats reports beside the queues.
type counts struct {
	Reported, ZeroVariance, Replayed uint64
	Held                             int
	Reuses, PassRates                rollout.Histogram
}

func (c *counts) report(r Result) {
	c.Reported++
	if r.Correct == 0 || r.Correct == r.Total {
		c.ZeroVariance++
	}
}

// know counts an entry, forget takes that back.
func (c *counts) know(e *entry) {
	c.Reuses.Add(int64(e.reuses))
	if e.held {
		c.Held++
	}
	if e.held && e.estimate.Total > 0 {
		c.PassRates.Add(e.estimate.percent())
	}
}

func (c *counts) forget(e *entry) {
	c.Reuses.Remove(int64(e.reuses))
	if e.held {
		c.Held--
	}
	if e.held && e.estimate.Total > 0 {
		c.PassRates.Remove(e.estimate.percent())
	}
}
