package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/configs"
	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/limits"
	"github.com/reprise-rl/reprise/lab/report"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// minGarbage is more than small models need, which thus train as fast as with all of Go's garbage.
const minGarbage = 256 << 20

// trainCommand trains one run, or compares a run with its no-replay baseline.
type trainCommand struct {
	Config  file       `short:"c" help:"YAML file; keys that it leaves out have their defaults. Without it: configs/addition.yaml, which is built in."`
	Method  string     `predictor:"method" help:"Replay as a published method does, which reprise methods lists. It decides replay, prompts and the loss, whatever the file says of them; without a file it runs on configs/bare.yaml."`
	Set     []string   `sep:"none" help:"Set one key by KEY=VALUE, for example replay.capacity=2048; may be repeated."`
	Seed    *uint64    `help:"Random seed; short for --set seed=N."`
	Out     string     `default:"runs/latest" help:"Folder of the run."`
	Compare bool       `help:"Also train the no-replay baseline, and compare the compute that both take to reach the target."`
	Seeds   int        `default:"1" help:"Seeds of a comparison, counted from the configuration's seed. A claim takes 8 or more."`
	Resume  bool       `help:"Continue the run in --out from its last checkpoint."`
	Force   bool       `help:"Replace the run in --out, and the table that --buffer names."`
	Buffer  address    `help:"Keep the rollouts in a table of a service, grpc://host:port/table, instead of in the run. The run creates the table. Several addresses with commas between them: a table in parts over those services."`
	Service connection `embed:"" prefix:"buffer-"`
	Publish dir        `help:"Train on the real clock: others fill the table of --buffer (reprise rollout), and each version of the weights is published in this folder."`
	Log     format     `help:"Also log for another program: tensorboard, whose event files Weights & Biases imports."`
	Quiet   bool       `short:"q" help:"Print nothing but errors."`
	JSON    bool       `name:"json" help:"Print summary.json or compare.json, and nothing else."`
}

// Run reads the configuration, trains, and writes the report.
func (c *trainCommand) Run(ctx context.Context, on *screen) error {
	if c.Seeds != 1 && !c.Compare {
		return fmt.Errorf("--seeds: %d: want --compare with it; the seed of a single run is --seed", c.Seeds)
	}
	if c.Compare && c.Buffer != "" {
		return fmt.Errorf("--buffer: %s: want none with --compare, because each arm has its own table", c.Buffer)
	}
	if c.Publish != "" && c.Buffer == "" && !c.Resume {
		return fmt.Errorf("--publish: %s: want --buffer with it, the table that others fill", c.Publish)
	}
	if err := c.Log.check(); err != nil {
		return err
	}
	config, err := c.load()
	if err != nil {
		return fmt.Errorf("the configuration cannot be used:\n%w", err)
	}
	if options := c.Service.options(); c.Buffer != "" || c.Resume && options != (client.Options{}) {
		config = config.WithBuffer(run.Remote{Address: string(c.Buffer), Options: options, Replace: c.Force,
			Publish: string(c.Publish)})
	}
	if !c.Resume { // fail before the warm-up
		if err := config.ReachBuffer(ctx); err != nil {
			return err
		}
		if err := c.clearFolder(); err != nil {
			return err
		}
		if err := disk.Writable(c.Out); err != nil {
			return fmt.Errorf("--out: %s: choose a folder that you may write to", err)
		}
	}
	for _, w := range config.Warnings() {
		fmt.Fprintln(os.Stderr, "warning:", w)
	}
	whileTraining, end := context.WithCancel(ctx)
	defer end()
	go limits.BoundGarbage(whileTraining, minGarbage)
	if c.Compare {
		return c.compare(ctx, newDisplay(on, os.Stdout, c.Quiet || c.JSON), config)
	}
	return c.train(ctx, newDisplay(on, os.Stdout, c.Quiet || c.JSON), config)
}

// loadConfig reads a configuration, [configs.Addition] if none is named.
func loadConfig(path string, assignments []string) (run.Config, error) {
	if path == "" {
		return run.Parse(configs.Addition, assignments)
	}
	return run.Load(path, assignments)
}

// loadMethod is loadConfig with a method laid over the file, or over configs.Bare.
func loadMethod(path, name string, assignments []string) (run.Config, error) {
	m, err := configs.MethodByName(name)
	if err != nil {
		return run.Config{}, fmt.Errorf("--method: %w", err)
	}
	text := configs.Bare
	if path != "" {
		if text, err = os.ReadFile(path); err != nil {
			return run.Config{}, fmt.Errorf("read the configuration: %w", err)
		}
	}
	return run.ParseMethod(text, m.Text, append([]string{"name=" + name}, assignments...))
}

// load reads the configuration from -c and --set, or from the folder of the run to resume.
func (c *trainCommand) load() (run.Config, error) {
	set := c.Set
	if c.Seed != nil {
		set = append(set, fmt.Sprintf("seed=%d", *c.Seed))
	}
	if !c.Resume {
		if c.Method != "" {
			return loadMethod(string(c.Config), c.Method, set)
		}
		return loadConfig(string(c.Config), set)
	}
	if c.Method != "" {
		return run.Config{}, fmt.Errorf("--method: %s: want none with --resume, which uses the configuration in the folder",
			c.Method)
	}
	if c.Config != "" || c.Force {
		return run.Config{}, errors.New("--resume uses the configuration in the folder: leave -c and --force out")
	}
	switch comparison := results.IsComparison(c.Out); {
	case comparison && !c.Compare:
		return run.Config{}, fmt.Errorf("--resume: %s holds a comparison: add --compare", c.Out)
	case !comparison && c.Compare:
		return run.Config{}, fmt.Errorf("--resume: %s holds a single run: leave --compare out", c.Out)
	}
	return run.LoadFolder(c.Out, set)
}

// clearFolder makes --out ready for a new run. Without --force, a folder that holds a run is an error; with it, the run
// is removed, and a folder that holds anything else is an error.
func (c *trainCommand) clearFolder() error {
	config, err := os.ReadFile(filepath.Join(c.Out, results.ConfigFile))
	if !c.Force {
		if err == nil {
			return fmt.Errorf("%s holds a run already: choose another --out, continue the run with --resume, or "+
				"replace it with --force", c.Out)
		}
		return nil
	}
	entries, listing := os.ReadDir(c.Out)
	if errors.Is(listing, os.ErrNotExist) || (listing == nil && len(entries) == 0) {
		return nil
	}
	// Other programs also call a file config.yaml; ours have these sections.
	ours := bytes.Contains(config, []byte("\npipeline:")) && bytes.Contains(config, []byte("\nreplay:"))
	if listing != nil || err != nil || !ours {
		return fmt.Errorf("--force: %s does not hold a run: remove it yourself, or choose another --out", c.Out)
	}
	return os.RemoveAll(c.Out)
}

func (c *trainCommand) train(ctx context.Context, show *display, config run.Config) error {
	defer show.end()
	show.wrapped("", fmt.Sprintf("%s, seed %d: %s", config.Name, config.Seed, config.InWords()))
	var before, summary *results.Summary
	var err error
	again := "continue with: reprise train --resume --out " + shellWord(c.Out) + c.Log.flag()
	saving := "stopping after this update, with a checkpoint; " + again
	if c.Resume {
		defer show.onInterrupt(ctx, saving)()
		before, _ = results.ReadSummary(c.Out) // none of a run that was killed
		summary, err = run.Resume(ctx, config, c.Out, c.Log.into(c.Out, show.hooks(config, "run")))
	} else {
		var start *run.Start
		settled := show.onInterrupt(ctx, "stopping in the warm-up")
		start, err = run.Begin(ctx, config, show.warmup(config))
		settled()
		if err != nil && ctx.Err() != nil {
			return interruption("stopped in the warm-up, before the first checkpoint: start again")
		}
		defer show.onInterrupt(ctx, saving)()
		if err == nil {
			summary, err = run.Train(ctx, config, start, c.Out, c.Log.into(c.Out, show.hooks(config, "run")))
		}
	}
	if err != nil {
		return err
	}
	if before != nil && before.Updates == summary.Updates && summary.Ended == "budget" {
		show.printf("nothing was left to do, the budget is spent:\n" +
			"raise it with --set budget.compute=N or --set budget.updates=N\n")
	}
	if err := c.finish(show, summary, func() { show.summary(summary, c.Out) }); err != nil {
		return err
	}
	if ctx.Err() != nil && summary.Ended == "interrupted" {
		return interruption("stopped with a checkpoint; " + again)
	}
	return nil
}

func (c *trainCommand) compare(ctx context.Context, show *display, config run.Config) error {
	defer show.end()
	for _, arm := range []struct {
		name   string
		config run.Config
	}{{"with replay", config}, {"without", config.BaselineArm()}} {
		settings, err := arm.config.Settings()
		if err != nil {
			return err
		}
		show.wrapped("", results.PlannedSetup(arm.name, settings).String())
		show.wrapped("  ", arm.config.InWords())
	}
	comparison := run.Comparison{
		Config: config, Seeds: c.Seeds, Dir: c.Out, Resume: c.Resume,
		Hooks: func(a run.Arm) run.Hooks {
			armConfig := config
			if a.Name == results.BaselineArm {
				armConfig = config.BaselineArm()
			}
			return c.Log.into(results.SeedDir(c.Out, a.Name, a.Seed), show.hooks(armConfig, runName(a.Name, a.Seed)))
		},
		Warmup: func(uint64) func(int, float64) { return show.warmup(config) },
	}
	defer show.onInterrupt(ctx, "stopping, to save checkpoints of the runs in progress; a second Ctrl-C kills")()
	result, err := comparison.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return interruption(fmt.Sprintf("stopped with checkpoints; continue with: reprise train --compare --seeds %d "+
			"--resume --out %s%s", c.Seeds, shellWord(c.Out), c.Log.flag()))
	}
	if err != nil {
		return err
	}
	return c.finish(show, result, func() { show.comparison(result, c.Out) })
}

// finish writes the report and prints the result, as JSON or in words.
func (c *trainCommand) finish(show *display, result any, inWords func()) error {
	show.end()
	if err := report.Write(c.Out); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(result)
	}
	inWords()
	return nil
}

// format is a program's format in which a run is also logged; empty: none.
type format string

const tensorBoard format = "tensorboard"

func (f format) check() error {
	if f != "" && f != tensorBoard {
		return fmt.Errorf("--log: %s: want %s (for Weights & Biases, import its files with `wandb sync`)", f,
			tensorBoard)
	}
	return nil
}

// flag is the flag that asks for it, to be appended to a command line.
func (f format) flag() string {
	if f == "" {
		return ""
	}
	return " --log " + string(f)
}

// into makes the hooks of a run log into a folder.
func (f format) into(dir string, h run.Hooks) run.Hooks {
	if f == tensorBoard {
		h.TensorBoard = dir
	}
	return h
}
