package sokoban

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A room has at most maxCells cells, so that a cell is a byte, and maxBoxes boxes, so that a position is a small array.
const (
	maxCells = 256
	maxBoxes = 10
)

// cell is row*columns + column.
type cell = uint8

// direction is one of gym-sokoban's: up, down, left, right.
type direction int

const (
	up direction = iota
	down
	left
	right
	directions
)

// room is the part of a level that does not move. It is immutable once its level is made.
type room struct {
	rows, columns int
	wall, target  [maxCells]bool
	targets       []cell // ascending
	boxes         int    // as many as targets
}

// position is the part that moves. Equal positions are equal values, so it can be a map key.
type position struct {
	player cell
	boxes  [maxBoxes]cell // ascending; 0, a wall, after the boxes of the room
}

func newRoom(rows, columns int) (*room, error) {
	if rows < 3 || columns < 3 || rows*columns > maxCells {
		return nil, fmt.Errorf("%d rows of %d columns: want at least 3 of each and at most %d cells", rows, columns,
			maxCells)
	}
	return &room{rows: rows, columns: columns}, nil
}

// offset is the difference of cells that a step in a direction makes. Walls all around keep cells in the room.
func (r *room) offset(d direction) cell {
	switch d {
	case up:
		return cell(-r.columns & 0xff)
	case down:
		return cell(r.columns)
	case left:
		return 0xff
	}
	return 1
}

// inside reports whether a cell is not in the outermost rows and columns.
func (r *room) inside(at cell) bool {
	i, j := int(at)/r.columns, int(at)%r.columns
	return i > 0 && i < r.rows-1 && j > 0 && j < r.columns-1
}

// onTarget counts the boxes that are on targets.
func (r *room) onTarget(p position) int {
	n := 0
	for _, b := range p.boxes[:r.boxes] {
		if r.target[b] {
			n++
		}
	}
	return n
}

// box returns the number of the box on a cell, -1 if there is none.
func (r *room) box(p *position, at cell) int {
	for i, b := range p.boxes[:r.boxes] {
		if b == at {
			return i
		}
	}
	return -1
}

// shift moves a box to a cell and keeps the boxes in order.
func (r *room) shift(p *position, box int, to cell) {
	b := p.boxes[:r.boxes]
	for ; box > 0 && b[box-1] > to; box-- {
		b[box] = b[box-1]
	}
	for ; box+1 < len(b) && b[box+1] < to; box++ {
		b[box] = b[box+1]
	}
	b[box] = to
}

// alphabet is the characters that cells are written as.
type alphabet struct{ wall, floor, target, box, boxOnTarget, player, playerOnTarget byte }

// marks are those of the Boxoban files; terseMarks are those of prompts, in which the floor is visible.
var (
	marks      = alphabet{'#', ' ', '.', '$', '*', '@', '+'}
	terseMarks = alphabet{'#', '_', '.', '$', '*', '@', '+'}
)

// draw writes the rows of a position, without some of the outermost, each ended by a line break.
func (r *room) draw(p position, outermost int, a alphabet) string {
	text := make([]byte, 0, r.rows*(r.columns+1))
	for i := outermost; i < r.rows-outermost; i++ {
		for j := outermost; j < r.columns-outermost; j++ {
			text = append(text, r.mark(&p, cell(i*r.columns+j), a))
		}
		text = append(text, '\n')
	}
	return string(text)
}

func (r *room) mark(p *position, at cell, a alphabet) byte {
	plain, onTarget := a.floor, a.target
	switch {
	case r.wall[at]:
		return a.wall
	case p.player == at:
		plain, onTarget = a.player, a.playerOnTarget
	case r.box(p, at) >= 0:
		plain, onTarget = a.box, a.boxOnTarget
	}
	if r.target[at] {
		return onTarget
	}
	return plain
}

// level is a room with the initial position of its boxes and its player.
type level struct {
	room  *room
	start position
}

// parse reads one level: rows of equal length, walls all around, one player, as many boxes as targets, and at least one
// box off its target. A line break after the last row is allowed.
func parse(text string) (level, error) {
	rows := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	r, err := newRoom(len(rows), len(rows[0]))
	if err != nil {
		return level{}, err
	}
	l := level{room: r}
	players := 0
	for i, row := range rows {
		if len(row) != r.columns {
			return level{}, fmt.Errorf("row %d: %d columns: want %d, as in the first row", i+1, len(row), r.columns)
		}
		for j := range len(row) {
			at := cell(i*r.columns + j)
			if err := l.put(at, row[j], &players); err != nil {
				return level{}, fmt.Errorf("row %d, column %d: %w", i+1, j+1, err)
			}
		}
	}
	return l, l.check(players)
}

// put places what a character stands for. Cells must come in ascending order.
func (l *level) put(at cell, mark byte, players *int) error {
	r := l.room
	switch {
	case !strings.ContainsRune("# .$*@+", rune(mark)):
		return fmt.Errorf("%q: want one of %q", mark, "# .$*@+")
	case mark == marks.wall:
		r.wall[at] = true
	case !r.inside(at):
		return fmt.Errorf("%q: want %q all around the room", mark, marks.wall)
	}
	if mark == marks.target || mark == marks.boxOnTarget || mark == marks.playerOnTarget {
		r.target[at] = true
		r.targets = append(r.targets, at)
	}
	if mark == marks.box || mark == marks.boxOnTarget {
		if r.boxes == maxBoxes {
			return fmt.Errorf("%q: want at most %d boxes", mark, maxBoxes)
		}
		l.start.boxes[r.boxes] = at
		r.boxes++
	}
	if mark == marks.player || mark == marks.playerOnTarget {
		l.start.player = at
		*players++
	}
	return nil
}

func (l *level) check(players int) error {
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

// String writes the level as parse reads it, every row ended by a line break.
func (l level) String() string { return l.room.draw(l.start, 0, marks) }

// id is short, and the same for equal levels only.
func (l level) id() string {
	inner := l.room.draw(l.start, 1, terseMarks)
	return "sokoban/" + strings.ReplaceAll(strings.TrimSuffix(inner, "\n"), "\n", "/")
}

// readLevels reads levels in the format of the Boxoban files: a line that begins with ";" announces a level, and its
// rows follow until a blank line or the next announcement. Announcements may be missing. An error names the line where
// the level begins.
func readLevels(from io.Reader) ([]level, error) {
	var levels []level
	var rows []string
	line, first := 0, 0
	end := func() error {
		if len(rows) == 0 {
			return nil
		}
		l, err := parse(strings.Join(rows, "\n"))
		if err != nil {
			return fmt.Errorf("level of line %d: %w", first, err)
		}
		levels, rows = append(levels, l), rows[:0]
		return nil
	}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		line++
		row := strings.TrimRight(strings.TrimPrefix(lines.Text(), "\ufeff"), " \t\r") // a level's rows end in walls
		if row != "" && row[0] != ';' {
			if len(rows) == 0 {
				first = line
			}
			rows = append(rows, row)
			continue
		}
		if err := end(); err != nil {
			return nil, err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: too long for the row of a level", line+1)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return levels, end()
}

// readPath reads a file of levels, or all files of a folder that end in .txt, in the order of their names.
func readPath(path string) ([]level, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readFile(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var levels []level
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".txt" {
			continue
		}
		more, err := readFile(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		levels = append(levels, more...)
	}
	return levels, nil
}

func readFile(path string) ([]level, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	levels, err := readLevels(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return levels, nil
}
