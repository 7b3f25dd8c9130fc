package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// evaluationRows bounds the rows decoded in one batch of an evaluation.
const evaluationRows = 128

// evaluationSeed seeds the environments of all evaluations, so that all runs are tried on the same episodes.
const evaluationSeed = 0x72657072697365

// episodeSeed returns the seed of a problem's n-th episode.
func episodeSeed(problem, n int) uint64 {
	return rollout.Stream(evaluationSeed, "evaluate/environment", uint64(n)<<32|uint64(problem)).Uint64()
}

// evaluator tries weights on problems: one answer to each for pass@1, samples at temperature 1 for pass@k. A trial is
// an episode, of one turn if the task has no more. Evaluations run beside the training on immutable weights and take
// no virtual time.
type evaluator struct {
	textModel
	task      task.Task
	turns     int // of an episode, at most
	problems  []task.Prompt
	prompts   []policy.Input
	sampling  policy.Sampling
	one       float64 // temperature of the one answer to each problem
	samples   int
	passAt    []int
	seed      uint64
	rows      int              // per batch, at most
	precision policy.Precision // of the workers' copy of the weights
	workers   policy.Sampling  // of their rollouts, from the whole distribution
	gate      chan struct{}    // limits the batches decoded at the same time
}

func newEvaluator(c Config, t task.Task, m textModel, problems []task.Prompt) (*evaluator, error) {
	e := &evaluator{
		textModel: m, task: t, turns: task.MaxTurns(t), problems: problems, samples: c.Evaluate.Samples,
		passAt: c.Evaluate.PassAt, one: c.Evaluate.Temperature,
		seed: c.Seed, sampling: m.ending(policy.Sampling{MaxTokens: c.Generate.MaxTokens}),
		rows: evaluationRows, gate: make(chan struct{}, runtime.GOMAXPROCS(0)),
		precision: c.Generate.Precision, workers: m.ending(c.sampling()),
	}
	e.workers.TopP = 1
	for _, p := range e.problems {
		in, err := m.encodePrompt(p)
		if err != nil {
			return nil, err
		}
		e.prompts = append(e.prompts, in)
	}
	return e, nil
}

// of returns the problems that are tried, of the held-out ones in the task's order. Of two or more, one or more are in
// either part.
func (e Evaluate) of(heldOut []task.Prompt) []task.Prompt {
	fifth := (len(heldOut) + 4) / 5
	switch e.Problems {
	case "choose":
		return heldOut[:fifth]
	case "judge":
		return heldOut[fifth:]
	}
	return heldOut
}

// trial is the outcome of one episode of an evaluation.
type trial struct {
	correct, truncated     bool
	reward                 float64
	length, turns, invalid int // tokens of the policy, turns, turns that were no action
}

// pass1 returns the share of problems that weights solve greedily.
func (e *evaluator) pass1(ctx context.Context, w *policy.Weights) (float64, error) {
	trials, err := e.runTrials(ctx, w, 1, 0)
	var correct float64
	for _, t := range trials {
		correct += oneIf(t.correct)
	}
	return correct / float64(len(e.problems)), err
}

// evaluate fills in the accuracy of weights.
func (e *evaluator) evaluate(ctx context.Context, w *policy.Weights, line *results.Eval) error {
	trials, err := e.runTrials(ctx, w, 1, e.one)
	if err != nil {
		return fmt.Errorf("evaluate version %d: %w", w.Version, err)
	}
	e.summarise(trials, line)
	if line.Mismatch, err = e.mismatch(ctx, w); err != nil {
		return fmt.Errorf("measure the mismatch of version %d: %w", w.Version, err)
	}
	if e.samples == 0 {
		return nil
	}
	sampled, err := e.runTrials(ctx, w, e.samples, 1)
	if err != nil {
		return fmt.Errorf("evaluate version %d: %w", w.Version, err)
	}
	hits := make([]int, len(e.problems))
	for i, t := range sampled {
		hits[i/e.samples] += int(oneIf(t.correct))
	}
	line.Samples = e.samples
	for _, k := range e.passAt {
		line.PassAt = append(line.PassAt, results.PassRate{K: k, Rate: results.MeanPassAtK(e.samples, hits, k)})
	}
	return nil
}

// summarise fills in the means over one trial of each problem.
func (e *evaluator) summarise(trials []trial, line *results.Eval) {
	var correct, truncated, reward, length, turns, invalid float64
	for _, t := range trials {
		correct += oneIf(t.correct)
		truncated += oneIf(t.truncated)
		reward += t.reward
		length += float64(t.length)
		turns += float64(t.turns)
		invalid += float64(t.invalid)
	}
	n := float64(len(trials))
	line.Problems, line.Pass1, line.Reward = len(trials), correct/n, results.Num(reward/n)
	if e.one > 0 {
		line.Temperature = results.Num(e.one)
	}
	line.Solved = results.NewSolved(len(trials), func(i int) bool { return trials[i].correct })
	line.MeanLength, line.Truncated = results.Num(length/n), results.Num(truncated/n)
	if _, ok := e.task.(task.Environment); ok {
		line.Turns, line.Invalid = results.Num(turns/n), results.Num(invalid/turns)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// runTrials plays each problem copies times, in order.
func (e *evaluator) runTrials(ctx context.Context, w *policy.Weights, copies int, temperature float64) ([]trial,
	error) {
	all := make([]trial, len(e.problems)*copies)
	errs := make([]error, (len(all)+e.rows-1)/e.rows)
	var wait sync.WaitGroup
	for batch := range errs {
		from := batch * e.rows
		wait.Go(func() {
			errs[batch] = e.runBatch(ctx, w, all[from:min(from+e.rows, len(all))], from, copies, temperature)
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// runBatch plays the trials from the given number on in one batch.
func (e *evaluator) runBatch(
	ctx context.Context, w *policy.Weights, into []trial, from, copies int, temperature float64,
) error {
	sampling := e.sampling
	sampling.Temperature = temperature
	played, err := e.play(ctx, w, from, len(into), copies, sampling)
	if err != nil {
		return err
	}
	for i, row := range played.rows.Rows() {
		into[i] = trialOf(&played.list[i], row)
	}
	return nil
}

// play plays n trials from the given number on in one batch, to their ends.
func (e *evaluator) play(
	ctx context.Context, w *policy.Weights, from, n, copies int, s policy.Sampling,
) (*episodes, error) {
	e.gate <- struct{}{}
	defer func() { <-e.gate }()
	inputs, streams := make([]policy.Input, n), make([]*rand.Rand, n)
	list := make([]task.Episode, n)
	for i := range n {
		problem, n := (from+i)/copies, (from+i)%copies
		inputs[i], streams[i] = e.prompts[problem], rollout.Stream(e.seed, "evaluate", uint64(from+i))
		list[i] = task.Begin(e.task, e.problems[problem], episodeSeed(problem, n))
	}
	played, err := e.startEpisodes(inputs, streams, list, e.turns, s)
	if err != nil {
		return nil, err
	}
	_, played.remote = e.task.(task.Remote)
	if _, err := played.decode(ctx, w, 0); err != nil {
		return nil, err
	}
	return played, task.Err(e.task)
}

// mismatchProblems bounds the problems of a measurement of the mismatch.
const mismatchProblems = 64

// mismatch compares the workers' copy of weights with the weights: k = p/b on the tokens of one rollout that the copy
// generates for each of the first problems. It returns nil if the workers' copy is not rounded.
func (e *evaluator) mismatch(ctx context.Context, w *policy.Weights) (*results.Mismatch, error) {
	rounded, err := e.model.Round(w, e.precision)
	if err != nil || rounded == w {
		return nil, err
	}
	played, err := e.play(ctx, rounded, 0, min(len(e.problems), mismatchProblems), 1, e.workers)
	if err != nil {
		return nil, err
	}
	rows := played.rows.Rows()
	inputs := make([]policy.Input, len(rows))
	for i, r := range rows {
		inputs[i] = policy.Input{Tokens: r.Tokens, Mask: r.Mask, Images: r.Images}
	}
	scores, err := e.model.Score(ctx, w, inputs, e.workers.Temperature)
	if err != nil {
		return nil, err
	}
	var logs []float64
	for i, r := range rows {
		for t, m := range r.Mask {
			if m == 1 {
				logs = append(logs, float64(scores[i].Logprobs[t])-float64(r.Logprobs[t]))
			}
		}
	}
	return results.MismatchOf(logs), nil
}

// recorded lists the problems that evaluations tell of one by one.
func (e *evaluator) recorded() []results.Problem {
	var list []results.Problem
	for _, p := range e.problems[:min(len(e.problems), results.MostProblems)] {
		list = append(list, results.NewProblem(p.ID, p.Text))
	}
	return list
}

// trialOf returns the outcome of an episode that is over.
func trialOf(e *task.Progress, row policy.Row) trial {
	t := trial{
		correct: e.Succeeded(), truncated: e.Cut || row.Truncated, reward: float64(e.Reward()), turns: len(e.Turns),
		invalid: e.Invalid,
	}
	for _, m := range row.Mask {
		t.length += int(m)
	}
	return t
}

// improvement measures the true change of reward, to compare with [OG]'s lower bound (policy.Learning.BoundEvery): the
// mean reward of the weights after an update minus that of the weights with which the update's batch began. Both answer
// the first training prompts, one per group of a batch and as often as a group has rollouts, sampled as in training
// from the same random streams, so that much of the chance cancels in the difference.
type improvement struct {
	evaluator *evaluator
	copies    int
	every     rollout.Version // BoundEvery
	updates   rollout.Version // on each batch
}

// rewardAt is the mean reward of the weights with which a batch began. Checkpoints hold it by its field names.
type rewardAt struct {
	Version rollout.Version
	Reward  float64
}

// newImprovement returns nil if no bound is asked for.
func newImprovement(c Config, t task.Task, m textModel) (*improvement, error) {
	if c.Evaluate.BoundEvery == 0 {
		return nil, nil
	}
	var prompts []task.Prompt
	for n := range max(1, c.Pipeline.Batch/c.Pipeline.Group) {
		prompts = append(prompts, t.Train(uint64(n)))
	}
	e, err := newEvaluator(c, t, m, prompts)
	if err != nil {
		return nil, fmt.Errorf("prepare to measure the change of reward: %w", err)
	}
	e.sampling = m.ending(c.sampling())
	return &improvement{e, c.Pipeline.Group, rollout.Version(c.Evaluate.BoundEvery),
		rollout.Version(c.Pipeline.BatchUpdates)}, nil
}

// begins reports whether a measured batch begins at a version: one with an update that has a bound.
func (i *improvement) begins(v rollout.Version) bool {
	return v%i.updates == 0 && (v+i.updates)/i.every > v/i.every
}

// reward returns the mean reward of weights.
func (i *improvement) reward(ctx context.Context, w *policy.Weights) (float64, error) {
	trials, err := i.evaluator.runTrials(ctx, w, i.copies, i.evaluator.sampling.Temperature)
	if err != nil {
		return 0, fmt.Errorf("measure the reward of version %d: %w", w.Version, err)
	}
	sum := 0.0
	for _, t := range trials {
		sum += t.reward
	}
	return sum / float64(len(trials)), nil
}

// measureImprovement adds the true change of reward, in the bound's unit, to the line of an update that has a bound. It
// notes the reward of the weights with which a measured batch begins.
func (s *session) measureImprovement(u pipeline.Update, l *results.Update) error {
	i := s.improvement
	if i == nil || (u.Version == 0 || u.Version%i.every != 0) && !i.begins(u.Version) {
		return nil
	}
	began := time.Now()
	reward, err := i.reward(context.Background(), s.learner.Weights())
	if err != nil {
		return err
	}
	s.clock.evaluated += time.Since(began)
	if scale, ok := u.Metrics["bound_scale"]; ok && l != nil {
		l.Other["reward_change"] = results.Num((reward - s.Since.Reward) / scale)
	}
	if i.begins(u.Version) {
		s.Since = rewardAt{u.Version, reward}
	}
	return nil
}

// adviser returns the text of an episode's next turn, and whether there is one to give.
type adviser func(problem int, e task.Episode) (string, bool)

// byExpert plays as the episodes themselves advise.
func byExpert(_ int, e task.Episode) (string, bool) {
	expert, ok := e.(task.Expert)
	if !ok {
		return "", false
	}
	return expert.Advise(), true
}

// byChance returns an adviser that plays one of the possible actions, each equally likely.
func byChance(problems int) adviser {
	type source = interface{ IntN(n int) int }
	streams := make([]source, problems)
	for i := range streams {
		streams[i] = rollout.Stream(evaluationSeed, "evaluate/chance", uint64(i))
	}
	return func(problem int, e task.Episode) (string, bool) {
		actor, ok := e.(task.Actor)
		if !ok {
			return "", false
		}
		actions := actor.Actions()
		if len(actions) == 0 {
			return "", false
		}
		return actions[streams[problem].IntN(len(actions))], true
	}
}

// bounds says what experts and chance make of the held-out prompts that an environment is tried on, with the luck of
// the evaluations: what a policy is to be seen between. Nil where there is none: for tasks of one turn, and episodes
// that are no Expert, or no Actor; and when ctx ends before they are known, as experts may search long for each turn.
func bounds(ctx context.Context, t task.Task, problems []task.Prompt) (expert, chance *results.Bound) {
	environment, ok := t.(task.Environment)
	if !ok {
		return nil, nil
	}
	var wait sync.WaitGroup
	wait.Go(func() { expert = bound(ctx, environment, problems, byExpert) })
	chance = bound(ctx, environment, problems, byChance(len(problems)))
	wait.Wait()
	return expert, chance
}

// bound plays all problems once, each by an adviser.
func bound(ctx context.Context, environment task.Environment, problems []task.Prompt, advise adviser) *results.Bound {
	var b results.Bound
	for i, p := range problems {
		episode := environment.Reset(p, episodeSeed(i, 0))
		for turn, done := 0, false; !done && turn < environment.MaxTurns(); turn++ {
			text, ok := advise(i, episode)
			if !ok || ctx.Err() != nil {
				return nil
			}
			step := episode.Step(text)
			b.Reward += float64(step.Reward)
			b.Pass1 += oneIf(step.Done && step.Correct)
			done = step.Done
		}
	}
	n := float64(len(problems))
	b.Pass1, b.Reward = b.Pass1/n, b.Reward/n
	return &b
}
