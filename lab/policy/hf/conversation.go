package hf

import (
	"errors"
	"slices"
)

// Message is what somebody says in a conversation.
type Message struct{ Role, Content string }

// assistant is the role of the policy.
const assistant = "assistant"

// Turn is what the assistant says in a conversation.
type Turn struct {
	Message    int // its number in the conversation
	Start, End int // ids, the one that ends the turn included
}

// Conversation returns the ids of a conversation up to the end of the assistant's last message, and where its turns
// are. A turn has the ids of [Dialogue.Turn], whatever the template shows of it later; the others are what the template
// puts before the first turn and between two. It needs a chat template.
func (d *Dialogue) Conversation(messages []Message) (ids []int32, turns []Turn, err error) {
	if d.template == nil {
		return nil, nil, errors.New("the dialogue has no chat template")
	}
	next := func(from int) int {
		at := slices.IndexFunc(messages[from:], func(m Message) bool { return m.Role == assistant })
		if at < 0 {
			return len(messages)
		}
		return from + at
	}
	at := next(0)
	if at == len(messages) {
		return nil, nil, errors.New("no message of the assistant")
	}
	opening, err := d.template.render(messages[:at])
	if err == nil {
		ids, err = d.tokenizer.EncodePart(opening)
	}
	for err == nil {
		var turn []int32
		if turn, err = d.Turn(messages[at].Content); err != nil {
			break
		}
		turns = append(turns, Turn{at, len(ids), len(ids) + len(turn)})
		ids = append(ids, turn...)
		following := next(at + 1)
		if following == len(messages) {
			return ids, turns, nil
		}
		var after string
		if after, err = d.afterAnswerTo(messages[:at], messages[at+1:following]); err != nil {
			break
		}
		var between []int32
		if between, err = d.encodeAfter(after); err == nil {
			ids = append(ids, between[1:]...)
		}
		at = following
	}
	return nil, nil, err
}
