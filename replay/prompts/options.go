package prompts

import (
	"errors"
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/replay"
)

// Options configure a [Buffer]. They are taken literally, zeros too; [Defaults] are ours.
type Options struct {
	Fraction float64 // f, the share of a batch that may come from the buffer, in [0, 1]
	Band     float64 // prompts with a pass rate p in (0, 1) and |p - 1/2| <= Band are held, in [0, 0.5]
	Cooldown int     // versions from one use of a prompt to its next, at least, >= 0
	MaxReuse int     // times that a prompt is replayed, at most, >= 1
}

// Defaults returns the fraction of [PR], and a band, a cooldown and a greatest reuse of ours: [PR] gives none.
func Defaults() Options { return Options{Fraction: 0.75, Band: 0.3, Cooldown: 5, MaxReuse: 10} }

// Validate returns every problem at once, each a *[replay.OptionError], joined; nil if there is none.
func (o Options) Validate() error {
	var problems []error
	check := func(ok bool, key string, value any, allowed string) {
		if !ok {
			problems = append(problems, &replay.OptionError{Key: key, Value: fmt.Sprint(value), Allowed: allowed})
		}
	}
	within := func(n, least int) bool { return n >= least && n <= math.MaxInt32 }
	check(o.Fraction >= 0 && o.Fraction <= 1, "fraction", o.Fraction, "0 (nothing is replayed) to 1")
	check(o.Band >= 0 && o.Band <= 0.5, "band", o.Band, "0 (one half only) to 0.5 (all but never and always correct)")
	check(within(o.Cooldown, 0), "cooldown", o.Cooldown, fmt.Sprintf("0 to %d versions", math.MaxInt32))
	check(within(o.MaxReuse, 1), "max_reuse", o.MaxReuse, fmt.Sprintf("1 to %d; fraction 0 replays nothing", math.MaxInt32))
	return errors.Join(problems...)
}

// share returns floor(f n), as the decimal numbers say: 29 of 100 at 0.29, where the product of floats is below 29.
// A quotient of integers is rounded as the fraction's own literal is, so that equals compare equal.
func (o Options) share(n int) int {
	if n <= 0 {
		return 0
	}
	k := min(n, int(o.Fraction*float64(n)))
	switch {
	case k < n && float64(k+1)/float64(n) <= o.Fraction:
		return k + 1
	case float64(k)/float64(n) > o.Fraction:
		return k - 1
	}
	return k
}
