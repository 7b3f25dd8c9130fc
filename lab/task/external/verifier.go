package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Verifier asks a program for verdicts. It is a task.Remote: the program starts with the first question and ends with
// the last Close. It is safe for concurrent use.
type Verifier struct {
	settings Settings // resolved
	slots    chan struct{}

	mu    sync.Mutex
	users int      // calls of Open not closed, and questions under way
	child *program // nil: not running
	err   error    // the failure; stays until the next Open
}

// NewVerifier returns the verifier of settings, of which it reads those of the program. It looks for the program and
// does not start it.
func NewVerifier(s Settings) (*Verifier, error) {
	s.Resolve()
	if err := s.validateProgram(); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(s.Command[0]); err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, &option.Error{Key: "command", Value: s.Command,
			Want: fmt.Sprintf("a program that is installed, by its name or path (%v)", err)}
	}
	return &Verifier{settings: s, slots: make(chan struct{}, s.InFlight)}, nil
}

// Open implements task.Remote.
func (v *Verifier) Open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.users == 0 {
		v.err = nil
	}
	v.users++
}

// Close implements task.Remote. It lets the program end by itself for a moment, then kills it and its children.
func (v *Verifier) Close() error {
	v.mu.Lock()
	v.users--
	var last *program
	if v.users == 0 {
		last, v.child = v.child, nil
	}
	v.mu.Unlock()
	if last != nil {
		last.end()
	}
	return nil
}

// Err implements task.Remote.
func (v *Verifier) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Verify asks the program. It waits while too many questions are under way.
func (v *Verifier) Verify(p task.Prompt, response string) task.Verdict {
	v.slots <- struct{}{}
	defer func() { <-v.slots }()
	child, err := v.begin()
	defer v.Close()
	if err != nil {
		return task.Verdict{}
	}
	a, err := child.ask(question{PromptID: p.ID, Prompt: p.Text, Response: response, Answer: p.Answer})
	if err != nil {
		v.mu.Lock()
		if v.err == nil {
			v.err = fmt.Errorf("%s %w", v.settings.inWords(), err)
		}
		v.mu.Unlock()
		return task.Verdict{}
	}
	verdict := task.Verdict{Reward: float32(*a.Reward), Correct: *a.Reward >= v.settings.MaxReward, Extracted: response}
	if a.Correct != nil {
		verdict.Correct = *a.Correct
	}
	if a.Extracted != nil {
		verdict.Extracted = *a.Extracted
	}
	return verdict
}

// begin returns the running program for a question, which v.Close ends.
func (v *Verifier) begin() (*program, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.users++
	if v.err == nil && v.child == nil {
		child, err := start(v.settings)
		if err != nil {
			v.err = fmt.Errorf("%s does not start: %w", v.settings.inWords(), err)
		}
		v.child = child
	}
	return v.child, v.err
}

// inWords is the command as errors name it.
func (s Settings) inWords() string { return fmt.Sprintf("verifier %q", strings.Join(s.Command, " ")) }

// question is a line to the program.
type question struct {
	ID       uint64 `json:"id"`
	PromptID string `json:"prompt_id"`
	Prompt   string `json:"prompt"`
	Response string `json:"response"`
	Answer   string `json:"answer"`
}

// answer is a line from the program.
type answer struct {
	ID        *uint64  `json:"id"`
	Reward    *float64 `json:"reward"`
	Correct   *bool    `json:"correct"`
	Extracted *string  `json:"extracted"`
}

// readAnswer reads a line whose reward is at most so large.
func readAnswer(line []byte, most float64) (a answer, err error) {
	const want = `want {"id": 17, "reward": 0.5} alone on a line, a finite number; print everything else to ` +
		`standard error`
	err = json.Unmarshal(line, &a)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
		return a, fmt.Errorf("%.80q: %s is a %s: %s", line, wrong.Field, wrong.Value, want)
	}
	if err != nil {
		return a, fmt.Errorf("%.80q: %w: %s", line, err, want)
	}
	if a.ID == nil || a.Reward == nil {
		return a, fmt.Errorf("%.80q has no id or no reward: %s", line, want)
	}
	if r := *a.Reward; r < -most || r > most {
		return a, fmt.Errorf("reward %g of id %d: want a number from %g to %g: change the program, or set "+
			"task.max_reward", r, *a.ID, -most, most)
	}
	return a, nil
}
