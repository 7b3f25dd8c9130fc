// Package run carries out one configured training run. It reads the configuration ([Load], [Config]), makes the parts
// of the other packages from it, and trains in a folder ([Train], [Resume], [Comparison]).
//
// A run is reproducible from its configuration and seed: two runs write the same metrics.jsonl, and an interrupted and
// resumed run writes the same bytes as one that was not interrupted. Package results describes what a folder holds. How
// rollouts are kept and used is decided elsewhere: by packages replay and pipeline.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run/tensorboard"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/replay/prompts"
)

// Hooks watch a run. They are called from one goroutine, in order. Any may be nil.
type Hooks struct {
	OnUpdate func(results.Update)
	OnEval   func(results.Eval)
	// OnTooLong is called before the run if prompts are left out.
	OnTooLong func(results.TooLong)

	TensorBoard string // folder to write an event file into, see package tensorboard; empty: none
}

// session is a run under way in its folder.
type session struct {
	config  Config
	dir     string
	hooks   Hooks
	task    task.Task        // without the prompts that are too long
	tooLong *results.TooLong // nil: none
	start   *Start
	table   table
	chooser *prompts.Chooser // nil without prompt replay
	answers *answers         // nil without prefixes of earlier ones
	learner *policy.Learner
	machine schedule

	metrics *results.Log[results.Update]
	timing  *results.Log[results.Timing]
	evals   *results.Log[results.Eval]
	events  *tensorboard.Writer // nil: none

	progress
	evaluations []results.Eval // written so far
	pending     []*evaluation  // under way, in order
	evaluator   *evaluator
	improvement *improvement    // nil: not measured
	last        pipeline.Update // the latest
	clock       stopwatch

	evaluating context.Context // ends the evaluations under way with the session
	release    func() error    // closes the task
	stop       context.CancelFunc
}

// progress is what a checkpoint keeps of a session besides its parts. Checkpoints hold it by its field names.
type progress struct {
	Meter    usage
	NextGrid int             // evaluations begun
	Last     pipeline.Update // the latest, without its metrics
	Tokens   int64           // generated so far
	Episodes episodeCounts   // inserted or dropped since the last update
	Since    rewardAt        // of the batch whose change of reward is measured
	Lines    struct{ Metrics, Timing, Evals int }
}

// stopwatch measures real time for timing.jsonl, the only file with real time in it.
type stopwatch struct {
	began     time.Time
	earlier   time.Duration // until the last line before an interruption
	wall      pipeline.Wall // at the last update
	evaluated time.Duration // in evaluations finished since then
	tokens    int64         // generated until then
}

// evaluation is an evaluation under way.
type evaluation struct {
	line results.Eval
	done chan error
	took time.Duration
}

// Train carries out a run from its start in a new folder and returns its summary, which it also writes. When ctx ends,
// the run stops after the current update with a checkpoint, and the summary says "interrupted". Train closes the start,
// which other runs may still begin from.
func Train(ctx context.Context, c Config, start *Start, dir string, h Hooks) (*results.Summary, error) {
	defer start.Close()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := checkVacant(dir); err != nil {
		return nil, err
	}
	if c.remote != nil {
		c = c.WithBuffer(c.remote.withRunName(dir))
	}
	s, err := newSession(ctx, c, start, dir, h, true)
	if err != nil {
		return nil, err
	}
	defer s.close()
	start.Close() // the session has opened the task, so that its program is started once
	if err := createFolder(dir, c); err != nil {
		return nil, err
	}
	if err := s.createLogs(); err != nil {
		return nil, err
	}
	defer s.closeLogs()
	if c.live() { // workers begin once weights are published
		s.machine, err = s.startLive(ctx, pipeline.LiveState{}, true)
	} else {
		s.machine, err = pipeline.New(c.pipelineOptions(), s.parts(), s.pipelineHooks())
	}
	if err != nil {
		return nil, err
	}
	s.beginEvaluation(pipeline.Update{})
	if err := s.measureImprovement(pipeline.Update{}, nil); err != nil {
		return nil, err
	}
	if err := s.checkpoint(); err != nil { // so that the run can be resumed from its first moment on
		return nil, err
	}
	return s.run(ctx)
}

// newSession makes the parts of a run at version 0. The caller closes it.
func newSession(ctx context.Context, c Config, start *Start, dir string, h Hooks, begins bool) (*session, error) {
	s := &session{config: c, dir: dir, hooks: h, start: start, clock: stopwatch{began: time.Now()}}
	var err error
	if s.task, err = c.newTask(); err != nil {
		return nil, err
	}
	if s.task, s.tooLong, err = start.fit(c, s.task); err != nil {
		return nil, err
	}
	if s.tooLong != nil && h.OnTooLong != nil {
		h.OnTooLong(*s.tooLong)
	}
	if s.chooser, err = s.newChooser(); err != nil {
		return nil, err
	}
	s.answers = c.newAnswers()
	learning, err := c.policyLearning()
	if err != nil {
		return nil, err
	}
	if s.learner, err = start.model.NewLearner(start.weights, learning); err != nil {
		return nil, err
	}
	heldOut := s.task.HeldOut()
	problems := c.Evaluate.of(heldOut)
	if len(problems) == 0 {
		return nil, fmt.Errorf("evaluate.problems: %s: want all, as the task holds out %s", c.Evaluate.Problems,
			words.Plural(len(heldOut), "problem"))
	}
	if s.evaluator, err = newEvaluator(c, s.task, start.textModel, problems); err != nil {
		return nil, err
	}
	if s.improvement, err = newImprovement(c, s.task, start.textModel); err != nil {
		return nil, err
	}
	if s.table, err = c.openTable(ctx, start.model.Config().VocabSize, dir, begins); err != nil {
		return nil, err
	}
	s.evaluating, s.stop = context.WithCancel(context.Background())
	s.release = task.Open(s.task)
	return s, nil
}

// close ends the evaluations under way, and releases the table and the task.
func (s *session) close() error {
	s.stop()
	for _, e := range s.pending {
		<-e.done
	}
	return errors.Join(s.table.close(), s.release())
}

func (s *session) parts() pipeline.Parts {
	sampling := s.start.ending(s.config.sampling())
	environment, _ := s.task.(task.Environment)
	return pipeline.Parts{
		Task: s.task, Buffer: s.table, Learner: s.publisher(), Prompts: s.chosen(),
		Answers:   s.earlier(),
		Generator: &generator{s.start.textModel, environment, sampling, s.config.Seed, s.experts(), s.prefixes()},
	}
}

// prefixes returns what some groups begin with.
func (s *session) prefixes() prefixes {
	shows, _ := s.task.(task.Demonstrator)
	return prefixes{shows, s.config.Generate.Prefix.withDefaults(), s.config.Seed}
}

// experts returns what makes the expert rollouts of each group.
func (s *session) experts() experts {
	shows, _ := s.task.(task.Demonstrator)
	return experts{shows, s.config.Generate.Experts}
}

// publisher returns the learner as the pipeline has it.
func (s *session) publisher() learner {
	return learner{s.learner, s.start.textModel, s.config.Generate.Precision}
}

func (s *session) pipelineHooks() pipeline.Hooks {
	return pipeline.Hooks{OnInsert: func(in pipeline.Insertion) {
		s.countGroup(in)
		s.answers.keep(in.Rollouts)
	}, OnDrop: s.countGroup,
		OnUpdate: func(_ *pipeline.Machine, u pipeline.Update) error { return s.onUpdate(u) }}
}

// run runs the machine to its end. Its error is a *Failure.
func (s *session) run(ctx context.Context) (*results.Summary, error) {
	sum, err := s.runToEnd(ctx)
	if err != nil {
		return nil, &Failure{Dir: s.dir, Err: err}
	}
	return sum, nil
}

// runToEnd runs the machine and writes the last checkpoint, the last evaluation and the summary.
func (s *session) runToEnd(ctx context.Context) (*results.Summary, error) {
	unhook := context.AfterFunc(ctx, s.machine.Stop)
	defer unhook()
	if err := s.machine.Run(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	if err := s.checkpoint(); err != nil {
		return nil, err
	}
	ended := "interrupted"
	if s.machine.Finished() { // after the checkpoint: a run that is resumed with a larger budget has no evaluation here
		ended = "budget"
		if err := s.evaluateLast(); err != nil {
			return nil, err
		}
	}
	sum, err := s.summarise(ctx, ended)
	if err != nil {
		return nil, err
	}
	return sum, results.WriteSummary(s.dir, sum)
}

// countGroup counts the tokens and episodes of a group that entered the table or was dropped.
func (s *session) countGroup(in pipeline.Insertion) {
	for _, r := range in.Rollouts {
		s.Episodes.add(r)
		for _, m := range r.Mask {
			s.Tokens += int64(m)
		}
	}
}

// onUpdate records an update, and evaluates and saves the run when that is due.
func (s *session) onUpdate(u pipeline.Update) error {
	s.last = u
	seen, err := s.table.state(context.Background())
	if err != nil {
		return err
	}
	l := s.Meter.line(u, seen.held)
	s.addTable(&l, u, seen)
	if err := s.measureImprovement(u, &l); err != nil {
		return err
	}
	s.Episodes.fill(&l)
	s.Episodes = episodeCounts{}
	if err := s.metrics.Append(l); err != nil {
		return err
	}
	if err := s.logEvent(l.Update, l); err != nil {
		return err
	}
	if s.hooks.OnUpdate != nil {
		s.hooks.OnUpdate(l)
	}
	if s.evaluationDue(u.Compute) {
		s.beginEvaluation(u)
	}
	if err := errors.Join(s.finishEvaluations(false), s.recordTiming(u)); err != nil {
		return err
	}
	if int(u.Version)%s.config.Checkpoint.Every == 0 {
		return s.checkpoint()
	}
	return nil
}

// logEvent writes the numbers of a line for TensorBoard, if that is asked for.
func (s *session) logEvent(update int, line interface{ Scalars() []results.Scalar }) error {
	if s.events == nil {
		return nil
	}
	return s.events.Append(time.Now(), update, line.Scalars())
}

func (s *session) recordTiming(u pipeline.Update) error {
	wall := s.machine.Wall()
	t := results.Timing{
		Update: int(u.Version), Elapsed: s.elapsed().Seconds(),
		Generate: (wall.Generate - s.clock.wall.Generate).Seconds(), Learn: (wall.Learn - s.clock.wall.Learn).Seconds(),
		Evaluate: s.clock.evaluated.Seconds(), Tokens: s.Tokens - s.clock.tokens,
	}
	s.clock.wall, s.clock.evaluated, s.clock.tokens = wall, 0, s.Tokens
	return s.timing.Append(t)
}

// elapsed returns the real time of the run so far, without interruptions.
func (s *session) elapsed() time.Duration { return s.clock.earlier + time.Since(s.clock.began) }

// gridCompute returns the compute at which the n-th evaluation is due.
func (s *session) gridCompute(n int) float64 {
	return float64(n) * s.config.Evaluate.Every * s.machine.Options().QueueCompute()
}

// evaluationDue reports whether the next evaluation is due. Sums may fall short of the grid by rounding.
func (s *session) evaluationDue(compute float64) bool {
	return compute >= s.gridCompute(s.NextGrid)*(1-1e-12)
}

// beginEvaluation starts the evaluation that an update has made due.
func (s *session) beginEvaluation(u pipeline.Update) {
	for s.evaluationDue(u.Compute) {
		s.NextGrid++
	}
	s.evaluate(u, s.gridCompute(s.NextGrid-1))
}

// evaluate starts to evaluate the newest weights in the background, for a grid point of compute.
func (s *session) evaluate(u pipeline.Update, grid float64) {
	e := &evaluation{done: make(chan error, 1), line: results.Eval{
		Update: int(u.Version), Version: int(u.Version), Grid: grid, Compute: u.Compute, Clock: u.Time,
	}}
	if u.Version > 0 {
		e.line.ComputeBusy, e.line.ComputeAll = u.ComputeBusy(), u.ComputeAll()
	}
	weights := s.learner.Weights()
	s.pending = append(s.pending, e)
	go func() {
		began := time.Now()
		err := s.evaluator.evaluate(s.evaluating, weights, &e.line)
		e.took = time.Since(began)
		e.done <- err
	}()
}

// finishEvaluations writes the evaluations that are done, in order. With wait it waits for all of them.
func (s *session) finishEvaluations(wait bool) error {
	for len(s.pending) > 0 {
		e := s.pending[0]
		if !wait && len(e.done) == 0 {
			return nil
		}
		err := <-e.done
		s.pending = s.pending[1:]
		if err != nil {
			return err
		}
		if err := s.evals.Append(e.line); err != nil {
			return err
		}
		if err := s.logEvent(e.line.Update, e.line); err != nil {
			return err
		}
		s.clock.evaluated += e.took
		s.evaluations = append(s.evaluations, e.line)
		if s.hooks.OnEval != nil {
			s.hooks.OnEval(e.line)
		}
	}
	return nil
}

// evaluateLast evaluates the final weights unless they have been evaluated.
func (s *session) evaluateLast() error {
	if err := s.finishEvaluations(true); err != nil {
		return err
	}
	if n := len(s.evaluations); n > 0 && s.evaluations[n-1].Version == int(s.last.Version) {
		return nil
	}
	s.evaluate(s.last, s.last.Compute)
	return s.finishEvaluations(true)
}

// Failure is an error in the middle of a run, as opposed to one in its configuration or checkpoint: for example a loss
// that is NaN, trainers that never find a batch, or a full disk. What the run wrote until then stays in its folder.
type Failure struct {
	Dir string // of the run
	Err error
}

func (f *Failure) Error() string { return "run " + f.Dir + ": " + f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }
