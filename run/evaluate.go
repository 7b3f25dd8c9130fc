package run

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// evaluationRows bounds the rows decoded in one batch of an evaluation.
const evaluationRows = 128

// luckSeed is the seed of everything random in the episodes of evaluations: a constant, so that all runs are tried on the same
// problems with the same luck.
const luckSeed = 0x72657072697365

// luck returns the seed of the n-th of a problem's episodes. The one that is played greedily is the 0-th.
func luck(problem, n int) uint64 {
	return rollout.Stream(luckSeed, "evaluate/environment", uint64(n)<<32|uint64(problem)).Uint64()
}

// evaluator tries weights on problems: greedily for pass@1, by samples at temperature 1 for pass@k. Each try is an episode, of
// one turn where the task has no more. It runs beside the training, on immutable weights, and costs no virtual time.
type evaluator struct {
	speaker
	task     task.Task
	turns    int // of an episode, at most
	problems []task.Prompt
	prompts  []policy.Input
	sampling policy.Sampling
	samples  int
	passAt   []int
	seed     uint64
	rows     int           // decoded in one batch, at most
	gate     chan struct{} // limits the batches decoded at once
}

func newEvaluator(c Config, t task.Task, s speaker, problems []task.Prompt) (*evaluator, error) {
	e := &evaluator{
		speaker: s, task: t, turns: task.MaxTurns(t), problems: problems, samples: c.Evaluate.Samples, passAt: c.Evaluate.PassAt,
		seed: c.Seed, sampling: policy.Sampling{MaxTokens: c.Generate.MaxTokens, Stop: s.tokenizer.EOS()},
		rows: evaluationRows, gate: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	for _, p := range e.problems {
		in, err := s.input(p)
		if err != nil {
			return nil, err
		}
		e.prompts = append(e.prompts, in)
	}
	return e, nil
}

// trial is what came of one episode of an evaluation.
type trial struct {
	correct, truncated     bool
	reward                 float64
	length, turns, invalid int // tokens of the policy, turns, and those of them that were no action
}

// pass1 returns the share of problems that weights solve greedily.
func (e *evaluator) pass1(ctx context.Context, w *policy.Weights) (float64, error) {
	trials, err := e.try(ctx, w, 1, 0)
	var correct float64
	for _, t := range trials {
		correct += oneIf(t.correct)
	}
	return correct / float64(len(e.problems)), err
}

// evaluate fills in the accuracy of weights.
func (e *evaluator) evaluate(ctx context.Context, w *policy.Weights, line *results.Eval) error {
	greedy, err := e.try(ctx, w, 1, 0)
	if err != nil {
		return fmt.Errorf("evaluate version %d: %w", w.Version, err)
	}
	e.describe(greedy, line)
	if e.samples == 0 {
		return nil
	}
	drawn, err := e.try(ctx, w, e.samples, 1)
	if err != nil {
		return fmt.Errorf("evaluate version %d: %w", w.Version, err)
	}
	hits := make([]int, len(e.problems))
	for i, t := range drawn {
		hits[i/e.samples] += int(oneIf(t.correct))
	}
	line.Samples = e.samples
	for _, k := range e.passAt {
		line.PassAt = append(line.PassAt, results.PassRate{K: k, Rate: results.MeanPassAtK(e.samples, hits, k)})
	}
	return nil
}

// describe fills in what the greedy episodes came to.
func (e *evaluator) describe(greedy []trial, line *results.Eval) {
	var correct, truncated, reward, length, turns, invalid float64
	for _, t := range greedy {
		correct += oneIf(t.correct)
		truncated += oneIf(t.truncated)
		reward += t.reward
		length += float64(t.length)
		turns += float64(t.turns)
		invalid += float64(t.invalid)
	}
	n := float64(len(greedy))
	line.Problems, line.Pass1, line.Reward = len(greedy), correct/n, results.Num(reward/n)
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

// try plays each problem's episodes in order, copies times each.
func (e *evaluator) try(ctx context.Context, w *policy.Weights, copies int, temperature float64) ([]trial, error) {
	all := make([]trial, len(e.problems)*copies)
	errs := make([]error, (len(all)+e.rows-1)/e.rows)
	var wait sync.WaitGroup
	for part := range errs {
		from := part * e.rows
		wait.Go(func() {
			e.gate <- struct{}{}
			defer func() { <-e.gate }()
			errs[part] = e.tryPart(ctx, w, all[from:min(from+e.rows, len(all))], span{from, copies, temperature})
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

// span is which trials a batch of an evaluation holds: those from the from-th on, each problem having copies.
type span struct {
	from, copies int
	temperature  float64
}

func (e *evaluator) tryPart(ctx context.Context, w *policy.Weights, into []trial, s span) error {
	rows := make([]beginning, len(into))
	for i := range rows {
		problem, n := (s.from+i)/s.copies, (s.from+i)%s.copies
		rows[i] = beginning{
			input: e.prompts[problem], episode: task.Begin(e.task, e.problems[problem], luck(problem, n)),
			stream: rollout.Stream(e.seed, "evaluate", uint64(s.from+i)),
		}
	}
	sampling := e.sampling
	sampling.Temperature = s.temperature
	played, err := e.start(rows, e.turns, sampling)
	if err != nil {
		return err
	}
	if _, err := played.proceed(ctx, w, 0); err != nil {
		return err
	}
	for i, row := range played.rows.Rows() {
		into[i] = played.plays[i].trial(row)
	}
	return nil
}

// trial says what came of an episode that is over.
func (p *play) trial(row policy.Row) trial {
	t := trial{
		correct: p.succeeded(), truncated: p.truncated(row), reward: float64(p.reward()), turns: len(p.turns), invalid: p.invalid,
	}
	for _, m := range row.Mask {
		t.length += int(m)
	}
	return t
}
