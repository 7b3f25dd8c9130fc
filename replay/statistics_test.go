package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// The tests of invariant 4 compare how often each of a few cells is drawn with how often it should be. Their sizes give
// them power: a shift of 1% up and down in alternate cells adds draws x 1e-4 to the expected chi-square, enough to be
// rejected for all seeds but one; that it is so is tested too.
const (
	cells32Draws = 800_000 // adds 80 to an expectation of 31
	cells4Draws  = 500_000 // adds 50 to an expectation of 3
	critical31   = 61.10   // 0.1% of chi-square with 31 degrees of freedom lie above
	critical3    = 16.27   // 0.1% of chi-square with 3
)

func seeds() int { return tests.Rounds(20, 5, 1) }

// chiSquare is the statistic against equal shares.
func chiSquare(counts []int) float64 {
	return chiSquareOf(counts, slices.Repeat([]float64{1 / float64(len(counts))}, len(counts)))
}

// chiSquareOf is the statistic against given shares.
func chiSquareOf(counts []int, shares []float64) float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	x := 0.0
	for i, n := range counts {
		expected := float64(total) * shares[i]
		d := float64(n) - expected
		x += d * d / expected
	}
	return x
}

// biased draws like uniform or distinct, or like the first draw of an epoch, but prefers slots of even cells to those
// of odd ones by 1.01 to 0.99.
type biased struct {
	slots  []int32
	cell   func(s int32) int
	refill bool // after each batch; else draws are with replacement
	drawn  int
}

func (b *biased) draw(r *rand.Rand) int32 {
	n := len(b.slots) - b.drawn
	j := r.IntN(n)
	for b.cell(b.slots[j])%2 == 1 && r.Float64() >= 0.99/1.01 {
		j = r.IntN(n)
	}
	s := b.slots[j]
	if b.refill {
		b.slots[j], b.slots[n-1] = b.slots[n-1], s
		b.drawn++
	}
	return s
}

// experiment draws batches and counts cells of what was drawn; first counts only a batch's first draw.
type experiment struct {
	slots, batch, draws, cells int
	first                      bool
}

func (e experiment) cell(s int32) int { return int(s) * e.cells / e.slots }

func (e experiment) run(batch func(), draw func() int32, end func()) []int {
	counts := make([]int, e.cells)
	for n := 0; n < e.draws; {
		batch()
		for i := range e.batch {
			s := draw()
			if i == 0 || !e.first {
				counts[e.cell(s)]++
				n++
			}
		}
		end()
	}
	return counts
}

// right runs a sampler of the package.
func (e experiment) right(kind Sampler, seed uint64) []int {
	st := &store{}
	s := newSampler(&Options{Sampler: kind}, st)
	for range e.slots {
		s.add(st.put(&item{}, &rollout.Rollout{}))
	}
	random := rollout.Stream(seed, "right", 0)
	drawn := make([]int32, 0, e.batch)
	return e.run(func() { s.begin(random, e.batch); drawn = drawn[:0] }, func() int32 {
		slot, _ := s.draw(random)
		drawn = append(drawn, slot)
		return slot
	}, func() {
		s.end()
		if kind == Unseen || kind == LeastUsed {
			// Nothing was used: they are as if never drawn.
			for _, slot := range drawn {
				s.restore(slot)
			}
		}
	})
}

// wrong runs the biased sampler.
func (e experiment) wrong(refill bool, seed uint64) []int {
	b := &biased{cell: e.cell, refill: refill}
	for s := range int32(e.slots) {
		b.slots = append(b.slots, s)
	}
	random := rollout.Stream(seed, "wrong", 0)
	return e.run(func() { b.drawn = 0 }, func() int32 { return b.draw(random) }, func() {})
}

// Invariant 4.
func TestSamplersDrawWithEqualProbability(t *testing.T) {
	tests.OneGoroutine(t)
	many := experiment{slots: 64, batch: 8, draws: cells32Draws, cells: 32}
	// An epoch, or what was never drawn or least, gives all in turn: its first draw is what may lean.
	turns := experiment{slots: 4, batch: 4, draws: cells4Draws, cells: 4, first: true}
	for kind, c := range map[Sampler]struct {
		experiment
		critical float64
	}{
		Uniform: {many, critical31}, Distinct: {many, critical31}, Epoch: {turns, critical3},
		Unseen:    {turns, critical3},
		LeastUsed: {turns, critical3},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds()) {
				if x := chiSquare(c.right(kind, seed)); x > c.critical {
					t.Errorf("seed %d: chi-square %.1f", seed, x)
				}
			}
		})
	}
	for name, c := range map[string]struct {
		experiment
		refill   bool
		critical float64
	}{
		"with replacement": {many, false, critical31}, "without": {many, true, critical31},
		"in turns": {turns, true, critical3},
	} {
		t.Run("a sampler that leans is rejected "+name, func(t *testing.T) {
			tests.Long(t)
			t.Parallel()
			rejected := 0
			for seed := range uint64(seeds()) {
				if chiSquare(c.wrong(c.refill, seed)) > c.critical {
					rejected++
				}
			}
			if rejected < seeds()-1 {
				t.Errorf("a sampler that leans by 1%% was rejected for %d of %d seeds: the test lacks power",
					rejected, seeds())
			}
		})
	}
}

// Invariant 4, after 10,000 random operations.
func TestSamplersDrawWithEqualProbabilityAfterRandomOperations(t *testing.T) {
	tests.OneGoroutine(t)
	for _, kind := range []Sampler{Uniform, Distinct, Epoch, Unseen} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			const slots = 64
			table := mustNew(t, Options{Capacity: slots, Sampler: kind, MaxStaleness: 50, Seed: 11})
			random := rollout.Stream(11, "churn", 0)
			churn(t, table, random, 10_000)
			oldest := table.lastID - slots
			e := experiment{slots: slots, cells: 32}
			draws := cells32Draws
			if testing.Short() {
				draws /= 8
			}
			counts := make([]int, e.cells)
			for range draws / 8 {
				b, err := table.Sample(ctx, rollout.Request{Size: 8})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range b.Draws {
					counts[e.cell(int32(d.ID-oldest-1))]++
				}
			}
			if x := chiSquare(counts); x > critical31 {
				t.Errorf("chi-square %.1f of %v", x, counts)
			}
		})
	}
}

// churn does random insertions, updates, advances, draws and, through them, evictions, and leaves the table full of its
// newest rollouts.
func churn(t *testing.T, table *Table, random *rand.Rand, operations int) {
	t.Helper()
	each := max(1, table.options.GroupSize)
	fill := func(n int) {
		if each > 1 {
			n = each
		}
		if _, err := table.Insert(ctx, someGroup(random, n, table.Version())); err != nil {
			t.Fatal(err)
		}
	}
	for range operations {
		var err error
		switch random.IntN(4) {
		case 0:
			fill(1 + random.IntN(6))
		case 1:
			err = table.Advance(ctx, table.Version()+rollout.Version(random.IntN(2)))
		case 2:
			if table.lastID > 0 {
				err = updateOf(table, Priority{ID: 1 + rollout.ID(random.Uint64N(uint64(table.lastID))),
					Value: wide(random)})
			}
			if table.options.Sampler == Prioritized && random.IntN(20) == 0 {
				setTau(table, []float64{1, 500, math.Inf(1)}[random.IntN(3)])
			}
		case 3:
			if size := each * (1 + random.IntN(4)); statsOf(table).Present >= size {
				_, err = table.Sample(ctx, rollout.Request{Size: size})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range table.options.Capacity / each {
		fill(1)
	}
}

// weighted is a prioritized sampler over units of given weights, and how its draws are counted.
type weighted struct {
	spread Draws
	group  int // rollouts in a unit; 0: units are rollouts
	batch  int
	draws  int // that are counted
	cells  int
	first  bool // of each batch the first is counted; else, where they are stratified, any one
}

const weighedUnits = 64

func (w weighted) base(unit int) float64            { return 1 + float64(unit*7%11) }
func (w weighted) version(unit int) rollout.Version { return rollout.Version(10 * (unit * 5 % 64)) }
func (w weighted) cell(unit int) int                { return unit * w.cells / weighedUnits }

// shares is P = w/sum w with w = base^0.6 exp(0.6 v/500), added up by cells.
func (w weighted) shares() []float64 {
	shares, total := make([]float64, w.cells), 0.0
	for unit := range weighedUnits {
		x := math.Pow(w.base(unit), 0.6) * math.Exp(0.6*float64(w.version(unit))/500)
		shares[w.cell(unit)] += x
		total += x
	}
	for i := range shares {
		shares[i] /= total
	}
	return shares
}

// sampler is of package replay, with weights that lean up and down by so much in alternate cells.
func (w weighted) sampler(lean float64) (sampler, []int32) {
	p := prioritizedOptions()
	p.Draws = w.spread
	o, st := &p, &store{}
	if w.group > 0 {
		o.Unit = UnitGroup
	}
	s := newSampler(o, st).(*prioritized)
	var unitOf []int32 // by slot
	for unit := range weighedUnits {
		factor := 1 + lean
		if w.cell(unit)%2 == 1 {
			factor = 1 - lean
		}
		first, n := int32(len(st.items)), int32(max(1, w.group))
		for k := range n {
			// The mean of a group's bases counts, and the least of its versions.
			slot := st.put(&item{ID: rollout.ID(len(st.items) + 1), Version: w.version(unit) + 50*rollout.Version(k)},
				&rollout.Rollout{})
			st.links[slot].Mate = first + (k+1)%n
			s.enter(slot, w.base(unit)*math.Pow(factor, 1/p.PriorityExponent)*(0.5+float64(k+1)/float64(n+1)))
			unitOf = append(unitOf, int32(unit))
		}
		s.add(first)
	}
	return s, unitOf
}

// run counts cells: every draw, or where they are stratified one of each batch.
func (w weighted) run(lean float64, seed uint64) []int {
	s, unitOf := w.sampler(lean)
	random, choice := rollout.Stream(seed, "weighted", 0), rollout.Stream(seed, "choice", 0)
	counts := make([]int, w.cells)
	for n := 0; n < w.draws; {
		s.begin(random, w.batch)
		chosen := choice.IntN(w.batch)
		if w.first {
			chosen = 0
		}
		for i := range w.batch {
			slot, _ := s.draw(random)
			if i == chosen || w.spread == Independent {
				counts[w.cell(int(unitOf[slot]))]++
				n++
			}
		}
		s.end()
	}
	return counts
}

// Invariant 4.
func TestPrioritizedSamplersDrawWithTheProbabilitiesOfTheDefinition(t *testing.T) {
	tests.OneGoroutine(t)
	for name, c := range map[string]struct {
		weighted
		critical float64
	}{
		"independent":        {weighted{Independent, 0, 32, cells32Draws, 32, false}, critical31},
		"independent groups": {weighted{Independent, 3, 32, cells32Draws, 32, false}, critical31},
		"stratified":         {weighted{Stratified, 0, 2, cells4Draws, 4, false}, critical3},
		"stratified groups":  {weighted{Stratified, 3, 2, cells4Draws, 4, true}, critical3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rejected, shares := 0, c.shares()
			for seed := range uint64(seeds()) {
				if x := chiSquareOf(c.run(0, seed), shares); x > c.critical {
					t.Errorf("seed %d: chi-square %.1f", seed, x)
				}
				if chiSquareOf(c.run(0.01, seed+20), shares) > c.critical {
					rejected++
				}
			}
			if !testing.Short() && rejected < seeds()-1 {
				t.Errorf("a sampler that leans by 1%% was rejected for %d of %d seeds: the test lacks power",
					rejected, seeds())
			}
		})
	}
}

// Invariant 4, after 10,000 random operations.
func TestPrioritizedSamplersDrawWithTheProbabilitiesOfTheDefinitionAfterRandomOperations(t *testing.T) {
	tests.OneGoroutine(t)
	for _, spread := range []Draws{Independent, Stratified} {
		for _, group := range []int{0, 4} {
			t.Run(fmt.Sprint(spread, group), func(t *testing.T) {
				t.Parallel()
				p := prioritizedOptions()
				p.Draws = spread
				o := withPriorities(p, Options{Capacity: 64 * max(1, group), MaxStaleness: 50, Seed: 12})
				if group > 0 {
					o.Unit, o.GroupSize = UnitGroup, group
				}
				table, random := mustNew(t, o), rollout.Stream(12, "churn", 0)
				churn(t, table, random, 10_000)
				units, draws, critical, counts := 8, cells32Draws, critical31, make([]int, 32)
				if spread == Stratified { // one of each batch is counted
					units, draws, critical, counts = 2, cells4Draws, critical3, make([]int, 4)
				}
				if testing.Short() {
					draws /= 8
				}
				cells, shares := defined(t, table, random, len(counts))
				for n := 0; n < draws; {
					b := mustSample(t, table, rollout.Request{Size: units * max(1, group)})
					if spread == Stratified {
						counts[cells[b.Draws[random.IntN(units)*max(1, group)].ID]]++
						n++
						continue
					}
					for i := 0; i < len(b.Draws); i += max(1, group) {
						counts[cells[b.Draws[i].ID]]++
						n++
					}
				}
				if x := chiSquareOf(counts, shares); x > critical {
					t.Errorf("chi-square %.1f of %v for %v", x, counts, shares)
				}
			})
		}
	}
}

// defined gives all rollouts of a table new bases, and returns their cells and these cells' probabilities by
// definition.
func defined(t *testing.T, table *Table, random *rand.Rand, n int) (cells map[rollout.ID]int, shares []float64) {
	t.Helper()
	const tau = 30
	setTau(table, tau)
	held, each := table.Inspect().Held(), max(1, table.options.GroupSize)
	cells, shares = make(map[rollout.ID]int), make([]float64, n)
	total := 0.0
	for i := 0; i < len(held); i += each {
		base, age := 0.0, 0
		for _, h := range held[i : i+each] {
			value := 0.5 + random.Float64()
			if err := updateOf(table, Priority{h.ID, value}); err != nil {
				t.Fatal(err)
			}
			base += (value + 1e-6) / float64(each)
			age = max(age, h.Age)
			cells[h.ID] = i * len(shares) / len(held)
		}
		w := math.Pow(base*math.Exp(-float64(age)/tau), 0.6)
		shares[cells[held[i].ID]] += w
		total += w
	}
	for i := range shares {
		shares[i] /= total
	}
	return cells, shares
}

// Invariant 4: of a batch in which units are exhausted, the reported probability is conditional on that.
func TestPrioritizedDrawsAfterAnExhaustionFallOnTheOthersWithTheirShares(t *testing.T) {
	tests.OneGoroutine(t)
	p := prioritizedOptions()
	p.PriorityBase, p.Draws, p.PriorityExponent = BaseReward, Independent, 1
	table := mustNew(t, withPriorities(p, Options{Capacity: 4, MaxUses: 1, Seed: 5}))
	mustInsert(t, table, group(0, 1, 2, 3, 4))
	var shares []float64 // of ordered pairs of different rollouts
	for a := 1.0; a <= 4; a++ {
		for b := 1.0; b <= 4; b++ {
			share := a / 10 * b / (10 - a)
			if a == b {
				share = math.SmallestNonzeroFloat64
			}
			shares = append(shares, share)
		}
	}
	counts := make([]int, len(shares))
	for range 100_000 {
		b := mustLease(t, table, rollout.Request{Size: 2})
		if err := table.Release(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
		pair := 4*int(b.Draws[0].ID-1) + int(b.Draws[1].ID-1)
		counts[pair]++
		if got := b.Draws[0].Probability * b.Draws[1].Probability; math.Abs(got-shares[pair]) > 1e-5 {
			t.Fatalf("the draws %v have probabilities %v and %v, together by definition %v", drawnIDs(b),
				b.Draws[0].Probability, b.Draws[1].Probability, shares[pair])
		}
	}
	if chiSquareOf(counts, shares) > 31.26 { // 0.1% of chi-square with 11 degrees of freedom lie above
		t.Errorf("chi-square %.1f of %v", chiSquareOf(counts, shares), counts)
	}
}

// Invariant 4: of those used equally little, each is drawn as often.
func TestTheLeastUsedAreDrawnWithEqualProbabilityAfterRandomOperations(t *testing.T) {
	tests.OneGoroutine(t)
	t.Parallel()
	table := mustNew(t, Options{Capacity: 64, Sampler: LeastUsed, MaxStaleness: 50, Seed: 13})
	churn(t, table, rollout.Stream(13, "churn", 0), 10_000)
	mustSample(t, table, rollout.Request{Size: 32})
	cell := make(map[rollout.ID]int)
	for _, h := range table.Inspect().Held() {
		if h.Uses == 0 {
			cell[h.ID] = len(cell)
		}
	}
	if len(cell) != 32 {
		t.Fatalf("%d were never used", len(cell))
	}
	draws := cells32Draws
	if testing.Short() {
		draws /= 8
	}
	counts := make([]int, 32)
	for range draws {
		b := mustLease(t, table, rollout.Request{Size: 1})
		i, ok := cell[b.Draws[0].ID]
		if !ok || b.Draws[0].Probability != 1.0/32 {
			t.Fatalf("drawn was %+v", b.Draws[0])
		}
		counts[i]++
		if err := table.Release(ctx, b.ID); err != nil {
			t.Fatal(err)
		}
	}
	if x := chiSquare(counts); x > critical31 {
		t.Errorf("chi-square %.1f of %v", x, counts)
	}
}
