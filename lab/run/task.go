package run

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/catalog"
	"github.com/reprise-rl/reprise/lab/task/external"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

func (c Config) taskName() string { return fmt.Sprint(c.Task["name"]) }

// taskSettings decodes the configuration's task section into the settings of the task it names.
func (c Config) taskSettings() (catalog.Configuration, error) {
	settings, err := catalog.Settings(c.taskName())
	if err != nil {
		return nil, err
	}
	tree := maps.Clone(c.Task)
	delete(tree, "name")
	return settings, reader().Tree("task", tree, settings)
}

// newTask returns the task, from the cache if it is the last one made. The run's seed orders its training prompts. The
// task itself decides which prompts are held out, so that all seeds are evaluated alike.
func (c Config) newTask() (task.Task, error) {
	if c.own != nil { // its cache was made with it, see WithTask
		return c.tasks.get(nil, c.Seed, c.own)
	}
	settings, err := c.taskSettings()
	if err != nil {
		return nil, err
	}
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings.Resolve() // config.yaml has defaults filled in, and must give the same task
	return c.tasks.get(settings, c.Seed, func(seed uint64) (task.Task, error) {
		return catalog.New(c.taskName(), settings, seed)
	})
}

// taskCache keeps the last task made, for all copies of a configuration: tasks read and index files, and a command asks
// for its task a dozen times. It is safe for concurrent use. A nil cache keeps nothing.
type taskCache struct {
	mu       sync.Mutex
	settings any // that the task was made from
	seed     uint64
	task     task.Task // nil: none yet
}

// get returns the task of settings and a seed, made with create unless it is the last one. The settings must not change
// afterwards. Errors are not cached.
func (m *taskCache) get(settings any, seed uint64, create func(seed uint64) (task.Task, error)) (task.Task, error) {
	if m == nil {
		return create(seed)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.task != nil && m.seed == seed && reflect.DeepEqual(m.settings, settings) {
		return m.task, nil
	}
	t, err := create(seed)
	if err == nil {
		m.settings, m.seed, m.task = settings, seed, t
	}
	return t, err
}

// validateTask checks the task's settings, and that the task has what the run needs of it.
func (c Config) validateTask() error {
	t, err := c.newTask()
	if err != nil {
		return under("task", err)
	}
	_, err = task.NewExamples(t)
	return errors.Join(c.Warmup.validateFor(t, c.taskName()), c.Generate.validateFor(t, c.taskName()), c.Policy.validateFor(t, c.taskName()), err)
}

// turns returns the most turns of an episode of the task, 1 if the task cannot be made.
func (c Config) turns() int {
	t, err := c.newTask()
	if err != nil {
		return 1
	}
	return task.MaxTurns(t)
}

// MakeTask makes the task of a configuration.
func (c Config) MakeTask() (task.Task, error) { return c.newTask() }

// NewTask makes a task by its name, with settings key=value, to be played. The seed orders its training prompts.
func NewTask(name string, assignments []string, seed uint64) (task.Task, error) {
	settings, err := catalog.Settings(name)
	if err != nil {
		return nil, err
	}
	err = reader().Assign(assignments, settings)
	if err := errors.Join(err, settings.Validate()); err != nil {
		return nil, err
	}
	return catalog.New(name, settings, seed)
}

// NewVerifier returns the verifier of a task by its name. Only that of task external has settings, key=value.
func NewVerifier(name string, assignments []string) (task.Verifier, error) {
	if name != external.Name {
		if len(assignments) > 0 {
			return nil, fmt.Errorf("--set %s: want none: the verifier of task %s has no settings", assignments[0], name)
		}
		v, err := catalog.Verifier(name)
		if err != nil {
			return nil, fmt.Errorf("%w, or %s with --set command=[PROGRAM]", err, external.Name)
		}
		return v, nil
	}
	var settings external.Settings
	if err := reader().Assign(assignments, &settings); err != nil {
		return nil, err
	}
	return external.NewVerifier(settings)
}

// resolved returns the configuration with defaults filled in, for config.yaml.
func (c Config) resolved() (Config, error) {
	if c.own == nil {
		settings, err := c.taskSettings()
		if err != nil {
			return c, err
		}
		settings.Resolve()
		c.Task = maps.Clone(c.Task)
		for f := range option.Fields(reflect.ValueOf(settings).Elem()) {
			c.Task[f.Key] = f.Value.Interface()
		}
	}
	c.Learner = c.resolvedLearner()
	c.Generate.Prefix = c.Generate.Prefix.withDefaults()
	if c.Generate.Precision == policy.Full {
		c.Generate.Precision = "" // its other name, by which earlier runs and their digests have it
	}
	o := c.pipelineOptions().WithDefaults()
	// importance_anneal too: it stays the same if the run is resumed with a larger budget
	r := c.replayOptions(0).WithDefaults()
	r.MinSize = c.Replay.MinSize
	// other sections decide them
	r.Shards, r.GroupSize, r.Advantage, r.MaxTokens, r.Seed, r.LeaseSeconds = 0, 0, "", 0, 0, 0
	if r.DrawAdvantage == replay.AdvantageStored {
		r.DrawAdvantage = "" // earlier runs and their digests have no other
	}
	c.Replay.Options = r
	if o.ForwardPasses > 0 {
		c.Pipeline.ForwardCost = o.ForwardCost
	}
	if o.FilterGroups {
		c.Pipeline.MaxGenBatches = o.MaxGenBatches
	}
	if o.Mode == pipeline.Sync {
		c.Pipeline.SyncRollouts, c.Pipeline.SyncUpdates = o.SyncRollouts, o.SyncUpdates
	}
	if b := &c.Baseline; b.Workers == 0 {
		arm := c.BaselineArm().Pipeline
		b.Workers, b.Trainers = arm.Workers, arm.Trainers
	}
	return c, nil
}

// rewardLatency returns the simulated latency of a group's rewards, nil if there is none.
func (c Config) rewardLatency() func(job uint64) float64 {
	latency := c.Pipeline.RewardLatency
	if latency.Mean == 0 {
		return nil
	}
	latency.Resolve()
	return func(job uint64) float64 { return latency.Draw(c.Seed, job) }
}

// groupTiming returns the time of a group whose rollouts have lognormal lengths of mean 1, nil where all are alike.
func (c Config) groupTiming() func(job uint64, worker int) pipeline.Timing {
	o, sigma := c.Pipeline.Options, c.Pipeline.LengthSigma
	if sigma == 0 {
		return nil
	}
	return func(job uint64, _ int) pipeline.Timing {
		r := rollout.Stream(c.Seed, "lengths", job)
		tokens, longest := 0.0, 0.0
		for range o.Group {
			length := math.Exp(float64(sigma*r.NormFloat64()) - float64(sigma*sigma)/2)
			tokens, longest = tokens+length, max(longest, length)
		}
		return o.ContinuousTiming(tokens/float64(o.Group), longest)
	}
}

// limitedPrompts asks the first limit training prompts over and over, in order. It has no state of its own.
type limitedPrompts struct {
	limit   uint64
	chooser pipeline.Prompts // chooses among them; nil: each in turn
}

// Choose returns the number of a job's prompt, below the limit.
func (p limitedPrompts) Choose(job uint64, v rollout.Version) (prompt uint64, replayed bool) {
	if p.chooser != nil {
		job, replayed = p.chooser.Choose(job, v)
	}
	return job % p.limit, replayed
}

// Report forwards a prompt's group to the chooser.
func (p limitedPrompts) Report(v rollout.Version, prompt uint64, replayed bool, rollouts []*rollout.Rollout) error {
	if p.chooser == nil {
		return nil
	}
	return p.chooser.Report(v, prompt, replayed, rollouts)
}

// promptsFile is the part of a checkpoint that prompt replay needs.
const promptsFile = "prompts.gob"

// newChooser returns what chooses the prompts of a run, nil where each is asked in its turn. A batch of prompts is what
// makes a batch of rollouts.
func (s *session) newChooser() (*prompts.Chooser, error) {
	c := s.config
	if !c.Prompts.chooses() {
		return nil, nil
	}
	buffer, err := prompts.New(c.Prompts.Options)
	if err != nil {
		return nil, under("prompts", err)
	}
	return prompts.NewChooser(buffer, prompts.ChooserOptions{
		Groups:    max(c.Pipeline.Batch/c.Pipeline.Group, 1),
		Ident:     func(number uint64) string { return s.task.Train(number).ID },
		Threshold: *c.replayOptions(0).WithDefaults().PositiveThreshold,
		Seed:      c.Seed,
	})
}

// chosen gives the pipeline what chooses prompts, nil where each is asked in its turn and none again.
func (s *session) chosen() pipeline.Prompts {
	var chosen pipeline.Prompts
	if s.chooser != nil {
		chosen = s.chooser
	}
	if n := s.config.Prompts.Limit; n > 0 {
		return limitedPrompts{uint64(n), chosen}
	}
	return chosen
}

func (s *session) savePrompts(dir string) error {
	if s.chooser == nil {
		return nil
	}
	return writeStream(filepath.Join(dir, promptsFile), func(w *bufio.Writer) error { return s.chooser.Snapshot(w) })
}

func (s *session) restorePrompts(place string) error {
	if s.chooser == nil {
		return nil
	}
	f, err := os.Open(filepath.Join(place, promptsFile))
	if err != nil {
		return err
	}
	return errors.Join(s.chooser.Restore(bufio.NewReader(f)), f.Close())
}

// promptReplay writes what prompt replay did, nil without it.
func (s *session) promptReplay() *results.PromptReplay {
	if s.chooser == nil {
		return nil
	}
	o, st := s.config.Prompts.Options, s.chooser.Stats()
	out := &results.PromptReplay{
		Fraction: o.Fraction, Band: o.Band, Cooldown: o.Cooldown, MaxReuse: o.MaxReuse,
		Keep: o.Keep, Score: o.Score, Interval: o.Interval, Skip: o.Skip,
		Held: st.Buffer.Held, Replayed: st.Replayed, Fresh: st.Fresh, Skipped: st.Skipped,
		PassRates: histogram(&st.Buffer.PassRates),
	}
	for _, bin := range histogram(&st.Buffer.Reuses) {
		if bin[0] > 0 {
			out.Reuse = append(out.Reuse, bin)
		}
	}
	return out
}

// validatePrompts reports what is wrong with the choice of prompts.
func (c Config) validatePrompts() error {
	p := c.Pipeline
	var errs []error
	if c.Prompts.Limit < 0 {
		errs = append(errs, fmt.Errorf("prompts.limit: %d: want a number of training prompts, or 0 for all",
			c.Prompts.Limit))
	}
	if e := c.Prompts.Keep + c.Prompts.Score + c.Prompts.Interval; e != "" && !c.Prompts.chooses() {
		errs = append(errs, fmt.Errorf("prompts.fraction: 0: want more than 0 with keep, score or interval (%q), which "+
			"choose among replayed prompts", e))
	}
	if c.Prompts.Fraction > 0 && p.Group >= 1 && p.Batch/p.Group < 1 {
		errs = append(errs, fmt.Errorf("prompts.fraction: %g: want 0 where pipeline.batch (%d) has less than one "+
			"group of %d", c.Prompts.Fraction, p.Batch, p.Group))
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, under("prompts", c.Prompts.Options.Validate()))...)
}
