package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/task"
)

// ErrNoRoom is that a policy's positions leave no room for a further turn.
var ErrNoRoom = errors.New("the policy's positions leave no room for a further turn")

// Player is a policy that plays episodes one at a time, for somebody to watch.
type Player struct {
	speaker
	weights  *policy.Weights
	sampling policy.Sampling
}

// LoadPlayer reads a model folder, such as a run's checkpoint, to play a task with. The sampling's Stop is the tokenizer's.
func LoadPlayer(dir string, t task.Task, s policy.Sampling) (*Player, error) {
	start, err := load(dir)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := start.sees(t); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	s.Stop = start.tokenizer.EOS()
	return &Player{start.speaker, start.weights, s}, nil
}

// Game is an episode that a Player plays, from the player's side.
type Game struct {
	player *Player
	rows   *policy.Generation
}

// Begin reads a prompt. The stream draws the tokens, and may be nil when greedy.
func (p *Player) Begin(prompt task.Prompt, stream *rand.Rand) (*Game, error) {
	in, err := p.input(prompt)
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
	return g.player.said(g.rows.Rows()[0]), nil
}

// Read reads what the environment answered. The error is ErrNoRoom if the game cannot go on.
func (g *Game) Read(step task.Step) error {
	in, err := g.player.observation(step)
	if err != nil {
		return err
	}
	room, err := g.rows.Extend(0, in)
	if err == nil && !room {
		err = ErrNoRoom
	}
	return err
}
