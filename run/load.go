package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/reprise-rl/reprise/results"
)

// Load reads a configuration: the built-in one, changed by a file if one is named, then by assignments key=value. It
// reports every problem at once.
func Load(path string, assignments []string) (Config, error) {
	c := Default()
	var errs []error
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("read the configuration: %w", err)
		}
		if err := decode(text, &c); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.assign(assignments), c.Validate())
	return c, errors.Join(errs...)
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
		return c, errors.New("--resume goes on with the configuration in the folder: --set may change budget.compute and budget.updates only")
	}
	return changed, changed.Validate()
}

func (c *Config) assign(assignments []string) error {
	var errs []error
	for _, a := range assignments {
		tree, err := assignment(a)
		if err == nil {
			err = decodeTree("", tree, reflect.ValueOf(c).Elem())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
