package replay

import (
	"math"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

func TestTheESSOfAMixtureMatchesNumbersWorkedByHand(t *testing.T) {
	half := curve{ages: []float64{0, 10}, logs: []float64{0, math.Log(0.5)}}
	quarter := math.Log(0.25)
	for name, c := range map[string]struct {
		masses []ageMass
		rate   float64
		want   float64
	}{
		"nothing":  {nil, 0, 1},
		"the new":  {[]ageMass{{0, 3}}, 1, 1},
		"the old":  {[]ageMass{{10, -50}}, 1, 0.5},
		"in equal": {[]ageMass{{0, 0}, {10, 0}}, 0, 2.0 / 3},
		// A decay to half in 10 versions: 2/3 and 1/3.
		"decaying": {[]ageMass{{0, 700}, {10, 700}}, math.Ln2 / 10, 0.75},
		// 1/2 beside 1/4, e at age 5 is the root of 1/2, at 20 the square.
		"between": {[]ageMass{{5, 2 * quarter}, {20, 3 * quarter}}, 0, 1 / (0.8/math.Sqrt(0.5) + 0.2/0.25)},
		// e is 2^-100000 and its share of the mass e^-1000000: neither is a float64.
		"ancient": {[]ageMass{{0, 0}, {1e6, 0}}, 1, 1},
	} {
		if got := mixtureESS(c.masses, half, c.rate); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := mixtureESS([]ageMass{{0, 0}, {1e6, 0}}, half, 0); got != 0 {
		t.Errorf("half of it ancient: %v", got)
	}
}

func TestTheCurveOfTheESSFallsLogLinearly(t *testing.T) {
	c := newCurve([]AgeESS{
		{First: 0, Last: 0, ESS: 0.9, Tokens: 9}, {First: 2, Last: 2, ESS: 0.25, Tokens: 10}, {First: 3, Last: 5, ESS: 1, Tokens: 10},
		{First: 8, Last: 8, ESS: 0.125, Tokens: 10},
	})
	for age, want := range map[float64]float64{
		0: 1, 1: math.Sqrt(0.5), 2: 0.5, 3: 0.5, 4: 0.5, // 0.25 and 1 are pooled
		6: 0.25, 8: 0.125, 16: 0.125 * 0.125, // beyond the last at the mean rate up to it
	} {
		if got := math.Exp(c.at(age)); math.Abs(got-want) > 1e-12 {
			t.Errorf("at age %v it is %v, want %v", age, got, want)
		}
	}
	// Three in a row that rise are pooled by their tokens.
	c = newCurve([]AgeESS{
		{First: 1, Last: 1, ESS: 0.5, Tokens: 6}, {First: 2, Last: 2, ESS: math.Exp(-3), Tokens: 1}, {First: 3, Last: 3, ESS: math.Exp(-1), Tokens: 2},
		{First: 4, Last: 4, ESS: math.Exp(-0.7), Tokens: 1},
	})
	for age, want := range map[float64]float64{1: 0.5, 2: math.Exp(-1.425), 3: math.Exp(-1.425), 4: math.Exp(-1.425)} {
		if got := math.Exp(c.at(age)); math.Abs(got-want) > 1e-12 {
			t.Errorf("at age %v it is %v, want %v", age, got, want)
		}
	}
	if got := newCurve(nil).at(1000); got != 0 {
		t.Errorf("with nothing measured its logarithm is %v", got)
	}
}

func TestAgesHaveOneBinEach(t *testing.T) {
	next := 0
	for bin := range 260 {
		first, last := bounds(bin)
		if first != next || last < first || binOf(first) != bin || binOf(last) != bin {
			t.Fatalf("bin %d is ages %d to %d, in bins %d and %d; the one before ends before %d", bin, first, last, binOf(first), binOf(last), next)
		}
		next = last + 1
	}
	if binOf(63) != 63 || binOf(64) != 64 || binOf(128) != 72 || binOf(math.MaxInt32) > 264 {
		t.Errorf("bins are %d, %d, %d, %d", binOf(63), binOf(64), binOf(128), binOf(math.MaxInt32))
	}
}

func TestWhatWasMeasuredLongAgoCountsLess(t *testing.T) {
	table := mustNew(t, Options{Capacity: 4})
	mustInsert(t, table, group(0, 1))
	report := func(tokens, sum, squares float64) {
		t.Helper()
		f := rollout.Feedback{ID: 1, Staleness: 7, Tokens: tokens, RatioSum: sum, RatioSquares: squares}
		if err := table.Report(ctx, f, rollout.Feedback{ID: 1, Staleness: 9}); err != nil {
			t.Fatal(err)
		}
	}
	one := func() AgeESS {
		t.Helper()
		list := table.Inspect().ESSByAge()
		if len(list) != 1 || list[0].First != 7 || list[0].Last != 7 {
			t.Fatalf("known are %v", list)
		}
		return list[0]
	}
	report(100, 100, 200)
	if got := one(); got.ESS != 0.5 || got.Tokens != 100 {
		t.Errorf("measured was %v", got)
	}
	if err := table.Advance(ctx, 100); err != nil {
		t.Fatal(err)
	}
	if got := one(); math.Abs(got.Tokens-100/math.E) > 1e-9 || math.Abs(got.ESS-0.5) > 1e-12 {
		t.Errorf("100 versions later it counts as %v", got)
	}
	report(100/math.E, 100/math.E, 100/math.E)
	// Sums of 200/e, of squares 300/e: 4/(2*3).
	if got := one(); math.Abs(got.ESS-2.0/3) > 1e-12 {
		t.Errorf("together it is %v", got)
	}
	// After a rewind nothing lies ahead, and nothing counts more than it did.
	tokens := one().Tokens
	if err := table.Rewind(ctx, 10); err != nil {
		t.Fatal(err)
	}
	if got := one(); got.Tokens != tokens {
		t.Errorf("a rewind made it %v", got)
	}
	report(1e9, 2e9, 1e9) // as no ratios are
	if got := one(); got.ESS != 1 {
		t.Errorf("it is %v", got)
	}
}

func TestAnAutomaticAgeDecayStaysInItsRange(t *testing.T) {
	p := prioritizedOptions()
	masses := []ageMass{{0, 0}, {1000, 0}}
	for target, want := range map[float64]float64{0.99999999: leastAutoDecay, 1e-9: greatestAutoDecay} {
		p.TargetESS = target
		// Falling by 1% a version; by so little that the target is met anyway.
		if got := p.solveAgeDecay(append(masses, ageMass{1, 3}), curve{[]float64{0, 1}, []float64{0, -0.01}}); got != want {
			t.Errorf("for a target of %v tau is %v, want %v", target, got, want)
		}
	}
	p.TargetESS = 0.9
	e := curve{[]float64{0, 1000}, []float64{0, math.Log(0.5)}}
	tau := p.solveAgeDecay(masses, e)
	// 1/(1 + q) = 0.9 with q the share of the old; q/(1-q) = exp(-0.6 1000/tau).
	q := 1/0.9 - 1
	if want := -600 / math.Log(q/(1-q)); math.Abs(tau-want) > 1e-6*want {
		t.Errorf("tau is %v, want %v", tau, want)
	}
	p.Decay = AfterExponent
	if got := p.solveAgeDecay(masses, e); math.Abs(got-tau/0.6) > 1e-6*got {
		t.Errorf("with decay after the exponent tau is %v, want %v", got, tau/0.6)
	}
}

// Where the ESS falls as exp(-age/c), the age decay ends where a batch has the target, however bases are spread; from above and
// from below, over shards too.
func TestAnAutomaticAgeDecayHoldsTheTarget(t *testing.T) {
	for _, start := range []float64{5, 1e5} {
		p := prioritizedOptions()
		p.AgeDecay, p.TargetESS = Versions(start), 0.8
		table := mustNew(t, withPriorities(p, Options{Capacity: 4000, Shards: 2}))
		random := rollout.Stream(1, "target", 0)
		const c = 300.0
		tau, moved := table.Inspect().AgeDecay(), rollout.Version(0)
		for v := range rollout.Version(1500) {
			for range 2 { // older ones have the greater bases, so that the exponent matters
				for _, id := range mustInsert(t, table, someGroup(random, 2, v)) {
					if err := updateOf(table, Priority{id, 1 + float64(1500-v)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := updateOf(table, Priority{table.lastID, wide(random)}); err != nil { // far apart, also those that leave
				t.Fatal(err)
			}
			if v%10 == 0 {
				if err := updateOf(table, Priority{table.lastID, 1}); err != nil {
					t.Fatal(err)
				}
			}
			age := random.Int32N(min(int32(v), 1000) + 1)
			f := rollout.Feedback{ID: table.lastID, Staleness: age, Advantage: rollout.Measured(1), Tokens: 100, RatioSum: 100, RatioSquares: 100 * math.Exp(float64(age)/c)}
			if err := table.Report(ctx, f); err != nil {
				t.Fatal(err)
			}
			if err := table.Advance(ctx, v+1); err != nil {
				t.Fatal(err)
			}
			if now := table.Inspect().AgeDecay(); now != tau {
				if v+1-moved < 100 {
					t.Fatalf("tau moved at versions %d and %d", moved, v+1)
				}
				tau, moved = now, v+1
			}
		}
		if moved != 1500 {
			t.Fatalf("tau moved last at version %d", moved)
		}
		inverse := 0.0
		for _, a := range table.Inspect().ByAge() {
			inverse += a.Probability * math.Exp(float64(a.Age)/c)
		}
		if got := 1 / inverse; math.Abs(got-0.8) > 0.01 {
			t.Errorf("from tau %v the ESS is %v at tau %v", start, got, tau)
		}
	}
}

// Without a target, or with too little known, it stays.
func TestAnAgeDecayStaysWithoutATarget(t *testing.T) {
	for _, target := range []float64{0, 0.8} {
		p := prioritizedOptions()
		p.TargetESS = target
		table := mustNew(t, withPriorities(p, Options{Capacity: 4}))
		mustInsert(t, table, group(0, 1))
		for age := range int32(4) {
			if target > 0 {
				age = 3 // one age alone makes no curve
			}
			if err := table.Report(ctx, rollout.Feedback{ID: 1, Staleness: age, Tokens: 9, RatioSum: 9, RatioSquares: 30}); err != nil {
				t.Fatal(err)
			}
		}
		if err := table.Advance(ctx, 500); err != nil || table.Inspect().AgeDecay() != 500 {
			t.Errorf("target %v: %v, tau is %v", target, err, table.Inspect().AgeDecay())
		}
	}
}
