package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout/option"
)

// textModel is a model with its tokenizer: it turns prompts, observations and turns of episodes into tokens and back.
type textModel struct {
	model     *policy.Model
	tokenizer *hf.Tokenizer
	dialogue  hf.TaskDialogue
}

// newTextModel makes the model for a task with all its prompts.
func newTextModel(model *policy.Model, tokenizer *hf.Tokenizer, t task.Task) (textModel, error) {
	dialogue, err := tokenizer.ForTask(t)
	return textModel{model, tokenizer, dialogue}, err
}

// ending returns the sampling with what ends a turn.
func (m textModel) ending(s policy.Sampling) policy.Sampling {
	s.Stop, s.Ends = m.dialogue.Stop(), m.dialogue.Ends()
	return s
}

// encodePrompt returns a prompt as the policy reads it: the beginning-of-sequence token if the tokenizer has one, the
// image, the text.
func (m textModel) encodePrompt(p task.Prompt) (policy.Input, error) {
	in, err := m.readPrompt(p)
	if n, most := len(in.Tokens), m.model.Config().MaxPositionEmbeddings; err == nil && n >= most {
		err = fmt.Errorf("policy.positions: %d: want %d or more: prompt %s has %d tokens and leaves no room for a "+
			"turn (with policy.init, start from a model with more; with task.examples, ask for fewer)", most, n+1, p.ID, n)
	}
	return in, err
}

// readPrompt is encodePrompt for prompts of any length.
func (m textModel) readPrompt(p task.Prompt) (policy.Input, error) {
	tokens, err := m.dialogue.Ask(p)
	if err != nil {
		return policy.Input{}, err
	}
	begin := 0
	if len(tokens) > 0 && m.tokenizer.BOS() != hf.NoToken && int(tokens[0]) == m.tokenizer.BOS() {
		begin = 1
	}
	return m.withImage(tokens, begin, p.Image), nil
}

// fit returns a configuration's task without the prompts that are too long, and what that left out, nil for nothing. A
// task without a list of prompts stays as it is.
func (m textModel) fit(c Config, t task.Task) (task.Task, *results.TooLong, error) {
	const key = "task.max_prompt_tokens"
	list, ok := t.(task.Selective)
	if !ok {
		return t, nil, nil
	}
	positions, limit := m.model.Config().MaxPositionEmbeddings, list.MaxPromptTokens()
	if limit >= positions {
		return nil, nil, &option.Error{Key: key, Value: limit,
			Want: fmt.Sprintf("less than the policy's %d positions, which the response shares", positions)}
	}
	if limit == 0 {
		limit = positions - c.Generate.MaxTokens
	}
	if limit < 1 {
		return nil, nil, &option.Error{Key: "generate.max_tokens", Value: c.Generate.MaxTokens,
			Want: fmt.Sprintf("less than the policy's %d positions, which the prompt shares, or a limit of prompts "+
				"in %s", positions, key)}
	}
	ids := make(map[string]bool)
	out := &results.TooLong{Limit: limit}
	leaveOut := func(kind string, prompts []task.Prompt) (int, error) {
		before, shortest := len(ids), math.MaxInt
		for _, p := range prompts {
			in, err := m.readPrompt(p)
			if err != nil {
				return 0, err
			}
			n := len(in.Tokens)
			shortest, out.Longest = min(shortest, n), max(out.Longest, n)
			if n > limit {
				ids[p.ID] = true
			}
		}
		if shortest > limit {
			return 0, &option.Error{Key: key, Value: limit, Want: fmt.Sprintf("%d or more, the tokens of the shortest "+
				"%s prompt; the policy has %d positions for a prompt and generate.max_tokens (%d)", shortest, kind,
				positions, c.Generate.MaxTokens)}
		}
		return len(ids) - before, nil
	}
	training, heldOut := list.Training(), t.HeldOut()
	out.AllTraining, out.AllHeldOut = len(training), len(heldOut)
	var err error
	if out.Training, err = leaveOut("training", training); err != nil {
		return nil, nil, err
	}
	if out.HeldOut, err = leaveOut("held-out", heldOut); err != nil {
		return nil, nil, err
	}
	if len(ids) == 0 {
		return t, nil, nil
	}
	return list.Without(ids), out, nil
}

// encodeObservation returns an environment's answer as the policy reads it before its next turn: the image, the text.
// last is the last token of the turn before.
func (m textModel) encodeObservation(step task.Step, last int32) (policy.Input, error) {
	tokens, err := m.dialogue.Observation(step.Text, last)
	if err != nil {
		return policy.Input{}, fmt.Errorf("encode the observation %q: %w", step.Text, err)
	}
	return m.withImage(tokens, 0, step.Image), nil
}

// withImage inserts the tokens of an image, if there is one, at an index.
func (m textModel) withImage(tokens []int32, at int, image []byte) policy.Input {
	if image == nil {
		return policy.Input{Tokens: tokens}
	}
	tower := m.model.Config().Vision
	all := append([]int32{}, tokens[:at]...)
	for range tower.Tokens() {
		all = append(all, int32(tower.ImageTokenID))
	}
	return policy.Input{Tokens: append(all, tokens[at:]...), Images: [][]byte{image}}
}

// decodeTurn returns the text of a row's latest turn, without what ended it.
func (m textModel) decodeTurn(row policy.Row) string {
	return m.dialogue.Answer(row.Tokens[row.Turn:])
}

// encodeTurn returns a turn for the policy to imitate as tokens, with the token that ends it.
func (m textModel) encodeTurn(text string) ([]int32, error) {
	tokens, err := m.dialogue.Turn(text)
	if err != nil {
		return nil, fmt.Errorf("encode the demonstration %q: %w", text, err)
	}
	return tokens, nil
}

// ErrNoRoom is returned when a policy's positions leave no room for another turn.
var ErrNoRoom = errors.New("the policy's positions leave no room for another turn")

// Player plays episodes with a policy, one at a time, for someone to watch.
type Player struct {
	textModel
	weights  *policy.Weights
	sampling policy.Sampling
}

// LoadPlayer reads a model folder, such as a run's checkpoint, to play a task with. It sets what ends a turn in the
// sampling.
func LoadPlayer(dir string, t task.Task, s policy.Sampling) (*Player, error) {
	start, err := loadStart(dir, t)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := start.checkImages(t); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &Player{start.textModel, start.weights, start.ending(s)}, nil
}

// Game is an episode that a Player plays.
type Game struct {
	player *Player
	rows   *policy.Generation
}

// Begin reads a prompt. The stream draws the tokens; it may be nil if decoding is greedy.
func (p *Player) Begin(prompt task.Prompt, stream *rand.Rand) (*Game, error) {
	in, err := p.encodePrompt(prompt)
	if err != nil {
		return nil, err
	}
	rows, err := p.model.Start([]policy.Input{in}, []*rand.Rand{stream}, p.sampling)
	return &Game{p, rows}, err
}

// Turn writes the next turn.
func (g *Game) Turn(ctx context.Context) (string, error) {
	if _, err := g.rows.Continue(ctx, g.player.weights, 0); err != nil {
		return "", err
	}
	return g.player.decodeTurn(g.rows.Rows()[0]), nil
}

// Read reads the environment's answer. It returns ErrNoRoom if the game cannot continue.
func (g *Game) Read(step task.Step) error {
	tokens := g.rows.Rows()[0].Tokens
	in, err := g.player.encodeObservation(step, tokens[len(tokens)-1])
	if err != nil {
		return err
	}
	room, err := g.rows.Extend(0, in)
	if err == nil && !room {
		err = ErrNoRoom
	}
	return err
}
