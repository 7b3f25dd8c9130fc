package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/report"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// trainCommand carries out a run, or a comparison of one with its no-replay baseline.
type trainCommand struct {
	Config  file       `short:"c" help:"YAML file; what it leaves out is built in (addition below 100)."`
	Set     []string   `sep:"none" help:"Set one key by KEY=VALUE, for example replay.capacity=2048; may be repeated."`
	Seed    *uint64    `help:"Seed of everything random; short for --set seed=N."`
	Out     string     `default:"runs/latest" help:"Folder of the run."`
	Compare bool       `help:"Train the no-replay baseline too, and compare the compute that both take to the target."`
	Seeds   int        `default:"1" help:"Seeds of a comparison, from the configuration's seed on; 4 or more make a claim."`
	Resume  bool       `help:"Go on with the run in --out from its last checkpoint."`
	Force   bool       `help:"Replace a run that is in --out, and the table that --buffer names."`
	Buffer  address    `help:"Keep the rollouts in a table of a service, grpc://host:port/table, instead of in the run; the run makes it."`
	Service connection `embed:"" prefix:"buffer-"`
	Quiet   bool       `short:"q" help:"Print nothing but errors."`
	JSON    bool       `name:"json" help:"Print summary.json, or compare.json, and nothing else."`
}

// Run reads the configuration, trains, and writes the report.
func (c *trainCommand) Run(ctx context.Context) error {
	if c.Seeds != 1 && !c.Compare {
		return fmt.Errorf("--seeds %d: want --compare beside it: a single run has one seed, --seed", c.Seeds)
	}
	if c.Compare && c.Buffer != "" {
		return fmt.Errorf("--buffer %s: want none with --compare, whose arms have a table each", c.Buffer)
	}
	config, err := c.load()
	if err != nil {
		return fmt.Errorf("the configuration cannot be used:\n%w", err)
	}
	if options := c.Service.options(); c.Buffer != "" || c.Resume && options != (client.Options{}) {
		config = config.WithBuffer(run.Remote{Address: string(c.Buffer), Options: options, Replace: c.Force})
	}
	if !c.Resume {
		if err := config.ReachBuffer(ctx); err != nil { // which had better be known before a warm-up than after
			return err
		}
	}
	if err := c.makeRoom(); err != nil {
		return err
	}
	for _, w := range config.Warnings() {
		fmt.Fprintln(os.Stderr, "warning:", w)
	}
	if c.Compare {
		return c.compare(ctx, config)
	}
	return c.train(ctx, config)
}

func (c *trainCommand) load() (run.Config, error) {
	set := c.Set
	if c.Seed != nil {
		set = append(set, fmt.Sprintf("seed=%d", *c.Seed))
	}
	if !c.Resume {
		return run.Load(string(c.Config), set)
	}
	if c.Config != "" || c.Force {
		return run.Config{}, errors.New("--resume goes on with the configuration in the folder: leave -c and --force out")
	}
	if is := results.IsComparison(c.Out); is != c.Compare {
		return run.Config{}, fmt.Errorf("--resume: %s holds %s: %s --compare", c.Out, map[bool]string{true: "a comparison", false: "a single run"}[is], map[bool]string{true: "add", false: "leave out"}[is])
	}
	return run.LoadFolder(c.Out, set)
}

// makeRoom sees to it that --out can take a new run: without --force it holds none yet, which had better be known
// before a warm-up than after.
func (c *trainCommand) makeRoom() error {
	if c.Resume {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(c.Out, results.ConfigFile))
	if err == nil && !c.Force {
		return fmt.Errorf("%s holds a run already: give another --out, go on with it by --resume, or replace it by --force", c.Out)
	}
	if !c.Force {
		return nil
	}
	entries, listing := os.ReadDir(c.Out)
	if errors.Is(listing, os.ErrNotExist) || (listing == nil && len(entries) == 0) {
		return nil
	}
	if err := errors.Join(listing, err); err != nil || !ours(text) {
		return fmt.Errorf("--force: %s holds no run of ours to replace: remove it yourself or give another --out", c.Out)
	}
	return os.RemoveAll(c.Out)
}

// ours reports whether a config.yaml is that of a run: other programs call their files so too.
func ours(config []byte) bool {
	return bytes.Contains(config, []byte("\npipeline:")) && bytes.Contains(config, []byte("\nreplay:"))
}

func (c *trainCommand) train(ctx context.Context, config run.Config) error {
	show := newDisplay(c.silent())
	defer show.end()
	show.printf("draws: %s\n", config.Sampling())
	var summary *results.Summary
	var err error
	if c.Resume {
		summary, err = run.Resume(ctx, config, c.Out, show.hooks(config, "run"))
	} else {
		var start *run.Start
		if start, err = run.Begin(ctx, config, show.warmup(config)); err != nil {
			return atWarmup(ctx, err)
		}
		summary, err = run.Train(ctx, config, start, c.Out, show.hooks(config, "run"))
	}
	if err != nil {
		return err
	}
	if err := c.conclude(show, summary, func() { show.summary(summary, c.Out) }); err != nil {
		return err
	}
	if ctx.Err() != nil && summary.Ended == "interrupted" {
		return interruption("stopped with a checkpoint; go on with: reprise train --resume --out " + c.Out)
	}
	return nil
}

func (c *trainCommand) compare(ctx context.Context, config run.Config) error {
	show := newDisplay(c.silent())
	defer show.end()
	show.printf("draws: %s; the baseline: %s\n", config.Sampling(), config.BaselineArm().Sampling())
	comparison := run.Comparison{
		Config: config, Seeds: c.Seeds, Dir: c.Out, Resume: c.Resume,
		Hooks: func(a run.Arm) run.Hooks {
			return show.hooks(armConfig(config, a), fmt.Sprintf("%s, seed %d", a.Name, a.Seed))
		},
		Warmup: func(uint64) func(int, float64) { return show.warmup(config) },
	}
	result, err := comparison.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return interruption(fmt.Sprintf("stopped with checkpoints; go on with: reprise train --compare --seeds %d --resume --out %s", c.Seeds, c.Out))
	}
	if err != nil {
		return err
	}
	return c.conclude(show, result, func() { show.comparison(result, c.Out) })
}

// conclude writes the report and prints what was found, as JSON or in words.
func (c *trainCommand) conclude(show *display, found any, inWords func()) error {
	show.end()
	if err := report.Write(c.Out); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(found)
	}
	inWords()
	return nil
}

// atWarmup says what an interruption of the warm-up, before there is anything to save, came to.
func atWarmup(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interruption("stopped in the warm-up, before there was anything to go on from: start again")
	}
	return err
}

// armConfig returns the configuration of an arm, whose budget the display counts down.
func armConfig(c run.Config, a run.Arm) run.Config {
	if a.Name == results.BaselineArm {
		return c.BaselineArm()
	}
	return c
}

func (c *trainCommand) silent() bool { return c.Quiet || c.JSON }

func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
