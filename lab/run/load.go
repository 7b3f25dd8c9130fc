package run

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
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
	decoded := decode(text, &c)
	return c, errors.Join(decoded, c.assign(assignments), c.Validate())
}

// LoadFolder reads the configuration of a run's folder to resume it, with assignments that may change its budget only:
// any other change would make it another run.
func LoadFolder(dir string, assignments []string) (Config, error) {
	c := Default()
	text, err := os.ReadFile(filepath.Join(dir, results.ConfigFile))
	if err != nil {
		return c, fmt.Errorf("%s holds no run: name the folder that was given to --out: %w", dir, err)
	}
	if err := decode(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", dir, err)
	}
	changed := c
	if err := changed.assign(assignments); err != nil {
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

func (c *Config) assign(assignments []string) error {
	return assignTo(reflect.ValueOf(c).Elem(), assignments)
}

// assignTo sets keys of a struct by assignments key=value.
func assignTo(into reflect.Value, assignments []string) error {
	var errs []error
	for _, a := range assignments {
		tree, err := assignment(a)
		if err == nil {
			err = decodeTree("", tree, into)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// decode reads a YAML mapping into the struct that into points to, over the values it already has. It is strict, and
// unlike a decoder that ends at its first problem it reports every unknown key and every value of a wrong kind, each
// with its full key.
func decode(text []byte, into any) error {
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return fmt.Errorf("the configuration is not a YAML mapping: %s", yaml.FormatError(err, false, true))
	}
	return decodeTree("", tree, reflect.ValueOf(into).Elem())
}

func decodeTree(at string, tree map[string]any, into reflect.Value) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		full := strings.TrimPrefix(at+"."+key, ".")
		field, known := fieldOf(into, key)
		if !known {
			errs = append(errs, fmt.Errorf("%s: unknown key: want %s", full, wanted(at, key, into.Type())))
			continue
		}
		errs = append(errs, decodeValue(full, tree[key], field))
	}
	return errors.Join(errs...)
}

// wanted says which keys the user of an unknown one may have meant, or those that its section has.
func wanted(section, key string, t reflect.Type) string {
	possible := everyKey(section, t)
	if all := everyKey("", reflect.TypeFor[Config]()); len(possible) > 0 && slices.Contains(all, possible[0]) {
		possible = all // else they are the settings of a task, which are a structure of their own
	}
	if now := fieldNames()[key]; slices.Contains(possible, now) {
		return now
	} else if now != "" && !strings.Contains(now, ".") {
		key = now
	}
	var same, similar []string
	for _, full := range possible {
		switch last := full[strings.LastIndex(full, ".")+1:]; {
		case last == key:
			same = append(same, full)
		case words.OneTypoApart(last, key):
			similar = append(similar, full)
		}
	}
	switch {
	case len(same) > 0:
		return strings.Join(same, " or ")
	case len(similar) > 0:
		return strings.Join(similar, " or ")
	}
	return "one of " + strings.Join(settable(section, t), ", ")
}

// fieldNames maps names that other trainers and model files use to keys of a configuration, with their section where
// only one is meant.
func fieldNames() map[string]string {
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

// everyKey returns the keys of a section and of the sections in it that a configuration may give.
func everyKey(at string, t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, inline := yamlKey(f)
		full := strings.TrimPrefix(at+"."+name, ".")
		switch {
		case inline:
			keys = append(keys, everyKey(at, f.Type)...)
		case name == "" || decidedElsewhere()[full] != "":
		case f.Type.Kind() == reflect.Struct:
			keys = append(keys, everyKey(full, f.Type)...)
		default:
			keys = append(keys, full)
		}
	}
	return keys
}

// settable returns the keys of a section that a configuration may give.
func settable(section string, t reflect.Type) []string {
	return slices.DeleteFunc(keysOf(t), func(key string) bool { return decidedElsewhere()[section+"."+key] != "" })
}

// decodeValue sets one field from a YAML value.
func decodeValue(at string, value any, field reflect.Value) error {
	if value == nil {
		return nil // "key:" with nothing behind it leaves the default
	}
	if field.Kind() == reflect.Pointer { // what may be left out: whoever gives it gives what it points to
		fresh := reflect.New(field.Type().Elem())
		err := decodeValue(at, value, fresh.Elem())
		field.Set(fresh)
		return err
	}
	if field.Kind() == reflect.Struct {
		tree, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %v: want a mapping with %s", at, value, strings.Join(keysOf(field.Type()), ", "))
		}
		return decodeTree(at, tree, field)
	}
	if before, ok := field.Interface().(map[string]any); ok {
		merged, err := merge(at, value, before)
		field.Set(reflect.ValueOf(merged))
		return err
	}
	if f, ok := value.(float64); ok && whole(field.Kind()) && f != math.Trunc(f) {
		return fmt.Errorf("%s: %v: want %s", at, value, kindOf(field.Type()))
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %v: %w", at, value, err)
	}
	fresh := reflect.New(field.Type())
	if err := yaml.UnmarshalWithOptions(text, fresh.Interface(), yaml.DisallowUnknownField()); err != nil {
		return fmt.Errorf("%s: %v: want %s", at, value, kindOf(field.Type()))
	}
	field.Set(fresh.Elem())
	return nil
}

// merge returns a free mapping, which another decoder holds to its own struct, with keys added or replaced.
func merge(at string, value any, before map[string]any) (map[string]any, error) {
	tree, ok := value.(map[string]any)
	if !ok {
		return before, fmt.Errorf("%s: %v: want a mapping", at, value)
	}
	merged := maps.Clone(before)
	if merged == nil {
		merged = make(map[string]any)
	}
	maps.Copy(merged, tree)
	return merged, nil
}

// fieldOf finds the field with a yaml key, in inlined structs too.
func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		name, inline := yamlKey(v.Type().Field(i))
		if inline {
			if f, ok := fieldOf(v.Field(i), key); ok {
				return f, true
			}
		} else if name == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		name, inline := yamlKey(t.Field(i))
		switch {
		case inline:
			keys = append(keys, keysOf(t.Field(i).Type)...)
		case name != "":
			keys = append(keys, name)
		}
	}
	return keys
}

// yamlKey returns a field's key, empty if it has none.
func yamlKey(f reflect.StructField) (name string, inline bool) {
	tag := f.Tag.Get("yaml")
	if tag == "" {
		tag = f.Tag.Get("json") // of options that are spelled in JSON too
	}
	name, options, _ := strings.Cut(tag, ",")
	if name == "-" || !f.IsExported() {
		return "", false
	}
	return name, options == "inline"
}

func whole(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uint64 }

func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[replay.Versions]():
		return "versions, or inf for none; target_ess lets it follow the measured ESS"
	case reflect.TypeFor[BaseSeed]():
		return "a whole number, or own for the run's seed"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.Struct {
			return "a list of mappings with " + strings.Join(keysOf(e), ", ")
		}
		return "a list"
	}
	return "a text"
}

// assignment turns "replay.capacity=2048" into the YAML mapping that says the same.
func assignment(text string) (map[string]any, error) {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return nil, fmt.Errorf("--set %q: want key=value, for example replay.capacity=2048", text)
	}
	var parsed any
	if err := yaml.Unmarshal([]byte(value), &parsed); err != nil {
		return nil, fmt.Errorf("--set %s: %q is not valid YAML: try quoting it", key, value)
	}
	parts := strings.Split(key, ".")
	slices.Reverse(parts)
	for _, p := range parts {
		parsed = map[string]any{p: parsed}
	}
	return parsed.(map[string]any), nil
}
