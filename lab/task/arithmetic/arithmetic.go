// Package arithmetic is the smallest task: "12+7=" is answered by "19", exactly.
//
// [Settings] choose the operations and the range of the operands. A problem is an operation with its two operands in
// order (1+2 and 2+1 are two problems), and all problems are equally likely. The held-out problems are drawn once from
// a seed of their own, so all runs with the same settings share them, and they are never trained on. Rewards can be
// left to chance, rollout by rollout, as a control.
//
// A [Task] needs no files. It is a task.Demonstrator (the answer is the demonstration) and a task.Alphabet (digits, the
// operators in use and "="), so a character model can learn it from scratch.
package arithmetic

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Operations in their canonical order.
const (
	Add      = "add"      // a+b=
	Subtract = "subtract" // a-b=
	Multiply = "multiply" // a*b=
)

// limit bounds the operands: three operations on (2*limit)² pairs still count in an int64.
const limit = 1_000_000

// Settings of the task. The zero value is addition of 0 <= a, b < 100 with 400 held-out problems.
type Settings struct {
	Operations []string `yaml:"operations"` // of add, subtract, multiply; none: add
	Min        int      `yaml:"min"`        // least operand; at least -1,000,000
	Max        int      `yaml:"max"`        // operands stay below; 0: 100; at most 1,000,000
	HeldOut    int      `yaml:"held_out"`   // problems kept for evaluation; 0: 400; at most half of all
	// RandomRewards is the chance of each rollout to be rewarded, whatever it says; 0: exactly the correct ones are. It is
	// a control that teaches nothing. Whether a response is correct stays what it is.
	RandomRewards float64 `yaml:"random_rewards"`
	Examples      int     `yaml:"examples"` // solved training problems before each prompt, for base models; 0: none
}

// Resolve fills in the defaults and puts the operations into their canonical order.
func (s *Settings) Resolve() {
	if len(s.Operations) == 0 {
		s.Operations = []string{Add}
	}
	s.Operations = task.Sorted(s.Operations, operations())
	s.Max = cmp.Or(s.Max, 100)
	s.HeldOut = cmp.Or(s.HeldOut, 400)
}

func operations() []string { return []string{Add, Subtract, Multiply} }

// sign returns the operator of an operation.
func sign(operation string) byte {
	switch operation {
	case Subtract:
		return '-'
	case Multiply:
		return '*'
	}
	return '+'
}

// Validate reports every problem with the settings, each an [option.Error].
func (s Settings) Validate() error {
	s.Resolve()
	var problems option.Problems
	task.CheckChoices(&problems, "operations", s.Operations, operations())
	problems.Check(s.Min >= -limit && s.Min < limit, "min", s.Min, "-%d to %d", limit, limit-1)
	problems.Check(s.Max > s.Min && s.Max <= limit, "max", s.Max, "above min (%d), at most %d", s.Min, limit)
	if len(problems) == 0 {
		problems.Check(s.HeldOut >= 0 && uint64(s.HeldOut) <= s.problems()/2, "held_out", s.HeldOut,
			"0 (400) to %d, half of the %d problems with %d <= a, b < %d: hold out fewer, or widen min and max",
			s.problems()/2, s.problems(), s.Min, s.Max)
	} else {
		problems.Check(s.HeldOut >= 0, "held_out", s.HeldOut, "0 (400) or more")
	}
	problems.Check(s.Examples >= 0, "examples", s.Examples, "0 (none) or more")
	problems.Check(s.RandomRewards >= 0 && s.RandomRewards <= 1, "random_rewards", s.RandomRewards,
		"a share of responses, at most 1, or 0 to reward the correct ones")
	return problems.Err()
}

// problems counts all problems. The settings must be resolved and valid, except HeldOut.
func (s Settings) problems() uint64 {
	span := uint64(s.Max - s.Min)
	return uint64(len(s.Operations)) * span * span
}

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

// Examples returns how many solved problems come before a prompt.
func (t *Task) Examples() int { return t.settings.Examples }

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// Verify rewards 1 for exactly the answer and 0 for anything else. With random rewards the reward is their share, the
// expected reward of a rollout.
func (t *Task) Verify(p task.Prompt, response string) task.Verdict {
	v := Verifier{}.Verify(p, response)
	if share := t.settings.RandomRewards; share > 0 {
		v.Reward = float32(share)
	}
	return v
}

// VerifyRollout is Verify without random rewards. With them each rollout has its own draw from the seed: a reward that
// followed from prompt and response could be learned.
func (t *Task) VerifyRollout(p task.Prompt, response string, number uint64) task.Verdict {
	v := t.Verify(p, response)
	if share := t.settings.RandomRewards; share > 0 {
		v.Reward = 0
		if rollout.Stream(t.seed, "arithmetic reward", number).Float64() < share {
			v.Reward = 1
		}
	}
	return v
}

// Demonstrate returns the answer.
func (t *Task) Demonstrate(p task.Prompt) string { return p.Answer }

// Characters returns the digits, the operators in use, "=", and "-" if a number can be negative.
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

// prompt writes problem n of operations × span × span, the last operand running fastest.
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

// Verify rewards 1 for exactly the reference answer and 0 for anything else. A response counts as an answer, correct or
// not, if it is a decimal integer and nothing else.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	digits := strings.TrimPrefix(response, "-")
	return task.ExactVerdict(p, response, digits != "" && strings.Trim(digits, "0123456789") == "")
}
