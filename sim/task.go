package sim

import (
	"strconv"

	"github.com/reprise-rl/reprise/task"
)

// Task has prompts and rewards responses to them 1 or 0 at random.
type Task struct {
	Seed    uint64
	Accept  float64 // probability of the reward 1, in [0, 1]
	Spread  float64 // prompts differ: each has a probability of its own, uniform in Accept ± Spread, cut to [0, 1]
	Prompts uint64  // how many there are, over and over; 0: without end
}

// Train returns prompt i, "sim-i", or "sim-(i mod Prompts)".
func (t Task) Train(i uint64) task.Prompt {
	if t.Prompts > 0 {
		i %= t.Prompts
	}
	return task.Prompt{ID: "sim-" + strconv.FormatUint(i, 10)}
}

// HeldOut returns no prompts: there is nothing to evaluate.
func (Task) HeldOut() []task.Prompt { return nil }

// Verify rewards a response by chance, the same response to the same prompt alike.
func (t Task) Verify(p task.Prompt, response string) task.Verdict {
	prompt := absorb(mix(t.Seed), p.ID)
	accept := t.Accept
	if t.Spread > 0 {
		accept += float64(t.Spread * (2*float64(unit(mix(prompt, 1))) - 1))
	}
	ok := float64(unit(absorb(prompt, response))) < accept
	v := task.Verdict{Correct: ok, Extracted: response}
	if ok {
		v.Reward = 1
	}
	return v
}

// absorb adds a text to a digest.
func absorb(h uint64, text string) uint64 {
	for _, c := range []byte(text) {
		h = mix(h, uint64(c))
	}
	return mix(h)
}
