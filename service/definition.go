package service

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/wire"
)

// definition is a wire.Table with its defaults filled in and everything that it stands for.
type definition struct {
	wire.Table
	options replay.Options // without a clock
	prompts *prompts.Options
	fields  []arrow.Field // of the user's own columns
	schema  *arrow.Schema // of sampling, with all columns
}

// define fills in a definition's defaults, or returns every problem at once, each naming the key, under code wire.Invalid.
func define(w wire.Table) (*definition, error) {
	d := &definition{Table: w}
	var problems []error
	add := func(errs ...error) { problems = append(problems, errs...) }
	if err := wire.CheckName(w.Name); err != nil {
		add(err)
	}
	d.options = optionsOf(w)
	for _, err := range parts(d.options.Validate()) {
		add(asKey(err))
	}
	add(checkOwn(w)...)
	if w.Limiter != nil {
		add(checkLimiter(*w.Limiter, w.GroupSize)...)
	}
	if w.Gate != nil {
		add(checkGateWithin(w)...)
	}
	add(d.definePrompts()...)
	var err error
	if d.fields, err = wire.ExtraFields(w.Columns); err != nil {
		add(err)
	} else if d.schema, err = wire.SampleSchema(nil, d.fields...); err != nil {
		add(err)
	}
	if len(problems) > 0 {
		return nil, wire.Errorf(wire.Invalid, "table %q: %s", w.Name, sentence(problems))
	}
	return d, d.fill()
}

// sentence joins problems on one line each.
func sentence(problems []error) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "; ")
}

// parts takes joined errors apart.
func parts(err error) []error {
	var joined interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		return joined.Unwrap()
	}
	return []error{err}
}

// optionsOf is what a definition says to the table itself.
func optionsOf(w wire.Table) replay.Options {
	o := replay.Options{
		Capacity: w.Capacity, CapacityBytes: w.CapacityBytes,
		Retention: replay.Retention(w.Retention), PositiveFraction: w.PositiveFraction, PositiveThreshold: w.PositiveThreshold,
		Sampler: replay.Sampler(w.Sampler), MaxStaleness: w.MaxStaleness, MaxUses: w.MaxUses, MinSize: w.MinSize,
		Unit: replay.Unit(w.Unit), StepReturns: w.StepReturns, StepDiscount: w.StepDiscount,
		Shards: w.Shards, Advantage: advantage.Kind(w.Advantage), Vocab: w.Vocab, MaxTokens: w.MaxTokens, Seed: w.Seed,
		LeaseTimeout: time.Duration(math.Min(math.Max(w.LeaseSeconds, 0), maxSeconds) * float64(time.Second)),
	}
	if o.Unit == replay.UnitGroup {
		o.GroupSize = w.GroupSize // with the other units the service sees to it
	}
	if p := w.Priority; p != nil && o.Sampler == replay.Prioritized {
		o.Prioritization = &replay.Prioritization{
			Base: replay.Base(p.Base), Epsilon: p.Epsilon, Exponent: p.Exponent, AgeDecay: float64(p.AgeDecay), Decay: replay.Decay(p.Decay),
			TargetESS: p.TargetESS, Spread: replay.Spread(p.Draws), Entry: replay.Entry(p.Entry),
			Beta: p.Beta, BetaVersions: p.BetaVersions, Normalisation: replay.Normalisation(p.Normalisation),
		}
	}
	return o
}

// asKey names an option as definitions do.
func asKey(err error) error {
	var option *replay.OptionError
	if !errors.As(err, &option) {
		return err
	}
	key := option.Key
	switch key {
	case "priority_base", "priority_epsilon", "priority_exponent":
		key = "priority." + strings.TrimPrefix(key, "priority_")
	case "age_decay", "decay", "target_ess", "draws", "entry":
		key = "priority." + key
	case "importance_beta":
		key = "priority.beta"
	case "importance_versions":
		key = "priority.beta_versions"
	case "importance_norm":
		key = "priority.normalisation"
	case "lease_timeout":
		key = "lease_seconds"
	}
	return fmt.Errorf("%s: %s: want %s", key, option.Value, option.Allowed)
}

// checkOwn checks what the table does not know of.
func checkOwn(w wire.Table) (problems []error) {
	check := func(ok bool, key string, value any, want string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s: %v: want %s", key, value, fmt.Sprintf(want, args...)))
		}
	}
	check(w.LeaseSeconds >= 0 && w.LeaseSeconds <= maxSeconds, "lease_seconds", w.LeaseSeconds, "0 (%v) to %v", replay.DefaultLeaseTimeout.Seconds(), maxSeconds)
	check(w.LeaseSeconds == 0 || w.LeaseSeconds >= 1e-3, "lease_seconds", w.LeaseSeconds, "0.001 or more")
	if w.Unit != string(replay.UnitGroup) { // with unit group the table checks it
		check(w.GroupSize >= 0 && w.GroupSize <= math.MaxInt32, "group_size", w.GroupSize, "0 (groups may differ) to %d", math.MaxInt32)
	}
	check(w.Priority == nil || w.Sampler == string(replay.Prioritized), "priority", "given", "none with sampler %q, or sampler prioritized", w.Sampler)
	return problems
}

// checkGateWithin checks a gate with what else the table says: that it lets the trainer begin.
func checkGateWithin(w wire.Table) []error {
	problems := checkGate(*w.Gate)
	if len(problems) > 0 {
		return problems
	}
	first := float64(w.Gate.MaxStaleness+1) * w.Gate.RolloutsPerUpdate
	if least := w.MinSize * max(w.Shards, 1); float64(least) > first {
		problems = append(problems, fmt.Errorf("gate.max_staleness: %d: want so many that (max_staleness + 1) x rollouts_per_update, now %v, reaches the %d rollouts of min_size without which no update begins",
			w.Gate.MaxStaleness, first, least))
	}
	if float64(w.GroupSize) > first {
		problems = append(problems, fmt.Errorf("gate.max_staleness: %d: want so many that (max_staleness + 1) x rollouts_per_update, now %v, reaches a group of group_size %d",
			w.Gate.MaxStaleness, first, w.GroupSize))
	}
	return problems
}

func (d *definition) definePrompts() (problems []error) {
	if d.Prompts == nil {
		return nil
	}
	o := prompts.Options{Fraction: d.Prompts.Fraction, Band: d.Prompts.Band, Cooldown: d.Prompts.Cooldown, MaxReuse: d.Prompts.MaxReuse}
	if o.Fraction == 0 {
		o = prompts.Defaults()
	}
	for _, err := range parts(o.Validate()) {
		problems = append(problems, fmt.Errorf("prompts.%w", asKey(err)))
	}
	d.prompts = &o
	return problems
}

// fill writes the defaults into the definition, so that equal tables have equal definitions.
func (d *definition) fill() error {
	t, err := replay.New(d.options)
	if err != nil {
		return err
	}
	o := t.Options()
	w := &d.Table
	w.Capacity, w.Retention, w.PositiveThreshold = o.Capacity, string(o.Retention), o.PositiveThreshold
	w.Sampler, w.Unit, w.StepDiscount = string(o.Sampler), string(o.Unit), o.StepDiscount
	w.Shards, w.Advantage, w.LeaseSeconds = o.Shards, string(o.Advantage), o.LeaseTimeout.Seconds()
	if p := o.Prioritization; p != nil {
		w.Priority = &wire.Priority{
			Base: string(p.Base), Epsilon: p.Epsilon, Exponent: p.Exponent, AgeDecay: wire.Versions(p.AgeDecay), Decay: string(p.Decay),
			TargetESS: p.TargetESS, Draws: string(p.Spread), Entry: string(p.Entry),
			Beta: p.Beta, BetaVersions: p.BetaVersions, Normalisation: string(p.Normalisation),
		}
	}
	if w.Gate != nil {
		g := *w.Gate
		g.GrantSeconds = cmp.Or(g.GrantSeconds, defaultGrantTime.Seconds())
		w.Gate = &g
	}
	if d.prompts != nil {
		w.Prompts = &wire.Prompts{Fraction: d.prompts.Fraction, Band: d.prompts.Band, Cooldown: d.prompts.Cooldown, MaxReuse: d.prompts.MaxReuse}
	}
	if len(w.Columns) == 0 {
		w.Columns = nil
	}
	return nil
}

// text is the definition as journals keep it.
func (d *definition) text() ([]byte, error) { return json.Marshal(d.Table) }

// readDefinition reads what text returned.
func readDefinition(text []byte) (*definition, error) {
	var w wire.Table
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, fmt.Errorf("reading a table's definition: %w", err)
	}
	return define(w)
}

// differences names every key in which a definition, defaults filled in, differs from a table's, both with their values.
func differences(given, there wire.Table) []string {
	return differ("", reflect.ValueOf(given), reflect.ValueOf(there))
}

func differ(place string, a, b reflect.Value) (found []string) {
	for i := range a.NumField() {
		key, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		x, y := a.Field(i), b.Field(i)
		if reflect.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		if x.Kind() == reflect.Pointer && !x.IsNil() && !y.IsNil() {
			found = append(found, differ(place+key+".", x.Elem(), y.Elem())...)
			continue
		}
		found = append(found, fmt.Sprintf("%s%s is %s, the table's is %s", place, key, shown(x), shown(y)))
	}
	return found
}

// shown is a value as JSON.
func shown(v reflect.Value) string {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	if string(text) == "null" {
		return "none"
	}
	return string(text)
}
