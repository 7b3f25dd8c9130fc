package sokoban

import "fmt"

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

// room is what does not move in a level. It does not change once its level is made.
type room struct {
	rows, columns int
	wall, target  [maxCells]bool
	targets       []cell // ascending
	boxes         int    // as many as targets
}

// position is what moves. It is a key of maps: equal positions are equal values.
type position struct {
	player cell
	boxes  [maxBoxes]cell // ascending; 0, a wall, beyond the boxes of the room
}

func newRoom(rows, columns int) (*room, error) {
	if rows < 3 || columns < 3 || rows*columns > maxCells {
		return nil, fmt.Errorf("%d rows of %d columns: want at least 3 of each and at most %d cells", rows, columns, maxCells)
	}
	return &room{rows: rows, columns: columns}, nil
}

// offset is what a step in a direction adds to a cell. Walls all around keep cells in the room.
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

// alphabet is how cells are written.
type alphabet struct{ wall, floor, target, box, boxOnTarget, player, playerOnTarget byte }

// marks are those of the Boxoban files.
func marks() alphabet {
	return alphabet{wallMark, floorMark, targetMark, boxMark, boxOnTargetMark, playerMark, playerOnTargetMark}
}

// draw writes the rows of a position but for the outermost few, each ended by a line end.
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
