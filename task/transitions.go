package task

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Outcome is one way that an action can go.
type Outcome struct {
	Probability float64
	Next        int // the state that follows
	Reward      float64
	Done        bool // the episode is over
}

// MarshalJSON writes [probability, next, reward, done].
func (o Outcome) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{o.Probability, o.Next, o.Reward, o.Done})
}

// Transitions is a finite Markov decision process as a table: by state, by action, the outcomes in the order in which the
// original lists them. Outcomes that lead to one state are not merged.
type Transitions [][][]Outcome

// MarshalJSON writes {"STATE": {"ACTION": [[probability, next, reward, done], …]}}, states and actions in numeric order, a
// state to a line.
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

// Tabular is a Task whose rules are a table.
type Tabular interface {
	Task
	// Transitions returns the whole table; the caller owns it.
	Transitions() Transitions
}
