package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Bounds of what trainers report, so that nothing computed of it overflows or crowds out all else for good.
const (
	maxMeasurement  = 1e12 // priorities, advantages, TD errors and norms
	maxTokens       = math.MaxInt32
	maxRatioSum     = 1e20 // of importance ratios
	maxRatioSquares = 1e40
)

// Update gives rollouts new bases, all or none: ids and priorities have one length, priorities are 0 to 1e12, and
// priority_epsilon is added. With a sampler that is not prioritized, and with an expression as priority, they are
// checked and change nothing. A priority for an evicted rollout changes nothing and is counted (invariant 7). An error
// wraps rollout.ErrInvalid if a value is out of range or an ID was never given. A context that ends meanwhile may leave
// some of them set: repeat it.
func (t *Table) Update(ctx context.Context, ids []rollout.ID, priorities []float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(ids) != len(priorities) {
		return &rollout.FieldError{Row: min(len(ids), len(priorities)), Field: "priorities",
			Value: fmt.Sprintf("%d for %d ids", len(priorities), len(ids)), Remedy: "give one for each id"}
	}
	last := t.newestID()
	for i, p := range priorities {
		if !(p >= 0 && p <= maxMeasurement) {
			return &rollout.FieldError{Row: i, Field: "priority", Value: fmt.Sprint(p),
				Remedy: fmt.Sprintf("give a number from 0 to %g", maxMeasurement)}
		}
		if err := checkID(i, ids[i], last); err != nil {
			return err
		}
	}
	return t.setBases(ctx, len(ids), func(i int) rollout.ID { return ids[i] },
		func(i int) rollout.Feedback { return rollout.Feedback{ID: ids[i]} },
		func(p *prioritized, _ int32, i int) float64 {
			if p.expression != nil {
				return math.NaN()
			}
			return p.o.withEpsilon(priorities[i])
		})
}

// Report gives the table what a trainer measured of its draws: the ratios, from which it learns how the effective
// sample size falls with age, and new bases, of which sampler prioritized takes the one of its priority_base. A base
// that was not measured stays. With bases reward, recency and function a report only ends an entry at the maximum, and
// with an expression it changes none.
// Where entry_until is replay or refresh, a report leaves what has entered at the maximum and was not replayed yet as
// it is. Reports of evicted rollouts count as in [Table.Update], and errors are as there.
func (t *Table) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	last := t.newestID()
	for i, f := range feedback {
		if err := checkID(i, f.ID, last); err != nil {
			return err
		}
		if err := checkFeedback(i, f); err != nil {
			return err
		}
	}
	err := t.setBases(ctx, len(feedback), func(i int) rollout.ID { return feedback[i].ID },
		func(i int) rollout.Feedback { return feedback[i] },
		func(w *prioritized, slot int32, i int) float64 {
			it := &w.store.items[slot]
			switch {
			case w.keepsMax(slot):
			case w.o.learnsBase():
				if m := w.o.reportedBase(feedback[i]); m.Known {
					return w.o.withEpsilon(m.Value)
				}
			case it.is(atMax):
				return w.o.ownBase(w.store.rollouts[slot], it.Advantage)
			}
			return math.NaN()
		})
	if err != nil {
		return err // before the ratios: it may be repeated
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range feedback {
		t.ratios.add(f)
	}
	return nil
}

func (t *Table) newestID() rollout.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastID
}

func checkID(row int, id, last rollout.ID) error {
	if id == 0 || id > last {
		remedy := "use an id that the table returned: it has returned none yet"
		if last > 0 {
			remedy = fmt.Sprintf("use an id that the table returned, 1 to %d", last)
		}
		return &rollout.FieldError{Row: row, Field: "id", Value: fmt.Sprint(id), Remedy: remedy}
	}
	return nil
}

// checkFeedback refuses measurements that are impossible or out of bounds.
func checkFeedback(row int, f rollout.Feedback) error {
	for _, x := range []struct {
		field       string
		value, most float64
	}{
		{"advantage", f.Advantage.Value, maxMeasurement}, {"td_error", f.TDError.Value, maxMeasurement},
		{"grad_norm", f.GradNorm.Value, maxMeasurement}, {"tokens", f.Tokens, maxTokens},
		{"ratio_sum", f.RatioSum, maxRatioSum}, {"ratio_squares", f.RatioSquares, maxRatioSquares},
	} {
		if !(x.value >= 0 && x.value <= x.most) {
			return &rollout.FieldError{Row: row, Field: x.field, Value: fmt.Sprint(x.value),
				Remedy: fmt.Sprintf("give a number from 0 to %g, or nothing where it was not measured", x.most)}
		}
	}
	if f.Staleness < 0 {
		return &rollout.FieldError{Row: row, Field: "staleness", Value: fmt.Sprint(f.Staleness),
			Remedy: "give the draw's, at least 0"}
	}
	return nil
}

// setBases gives n rollouts the bases that base returns, in order. NaN and infinities leave the old base. It counts the
// rollouts that are gone. Feedback is what a history remembers. It looks for each rollout in each shard, which is
// slow in tables of many shards.
func (t *Table) setBases(
	ctx context.Context, n int, id func(i int) rollout.ID, feedback func(i int) rollout.Feedback,
	base func(w *prioritized, slot int32, i int) float64,
) error {
	left, slots := make([]int32, n), make([]int32, n)
	for i := range left {
		left[i] = int32(i)
	}
	for _, s := range t.shards {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.do(func(s *shard) {
			s.history.begin(ctx)
			left = s.setBases(left, slots, id, feedback, base)
		})
	}
	if len(left) > 0 {
		t.noteLate(left, feedback)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ignored += uint64(len(left))
	}
	return nil
}

// noteLate has the histories note reports of rollouts that have left.
func (t *Table) noteLate(late []int32, feedback func(i int) rollout.Feedback) {
	if t.options.History == 0 {
		return
	}
	for _, s := range t.shards {
		s.do(func(s *shard) {
			for _, i := range late {
				s.history.reportLeft(feedback(int(i)))
			}
		})
	}
}

// setBases gives those of the rollouts left that the shard holds their bases, and returns the others. It overwrites
// slots.
func (s *shard) setBases(
	left, slots []int32, id func(i int) rollout.ID, feedback func(i int) rollout.Feedback,
	base func(w *prioritized, slot int32, i int) float64,
) (elsewhere []int32) {
	for k, i := range left { // all before the first change, so that their waits for memory overlap
		slots[k] = s.index.find(id(int(i)))
	}
	if s.prioritized != nil {
		s.prioritized.prefetchBases(slots[:len(left)])
	}
	elsewhere = left[:0]
	for k, i := range left {
		if slots[k] == none {
			elsewhere = append(elsewhere, i)
			continue
		}
		if w := s.prioritized; w != nil {
			if b := base(w, slots[k], int(i)); b <= math.MaxFloat64 {
				w.report(slots[k], b)
				if s.changes != nil {
					s.changes.changed(slots[k])
				}
			}
		}
		if s.history != nil {
			s.history.report(slots[k], feedback(int(i)))
		}
	}
	if s.prioritized != nil {
		s.prioritized.reweigh()
	}
	return elsewhere
}

// refresh ends the entries at the maximum of what was handed out as fresh, where entry_until says so.
func (s *shard) refresh() {
	w := s.prioritized
	if w == nil || w.o.EntryUntil != UntilRefresh {
		return
	}
	for slot, r := range s.rollouts {
		it, at := &s.items[slot], int32(slot)
		if r == nil || !it.is(atMax) || it.is(evicted) || s.waitsFresh(s.units.first(&s.store, at)) {
			continue
		}
		w.report(at, w.o.ownBase(r, it.Advantage))
		if s.changes != nil {
			s.changes.changed(at)
		}
	}
	w.reweigh()
}

// ratios is the measured ratios rho = pi/b by age of the rollout, smoothed so that newer measurements count more.
// Fields are exported for encoding/gob.
type ratios struct {
	Bins    []ratioBin
	Version rollout.Version // of the table, now
}

// ratioBin is the tokens of a range of ages. A measurement of fading versions ago counts 1/e of one made now.
type ratioBin struct {
	Tokens, Sum, Squares float64
	Version              rollout.Version // at which they were as they stand
}

const fading = 100.0 // versions

// Ages have a bin each below exactAges, then there are binsPerOctave to each doubling.
const (
	exactAges     = 64
	binsPerOctave = 8
)

// binOf returns the bin of an age, and bounds the ages of a bin.
func binOf(age int) int {
	if age < exactAges {
		return age
	}
	return exactAges + int(binsPerOctave*math.Log2(float64(age)/exactAges))
}

func bounds(bin int) (first, last int) {
	if bin < exactAges {
		return bin, bin
	}
	edge := func(b int) int {
		at := int(exactAges * math.Exp2(float64(b-exactAges)/binsPerOctave))
		for binOf(at) < b {
			at++
		}
		for at > exactAges && binOf(at-1) >= b {
			at--
		}
		return at
	}
	return edge(bin), edge(bin+1) - 1
}

// add takes in one draw's ratios, where they were measured.
func (e *ratios) add(f rollout.Feedback) {
	if !(f.Tokens > 0 && f.RatioSum > 0 && f.RatioSquares > 0) {
		return
	}
	b := binOf(int(f.Staleness))
	for b >= len(e.Bins) {
		e.Bins = append(e.Bins, ratioBin{Version: e.Version})
	}
	e.Bins[b] = e.faded(b)
	e.Bins[b].Tokens += f.Tokens
	e.Bins[b].Sum += f.RatioSum
	e.Bins[b].Squares += f.RatioSquares
}

// faded returns a bin as it counts now. ESS/n does not change by fading: it is a ratio.
func (e *ratios) faded(b int) ratioBin {
	bin := e.Bins[b]
	k := math.Exp(-float64(max(e.Version-bin.Version, 0)) / fading)
	return ratioBin{bin.Tokens * k, bin.Sum * k, bin.Squares * k, e.Version}
}

// rewind sets the version back. Later measurements stay, dated to it.
func (e *ratios) rewind(v rollout.Version) {
	for b := range e.Bins {
		e.Bins[b].Version = min(e.Bins[b].Version, v)
	}
	e.Version = v
}

// AgeESS is the effective sample size of tokens of a range of ages.
type AgeESS struct {
	First, Last int     // versions
	ESS         float64 // ESS/n = (sum rho)^2/(n sum rho^2), in (0, 1]
	Tokens      float64 // behind it, those measured longer ago counting less
}

// measured returns the ages with enough measurements, in ascending order.
func (e *ratios) measured() []AgeESS {
	var list []AgeESS
	for b := range e.Bins {
		bin := e.faded(b)
		if bin.Tokens < 1 {
			continue
		}
		first, last := bounds(b)
		list = append(list, AgeESS{first, last, min(bin.Sum*bin.Sum/(bin.Tokens*bin.Squares), 1), bin.Tokens})
	}
	return list
}

// curve is ESS/n as a function of age: the non-increasing curve nearest to the measurements, log-linear between the
// ages measured, and falling beyond the last one at the mean rate up to it.
type curve struct{ ages, logs []float64 }

// newCurve makes the measured logarithms fall by pooling neighbours that rise into their mean, weighted by tokens
// (isotonic regression): so one noisy age does not distort its neighbours.
func newCurve(measured []AgeESS) curve {
	type pool struct{ log, tokens, ages float64 }
	c := curve{ages: []float64{0}, logs: []float64{0}} // a rollout of the present policy has ratio 1
	var pools []pool
	for _, m := range measured {
		age := float64(m.First+m.Last) / 2
		if age == 0 {
			continue
		}
		c.ages = append(c.ages, age)
		last := pool{math.Log(m.ESS), max(m.Tokens, 1), 1}
		for n := len(pools); n > 0 && pools[n-1].log < last.log; n = len(pools) {
			before := pools[n-1]
			tokens := before.tokens + last.tokens
			last = pool{(before.log*before.tokens + last.log*last.tokens) / tokens, tokens, before.ages + last.ages}
			pools = pools[:n-1]
		}
		pools = append(pools, last)
	}
	for _, p := range pools {
		for range int(p.ages) {
			c.logs = append(c.logs, p.log)
		}
	}
	return c
}

// at returns the logarithm of ESS/n at an age.
func (c curve) at(age float64) float64 {
	n := len(c.ages)
	if last := c.ages[n-1]; age >= last {
		if last == 0 {
			return 0
		}
		return c.logs[n-1] * age / last
	}
	i := 1
	for c.ages[i] < age {
		i++
	}
	share := (age - c.ages[i-1]) / (c.ages[i] - c.ages[i-1])
	return c.logs[i-1] + share*(c.logs[i]-c.logs[i-1])
}

func (t *Table) setAgeDecay(tau float64) {
	for _, s := range t.shards {
		s.mu.Lock()
		s.prioritized.setAgeDecay(tau)
		s.mu.Unlock()
	}
}

// autoEvery is the least number of versions between two moves of an automatic age decay.
const autoEvery = 100

// adaptAgeDecay moves tau, at most once per autoEvery versions, to where a batch would have the target ESS. The caller
// must hold Table.mu.
func (t *Table) adaptAgeDecay() {
	if t.options.TargetESS == 0 || t.version-t.ageDecayMoved < autoEvery {
		return
	}
	known := t.ratios.measured()
	if len(known) < 2 {
		return
	}
	t.ageDecayMoved = t.version
	t.setAgeDecay(t.options.solveAgeDecay(t.masses(), newCurve(known)))
}

// ageMass is the undecayed weight of the units of one age, as a logarithm.
type ageMass struct{ age, log float64 }

// masses adds up base^alpha by age over all shards, in ascending order of age.
func (t *Table) masses() []ageMass {
	alpha := t.options.PriorityExponent
	byVersion := make(map[rollout.Version]float64)
	for _, s := range t.shards {
		s.do(func(s *shard) {
			w := s.prioritized
			w.eachDrawable(func(slot int32) {
				v := w.units.version(w.store, slot)
				x := alpha * math.Log(w.base(slot))
				if sum, ok := byVersion[v]; ok { // added up as logarithms, which no exponent makes overflow
					x, sum = max(x, sum), min(x, sum)
					x += math.Log1p(math.Exp(sum - x))
				}
				byVersion[v] = x
			})
		})
	}
	list := make([]ageMass, 0, len(byVersion))
	for _, v := range slices.SortedFunc(maps.Keys(byVersion), func(a, b rollout.Version) int {
		return cmp.Compare(b, a)
	}) {
		list = append(list, ageMass{float64(t.version - v), byVersion[v]})
	}
	return list
}

// mixtureESS is ESS/n of a batch whose tokens come from ages by their masses decayed with a rate per version: 1 over
// the mean of 1/e(age) (docs/METHODS.md, section 3).
func mixtureESS(masses []ageMass, e curve, rate float64) float64 {
	if len(masses) == 0 {
		return 1
	}
	heaviest := math.Inf(-1)
	for _, m := range masses {
		heaviest = max(heaviest, m.log-rate*m.age)
	}
	var total, inverse float64
	for _, m := range masses {
		x := m.log - rate*m.age - heaviest
		total += math.Exp(x)
		inverse += math.Exp(x - e.at(m.age)) // in one: the factors may be 0 and infinite
	}
	return total / inverse
}

// The range of an age decay that follows target_ess.
const (
	minAutoDecay      = 1
	greatestAutoDecay = 1e6
)

// solveAgeDecay bisects log tau for the target: the more old rollouts count, the lower is the ESS.
func (o *Options) solveAgeDecay(masses []ageMass, e curve) float64 {
	short := func(tau float64) bool { return mixtureESS(masses, e, o.decayRate(tau)) < o.TargetESS }
	low, high := float64(minAutoDecay), float64(greatestAutoDecay)
	if !short(high) {
		return high
	}
	if short(low) {
		return low
	}
	for range 60 {
		middle := math.Sqrt(low * high)
		if short(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}
