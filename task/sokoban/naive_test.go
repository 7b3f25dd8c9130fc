package sokoban

import "strings"

// naive is the game once more, on rows of characters, for the tests: it shares nothing with the package but the notation of
// levels.
type naive struct{ rows []string }

func newNaive(text string) naive {
	return naive{strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
}

func (n naive) String() string { return strings.Join(n.rows, "\n") + "\n" }

func (n naive) count(marks string) int {
	total := 0
	for _, row := range n.rows {
		for _, c := range row {
			total += strings.Count(marks, string(c))
		}
	}
	return total
}

func (n naive) at(i, j int) byte { return n.rows[i][j] }

// exchange replaces what stands on a cell (a space: nothing) by something else, the floor or target below it staying.
func (n *naive) exchange(i, j int, thing byte) {
	target := strings.IndexByte(".*+", n.at(i, j)) >= 0
	on := map[byte]string{' ': " .", '$': "$*", '@': "@+"}[thing]
	k := 0
	if target {
		k = 1
	}
	row := []byte(n.rows[i])
	row[j] = on[k]
	rows := append([]string{}, n.rows...)
	rows[i] = string(row)
	n.rows = rows
}

func (n naive) player() (int, int) {
	for i, row := range n.rows {
		if j := strings.IndexAny(row, "@+"); j >= 0 {
			return i, j
		}
	}
	panic("no player")
}

// act plays an action by gym-sokoban's number and returns its reward in tenths.
func (n *naive) act(action int) (tenths int, complete, pushed bool) {
	di := []int{0, -1, 1, 0, 0, -1, 1, 0, 0}[action]
	dj := []int{0, 0, 0, -1, 1, 0, 0, -1, 1}[action]
	before := n.count("*")
	if i, j := n.player(); action > 0 {
		next := n.at(i+di, j+dj)
		switch {
		case next == ' ' || next == '.':
			n.exchange(i, j, ' ')
			n.exchange(i+di, j+dj, '@')
		case (next == '$' || next == '*') && action <= 4:
			if beyond := n.at(i+2*di, j+2*dj); beyond == ' ' || beyond == '.' {
				n.exchange(i+2*di, j+2*dj, '$')
				n.exchange(i+di, j+dj, '@')
				n.exchange(i, j, ' ')
				pushed = true
			}
		}
	}
	tenths = -1
	if after := n.count("*"); after > before {
		tenths += 10
	} else if after < before {
		tenths -= 10
	}
	if n.count("$") == 0 {
		return tenths + 100, true, pushed
	}
	return tenths, false, pushed
}

// fewest returns the fewest steps, or pushes, that solve a level, -1 if there is no way: breadth first through every position
// of player and boxes, free steps before costly ones.
func (n naive) fewest(pushes bool) int {
	costs := map[string]int{n.String(): 0}
	now := []naive{n}
	for cost := 0; len(now) > 0; cost++ {
		var later []naive
		for k := 0; k < len(now); k++ {
			here := now[k]
			if costs[here.String()] < cost {
				continue
			}
			if here.count("$") == 0 {
				return cost
			}
			for action := 1; action <= 4; action++ {
				next := here
				_, _, pushed := next.act(action)
				price := cost
				if pushed || !pushes {
					price++
				}
				if known, met := costs[next.String()]; met && known <= price {
					continue
				}
				costs[next.String()] = price
				if price == cost {
					now = append(now, next)
				} else {
					later = append(later, next)
				}
			}
		}
		now = later
	}
	return -1
}
