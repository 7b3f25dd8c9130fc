package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// warmUp trains on demonstrations for the task's training prompts.
func (s *Start) warmUp(ctx context.Context, c Config, t task.Task, report func(int, float64)) error {
	learner, err := s.model.NewLearner(s.weights, policy.Learning{
		Objective: objective.SFT{}, Optimizer: policy.Adam{LearningRate: c.Warmup.LearningRate},
	})
	if err != nil {
		return fmt.Errorf("warmup: %w", err)
	}
	accurate, err := s.warmupTest(c, t)
	if err != nil {
		return err
	}
	if done, err := accurate(ctx, 0, s.weights); done || err != nil { // a pretrained policy may not need a warm-up
		return err
	}
	d := demonstrator{s.textModel, t, c.Seed, c.Warmup.Noise}
	if err := d.checkLengths(c.Generate.MaxTokens); err != nil {
		return err
	}
	for step := range c.Warmup.Steps {
		batch := &rollout.Batch{}
		for i := range c.Warmup.Batch {
			if err := ctx.Err(); err != nil { // experts may search for long
				return err
			}
			r, err := d.demonstrate(step*c.Warmup.Batch + i)
			if err != nil {
				return fmt.Errorf("warmup: %w", err)
			}
			batch.Draws = append(batch.Draws, rollout.Draw{Rollout: r, Weight: 1})
		}
		measured, err := learner.Step(ctx, []*rollout.Batch{batch})
		if err != nil {
			return fmt.Errorf("warmup: %w", err)
		}
		if report != nil {
			report(step+1, measured.Metrics["loss"])
		}
		if done, err := accurate(ctx, step+1, learner.Weights()); err != nil {
			return fmt.Errorf("warmup: %w", err)
		} else if done {
			break
		}
	}
	s.weights = learner.Weights().WithVersion(0)
	return nil
}

const (
	warmupEvery    = 10  // steps between tests
	warmupPrompts  = 256 // training prompts of a test
	warmupEpisodes = 128 // the same where each prompt takes an episode
)

// warmupTest returns the test that ends a warm-up early: greedy accuracy on training prompts, always the same ones, so
// that all seeds begin equally good.
func (s *Start) warmupTest(c Config, t task.Task) (func(context.Context, int, *policy.Weights) (bool, error), error) {
	if c.Warmup.Until == 0 {
		return func(context.Context, int, *policy.Weights) (bool, error) { return false, nil }, nil
	}
	prompts := make([]task.Prompt, warmupPrompts)
	if _, ok := t.(task.Environment); ok {
		prompts = prompts[:warmupEpisodes]
	}
	for i := range prompts {
		prompts[i] = t.Train(rollout.Stream(c.Seed, "warmup/look", uint64(i)).Uint64())
	}
	e, err := newEvaluator(c, t, s.textModel, prompts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, step int, w *policy.Weights) (bool, error) {
		if step%warmupEvery != 0 {
			return false, nil
		}
		accuracy, err := e.pass1(ctx, w)
		return accuracy >= c.Warmup.Until, err
	}, nil
}

// validate checks the section's ranges.
func (w Warmup) validate() error {
	var found option.Problems
	found.Check(w.Steps >= 0, "steps", w.Steps, "0 or more")
	found.Check(w.Steps <= 0 || w.Batch >= 1, "batch", w.Batch, "1 or more demonstrations")
	found.Check(w.Steps <= 0 || w.LearningRate > 0, "learning_rate", w.LearningRate, "more than 0")
	found.Check(w.Until >= 0 && w.Until <= 1, "until", w.Until, "an accuracy in (0, 1], or 0 for never")
	found.Check(w.Noise >= 0 && w.Noise < 1, "noise", w.Noise, "a share of turns in [0, 1)")
	return found.Err()
}

// validateFor checks that the task has what the warm-up needs.
func (w Warmup) validateFor(t task.Task, name string) error {
	if w.Steps <= 0 {
		return nil
	}
	var found option.Problems
	e, ok := t.(task.Environment)
	if !ok {
		_, shows := t.(task.Demonstrator)
		found.Check(shows, "warmup.steps", w.Steps, "0: task %s has no demonstrations", name)
		found.Check(!shows || w.Noise <= 0, "warmup.noise", w.Noise,
			"0: the episodes of task %s have one turn, and noise comes before the last", name)
		return found.Err()
	}
	episode := e.Reset(e.Train(0), 0)
	_, expert := episode.(task.Expert)
	_, actor := episode.(task.Actor)
	found.Check(expert, "warmup.steps", w.Steps, "0: task %s has no expert to imitate", name)
	found.Check(!expert || actor || w.Noise <= 0, "warmup.noise", w.Noise,
		"0: task %s has no list of actions to play at random", name)
	return found.Err()
}

// demonstrator makes rollouts for a policy to imitate.
type demonstrator struct {
	textModel
	task  task.Task
	seed  uint64
	noise float64 // share of an environment's turns that play a random action, which is not imitated
}

// demonstrationDraws is how many prompts are drawn in search of a demonstration that the policy holds.
const demonstrationDraws = 100

// demonstrate returns the i-th rollout to imitate. Its prompt is a random training prompt, far from those of
// reinforcement learning, which counts up from 0. Of tasks of one turn it is one whose demonstration fits the policy's
// positions.
func (d demonstrator) demonstrate(i int) (*rollout.Rollout, error) {
	rng := rollout.Stream(d.seed, "warmup", uint64(i))
	for range demonstrationDraws {
		p := d.task.Train(rng.Uint64())
		in, err := d.encodePrompt(p)
		if err != nil {
			return nil, err
		}
		if e, ok := d.task.(task.Environment); ok {
			return d.demonstrateEpisode(e, p, in, rng)
		}
		response, err := d.encodeTurn(d.task.(task.Demonstrator).Demonstrate(p))
		if err != nil {
			return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
		}
		r := newDemonstration(in)
		r.append(response, 1)
		if r.length() <= d.model.Config().MaxPositionEmbeddings {
			return r.rollout, nil
		}
	}
	return nil, fmt.Errorf("the demonstrations of %d training prompts have more tokens than the policy's %d "+
		"positions: set warmup.steps=0, or use a policy with more",
		demonstrationDraws, d.model.Config().MaxPositionEmbeddings)
}

// demonstrateEpisode plays an expert's episode. If noise left the expert no turn, it plays again without noise.
func (d demonstrator) demonstrateEpisode(
	e task.Environment, p task.Prompt, in policy.Input, rng *rand.Rand,
) (*rollout.Rollout, error) {
	seed := rng.Uint64()
	for _, noise := range []float64{d.noise, 0} {
		r := newDemonstration(in)
		imitable, err := d.play(r, e.Reset(p, seed), e.MaxTurns(), noisyExpert{noise, rng})
		if err != nil {
			return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
		}
		if imitable {
			return r.rollout, nil
		}
	}
	return nil, fmt.Errorf("policy.positions: %d: want more: prompt %s leaves no room for the expert's first turn",
		d.model.Config().MaxPositionEmbeddings, p.ID)
}

// play appends an episode of at most a number of turns to a demonstration, up to the last turn that fits the model's
// positions. It reports whether there is anything to imitate.
func (d demonstrator) play(r *demonstration, e task.Episode, turns int, x noisyExpert) (imitable bool, err error) {
	room := d.model.Config().MaxPositionEmbeddings
	for range turns {
		text, mask := x.turn(e)
		tokens, err := d.encodeTurn(text)
		if err != nil {
			return false, err
		}
		if r.length()+len(tokens) > room {
			break
		}
		r.append(tokens, mask)
		imitable = imitable || mask == 1
		step := e.Step(text)
		if step.Done {
			break
		}
		in, err := d.encodeObservation(step, tokens[len(tokens)-1])
		if err != nil {
			return false, err
		}
		if r.length()+len(in.Tokens) >= room {
			break
		}
		r.read(in)
	}
	return imitable, nil
}

// checkLengths refuses a warm-up whose turns are too long for rollouts, where a turn has at most maxTokens: if half of
// the turns in the first demonstrations are longer, the policy would learn what reinforcement learning cannot continue.
func (d demonstrator) checkLengths(maxTokens int) error {
	const demonstrations = 16
	var lengths []int
	for i := range demonstrations {
		r, err := d.demonstrate(i)
		if err != nil {
			return fmt.Errorf("warmup: %w", err)
		}
		lengths = append(lengths, d.imitatedLengths(r)...)
	}
	slices.Sort(lengths)
	if half := lengths[(len(lengths)-1)/2]; half > maxTokens {
		return fmt.Errorf("generate.max_tokens: %d: want %d or more: half of the warm-up's first turns are longer, "+
			"the longest has %d tokens besides its end", maxTokens, half, lengths[len(lengths)-1])
	}
	return nil
}

// imitatedLengths returns the tokens of each imitated turn, without the token that ends it.
func (d demonstrator) imitatedLengths(r *rollout.Rollout) (lengths []int) {
	n, ends := 0, d.dialogue.Stop()
	for i, token := range r.Tokens {
		switch {
		case r.Mask[i] == 0:
		case slices.Contains(ends, token):
			lengths, n = append(lengths, n), 0
		default:
			n++
		}
	}
	return lengths
}

// noisyExpert plays an expert's turns, and a share of them at random.
type noisyExpert struct {
	noise float64
	rng   *rand.Rand
}

// turn returns the text of the next turn, and the mask of its tokens: 1 if it is the expert's.
func (n noisyExpert) turn(e task.Episode) (text string, mask uint8) {
	if n.noise > 0 && n.rng.Float64() < n.noise {
		if actions := e.(task.Actor).Actions(); len(actions) > 0 {
			return actions[n.rng.IntN(len(actions))], 0
		}
	}
	return e.(task.Expert).Advise(), 1
}

// demonstration is a rollout to imitate under construction. Its tokens are of version 0.
type demonstration struct{ rollout *rollout.Rollout }

func newDemonstration(prompt policy.Input) *demonstration {
	d := &demonstration{&rollout.Rollout{Temperature: 1, TopP: 1}}
	d.read(prompt)
	return d
}

// length returns the tokens so far.
func (d *demonstration) length() int { return len(d.rollout.Tokens) }

// read appends what the policy reads: a prompt or an observation.
func (d *demonstration) read(in policy.Input) {
	d.append(in.Tokens, 0)
	d.rollout.Images = append(d.rollout.Images, in.Images...)
}

// append appends tokens; those with mask 1 are imitated.
func (d *demonstration) append(tokens []int32, mask uint8) {
	r := d.rollout
	version := rollout.NoVersion
	if mask == 1 {
		version = 0
	}
	for _, t := range tokens {
		r.Tokens, r.Mask = append(r.Tokens, t), append(r.Mask, mask)
		r.Logprobs, r.Versions = append(r.Logprobs, 0), append(r.Versions, version)
	}
}
