package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/transcript"
	"github.com/reprise-rl/reprise/rollout"
)

// playCommand plays episodes of a task.
type playCommand struct {
	Task            string   `arg:"" predictor:"task" help:"Name of the task, for example arithmetic."`
	Policy          who      `help:"Who plays: expert, random, or a model folder such as a run's checkpoint. Without it you do, one line for each turn."`
	Set             []string `sep:"none" help:"Set one setting of the task by KEY=VALUE, for example max=50; may be repeated."`
	Seed            uint64   `default:"1" help:"Seed of the prompts' order, the environment and the sampling."`
	Episodes        int      `default:"1" help:"Number of episodes, each with its own prompt."`
	HeldOut         bool     `help:"Play the held-out prompts instead of training prompts."`
	Temperature     float64  `default:"0" help:"Sampling temperature of a model; 0 is greedy."`
	MaxTokens       int      `default:"256" help:"Longest turn of a model, in tokens."`
	Frames          dir      `help:"Folder for the images, as PNG files."`
	DumpTransitions bool     `help:"Print the rules of a tabular task as JSON, and play nothing."`
	JSON            bool     `name:"json" help:"Print one JSON object per episode. What a player at the terminal must see goes to standard error."`
}

// Run plays, or prints the table of transitions.
func (c *playCommand) Run(ctx context.Context) error {
	if c.Episodes < 1 {
		return fmt.Errorf("--episodes: %d: want 1 or more", c.Episodes)
	}
	t, err := run.NewTask(c.Task, c.Set, c.Seed)
	if err != nil {
		return err
	}
	if c.DumpTransitions {
		return c.dump(t)
	}
	if held := len(t.HeldOut()); c.HeldOut && c.Episodes > held {
		return fmt.Errorf("--episodes: %d: want at most %d, the number of held-out prompts", c.Episodes, held)
	}
	player, err := c.player(t)
	if err != nil {
		return err
	}
	defer task.Open(t)()
	for i := range c.Episodes {
		left, err := c.episode(ctx, t, player, i)
		if errors.Is(err, context.Canceled) {
			return interruption("the game was interrupted")
		}
		if err != nil || left {
			return err
		}
	}
	return nil
}

// dump prints the rules of a tabular task.
func (c *playCommand) dump(t task.Task) error {
	table, ok := t.(task.Tabular)
	if !ok {
		return fmt.Errorf("--dump-transitions: task %s is not tabular: want one that is, such as frozenlake or "+
			"cliffwalking", c.Task)
	}
	text, err := table.Transitions().MarshalJSON()
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", text)
	return err
}

// player returns the player that --policy names.
func (c *playCommand) player(t task.Task) (transcript.Player, error) {
	if seeing, ok := t.(task.Seeing); c.Frames != "" && (!ok || seeing.ImageSize() == 0) {
		return nil, fmt.Errorf("--frames: %s: task %s has no images as it is set: leave --frames out", c.Frames, c.Task)
	}
	if c.Policy == "" {
		return transcript.NewKeyboard(os.Stdin, c.out()), nil
	}
	first := task.Begin(t, t.Train(0), 0)
	var want []string
	for _, p := range []struct {
		name   string
		player transcript.Player
		has    bool
	}{
		{"expert", &transcript.Expert{}, is[task.Expert](first)},
		{"random", &transcript.Random{Seed: c.Seed}, is[task.Actor](first)},
	} {
		if p.has && string(c.Policy) == p.name {
			return p.player, nil
		}
		if p.has {
			want = append(want, p.name)
		}
	}
	want = append(want, "a model folder")
	if c.Policy == "expert" || c.Policy == "random" {
		return nil, fmt.Errorf("--policy: %q: want %s: task %s has no %[1]s player", c.Policy, strings.Join(want, ", "),
			c.Task)
	}
	sampling := policy.Sampling{Temperature: c.Temperature, TopP: 1, MaxTokens: c.MaxTokens}
	if err := sampling.Validate(); err != nil {
		return nil, fmt.Errorf("--temperature or --max-tokens: %w", err)
	}
	model, err := run.LoadPlayer(string(c.Policy), t, sampling)
	if err != nil {
		return nil, fmt.Errorf("--policy: %q: want %s: %w", c.Policy, strings.Join(want, ", "), err)
	}
	return &modelPlayer{name: string(c.Policy), model: model, seed: c.Seed}, nil
}

func is[T any](v any) bool { _, ok := v.(T); return ok }

// episode plays the i-th episode and prints it. It reports whether the player has left.
func (c *playCommand) episode(ctx context.Context, t task.Task, player transcript.Player, i int) (left bool,
	err error) {
	prompt := t.Train(uint64(i))
	if c.HeldOut {
		prompt = t.HeldOut()[i]
	}
	played, err := transcript.Play(ctx, transcript.Episode{
		Task: c.Task, Number: i + 1, Prompt: prompt, Turns: task.MaxTurns(t),
		State: task.Begin(t, prompt, rollout.Stream(c.Seed, "environment", uint64(i)).Uint64()),
	}, player, transcript.Options{
		Out: c.out(), Frames: string(c.Frames), Prompted: c.Policy == "", Echo: c.Policy != "" || !terminal(os.Stdin),
	})
	if err = errors.Join(err, task.Err(t)); err != nil {
		return false, err
	}
	if c.JSON {
		out := json.NewEncoder(os.Stdout)
		out.SetEscapeHTML(false) // observations hold < and >
		err = out.Encode(played)
	}
	return played.Ended == transcript.EndedLeft, err
}

// out is where episodes are written in words.
func (c *playCommand) out() io.Writer {
	switch {
	case !c.JSON:
		return os.Stdout
	case c.Policy == "":
		return os.Stderr
	}
	return io.Discard
}

// modelPlayer is a model that reads what the environment says and writes turns.
type modelPlayer struct {
	name  string
	model *run.Player
	seed  uint64
	game  *run.Game
}

func (m *modelPlayer) Begin(e transcript.Episode) (err error) {
	if m.game, err = m.model.Begin(e.Prompt, rollout.Stream(m.seed, "generate", uint64(e.Number-1))); err != nil {
		return fmt.Errorf("--policy: %q: want a model that can read the task's prompts: %w", m.name, err)
	}
	return nil
}

func (m *modelPlayer) Act(ctx context.Context) (string, error) { return m.game.Turn(ctx) }

func (m *modelPlayer) Observe(s task.Step) (bool, error) {
	err := m.game.Read(s)
	if errors.Is(err, run.ErrNoRoom) {
		return false, nil
	}
	return true, err
}
