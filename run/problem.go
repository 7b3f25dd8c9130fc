package run

import (
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/option"
)

// under names the problems that a part found in its options as the configuration does: the section before the key, or the key
// of another section where the configuration keeps the option there.
func under(section string, err error) error {
	var all []error
	for _, e := range option.Each(err) {
		var problem *option.Error
		switch {
		case errors.As(e, &problem):
			e = &option.Error{Key: configurationKey(section + "." + problem.Key), Value: problem.Value, Want: problem.Want}
		case !strings.HasPrefix(e.Error(), section+"."): // this package decodes some parts, with their full keys
			e = fmt.Errorf("%s.%w", section, e)
		}
		all = append(all, e)
	}
	return errors.Join(all...)
}

// configurationKey returns the key under which the configuration keeps an option that a part knows by another.
func configurationKey(key string) string {
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
	case "replay.group_size":
		return "pipeline.group"
	case "replay.advantage":
		return "learner.advantage"
	}
	return key
}
