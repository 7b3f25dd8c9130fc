package transcript

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// Player chooses the actions of episodes, one episode at a time.
type Player interface {
	// Begin begins an episode.
	Begin(e Episode) error
	// Act returns the text of the next turn. io.EOF means that the player leaves.
	Act(ctx context.Context) (string, error)
	// Observe tells the player what the environment answered. It reports whether the player has room for another turn.
	Observe(s task.Step) (room bool, err error)
}

// Expert does what the episode's [task.Expert] advises. Its episodes must have one.
type Expert struct{ expert task.Expert }

// Begin begins an episode.
func (x *Expert) Begin(e Episode) error {
	x.expert = e.State.(task.Expert)
	return nil
}

// Act returns the advice.
func (x *Expert) Act(context.Context) (string, error) { return x.expert.Advise(), nil }

// Observe does nothing: the expert knows the state.
func (x *Expert) Observe(task.Step) (bool, error) { return true, nil }

// Random takes any possible action with equal probability. Its episodes must be a [task.Actor].
type Random struct {
	Seed uint64

	stream *rand.Rand
	actor  task.Actor
}

// Begin begins an episode with a random stream of its own.
func (r *Random) Begin(e Episode) error {
	r.stream, r.actor = rollout.Stream(r.Seed, "play/random", uint64(e.Number-1)), e.State.(task.Actor)
	return nil
}

// Act draws an action; it leaves where there is none.
func (r *Random) Act(context.Context) (string, error) {
	actions := r.actor.Actions()
	if len(actions) == 0 {
		return "", io.EOF
	}
	return actions[r.stream.IntN(len(actions))], nil
}

// Observe does nothing: the environment knows which actions there are.
func (r *Random) Observe(task.Step) (bool, error) { return true, nil }

// Keyboard asks for a line of input each turn.
type Keyboard struct {
	lines <-chan line
	out   io.Writer
	state task.Episode
	turns int
}

// line is a line of input, or why there is none.
type line struct {
	text string
	err  error
}

// NewKeyboard returns a player that asks on out and reads lines of in. It reads in a goroutine that ends with the
// process, so that waiting for a line can be interrupted.
func NewKeyboard(in io.Reader, out io.Writer) *Keyboard {
	lines := make(chan line)
	go func() {
		r := bufio.NewReader(in)
		for {
			text, err := r.ReadString('\n')
			if err == io.EOF && text != "" { // the last line has no end
				err = nil
			}
			lines <- line{strings.TrimRight(text, "\r\n"), err}
		}
	}()
	return &Keyboard{lines: lines, out: out}
}

// Begin begins an episode.
func (k *Keyboard) Begin(e Episode) error {
	k.state, k.turns = e.State, 0
	return nil
}

// Act asks for a line, with the possible actions where there is a list of them.
func (k *Keyboard) Act(ctx context.Context) (string, error) {
	k.turns++
	choice := ""
	if actor, ok := k.state.(task.Actor); ok {
		choice = " [" + strings.Join(actor.Actions(), ", ") + "]"
	}
	fmt.Fprintf(k.out, "turn %d%s> ", k.turns, choice)
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case l := <-k.lines:
		if l.err != nil {
			fmt.Fprintln(k.out)
		}
		return l.text, l.err
	}
}

// Observe does nothing: the transcript shows the answer.
func (k *Keyboard) Observe(task.Step) (bool, error) { return true, nil }
