package results

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// armOf returns an arm whose runs reach these accuracies, one per seed from 1 on, at every step of
// compute 100 after a start at 0.4.
func armOf(name string, last ...float64) NamedRuns {
	a := NamedRuns{Name: name}
	for i, accuracy := range last {
		a.Runs = append(a.Runs, &Run{
			Seed: uint64(i + 1), Evals: evalsAt(100, 0.4, accuracy, accuracy),
			Updates: []Update{{Update: 1, Compute: 200}},
			Summary: &Summary{Task: "arithmetic", Seed: uint64(i + 1), Ended: "budget", Target: Num(0.65)},
		})
	}
	return a
}

func TestArmsAreComparedSeedBySeedWithTheFirst(t *testing.T) {
	table := NewTable([]NamedRuns{armOf("a", 0.5, 0.5, 0.6, 0.7, 0.5, 0.5, 0.6, 0.7),
		armOf("b", 0.7, 0.6, 0.9, 0.7, 0.7, 0.6, 0.9, 0.7), armOf("c", 0.4, 0.4, 0.5, 0.6, 0.4, 0.4, 0.5, 0.6)})
	if !table.Claim || table.Caution != "" || len(table.Warnings) != 0 || table.Target != Num(0.65) {
		t.Errorf("claim %v, caution %q, warnings %q, target %v", table.Claim, table.Caution, table.Warnings,
			table.Target)
	}
	b := table.Arms[1]
	// Differences 0.2, 0.1, 0.3 and 0, each twice: their squares about 0.15 sum to 0.1, the standard error is
	// sqrt(0.1/7/8) = 0.04226 and the interval 0.15 ± 2.36462*0.04226.
	if d := b.Against.Difference; d.Seeds != 8 || !near(d.Mean.Float(), 0.15) ||
		math.Abs(d.Low.Float()-0.0500764) > 1e-6 || math.Abs(d.High.Float()-0.2499236) > 1e-6 {
		t.Errorf("difference %+v, want 0.15 ± 0.09992", d)
	}
	// At most 83.3/200, none, at most 50/200, and 1, each twice.
	if r := b.Against.Ratio; r.Seeds != 6 || r.Bound != AtMost || !near(r.Mean.Float(), math.Cbrt(5.0/12/4)) ||
		r.Low.Known() || !(r.High.Float() > r.Mean.Float()) {
		t.Errorf("ratio %+v, want at most 0.47 of 6 seeds", r)
	}
	for _, r := range []Range{b.Level, b.Last} {
		if r.Runs != 8 || !near(r.Median.Float(), 0.7) || r.Low != Num(0.6) || r.High != Num(0.9) {
			t.Errorf("pass@1 %+v, want 0.7 of 0.6 to 0.9", r)
		}
	}
	// 0.7 crosses 0.65 at 5/6 of the step of 100 from 0.4, 0.9 in its middle
	if to := b.ToTarget; b.Reached != 6 || !near(to.Median.Float(), 250.0/3) || !near(to.Low.Float(), 50) ||
		to.High.Known() {
		t.Errorf("%d reached the target, at %+v, want 6, at 83.3 of 50 to infinity", b.Reached, b.ToTarget)
	}
	if table.Arms[0].Against != nil {
		t.Error("the first arm is compared with itself")
	}
	for _, want := range []string{
		"b reached 0.65 held-out pass@1 with at most 0.47 of a's compute: 53% saved or more (ratio over 6 seeds: 95% " +
			"interval up to 0.91). Only 6 of 8 seeds have a ratio: no claim. It ended 0.150 above a in held-out pass@1 (8 " +
			"seeds, 95% interval +0.050 to +0.250). c takes at least 2.40 times a's compute",
		"It ended 0.100 below a in held-out pass@1 (8 seeds, 95% interval −0.100 to −0.100).",
	} {
		if !strings.Contains(table.Statement, want) {
			t.Errorf("statement %q, want it to say %q", table.Statement, want)
		}
	}
}

func TestTheTableClaimsNoMoreThanItsSeedsAllow(t *testing.T) {
	running := armOf("b", 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7)
	running.Runs[2].Summary = nil
	interrupted := armOf("b", 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7)
	interrupted.Runs[0].Summary.Ended = "interrupted"
	stranger := armOf("b", 0.7)
	stranger.Runs[0].Seed, stranger.Runs[0].Summary.Seed = 9, 9
	eight := armOf("a", 0.5, 0.5, 0.6, 0.7, 0.5, 0.5, 0.6, 0.7)
	for want, arms := range map[string][]NamedRuns{
		"One arm: nothing to compare it with.": {eight},
		"One seed: no claim. b ended 0.200 above a in held-out pass@1 on one seed.": {armOf("a", 0.4),
			armOf("b", 0.6)},
		"3 seeds: an indication, no claim; a claim needs 8.": {armOf("a", 0.4, 0.4, 0.4),
			armOf("b", 0.6, 0.6, 0.6)},
		"The arms share 2 to 4 seeds with a; fewer than 8 make no claim.": {eight, armOf("b", 0.6, 0.6),
			armOf("c", 0.6, 0.6, 0.6, 0.6)},
		"Runs that have not ended are compared as far as they came: no claim.":           {eight, running},
		"Runs that have not ended are compared as far as they came: no claim. b reached": {eight, interrupted},
		"No claim: no seed can be compared. b shares no seed with a":                     {eight, stranger},
	} {
		table := NewTable(arms)
		if !strings.Contains(table.Statement, want) || table.Claim {
			t.Errorf("claim %v, statement %q, want none and %q", table.Claim, table.Statement, want)
		}
	}
	// Differences -0.1, 0.1, -0.1 and 0, each twice: the squares about -0.025 sum to 0.055, so that half an interval is
	// 2.36462*sqrt(0.055/7/8) = 0.0741.
	level := NewTable([]NamedRuns{armOf("a", 0.5, 0.5, 0.6, 0.6, 0.5, 0.5, 0.6, 0.6),
		armOf("b", 0.4, 0.6, 0.5, 0.6, 0.4, 0.6, 0.5, 0.6)})
	if !level.Claim || !strings.Contains(level.Statement, "b ended 0.025 below a in held-out pass@1 (8 seeds, 95% "+
		"interval −0.099 to +0.049). The interval includes 0: a difference is not established; 8 seeds that vary like "+
		"these would have shown 0.074 or more.") {
		t.Errorf("statement %q, want no difference established", level.Statement)
	}
}

func TestTheTableWarnsAboutArmsThatCannotBeCompared(t *testing.T) {
	base := func() NamedRuns { return armOf("a", 0.5, 0.5) }
	for _, c := range []struct {
		want   string
		change func(*NamedRuns)
		nil    bool // not compared
	}{
		{"different tasks (arithmetic, words)", func(b *NamedRuns) { b.Runs[1].Summary.Task = "words" }, true},
		{"sets of different sizes (400, 100 problems)", func(b *NamedRuns) { b.Runs[0].Evals[1].Problems = 100 }, true},
		{"different targets (0.65, none)", func(b *NamedRuns) { b.Runs[0].Summary.Target = Number{} }, false},
		{"b has a seed more than once", func(b *NamedRuns) { b.Runs[1].Seed = 1 }, false},
		{"a and b have different seeds", func(b *NamedRuns) { b.Runs = b.Runs[:1] }, false},
		{"b has 1 of 2 runs whose seed is not known", func(b *NamedRuns) { b.Runs[0].Summary, b.Runs[0].Seed = nil, 0 },
			false},
		{"a and b start at different accuracies on seed 2", func(b *NamedRuns) { b.Runs[1].Evals[0].Pass1 = 0.3 },
			false},
		{"b, seed 2 has not ended", func(b *NamedRuns) { b.Runs[1].Summary = nil }, false},
		{"b, seed 1 was interrupted at update 1", func(b *NamedRuns) { b.Runs[0].Summary.Ended = "interrupted" },
			false},
		{"x is in both b and b", func(b *NamedRuns) { b.Runs[0].Dir, b.Runs[1].Dir = "x", "x" }, false},
		{"b goes to 100 of compute, a to 200", func(b *NamedRuns) {
			b.Runs[0].Updates[0].Compute,
				b.Runs[1].Updates[0].Compute = 100, 100
		}, false},
	} {
		b := armOf("b", 0.6, 0.6)
		c.change(&b)
		table := NewTable([]NamedRuns{base(), b})
		if !strings.Contains(strings.Join(table.Warnings, "\n"), c.want) {
			t.Errorf("warnings %q, want %q", table.Warnings, c.want)
		}
		if got := table.Arms[1].Against == nil; got != c.nil {
			t.Errorf("%s: left out of comparison %v, want %v", c.want, got, c.nil)
		}
	}
	if w := NewTable([]NamedRuns{base(), armOf("b", 0.6, 0.6)}).Warnings; len(w) != 0 {
		t.Errorf("like arms are warned of: %q", w)
	}
	if table := NewTable(nil); len(table.Arms) != 0 || table.Claim {
		t.Errorf("a table of nothing: %+v", table)
	}
}

func TestAFailedRunIsComparedAsFarAsItCame(t *testing.T) {
	a, b := evalsAt(100, 0.4, 0.5, 0.6, 0.7), evalsAt(100, 0.4, 0.9)
	if x, y, ok := lastShared(a, b); !ok || x.Pass1 != 0.5 || y.Pass1 != 0.9 {
		t.Errorf("compared %v with %v, %v; want 0.5 with 0.9 at the first step", x.Pass1, y.Pass1, ok)
	}
	if _, _, ok := lastShared(a, b[:1]); ok {
		t.Error("the start is compared as if it were an end")
	}
	again := append(slices.Clone(a), Eval{Grid: a[3].Grid, Pass1: 0.1, Problems: 400}) // the last weights, off the grid
	if x, _, _ := lastShared(again, a); x.Pass1 != 0.7 {
		t.Errorf("of two evaluations at one step %v counts, want the first, 0.7", x.Pass1)
	}
}

func TestMeansOverARunLeaveOutUnknownNumbers(t *testing.T) {
	ess := func(u *Update) Number { return u.ESS }
	run := func(values ...Number) *Run {
		r := &Run{}
		for _, v := range values {
			r.Updates = append(r.Updates, Update{ESS: v})
		}
		return r
	}
	one := run(Num(1), Number{}, Num(0.5))
	if got := one.Mean(ess); got != Num(0.75) {
		t.Errorf("mean %v, want 0.75", got)
	}
	if got := run(Num(1), Num(0.5), Number{}).Final(ess); got != Num(0.5) {
		t.Errorf("final %v, want 0.5", got)
	}
	if got := medianMean([]*Run{one, run(Num(0.25)), run(Num(0.5)), run(), run(Number{})}, ess); got != Num(0.5) {
		t.Errorf("median of the means %v, want 0.5", got)
	}
	if medianMean(nil, ess).Known() || run().Final(ess).Known() {
		t.Error("nothing has a mean")
	}
	if r := RangeOf([]float64{2, math.NaN(), math.Inf(1), 1}); r.Runs != 3 || r.Median != Num(2) || r.Low != Num(1) ||
		r.High.Known() {
		t.Errorf("range %+v, want 1 to infinity around 2", r)
	}
}

func TestATableReadsBackAsWritten(t *testing.T) {
	table := NewTable([]NamedRuns{armOf("a", 0.5, 0.5, 0.6, 0.7), armOf("b", 0.7, 0.6, 0.9, 0.7)})
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	var again Table
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	again.Warnings = nil // null and none are one
	if !reflect.DeepEqual(&again, table) {
		t.Errorf("read %+v, want %+v", &again, table)
	}
}
