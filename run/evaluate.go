package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// evaluationRows bounds the rows decoded in one batch of an evaluation.
const evaluationRows = 128

// evaluator tries weights on the held-out problems: greedily for pass@1, by samples at temperature 1 for pass@k. It
// runs beside the training, on immutable weights, and costs no virtual time.
type evaluator struct {
	speaker
	task     task.Task
	problems []task.Prompt
	prompts  [][]int32
	sampling policy.Sampling
	samples  int
	passAt   []int
	seed     uint64
	gate     chan struct{} // limits the batches decoded at once
}

func newEvaluator(c Config, t task.Task, s speaker, problems []task.Prompt) (*evaluator, error) {
	e := &evaluator{
		speaker: s, task: t, problems: problems, samples: c.Evaluate.Samples, passAt: c.Evaluate.PassAt, seed: c.Seed,
		sampling: policy.Sampling{MaxTokens: c.Generate.MaxTokens, Stop: s.tokenizer.EOS()},
		gate:     make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	for _, p := range e.problems {
		tokens, err := s.encode(p.Text)
		if err != nil {
			return nil, err
		}
		e.prompts = append(e.prompts, tokens)
	}
	return e, nil
}

// answer is one response of an evaluation.
type answer struct {
	correct, truncated bool
	length             int
}

// pass1 returns the share of problems that weights answer greedily.
func (e *evaluator) pass1(ctx context.Context, w *policy.Weights) (float64, error) {
	answers, err := e.answers(ctx, w, 1, 0)
	var correct float64
	for _, a := range answers {
		correct += oneIf(a.correct)
	}
	return correct / float64(len(e.problems)), err
}

// evaluate fills in the accuracy of weights.
func (e *evaluator) evaluate(ctx context.Context, w *policy.Weights, line *results.Eval) error {
	greedy, err := e.answers(ctx, w, 1, 0)
	if err != nil {
		return fmt.Errorf("evaluate version %d: %w", w.Version, err)
	}
	var correct, truncated, length float64
	for _, a := range greedy {
		length += float64(a.length)
		correct += oneIf(a.correct)
		truncated += oneIf(a.truncated)
	}
	n := float64(len(greedy))
	line.Problems, line.Pass1 = len(greedy), correct/n
	line.MeanLength, line.Truncated = results.Num(length/n), results.Num(truncated/n)
	if e.samples == 0 {
		return nil
	}
	drawn, err := e.answers(ctx, w, e.samples, 1)
	if err != nil {
		return fmt.Errorf("evaluate version %d: %w", w.Version, err)
	}
	hits := make([]int, len(e.problems))
	for i, a := range drawn {
		hits[i/e.samples] += int(oneIf(a.correct))
	}
	line.Samples = e.samples
	for _, k := range e.passAt {
		line.PassAt = append(line.PassAt, results.PassRate{K: k, Rate: results.MeanPassAtK(e.samples, hits, k)})
	}
	return nil
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// answers gives each problem's responses in order, copies times each.
func (e *evaluator) answers(ctx context.Context, w *policy.Weights, copies int, temperature float64) ([]answer, error) {
	all := make([]answer, len(e.problems)*copies)
	errs := make([]error, (len(all)+evaluationRows-1)/evaluationRows)
	var wait sync.WaitGroup
	for part := range errs {
		from := part * evaluationRows
		wait.Go(func() {
			e.gate <- struct{}{}
			defer func() { <-e.gate }()
			errs[part] = e.answerPart(ctx, w, all[from:min(from+evaluationRows, len(all))], span{from, copies, temperature})
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

// span is which responses a batch of an evaluation holds: those from the from-th on, each problem having copies.
type span struct {
	from, copies int
	temperature  float64
}

func (e *evaluator) answerPart(ctx context.Context, w *policy.Weights, into []answer, s span) error {
	prompts, streams := make([][]int32, len(into)), make([]*rand.Rand, len(into))
	for i := range into {
		prompts[i] = e.prompts[(s.from+i)/s.copies]
		streams[i] = rollout.Stream(e.seed, "evaluate", uint64(s.from+i))
	}
	sampling := e.sampling
	sampling.Temperature = s.temperature
	g, err := e.model.Start(prompts, streams, sampling)
	if err != nil {
		return err
	}
	if _, err := g.Continue(ctx, w, 0); err != nil {
		return err
	}
	for i, row := range g.Rows() {
		verdict := e.task.Verify(e.problems[(s.from+i)/s.copies], e.response(row))
		into[i] = answer{correct: verdict.Correct, truncated: row.Truncated, length: len(row.Logprobs)}
	}
	return nil
}
