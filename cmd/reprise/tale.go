package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/task"
)

// How an episode ended.
const (
	endedDone = "done"    // by the environment's rules
	endedCut  = "cut"     // by its limit of turns or steps
	endedRoom = "no room" // in the policy's positions
	endedLeft = "left"    // by the player
)

// tale is an episode as it is told; its exported fields are what --json prints.
type tale struct {
	Task    string  `json:"task"`
	Episode int     `json:"episode"` // from 1
	Prompt  string  `json:"prompt"`  // ID
	Text    string  `json:"text"`    // of the prompt
	Frame   string  `json:"frame,omitempty"`
	Turns   []told  `json:"turns"`
	Reward  float64 `json:"reward"` // of all turns
	Ended   string  `json:"ended"`
	Success bool    `json:"success"`

	out    io.Writer
	frames string // folder of images; empty: they are not written
	echo   bool   // actions are printed, as nobody saw them typed
	asked  bool   // after the player was asked for them by the number of the turn
}

// told is a turn.
type told struct {
	Action  string  `json:"action"`
	Text    string  `json:"text"` // what the environment answered
	Frame   string  `json:"frame,omitempty"`
	Reward  float32 `json:"reward"`
	Invalid bool    `json:"invalid,omitempty"`
}

// begin tells the prompt.
func (t *tale) begin(p task.Prompt) (err error) {
	fmt.Fprintf(t.out, "%s, episode %d, prompt %s\n", t.Task, t.Episode, p.ID)
	t.Turns = []told{}
	t.Frame, err = t.frame(0, p.Image)
	t.indented(p.Text)
	return err
}

// play tells an episode of at most so many turns while it is played.
func (t *tale) play(ctx context.Context, who player, e task.Episode, turns int) error {
	t.Ended = endedCut
	for range turns {
		action, err := who.turn(ctx)
		if errors.Is(err, io.EOF) {
			t.Ended = endedLeft
			return nil
		}
		if err != nil {
			return err
		}
		step := e.Step(action)
		if err := t.turn(action, step); err != nil {
			return err
		}
		if step.Done {
			t.Success = step.Correct
			if !step.Cut {
				t.Ended = endedDone
			}
			return nil
		}
		if err := who.answered(step); errors.Is(err, run.ErrNoRoom) {
			t.Ended = endedRoom
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// turn tells a turn.
func (t *tale) turn(action string, s task.Step) (err error) {
	if t.echo && !t.asked {
		fmt.Fprintf(t.out, "turn %d: ", len(t.Turns)+1)
	}
	if t.echo {
		fmt.Fprintln(t.out, indent(action))
	}
	note := ""
	if s.Invalid {
		note = ", no action"
	}
	fmt.Fprintf(t.out, "    reward %g%s\n", s.Reward, note)
	frame, err := t.frame(len(t.Turns)+1, s.Image)
	t.indented(s.Text)
	t.Turns = append(t.Turns, told{action, s.Text, frame, s.Reward, s.Invalid})
	t.Reward += float64(s.Reward)
	return err
}

// frame writes the image of a turn, 0 for the prompt's, if there is one, to a file that it names, and says so.
func (t *tale) frame(turn int, image []byte) (string, error) {
	if image == nil {
		return "", nil
	}
	if t.frames == "" {
		fmt.Fprintln(t.out, "  [an image; --frames DIR writes it to a file]")
		return "", nil
	}
	if err := os.MkdirAll(t.frames, 0o755); err != nil {
		return "", err
	}
	name := filepath.Join(t.frames, fmt.Sprintf("episode-%d-turn-%d.png", t.Episode, turn))
	fmt.Fprintf(t.out, "  [%s]\n", name)
	return name, os.WriteFile(name, image, 0o644)
}

// indented tells what the environment says.
func (t *tale) indented(text string) {
	if text != "" {
		fmt.Fprintf(t.out, "  %s\n", indent(text))
	}
}

// indent puts further lines of a text under its first.
func indent(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// close tells the end.
func (t *tale) close() {
	what := map[string]string{
		endedDone: "over", endedCut: "cut by the limit", endedRoom: "ended: " + run.ErrNoRoom.Error(), endedLeft: "left",
	}[t.Ended]
	if t.Ended == endedDone || t.Ended == endedCut {
		what += map[bool]string{true: ", success", false: ", no success"}[t.Success]
	}
	turns := "turns"
	if len(t.Turns) == 1 {
		turns = "turn"
	}
	fmt.Fprintf(t.out, "%s after %d %s, reward %.6g\n", what, len(t.Turns), turns, t.Reward)
}
