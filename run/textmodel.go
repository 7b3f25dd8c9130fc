package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/policy/hf"
	"github.com/reprise-rl/reprise/task"
)

// textModel is a model with its tokenizer: it turns prompts, observations and turns of episodes into tokens and back.
type textModel struct {
	model     *policy.Model
	tokenizer *hf.Tokenizer
}

// encodePrompt returns a prompt as the policy reads it: the beginning-of-sequence token if the tokenizer has one, the
// image, the text.
func (m textModel) encodePrompt(p task.Prompt) (policy.Input, error) {
	tokens, err := m.tokenizer.Encode(p.Text)
	if err != nil {
		return policy.Input{}, fmt.Errorf("encode prompt %q: %w", p.Text, err)
	}
	begin := 0
	if len(tokens) > 0 && m.tokenizer.BOS() != hf.NoToken && int(tokens[0]) == m.tokenizer.BOS() {
		begin = 1
	}
	in := m.withImage(tokens, begin, p.Image)
	if n, most := len(in.Tokens), m.model.Config().MaxPositionEmbeddings; n >= most {
		return policy.Input{}, fmt.Errorf("policy.positions: %d: want %d or more: prompt %s has %d tokens and "+
			"leaves no room for a turn", most, n+1, p.ID, n)
	}
	return in, nil
}

// encodeObservation returns an environment's answer as the policy reads it before its next turn: the image, the text.
func (m textModel) encodeObservation(step task.Step) (policy.Input, error) {
	tokens, err := m.tokenizer.EncodePart(step.Text)
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

// decodeTurn returns the text of a row's latest turn, without the token that ended it.
func (m textModel) decodeTurn(row policy.Row) string {
	return m.tokenizer.Decode(row.Tokens[row.Turn:])
}

// encodeTurn returns a turn for the policy to imitate as tokens, ended by the end-of-sequence token.
func (m textModel) encodeTurn(text string) ([]int32, error) {
	tokens, err := m.tokenizer.EncodePart(text)
	if err != nil {
		return nil, fmt.Errorf("encode the demonstration %q: %w", text, err)
	}
	eos := m.tokenizer.EOS()
	if len(eos) == 0 {
		return nil, fmt.Errorf("the tokenizer has no end-of-sequence token to learn: add eos_token_id to config.json")
	}
	return append(tokens, eos[0]), nil
}

// ErrNoRoom is returned when a policy's positions leave no room for another turn.
var ErrNoRoom = errors.New("the policy's positions leave no room for another turn")

// Player plays episodes with a policy, one at a time, for someone to watch.
type Player struct {
	textModel
	weights  *policy.Weights
	sampling policy.Sampling
}

// LoadPlayer reads a model folder, such as a run's checkpoint, to play a task with. It sets the sampling's Stop to the
// tokenizer's end-of-sequence tokens.
func LoadPlayer(dir string, t task.Task, s policy.Sampling) (*Player, error) {
	start, err := loadStart(dir)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := start.checkImages(t); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	s.Stop = start.tokenizer.EOS()
	return &Player{start.textModel, start.weights, s}, nil
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
	in, err := g.player.encodeObservation(step)
	if err != nil {
		return err
	}
	room, err := g.rows.Extend(0, in)
	if err == nil && !room {
		err = ErrNoRoom
	}
	return err
}
