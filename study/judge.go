package study

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

// claimSeeds is how many seeds a claim needs (docs/METHODS.md, Evaluation).
const claimSeeds = 4

// bootstrapSeed makes intervals the same whenever a study is judged.
const bootstrapSeed = 1

// spread is a quantity over seeds. What was never reached is infinite and in order like other values; what lies between a finite and
// an infinite value is infinite.
type spread struct {
	values         []float64 // by ascending seed, those that have it
	median, q1, q3 float64   // NaN without values
	low, high      float64   // bootstrap interval of the median at 95%; NaN under claimSeeds values
}

// quartilesOf summarizes values without an interval; NaN are left out.
func quartilesOf(values []float64) spread {
	s := spread{values: slices.DeleteFunc(slices.Clone(values), math.IsNaN), low: math.NaN(), high: math.NaN()}
	s.median, s.q1, s.q3 = results.Median(s.values), results.Quantile(s.values, 0.25), results.Quantile(s.values, 0.75)
	return s
}

// spreadOf summarizes values; NaN are left out.
func spreadOf(values []float64) spread {
	s := quartilesOf(values)
	if len(s.values) >= claimSeeds {
		s.low, s.high = results.Bootstrap(s.values, 0.95, bootstrapSeed)
	}
	return s
}

// format writes the spread with a value's format.
func (s spread) format(value func(float64) string) string {
	switch n := len(s.values); {
	case n == 0:
		return "not measured"
	case n == 1:
		return value(s.median) + " on one seed"
	case n < claimSeeds:
		return fmt.Sprintf("%s (%d seeds, IQR %s to %s)", value(s.median), n, value(s.q1), value(s.q3))
	default:
		return fmt.Sprintf("%s (%d seeds, IQR %s to %s, 95%% interval %s to %s)",
			value(s.median), n, value(s.q1), value(s.q3), value(s.low), value(s.high))
	}
}

// rule is how a quantity over seeds decides a claim.
type rule struct {
	words  string // how, for the reader
	decide func(low, high float64) results.Verdict
}

// interval is the rule that asks where the interval of a quantity's median lies: where the claim holds, and where it does not.
func interval(quantity, holds, not string, decide func(low, high float64) results.Verdict) rule {
	return rule{fmt.Sprintf("The claim holds if the 95%% bootstrap interval of the median of %s lies %s, and does not hold if it lies %s.", quantity, holds, not), decide}
}

// above is the rule of a claim that a quantity is greater than a bound.
func above(quantity string, bound float64) rule {
	return interval(quantity, "above "+number(bound), "at or below", func(low, high float64) results.Verdict { return verdict(low > bound, high <= bound) })
}

// below is the rule of a claim that a quantity is less than a bound.
func below(quantity string, bound float64) rule {
	return interval(quantity, "below "+number(bound), "at or above", func(low, high float64) results.Verdict { return verdict(high < bound, low >= bound) })
}

// atLeast is the rule of a claim that a quantity comes to a bound.
func atLeast(quantity string, bound float64) rule {
	return interval(quantity, "at or above "+number(bound), "below", func(low, high float64) results.Verdict { return verdict(low >= bound, high < bound) })
}

// atMost is the rule of a claim that a quantity does not exceed a bound.
func atMost(quantity string, bound float64) rule {
	return interval(quantity, "at or below "+number(bound), "above", func(low, high float64) results.Verdict { return verdict(high <= bound, low > bound) })
}

// within is the rule of a claim that a quantity is as good as a value: nearer than margin, which is fixed before the runs.
func within(quantity string, value, margin float64) rule {
	near := fmt.Sprintf("within %s of %s, a margin fixed before the runs", number(margin), number(value))
	return interval(quantity, near, "outside", func(low, high float64) results.Verdict {
		return verdict(low >= value-margin && high <= value+margin, low > value+margin || high < value-margin)
	})
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

// by returns the verdict on a quantity over seeds, which is that it cannot be told where there are too few, or in a rehearsal.
func (r rule) by(f *Found, s spread) results.Verdict {
	if f.caution(len(s.values)) != "" {
		return results.CannotTell
	}
	return r.decide(s.low, s.high)
}

// caution says why no claim is made over so many seeds, nothing where one may be.
func (f *Found) caution(seeds int) string {
	switch {
	case f.Quick:
		return "A rehearsal makes no claim."
	case seeds == 0:
		return "No seed has what is to be compared."
	case seeds < claimSeeds:
		return fmt.Sprintf("A claim needs %d seeds that have what is compared; there are %d.", claimSeeds, seeds)
	default:
		return ""
	}
}

// asked is a claim of a source.
type asked struct{ source, claim string }

// settle is a finding that one quantity over seeds decides.
func (f *Found) settle(a asked, found string, s spread, r rule) results.Finding {
	return results.Finding{
		Source: a.source, Claim: a.claim, Found: found, Verdict: r.by(f, s),
		Why: strings.TrimSpace(f.caution(len(s.values)) + " " + r.words),
	}
}

// all is the verdict on a claim of several parts: it holds if all hold, and does not if one does not.
func all(parts ...results.Verdict) results.Verdict {
	return verdict(len(parts) > 0 && !slices.ContainsFunc(parts, func(v results.Verdict) bool { return v != results.Holds }),
		slices.Contains(parts, results.DoesNotHold))
}

// number writes a number as short as it is.
func number(v float64) string { return minus(fmt.Sprintf("%.4g", v)) }

// points writes an accuracy, and change one with its sign.
func points(v float64) string { return fixed(v, 3) }
func change(v float64) string {
	if v > 0 && !math.IsInf(v, 1) {
		return "+" + fixed(v, 3)
	}
	return fixed(v, 3)
}

// updates writes compute in updates of some unit, which is infinite where a target was not reached.
func updates(v float64) string {
	if math.IsInf(v, 1) {
		return "not reached"
	}
	return fixed(v, 0)
}

// times writes a ratio.
func times(v float64) string { return fixed(v, 2) }

// percent writes a share.
func percent(v float64) string {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return fixed(v, 0)
	}
	return fixed(100*v, 0) + "%"
}

func fixed(v float64, digits int) string {
	switch {
	case math.IsNaN(v):
		return "—"
	case math.IsInf(v, 1):
		return "∞"
	case math.IsInf(v, -1):
		return "−∞"
	}
	return minus(fmt.Sprintf("%.*f", digits, v))
}

// minus writes the sign of negative numbers as such, and none for what is rounded to 0.
func minus(s string) string {
	if !strings.HasPrefix(s, "-") {
		return s
	}
	if strings.Trim(s[1:], "0.") == "" {
		return s[1:]
	}
	return "−" + s[1:]
}
