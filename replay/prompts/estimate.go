package prompts

import (
	"cmp"

	"github.com/reprise-rl/reprise/rollout"
)

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

// medium reports whether the prompt is one to keep: 0 < p < 1 and |p - 1/2| <= band. The quotient is rounded once,
// as the band's literal was, so that a pass rate on the edge is within.
func (e estimate) medium(band float64) bool {
	return 0 < e.Correct && e.Correct < e.Total && float64(e.distance())/float64(2*int64(e.Total)) <= band
}

// compare orders estimates by priority -|p - 1/2|, best first, then the oldest first. Totals are below 2^31, so
// that the products are exact.
func (e estimate) compare(o estimate) int {
	return cmp.Or(
		cmp.Compare(e.distance()*int64(o.Total), o.distance()*int64(e.Total)),
		cmp.Compare(e.Version, o.Version),
		cmp.Compare(e.Sequence, o.Sequence),
	)
}

// percent returns the pass rate in hundredths, rounded down.
func (e estimate) percent() int64 { return 100 * int64(e.Correct) / int64(e.Total) }
