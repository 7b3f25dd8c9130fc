package frozenlake

import (
	"fmt"
	"image/color"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/frame"
	"github.com/reprise-rl/reprise/lab/task/gridworld"
)

// Tiles of a map.
const (
	start  = 'S'
	frozen = 'F'
	hole   = 'H'
	goal   = 'G'
	player = 'P' // in observations, on whatever tile
)

// letters and names are of the actions, by Gymnasium's numbers.
const letters = "LDRU"

func names() []string { return []string{"Left", "Down", "Right", "Up"} }

// lake is a map: rows of tiles, all of one length.
type lake []string

// standard returns Gymnasium's map of a size, nil if there is none.
func standard(size int) lake {
	switch size {
	case 4:
		return lake{"SFFF", "FHFH", "FFFH", "HFFG"}
	case 8:
		return lake{"SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"}
	}
	return nil
}

// random draws a map: S and G in opposite corners, every other tile frozen with probability p, else a hole. It draws
// again until there is a path from S to G.
func random(r *rand.Rand, size int, p float64) lake {
	for {
		tiles := make([]byte, size*size)
		for i := range tiles {
			tiles[i] = hole
			if r.Float64() < p {
				tiles[i] = frozen
			}
		}
		tiles[0], tiles[size*size-1] = start, goal
		l := make(lake, size)
		for row := range l {
			l[row] = string(tiles[row*size : (row+1)*size])
		}
		if l.crossable(0) {
			return l
		}
	}
}

func (l lake) columns() int      { return len(l[0]) }
func (l lake) states() int       { return len(l) * len(l[0]) }
func (l lake) tile(s int) byte   { return l[s/len(l[0])][s%len(l[0])] }
func (l lake) ends(s int) bool   { return l.tile(s) == hole || l.tile(s) == goal }
func (l lake) String() string    { return strings.Join(l, "/") }
func (l lake) isGoal(s int) bool { return l.tile(s) == goal }

// rectangular reports whether the map has tiles, in rows of one length.
func (l lake) rectangular() bool {
	return len(l) > 0 && len(l[0]) > 0 && !slices.ContainsFunc(l,
		func(row string) bool { return len(row) != len(l[0]) })
}

// valid reports whether the map has a start, and a path from each start to a goal.
func (l lake) valid() bool {
	if !l.rectangular() {
		return false
	}
	starts := l.starts(false)
	return len(starts) > 0 && !slices.ContainsFunc(starts, func(s int) bool { return !l.crossable(s) })
}

// starts returns the cells that episodes may begin in: those of S, or anywhere from which a goal can be reached.
func (l lake) starts(anywhere bool) []int {
	var cells []int
	for s := range l.states() {
		if l.tile(s) == start && !anywhere || anywhere && !l.ends(s) && l.crossable(s) {
			cells = append(cells, s)
		}
	}
	return cells
}

// crossable reports whether a path without a hole leads from a state to a goal.
func (l lake) crossable(from int) bool {
	seen := make([]bool, l.states())
	for frontier := []int{from}; len(frontier) > 0; {
		s := frontier[len(frontier)-1]
		frontier = frontier[:len(frontier)-1]
		if l.isGoal(s) {
			return true
		}
		if seen[s] || l.ends(s) {
			continue
		}
		seen[s] = true
		for a := range len(letters) {
			frontier = append(frontier, l.move(s, a))
		}
	}
	return false
}

// move returns the state one step away, or the same state at the edge.
func (l lake) move(s, action int) int { return gridworld.Move(s, len(l), l.columns(), letters[action]) }

// ice determines moves and rewards.
type ice struct {
	slippery bool
	success  float64    // probability of the intended direction, if slippery
	rewards  [3]float64 // for reaching the goal, a hole, a frozen tile
}

// table returns the transitions in Gymnasium's order. In holes and goals every action stays, done, without a reward.
func (l lake) table(i ice) task.Transitions {
	odds := []float64{1}
	if i.slippery {
		aside := (1 - i.success) / 2
		odds = []float64{aside, i.success, aside}
	}
	t := gridworld.Slide(l.states(), len(letters), odds, func(s, direction int) task.Outcome {
		next := l.move(s, direction)
		reward := i.rewards[2]
		switch l.tile(next) {
		case goal:
			reward = i.rewards[0]
		case hole:
			reward = i.rewards[1]
		}
		return task.Outcome{Next: next, Reward: reward, Done: l.ends(next)}
	})
	for s := range t {
		for a := range t[s] {
			if l.ends(s) {
				t[s][a] = []task.Outcome{{Probability: 1, Next: s, Done: true}}
			}
		}
	}
	return t
}

// cue is the terse text that goes with a picture: it asks for an action.
const cue = ">"

// sunk is the tile of a player in a hole, in pictures.
const sunk = 'X'

// drawn returns the rows of the map with the player on it.
func (l lake) drawn(at int, mark byte) []string {
	rows := slices.Clone(l)
	row, column := at/l.columns(), at%l.columns()
	rows[row] = rows[row][:column] + string(mark) + rows[row][column+1:]
	return rows
}

// text writes the map, one line per row, or only the cue if there is a picture.
func (t *Task) text(l lake, at int) string {
	if t.settings.Images {
		return cue
	}
	return strings.Join(l.drawn(at, player), "\n") + "\n"
}

// observe returns what the player sees after a turn.
func (t *Task) observe(l lake, at int, invalid bool) (string, []byte) {
	text := t.text(l, at)
	if task.InWords(t.settings.Format) {
		if t.settings.Images {
			text = "This is the lake now.\n"
		} else {
			text = "The lake now:\n" + text
		}
		text = t.protocol.Reply(invalid) + text
	}
	return text, t.picture(l, at)
}

// opening returns what the player sees at first.
func (t *Task) opening(l lake, at int) (string, []byte) {
	text := t.text(l, at)
	if task.InWords(t.settings.Format) {
		if t.settings.Images {
			text = t.instruction()
		} else {
			text = t.instruction() + "The lake:\n" + text
		}
	}
	return text, t.picture(l, at)
}

// instruction explains the rules to a pretrained model.
func (t *Task) instruction() string {
	legend := "P is you, S the start, F frozen, H a hole, G the goal."
	if t.settings.Images {
		legend = "The picture shows the lake from above: you are red, the start is yellow, holes are dark, the goal " +
			"is green."
	}
	slips := "Every step goes the way you say; at the edge you stay where you are."
	if t.ice.slippery {
		slips = fmt.Sprintf("The ice is slippery: a step goes the way you say with probability %.3g, and with %.3g "+
			"each to either side of it; at the edge you stay where you are.", t.ice.success, (1-t.ice.success)/2)
	}
	return "Cross a frozen lake to the goal, and do not step into a hole. " + legend + "\n" + slips + "\n" +
		t.protocol.Request() + "\n"
}

// picture returns the PNG, nil if the player sees text.
func (t *Task) picture(l lake, at int) []byte {
	if !t.settings.Images {
		return nil
	}
	mark := byte(player)
	if l.tile(at) == hole {
		mark = sunk
	}
	board := make([][]frame.Sprite, len(l))
	for row, line := range l.drawn(at, mark) {
		for _, tile := range []byte(line) {
			board[row] = append(board[row], t.tiles[tile])
		}
	}
	return t.painter.Draw(board, t.settings.Tile)
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
