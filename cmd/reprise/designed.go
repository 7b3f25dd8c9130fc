package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/design"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// calculation is everything that reprise design works out.
type calculation struct {
	theory   design.Theory
	cost     float64 // mu
	exponent float64 // a of the profile, or of the power law nearest to a measured one; NaN where there is none

	costFrom, correlationFrom, noiseFrom string // who said so

	fleet design.Fleet
	best  design.Optimum
	plan  design.Plan
	bound *boundary // nil: not asked for

	measured []string       // what --from measured, in sentences
	noise    []design.Noise // the measurements behind the profile, nil for one that is given
	warnings []string       // in sentences

	config   string   // file that the command starts from; "": the built-in experiment
	assigned []string // what the command sets
	refused  error    // of the laboratory, of that command

	began time.Time
	took  time.Duration // schedule included
}

// calculate works everything out but the schedule.
func (c *designCommand) calculate(ctx context.Context) (*calculation, error) {
	found := &calculation{}
	if err := c.suppose(ctx, found); err != nil {
		return nil, err
	}
	if err := found.theory.Validate(); err != nil {
		return nil, fmt.Errorf("the theory cannot be used:\n%w", err)
	}
	base, err := c.base(found)
	if err != nil {
		return nil, err
	}
	if err := c.deal(found, base); err != nil {
		return nil, err
	}
	found.best = found.theory.Optimum()
	if found.plan, err = found.theory.Configure(found.fleet); err != nil {
		return nil, fmt.Errorf("no configuration for %s:\n%w", found.fleetText(), err)
	}
	if found.bound, err = c.Bound.of(found.theory, found.plan.Configuration); err != nil {
		return nil, err
	}
	found.recommend(base)
	found.warn()
	return found, nil
}

// suppose gathers what the theory is told: flags first, then what runs say, then the defaults.
func (c *designCommand) suppose(ctx context.Context, found *calculation) error {
	known := measured{
		theory:   design.Theory{TrainCost: 1 / defaultRolloutCost, Correlation: defaultCorrelation, Profile: design.PowerLaw{Exponent: defaultNoiseExponent}},
		exponent: defaultNoiseExponent,
	}
	found.costFrom, found.correlationFrom, found.noiseFrom = "supposed: [ER] measured it of Qwen2.5-7B", "supposed", "supposed"
	if len(c.From) > 0 {
		var err error
		if known, err = fromRuns(ctx, c.From); err != nil {
			return err
		}
		found.costFrom, found.noiseFrom = "measured", known.noiseFrom
		if known.correlation {
			found.correlationFrom = "measured"
		}
	}
	found.theory, found.exponent, found.measured, found.noise, found.warnings = known.theory, known.exponent, known.how, known.noise, known.warnings
	found.cost = trimmed(1 / found.theory.TrainCost)
	if v := c.RolloutCost; v != nil {
		found.cost, found.theory.TrainCost, found.costFrom = *v, 1 / *v, "given"
	}
	if v := c.Correlation; v != nil {
		found.theory.Correlation, found.correlationFrom = *v, "given"
		known.doubts.Correlation = nil
	}
	if c.NoiseExponent != nil || c.Profile != "" {
		found.noise, known.doubts.Noise = nil, nil
	}
	found.warnings = append(found.warnings, known.doubts.All()...)
	if v := c.NoiseExponent; v != nil {
		found.theory.Profile, found.exponent, found.noiseFrom = design.PowerLaw{Exponent: *v}, *v, "given"
	}
	if c.Profile == "" {
		return nil
	}
	return c.useProfile(found)
}

func (c *designCommand) useProfile(found *calculation) error {
	variances, err := readProfile(string(c.Profile))
	if err != nil {
		return err
	}
	table, err := design.NewTable(variances)
	if err != nil {
		return fmt.Errorf("--profile %s: %w", c.Profile, err)
	}
	found.theory.Profile, found.exponent, found.noiseFrom = table, math.NaN(), "given by "+string(c.Profile)
	return nil
}

// base returns the experiment that the recommendation changes: the built-in one, or that of the first run measured.
func (c *designCommand) base(found *calculation) (run.Config, error) {
	if len(c.From) == 0 {
		return run.Load("", nil)
	}
	found.config = filepath.Join(c.From[0], results.ConfigFile)
	config, err := run.Load(found.config, nil)
	if err != nil {
		return config, fmt.Errorf("--from %s: %w", c.From[0], err)
	}
	return config, nil
}

// deal fills in what there is to deal out.
func (c *designCommand) deal(found *calculation, base run.Config) error {
	or := func(given *int, otherwise int) int {
		if given != nil {
			return *given
		}
		return otherwise
	}
	gpus := defaultGPUs
	if found.config != "" {
		gpus = base.Pipeline.Workers + base.Pipeline.Trainers
	}
	f := design.Fleet{GPUs: or(c.GPUs, gpus), Batch: or(c.Batch, base.Pipeline.Batch)}
	f.Group = or(c.Group, min(base.Pipeline.Group, f.Batch))
	f.MostCapacity = or(c.MostCapacity, 0)
	found.fleet = f.WithDefaults()
	var errs []error
	if f := found.fleet; f.Group > f.Batch {
		errs = append(errs, fmt.Errorf("--group: %d: want at most the batch (%d)", f.Group, f.Batch))
	}
	if f := found.fleet; f.MostCapacity < f.Batch {
		errs = append(errs, fmt.Errorf("--most-capacity: %d: want at least the batch (%d)", f.MostCapacity, f.Batch))
	}
	return errors.Join(errs...)
}

// recommend makes the command that runs the plan in the laboratory, and tries whether the laboratory would take it.
func (found *calculation) recommend(base run.Config) {
	p := found.plan
	set := []string{
		fmt.Sprintf("pipeline.workers=%d", p.Workers), fmt.Sprintf("pipeline.trainers=%d", p.Trainers),
		fmt.Sprintf("replay.capacity=%d", p.Capacity), fmt.Sprintf("pipeline.batch=%d", p.Batch), fmt.Sprintf("pipeline.group=%d", p.Group),
		"pipeline.rollout_cost=" + strconv.FormatFloat(found.cost, 'g', -1, 64),
	}
	if base.Pipeline.Mode != "async" {
		set = append(set, "pipeline.mode=async")
	}
	if replay.Sampler(base.Replay.Sampler).Consumes() {
		set = append(set, "replay.sampler="+run.Default().Replay.Sampler)
	}
	found.assigned = set
	_, found.refused = run.Load(found.config, set)
}

// command returns what to type to train so.
func (found *calculation) command() string {
	words := []string{"reprise", "train"}
	if found.config != "" {
		words = append(words, "-c", quoted(found.config))
	}
	for _, s := range found.assigned {
		words = append(words, "--set", s)
	}
	return strings.Join(words, " ")
}

// quoted returns a word as a shell reads it.
func quoted(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./=,:+@%", r))
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// schedule returns what --sim begins with.
func (found *calculation) schedule() simPlan {
	p := found.plan
	return simPlan{
		RolloutCost: found.cost, Workers: p.Workers, Trainers: p.Trainers, Batch: p.Batch, Group: p.Group,
		Capacity: p.Capacity, Horizon: p.Horizon,
	}
}

// fleetText says what there is to deal out.
func (found *calculation) fleetText() string {
	f := found.fleet
	return fmt.Sprintf("%d GPUs, batches of %d, groups of %d, a buffer of at most %d", f.GPUs, f.Batch, f.Group, f.MostCapacity)
}

// grows reports whether the profile is a power law that grows with staleness, which says nothing of fresh rollouts.
func (found *calculation) grows() bool {
	law, ok := found.theory.Profile.(design.PowerLaw)
	return ok && law.Exponent > 0
}

// savedOnce returns the share of compute that a cost of j saves against on-policy training that uses each rollout exactly once. With a
// power law that grows it is the most that it can be: noise that does not fall with staleness is least at 0, of which such a law says
// nothing, so that its mean over the first version stands in.
func (found *calculation) savedOnce(j float64) float64 {
	return 1 - j/found.once()
}

// once returns J of on-policy training that uses each rollout once, or, with a power law that grows, the most it can be.
func (found *calculation) once() float64 {
	if j, ok := found.theory.OnPolicyOnce(); ok {
		return j
	}
	return found.theory.Profile.Mean(1) * (1 + found.theory.TrainCost)
}
