package arithmetic

import (
	"slices"
	"strconv"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// heldOutSeed is the seed of the held-out problems: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736531

// Task asks for sums, differences and products. It is safe for concurrent use.
type Task struct {
	settings Settings
	seed     uint64
	heldOut  []task.Prompt
	reserved map[uint64]struct{} // numbers of the held-out problems
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{settings: s, seed: seed, reserved: make(map[uint64]struct{}, s.HeldOut)}
	r := rollout.Stream(heldOutSeed, "arithmetic held-out", 0)
	for len(t.heldOut) < s.HeldOut { // at most half are taken: two draws each at worst
		n := r.Uint64N(s.problems())
		if _, taken := t.reserved[n]; !taken {
			t.reserved[n] = struct{}{}
			t.heldOut = append(t.heldOut, t.prompt(n))
		}
	}
	return t, nil
}

// Train returns the i-th training prompt: uniform over the problems that are not held out.
func (t *Task) Train(i uint64) task.Prompt {
	r := rollout.Stream(t.seed, "arithmetic train", i)
	for {
		n := r.Uint64N(t.settings.problems())
		if _, taken := t.reserved[n]; !taken {
			return t.prompt(n)
		}
	}
}

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// Verify rewards 1 for exactly the answer, 0 for anything else. With random rewards chance decides, once for each pair of prompt and
// response: the same pair always has the same reward.
func (t *Task) Verify(p task.Prompt, response string) task.Verdict {
	v := Verifier{}.Verify(p, response)
	if t.settings.RandomRewards > 0 {
		v.Reward = 0
		chance := rollout.Stream(t.seed, "arithmetic reward "+p.ID+" "+response, 0)
		if chance.Float64() < t.settings.RandomRewards {
			v.Reward = 1
		}
	}
	return v
}

// Demonstrate returns the answer.
func (t *Task) Demonstrate(p task.Prompt) string { return p.Answer }

// Characters returns the digits, the operators in use, "=", and "-" where a number can be negative.
func (t *Task) Characters() string {
	characters := []byte("0123456789")
	for _, op := range t.settings.Operations {
		characters = append(characters, sign(op))
	}
	if t.settings.Min < 0 && !slices.Contains(characters, '-') {
		characters = append(characters, '-')
	}
	return string(append(characters, '='))
}

// prompt writes problem n of operations x span x span, the last operand running fastest.
func (t *Task) prompt(n uint64) task.Prompt {
	span := uint64(t.settings.Max - t.settings.Min)
	a := int64(n/span%span) + int64(t.settings.Min)
	b := int64(n%span) + int64(t.settings.Min)
	op := t.settings.Operations[n/span/span]
	answer := a + b
	switch op {
	case Subtract:
		answer = a - b
	case Multiply:
		answer = a * b
	}
	problem := strconv.AppendInt(nil, a, 10)
	problem = strconv.AppendInt(append(problem, sign(op)), b, 10)
	return task.Prompt{
		ID:     "arithmetic/" + string(problem),
		Text:   string(append(problem, '=')),
		Answer: strconv.FormatInt(answer, 10),
	}
}

// Verifier rewards answers without knowing the problems.
type Verifier struct{}

// Verify rewards 1 for exactly the reference answer, 0 for anything else; without a reference
// answer nothing is right. A response counts as an answer, right or wrong, when it is a decimal
// integer and nothing else.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	if !isInteger(response) {
		return task.Verdict{}
	}
	if response != p.Answer {
		return task.Verdict{Extracted: response}
	}
	return task.Verdict{Reward: 1, Correct: true, Extracted: response}
}

// isInteger reports whether s is an optional "-" and digits.
func isInteger(s string) bool {
	if len(s) > 0 && s[0] == '-' {
		s = s[1:]
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
