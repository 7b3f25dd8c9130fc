package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/task"
)

// player decides what is done in an episode.
type player interface {
	// begin begins the k-th episode.
	begin(k int, p task.Prompt, e task.Episode) error
	// turn returns the text of the next turn; io.EOF is that the player leaves.
	turn(ctx context.Context) (string, error)
	// answered tells what the environment said to it. run.ErrNoRoom is that the player cannot go on.
	answered(s task.Step) error
}

// player returns who --policy names.
func (c *playCommand) player(t task.Task) (player, error) {
	first := task.Begin(t, t.Train(0), 0)
	_, advises := first.(task.Expert)
	_, acts := first.(task.Actor)
	if seeing, ok := t.(task.Seeing); c.Frames != "" && (!ok || seeing.ImageSize() == 0) {
		return nil, fmt.Errorf("--frames: %s: task %s has no images as it is set: leave it out", c.Frames, c.Task)
	}
	var known []string
	for _, p := range []struct {
		name string
		has  bool
	}{{"expert", advises}, {"random", acts}} {
		if p.has {
			known = append(known, p.name)
		}
	}
	want := strings.Join(append(known, "a model folder"), ", ")
	switch {
	case c.Policy == "":
		return &hand{in: lines(os.Stdin), out: c.narration()}, nil
	case c.Policy == "expert" && advises:
		return &adviser{}, nil
	case c.Policy == "random" && acts:
		return &chance{seed: c.Seed}, nil
	case c.Policy == "expert" || c.Policy == "random":
		return nil, fmt.Errorf("--policy: %q: want %s: task %s has no %[1]s player", c.Policy, want, c.Task)
	}
	sampling := policy.Sampling{Temperature: c.Temperature, TopP: 1, MaxTokens: c.MaxTokens}
	if err := sampling.Validate(); err != nil {
		return nil, fmt.Errorf("--temperature or --max-tokens: %w", err)
	}
	model, err := run.LoadPlayer(string(c.Policy), t, sampling)
	if err != nil {
		return nil, fmt.Errorf("--policy: %q: want %s: %w", c.Policy, want, err)
	}
	return &reader{name: string(c.Policy), model: model, seed: c.Seed}, nil
}

// adviser does what the episode's expert says.
type adviser struct{ episode task.Episode }

func (a *adviser) begin(_ int, _ task.Prompt, e task.Episode) error {
	a.episode = e
	return nil
}

func (a *adviser) turn(context.Context) (string, error) { return a.episode.(task.Expert).Advise(), nil }

func (a *adviser) answered(task.Step) error { return nil }

// chance does any of the possible actions, each equally likely.
type chance struct {
	seed    uint64
	stream  *rand.Rand
	episode task.Episode
}

func (c *chance) begin(k int, _ task.Prompt, e task.Episode) error {
	c.stream, c.episode = rollout.Stream(c.seed, "play/random", uint64(k)), e
	return nil
}

func (c *chance) turn(context.Context) (string, error) {
	actions := c.episode.(task.Actor).Actions()
	if len(actions) == 0 {
		return "", io.EOF
	}
	return actions[c.stream.IntN(len(actions))], nil
}

func (c *chance) answered(task.Step) error { return nil }

// reader is a model, which reads what it is told.
type reader struct {
	name  string
	model *run.Player
	seed  uint64
	game  *run.Game
}

func (r *reader) begin(k int, p task.Prompt, _ task.Episode) (err error) {
	if r.game, err = r.model.Begin(p, rollout.Stream(r.seed, "generate", uint64(k))); err != nil {
		return fmt.Errorf("--policy: %q: want a model that can read the task's prompts: %w", r.name, err)
	}
	return nil
}

func (r *reader) turn(ctx context.Context) (string, error) { return r.game.Turn(ctx) }

func (r *reader) answered(s task.Step) error { return r.game.Read(s) }

// hand is somebody at the terminal, or the lines of a file.
type hand struct {
	in      <-chan line
	out     io.Writer
	episode task.Episode
	turns   int
}

func (h *hand) begin(_ int, _ task.Prompt, e task.Episode) error {
	h.episode, h.turns = e, 0
	return nil
}

// turn asks for a line.
func (h *hand) turn(ctx context.Context) (string, error) {
	h.turns++
	fmt.Fprintf(h.out, "turn %d%s> ", h.turns, choice(h.episode))
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case l := <-h.in:
		if l.err != nil {
			fmt.Fprintln(h.out)
		}
		return l.text, l.err
	}
}

func (h *hand) answered(task.Step) error { return nil }

// choice lists the possible actions, if the episode has a list.
func choice(e task.Episode) string {
	actor, ok := e.(task.Actor)
	if !ok {
		return ""
	}
	return " [" + strings.Join(actor.Actions(), ", ") + "]"
}

// line is a line that was read, or why there is none.
type line struct {
	text string
	err  error
}

// lines reads lines as they are asked for, beside whoever waits for them: waiting can be given up.
func lines(from io.Reader) <-chan line {
	out := make(chan line)
	go func() {
		r := bufio.NewReader(from)
		for {
			text, err := r.ReadString('\n')
			if err == io.EOF && text != "" { // a last line that nobody ended
				err = nil
			}
			out <- line{strings.TrimRight(text, "\r\n"), err}
		}
	}()
	return out
}
