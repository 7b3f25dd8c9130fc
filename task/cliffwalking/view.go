package cliffwalking

import (
	"strings"

	"github.com/reprise-rl/reprise/task/gridworld"
)

// view is how the player sees where they are.
type view struct {
	slippery bool
	protocol gridworld.Protocol
}

// cell names a cell by its row, 0 to 3 from above, and its column, a to l from the left: the start is 3a, the goal 3l. The map
// is always the same, so that this is all there is to know.
func cell(at int) string { return string([]byte{'0' + byte(at/width), 'a' + byte(at%width)}) }

// picture draws the map, a line for each row.
func picture(at int) string {
	var b strings.Builder
	for s := range height * width {
		tile := byte('.')
		switch {
		case s == at:
			tile = 'P'
		case s == start:
			tile = 'S'
		case s == goal:
			tile = 'G'
		case isCliff(s):
			tile = 'C'
		}
		b.WriteByte(tile)
		if s%width == width-1 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// observe returns what is seen after a turn.
func (v view) observe(at int, invalid bool) (string, []byte) {
	if v.protocol.Format != gridworld.Words {
		return cell(at), nil
	}
	said := "\n"
	if invalid {
		said = "\nThat was no answer. " + v.protocol.Request() + "\n"
	}
	return said + "The map now:\n" + picture(at), nil
}

// prompt returns what is seen at the beginning.
func (v view) prompt(at int) string {
	if v.protocol.Format != gridworld.Words {
		return cell(at)
	}
	slips := "Every step goes the way you say; at the edge of the map you stay where you are."
	if v.slippery {
		slips = "The ground is slippery: a step goes the way you say in one of three cases, and to either side of it in one each; " +
			"at the edge of the map you stay where you are."
	}
	return "Walk along a cliff to the goal, in as few steps as you can. P is you, S the start, C the cliff, G the goal.\n" + slips +
		" A step over the cliff takes you back to the start and costs as much as 100 steps.\n" + v.protocol.Request() +
		"\nThe map:\n" + picture(at)
}
