package run

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/catalog"
)

func (c Config) taskName() string { return fmt.Sprint(c.Task["name"]) }

// taskSettings decodes the task's part of the configuration by the settings of the task that it names.
func (c Config) taskSettings() (catalog.Configuration, error) {
	settings, err := catalog.Settings(c.taskName())
	if err != nil {
		return nil, err
	}
	tree := maps.Clone(c.Task)
	delete(tree, "name")
	return settings, decodeTree("task", tree, reflect.ValueOf(settings).Elem())
}

// newTask returns the task, which it makes unless it was made last. Its training prompts are ordered by the run's seed; which
// prompts are held out is the task's own affair, so that all seeds are evaluated alike.
func (c Config) newTask() (task.Task, error) {
	if c.own != nil { // its store was made with it, see WithTask
		return c.made.taskFrom(nil, c.Seed, c.own)
	}
	settings, err := c.taskSettings()
	if err != nil {
		return nil, err
	}
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings.Resolve() // config.yaml spells defaults out: it is the same task
	return c.made.taskFrom(settings, c.Seed, func(seed uint64) (task.Task, error) {
		return catalog.New(c.taskName(), settings, seed)
	})
}

// validateTask reports what is wrong with the task's settings and what the run asks of the task in vain.
func (c Config) validateTask() error {
	t, err := c.newTask()
	if err != nil {
		return under("task", err)
	}
	return errors.Join(c.Warmup.validateFor(t, c.taskName()), c.Policy.validateFor(t, c.taskName()))
}

// turns returns the most turns of the task's episodes, 1 for a task that cannot be made.
func (c Config) turns() int {
	t, err := c.newTask()
	if err != nil {
		return 1
	}
	return task.MaxTurns(t)
}

// NewTask makes a task by its name, with settings key=value, for whoever wants to play it. The seed orders its training
// prompts.
func NewTask(name string, assignments []string, seed uint64) (task.Task, error) {
	settings, err := catalog.Settings(name)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range assignments {
		tree, err := assignment(a)
		if err == nil {
			err = decodeTree("", tree, reflect.ValueOf(settings).Elem())
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, settings.Validate())...); err != nil {
		return nil, err
	}
	return catalog.New(name, settings, seed)
}

// resolved returns the configuration with what is left to choose written out, for config.yaml.
func (c Config) resolved() (Config, error) {
	if c.own == nil {
		settings, err := c.taskSettings()
		if err != nil {
			return c, err
		}
		settings.Resolve()
		c.Task = maps.Clone(c.Task)
		spell(reflect.ValueOf(settings).Elem(), c.Task)
	}
	c.Learner = c.learner()
	o := c.pipelineOptions().WithDefaults()
	r := c.replayOptions(0).WithDefaults() // importance_anneal too: a run whose budget grows goes on as it began
	r.MinSize, r.Shards, r.GroupSize, r.Advantage, r.Seed, r.LeaseSeconds = c.Replay.MinSize, 0, 0, "", 0, 0
	c.Replay.Options = r
	if o.Mode == pipeline.Sync {
		c.Pipeline.SyncRollouts, c.Pipeline.SyncUpdates = o.SyncRollouts, o.SyncUpdates
	}
	if b := &c.Baseline; b.Workers == 0 {
		b.Workers, b.Trainers = leastStalling(c.Pipeline)
	}
	return c, nil
}

// spell writes the fields of a struct into a mapping under their yaml keys.
func spell(v reflect.Value, into map[string]any) {
	for i := range v.NumField() {
		key, inline := yamlKey(v.Type().Field(i))
		switch {
		case inline:
			spell(v.Field(i), into)
		case key != "":
			into[key] = v.Field(i).Interface()
		}
	}
}

// rewardLatency returns the simulated time of a group's reward, nil if there is none.
func (c Config) rewardLatency() func(job uint64) float64 {
	latency := c.Pipeline.RewardLatency
	if latency.Mean == 0 {
		return nil
	}
	latency.Resolve()
	return func(job uint64) float64 { return latency.Draw(c.Seed, job) }
}
