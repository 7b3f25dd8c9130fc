// Command advice tests what `reprise design --from` advises, as a user takes it: it trains ten runs of five tasks, asks
// for advice on each, follows it, and compares the runs with those that they came from, at the same compute and seeds.
// `make advice` runs it. A run that is there is not made again.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// source is a run that asks for advice, as assignments to keys.
type source struct {
	name string
	keys []string
}

// A task's runs have the same compute.
var (
	addition = []string{"task={name: arithmetic, operations: [add], max: 50, held_out: 500}", "warmup.until=0.3",
		"pipeline.group=8", "learner.mask_zero_variance=true", "learner.masked_denominator=all", "learner.warmup=5"}
	countdown = []string{"task={name: countdown, min_numbers: 3, max_numbers: 3, max: 20, max_target: 60, held_out: 500, " +
		"format_reward: -1}", "policy.positions=48", "generate.max_tokens=16", "warmup={steps: 90, until: 0}",
		"pipeline.group=8", "learner.warmup=5"}
	search = []string{"task={name: search, passages: 1, held_out: 400}", "policy.positions=128", "generate.max_tokens=14",
		"warmup={steps: 1000, batch: 32, until: 0.5}", "pipeline.group=8", "learner.mask_zero_variance=true",
		"learner.masked_denominator=all"}
	lake = []string{"task={name: frozenlake, map: random, slippery: false, max_steps: 8, held_out: 300}",
		"policy.positions=192", "generate.max_tokens=2", "warmup={steps: 400, batch: 32, until: 0.3}", "pipeline.group=8"}
	sokoban = []string{"task={name: sokoban, difficulty: simple, min_pushes: 1, max_steps: 10, held_out: 300}",
		"policy.positions=240", "generate.max_tokens=2",
		"warmup={steps: 600, batch: 32, learning_rate: 2.0e-3, until: 0.3}", "pipeline.group=8", "learner.warmup=10"}
)

// from makes a source with its rollouts, those that a queue could use once, its batch and its rate.
func from(task []string, name string, rollouts, batch int, rate float64, more ...string) source {
	compute := float64(rollouts) / float64(batch)
	return source{name, append(append(append([]string{}, task...), fmt.Sprint("pipeline.batch=", batch),
		fmt.Sprint("learner.learning_rate=", rate), fmt.Sprint("budget.compute=", compute),
		fmt.Sprint("evaluate.every=", compute/20), "evaluate.samples=0", "evaluate.temperature=1"), more...)}
}

// Ways to use rollouts.
func once() []string {
	return []string{"pipeline.workers=5", "pipeline.trainers=1", "replay.sampler=lifo"}
}

func again(updates int, mode string, capacity int) []string {
	return []string{"pipeline.workers=5", "pipeline.trainers=3", "replay.sampler=lifo", "pipeline.mode=" + mode,
		fmt.Sprint("pipeline.batch_updates=", updates), fmt.Sprint("replay.capacity=", capacity)}
}

func buffered(capacity int) []string {
	return []string{"pipeline.workers=6", "pipeline.trainers=2", "replay.sampler=unseen",
		fmt.Sprint("replay.capacity=", capacity)}
}

func sources() []source {
	return []source{
		from(addition, "addition, once, large batches", 76_800, 3840, 2.8e-3, once()...),
		from(addition, "addition, once, small batches", 76_800, 240, 7e-4, once()...),
		from(addition, "addition, three updates in turns", 76_800, 1920, 2e-3, again(3, "sync", 3840)...),
		from(addition, "addition, a buffer", 76_800, 1920, 2e-3, buffered(7680)...),
		from(search, "search, once", 19_200, 1920, 1.4e-3, once()...),
		from(search, "search, three updates", 19_200, 480, 5e-4, again(3, "async", 960)...),
		from(countdown, "countdown, once", 76_800, 1920, 2e-3, once()...),
		from(countdown, "countdown, a buffer", 76_800, 960, 1.4e-3, buffered(7680)...),
		from(lake, "frozenlake, once", 6400, 256, 3e-4, once()...),
		from(sokoban, "sokoban, a buffer", 6400, 256, 3e-4, buffered(1024)...),
	}
}

type command struct {
	Program string `default:"bin/reprise" help:"The program under test." type:"path"`
	Out     string `default:"runs/advice" help:"Folder of the runs." type:"path"`
	Seeds   int    `default:"4" help:"Runs of each configuration; the advice is taken from the first."`
	AtOnce  int    `default:"2" help:"Runs at the same time."`
}

func main() {
	var c command
	verb := kong.Parse(&c, kong.Name("advice"), kong.Description("Follow what design --from advises, and compare."),
		kong.ShortUsageOnError())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	verb.BindTo(ctx, (*context.Context)(nil))
	if err := verb.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "advice: %v\n", err)
		os.Exit(1)
	}
}

// tried is what became of a source.
type tried struct {
	source
	advice
	before, after []float64 // mean accuracy over a run, by seed
	err           error
}

// Run tries all sources and prints a table.
func (c *command) Run(ctx context.Context) error {
	if c.Seeds < 1 || c.AtOnce < 1 {
		return fmt.Errorf("--seeds %d, --at-once %d: want 1 or more of each", c.Seeds, c.AtOnce)
	}
	list := make([]tried, len(sources()))
	turns := make(chan struct{}, c.AtOnce)
	var wait sync.WaitGroup
	for i, s := range sources() {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if list[i] = c.try(ctx, s); ctx.Err() != nil {
				return
			}
			fmt.Fprintf(os.Stderr, "%s: %s\n", s.name, list[i].verdict())
		})
	}
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: finished runs are kept", err)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "run\tadvice\tmean pass@1\tas advised\tdifference, 95% interval\t")
	good := 0
	var errs []error
	for _, t := range list {
		if errs = append(errs, t.err); t.err != nil {
			continue
		}
		if t.atLeastAsGood() {
			good++
		}
		fmt.Fprintf(table, "%s\t%s\t%.3f\t%.3f\t%s\t\n", t.name, t.advice, mean(t.before), mean(t.after), t.difference())
	}
	if err := errors.Join(append(errs, table.Flush())...); err != nil {
		return err
	}
	fmt.Printf("\nAt least as good as the run it came from: %d of %d, by means of %s each.\n", good, len(list),
		words.Plural(c.Seeds, "run"))
	return nil
}

// try trains a source, asks for advice and follows it.
func (c *command) try(ctx context.Context, s source) (t tried) {
	t.source = s
	folder := filepath.Join(c.Out, strings.NewReplacer(", ", "-", " ", "-").Replace(s.name))
	before := func(seed int) string { return filepath.Join(folder, fmt.Sprint("before-", seed)) }
	for seed := 1; seed <= c.Seeds && t.err == nil; seed++ {
		var v float64
		v, t.err = c.train(ctx, before(seed), seed, s.keys)
		t.before = append(t.before, v)
	}
	if t.err == nil {
		t.advice, t.err = c.ask(ctx, before(1), filepath.Join(folder, "advice.json"))
	}
	if !t.follow() {
		t.after = t.before
		return t
	}
	for seed := 1; seed <= c.Seeds && t.err == nil; seed++ {
		var v float64
		v, t.err = c.train(ctx, filepath.Join(folder, fmt.Sprint("after-", seed)), seed,
			append(append([]string{}, s.keys...), t.assignments()...))
		t.after = append(t.after, v)
	}
	return t
}

// train trains a run, unless it is there, and returns its mean accuracy over the evaluations after the start.
func (c *command) train(ctx context.Context, dir string, seed int, assignments []string) (float64, error) {
	r, err := results.ReadRun(dir)
	if err != nil || r.Summary == nil || r.Summary.Ended != "budget" {
		args := []string{"train", "--quiet", "--force", "--out", dir, "--seed", fmt.Sprint(seed), "-c", os.DevNull}
		for _, a := range assignments {
			args = append(args, "--set", a)
		}
		if out, err := exec.CommandContext(ctx, c.Program, args...).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("train %s: %w: %s", dir, cmp.Or(ctx.Err(), err), out)
		}
		if r, err = results.ReadRun(dir); err != nil {
			return 0, err
		}
	}
	var list []float64
	for _, e := range r.Evals {
		if e.Update > 0 {
			list = append(list, e.Pass1)
		}
	}
	return mean(list), nil
}

// advice is what the calculator says, as its JSON has it.
type advice struct {
	Reliable bool     `json:"reliable"`
	Reasons  []string `json:"reasons"`
	Keep     bool     `json:"keep"`
	Best     *struct {
		Way     string `json:"way"`
		Batch   int    `json:"batch"`
		Updates int    `json:"updates"`
	} `json:"recommended"`
	Changes []struct {
		Assignment string `json:"assignment"`
	} `json:"changes"`
}

// ask asks for advice on a run. The calculator ends with status 1 where its advice is not reliable.
func (c *command) ask(ctx context.Context, dir, file string) (a advice, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		cmd := exec.CommandContext(ctx, c.Program, "design", "--json", "--from", dir)
		var failed *exec.ExitError
		if text, err = cmd.Output(); err != nil && (!errors.As(err, &failed) || len(text) == 0) {
			return a, fmt.Errorf("reprise design --from %s: %w", dir, err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return a, err
		}
	}
	return a, json.Unmarshal(text, &a)
}

// follow reports whether the advice is to change the run.
func (a advice) follow() bool { return a.Reliable && !a.Keep && a.Best != nil }

func (a advice) assignments() (list []string) {
	for _, c := range a.Changes {
		list = append(list, c.Assignment)
	}
	return list
}

func (a advice) String() string {
	switch {
	case !a.Reliable:
		return "none: not reliable"
	case a.Keep || a.Best == nil:
		return "keep it"
	case a.Best.Updates > 1:
		return fmt.Sprintf("%s, B %d, %d updates", a.Best.Way, a.Best.Batch, a.Best.Updates)
	}
	return fmt.Sprintf("%s, B %d", a.Best.Way, a.Best.Batch)
}

func (t tried) atLeastAsGood() bool { return mean(t.after) >= mean(t.before) }

func (t tried) difference() string {
	if !t.follow() {
		return "0, the same run"
	}
	differences := make([]float64, len(t.before))
	for i := range differences {
		differences[i] = t.after[i] - t.before[i]
	}
	low, high := results.NewPairs(differences, make([]uint64, len(differences))).Interval(0.95)
	return fmt.Sprintf("%+.3f, %+.3f to %+.3f", mean(differences), low, high)
}

func (t tried) verdict() string {
	if t.err != nil {
		return t.err.Error()
	}
	return fmt.Sprintf("%.3f; %s: %.3f", mean(t.before), t.advice, mean(t.after))
}

func mean(list []float64) (m float64) {
	for _, v := range list {
		m += v / float64(len(list))
	}
	return m
}
