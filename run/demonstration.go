package run

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// school shows how a task is done, for a policy to imitate.
type school struct {
	speaker
	task  task.Task
	seed  uint64
	noise float64 // share of an environment's turns in which chance acts instead of the expert, and is not imitated
}

// demonstration returns the i-th rollout to imitate. Its prompt is one of the training prompts at random, far from those that
// reinforcement learning counts up from 0.
func (s school) demonstration(i int) (*rollout.Rollout, error) {
	chance := rollout.Stream(s.seed, "warmup", uint64(i))
	p := s.task.Train(chance.Uint64())
	in, err := s.input(p)
	if err != nil {
		return nil, err
	}
	if e, ok := s.task.(task.Environment); ok {
		return s.episode(e, p, in, chance)
	}
	response, err := s.written(s.task.(task.Demonstrator).Demonstrate(p))
	if err != nil {
		return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
	}
	d := newDemonstration(in)
	d.append(response, 1)
	return d.rollout, nil
}

// episode shows an expert's episode. If chance left the expert no turn, it is played again without it.
func (s school) episode(e task.Environment, p task.Prompt, in policy.Input, chance *rand.Rand) (*rollout.Rollout, error) {
	luck := chance.Uint64()
	for _, noise := range []float64{s.noise, 0} {
		d := newDemonstration(in)
		shown, err := s.show(d, e.Reset(p, luck), e.MaxTurns(), noisy{noise, chance})
		if err != nil {
			return nil, fmt.Errorf("prompt %s: %w", p.ID, err)
		}
		if shown {
			return d.rollout, nil
		}
	}
	return nil, fmt.Errorf("policy.positions: %d: want more: prompt %s leaves no room for what the expert says in its first turn", s.model.Config().MaxPositionEmbeddings, p.ID)
}

// canBeSaid makes sure that what is imitated can be said in rollouts, whose turns have so many tokens at most: if every second turn of
// the first demonstrations cannot, imitation leads where reinforcement learning cannot go on from.
func (s school) canBeSaid(maxTokens int) error {
	const demonstrations = 16
	var lengths []int
	for i := range demonstrations {
		d, err := s.demonstration(i)
		if err != nil {
			return fmt.Errorf("warmup: %w", err)
		}
		lengths = append(lengths, s.imitated(d)...)
	}
	slices.Sort(lengths)
	if half := lengths[(len(lengths)-1)/2]; half > maxTokens {
		return fmt.Errorf("generate.max_tokens: %d: want %d or more: half of the turns that the warm-up shows first are longer, the longest has %d tokens without the one that ends it",
			maxTokens, half, lengths[len(lengths)-1])
	}
	return nil
}

// imitated returns how many tokens the turns of a demonstration have that are imitated, without those that end them.
func (s school) imitated(d *rollout.Rollout) (lengths []int) {
	n, end := 0, s.tokenizer.EOS()[0]
	for i, token := range d.Tokens {
		switch {
		case d.Mask[i] == 0:
		case token == end:
			lengths, n = append(lengths, n), 0
		default:
			n++
		}
	}
	return lengths
}

// noisy decides whose action a turn takes.
type noisy struct {
	share  float64 // of turns that chance has
	chance *rand.Rand
}

// turn returns what is done now, and the mask of its tokens: 1 for what the expert does.
func (n noisy) turn(e task.Episode) (text string, mask uint8) {
	if n.share > 0 && n.chance.Float64() < n.share {
		if actions := e.(task.Actor).Actions(); len(actions) > 0 {
			return actions[n.chance.IntN(len(actions))], 0
		}
	}
	return e.(task.Expert).Advise(), 1
}

// show writes an episode of at most so many turns into a demonstration, as far as the model's positions have room for whole
// turns. It reports whether there is something in it to imitate.
func (s school) show(d *demonstration, e task.Episode, turns int, n noisy) (shown bool, err error) {
	room := s.model.Config().MaxPositionEmbeddings
	for range turns {
		text, mask := n.turn(e)
		tokens, err := s.written(text)
		if err != nil {
			return false, err
		}
		if d.length()+len(tokens) > room {
			break
		}
		d.append(tokens, mask)
		shown = shown || mask == 1
		step := e.Step(text)
		if step.Done {
			break
		}
		in, err := s.observation(step)
		if err != nil {
			return false, err
		}
		if d.length()+len(in.Tokens) >= room {
			break
		}
		d.read(in)
	}
	return shown, nil
}

// demonstration is a rollout to imitate as far as it has come, all of version 0.
type demonstration struct{ rollout *rollout.Rollout }

// newDemonstration begins with a prompt.
func newDemonstration(prompt policy.Input) *demonstration {
	d := &demonstration{&rollout.Rollout{Temperature: 1, TopP: 1}}
	d.read(prompt)
	return d
}

// length returns the tokens so far.
func (d *demonstration) length() int { return len(d.rollout.Tokens) }

// read appends what the policy is given to read.
func (d *demonstration) read(in policy.Input) {
	d.append(in.Tokens, 0)
	d.rollout.Images = append(d.rollout.Images, in.Images...)
}

// append appends tokens, to imitate where mask is 1.
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
