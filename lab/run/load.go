package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Load reads a configuration: the defaults, changed by a YAML file if one is named, then by assignments key=value. It
// reports every problem at once.
func Load(path string, assignments []string) (Config, error) {
	if path == "" {
		return Parse(nil, assignments)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	return Parse(text, assignments)
}

// Parse is Load of a file's text; an empty one changes nothing.
func Parse(text []byte, assignments []string) (Config, error) {
	c := Default()
	var problems option.Problems
	problems.Add(reader().YAML(text, &c), reader().Assign(assignments, &c))
	c.check(&problems)
	return c, problems.Err()
}

// reader reads configurations, and the settings of tasks.
func reader() settings.Reader {
	return settings.Reader{Synonyms: synonyms(), Elsewhere: func(key string) bool { return decidedElsewhere()[key] != "" }}
}

// LoadFolder reads the configuration of a run's folder to resume it, with assignments that may change its budget only:
// any other change would make it another run.
func LoadFolder(dir string, assignments []string) (Config, error) {
	c := Default()
	text, err := os.ReadFile(filepath.Join(dir, results.ConfigFile))
	if err != nil {
		return c, fmt.Errorf("%s holds no run: name the folder that was given to --out: %w", dir, err)
	}
	if err := reader().YAML(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", dir, err)
	}
	changed := c
	if err := reader().Assign(assignments, &changed); err != nil {
		return c, err
	}
	same := changed
	same.Budget = c.Budget
	if !reflect.DeepEqual(same, c) {
		return c, errors.New("--resume goes on with the configuration in the folder: --set may change budget.compute " +
			"and budget.updates only")
	}
	return changed, changed.Validate()
}

// synonyms maps names that other trainers and model files use to keys of a configuration, with their section where only
// one is meant.
func synonyms() map[string]string {
	return map[string]string{
		"hidden_size": "policy.hidden", "intermediate_size": "policy.intermediate", "num_layers": "policy.layers",
		"num_hidden_layers": "policy.layers", "num_attention_heads": "policy.heads",
		"num_key_value_heads": "policy.kv_heads", "max_position_embeddings": "policy.positions",
		"tie_word_embeddings": "policy.tied", "model": "policy.init", "model_name_or_path": "policy.init",
		"lr": "learning_rate", "max_grad_norm": "learner.clip_norm", "epsilon_low": "learner.clip_low",
		"epsilon_high": "learner.clip_high", "clip_ratio_low": "learner.clip_low",
		"clip_ratio_high": "learner.clip_high",
		"loss_type":       "learner.objective", "kl_loss_coef": "learner.kl_coef", "beta": "learner.kl_coef",
		"batch_size": "pipeline.batch", "train_batch_size": "pipeline.batch", "num_generations": "pipeline.group",
		"group_size": "pipeline.group", "num_workers": "pipeline.workers", "max_new_tokens": "generate.max_tokens",
		"max_completion_length": "generate.max_tokens", "max_response_length": "generate.max_tokens",
		"buffer_size": "replay.capacity", "max_steps": "budget.updates", "eval_steps": "evaluate.every",
		"save_steps": "checkpoint.every",
	}
}
