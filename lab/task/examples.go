package task

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// FewShot is a Task whose prompts can begin with solved training problems.
type FewShot interface {
	// Examples returns how many, 0 for none.
	Examples() int
}

// Examples are solved training problems that come before every prompt, for a model that continues texts: the same ones
// before all prompts of a run, except that no problem is its own example. Held-out problems are never among them. It is
// immutable and safe for concurrent use. Nil stands for none.
type Examples struct {
	solved []solved // one to spare
	stop   string
}

// solved is a problem with its solution.
type solved struct{ id, question, answer string }

// between separates examples in one text.
const between = "\n\n"

// Constants of the choice of examples. Runs with the same task, settings and seed have the same ones.
const (
	examplesSeed = 0x7265707269736578
	examplesLook = 64 // training prompts whose common beginning ends a completion
	maxStop      = 24 // characters of that
)

// NewExamples returns the examples that a task's settings ask for, nil for none. The task must have all its training
// problems: the examples of a [Selective] task are chosen before it leaves some out.
func NewExamples(t Task) (*Examples, error) {
	asks, ok := t.(FewShot)
	if !ok || asks.Examples() == 0 {
		return nil, nil
	}
	n := asks.Examples()
	refuse := func(want string, args ...any) error {
		return &option.Error{Key: "task.examples", Value: n, Want: fmt.Sprintf(want, args...)}
	}
	d, ok := t.(Demonstrator)
	if !ok {
		return nil, refuse("0: the task has no solutions to show")
	}
	e := &Examples{}
	for i := 0; len(e.solved) <= n; i++ {
		if i == 1000+100*n {
			return nil, refuse("at most %d: the training problems have one more", max(len(e.solved)-1, 0))
		}
		p := t.Train(rollout.Stream(examplesSeed, "examples", uint64(i)).Uint64())
		known := slices.ContainsFunc(e.solved, func(s solved) bool { return s.id == p.ID })
		if answer := d.Demonstrate(p); answer != "" && !known {
			e.solved = append(e.solved, solved{p.ID, p.Text, answer})
		}
	}
	if Chats(t) {
		return e, nil
	}
	opening := e.solved[0].question
	for i := range uint64(examplesLook) {
		opening = commonPrefix(opening, t.Train(rollout.Stream(examplesSeed, "openings", i).Uint64()).Text)
	}
	e.stop = between + opening
	for i, s := range e.solved {
		if strings.Contains(s.answer, e.stop) {
			return nil, refuse("0, or a task.template that begins with words of its own, such as \"Question: \": %q would "+
				"end a completion, and the solution of %s contains it", e.stop, s.id)
		}
		e.solved[i].answer += between
	}
	return e, nil
}

// commonPrefix returns how two texts begin alike: at most one line, and not many characters.
func commonPrefix(a, b string) string {
	x, y := []rune(a), []rune(b)
	n := 0
	for n < min(len(x), len(y), maxStop) && x[n] == y[n] && x[n] != '\n' {
		n++
	}
	return string(x[:n])
}

// Ask returns what a policy is asked for a prompt: questions and answers in turn, the last the prompt's. In the format
// Chat they are messages, else parts of one text.
func (e *Examples) Ask(p Prompt) (messages []string) {
	if e != nil {
		others := slices.DeleteFunc(slices.Clone(e.solved), func(s solved) bool { return s.id == p.ID })
		for _, s := range others[:len(e.solved)-1] {
			messages = append(messages, s.question, s.answer)
		}
	}
	return append(messages, p.Text)
}

// Stop returns the text with which a completion goes on to another problem, empty if none ends it: a blank line, and
// how the task's questions begin.
func (e *Examples) Stop() string {
	if e == nil {
		return ""
	}
	return e.stop
}

// Answer returns a completion up to where it goes on to another problem.
func (e *Examples) Answer(completion string) string {
	if stop := e.Stop(); stop != "" {
		completion, _, _ = strings.Cut(completion, stop)
	}
	return completion
}
