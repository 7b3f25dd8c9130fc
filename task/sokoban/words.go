package sokoban

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// words is for models that can read: the prompt explains the game and asks for <answer>Up</answer>.
type words struct {
	actions []Action // those there are
	most    int      // in a turn
}

// The tags around the actions of a turn.
const (
	answerOpen  = "<answer>"
	answerClose = "</answer>"
)

func (w words) opening(b *board) string {
	var t strings.Builder
	t.WriteString("Sokoban. Push every box onto a target. A box moves one cell when you push it, if the cell beyond it is free; " +
		"you cannot pull, nor push two boxes at once.\n" +
		"The room: # wall, _ floor, . target, $ box, * box on a target, @ you, + you on a target.\n")
	fmt.Fprintf(&t, "Actions: %s.\n", strings.Join(w.names(), ", "))
	if w.most == 1 {
		fmt.Fprintf(&t, "Answer with one action, such as %s.\n", w.write(w.actions[len(w.actions)-1:]))
	} else {
		fmt.Fprintf(&t, "Answer with 1 to %d actions in their order, separated by commas, such as %s.\n", w.most,
			w.write([]Action{w.actions[len(w.actions)-1], w.actions[len(w.actions)-4]}))
	}
	t.WriteString(w.room(b))
	return t.String()
}

func (w words) answer(b *board, valid bool) string {
	if valid {
		return "\n" + w.room(b)
	}
	return "\nThat was no answer of the form asked for.\n" + w.room(b)
}

// room writes the cells of the room apart, so that tokenizers do not merge them.
func (words) room(b *board) string {
	rows := b.draw(b.position, 0, terseMarks())
	var t strings.Builder
	for row := range strings.Lines(rows) {
		t.WriteString(strings.Join(strings.Split(strings.TrimSuffix(row, "\n"), ""), " "))
		t.WriteByte('\n')
	}
	return t.String()
}

func (w words) write(actions []Action) string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = w.name(a)
	}
	return answerOpen + strings.Join(names, ", ") + answerClose
}

// read takes the last pair of tags, and in it names in any case, separated by commas, bars or line ends, or by any white space
// where names are single words.
func (w words) read(text string) []Action {
	end := strings.LastIndex(text, answerClose)
	if end < 0 {
		return nil
	}
	begin := strings.LastIndex(text[:end], answerOpen)
	if begin < 0 {
		return nil
	}
	var actions []Action
	separates := func(c rune) bool { return c == ',' || c == '|' || c == '\n' || !w.moves() && unicode.IsSpace(c) }
	for part := range strings.FieldsFuncSeq(text[begin+len(answerOpen):end], separates) {
		name := strings.Join(strings.Fields(part), " ")
		if name == "" {
			continue
		}
		k := slices.IndexFunc(w.names(), func(n string) bool { return strings.EqualFold(n, name) })
		if k < 0 || len(actions) == w.most {
			return nil
		}
		actions = append(actions, w.actions[k])
	}
	return actions
}

// name returns an action's name; where all actions push, a direction is enough.
func (w words) name(a Action) string {
	direction := []string{"Up", "Down", "Left", "Right"}
	switch {
	case a == NoOperation:
		return "No Operation"
	case !w.moves():
		return direction[a.direction()]
	case a.pushes():
		return "Push " + direction[a.direction()]
	}
	return "Move " + direction[a.direction()]
}

// moves reports whether there are actions that move only.
func (w words) moves() bool { return slices.Contains(w.actions, MoveUp) }

func (w words) names() []string {
	names := make([]string, len(w.actions))
	for i, a := range w.actions {
		names[i] = w.name(a)
	}
	return names
}

// characters are those of ASCII that are printed, and line ends: a small alphabet, though words is not for small models.
func (words) characters() string {
	all := []byte{'\n'}
	for c := byte(' '); c <= '~'; c++ {
		all = append(all, c)
	}
	return string(all)
}
