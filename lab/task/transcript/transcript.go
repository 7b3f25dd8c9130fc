package transcript

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/task"
)

// How an episode ended.
const (
	EndedDone   = "done"    // by the environment's rules
	EndedCut    = "cut"     // at its limit of turns or steps
	EndedNoRoom = "no room" // the player cannot read any more
	EndedLeft   = "left"    // by the player
)

// Transcript is a record of one episode.
type Transcript struct {
	Task    string  `json:"task"`
	Episode int     `json:"episode"` // from 1
	Prompt  string  `json:"prompt"`  // ID
	Text    string  `json:"text"`    // of the prompt
	Frame   string  `json:"frame,omitempty"`
	Turns   []Turn  `json:"turns"`
	Reward  float64 `json:"reward"` // of all turns
	Ended   string  `json:"ended"`
	Success bool    `json:"success"`
}

// Turn is one action and the environment's answer.
type Turn struct {
	Action  string  `json:"action"`
	Text    string  `json:"text"` // what the environment answered
	Frame   string  `json:"frame,omitempty"`
	Reward  float32 `json:"reward"`
	Invalid bool    `json:"invalid,omitempty"`
}

// Episode is what Play needs to know about an episode.
type Episode struct {
	Task   string // name
	Number int    // from 1
	Prompt task.Prompt
	State  task.Episode
	Turns  int // the most that it may have
}

// Options say where an episode is written in words.
type Options struct {
	Out    io.Writer
	Frames string // folder for images; "": they are not written
	// Prompted: the player was asked for each action by the turn's number, so it is not printed again. Echo: print
	// actions, because nobody saw them typed.
	Prompted, Echo bool
}

// Play plays an episode and writes it in words while it goes on.
func Play(ctx context.Context, e Episode, player Player, o Options) (*Transcript, error) {
	r := &recorder{Options: o, t: &Transcript{
		Task: e.Task, Episode: e.Number, Prompt: e.Prompt.ID, Text: e.Prompt.Text, Turns: []Turn{}, Ended: EndedCut,
	}}
	fmt.Fprintf(o.Out, "%s, episode %d, prompt %s\n", e.Task, e.Number, e.Prompt.ID)
	var err error
	if r.t.Frame, err = r.frame(0, e.Prompt.Image); err != nil {
		return nil, err
	}
	r.observation(e.Prompt.Text)
	if err := player.Begin(e); err != nil {
		return nil, err
	}
	if err := r.play(ctx, e, player); err != nil {
		return nil, err
	}
	r.end()
	return r.t, nil
}

// recorder writes a transcript.
type recorder struct {
	Options
	t *Transcript
}

func (r *recorder) play(ctx context.Context, e Episode, player Player) error {
	for range e.Turns {
		action, err := player.Act(ctx)
		if errors.Is(err, io.EOF) {
			r.t.Ended = EndedLeft
			return nil
		}
		if err != nil {
			return err
		}
		step := e.State.Step(action)
		if err := r.turn(action, step); err != nil {
			return err
		}
		if step.Done {
			r.t.Success = step.Correct
			if !step.Cut {
				r.t.Ended = EndedDone
			}
			return nil
		}
		room, err := player.Observe(step)
		if err != nil {
			return err
		}
		if !room {
			r.t.Ended = EndedNoRoom
			return nil
		}
	}
	return nil
}

// turn records a turn.
func (r *recorder) turn(action string, s task.Step) error {
	if r.Echo && !r.Prompted {
		fmt.Fprintf(r.Out, "turn %d: ", len(r.t.Turns)+1)
	}
	if r.Echo {
		fmt.Fprintln(r.Out, indent(action))
	}
	note := ""
	if s.Invalid {
		note = ", no action"
	}
	fmt.Fprintf(r.Out, "    reward %g%s\n", s.Reward, note)
	frame, err := r.frame(len(r.t.Turns)+1, s.Image)
	r.observation(s.Text)
	r.t.Turns = append(r.t.Turns, Turn{action, s.Text, frame, s.Reward, s.Invalid})
	r.t.Reward += float64(s.Reward)
	return err
}

// frame writes a turn's image to a file and returns the file's name; turn 0 is the prompt. Without an image it does
// nothing.
func (r *recorder) frame(turn int, image []byte) (string, error) {
	if image == nil {
		return "", nil
	}
	if r.Frames == "" {
		fmt.Fprintln(r.Out, "  [an image; --frames DIR writes it to a file]")
		return "", nil
	}
	if err := os.MkdirAll(r.Frames, 0o755); err != nil {
		return "", err
	}
	name := filepath.Join(r.Frames, fmt.Sprintf("episode-%d-turn-%d.png", r.t.Episode, turn))
	fmt.Fprintf(r.Out, "  [%s]\n", name)
	return name, os.WriteFile(name, image, 0o644)
}

// observation writes what the environment says.
func (r *recorder) observation(text string) {
	if text != "" {
		fmt.Fprintf(r.Out, "  %s\n", indent(text))
	}
}

// indent puts the further lines of a text under its first.
func indent(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// end writes how the episode ended.
func (r *recorder) end() {
	how := map[string]string{
		EndedDone: "over", EndedCut: "cut by the limit", EndedNoRoom: "ended: the player has no room for another turn",
		EndedLeft: "left",
	}[r.t.Ended]
	if r.t.Ended == EndedDone || r.t.Ended == EndedCut {
		how += map[bool]string{true: ", success", false: ", no success"}[r.t.Success]
	}
	fmt.Fprintf(r.Out, "%s after %s, reward %.6g\n", how, words.Plural(len(r.t.Turns), "turn"), r.t.Reward)
}
