package study

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/results"
)

// claimSeeds is how many seeds a claim needs (docs/METHODS.md, Evaluation).
const claimSeeds = 4

// bootstrapSeed makes intervals the same whenever a study is judged.
const bootstrapSeed = 1

// claim is a row of a study's table: what a source claims, what was measured, and the rules that decide it.
type claim struct {
	source   string
	text     string
	measured string // the measure and the arms compared, in words; the estimate is printed after it
	by       []test // what decides the claim; named tests are printed one by one, with their verdicts
	most     bool   // it is enough if most tests hold and none fails; otherwise all must hold
	more     string // further sentences about what was found
	why      string // how the verdict follows, if not by the rule of the first test
	note     string // a sentence after that

	arithmetic results.Verdict // of a claim that needs no run
}

// test is an estimate with the rule that it must meet.
type test struct {
	name string // of several tests: the task or arm
	estimate
	rule
}

// is tests an estimate by a rule. named does so for one of several tests.
func (e estimate) is(r rule) []test               { return []test{{estimate: e, rule: r}} }
func (e estimate) named(name string, r rule) test { return test{name, e, r} }

// judge decides the claims of a study. Runs that failed are listed behind the study's own sections.
func (f *Found) judge(claims []claim, sections ...results.Section) (Judgement, error) {
	j := Judgement{Sections: append(sections, f.failures()...)}
	for _, c := range claims {
		j.Findings = append(j.Findings, f.decide(c))
	}
	return j, nil
}

// decide returns the verdict on a claim with the figures and the rule that it follows from. No other function makes
// verdicts.
func (f *Found) decide(c claim) results.Finding {
	found, why := c.measured, c.why
	if c.arithmetic != "" {
		return results.Finding{Source: c.source, Claim: c.text, Found: found, Verdict: c.arithmetic, Why: why}
	}
	verdicts := make([]results.Verdict, len(c.by))
	fewest := math.MaxInt
	if c.by[0].name == "" {
		found += fmt.Sprintf(": %s.", c.by[0].estimate)
	} else {
		found += "."
	}
	for i, t := range c.by {
		verdicts[i] = results.CannotTell
		if f.caution(len(t.values)) == "" {
			verdicts[i] = t.decide(t.low, t.high)
		}
		fewest = min(fewest, len(t.values))
		if t.name != "" {
			found += fmt.Sprintf(" %s: %s, %s.", t.name, t.estimate, verdicts[i])
		}
	}
	if why == "" {
		why = c.by[0].rule.words(c.by[0].what)
		switch {
		case c.most:
			why += " This is asked of each task. The claim holds if it holds for more than half of the tasks and " +
				"fails for none; it does not hold if it fails for more than half."
		case c.by[0].name != "":
			why += " This is asked of each. The claim holds if it holds for all, and does not hold if it fails for one."
		}
	}
	combined := all(verdicts)
	if c.most {
		combined = most(verdicts)
	}
	return results.Finding{
		Source: c.source, Claim: c.text, Found: join(found, c.more), Verdict: combined,
		Why: join(f.caution(fewest), why, c.note),
	}
}

// caution tells why no claim can be made from so many seeds, "" if one can.
func (f *Found) caution(seeds int) string {
	switch {
	case f.Quick:
		return "A rehearsal makes no claim."
	case seeds == 0:
		return "No seed has the runs to compare."
	case seeds < claimSeeds:
		return fmt.Sprintf("A claim needs %d seeds that have the runs to compare; there are %d.", claimSeeds, seeds)
	default:
		return ""
	}
}

func verdict(holds, fails bool) results.Verdict {
	switch {
	case holds:
		return results.Holds
	case fails:
		return results.DoesNotHold
	default:
		return results.CannotTell
	}
}

// all holds if every part holds, and does not if one does not.
func all(parts []results.Verdict) results.Verdict {
	n := count(parts)
	return verdict(len(parts) > 0 && n[results.Holds] == len(parts), n[results.DoesNotHold] > 0)
}

// most holds if more than half of the parts hold and none fails, and does not if more than half fail.
func most(parts []results.Verdict) results.Verdict {
	n := count(parts)
	return verdict(2*n[results.Holds] > len(parts) && n[results.DoesNotHold] == 0,
		2*n[results.DoesNotHold] > len(parts))
}

func count(parts []results.Verdict) map[results.Verdict]int {
	n := make(map[results.Verdict]int)
	for _, v := range parts {
		n[v]++
	}
	return n
}

// rule decides a claim from the ends of the interval of an estimate. Its bounds are fixed before the runs.
type rule struct {
	holds, fails string // where the interval lies, in words
	decide       func(low, high float64) results.Verdict
}

func (r rule) words(quantity string) string {
	return fmt.Sprintf("The claim holds if the 95%% bootstrap interval of the median of %s lies %s, and does not hold "+
		"if it lies %s.",
		quantity, r.holds, r.fails)
}

// above: the quantity is greater than a bound.
func above(bound float64) rule {
	return rule{"above " + number(bound), "at or below " + number(bound), func(low, high float64) results.Verdict {
		return verdict(low > bound, high <= bound)
	}}
}

// below: the quantity is less than a bound.
func below(bound float64) rule {
	return rule{"below " + number(bound), "at or above " + number(bound), func(low, high float64) results.Verdict {
		return verdict(high < bound, low >= bound)
	}}
}

// atLeast: the quantity is a bound or more.
func atLeast(bound float64) rule {
	return rule{"at or above " + number(bound), "below " + number(bound), func(low, high float64) results.Verdict {
		return verdict(low >= bound, high < bound)
	}}
}

// atMost: the quantity is a bound or less.
func atMost(bound float64) rule {
	return rule{"at or below " + number(bound), "above " + number(bound), func(low, high float64) results.Verdict {
		return verdict(high <= bound, low > bound)
	}}
}

// within: the quantity is as good as a value, that is, within a margin of it.
func within(value, margin float64) rule {
	near := fmt.Sprintf("within %s of %s, a margin fixed before the runs", number(margin), number(value))
	return rule{near, "entirely outside that", func(low, high float64) results.Verdict {
		return verdict(low >= value-margin && high <= value+margin, low > value+margin || high < value-margin)
	}}
}

// estimate is a quantity over seeds. A target that was never reached makes it infinite; infinite values are in order
// like others, and what lies between a finite and an infinite value is infinite.
type estimate struct {
	what           string    // the difference
	write          format    // of its values
	values         []float64 // by ascending seed, of the seeds that have it
	median, q1, q3 float64   // NaN without values
	low, high      float64   // 95% bootstrap interval of the median, NaN with fewer than claimSeeds values
}

// estimateOf summarizes values, NaN left out.
func estimateOf(what string, write format, values []float64) estimate {
	e := quartilesOf(values)
	e.what, e.write = what, write
	if len(e.values) >= claimSeeds {
		e.low, e.high = results.Bootstrap(e.values, 0.95, bootstrapSeed)
	}
	return e
}

// quartilesOf summarizes values without an interval, NaN left out.
func quartilesOf(values []float64) estimate {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	return estimate{
		values: v, median: results.Median(v), q1: results.Quantile(v, 0.25), q3: results.Quantile(v, 0.75),
		low: math.NaN(), high: math.NaN(),
	}
}

// String writes the median with its quartiles and its interval.
func (e estimate) String() string {
	w := e.write
	switch n := len(e.values); {
	case n == 0:
		return "not measured"
	case n == 1:
		return w(e.median) + " on one seed"
	case n < claimSeeds:
		return fmt.Sprintf("%s (%d seeds, IQR %s to %s)", w(e.median), n, w(e.q1), w(e.q3))
	default:
		return fmt.Sprintf("%s (%d seeds, IQR %s to %s, 95%% interval %s to %s)", w(e.median), n, w(e.q1), w(e.q3),
			w(e.low), w(e.high))
	}
}

// cell writes the median with its interval, for a table.
func (e estimate) cell() string {
	switch n := len(e.values); {
	case n == 0:
		return missing
	case n < claimSeeds:
		return e.write(e.median)
	default:
		return fmt.Sprintf("%s (%s to %s)", e.write(e.median), e.write(e.low), e.write(e.high))
	}
}

// as shows an estimate under another name or in another format.
func (e estimate) as(what string, write format) estimate {
	e.what, e.write = what, write
	return e
}

// perSeed computes a quantity on each seed that any of the arms has, NaN where it is not defined.
func perSeed(of func(seed uint64) float64, arms ...Runs) []float64 {
	var values []float64
	for _, seed := range seedsOf(arms...) {
		values = append(values, of(seed))
	}
	return values
}

// difference is how much more of a measure arm a has than b, seed by seed.
func difference(a, b Runs, m measure) estimate {
	return estimateOf("the difference", change, perSeed(func(seed uint64) float64 {
		return a.on(seed, m) - b.on(seed, m)
	}, a, b))
}

// ratio is a measure of arm a over that of b, seed by seed. Seeds on which neither is finite are left out.
func ratio(a, b Runs, m measure) estimate {
	return estimateOf("the ratio", times, perSeed(func(seed uint64) float64 { return a.on(seed, m) / b.on(seed, m) },
		a, b))
}

// averageOver is the mean of a measure over several arms, seed by seed. Arms without a run of the seed are left out.
func averageOver(arms []Runs, m measure) estimate {
	return estimateOf("the mean over the arms", times,
		perSeed(func(seed uint64) float64 { return mean(onSeed(arms, seed, m)) }, arms...))
}

func onSeed(arms []Runs, seed uint64, m measure) []float64 {
	values := make([]float64, len(arms))
	for i, a := range arms {
		values[i] = a.on(seed, m)
	}
	return values
}

// trend is the rank correlation of a measure with the arms' levels, seed by seed: 1 if it rises from each arm to the
// next, −1 if it falls, 0 if it is the same for all. Seeds that an arm lacks are left out.
func trend(arms []Runs, levels []float64, m measure) estimate {
	return estimateOf("the rank correlation", times, perSeed(func(seed uint64) float64 {
		return rankCorrelation(levels, onSeed(arms, seed, m))
	}, arms...))
}

// rankCorrelation is Kendall's tau-b of two lists of the same length: 0 if one of them is constant, NaN if a value is
// NaN.
func rankCorrelation(x, y []float64) float64 {
	var agree, ofX, ofY float64
	for i := range x {
		if math.IsNaN(x[i]) || math.IsNaN(y[i]) {
			return math.NaN()
		}
		for j := range i {
			a, b := sign(x[i], x[j]), sign(y[i], y[j])
			agree += a * b
			ofX += a * a
			ofY += b * b
		}
	}
	if ofX == 0 || ofY == 0 {
		return 0
	}
	return agree / math.Sqrt(ofX*ofY)
}

// sign compares two values, which may be infinite.
func sign(a, b float64) float64 {
	switch {
	case a > b:
		return 1
	case a < b:
		return -1
	default:
		return 0
	}
}

// chosenDifference is how much more of a measure the best arm of one family has than that of another, seed by seed. The
// best arm is chosen on the other seeds, so that a family gains nothing by being large.
func chosenDifference(family, other []Runs, m measure) estimate {
	return estimateOf("the difference", change, perSeed(func(seed uint64) float64 {
		return highest(family, m, seed).on(seed, m) - highest(other, m, seed).on(seed, m)
	}, slices.Concat(family, other)...))
}

// highest returns the arm with the highest median of a measure over all seeds but one (0: over all seeds), the first
// among equals.
func highest(arms []Runs, m measure, leaveOut uint64) Runs {
	top, at := math.Inf(-1), 0
	for i, a := range arms {
		if v := a.without(leaveOut).median(m); v > top {
			top, at = v, i
		}
	}
	return arms[at]
}

// format writes a value.
type format func(float64) string

// missing stands for a value that is not known.
const missing = "–"

func points(v float64) string { return words.Fixed(v, 3) } // an accuracy
func times(v float64) string  { return words.Fixed(v, 2) } // a ratio
func whole(v float64) string  { return words.Fixed(v, 0) }

// change writes a difference in accuracy with its sign.
func change(v float64) string {
	if v > 0 && !math.IsInf(v, 1) {
		return "+" + words.Fixed(v, 3)
	}
	return words.Fixed(v, 3)
}

// updates writes compute in updates, infinite where a target was not reached.
func updates(v float64) string {
	if math.IsInf(v, 1) {
		return "not reached"
	}
	return whole(v)
}

func percent(v float64) string     { return words.Minus(words.Percent(v, 0)) }
func percentFine(v float64) string { return words.Minus(words.Percent(v, 1)) }

// number writes as few digits as it takes, four at most.
func number(v float64) string { return words.Minus(fmt.Sprintf("%.4g", v)) }

// join joins the sentences that are not empty.
func join(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), " ")
}

// medians writes the median of a measure of each arm.
func medians(arms []Runs, m measure, write format) string {
	list := make([]string, len(arms))
	for i, a := range arms {
		list[i] = write(a.median(m))
	}
	return strings.Join(list, ", ")
}

// sortedNames joins names for a sentence, each once, in order.
func sortedNames(list []string) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	n := len(list)
	switch n {
	case 0:
		return "none"
	case 1:
		return list[0]
	}
	return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
}
