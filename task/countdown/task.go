package countdown

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// heldOutSeed is the seed of the held-out problems: a constant, so that all runs share them.
const heldOutSeed = 0x726570726973653a

// attempts is how many random expressions are tried to see whether the settings allow problems: a thousandth has to be one.
const attempts = 10_000

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

// holdOut draws the held-out problems, different from one another, and sees to it that most problems are not among them.
func (t *Task) holdOut() error {
	if err := t.settings.feasible(); err != nil {
		return err
	}
	n := t.settings.HeldOut
	r := rollout.Stream(heldOutSeed, "countdown held-out", 0)
	for made := 0; len(t.heldOut) < n && made < 50*n; {
		g, ok := t.settings.draw(r)
		if !ok {
			continue
		}
		made++
		if _, taken := t.reserved[g.key]; !taken {
			t.reserved[g.key] = struct{}{}
			t.heldOut = append(t.heldOut, t.prompt(g))
		}
	}
	const sample = 1000 // of all problems
	free := 0
	for made := 0; made < sample; {
		g, ok := t.settings.draw(r)
		if !ok {
			continue
		}
		made++
		if _, taken := t.reserved[g.key]; !taken {
			free++
		}
	}
	if free < sample/2 || len(t.heldOut) < n {
		return &task.SettingError{Key: "held_out", Value: n, Want: fmt.Sprintf("fewer: %d different problems were found, and of "+
			"%d others drawn %d were among them, more than half: hold out fewer, or widen the numbers and targets", len(t.heldOut), sample, sample-free)}
	}
	return nil
}

// feasible reports whether random expressions are problems often enough.
func (s Settings) feasible() error {
	r := rollout.Stream(heldOutSeed, "countdown feasible", 0)
	made := 0
	for range attempts {
		if _, ok := s.draw(r); ok {
			made++
		}
	}
	if made >= attempts/1000 {
		return nil
	}
	return &task.SettingError{Key: "max_target", Value: s.MaxTarget, Want: fmt.Sprintf(
		"targets that the numbers make: of %d random expressions of %d to %d numbers from %d to %d, %d are worth %d to %d: "+
			"allow more targets, or other numbers or operations",
		attempts, s.MinNumbers, s.MaxNumbers, s.Min, s.Max, made, s.MinTarget, s.MaxTarget)}
}

// given is a problem with the expression that it was made from.
type given struct {
	numbers  []int // in the order in which they are shown
	target   int
	solution string
	key      string // the same for every order of the numbers
}

// draw makes a problem of a random expression; false: it is worth no target.
func (s Settings) draw(r *rand.Rand) (given, bool) {
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
			return given{}, false // as people play it: without fractions and negative numbers on the way
		}
		parts = append(parts[:len(parts)-2], join(op, a, b, value))
	}
	target := parts[0].value.num
	if target < int64(s.MinTarget) || target > int64(s.MaxTarget) {
		return given{}, false
	}
	sorted := slices.Clone(numbers)
	slices.Sort(sorted)
	return given{numbers, int(target), parts[0].text, list(sorted) + "=" + strconv.Itoa(int(target))}, true
}

func list(numbers []int) string {
	fields := make([]string, len(numbers))
	for i, n := range numbers {
		fields[i] = strconv.Itoa(n)
	}
	return strings.Join(fields, " ")
}

// Train returns the i-th training prompt: a random expression's problem that is not held out.
func (t *Task) Train(i uint64) task.Prompt {
	r := rollout.Stream(t.seed, "countdown train", i)
	for {
		g, ok := t.settings.draw(r)
		if !ok {
			continue
		}
		if _, taken := t.reserved[g.key]; !taken {
			return t.prompt(g)
		}
	}
}

// HeldOut returns the evaluation prompts, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// prompt asks for a problem; the answer is its solution, which says all there is to know of it.
func (t *Task) prompt(g given) task.Prompt {
	asked := list(g.numbers) + "=" + strconv.Itoa(g.target)
	p := task.Prompt{ID: "countdown/" + asked, Text: asked + ":", Answer: g.solution}
	if t.settings.Format == Words {
		p.Text = t.question(g)
	}
	return p
}

// question asks in words.
func (t *Task) question(g given) string {
	use := "each exactly once"
	if t.settings.Use == Any {
		use = "each at most once"
	}
	return fmt.Sprintf("Make %d from the numbers %s, %s, with %s and parentheses. Think first, then write the expression alone "+
		"between tags, as in <answer>(1+2)*3</answer>.\n",
		g.target, strings.ReplaceAll(list(g.numbers), " ", ", "), use, strings.Join(t.settings.Operations, " "))
}

// Demonstrate returns the expression that a prompt was made from, or one that Solve finds where the answer is
// "numbers=target"; empty if there is none.
func (t *Task) Demonstrate(p task.Prompt) string {
	solution := p.Answer
	if strings.Contains(p.Answer, "=") {
		asked, err := readProblem(p.Answer)
		if err != nil || !asked.target.Num().IsInt64() {
			return ""
		}
		solution, _ = Solve(asked.numbers, int(asked.target.Num().Int64()), strings.Join(t.settings.Operations, ""), t.settings.Use == All)
	}
	if t.settings.Format == Words && solution != "" {
		return "<answer>" + solution + "</answer>"
	}
	return solution
}

// Characters returns the digits and what stands between and around numbers.
func (t *Task) Characters() string {
	characters := []rune("0123456789 ()=:" + strings.Join(t.settings.Operations, ""))
	if t.settings.Format == Words {
		for _, r := range t.question(given{}) + "</answer>" {
			if !slices.Contains(characters, r) {
				characters = append(characters, r)
			}
		}
	}
	return string(characters)
}
