package task

// Environment is a Task of several turns: the policy writes, the environment answers, until the episode is over.
type Environment interface {
	Task
	// MaxTurns returns the most turns that an episode has.
	MaxTurns() int
	// Reset begins an episode in the state of a prompt, which Train or HeldOut gave and whose Text and Image are the first
	// observation. The seed decides everything random in it.
	Reset(p Prompt, seed uint64) Episode
}

// Episode is one course of an Environment. It is used from one goroutine.
type Episode interface {
	// Step lets the policy's text of one turn act. After Done there are no further steps.
	Step(response string) Step
}

// Step is what the policy's text of one turn led to.
type Step struct {
	Text    string // what the environment says next, read by the policy before its next turn; empty after the last
	Image   []byte // PNG, shown before Text; nil: none
	Reward  float32
	Done    bool // the episode is over
	Cut     bool // by a limit of turns or steps, not by its own rules
	Correct bool // at Done: it ended in success, which is what pass@1 counts
	Invalid bool // the text was no action: it got the task's penalty
}

// Expert is an Episode that knows what to do.
type Expert interface {
	Episode
	// Advise returns the text of a turn that the best policy known would write now, without the end-of-sequence token.
	Advise() string
}

// Actor is an Episode whose turns are one of few texts.
type Actor interface {
	Episode
	// Actions returns the texts that are actions now, each once.
	Actions() []string
}

// Begin begins an episode of any task. That of a [Verifier] has one turn, whose reward is the verdict's; it is an [Expert]
// where the task is a [Demonstrator]. It returns nil for a task that is neither Environment nor Verifier.
func Begin(t Task, p Prompt, seed uint64) Episode {
	switch of := t.(type) {
	case Environment:
		return of.Reset(p, seed)
	case Verifier:
		turn := single{of, p}
		if d, ok := t.(Demonstrator); ok {
			return shown{turn, d}
		}
		return turn
	}
	return nil
}

// MaxTurns returns the most turns of a task's episodes, 1 for one that is no Environment.
func MaxTurns(t Task) int {
	if e, ok := t.(Environment); ok {
		return e.MaxTurns()
	}
	return 1
}

// single is the episode of a task of one turn.
type single struct {
	verifier Verifier
	prompt   Prompt
}

func (s single) Step(response string) Step {
	v := s.verifier.Verify(s.prompt, response)
	return Step{Reward: v.Reward, Done: true, Correct: v.Correct, Invalid: v.Extracted == ""}
}

// shown is a single whose task demonstrates.
type shown struct {
	single
	demonstrator Demonstrator
}

func (s shown) Advise() string { return s.demonstrator.Demonstrate(s.prompt) }
