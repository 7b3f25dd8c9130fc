package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/task"
)

// playCommand plays episodes of a task.
type playCommand struct {
	Task            string   `arg:"" help:"Name of the task, for example arithmetic."`
	Policy          who      `help:"Who plays: expert, random, or a model folder such as a run's checkpoint. Without it you do, a line for each turn."`
	Set             []string `sep:"none" help:"Set one setting of the task by KEY=VALUE, for example max=50; may be repeated."`
	Seed            uint64   `default:"1" help:"Of the prompts' order, of the episodes' luck and of what is drawn at random."`
	Episodes        int      `default:"1" help:"Episodes to play, each of its own prompt."`
	HeldOut         bool     `help:"Play the held-out prompts instead of training prompts."`
	Temperature     float64  `default:"0" help:"Of a model's sampling; 0 is greedy."`
	MaxTokens       int      `default:"256" help:"Longest turn of a model, in tokens."`
	Frames          dir      `help:"Folder to write the images to, as PNG files."`
	DumpTransitions bool     `help:"Print the rules of a task that is a table, as JSON, and play nothing."`
	JSON            bool     `name:"json" help:"Print one JSON object per episode; what a player at the terminal needs to see goes to standard error."`
}

// Run plays, or prints the table.
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
		return fmt.Errorf("--episodes: %d: want at most %d, the held-out prompts", c.Episodes, held)
	}
	who, err := c.player(t)
	if err != nil {
		return err
	}
	for k := range c.Episodes {
		left, err := c.episode(ctx, t, who, k)
		if errors.Is(err, context.Canceled) {
			return interruption("the game was left")
		}
		if err != nil || left {
			return err
		}
	}
	return nil
}

// dump prints the rules of a task that is a table.
func (c *playCommand) dump(t task.Task) error {
	table, ok := t.(task.Tabular)
	if !ok {
		return fmt.Errorf("--dump-transitions: task %s is no table: want one that is, such as frozenlake or cliffwalking", c.Task)
	}
	text, err := table.Transitions().MarshalJSON()
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", text)
	return err
}

// episode plays the k-th episode and prints it. It reports whether the player has left.
func (c *playCommand) episode(ctx context.Context, t task.Task, who player, k int) (left bool, err error) {
	prompt := t.Train(uint64(k))
	if c.HeldOut {
		prompt = t.HeldOut()[k]
	}
	e := task.Begin(t, prompt, rollout.Stream(c.Seed, "environment", uint64(k)).Uint64())
	tale := &tale{
		Task: c.Task, Episode: k + 1, Prompt: prompt.ID, Text: prompt.Text,
		out: c.narration(), frames: string(c.Frames),
		echo: c.Policy != "" || !terminal(os.Stdin), asked: c.Policy == "",
	}
	if err := tale.begin(prompt); err != nil {
		return false, err
	}
	if err := who.begin(k, prompt, e); err != nil {
		return false, err
	}
	if err := tale.play(ctx, who, e, task.MaxTurns(t)); err != nil {
		return false, err
	}
	tale.close()
	if c.JSON {
		out := json.NewEncoder(os.Stdout)
		out.SetEscapeHTML(false) // observations hold < and >
		err = out.Encode(tale)
	}
	return tale.Ended == endedLeft, err
}

// narration is where episodes are told in words.
func (c *playCommand) narration() io.Writer {
	switch {
	case !c.JSON:
		return os.Stdout
	case c.Policy == "":
		return os.Stderr
	}
	return io.Discard
}

// terminal reports whether a file is one.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
