// Package calculator is the smallest task with a tool: "12+7=" is answered by a call of a calculator, which says "19=",
// and then by "19".
//
// A call is written as instruct models write theirs: <tool_call>{"name": "calculator", "arguments": {"expression":
// "12+7"}}</tool_call>. So an agent that speaks OpenAI's interface can play the task with an inference server, whose
// chat template puts "=" after what users and tools say, and its rollouts are those of this environment
// (python/examples/capture_agent.py).
//
// A [Task] is a task.Environment whose episodes are task.Experts, and a task.Alphabet. The problems are those of
// addition in package arithmetic.
package calculator

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/arithmetic"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Settings of the task. The zero value is addition of 0 <= a, b < 100 with 400 held-out problems.
type Settings struct {
	Max      int `yaml:"max"`       // operands stay below; 0: 100; at most 1,000,000
	HeldOut  int `yaml:"held_out"`  // problems kept for evaluation; 0: 400; at most half of all
	MaxTurns int `yaml:"max_turns"` // of an episode; 0: 3
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	sums := s.sums()
	sums.Resolve()
	s.Max, s.HeldOut = sums.Max, sums.HeldOut
	if s.MaxTurns == 0 {
		s.MaxTurns = 3
	}
}

// sums returns the settings of the problems.
func (s Settings) sums() arithmetic.Settings {
	return arithmetic.Settings{Max: s.Max, HeldOut: s.HeldOut}
}

// Validate reports every problem with the settings, each an [option.Error].
func (s Settings) Validate() error {
	s.Resolve()
	var problems option.Problems
	problems.Add(s.sums().Validate())
	problems.Check(s.MaxTurns >= 2 && s.MaxTurns <= 100, "max_turns", s.MaxTurns,
		"0 (3), or 2 to 100: a call and an answer")
	return problems.Err()
}

// Task asks for sums. It is safe for concurrent use.
type Task struct {
	sums     *arithmetic.Task
	maxTurns int
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	sums, err := arithmetic.New(s.sums(), seed)
	return &Task{sums, s.MaxTurns}, err
}

// Train returns the i-th training prompt.
func (t *Task) Train(i uint64) task.Prompt { return own(t.sums.Train(i)) }

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt {
	list := t.sums.HeldOut()
	for i := range list {
		list[i] = own(list[i])
	}
	return list
}

func own(p task.Prompt) task.Prompt {
	p.ID = "calculator/" + strings.TrimPrefix(p.ID, "arithmetic/")
	return p
}

// MaxTurns returns the maximum number of turns of an episode.
func (t *Task) MaxTurns() int { return t.maxTurns }

// Reset starts an episode, in which nothing is left to chance.
func (t *Task) Reset(p task.Prompt, _ uint64) task.Episode {
	return &episode{prompt: p, left: t.maxTurns}
}

// Characters returns every character that prompts, observations and turns use.
func (t *Task) Characters() string {
	letters := []rune(t.sums.Characters() + Call("") + wrong)
	slices.Sort(letters)
	return string(slices.Compact(letters))
}

// Call returns the turn that asks the calculator for an expression.
func Call(expression string) string {
	return fmt.Sprintf(`%s{"name": "calculator", "arguments": {"expression": %q}}%s`, opens, expression, closes)
}

const (
	opens  = "<tool_call>"
	closes = "</tool_call>"
	wrong  = "error" // what the calculator says of anything else
)

// episode is a problem being worked on.
type episode struct {
	prompt task.Prompt
	left   int    // turns
	said   string // by the calculator
}

// Step takes a call, or the answer, which ends the episode and is rewarded by 1 if it is right.
func (e *episode) Step(response string) task.Step {
	e.left--
	inside, isCall := strings.CutPrefix(response, opens)
	if !isCall {
		right := response == e.prompt.Answer
		step := task.Step{Done: true, Correct: right, Invalid: !whole.MatchString(response)}
		if right {
			step.Reward = 1
		}
		return step
	}
	e.said = wrong
	var call struct {
		Name      string
		Arguments struct{ Expression string }
	}
	inside, closed := strings.CutSuffix(inside, closes)
	if closed && json.Unmarshal([]byte(inside), &call) == nil && call.Name == "calculator" {
		e.said = Calculate(call.Arguments.Expression)
	}
	if e.left == 0 {
		return task.Step{Done: true, Cut: true, Invalid: e.said == wrong}
	}
	return task.Step{Text: e.said + "=", Invalid: e.said == wrong}
}

// Advise calls the calculator, and then says what it said.
func (e *episode) Advise() string {
	if e.said == "" || e.said == wrong {
		return Call(strings.TrimSuffix(e.prompt.Text, "="))
	}
	return e.said
}

var (
	whole = regexp.MustCompile(`^\d{1,9}$`)
	sum   = regexp.MustCompile(`^(\d{1,9})\+(\d{1,9})$`)
)

// Calculate returns the sum that an expression asks for, or "error".
func Calculate(expression string) string {
	parts := sum.FindStringSubmatch(expression)
	if parts == nil {
		return wrong
	}
	a, _ := strconv.Atoi(parts[1])
	b, _ := strconv.Atoi(parts[2])
	return strconv.Itoa(a + b)
}
