package run

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// counting is an environment of known rules: a counter in 0..5 is to be brought to a goal by the actions "u" and "d".
// With probability slip an action does nothing. A turn costs 0.1, one that is no action 0.5; the goal pays 1.
type counting struct {
	turns int
	slip  float64
	size  int // of images of the counter, which then is not told in the text; 0: none
	seed  uint64
	mute  bool // its episodes are neither Expert nor Actor
}

const countingTop = 5

func (c counting) Characters() string { return "012345:>ud!" }
func (c counting) MaxTurns() int      { return c.turns }
func (c counting) ImageSize() int     { return c.size }

func (c counting) prompt(start, goal int) task.Prompt {
	p := task.Prompt{ID: fmt.Sprintf("counting/%d:%d", start, goal), State: fmt.Sprintf("%d:%d", start, goal)}
	p.Text, p.Image = c.observe(start, goal)
	return p
}

// observe returns what is seen of a counter.
func (c counting) observe(at, goal int) (string, []byte) {
	if c.size == 0 {
		return fmt.Sprintf("%d:%d>", at, goal), nil
	}
	picture := image.NewGray(image.Rect(0, 0, c.size, c.size))
	for i := range c.size * c.size {
		if i%c.size <= at {
			picture.SetGray(i%c.size, i/c.size, color.Gray{255})
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%d>", goal), out.Bytes()
}

// held reports whether a problem is held out.
func held(start, goal int) bool { return (start+2*goal)%4 == 0 }

func (c counting) Train(i uint64) task.Prompt {
	r := rollout.Stream(c.seed, "counting", i)
	for {
		if start, goal := r.IntN(countingTop+1), r.IntN(countingTop+1); start != goal && !held(start, goal) {
			return c.prompt(start, goal)
		}
	}
}

func (c counting) HeldOut() []task.Prompt {
	var list []task.Prompt
	for start := range countingTop + 1 {
		for goal := range countingTop + 1 {
			if start != goal && held(start, goal) {
				list = append(list, c.prompt(start, goal))
			}
		}
	}
	return list
}

func (c counting) Reset(p task.Prompt, seed uint64) task.Episode {
	start, goal, _ := strings.Cut(p.State, ":")
	e := &count{rules: c, luck: rollout.Stream(seed, "counting/luck", 0)}
	e.at, _ = strconv.Atoi(start)
	e.goal, _ = strconv.Atoi(goal)
	if c.mute {
		return struct{ task.Episode }{e}
	}
	return e
}

// count is an episode.
type count struct {
	rules    counting
	at, goal int
	turn     int
	luck     *rand.Rand
}

func (e *count) Step(response string) task.Step {
	e.turn++
	s := task.Step{Reward: -0.1}
	slips := e.luck.Float64() < e.rules.slip
	switch {
	case response != "u" && response != "d":
		s.Invalid, s.Reward = true, -0.5
	case slips:
	case response == "u":
		e.at = min(e.at+1, countingTop)
	default:
		e.at = max(e.at-1, 0)
	}
	if e.at == e.goal {
		s.Done, s.Correct = true, true
		s.Reward++
		return s
	}
	if e.turn == e.rules.turns {
		s.Done, s.Cut = true, true
		return s
	}
	s.Text, s.Image = e.rules.observe(e.at, e.goal)
	if s.Invalid {
		s.Text = "!" + s.Text
	}
	return s
}

func (e *count) Advise() string {
	if e.at < e.goal {
		return "u"
	}
	return "d"
}

func (e *count) Actions() []string { return []string{"u", "d"} }

// counts is a small run of the counting game.
func counts(t testing.TB, rules counting, assignments ...string) Config {
	t.Helper()
	c := small(t, append([]string{"policy.positions=96", "generate.max_tokens=2", "warmup.steps=20"}, assignments...)...)
	if rules.size > 0 {
		c.Policy.Vision = Vision{Patch: rules.size / 2, Hidden: 6}
	}
	c = c.WithTask("counting", func(seed uint64) (task.Task, error) {
		rules.seed = seed
		return rules, nil
	})
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}
