package run

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// generator is the pipeline's Generator: it makes groups with a language model. Row r of job j draws its tokens from
// the stream (seed, "generate", j x size + r) and seeds its environment from the stream "environment" of the same
// number, so that nothing depends on which worker takes the job, or when.
type generator struct {
	textModel
	environment task.Environment // nil: one response answers a prompt
	sampling    policy.Sampling
	seed        uint64
	experts
	prefixes prefixes
}

// experts are rollouts of each group that are the task's own solution instead of the policy's.
type experts struct {
	task.Demonstrator // not nil with a number
	number            int
}

// validateFor checks that the task can show how its prompts are answered.
func (g Generate) validateFor(t task.Task, name string) error {
	_, shows := t.(task.Demonstrator)
	var p option.Problems
	p.Check(g.Experts == 0 || shows, "generate.experts", g.Experts,
		"0: task %s has no demonstrations of one turn", name)
	p.Add(g.Prefix.validateFor(t, name))
	return p.Err()
}

// Start begins a group: responses to a prompt, or episodes of an environment.
func (g *generator) Start(job pipeline.Job) (pipeline.Generation, error) {
	in, err := g.encodePrompt(job.Prompt)
	if err != nil {
		return nil, err
	}
	prefix, err := g.prefixes.of(job, in, g.textModel, g.sampling)
	if err != nil {
		return nil, err
	}
	in.Tokens = slices.Concat(in.Tokens, prefix)
	sampled := job.Size - g.experts.number
	inputs, streams := make([]policy.Input, sampled), make([]*rand.Rand, sampled)
	var list []task.Episode
	for r := range inputs {
		number := job.Number*uint64(job.Size) + uint64(r)
		inputs[r], streams[r] = in, rollout.Stream(g.seed, "generate", number)
		if g.environment != nil {
			list = append(list, g.environment.Reset(job.Prompt, rollout.Stream(g.seed, "environment", number).Uint64()))
		}
	}
	if g.environment == nil {
		rows, err := g.model.Start(inputs, streams, g.sampling)
		if err == nil {
			err = rows.BeginTurns(len(prefix))
		}
		return &responses{rows, g, job}, err
	}
	e, err := g.startEpisodes(inputs, streams, list, g.environment.MaxTurns(), g.sampling)
	return &episodeGroup{e, g, job}, err
}

// newRollout returns a row as the rollout of a job.
func (g *generator) newRollout(row policy.Row, job pipeline.Job) *rollout.Rollout {
	return &rollout.Rollout{
		PromptID: job.Prompt.ID, Tokens: row.Tokens, Mask: row.Mask, Logprobs: row.Logprobs, Versions: row.Versions,
		Values: row.Values, Images: row.Images, SamplingMask: row.SamplingMask,
		Temperature: float32(g.sampling.Temperature), TopP: float32(g.sampling.TopP),
	}
}

// responses is a group of responses being generated.
type responses struct {
	rows *policy.Generation
	from *generator
	job  pipeline.Job
}

func (g *responses) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	weights, err := workersCopy(w)
	if err != nil {
		return false, err
	}
	done, err := g.rows.Continue(ctx, weights, n)
	if done {
		g.rows.Close()
	}
	return done, err
}

// Rollouts returns the responses, and the task's own. The machine asks the task for their rewards.
func (g *responses) Rollouts() ([]*rollout.Rollout, error) {
	var list []*rollout.Rollout
	for _, row := range g.rows.Rows() {
		r := g.from.newRollout(row, g.job)
		r.Text, r.Truncated = g.from.decodeTurn(row), row.Truncated
		list = append(list, r)
	}
	for range g.from.experts.number {
		r, err := g.from.expert(g.job.Prompt, list[0].Version())
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// expert returns the task's own answer to a prompt as a rollout without log-probs. It has the version of the weights
// that its group began with, so that its age is the time since then.
func (g *generator) expert(p task.Prompt, v rollout.Version) (*rollout.Rollout, error) {
	in, err := g.encodePrompt(p)
	if err != nil {
		return nil, err
	}
	text := g.Demonstrate(p)
	tokens, err := g.encodeTurn(text)
	if err != nil {
		return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
	}
	d := newDemonstration(in)
	d.append(tokens, 1)
	if n, most := d.length(), g.model.Config().MaxPositionEmbeddings; n > most {
		return nil, fmt.Errorf("policy.positions: %d: want %d or more: the expert's answer to prompt %s takes %d tokens; "+
			"or set generate.experts=0", most, n, p.ID, n)
	}
	r := d.rollout
	r.PromptID, r.Text = p.ID, text
	for i, m := range r.Mask {
		if m == 1 {
			r.Logprobs[i], r.Versions[i] = float32(math.NaN()), v
		}
	}
	return r, nil
}

// episodeGroup is a group of episodes being generated.
type episodeGroup struct {
	*episodes
	from *generator
	job  pipeline.Job
}

func (g *episodeGroup) Continue(ctx context.Context, w pipeline.Weights, n int) (bool, error) {
	weights, err := workersCopy(w)
	if err != nil {
		return false, err
	}
	return g.decode(ctx, weights, n)
}

// Rollouts returns the episodes with the rewards of their environments.
func (g *episodeGroup) Rollouts() ([]*rollout.Rollout, error) {
	var list []*rollout.Rollout
	for i, row := range g.rows.Rows() {
		e := &g.list[i]
		r := g.from.newRollout(row, g.job)
		e.Describe(r)
		r.Truncated = e.Cut || row.Truncated
		list = append(list, r)
	}
	return list, nil
}

// published is a version of the weights as the pipeline passes it on: the trainers', which checkpoints hold, and the
// workers' copy of them, which is rounded at its first use.
type published struct {
	*policy.Weights
	workersCopy func() (*policy.Weights, error)
}

func (m textModel) publish(w *policy.Weights, p policy.Precision) pipeline.Weights {
	rounded := sync.OnceValues(func() (*policy.Weights, error) { return m.model.Round(w, p) })
	return pipeline.Weights{Version: w.Version, Tensors: published{w, rounded}}
}

// workersCopy returns the weights that workers generate with.
func workersCopy(w pipeline.Weights) (*policy.Weights, error) {
	weights, ok := w.Tensors.(published)
	if !ok {
		return nil, fmt.Errorf("generate with %T: want a policy's weights", w.Tensors)
	}
	return weights.workersCopy()
}

// episodes plays one episode in each row of a batch: all rows decode a turn, the environments answer, and the rows that
// go on read the answers and decode the next turn. Rows do not depend on one another. It is used from one goroutine.
type episodes struct {
	textModel
	rows   *policy.Generation
	list   []task.Progress
	remote bool // their verdicts come from a task.Remote: all rows ask at once
}

// startEpisodes begins episodes of at most a number of turns. Streams are nil if decoding is greedy.
func (m textModel) startEpisodes(
	inputs []policy.Input, streams []*rand.Rand, list []task.Episode, maxTurns int, s policy.Sampling,
) (*episodes, error) {
	e := &episodes{textModel: m, list: make([]task.Progress, len(list))}
	for i := range list {
		e.list[i] = task.Progress{Episode: list[i], MaxTurns: maxTurns}
	}
	var err error
	e.rows, err = m.model.Start(inputs, streams, s)
	return e, err
}

// decode decodes up to n more positions, all that remain if n <= 0, and reports whether every episode is over. A
// position is one token of every row whose turn is not over.
func (e *episodes) decode(ctx context.Context, w *policy.Weights, n int) (bool, error) {
	for left := n; ; {
		before := e.lengths()
		turnsOver, err := e.rows.Continue(ctx, w, left)
		if err != nil || !turnsOver {
			return false, err
		}
		positions := 0
		for i, length := range e.lengths() {
			positions = max(positions, length-before[i])
		}
		left -= positions
		over, err := e.stepEnvironments()
		if over {
			e.rows.Close()
		}
		if err != nil || over {
			return over, err
		}
		if n > 0 && left <= 0 {
			return false, nil
		}
	}
}

// lengths returns the tokens of each row.
func (e *episodes) lengths() []int {
	var list []int
	for _, row := range e.rows.Rows() {
		list = append(list, len(row.Tokens))
	}
	return list
}

// stepEnvironments gives every environment the turn that its row ended, and the row the answer. It reports whether all
// episodes are over.
func (e *episodes) stepEnvironments() (over bool, err error) {
	over = true
	for _, i := range e.takeTurns() {
		p := &e.list[i]
		if !p.Over {
			if err := e.readAnswer(i); err != nil {
				return false, fmt.Errorf("episode of row %d, turn %d: %w", i, len(p.Turns), err)
			}
		}
		over = over && p.Over
	}
	return over, nil
}

// takeTurns gives the environments the turns of the rows that were not over, and returns their indices.
func (e *episodes) takeTurns() (taken []int) {
	var wait sync.WaitGroup
	for i, row := range e.rows.Rows() {
		p := &e.list[i]
		if p.Over {
			continue
		}
		taken = append(taken, i)
		if text := e.decodeTurn(row); e.remote {
			wait.Go(func() { p.Step(row.Turn, len(row.Tokens), text) })
		} else {
			p.Step(row.Turn, len(row.Tokens), text)
		}
	}
	wait.Wait()
	return taken
}

// readAnswer lets a row read its environment's answer. The episode ends if there is no room for it and another turn.
func (e *episodes) readAnswer(i int) error {
	tokens := e.rows.Rows()[i].Tokens
	in, err := e.encodeObservation(e.list[i].Last, tokens[len(tokens)-1])
	if err != nil {
		return err
	}
	room, err := e.rows.Extend(i, in)
	if !room {
		e.list[i].End()
	}
	return err
}

// episodeCounts counts episodes of several turns and their outcomes. Checkpoints hold it by its field names.
type episodeCounts struct{ Episodes, Turns, Invalid, Successes int }

// add counts a rollout if it is an episode.
func (c *episodeCounts) add(r *rollout.Rollout) {
	invalid, ok := r.Meta[task.MetaInvalid]
	if !ok {
		return
	}
	c.Episodes++
	c.Turns += len(r.Turns)
	if n, err := strconv.Atoi(invalid); err == nil {
		c.Invalid += n
	}
	if r.Meta[task.MetaSuccess] == strconv.FormatBool(true) {
		c.Successes++
	}
}

// fill adds the means over the episodes to a line of metrics.jsonl, nothing if there are none.
func (c episodeCounts) fill(l *results.Update) {
	if c.Episodes == 0 {
		return
	}
	l.Turns = results.Num(float64(c.Turns) / float64(c.Episodes))
	l.Invalid = results.Num(float64(c.Invalid) / float64(c.Turns))
	l.Success = results.Num(float64(c.Successes) / float64(c.Episodes))
}
