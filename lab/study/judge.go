package study

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// claim is a row of a study's table: what a source claims, what was measured, and the rules that decide it.
type claim struct {
	source   string
	text     string
	measured string   // the measure and the arms compared, in words; the estimate is printed after it
	by       []test   // what decides the claim; named tests are printed one by one
	most     bool     // it is enough if most tests hold; otherwise all must
	premise  *premise // what must have happened for it to be tested; nil: nothing
	check    bool     // it follows from arithmetic or from the clock, whatever is learned
	more     string   // further sentences about what was found
	note     string   // a sentence after how the verdict follows

	arithmetic results.Verdict // of a check that needs no run
	why        string          // how it follows
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

// falsely is the chance that a study without any effect holds or refutes even one of its claims.
const falsely = 0.05

// judge decides the claims of a study together: the more of them, the surer each must be (Holm). Checks are not among
// them. Runs that failed are listed behind the study's own sections.
func (f *Found) judge(claims []claim, sections ...results.Section) (Judgement, error) {
	j := Judgement{Sections: append(sections, f.failures()...), claims: claims}
	var chances []float64
	for _, c := range claims {
		if !c.check {
			chances = append(chances, c.chance())
		}
	}
	sure := results.Holm(chances, falsely)
	for _, c := range claims {
		told, among := c.chance() <= falsely, 1
		if !c.check {
			told, among, sure = sure[0], len(chances), sure[1:]
		}
		j.Findings = append(j.Findings, f.finding(c, told, among))
	}
	return j, nil
}

// chances returns the chance of such runs if the claim were false, and if it were true.
func (c claim) chances() (holds, fails float64) {
	n, some := len(c.by), c.some()
	if n == 0 || c.untested() {
		return 1, 1
	}
	all := make([][2]float64, n)
	for i, t := range c.by {
		all[i][0], all[i][1] = t.chances(t.estimate)
	}
	list := func(side int) (l []float64) {
		for _, x := range all {
			l = append(l, x[side])
		}
		return l
	}
	return results.PartOf(list(0), some), results.PartOf(list(1), n-some+1)
}

// untested reports whether what the claim supposes did not happen.
func (c claim) untested() bool { return c.premise != nil && !c.premise.occurred }

// chance is the p-value of a claim, both sides counted; 1 if it is untested, so that it decides nothing and counts
// among the study's claims as before.
func (c claim) chance() float64 {
	holds, fails := c.chances()
	return min(1, 2*min(holds, fails))
}

// some is how many tests of a claim must hold.
func (c claim) some() int {
	if c.most {
		return len(c.by)/2 + 1
	}
	return len(c.by)
}

// runs is the fewest runs that any of the tests compares which can decide a claim.
func (c claim) runs() int {
	var list []int
	for _, t := range c.by {
		list = append(list, t.pairs.N())
	}
	slices.Sort(list)
	return list[len(list)-c.some()]
}

// finding returns the verdict on a claim, with the figures and the rule that it follows from. No other function makes
// verdicts. told: the runs are sure enough of one. among: how many claims are decided together.
func (f *Found) finding(c claim, told bool, among int) results.Finding {
	if c.arithmetic != "" {
		return results.Finding{Source: c.source, Claim: c.text, Found: c.measured, Figure: c.figure(),
			Verdict: c.arithmetic, Why: c.why, Check: true}
	}
	found, mixed := c.measured+".", slices.ContainsFunc(c.by, func(t test) bool { return t.holds != c.by[0].holds })
	for _, t := range c.by {
		switch {
		case t.name == "":
			found = fmt.Sprintf("%s: %s.", c.measured, t.estimate)
		case mixed:
			found += fmt.Sprintf(" %s: %s, to be %s.", t.name, t.estimate, t.holds)
		default:
			found += fmt.Sprintf(" %s: %s.", t.name, t.estimate)
		}
	}
	caution, verdict, holds, fails := f.caution(c.runs()), results.Inconclusive, 0.0, 0.0
	switch holds, fails = c.chances(); {
	case caution != "":
	case c.untested():
		verdict = results.Untested
	case told && fails < holds:
		verdict = results.DoesNotHold
	case told:
		verdict = results.Holds
	}
	why := c.by[0].words(c.by[0].what)
	if mixed {
		why = "The claim holds if all are as they are to be, and does not hold if one is not."
	}
	switch n := len(c.by); {
	case c.most:
		why += fmt.Sprintf(" This is asked of more than half of the %d.", n)
	case n > 1 && !mixed:
		why += " This is asked of each."
	}
	if c.premise != nil {
		why = join(why, c.premise.String())
	}
	if caution == "" && verdict != results.Untested {
		why += fmt.Sprintf(" %s.", chanceText(c.chance()))
		if verdict == results.Inconclusive {
			why = join(why, c.least(among), c.open())
		}
	}
	return results.Finding{Source: c.source, Claim: c.text, Found: join(found, c.more), Figure: c.figure(),
		Verdict: verdict, Why: join(caution, why, c.note), Check: c.check}
}

// figure is the mean of each test with its interval: of the first three, if there are more. What arithmetic decides has
// the first sentence of what was measured.
func (c claim) figure() string {
	if len(c.by) == 0 {
		first, _, _ := strings.Cut(c.measured, ". ")
		return strings.TrimSuffix(first, ".")
	}
	const most = 3
	var list []string
	for _, t := range c.by[:min(len(c.by), most)] {
		list = append(list, strings.TrimPrefix(t.name+": "+t.estimate.cell(), ": "))
	}
	if more := len(c.by) - most; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}

// asArithmetic is the verdict on a check that needs no run.
func asArithmetic(right bool) results.Verdict {
	if right {
		return results.Holds
	}
	return results.DoesNotHold
}

// least says what effect these runs would have shown among the study's claims; of several tests, that of the widest
// interval.
func (c claim) least(among int) string {
	widest, at := -1.0, c.by[0].estimate
	for _, t := range c.by {
		if half := t.shown(among); half > widest {
			widest, at = half, t.estimate
		}
	}
	switch surest := math.Exp2(1 - float64(c.runs())); {
	case surest > falsely/float64(among):
		return fmt.Sprintf("So few runs cannot decide one of %d claims: make more.", among)
	case widest <= 0 || math.IsInf(widest, 1) || c.by[0].equivalence:
		return ""
	}
	least := at.write(widest)
	if at.log {
		least = "a factor of " + at.write(math.Exp(-widest))
	}
	return fmt.Sprintf("The least effect that so many runs would have shown is %s.", least)
}

// shown is the least effect that these runs would have shown of one of several claims, on the scale of the pairs: half
// of an interval's width, at the level that the first of them must meet.
func (e estimate) shown(among int) float64 {
	low, high := e.pairs.Interval(1 - falsely/float64(among))
	return (high - low) / 2
}

// open says which side of a bound cannot be shown, as some run never reached its target.
func (c claim) open() string {
	var below, above bool
	for _, t := range c.by {
		low, high := t.pairs.Mean()
		below, above = below || math.IsInf(low, -1), above || math.IsInf(high, 1)
	}
	switch {
	case below && above:
		return "Where one of two runs never arrives their ratio is known to one side only, here to either: nothing follows."
	case below:
		return "Where an opponent never arrives the ratio is at most what is counted: that it is above a bound cannot be " +
			"shown."
	case above:
		return "Where a run never arrives and its opponent does the ratio is at least what is counted: that it is below a " +
			"bound cannot be shown."
	default:
		return ""
	}
}

func chanceText(p float64) string {
	if p < 0.001 {
		return "p < 0.001"
	}
	return "p = " + words.Fixed(p, 3)
}

// caution tells why no claim can be made from a number of runs, "" if one can.
func (f *Found) caution(runs int) string {
	switch {
	case f.Quick:
		return "A rehearsal makes no claim."
	case runs == 0:
		return "There are no runs to compare."
	case runs < results.ClaimRuns:
		return fmt.Sprintf("A claim needs %d runs, or pairs of runs; there are %d.", results.ClaimRuns, runs)
	default:
		return ""
	}
}

// rule says what an estimate must be for a claim to hold. Its bounds are fixed before the runs.
type rule struct {
	holds, fails string // what the estimate is, in words
	// chances returns the chance of such runs if the estimate were not so, and if it were
	chances     func(estimate) (holds, fails float64)
	equivalence bool // it is to be within a margin
}

func (r rule) words(quantity string) string {
	return fmt.Sprintf("The claim holds if %s is %s, and does not hold if it is %s.", quantity, r.holds, r.fails)
}

// beyond is a rule about one bound. A claim that allows the bound itself is met if all runs lie exactly on it.
func beyond(bound, side float64, orAt bool, holds, fails string) rule {
	r := rule{holds: holds + " " + number(bound), fails: fails + " " + number(bound)}
	r.chances = func(e estimate) (float64, float64) {
		if v, ok := e.constant(); ok && v == bound && orAt {
			return math.Exp2(-float64(e.pairs.N())), 1
		}
		above, below := e.pairs.PAbove(e.scaled(bound)), e.pairs.PBelow(e.scaled(bound))
		if side < 0 {
			return below, above
		}
		return above, below
	}
	return r
}

func above(bound float64) rule   { return beyond(bound, 1, false, "above", "at or below") }
func below(bound float64) rule   { return beyond(bound, -1, false, "below", "at or above") }
func atLeast(bound float64) rule { return beyond(bound, 1, true, "at or above", "below") }
func atMost(bound float64) rule  { return beyond(bound, -1, true, "at or below", "above") }

// within: the quantity is as good as a value, that is, within a margin of it: two one-sided tests.
func within(value, margin float64) rule {
	near := fmt.Sprintf("within %s of %s, a margin fixed before the runs", number(margin), number(value))
	low, high := atLeast(value-margin), atMost(value+margin)
	return rule{holds: near, fails: "outside that", equivalence: true, chances: func(e estimate) (float64, float64) {
		aboveLow, belowLow := low.chances(e)
		belowHigh, aboveHigh := high.chances(e)
		return max(aboveLow, belowHigh), min(1, 2*min(belowLow, aboveHigh))
	}}
}

// intervalLevel is the level of the intervals that are printed.
const intervalLevel = 0.95

// estimate is a quantity over runs, or pairs of runs of one seed. Where a target was never reached, or where the part
// of sampling is not known, it lies between bounds.
type estimate struct {
	what  string // the difference
	write format // of its values
	log   bool   // the pairs hold its logarithm: their mean is that of ratios
	pairs results.Pairs
	never string // how many runs, or opponents, never reached the target
}

// scaled returns a value on the scale of the pairs.
func (e estimate) scaled(v float64) float64 {
	if e.log {
		return math.Log(v)
	}
	return v
}

// of writes a value on the scale of the pairs.
func (e estimate) of(v float64) string {
	if e.log {
		v = math.Exp(v)
	}
	return e.write(v)
}

// constant returns the value of an estimate that is the same for all runs.
func (e estimate) constant() (float64, bool) {
	v, high := e.pairs.Values()
	if len(v) == 0 || slices.Min(v) != slices.Max(high) {
		return 0, false
	}
	if e.log {
		return math.Exp(v[0]), true
	}
	return v[0], true
}

// String writes the mean with its interval for these base models, the mean on each of them, the interval for all base
// models of which they are a sample, and how many runs never reached the target.
func (e estimate) String() string {
	n := e.pairs.N()
	if n == 0 {
		return strings.TrimSuffix("not measured; "+e.never, "; ")
	}
	mean, interval := e.written(e.pairs.Interval(intervalLevel))
	text := fmt.Sprintf("%s (%s", mean, words.Plural(n, "run"))
	if interval != "" {
		text += ", 95% interval " + interval
	}
	if low, high := e.pairs.Blocks(); len(low) > 1 && n > len(low) {
		list := make([]string, len(low))
		for i := range low {
			list[i] = results.SpanText(low[i], high[i], e.of)
		}
		text += "; by base model " + strings.Join(list, ", ")
		if _, interval := e.written(e.pairs.AcrossBlocks(intervalLevel)); interval != "" {
			text += "; over base models " + interval
		}
	}
	if e.never != "" {
		text += "; " + e.never
	}
	return text + ")"
}

// written writes the mean, and an interval, "" if it has no end.
func (e estimate) written(low, high float64) (mean, interval string) {
	from, to := e.pairs.Mean()
	return results.SpanText(from, to, e.of), results.IntervalText(low, high, e.of)
}

// cell writes the mean with its interval, for a table.
func (e estimate) cell() string {
	if e.pairs.N() == 0 {
		return missing
	}
	mean, interval := e.written(e.pairs.Interval(intervalLevel))
	if interval == "" {
		return mean
	}
	return fmt.Sprintf("%s (%s)", mean, interval)
}

// as shows an estimate under another name or in another format.
func (e estimate) as(what string, write format) estimate {
	e.what, e.write = what, write
	return e
}

// estimateOf computes a quantity on each seed that any of the arms has, and leaves it out where it is NaN.
func estimateOf(what string, write format, of func(seed uint64) float64, arms ...Runs) estimate {
	return betweenOf(what, write, func(seed uint64) (low, high float64) { v := of(seed); return v, v }, arms...)
}

// betweenOf does so for a quantity that lies between bounds.
func betweenOf(what string, write format, of func(seed uint64) (low, high float64), arms ...Runs) estimate {
	var lows, highs []float64
	var bases []uint64
	for _, seed := range seedsOf(arms...) {
		low, high := of(seed)
		lows, highs, bases = append(lows, low), append(highs, high), append(bases, baseOf(seed))
	}
	return estimate{what: what, write: write, pairs: results.NewBoundedPairs(lows, highs, bases)}
}

// difference is how much more of a measure arm a has than b, seed by seed.
func difference(a, b Runs, m measure) estimate {
	return estimateOf("the difference", change, func(seed uint64) float64 { return a.on(seed, m) - b.on(seed, m) }, a, b)
}

// ratio is a measure of arm a over that of its opponent b, seed by seed. A run that never reached its target, whose
// measure is infinite, counts with what it spent: if it is the opponent's the ratio is at most that, else at least.
// Seeds on which neither arrives are left out.
func ratio(a, b Runs, m measure) estimate {
	var runs, opponents, neither, of int
	e := betweenOf("the ratio", times, func(seed uint64) (low, high float64) {
		x, own := a.spent(seed, m)
		y, opponent := b.spent(seed, m)
		if math.IsNaN(x) || math.IsNaN(y) {
			return math.NaN(), math.NaN()
		}
		of++
		switch {
		case !own && !opponent:
			neither++
		case !own:
			runs++
		case !opponent:
			opponents++
		}
		return results.LogRatio(x, y, own, opponent)
	}, a, b)
	e.log = true
	var never []string
	for _, n := range []struct {
		count int
		words string
	}{{opponents, "%d of %d opponents never arrive"}, {runs, "%d of %d runs never arrive"},
		{neither, "in %d of %d pairs neither arrives"}} {
		if n.count > 0 {
			never = append(never, fmt.Sprintf(n.words, n.count, of))
		}
	}
	e.never = strings.Join(never, "; ")
	return e
}

// spent is a measure on one seed and whether it is finite: if not, it is what the run spent without reaching its
// target.
func (a Runs) spent(seed uint64, m measure) (v float64, reached bool) {
	if v = a.on(seed, m); math.IsInf(v, 1) {
		return m(a, atTheEnd(a, a.Seed(seed))), false
	}
	return v, true
}

// unsteadier is how much more arm a wavers than b, seed by seed, as a variance. Of each variance, what sampling
// explains is only known to lie between nothing and a bound.
func unsteadier(a, b Runs) estimate {
	return betweenOf("the difference", root, func(seed uint64) (low, high float64) {
		r, s := a.Seed(seed), b.Seed(seed)
		if r == nil || s == nil {
			return math.NaN(), math.NaN()
		}
		x, ofX := roughness(a, r)
		y, ofY := roughness(b, s)
		return x - ofX - y, x - (y - ofY)
	}, a, b)
}

// averageOver is the mean of a measure over several arms, seed by seed. Arms without a run of the seed are left out.
func averageOver(arms []Runs, m measure) estimate {
	return estimateOf("the mean over the arms", times, func(seed uint64) float64 { return mean(onSeed(arms, seed, m)) },
		arms...)
}

// quantity is a measure of an arm's runs.
func quantity(a Runs, m measure, what string, write format) estimate {
	return estimateOf(what, write, func(seed uint64) float64 { return a.on(seed, m) }, a)
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
	return estimateOf("the rank correlation", correlation,
		func(seed uint64) float64 { return rankCorrelation(levels, onSeed(arms, seed, m)) }, arms...)
}

// correlation writes a rank correlation, or an end of its t interval, which may lie beyond 1.
func correlation(v float64) string { return times(max(-1, min(v, 1))) }

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

// unsteadiness is what unsteadier measures, in words.
const (
	unsteadiness = "Variance of accuracy about a smooth curve, as its root"
	samplingNote = "Of each variance, what the sampling of answers explains lies between nothing and p(1 − p)/n: only a " +
		"difference beyond that counts."
)

// root writes the root of a variance, or of a difference of variances, with its sign.
func root(v float64) string { return change(math.Copysign(math.Sqrt(math.Abs(v)), v)) }

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
