package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/process"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/report"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/lab/worker"
	"github.com/reprise-rl/reprise/replay"
)

// upCommand runs everything on this machine, on the real clock.
type upCommand struct {
	Config file     `short:"c" help:"YAML file, as of reprise train. Its section live says how many engines there are, and where."`
	Set    []string `sep:"none" help:"Set one key by KEY=VALUE, for example live.engines=3; may be repeated."`
	Out    string   `default:"runs/live" help:"Folder of the run, with the service's data, the published weights and the logs of all processes."`
	HTTP   address  `name:"http" default:"127.0.0.1:7448" help:"Address of the service's dashboard, or off."`
	Resume bool     `help:"Continue the run in --out."`
	Force  bool     `help:"Replace the run in --out."`
	JSON   bool     `name:"json" help:"Print live.json at the end, and nothing else."`
}

// Names of what up makes in the folder of a run.
const (
	liveTable   = "rollouts"
	serviceDir  = "service"
	weightsDir  = "weights"
	logsDir     = "logs"
	trainerName = "trainer"
)

// up is a run on the real clock with all its processes.
type up struct {
	*upCommand
	config  run.Config
	program string
	service string   // its address
	engines []string // dialect and address of each
	show    *display

	started []*process.Child // in the order of their start
	ended   time.Time        // of the run; zero: it has not

	mu     sync.Mutex
	before results.Live // what was measured before --resume, and by workers that ended
	work   worker.Stats // of the one that runs
	began  time.Time    // of the first rollout
}

// Run starts the service, the trainer, the engines and a worker, keeps them running until the trainer's budget is
// spent or the context ends, and stops them.
func (c *upCommand) Run(ctx context.Context, on *screen) error {
	u, err := c.prepare(on)
	if err != nil {
		return err
	}
	defer u.show.end()
	err = u.run(ctx)
	u.ended = time.Now()
	finished := err == nil && ctx.Err() == nil
	if !finished && err == nil {
		u.show.note(os.Stderr, "stopping: the trainer ends its update and saves; a second Ctrl-C kills")
	}
	u.stop()
	live := u.live() // with what the worker finished and inserted before it ended
	resumable := run.Resumable(c.Out)
	if resumable {
		err = errors.Join(err, results.WriteLive(c.Out, live))
	}
	switch {
	case err != nil:
		return err
	case !finished && resumable:
		return interruption("stopped; continue with: reprise up --resume --out " + shellWord(c.Out))
	case !finished:
		return interruption("stopped before the first checkpoint: start again")
	}
	return u.finish(context.WithoutCancel(ctx), live)
}

// prepare reads the configuration and readies the folder.
func (c *upCommand) prepare(on *screen) (*up, error) {
	u := &up{upCommand: c}
	var err error
	if c.Resume {
		if c.Config != "" || c.Force {
			return nil, errors.New("--resume uses the configuration in the folder: leave -c and --force out")
		}
		u.config, err = run.LoadFolder(c.Out, c.Set)
	} else {
		u.config, err = loadConfig(string(c.Config), append(slices.Clone(c.Set), "pipeline.trainers=1"))
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be used:\n%w", err)
	}
	if l, err := results.ReadLive(c.Out); c.Resume && err == nil {
		u.before = *l
	}
	if !c.Resume {
		clearing := trainCommand{Out: c.Out, Force: c.Force}
		if err := clearing.clearFolder(); err != nil {
			return nil, err
		}
	}
	if u.program, err = os.Executable(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(c.Out, logsDir), 0o755); err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	own := u.config.Live.Engines
	if own == 0 && len(u.config.Live.Addresses) == 0 {
		own = 2
	}
	for range own {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		u.engines = append(u.engines, string(engine.SGLang)+"+http://"+address) // the dialect that returns a nucleus
	}
	u.show = newDisplay(on, os.Stdout, c.JSON)
	return u, nil
}

// freeAddress returns an address of this machine on which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// command returns a command of this program.
func (u *up) command(args ...string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) { return exec.Command(u.program, args...), nil }
}

// start starts a process, which writes to a log of its own.
func (u *up) start(c *process.Child) error {
	log, err := os.OpenFile(filepath.Join(u.Out, logsDir, c.Name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	c.Log = log
	c.Ended = func(err error) {
		if c.State().Starts > 0 {
			u.show.note(os.Stderr, fmt.Sprintf("%s ended (%v) and is started again; its log: %s", c.Name, err,
				log.Name()))
		}
	}
	c.Start()
	u.started = append(u.started, c)
	return nil
}

// run starts everything and waits for the trainer's end. It returns nil when the context ends, too.
func (u *up) run(ctx context.Context) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	u.service = "grpc://" + address
	err = u.start(&process.Child{Name: "service", Command: u.command("serve", "--listen", address, "--http",
		string(u.HTTP), "--data", filepath.Join(u.Out, serviceDir))})
	if err != nil {
		return err
	}
	if err := u.reach(ctx); err != nil {
		return err
	}
	trainer := &process.Child{Name: trainerName, Command: u.train, Done: (*os.ProcessState).Success}
	if err := u.start(trainer); err != nil {
		return err
	}
	if published, err := u.await(ctx, trainer); err != nil || !published {
		return err
	}
	for i, e := range u.engines {
		_, address, _ := strings.Cut(e, "http://")
		name := fmt.Sprintf("engine-%d", i+1)
		err := u.start(&process.Child{Name: name, Command: func() (*exec.Cmd, error) { return u.serveNewest(address) }})
		if err != nil {
			return err
		}
	}
	if err := u.start(&process.Child{Name: "worker", Command: u.rollout, Output: u.readWorker}); err != nil {
		return err
	}
	u.show.printf("%s\n", u.describe())
	return u.watch(ctx, trainer)
}

// reach waits until the service answers.
func (u *up) reach(ctx context.Context) error {
	c, err := client.Dial(ctx, u.service, client.Options{})
	if err != nil {
		return fmt.Errorf("%w; the service's log: %s", err, filepath.Join(u.Out, logsDir, "service.log"))
	}
	return c.Close()
}

// train is the command of the trainer: it begins the run, or goes on from its last checkpoint.
func (u *up) train() (*exec.Cmd, error) {
	if run.Resumable(u.Out) {
		args := []string{"train", "--resume", "--quiet", "--out", u.Out, "--buffer", u.service + "/" + liveTable}
		if u.Resume {
			args = append(args, sets(u.Set)...)
		}
		return exec.Command(u.program, args...), nil
	}
	// one that ended before its first checkpoint has done nothing that would be lost
	if err := os.Remove(filepath.Join(u.Out, results.ConfigFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	args := []string{"train", "--quiet", "--out", u.Out, "--buffer", u.service + "/" + liveTable, "--publish",
		filepath.Join(u.Out, weightsDir)}
	if u.Config != "" {
		args = append(args, "-c", string(u.Config))
	}
	args = append(args, sets(u.Set)...)
	args = append(args, sets([]string{"pipeline.trainers=1", fmt.Sprintf("pipeline.workers=%d", u.engineCount())})...)
	return exec.Command(u.program, args...), nil
}

// sets returns assignments as flags.
func sets(assignments []string) (flags []string) {
	for _, a := range assignments {
		flags = append(flags, "--set", a)
	}
	return flags
}

func (u *up) engineCount() int { return len(u.engines) + len(u.config.Live.Addresses) }

// newest returns the newest published weights.
func (u *up) newest() (engine.Weights, error) {
	return engine.Newest(filepath.Join(u.Out, weightsDir), math.MaxInt32)
}

// maxFailures is how often in a row a process may end soon after its start, by itself, before the run is given up.
const maxFailures = 5

// failed returns the error of a process that cannot run, nil if there is none.
func (u *up) failed() error {
	for _, c := range u.started {
		if s := c.State(); s.Failures >= maxFailures {
			return u.gaveUp(c.Name, s.Err)
		}
	}
	return nil
}

// await waits for the first published weights. It reports false if the context ended first.
func (u *up) await(ctx context.Context, trainer *process.Child) (bool, error) {
	for {
		if _, err := u.newest(); err == nil {
			if _, err := os.Stat(filepath.Join(u.Out, results.ConfigFile)); err == nil {
				return true, nil
			}
		}
		if s := trainer.State(); s.Failures > 0 && !run.Resumable(u.Out) { // it cannot begin
			return false, u.gaveUp(trainerName, s.Err)
		}
		if err := u.failed(); err != nil {
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// gaveUp is the error of a process that cannot go on, with the end of its log.
func (u *up) gaveUp(name string, err error) error {
	path := filepath.Join(u.Out, logsDir, name+".log")
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%s: %w; the end of %s:\n%s", name, err, path, strings.Join(lines[max(0, len(lines)-8):], "\n"))
}

// serveNewest is the command of an engine, which begins with the newest weights.
func (u *up) serveNewest(address string) (*exec.Cmd, error) {
	w, err := u.newest()
	if err != nil {
		return nil, err
	}
	return exec.Command(u.program, "engine", "serve", "--model", w.Folder, "--listen", address, "--rows",
		fmt.Sprint(u.config.Live.Rows)), nil
}

// rollout is the command of the worker.
func (u *up) rollout() (*exec.Cmd, error) {
	w, err := u.newest()
	if err != nil {
		return nil, err
	}
	inFlight := cmp.Or(u.config.Live.InFlight, u.config.Live.Rows*u.engineCount())
	args := []string{"rollout", u.service + "/" + liveTable, "--config", filepath.Join(u.Out, results.ConfigFile),
		"--model", w.Folder, "--weights", filepath.Join(u.Out, weightsDir), "--json", "--in-flight",
		fmt.Sprint(max(inFlight, u.config.Pipeline.Group))}
	for _, e := range append(slices.Clone(u.engines), u.config.Live.Addresses...) {
		args = append(args, "--engine", e)
	}
	return exec.Command(u.program, args...), nil
}

// readWorker reads what the worker says of itself.
func (u *up) readWorker(r io.Reader) error {
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		add(&u.before, u.work)
		u.work = worker.Stats{}
	}()
	for lines := json.NewDecoder(r); ; {
		var s worker.Stats
		if err := lines.Decode(&s); err != nil { // it has ended, or printed something else
			_, err = io.Copy(io.Discard, r)
			return err
		}
		u.mu.Lock()
		u.work = s
		if u.began.IsZero() && s.Rollouts > 0 {
			u.began = time.Now()
		}
		u.mu.Unlock()
	}
}

// add adds what a worker did.
func add(l *results.Live, s worker.Stats) {
	l.Rollouts += s.Rollouts
	l.TooOld += s.TooOld
	l.GateSeconds += s.GateSeconds
	for _, e := range s.Engines {
		l.EngineSeconds += e.BusySeconds
		l.Failures += e.Failures
	}
}

// describe says what was started.
func (u *up) describe() string {
	var b strings.Builder
	for _, c := range u.started {
		fmt.Fprintf(&b, "%-10s pid %d\n", c.Name, c.State().PID)
	}
	if u.HTTP != "off" {
		fmt.Fprintf(&b, "dashboard  http://%s/\n", u.HTTP)
	}
	fmt.Fprintf(&b, "logs       %s", filepath.Join(u.Out, logsDir))
	return b.String()
}

// watch shows the run until the trainer is done, or has failed too often, or the context ends.
func (u *up) watch(ctx context.Context, trainer *process.Child) error {
	p := newProgress(u.config)
	move := func() {}
	if u.show.bars != nil {
		bar := u.show.addBar(p, "run")
		u.show.line(u.status)
		move = func() { bar.SetCurrent(int64(resolution * p.share())) }
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-trainer.Finished():
			return nil
		case <-tick.C:
		}
		var update results.Update
		var eval results.Eval
		if lastLine(filepath.Join(u.Out, results.EvalFile), &eval) {
			p.evaluate(eval)
		}
		if lastLine(filepath.Join(u.Out, results.MetricsFile), &update) {
			p.update(update)
		}
		move()
		if u.show.bars == nil {
			u.show.progress("%s; %s\n", p, u.status())
		}
		if err := results.WriteLive(u.Out, u.live()); err != nil {
			return err
		}
		if err := u.failed(); err != nil {
			return err
		}
	}
}

// status is a line about the processes.
func (u *up) status() string {
	l := u.live()
	u.mu.Lock()
	engines := u.work.Engines
	u.mu.Unlock()
	parts := []string{fmt.Sprintf("%d rollouts", l.Rollouts)}
	for i, e := range engines {
		state := "down"
		if e.Ready {
			state = fmt.Sprintf("v%d, %d in flight", e.Version, e.Outstanding)
		}
		parts = append(parts, fmt.Sprintf("engine-%d %s", i+1, state))
	}
	for _, name := range l.Restarts.Names() {
		parts = append(parts, fmt.Sprintf("%s restarted %s", name, words.Plural(l.Restarts[name], "time")))
	}
	return strings.Join(parts, "; ")
}

// lastLine reads the last whole line of a file of JSON lines.
func lastLine(path string, into any) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	const most = 1 << 18
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false
	}
	text := make([]byte, min(size, most))
	if _, err := f.ReadAt(text, size-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	end := bytes.LastIndexByte(text, '\n')
	if end < 0 {
		return false
	}
	return json.Unmarshal(text[bytes.LastIndexByte(text[:end], '\n')+1:end], into) == nil
}

// stop ends all processes, the last first: those started earlier do not need it.
func (u *up) stop() {
	for _, c := range slices.Backward(u.started) {
		grace := 30 * time.Second
		if c.Name == trainerName { // it ends its update, and saves
			grace = time.Hour
		}
		c.Stop(grace)
	}
}

// live returns what is measured so far.
func (u *up) live() *results.Live {
	u.mu.Lock()
	l := u.before
	add(&l, u.work)
	if !u.began.IsZero() {
		l.Seconds += cmp.Or(u.ended, time.Now()).Sub(u.began).Seconds()
	}
	u.mu.Unlock()
	l.Engines, l.Restarts, l.Predicted = u.engineCount(), maps.Clone(l.Restarts), nil
	for _, c := range u.started {
		if n := c.State().Starts - 1; n > 0 {
			if l.Restarts == nil {
				l.Restarts = make(results.Restarts)
			}
			l.Restarts[c.Name] += n
		}
	}
	var last results.Update
	if !lastLine(filepath.Join(u.Out, results.MetricsFile), &last) {
		return &l
	}
	l.Used, l.TrainerSeconds = last.Used, last.ComputeBusy
	perRollout, perUse := l.EngineSeconds/float64(l.Rollouts), l.TrainerSeconds/float64(l.Used)
	l.RolloutCost = results.Num(perRollout / perUse)
	l.Measured = results.Pace{
		EnginesStalled: results.Num(max(0, 1-l.EngineSeconds/(float64(l.Engines)*l.Seconds))),
		TrainerStalled: results.Num(1 - l.TrainerSeconds/last.Clock),
		ReplayRatio:    last.ReplayRatio, Staleness: last.StalenessMean,
	}
	return &l
}

// predict runs the schedule without a model at the configured and at the measured rollout cost.
func (u *up) predict(ctx context.Context, l *results.Live) error {
	config, err := run.LoadFolder(u.Out, nil)
	if err != nil {
		return err
	}
	schedule, table := config.Schedule()
	list := []results.Prediction{{By: "configured", RolloutCost: results.Num(schedule.RolloutCost)}}
	if held := config.Live.MaxStaleness != nil && config.Replays(); !held && l.RolloutCost.Known() {
		// else the gate holds the engines to the configured pace
		list = append(list, results.Prediction{By: "measured", RolloutCost: l.RolloutCost})
	}
	for _, p := range list {
		schedule.RolloutCost = p.RolloutCost.Float()
		if p.Pace, err = paceOf(ctx, schedule, table); err != nil {
			return fmt.Errorf("predict the schedule at a rollout cost of %.3g: %w", schedule.RolloutCost, err)
		}
		l.Predicted = append(l.Predicted, p)
	}
	return nil
}

// paceOf runs a schedule without a model for a few hundred updates.
func paceOf(ctx context.Context, o pipeline.Options, table replay.Options) (results.Pace, error) {
	buffer, err := replay.New(table)
	if err != nil {
		return results.Pace{}, err
	}
	perUpdate := o.WithDefaults().NewPerUpdate()
	if table.Sampler.Consumes() {
		perUpdate = float64(o.Batch)
	}
	const updates = 200
	n := int(max(perUpdate, float64(o.Group)) * updates)
	r, err := sim.Trial{Options: o, Buffer: buffer, Rollouts: n, Skip: n / 4}.Run(ctx)
	if err != nil {
		return results.Pace{}, err
	}
	var staleness results.Histogram
	for _, b := range r.Staleness.Bins() {
		staleness = append(staleness, [2]uint64{uint64(b.Value), b.Count})
	}
	return results.Pace{EnginesStalled: results.Num(r.WorkersStalled()), TrainerStalled: results.Num(r.TrainersStalled()),
		ReplayRatio: results.Num(r.ReplayRatio()), Staleness: staleness.Mean(),
		MostStale: results.Num(float64(staleness.Max()))}, nil
}

// finish puts what was measured into the summary and the report, and says it.
func (u *up) finish(ctx context.Context, l *results.Live) error {
	sum, err := results.ReadSummary(u.Out)
	if err != nil || sum == nil {
		return errors.Join(err, errors.New("the trainer has ended without a summary"))
	}
	l.Measured.Staleness, l.Measured.MostStale = sum.Staleness.Mean(), results.Num(float64(sum.Staleness.Max()))
	if err := u.predict(ctx, l); err != nil {
		return err
	}
	if err := results.WriteLive(u.Out, l); err != nil {
		return err
	}
	sum.RolloutCostMeasured, sum.Live = l.RolloutCost, l
	if err := results.WriteSummary(u.Out, sum); err != nil {
		return err
	}
	if err := report.Write(u.Out); err != nil {
		return err
	}
	if u.JSON {
		return printJSON(l)
	}
	u.show.end()
	u.show.summary(sum, u.Out)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{l.Columns()}, l.Rows()...) {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println(l.Costs())
	for _, t := range l.Troubles() {
		fmt.Println(t)
	}
	return nil
}
