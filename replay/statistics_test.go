package replay

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// The tests of invariant 4 compare how often each of a few cells is drawn with how often it should be.
// Their sizes give them power: a shift of 1% up and down in alternate cells adds draws x 1e-4 to the
// expected chi-square, enough to be rejected for 19 of 20 seeds; that it is so is tested too.
const (
	cells32Draws = 800_000 // adds 80 to an expectation of 31
	cells4Draws  = 500_000 // adds 50 to an expectation of 3
	critical31   = 61.10   // 0.1% of chi-square with 31 degrees of freedom lie above
	critical3    = 16.27   // 0.1% of chi-square with 3
	seeds        = 20
)

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

// biased draws like uniform or distinct, or like the first draw of an epoch, but prefers slots of even
// cells to those of odd ones by 1.01 to 0.99.
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
	many := experiment{slots: 64, batch: 8, draws: cells32Draws, cells: 32}
	// An epoch, or what was never drawn or least, gives all in turn: its first draw is what may lean.
	turns := experiment{slots: 4, batch: 4, draws: cells4Draws, cells: 4, first: true}
	for kind, c := range map[Sampler]struct {
		experiment
		critical float64
	}{
		Uniform: {many, critical31}, Distinct: {many, critical31}, Epoch: {turns, critical3}, Unseen: {turns, critical3},
		LeastUsed: {turns, critical3},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds) {
				if testing.Short() && seed >= 1 {
					break
				}
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
		"with replacement": {many, false, critical31}, "without": {many, true, critical31}, "in turns": {turns, true, critical3},
	} {
		t.Run("a sampler that leans is rejected "+name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("twenty seeds of a sampler that leans take too long under the race detector: they run without -short, on CI too")
			}
			t.Parallel()
			rejected := 0
			for seed := range uint64(seeds) {
				if chiSquare(c.wrong(c.refill, seed)) > c.critical {
					rejected++
				}
			}
			if rejected < seeds-1 {
				t.Errorf("a sampler that leans by 1%% was rejected for %d of %d seeds: the test lacks power", rejected, seeds)
			}
		})
	}
}

// Invariant 4, after 10,000 random operations.
func TestSamplersDrawWithEqualProbabilityAfterRandomOperations(t *testing.T) {
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

// churn does random insertions, updates, advances, draws and, through them, evictions, and leaves the
// table full of its newest rollouts.
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
				err = updateOf(table, Priority{ID: 1 + rollout.ID(random.Uint64N(uint64(table.lastID))), Value: wide(random)})
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
