package prompts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"

	"github.com/reprise-rl/reprise/replay/formula"
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
	// how many prompts to remember; the one reported longest ago leaves first
	MaxPrompts int `json:"max_prompts,omitempty" default:"1048576" range:"[1, 2147483647]"`

	// Expressions over what is known of a prompt (package replay/formula); with any of them all prompts that were ever
	// reported are known.

	// hold prompts of which this is true, such as pass_rate < 1, in the place of the band
	Keep string `json:"keep,omitempty" default:"by band"`
	// replay those with the highest number first, such as pass_rate * (1 - pass_rate), in the place of those near one half
	Score string `json:"score,omitempty" default:"nearest to one half"`
	// versions from one use of a prompt to the next, such as pass_rate == 1 ? 50 : 5, in the place of cooldown
	Interval string `json:"interval,omitempty" default:"cooldown"`
	// probability with which a fresh prompt is passed over, such as 1 - 0.5 ** streak; 0 for one that is not known
	Skip string `json:"skip,omitempty" default:"none is passed over"`
}

// formulas are the parsed expressions of options, nil where there is none.
type formulas struct{ keep, score, interval, skip *formula.Formula }

// formulas parses the expressions. Errors are *[option.Error].
func (o Options) formulas() (f formulas, err error) {
	var problems option.Problems
	parse := func(key, text string, parse func(string) (*formula.Formula, error)) *formula.Formula {
		if text == "" {
			return nil
		}
		x, err := parse(text)
		if err != nil {
			problems.Check(false, key, text, "an expression over a prompt: %v", err)
		}
		return x
	}
	f.keep = parse("keep", o.Keep, formula.PromptCondition)
	f.score = parse("score", o.Score, formula.PromptScore)
	f.interval = parse("interval", o.Interval, formula.PromptScore)
	f.skip = parse("skip", o.Skip, formula.PromptScore)
	return f, problems.Err()
}

// scheduled reports whether there are expressions.
func (o Options) scheduled() bool { return o.Keep+o.Score+o.Interval+o.Skip != "" }

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
	_, err := o.formulas()
	return errors.Join(problems.Err(), err)
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
