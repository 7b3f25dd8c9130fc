package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/reprise-rl/reprise/configs"
	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/report"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/lab/study"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout/option"
)

// designCommand recommends a replay configuration.
type designCommand struct {
	RolloutCost   *float64 `help:"Compute of generating a rollout, in units of training on one; 5.28 unless this or --from sets it."`
	Correlation   *float64 `help:"Correlation of the gradient noise of the buffer's rollouts, 0 to 1; 0.1 unless this or --from sets it."`
	NoiseExponent *float64 `help:"Growth of noise with staleness s: its variance is proportional to s^2A; 0 for none; 0.2 unless this or --from sets it."`
	NoiseScale    *float64 `help:"Rollouts in whose mean gradient noise equals signal: batches well below it are cheapest. --from measures it."`
	Coherence     *float64 `help:"Correlation of a rollout's gradient noise before and after a step as large as without noise, 0 to 1: 1 if it returns whole with each use; 0.4 unless this or --from sets it."`
	Profile       file     `help:"Variances at staleness 0, 1, 2, … instead of an exponent: a JSON array, or one number a line."`
	Measure       dir      `help:"Take the rollout cost from a run of reprise up, while it runs or when it has ended: that of its engines and its trainer."`
	From          []string `sep:"none" help:"Measure them in a run folder of reprise train; repeat it for several seeds."`

	GPUs         *int `name:"gpus" help:"GPUs to divide into workers and trainers; those of --workers and --trainers, or of --from, or 8. With --fleet: GPUs that generate."`
	Batch        *int `help:"Rollouts per update over all trainers, and no other. Unless set, the choice is of batches up to 3840, as in reprise train, or up to that of --from."`
	Group        *int `help:"Rollouts per prompt; 8, as in reprise train, or that of --from."`
	MostCapacity *int `help:"The most rollouts that the buffer may hold; 64 batches by default."`

	Bound boundFlags    `embed:"" prefix:"bound-" group:"The bound of theorem 3.4"`
	Sim   scheduleFlags `embed:"" group:"A schedule without a model"`
	Fleet fleetFlags    `embed:"" group:"Services for a fleet"`
	Loop  file          `help:"Instead say whether reuse, a table or another batch would pay in a training loop, from what reprise.trl, reprise.verl or a RolloutStore measured there: its advice().figures as a JSON file. Takes --json besides."`

	JSON bool `name:"json" help:"Print everything as JSON, and nothing else."`
	HTML file `name:"html" help:"Write a page with figures as well."`
}

// boundFlags are the [design.Conditions] of theorem 3.4.
type boundFlags struct {
	Gap          float64 `help:"For the bound of theorem 3.4 on the squared gradient: the objective at the start above its least."`
	Smoothness   float64 `help:"Lipschitz constant of the gradient."`
	Bias         float64 `help:"Bias of a rollout's gradient per distance that the weights have moved since."`
	LearningRate float64 `help:"Learning rate of plain SGD; by default the greatest at which the theorem holds."`
	Updates      int     `help:"Updates made."`
}

// scheduleGroup is the group of these flags in the help.
const scheduleGroup = "A schedule without a model"

// scheduleFlags are the schedule that --sim runs.
type scheduleFlags struct {
	On             bool    `name:"sim" help:"Also run the schedule without a model: both queues and the buffer side by side. The flags below describe it."`
	Workers        *int    `help:"Inference GPUs; by default the configuration's."`
	Trainers       *int    `help:"Trainer GPUs, a divisor of the batch; by default the configuration's."`
	Capacity       *int    `help:"Rollouts in the buffer; by default the configuration's, or with other GPUs the one with the same staleness horizon."`
	Rollouts       int     `default:"1000000" help:"Rollouts to generate for each of queues and buffer."`
	Lengths        string  `default:"1000,1,16384" help:"Lengths of responses in tokens, lognormal and cut off: median, sigma of the logarithm, maximum."`
	Batching       string  `default:"continuous" help:"continuous: the next group takes the slots that short responses free. static: a group holds its worker until its longest response has ended."`
	Stragglers     string  `default:"0,1" help:"Share of the workers that are slow, and how many times as long they take."`
	RewardLatency  string  `default:"0,0" help:"Time until a group is rewarded, in units of training on one rollout: mean, and sigma of the logarithm, 0 for a constant."`
	WeightTransfer float64 `default:"0" help:"Time for weights to reach the workers, in the same units."`
	WeightSync     string  `default:"group" help:"group: workers take up weights when they start a group. token: also 16 times within it."`
	InFlight       int     `default:"0" help:"The most updates under way at a time, each from its start until workers may take up its weights. 1: trainers wait for every transfer; 2: they take the next batch meanwhile; 0: no limit."`
	Parts          int     `default:"1" help:"Also run the buffer and the first-in, first-out queue in this number of parts, as tables on several services."`
	Scope          string  `default:"own" help:"Parts that a batch comes from. own: one of the trainer's own; global: all. Queues draw from all parts."`
	LostUpdates    int     `default:"0" help:"Updates for which a part is lost, one part at a time; 0: none is."`
	LostEvery      int     `default:"100" help:"Updates from one loss to the next."`
	LostForGood    bool    `help:"A part that was lost comes back empty."`
	Seed           uint64  `default:"1" help:"Of every draw."`
}

// Run prints the recommendation.
func (c *designCommand) Run(ctx context.Context, call *kong.Context, on *screen) error {
	began := time.Now()
	if err := c.Fleet.misplaced(call); err != nil {
		return flagErrors(err)
	}
	if c.Fleet.On {
		return flagErrors(c.printTopology())
	}
	if c.Loop != "" {
		return flagErrors(c.adviseLoop(call))
	}
	r, trial, err := c.recommend(ctx, call, on)
	if err != nil {
		return flagErrors(err)
	}
	page := report.Designed{Recommendation: r, Began: began}
	if c.Sim.On {
		if r.NoPlan != nil {
			return r.NoPlan
		}
		if page.Schedule, err = sim.Compare(ctx, trial, c.Sim.capacity(r, trial.Options), c.Sim.inParts()); err != nil {
			return flagErrors(err)
		}
	}
	if c.HTML != "" {
		if err := c.writePage(page); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	var unreliable error // a schedule needs no recommendation
	if len(r.Unreliable) > 0 && !c.Sim.On {
		unreliable = errors.New("no configuration is recommended")
	}
	if c.JSON {
		return errors.Join(printJSON(struct {
			design.Document
			Schedule *sim.Comparison `json:"schedule,omitempty"`
		}{r.Document(), page.Schedule}), unreliable)
	}
	fmt.Print(r.Text())
	if page.Schedule != nil {
		fmt.Print(page.Schedule.Text())
	}
	if c.HTML != "" {
		fmt.Printf("\npage: %s\n", c.HTML)
	}
	return unreliable
}

// adviseLoop prints what would pay in a training loop.
func (c *designCommand) adviseLoop(call *kong.Context) error {
	other := func(f *kong.Flag) bool { return f.Name != "loop" && f.Name != "json" }
	if err := refuseFlags(call, other, "this without --loop"); err != nil {
		return err
	}
	text, err := os.ReadFile(string(c.Loop))
	if err != nil {
		return fmt.Errorf("--loop: %w", err)
	}
	var loop design.Loop
	if err := (settings.Reader{}).JSON(text, &loop); err != nil {
		return fmt.Errorf("--loop: %w", err)
	}
	advice, err := loop.Advise()
	if err != nil {
		return fmt.Errorf("--loop: %w", err)
	}
	if c.JSON {
		return printJSON(advice)
	}
	fmt.Print(words.Wrap("", advice.Line))
	return nil
}

func (c *designCommand) writePage(d report.Designed) error {
	d.Took, d.Call = time.Since(d.Began), "reprise"
	for _, word := range os.Args[1:] {
		d.Call += " " + shellWord(word)
	}
	var page bytes.Buffer
	if err := report.Design(&page, d); err != nil {
		return err
	}
	return disk.WriteFile(string(c.HTML), page.Bytes())
}

// recommend returns the recommendation and the schedule that --sim runs. It reports every wrong flag at once, before it
// measures runs.
func (c *designCommand) recommend(ctx context.Context, call *kong.Context, on *screen) (*design.Recommendation, sim.Trial,
	error) {
	base, from, err := c.base()
	if err != nil {
		return nil, sim.Trial{}, err
	}
	known, fleet := design.Assumptions(), c.fleet(base)
	var conditions *design.Conditions
	var problems option.Problems
	problems.Add(c.override(&known), known.Validate(), fleet.Validate())
	if c.Bound != (boundFlags{}) {
		told := design.Conditions(c.Bound)
		conditions = &told
		problems.Add(option.Under("bound", told.Validate()))
	}
	trial, err := c.Sim.trial(call)
	problems.Add(err)
	given := func(n *int) bool { return c.GPUs == nil && n != nil && *n >= fleet.GPUs }
	problems.Check(!given(c.Sim.Workers) || c.Sim.Trainers != nil, "workers", valueOr(c.Sim.Workers, 0),
		"--trainers or --gpus with it: the configuration is for %d GPUs", fleet.GPUs)
	problems.Check(!given(c.Sim.Trainers) || c.Sim.Workers != nil, "trainers", valueOr(c.Sim.Trainers, 0),
		"--workers or --gpus with it: the configuration is for %d GPUs", fleet.GPUs)
	if err := problems.Err(); err != nil {
		return nil, trial, err
	}
	if len(c.From) > 0 {
		show := newDisplay(on, os.Stderr, false)
		defer show.end() // also after an error
		if known, err = study.Calibrate(ctx, c.From, show.measuring); err != nil {
			return nil, trial, fmt.Errorf("--from: %w", err)
		}
		show.end()
		if err := c.override(&known); err != nil {
			return nil, trial, err
		}
	}
	r, err := design.Recommend(known, fleet, conditions)
	if err != nil {
		return nil, trial, err
	}
	if assignments := setCommand(r, base, from, c.RolloutCost != nil || c.Measure != ""); r.Command != "" {
		_, _, r.Refused = c.base(assignments...)
	}
	o, p := &trial.Options, r.Plan
	o.Workers, o.Trainers = valueOr(c.Sim.Workers, p.Workers), valueOr(c.Sim.Trainers, p.Trainers)
	o.Batch, o.Group, o.RolloutCost = p.Batch, fleet.Group, r.RolloutCost
	return r, trial, nil
}

// measuring adds the bar of a measurement, which takes half a minute, and returns what moves it; nil where there are no
// bars.
func (d *display) measuring(dir string) func(share float64) {
	if d.bars == nil {
		return nil
	}
	began := time.Now()
	bar := d.bars.AddBar(resolution, mpb.PrependDecorators(decor.Name("noise of "+dir+"  ", decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), beside(func(s decor.Statistics) []string {
			return []string{"ETA " + remaining(began, float64(s.Current), float64(s.Total-s.Current))}
		})))
	return func(share float64) { bar.SetCurrent(int64(resolution * share)) }
}

// bareFile is [configs.Bare] in a clone of the project.
const bareFile = "configs/bare.yaml"

// base returns the configuration that the recommendation changes, with assignments over it, and its file: that of the
// first run measured, or the one without replay.
func (c *designCommand) base(assignments ...string) (config run.Config, file string, err error) {
	if len(c.From) == 0 {
		config, err = run.Parse(configs.Bare, assignments)
		return config, bareFile, err
	}
	file = filepath.Join(c.From[0], results.ConfigFile)
	if config, err = run.Load(file, assignments); err != nil {
		return config, file, fmt.Errorf("--from: %w", err)
	}
	return config, file, nil
}

func (c *designCommand) fleet(base run.Config) design.Fleet {
	gpus := 8
	switch {
	case c.Sim.Workers != nil && c.Sim.Trainers != nil:
		gpus = *c.Sim.Workers + *c.Sim.Trainers
	case len(c.From) > 0:
		gpus = base.Pipeline.Workers + base.Pipeline.Trainers
	}
	f := design.Fleet{GPUs: valueOr(c.GPUs, gpus), Batch: valueOr(c.Batch, base.Pipeline.Batch)}
	f.Group = valueOr(c.Group, min(base.Pipeline.Group, f.Batch))
	f.MostCapacity = valueOr(c.MostCapacity, 64*f.Batch) // 1/N is then below 1/64 of 1/B
	f.FreeBatch = c.Batch == nil
	if len(c.From) > 0 {
		source := study.Source(base)
		f.Source = &source
	}
	return f
}

func valueOr(given *int, otherwise int) int {
	if given == nil {
		return otherwise
	}
	return *given
}

// measure sets the rollout cost of the run that --measure names.
func (c *designCommand) measure(k *design.Known) error {
	if c.Measure == "" {
		return nil
	}
	if c.RolloutCost != nil {
		return &option.Error{Key: "rollout_cost", Value: *c.RolloutCost, Want: "either this or --measure"}
	}
	l, err := results.ReadLive(string(c.Measure))
	if err != nil {
		return fmt.Errorf("--measure: %s: want the folder of a run of reprise up: %w", c.Measure, err)
	}
	if !l.RolloutCost.Known() {
		return fmt.Errorf("--measure: %s: the run has not taken an update yet: wait for the first", c.Measure)
	}
	measured := fmt.Sprintf("%d rollouts in %.3g s of %s, %d uses in %.3g s of the trainer", l.Rollouts, l.EngineSeconds,
		words.Plural(l.Engines, "engine"), l.Used, l.TrainerSeconds)
	k.MeasureRolloutCost(l.RolloutCost.Float(), measured)
	return nil
}

// override sets the parameters that flags give.
func (c *designCommand) override(k *design.Known) error {
	if c.RolloutCost != nil {
		k.GiveRolloutCost(*c.RolloutCost)
	}
	if err := c.measure(k); err != nil {
		return err
	}
	if c.Correlation != nil {
		k.GiveCorrelation(*c.Correlation)
	}
	if c.NoiseScale != nil {
		if !(*c.NoiseScale > 0) {
			return &option.Error{Key: "noise_scale", Value: *c.NoiseScale, Want: "more than 0 rollouts"}
		}
		k.GiveNoiseScale(*c.NoiseScale)
	}
	if c.Coherence != nil {
		k.GiveCoherence(*c.Coherence)
	}
	if c.NoiseExponent != nil {
		k.GiveProfile(design.PowerLaw{Exponent: *c.NoiseExponent}, "")
	}
	if c.Profile == "" {
		return nil
	}
	if c.NoiseExponent != nil {
		return &option.Error{Key: "noise_exponent", Value: *c.NoiseExponent, Want: "either this or --profile"}
	}
	text, err := os.ReadFile(string(c.Profile))
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	table, err := design.ParseTable(text)
	if err != nil {
		return fmt.Errorf("--profile %s: %w", c.Profile, err)
	}
	k.GiveProfile(table, string(c.Profile))
	return nil
}

// setCommand sets the command that trains with a recommendation, and returns its assignments. It changes what the
// recommendation is about, and what goes with that; the rest of the configuration stays. cost says that the rollout
// cost is another than the run's.
func setCommand(r *design.Recommendation, base run.Config, file string, cost bool) (assignments []string) {
	if len(r.Unreliable) > 0 || r.Keep {
		return nil
	}
	u := *r.Best
	set := func(differs bool, key string, value any, why string) {
		if differs {
			r.Changes = append(r.Changes, design.Change{Assignment: fmt.Sprintf("%s=%v", key, value), Why: why})
		}
	}
	p, source := base.Pipeline, study.Source(base).Use
	queue := u.Way != design.Buffer
	set(p.Workers != u.Workers, "pipeline.workers", u.Workers, "")
	set(p.Trainers != u.Trainers, "pipeline.trainers", u.Trainers, "")
	set(p.Batch != u.Batch, "pipeline.batch", u.Batch, "")
	set(source.Updates != u.Updates, "pipeline.batch_updates", u.Updates, "")
	set(source.Capacity != u.Capacity, "replay.capacity", u.Capacity, "")
	set(queue && base.Replays(), "replay.sampler", replay.LIFO, "")
	set(!queue && !base.Replays(), "replay.sampler", run.Default().Replay.Sampler, "")
	set(p.Group != r.Fleet.Group, "pipeline.group", r.Fleet.Group, "as --group says")
	set(cost && p.RolloutCost != r.RolloutCost, "pipeline.rollout_cost", strconv.FormatFloat(r.RolloutCost, 'g', -1, 64),
		"as --rollout-cost or --measure says")
	set(!queue && p.Mode != pipeline.Async, "pipeline.mode", pipeline.Async, "a buffer is drawn from while workers generate")
	set(queue && p.Mode == pipeline.Sync && p.SyncRollouts > 0, "pipeline.sync_rollouts", 0, "a turn is a batch")
	set(queue && p.Mode == pipeline.Sync && p.SyncUpdates > 0, "pipeline.sync_updates", 0, "a turn is a batch")
	rate := base.Learner.LearningRate * r.Rate(source)
	by := rate / base.Learner.LearningRate
	set(math.Abs(by-1) > 0.05, "learner.learning_rate", strconv.FormatFloat(rate, 'g', 2, 64),
		fmt.Sprintf("%.2g of the rate before: it goes with the root of the batch, and down with reuse", by))
	if by := float64(p.Batch) / float64(u.Batch); by != 1 {
		const why = "it counts in updates of a batch, and the compute stays"
		budget, every := base.Budget, base.Evaluate.Every
		set(budget.Compute > 0, "budget.compute", budget.Compute*by, why)
		set(budget.Updates > 0, "budget.updates", int(math.Round(float64(budget.Updates)*by)), why)
		set(every > 0, "evaluate.every", every*by, why)
	}
	r.Command = "reprise train -c " + shellWord(file)
	for _, c := range r.Changes {
		assignments = append(assignments, c.Assignment)
		r.Command += " --set " + c.Assignment
	}
	return assignments
}

// trial returns the schedule without what the recommendation decides. Without --sim it refuses the flags of a schedule.
func (f scheduleFlags) trial(call *kong.Context) (sim.Trial, error) {
	var problems option.Problems
	if !f.On {
		problems.Add(refuseFlags(call, func(f *kong.Flag) bool { return inGroup(f, scheduleGroup) },
			"this only with --sim, whose schedule it describes"))
		return sim.Trial{}, problems.Err()
	}
	w, err := sim.ParseWorkload(f.Lengths, f.Stragglers, f.RewardLatency)
	problems.Add(err)
	w.Seed, w.Batching = f.Seed, sim.Batching(f.Batching)
	count := func(key string, v *int, most int) {
		problems.Check(v == nil || *v >= 1 && *v <= most, key, reflect.Indirect(reflect.ValueOf(v)), "1 to %d", most)
	}
	count("workers", f.Workers, 1e6)
	count("trainers", f.Trainers, 1<<16)
	count("capacity", f.Capacity, math.MaxInt32)
	problems.Check(f.Rollouts >= 1000 && f.Rollouts <= sim.MostRollouts, "rollouts", f.Rollouts, "1000 to %d",
		sim.MostRollouts)
	problems.Check(w.Batching == sim.Continuous || w.Batching == sim.Static, "batching", f.Batching, "%s or %s",
		sim.Continuous, sim.Static)
	problems.Check(f.WeightTransfer >= 0 && f.WeightTransfer <= 1e9, "weight_transfer", f.WeightTransfer,
		"0 to 1e9 units of training on one rollout")
	o := pipeline.Options{
		WeightTransfer: f.WeightTransfer, WeightSync: pipeline.WeightSync(f.WeightSync), UpdatesInFlight: f.InFlight,
	}
	problems.Check(o.WeightSync == pipeline.ByGroup || o.WeightSync == pipeline.ByToken, "weight_sync", f.WeightSync,
		"%s or %s", pipeline.ByGroup, pipeline.ByToken)
	problems.Check(f.InFlight >= 0, "in_flight", f.InFlight, "1 update or more, or 0 for no limit")
	problems.Add(f.inParts().Validate())
	problems.Check(f.Parts > 1 || f.LostUpdates == 0, "lost_updates", f.LostUpdates, "--parts of 2 or more with it")
	return sim.Trial{Options: o, Workload: w, Rollouts: f.Rollouts}, problems.Err()
}

// inParts returns the zero value for one table.
func (f scheduleFlags) inParts() sim.InParts {
	if f.Parts == 1 {
		return sim.InParts{}
	}
	return sim.InParts{Parts: f.Parts, Scope: sim.Scope(f.Scope), LostEvery: f.LostEvery, LostUpdates: f.LostUpdates,
		ForGood: f.LostForGood}
}

// refuseFlags returns an error for each flag that was given and is refused.
func refuseFlags(call *kong.Context, refused func(*kong.Flag) bool, want string) error {
	var problems option.Problems
	for _, p := range call.Path {
		if p.Flag != nil && refused(p.Flag) {
			problems.Check(false, p.Flag.Name, reflect.Indirect(p.Flag.Target), "%s", want)
		}
	}
	return problems.Err()
}

func inGroup(f *kong.Flag, group string) bool { return f.Group != nil && f.Group.Key == group }

// capacity returns that of the schedule's buffer. With other GPUs than the plan's it keeps the horizon.
func (f scheduleFlags) capacity(r *design.Recommendation, o pipeline.Options) int {
	p := r.Plan
	switch {
	case f.Capacity != nil:
		return *f.Capacity
	case o.Workers == p.Workers && o.Trainers == p.Trainers:
		return p.Capacity
	}
	return int(math.Ceil(min(p.Horizon*o.NewPerUpdate(), math.MaxInt32/2) - 1e-9))
}

// flagErrors writes the keys of option errors as flags: rollout_cost is --rollout-cost.
func flagErrors(err error) error {
	var all []error
	for _, e := range option.Each(err) {
		if o, ok := e.(*option.Error); ok {
			e = &option.Error{Key: "--" + strings.NewReplacer("_", "-", ".", "-").Replace(o.Key), Value: o.Value,
				Want: o.Want}
		}
		all = append(all, e)
	}
	return errors.Join(all...)
}
