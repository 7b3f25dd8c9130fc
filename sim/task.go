package sim

import (
	"strconv"

	"github.com/reprise-rl/reprise/task"
)

// Task has endless prompts and rewards responses 1 or 0 at random.
type Task struct {
	Seed   uint64
	Accept float64 // probability of the reward 1, in [0, 1]
}

// Train returns prompt i, "sim-i".
func (Task) Train(i uint64) task.Prompt {
	return task.Prompt{ID: "sim-" + strconv.FormatUint(i, 10)}
}

// HeldOut returns no prompts: there is nothing to evaluate.
func (Task) HeldOut() []task.Prompt { return nil }

// Verify rewards a response by chance, the same response to the same prompt alike.
func (t Task) Verify(p task.Prompt, response string) task.Verdict {
	h := mix(t.Seed)
	for _, s := range []string{p.ID, response} {
		for _, c := range []byte(s) {
			h = mix(h, uint64(c))
		}
		h = mix(h)
	}
	ok := float64(unit(h)) < t.Accept
	v := task.Verdict{Correct: ok, Extracted: response}
	if ok {
		v.Reward = 1
	}
	return v
}
