// Package countdown is the game of reaching a number: "3 5 5 7=24:" asks for an expression with the value 24 that uses
// the given numbers, such as "(5-3)*(7+5)".
//
// [Settings] choose how many numbers there are, their range, the operations and the targets, and whether every number
// must be used. Problems are made from random expressions, so each has a solution. The held-out ones are drawn once
// from a seed of their own and never trained on, in whatever order their numbers are.
//
// A [Task] needs no files. It is a task.Demonstrator (with the expression that the problem was made from, or what a
// search finds) and a task.Alphabet. The [Verifier] parses a response with exact arithmetic and needs only the answer
// of a prompt: an expression, whose numbers and value are the problem, or "3 5 5 7=24".
package countdown

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Which of the given numbers a solution uses.
const (
	All = "all" // each exactly once
	Any = "any" // each at most once
)

// Limits of the numbers: the fractions between them fit into 64 bits (see fraction).
const (
	maxNumbers = 6
	maxNumber  = 500
	maxTarget  = 1_000_000
)

// Settings of the task. The zero value is three or four numbers up to 20 that make at most 100.
type Settings struct {
	// how many numbers are given, 2 to 6; 0: 3, or max_numbers if that is less
	MinNumbers   int      `yaml:"min_numbers"`
	MaxNumbers   int      `yaml:"max_numbers"`   // 0: 4, or min_numbers if that is more
	Min          int      `yaml:"min"`           // least number; 0: 1
	Max          int      `yaml:"max"`           // greatest number, at most 500; 0: 20
	MinTarget    int      `yaml:"min_target"`    // 0: 1
	MaxTarget    int      `yaml:"max_target"`    // at most 1,000,000; 0: 100
	Operations   []string `yaml:"operations"`    // of +, -, *, /; none: all
	Use          string   `yaml:"use"`           // all or any of the numbers; empty: all
	Format       string   `yaml:"format"`        // terse, words or chat; empty: terse
	Examples     int      `yaml:"examples"`      // solved training problems before each prompt, for base models; 0: none
	FormatReward float64  `yaml:"format_reward"` // for a wrong value from the right numbers, below 1; 0: 0.1; -1: none
	HeldOut      int      `yaml:"held_out"`      // problems kept for evaluation; 0: 400
}

// noFormatReward is the setting for no format reward.
const noFormatReward = -1

// Resolve fills in the defaults and puts the operations into their canonical order.
func (s *Settings) Resolve() {
	switch {
	case s.MinNumbers == 0 && s.MaxNumbers == 0:
		s.MinNumbers, s.MaxNumbers = 3, 4
	case s.MinNumbers == 0:
		s.MinNumbers = min(3, s.MaxNumbers)
	case s.MaxNumbers == 0:
		s.MaxNumbers = max(4, s.MinNumbers)
	}
	s.Min, s.Max = cmp.Or(s.Min, 1), cmp.Or(s.Max, 20)
	s.MinTarget, s.MaxTarget = cmp.Or(s.MinTarget, 1), cmp.Or(s.MaxTarget, 100)
	s.HeldOut = cmp.Or(s.HeldOut, 400)
	if len(s.Operations) == 0 {
		s.Operations = operations()
	}
	s.Operations = task.Sorted(s.Operations, operations())
	s.Use = cmp.Or(s.Use, All)
	s.Format = cmp.Or(s.Format, task.Terse)
	s.FormatReward = cmp.Or(s.FormatReward, 0.1)
}

func operations() []string { return []string{"+", "-", "*", "/"} }

// Validate reports every problem with the settings, each an [option.Error].
func (s Settings) Validate() error {
	s.Resolve()
	var problems option.Problems
	within := func(key string, value, least, most int) {
		problems.Check(value >= least && value <= most, key, value, "%d to %d", least, most)
	}
	within("min_numbers", s.MinNumbers, 2, maxNumbers)
	within("max_numbers", s.MaxNumbers, max(2, s.MinNumbers), maxNumbers)
	within("min", s.Min, 1, maxNumber)
	within("max", s.Max, max(1, s.Min), maxNumber)
	within("min_target", s.MinTarget, 1, maxTarget)
	within("max_target", s.MaxTarget, max(1, s.MinTarget), maxTarget)
	task.CheckChoices(&problems, "operations", s.Operations, operations())
	problems.Check(s.Use == All || s.Use == Any, "use", s.Use, "%s or %s", All, Any)
	task.CheckFormat(&problems, s.Format)
	problems.Check(s.FormatReward == noFormatReward || s.FormatReward >= 0 && s.FormatReward < 1, "format_reward",
		s.FormatReward,
		"0 (0.1) to below 1, or %d for none", noFormatReward)
	problems.Check(s.Examples >= 0, "examples", s.Examples, "0 (none) or more")
	problems.Check(s.HeldOut >= 0, "held_out", s.HeldOut, "0 (400) or more")
	return problems.Err()
}

// heldOutSeed is the seed of the held-out problems: a constant, so that all runs share them.
const heldOutSeed = 0x726570726973653a

// Task asks for expressions. It is safe for concurrent use.
type Task struct {
	Verifier
	settings Settings
	seed     uint64
	heldOut  []task.Prompt
	reserved map[string]struct{} // keys of the held-out problems
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{
		Verifier: Verifier{Use: s.Use, FormatReward: s.FormatReward},
		settings: s, seed: seed, reserved: make(map[string]struct{}, s.HeldOut),
	}
	if err := t.holdOut(); err != nil {
		return nil, err
	}
	return t, nil
}

// holdOut draws distinct held-out problems, and checks that most problems are not among them.
func (t *Task) holdOut() error {
	if err := t.settings.feasible(); err != nil {
		return err
	}
	n := t.settings.HeldOut
	r := rollout.Stream(heldOutSeed, "countdown held-out", 0)
	for made := 0; len(t.heldOut) < n && made < 50*n; made++ {
		p := t.settings.draw(r)
		if _, taken := t.reserved[p.key]; !taken {
			t.reserved[p.key] = struct{}{}
			t.heldOut = append(t.heldOut, t.prompt(p))
		}
	}
	const sample = 1000
	free := 0
	for range sample {
		if _, taken := t.reserved[t.settings.draw(r).key]; !taken {
			free++
		}
	}
	if free < sample/2 || len(t.heldOut) < n {
		return &option.Error{Key: "held_out", Value: n, Want: fmt.Sprintf("fewer: %d different problems were found, "+
			"and %d of %d others were among them, more than half: hold out fewer, or widen the numbers and targets",
			len(t.heldOut), sample-free, sample)}
	}
	return nil
}

// feasible checks that at least one in a thousand random expressions is a problem.
func (s Settings) feasible() error {
	const attempts = 10_000
	r := rollout.Stream(heldOutSeed, "countdown feasible", 0)
	made := 0
	for range attempts {
		if _, ok := s.try(r); ok {
			made++
		}
	}
	if made >= attempts/1000 {
		return nil
	}
	return &option.Error{Key: "max_target", Value: s.MaxTarget, Want: fmt.Sprintf(
		"targets that the numbers make: of %d random expressions of %d to %d numbers from %d to %d, %d have a value "+
			"from %d to %d: allow more targets, or other numbers or operations",
		attempts, s.MinNumbers, s.MaxNumbers, s.Min, s.Max, made, s.MinTarget, s.MaxTarget)}
}

// drawn is a problem with the expression that it was made from.
type drawn struct {
	numbers  []int // in the order in which they are shown
	target   int
	solution string
	key      string // the same for every order of the numbers
}

// draw makes a problem of a random expression.
func (s Settings) draw(r *rand.Rand) drawn {
	for {
		if p, ok := s.try(r); ok {
			return p
		}
	}
}

// try makes a random expression. It reports false if its value is no target, or if there are fractions or negative
// numbers on the way, which people do not use in this game.
func (s Settings) try(r *rand.Rand) (drawn, bool) {
	numbers := make([]int, s.MinNumbers+r.IntN(s.MaxNumbers-s.MinNumbers+1))
	parts := make([]part, len(numbers))
	for i := range numbers {
		numbers[i] = s.Min + r.IntN(s.Max-s.Min+1)
		parts[i] = part{value: whole(numbers[i]), text: strconv.Itoa(numbers[i])}
	}
	for len(parts) > 1 {
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		a, b := parts[len(parts)-2], parts[len(parts)-1]
		op := s.Operations[r.IntN(len(s.Operations))][0]
		value, ok := combine(op, a.value, b.value)
		if !ok || value.den != 1 || value.num < 0 {
			return drawn{}, false
		}
		parts = append(parts[:len(parts)-2], join(op, a, b, value))
	}
	target := parts[0].value.num
	if target < int64(s.MinTarget) || target > int64(s.MaxTarget) {
		return drawn{}, false
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return drawn{numbers, int(target), parts[0].text, list(sorted) + "=" + strconv.Itoa(int(target))}, true
}

func list(numbers []int) string {
	fields := make([]string, len(numbers))
	for i, n := range numbers {
		fields[i] = strconv.Itoa(n)
	}
	return strings.Join(fields, " ")
}

// Train returns the i-th training prompt: the problem of a random expression that is not held out.
func (t *Task) Train(i uint64) task.Prompt {
	r := rollout.Stream(t.seed, "countdown train", i)
	for {
		p := t.settings.draw(r)
		if _, taken := t.reserved[p.key]; !taken {
			return t.prompt(p)
		}
	}
}

// Examples returns how many solved problems come before a prompt.
func (t *Task) Examples() int { return t.settings.Examples }

// Chat reports whether prompts and observations are messages for a chat template.
func (t *Task) Chat() bool { return t.settings.Format == task.Chat }

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// prompt asks for a problem. The answer is its solution, which contains the whole problem.
func (t *Task) prompt(p drawn) task.Prompt {
	asked := list(p.numbers) + "=" + strconv.Itoa(p.target)
	prompt := task.Prompt{ID: "countdown/" + asked, Text: asked + ":", Answer: p.solution}
	if task.InWords(t.settings.Format) {
		prompt.Text = t.question(p)
	}
	return prompt
}

// question asks in words.
func (t *Task) question(p drawn) string {
	use := "each exactly once"
	if t.settings.Use == Any {
		use = "each at most once"
	}
	return fmt.Sprintf("Make %d from the numbers %s, %s, with %s and parentheses. Think first, then write the "+
		"expression alone between tags, as in <answer>(1+2)*3</answer>.\n",
		p.target, strings.ReplaceAll(list(p.numbers), " ", ", "), use, strings.Join(t.settings.Operations, " "))
}

// Demonstrate returns the expression that a prompt was made from. If the answer is "numbers=target" it returns one that
// a search finds, empty if there is none.
func (t *Task) Demonstrate(p task.Prompt) string {
	solution := p.Answer
	if strings.Contains(p.Answer, "=") {
		asked, err := readProblem(p.Answer)
		if err != nil || !asked.target.Num().IsInt64() {
			return ""
		}
		solution, _ = solve(asked.numbers, int(asked.target.Num().Int64()), strings.Join(t.settings.Operations, ""),
			t.settings.Use == All)
	}
	if task.InWords(t.settings.Format) && solution != "" {
		return task.TagAnswer(solution)
	}
	return solution
}

// Characters returns the digits and everything that is written between and around numbers.
func (t *Task) Characters() string {
	characters := []rune("0123456789 ()=:" + strings.Join(t.settings.Operations, ""))
	if task.InWords(t.settings.Format) {
		for _, r := range t.question(drawn{}) + "</answer>" {
			if !slices.Contains(characters, r) {
				characters = append(characters, r)
			}
		}
	}
	return string(characters)
}
