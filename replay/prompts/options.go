package prompts

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Options configure a [Buffer]. They are the one definition of the keys of prompt replay ([option.Field]): a run's
// configuration, the service's YAML and JSON and Python spell them by the json tags. In Go zeros are literal, but for
// MaxPrompts, and [Defaults] returns the defaults; in YAML and JSON a key that is not given has its default. The
// fraction is that of [PR]; band, cooldown and number of reuses are ours: [PR] gives none.
type Options struct {
	// f, share of a batch's prompts that may come from the buffer; a run begins with 0
	Fraction float64 `json:"fraction" default:"0.75" range:"[0, 1]"`
	// hold prompts with a pass rate p in (0, 1) and |p - 1/2| <= band; 0: those at one half
	Band float64 `json:"band" default:"0.3" range:"[0, 0.5]"`
	// versions from one use of a prompt to the next, at least
	Cooldown int `json:"cooldown" default:"5" range:"[0, 2147483647]"`
	// replay a prompt at most this many times
	MaxReuse int `json:"max_reuse" default:"10" range:"[1, 2147483647]"`
	// remember at most so many prompts; the one reported longest ago leaves first
	MaxPrompts int `json:"max_prompts,omitempty" default:"1048576" range:"[1, 2147483647]"`
}

// Defaults returns the options of who gives none.
func Defaults() (o Options) {
	option.Fill(&o)
	return o
}

// WithDefaults returns the options with the default of MaxPrompts filled in.
func (o Options) WithDefaults() Options {
	o.MaxPrompts = cmp.Or(o.MaxPrompts, Defaults().MaxPrompts)
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

// Validate returns every problem at once, each an *[option.Error], joined; nil if there is none.
func (o Options) Validate() error {
	var problems option.Problems
	problems.CheckFields(o.WithDefaults(), nil)
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
