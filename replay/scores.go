package replay

import (
	"math"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// score is a number for each rollout of a shard, by an expression.
type score struct {
	formula      *formula.Formula
	row          row
	byAge, byUse bool // see changes
}

// newScore returns the score by an expression that Validate has parsed.
func newScore(s *shard, text string) *score {
	x := &score{row: row{shard: s}}
	x.formula, _ = formula.Score(text)
	x.byAge, x.byUse = changes(x.formula)
	return x
}

// ofUnit returns the mean of the score over a unit, -Inf if it is not known.
func (x *score) ofUnit(first int32) float64 {
	if y := x.row.unitMean(x.formula, first); y == y {
		return y
	}
	return math.Inf(-1)
}

// of returns the score of a rollout, NaN if it is not known.
func (x *score) of(slot int32) float64 {
	x.row.slot, x.row.measured = slot, false
	return x.formula.Number(&x.row)
}

// changes reports whether formulas, nil ones left out, read columns that change with the table's version, and columns
// that change with a rollout's uses.
func changes(formulas ...*formula.Formula) (byAge, byUse bool) {
	for _, f := range formulas {
		if f != nil {
			byAge = byAge || f.Reads(formula.Age, formula.SinceUse)
			byUse = byUse || f.Reads(formula.Uses, formula.SinceUse)
		}
	}
	return byAge, byUse
}

// ranking is slots by a number of each, the largest first and the oldest among equals: a binary heap. Which slot is
// first does not depend on the order in which they came.
type ranking struct {
	store   *store
	heap    []int32
	at      []int32   // by slot, its place in heap; none: not there
	numbers []float64 // by slot
}

func (r *ranking) has(slot int32) bool { return int(slot) < len(r.at) && r.at[slot] != none }

// before reports whether one slot of the ranking comes before another.
func (r *ranking) before(a, b int32) bool {
	if x, y := r.numbers[a], r.numbers[b]; x != y {
		return x > y
	}
	return r.store.items[a].ID < r.store.items[b].ID
}

// set gives a slot its number, and adds it if it is new: O(log N).
func (r *ranking) set(slot int32, number float64) {
	for int(slot) >= len(r.at) {
		r.at, r.numbers = append(r.at, none), append(r.numbers, 0)
	}
	r.numbers[slot] = number
	if r.at[slot] == none {
		r.at[slot] = int32(len(r.heap))
		r.heap = append(r.heap, slot)
	}
	r.settle(int(r.at[slot]))
}

// remove removes a slot, if the ranking has it: O(log N).
func (r *ranking) remove(slot int32) {
	if !r.has(slot) {
		return
	}
	i, last := int(r.at[slot]), len(r.heap)-1
	moved := r.heap[last]
	r.heap = r.heap[:last]
	r.at[slot] = none
	if i < last {
		r.heap[i] = moved
		r.at[moved] = int32(i)
		r.settle(i)
	}
}

// settle moves what is at a place of the heap to where it belongs.
func (r *ranking) settle(i int) {
	for i > 0 && r.before(r.heap[i], r.heap[(i-1)/2]) {
		i = r.swap(i, (i-1)/2)
	}
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r.heap); child++ {
			if r.before(r.heap[child], r.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		i = r.swap(i, least)
	}
}

func (r *ranking) swap(i, j int) int {
	r.heap[i], r.heap[j] = r.heap[j], r.heap[i]
	r.at[r.heap[i]], r.at[r.heap[j]] = int32(i), int32(j)
	return j
}

func (r *ranking) clear() {
	r.heap = r.heap[:0]
	for i := range r.at {
		r.at[i] = none
	}
}

// ordered draws units by a score, the largest first, without replacement within a batch. With a cooldown a unit rests
// after its last use and while it is on lease. Where a unit belongs is a function of what the shard knows of it at its
// version, so snapshots and journals have nothing of it.
//
// A draw and a change of a unit cost O(log N). Scores that read age or since_use are computed for all units, O(N log
// N), before the first draw at another version.
type ordered struct {
	shard          *shard
	score          *score
	first, resting ranking         // by score; by the version at which the rest ends, the next first
	known          bool            // whether both are up to date but for the version
	version        rollout.Version // of the scores
	held           []int32         // drawn in this batch
}

func (o *ordered) add(s int32)           { o.place(s) }
func (o *ordered) restore(s int32)       { o.place(s) }
func (o *ordered) setUses(int32, int32)  {}
func (o *ordered) state() samplerState   { return samplerState{} }
func (o *ordered) setState(samplerState) { o.known = false }
func (o *ordered) begin(*rand.Rand, int) { o.follow() }

func (o *ordered) remove(s int32) {
	o.first.remove(s)
	o.resting.remove(s)
}

// place puts a unit, named by its first slot, where it belongs.
func (o *ordered) place(first int32) {
	if !o.known {
		return // follow does
	}
	s, cooldown := o.shard, o.shard.options.Cooldown
	it := &s.items[first]
	o.remove(first)
	switch {
	case s.undrawable(first) || cooldown > 0 && it.Leased > 0:
	case cooldown > 0 && it.LastUse != rollout.NoVersion && int64(s.version)-int64(it.LastUse) < int64(cooldown):
		o.resting.set(first, -float64(it.LastUse)-float64(cooldown))
	default:
		o.first.set(first, o.score.ofUnit(first))
	}
}

// follow places the units whose rest has ended, and all whose scores are those of another version.
func (o *ordered) follow() {
	s := o.shard
	if !o.known || o.score.byAge && o.version != s.version {
		o.known, o.version = true, s.version
		o.first.clear()
		o.resting.clear()
		for slot := range s.items {
			if s.holds(int32(slot)) && s.units.isFirst(&s.store, int32(slot)) {
				o.place(int32(slot))
			}
		}
	}
	for len(o.resting.heap) > 0 && -o.resting.numbers[o.resting.heap[0]] <= float64(s.version) {
		o.place(o.resting.heap[0])
	}
}

func (o *ordered) size() int {
	o.follow()
	return len(o.first.heap)
}

// rests reports whether a unit rests.
func (o *ordered) rests() bool {
	o.follow()
	return len(o.resting.heap) > 0
}

func (o *ordered) draw(*rand.Rand) (int32, float64) {
	s := o.first.heap[0]
	o.holdForBatch(s)
	return s, 1
}

func (o *ordered) holdForBatch(s int32) {
	o.remove(s)
	o.held = append(o.held, s)
}

// end places what the batch drew again. With a cooldown it is on lease, and its acknowledgement or release does.
func (o *ordered) end() {
	if o.shard.options.Cooldown == 0 {
		for _, s := range o.held {
			o.place(s)
		}
	}
	o.held = o.held[:0]
}
