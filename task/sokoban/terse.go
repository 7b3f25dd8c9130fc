package sokoban

import "strings"

// notation is how a policy and a room talk to one another. Implementations are immutable.
type notation interface {
	// opening is the text of a prompt.
	opening(b *board) string
	// answer is what is said after a turn that did not end the episode; valid: its text was one of actions.
	answer(b *board, valid bool) string
	// write returns the text of a turn.
	write(actions []Action) string
	// read returns the actions of a turn's text, at least one and not too many; else none.
	read(text string) []Action
	// characters returns every character of the others' texts.
	characters() string
}

// terseMarks are those of the Boxoban files but for the floor, which can be seen.
func terseMarks() alphabet {
	a := marks()
	a.floor = '_'
	return a
}

// terseActions are the actions in their order: capitals push, small letters move.
const terseActions = "NUDLRudlr"

// terse is for character models: the rows of the room without the walls around it, each ended by a line end, and a
// character for every action.
type terse struct {
	actions []Action // those there are
	most    int      // in a turn
}

func (terse) opening(b *board) string { return b.draw(b.position, 1, terseMarks()) }

func (t terse) answer(b *board, _ bool) string { return t.opening(b) }

func (terse) write(actions []Action) string {
	text := make([]byte, len(actions))
	for i, a := range actions {
		text[i] = terseActions[a]
	}
	return string(text)
}

func (t terse) read(text string) []Action {
	if len(text) > t.most {
		return nil
	}
	actions := make([]Action, len(text))
	for i := range len(text) {
		k := strings.IndexByte(t.write(t.actions), text[i])
		if k < 0 {
			return nil
		}
		actions[i] = t.actions[k]
	}
	return actions
}

func (t terse) characters() string { return "\n#_.$*@+" + t.write(t.actions) }
