package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/reprise-rl/reprise/report"
	"github.com/reprise-rl/reprise/results"
)

// What the calculator supposes where it is told nothing: the rollout cost that [ER] measured of Qwen2.5-7B, a modest correlation and noise
// that grows slowly, and the eight GPUs of [ER].
const (
	defaultRolloutCost   = 5.28
	defaultCorrelation   = 0.1
	defaultNoiseExponent = 0.2
	defaultGPUs          = 8
)

// Ranges of the flags; beyond them no fleet and no noise is known.
const (
	leastRolloutCost   = 1e-3
	mostRolloutCost    = 1e5
	leastNoiseExponent = 1e-6
	mostNoiseExponent  = 10
	mostGPUs           = 1_000_000
	mostBatch          = 1_000_000_000
	mostCapacity       = 1_000_000_000_000
)

// designCommand works out a replay configuration.
type designCommand struct {
	RolloutCost   *float64 `help:"Compute of generating a rollout, in units of training on one; 5.28 if neither this nor --from says another."`
	Correlation   *float64 `help:"Correlation of the gradient noise of the buffer's rollouts, 0 to 1; 0.1 if nothing says another."`
	NoiseExponent *float64 `help:"How noise grows with staleness s: its variance as s^2A; 0: not at all; 0.2 if nothing says another."`
	Profile       file     `help:"Variances at staleness 0, 1, 2, … in place of an exponent: a JSON array, or a number on each line."`
	From          []string `sep:"none" help:"Measure all three in the folder of a run of reprise train; may be repeated for several seeds."`

	GPUs         *int `name:"gpus" help:"GPUs to deal out to workers and trainers; 8, or those of --from."`
	Batch        *int `help:"Rollouts per update over all trainers; 1024, as in reprise train, or that of --from."`
	Group        *int `help:"Rollouts per prompt; 8, as in reprise train, or that of --from."`
	MostCapacity *int `help:"The most rollouts that the buffer may hold; 64 batches if not given."`

	Bound boundFlags `embed:"" prefix:"bound-" group:"The bound of theorem 3.4"`
	Sim   simFlags   `embed:"" group:"A schedule without a model"`

	JSON bool `name:"json" help:"Print everything as JSON, and nothing else."`
	HTML file `name:"html" help:"Write a page with figures as well."`
}

// Run works it out and prints it.
func (c *designCommand) Run(ctx context.Context) error {
	if err := errors.Join(c.validate(), c.Bound.validate(), c.Sim.validate()); err != nil {
		return err
	}
	began := time.Now()
	found, err := c.calculate(ctx)
	if err != nil {
		return err
	}
	var schedule *simulated
	if c.Sim.On {
		if schedule, err = c.Sim.run(ctx, found.schedule()); err != nil {
			return err
		}
	}
	found.began, found.took = began, time.Since(began)
	if c.HTML != "" {
		if err := writeSheet(string(c.HTML), found, schedule); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(newDesignJSON(found, schedule))
	}
	found.write(os.Stdout)
	if schedule != nil {
		if err := schedule.write(os.Stdout); err != nil {
			return err
		}
	}
	if c.HTML != "" {
		fmt.Printf("\npage: %s\n", c.HTML)
	}
	return nil
}

// writeSheet writes the page.
func writeSheet(path string, found *calculation, schedule *simulated) error {
	var page bytes.Buffer
	if err := report.Sheet(&page, found.sheet(schedule)); err != nil {
		return err
	}
	if err := results.WriteFile(path, page.Bytes()); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// validate reports every flag with a wrong value at once.
func (c *designCommand) validate() error {
	var errs []error
	number := func(flag string, v *float64, low, high float64, remedy string) {
		if v != nil && !(*v >= low && *v <= high) {
			errs = append(errs, fmt.Errorf("--%s: %v: want %v to %v%s", flag, *v, low, high, remedy))
		}
	}
	whole := func(flag string, v *int, low, high int, remedy string) {
		if v != nil && (*v < low || *v > high) {
			errs = append(errs, fmt.Errorf("--%s: %d: want %d to %d%s", flag, *v, low, high, remedy))
		}
	}
	number("rollout-cost", c.RolloutCost, leastRolloutCost, mostRolloutCost, " units of training, such as 5.28")
	number("correlation", c.Correlation, 0, 1, "")
	if a := c.NoiseExponent; a == nil || *a != 0 {
		number("noise-exponent", a, leastNoiseExponent, mostNoiseExponent, ", or 0 for noise that does not grow; the theory reaches to 0.5")
	}
	if c.NoiseExponent != nil && c.Profile != "" {
		errs = append(errs, fmt.Errorf("--noise-exponent: %v: want it left out beside --profile %s, which says how noise grows", *c.NoiseExponent, c.Profile))
	}
	whole("gpus", c.GPUs, 2, mostGPUs, ", one to generate and one to train at least")
	whole("batch", c.Batch, 1, mostBatch, " rollouts")
	whole("group", c.Group, 1, mostBatch, " rollouts")
	whole("most-capacity", c.MostCapacity, 1, mostCapacity, " rollouts")
	return errors.Join(errs...)
}

// trimmed returns a quotient without the last digits of its rounding, so that 1/(1/5.28) reads 5.28.
func trimmed(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow(10, 12-math.Ceil(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
