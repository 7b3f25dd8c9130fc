package task

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Environment is a Task of several turns: the policy writes and the environment answers until the episode is over.
type Environment interface {
	Task
	// MaxTurns returns the maximum number of turns of an episode.
	MaxTurns() int
	// Reset starts an episode from a prompt that Train or HeldOut returned. The prompt's Text and Image are the first
	// observation. The seed determines everything random in the episode.
	Reset(p Prompt, seed uint64) Episode
}

// Episode is one run of an Environment. It belongs to one goroutine.
type Episode interface {
	// Step takes the policy's text of one turn. It must not be called after Done.
	Step(response string) Step
}

// Step is the result of one turn.
type Step struct {
	Text    string // the observation that the policy reads before its next turn; empty after the last
	Image   []byte // PNG, shown before Text; nil: none
	Reward  float32
	Done    bool // the episode is over
	Cut     bool // it was ended by a limit on turns or steps, not by its own rules
	Correct bool // with Done: it ended in success, which is what pass@1 counts
	Invalid bool // the text was not an action and got the task's penalty
}

// Expert is an Episode that knows what to do.
type Expert interface {
	Episode
	// Advise returns what the best known policy would write in this turn, without the end-of-sequence token.
	Advise() string
}

// Actor is an Episode with few possible actions.
type Actor interface {
	Episode
	// Actions returns the texts that are actions now, each once.
	Actions() []string
}

// Begin starts an episode of any task. A [Verifier] has episodes of one turn, rewarded by its verdict, which are
// Experts if the task is a [Demonstrator]. Begin returns nil for a task that is neither an Environment nor a Verifier.
func Begin(t Task, p Prompt, seed uint64) Episode {
	switch t := t.(type) {
	case Environment:
		return t.Reset(p, seed)
	case Verifier:
		e := verifierEpisode{t, p, seed}
		if d, ok := t.(Demonstrator); ok {
			return demonstratedEpisode{e, d}
		}
		return e
	}
	return nil
}

// MaxTurns returns the maximum number of turns of a task's episodes: 1 if it is not an Environment.
func MaxTurns(t Task) int {
	if e, ok := t.(Environment); ok {
		return e.MaxTurns()
	}
	return 1
}

// verifierEpisode is the single turn of a task that is a Verifier.
type verifierEpisode struct {
	verifier Verifier
	prompt   Prompt
	seed     uint64
}

func (e verifierEpisode) Step(response string) Step {
	v := verify(e.verifier, e.prompt, response, e.seed)
	return Step{Reward: v.Reward, Done: true, Correct: v.Correct, Invalid: v.Extracted == ""}
}

// demonstratedEpisode is a verifierEpisode that can advise.
type demonstratedEpisode struct {
	verifierEpisode
	demonstrator Demonstrator
}

func (e demonstratedEpisode) Advise() string { return e.demonstrator.Demonstrate(e.prompt) }

// Tabular is a Task whose rules are a table.
type Tabular interface {
	Task
	// Transitions returns the whole table; the caller owns it.
	Transitions() Transitions
}

// Transitions is a finite Markov decision process as a table: by state, then by action, the outcomes in the order of
// the original environment. Outcomes with the same next state are not merged.
type Transitions [][][]Outcome

// Outcome is one possible result of an action.
type Outcome struct {
	Probability float64
	Next        int // the next state
	Reward      float64
	Done        bool // the episode is over
}

// MarshalJSON writes [probability, next, reward, done].
func (o Outcome) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{o.Probability, o.Next, o.Reward, o.Done})
}

// MarshalJSON writes {"STATE": {"ACTION": [[probability, next, reward, done], …]}}, states and actions in numeric
// order, one state per line.
func (t Transitions) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for state, actions := range t {
		if state > 0 {
			out.WriteString(",\n")
		}
		fmt.Fprintf(&out, `"%d": {`, state)
		for action, outcomes := range actions {
			if action > 0 {
				out.WriteString(", ")
			}
			if outcomes == nil {
				outcomes = []Outcome{}
			}
			text, err := json.Marshal(outcomes)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&out, `"%d": %s`, action, text)
		}
		out.WriteByte('}')
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}
