package sokoban

// reach is where the player can walk to without pushing.
type reach struct {
	steps [maxCells]int16 // from the player's cell; unreached where it cannot walk
	cells []cell          // those reached, the nearest first
	least cell            // the lowest of them: the same wherever in its region the player stands
}

const unreached = -1

// walk fills in where the player can walk to; occupied are the cells of walls and boxes.
func (w *reach) walk(r *room, from cell, occupied *[maxCells]bool) {
	for i := range r.rows * r.columns {
		w.steps[i] = unreached
	}
	w.steps[from] = 0
	w.cells = append(w.cells[:0], from)
	w.least = from
	for i := 0; i < len(w.cells); i++ {
		at := w.cells[i]
		w.least = min(w.least, at)
		for d := range directions {
			if to := at + r.offset(d); !occupied[to] && w.steps[to] == unreached {
				w.steps[to] = w.steps[at] + 1
				w.cells = append(w.cells, to)
			}
		}
	}
}

// path appends the moves from the player's cell to a cell that is reached.
func (w *reach) path(r *room, to cell, plan []Action) []Action {
	start := len(plan)
	for range w.steps[to] {
		plan = append(plan, 0)
	}
	for i := len(plan) - 1; i >= start; i-- {
		for d := range directions {
			from := to - r.offset(d)
			if w.steps[from] != unreached && w.steps[from] == w.steps[to]-1 {
				plan[i], to = move(d), from
				break
			}
		}
	}
	return plan
}

// occupied marks the walls and boxes.
func (r *room) occupied(p *position) [maxCells]bool {
	o := r.wall
	for _, b := range p.boxes[:r.boxes] {
		o[b] = true
	}
	return o
}
