package run

import (
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/option"
	"github.com/reprise-rl/reprise/replay"
)

// under names the problems that a part found in its options as the configuration does: the section before the key, and
// all in one form, "key: value: want …".
func under(section string, err error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, under(section, e))
		}
		return errors.Join(errs...)
	}
	problem := func(key string, value any, want string) error {
		return fmt.Errorf("%s: %v: want %s", place(section+"."+key), value, strings.TrimPrefix(want, "must be "))
	}
	var p *option.Error
	var o *replay.OptionError
	switch {
	case errors.As(err, &p):
		return problem(p.Key, p.Value, p.Want)
	case errors.As(err, &o):
		return problem(o.Key, o.Value, o.Allowed)
	case strings.HasPrefix(err.Error(), section+"."): // decoded by this package, with its full key
		return err
	}
	return fmt.Errorf("%s.%w", section, err)
}

// place returns the key under which the configuration keeps an option that a part knows by another.
func place(key string) string {
	switch key {
	case "pipeline.max_tokens":
		return "generate.max_tokens"
	case "pipeline.updates":
		return "budget.updates"
	case "pipeline.compute_budget":
		return "budget.compute"
	case "pipeline.mix":
		return "replay.mix"
	case "pipeline.fresh_share":
		return "replay.fresh_share"
	case "replay.shards":
		return "pipeline.trainers"
	}
	return key
}
