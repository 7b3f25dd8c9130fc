package prompts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Options configure a [Buffer]. They are the one definition of the keys of prompt replay: a run's configuration, the
// service's YAML and JSON and the Python client spell them by the json tags. In Go zeros are literal, but for
// MaxPrompts, and [Defaults] returns the defaults; in YAML and JSON a key that is not given has its default, which the
// comment names in brackets.
type Options struct {
	// f, share of a batch's prompts that may come from the buffer, in [0, 1] [0.75; 0 in a run]
	Fraction float64 `json:"fraction"`
	// hold prompts with a pass rate p in (0, 1) and |p - 1/2| <= band, in [0, 0.5] [0.3]
	Band     float64 `json:"band"`
	Cooldown int     `json:"cooldown"`  // versions from one use of a prompt to the next, at least [5]
	MaxReuse int     `json:"max_reuse"` // replay a prompt at most this many times [10]
	// remember at most so many prompts; the one reported longest ago leaves first [1048576]
	MaxPrompts int `json:"max_prompts,omitempty"`
}

const defaultMaxPrompts = 1 << 20

// Defaults returns the fraction of [PR], and a band, a cooldown and a number of reuses of ours: [PR] gives none.
func Defaults() Options {
	return Options{Fraction: 0.75, Band: 0.3, Cooldown: 5, MaxReuse: 10, MaxPrompts: defaultMaxPrompts}
}

// WithDefaults returns the options with the default of MaxPrompts filled in.
func (o Options) WithDefaults() Options {
	o.MaxPrompts = cmp.Or(o.MaxPrompts, defaultMaxPrompts)
	return o
}

// given has no methods for decoders to call.
type given Options

// UnmarshalJSON reads the keys that are given over the defaults, and refuses unknown ones.
func (o *Options) UnmarshalJSON(text []byte) error {
	g := given(Defaults())
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&g)
	*o = Options(g)
	return err
}

// UnmarshalYAML reads the keys that are given over the defaults.
func (o *Options) UnmarshalYAML(decode func(any) error) error {
	g := given(Defaults())
	err := decode(&g)
	*o = Options(g)
	return err
}

// Validate returns every problem at once, each an *[option.Error], joined; nil if there is none.
func (o Options) Validate() error {
	var problems option.Problems
	check := problems.Check
	check(o.Fraction >= 0 && o.Fraction <= 1, "fraction", o.Fraction, "0 (nothing is replayed) to 1")
	check(o.Band >= 0 && o.Band <= 0.5, "band", o.Band, "0 (only prompts at one half) to 0.5 (all but never and "+
		"always correct)")
	check(o.Cooldown >= 0 && o.Cooldown <= math.MaxInt32, "cooldown", o.Cooldown, "0 to %d versions", math.MaxInt32)
	check(o.MaxReuse >= 1 && o.MaxReuse <= math.MaxInt32, "max_reuse", o.MaxReuse,
		"1 to %d; fraction 0 replays nothing", math.MaxInt32)
	check(o.MaxPrompts >= 0 && o.MaxPrompts <= math.MaxInt32, "max_prompts", o.MaxPrompts, "1 to %d, or 0 (%d)",
		math.MaxInt32, defaultMaxPrompts)
	return problems.Err()
}

// share returns floor(f n), as the decimal numbers say: 29 of 100 at 0.29, where the product of floats is below 29. A
// quotient of integers is rounded as the fraction's own literal is, so that equals compare equal.
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
