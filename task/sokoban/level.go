package sokoban

import (
	"errors"
	"fmt"
	"strings"
)

// What the cells of a level are written as: the characters of the Boxoban files.
const (
	wallMark           = '#'
	floorMark          = ' '
	targetMark         = '.'
	boxMark            = '$'
	boxOnTargetMark    = '*'
	playerMark         = '@'
	playerOnTargetMark = '+'
)

// Level is a room and where its boxes and its player begin.
type Level struct {
	room  *room
	start position
}

// Parse reads one level: rows of equal length, walls all around, one player, as many boxes as targets and at least one box
// that is off its target. A line end after the last row is allowed.
func Parse(text string) (Level, error) {
	rows := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	r, err := newRoom(len(rows), len(rows[0]))
	if err != nil {
		return Level{}, err
	}
	l := Level{room: r}
	players := 0
	for i, row := range rows {
		if len(row) != r.columns {
			return Level{}, fmt.Errorf("row %d: %d columns: want %d, as in the first row", i+1, len(row), r.columns)
		}
		for j := range len(row) {
			at := cell(i*r.columns + j)
			if err := l.put(at, row[j], &players); err != nil {
				return Level{}, fmt.Errorf("row %d, column %d: %w", i+1, j+1, err)
			}
		}
	}
	return l, l.check(players)
}

// put places what a character stands for, cells in ascending order.
func (l *Level) put(at cell, mark byte, players *int) error {
	r := l.room
	border := !r.inside(at)
	switch mark {
	case wallMark:
		r.wall[at] = true
	case floorMark, targetMark, boxMark, boxOnTargetMark, playerMark, playerOnTargetMark:
		if border {
			return fmt.Errorf("%q: want %q all around the room", mark, wallMark)
		}
	default:
		return fmt.Errorf("%q: want one of %q", mark, "# .$*@+")
	}
	if mark == targetMark || mark == boxOnTargetMark || mark == playerOnTargetMark {
		r.target[at] = true
		r.targets = append(r.targets, at)
	}
	if mark == boxMark || mark == boxOnTargetMark {
		if r.boxes == maxBoxes {
			return fmt.Errorf("%q: want at most %d boxes", mark, maxBoxes)
		}
		l.start.boxes[r.boxes] = at
		r.boxes++
	}
	if mark == playerMark || mark == playerOnTargetMark {
		l.start.player = at
		*players++
	}
	return nil
}

func (l *Level) check(players int) error {
	var errs []error
	if players != 1 {
		errs = append(errs, fmt.Errorf("%d players: want 1", players))
	}
	if n := len(l.room.targets); n != l.room.boxes || n == 0 {
		errs = append(errs, fmt.Errorf("%d boxes, %d targets: want as many, and at least one", l.room.boxes, n))
	} else if l.room.onTarget(l.start) == n {
		errs = append(errs, errors.New("all boxes are on targets: want one that is not"))
	}
	return errors.Join(errs...)
}

// String writes the level as Parse reads it, every row ended by a line end.
func (l Level) String() string { return l.room.draw(l.start, 0, marks()) }

// Size returns the rows and columns of the level, its walls included.
func (l Level) Size() (rows, columns int) { return l.room.rows, l.room.columns }

// Boxes returns the number of boxes, which is that of the targets.
func (l Level) Boxes() int { return l.room.boxes }

// id is short and the same for equal levels only.
func (l Level) id() string {
	inner := l.room.draw(l.start, 1, terseMarks())
	return "sokoban/" + strings.ReplaceAll(strings.TrimSuffix(inner, "\n"), "\n", "/")
}
