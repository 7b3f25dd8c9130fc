package frozenlake

import (
	"fmt"
	"image/color"
	"strings"

	"github.com/reprise-rl/reprise/task/frame"
	"github.com/reprise-rl/reprise/task/gridworld"
)

// cue is the terse text beside a picture: it asks for an action.
const cue = ">"

// sunk is the tile of a player in a hole, in pictures.
const sunk = 'X'

// view is how the player sees a lake.
type view struct {
	images   bool
	pixels   int // of a tile's side
	ice      ice
	protocol gridworld.Protocol
	tiles    map[byte]frame.Sprite
	painter  *frame.Painter
}

// rows returns the map with the player on it.
func rows(l lake, at int, mark byte) []string {
	drawn := make([]string, len(l))
	for row := range l {
		line := []byte(l[row])
		if at/l.columns() == row {
			line[at%l.columns()] = mark
		}
		drawn[row] = string(line)
	}
	return drawn
}

// text writes the map, a line for each row, or only the cue where there is a picture.
func (v view) text(l lake, at int) string {
	if v.images {
		return cue
	}
	return strings.Join(rows(l, at, player), "\n") + "\n"
}

// observe returns what is seen after a turn.
func (v view) observe(l lake, at int, invalid bool) (string, []byte) {
	text := v.text(l, at)
	if v.protocol.Format == gridworld.Words {
		said := "\n"
		if invalid {
			said = "\nThat was no answer. " + v.protocol.Request() + "\n"
		}
		if v.images {
			text = "This is the lake now.\n"
		} else {
			text = "The lake now:\n" + text
		}
		text = said + text
	}
	return text, v.picture(l, at)
}

// prompt returns what is seen at the beginning.
func (v view) prompt(l lake, at int) (string, []byte) {
	text := v.text(l, at)
	if v.protocol.Format == gridworld.Words {
		if v.images {
			text = v.instruction()
		} else {
			text = v.instruction() + "The lake:\n" + text
		}
	}
	return text, v.picture(l, at)
}

// instruction tells a pretrained model the rules.
func (v view) instruction() string {
	legend := "P is you, S the start, F frozen, H a hole, G the goal."
	if v.images {
		legend = "The picture shows the lake from above: you are red, the start is yellow, holes are dark, the goal is green."
	}
	slips := "Every step goes the way you say; at the edge you stay where you are."
	if v.ice.slippery {
		slips = fmt.Sprintf("The ice is slippery: a step goes the way you say with probability %.3g, and with %.3g each to either side "+
			"of it; at the edge you stay where you are.", v.ice.success, (1-v.ice.success)/2)
	}
	return "Cross a frozen lake to the goal, and do not step into a hole. " + legend + "\n" + slips + "\n" + v.protocol.Request() + "\n"
}

// picture returns the PNG, nil if the player sees text.
func (v view) picture(l lake, at int) []byte {
	if !v.images {
		return nil
	}
	mark := byte(player)
	if l.tile(at) == hole {
		mark = sunk
	}
	board := make([][]frame.Sprite, len(l))
	for row, line := range rows(l, at, mark) {
		for _, tile := range []byte(line) {
			board[row] = append(board[row], v.tiles[tile])
		}
	}
	return v.painter.Draw(board, v.pixels)
}

// sprites returns the picture of each tile, of the player, and of the player in a hole.
func sprites() map[byte]frame.Sprite {
	colours := map[byte]color.RGBA{
		'.': {R: 214, G: 232, B: 246, A: 255}, // ice
		'-': {R: 176, G: 206, B: 232, A: 255}, // its edge
		'o': {R: 24, G: 44, B: 92, A: 255},    // water
		'y': {R: 240, G: 200, B: 60, A: 255},  // start
		'g': {R: 30, G: 150, B: 70, A: 255},   // goal
		'r': {R: 214, G: 40, B: 40, A: 255},   // player
		'k': {R: 40, G: 30, B: 30, A: 255},    // eyes
	}
	paint := func(rows ...string) frame.Sprite { return frame.Paint(colours, rows...) }
	return map[byte]frame.Sprite{
		frozen: paint("-------.", "-.......", "-.......", "-.......", "-.......", "-.......", "-.......", "........"),
		start:  paint("-------.", "-.......", "-.yyyy..", "-.yyyy..", "-.yyyy..", "-.yyyy..", "-.......", "........"),
		hole:   paint("-------.", "-.oooo..", "-oooooo.", "-oooooo.", "-oooooo.", "-oooooo.", "-.oooo..", "........"),
		goal:   paint("-------.", "-gggggg.", "-gggggg.", "-ggggg..", "-ggg....", "-g......", "-g......", "-g......"),
		player: paint("-------.", "-..rr...", "-.rrrr..", "-.krrk..", "-rrrrrr.", "-rrrrrr.", "-.rrrr..", "-.r..r.."),
		sunk:   paint("-------.", "-.oooo..", "-oorroo.", "-orrrro.", "-okrrko.", "-oooooo.", "-.oooo..", "........"),
	}
}
