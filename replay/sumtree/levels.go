package sumtree

import (
	"fmt"
	"math"
)

const (
	width    = 16 // values of a node
	maxDepth = 8  // levels that math.MaxInt32 units need
)

// node is the values that one value of the level above stands for. The allocator aligns a slice of
// whole nodes to their size, so that a node is two cache lines and not three; a test holds it to that.
type node [width]float64

// levels is the shape that Tree and Min share. The top level is one node. Values past those in use, up
// to whole nodes, are the absent value: 0 in sums, +Inf in minima.
type levels struct {
	at    [maxDepth][]float64 // at[0] the units
	depth int                 // levels in use
	n     int                 // units
}

// grow makes room for n units. top is the value of the whole; a level that becomes necessary starts
// with it, since until now it stood for everything. No other value above is touched.
func (l *levels) grow(n int, absent, top float64) {
	if n > math.MaxInt32 {
		panic(fmt.Sprintf("sumtree: %d units: want at most %d", n, math.MaxInt32))
	}
	if n <= l.n {
		return
	}
	l.n = n
	for k, values := 0, n; ; k++ {
		nodes := (values + width - 1) / width
		l.at[k] = extend(l.at[k], nodes*width, absent)
		if k == l.depth {
			l.depth++
			if k > 0 {
				l.at[k][0] = top
			}
		}
		if nodes == 1 {
			return
		}
		values = nodes
	}
}

// extend lengthens a level to n values. Its array grows by a quarter at least, so that a value is
// copied a constant number of times however small the steps are.
func extend(level []float64, n int, absent float64) []float64 {
	held := len(level)
	if n <= held {
		return level
	}
	if n > cap(level) {
		room := max(n, (cap(level)+cap(level)/4)&^(width-1))
		grown := make([]float64, n, room)
		copy(grown, level)
		level = grown
	}
	level = level[:n]
	for i := held; i < n; i++ {
		level[i] = absent
	}
	return level
}

// nodeOf returns the node of a level that value i is in.
func nodeOf(level []float64, i int) *node { return (*node)(level[i&^(width-1):]) }

// units is level 0 without what pads it to whole nodes.
func (l *levels) units() []float64 { return l.at[0][:l.n:l.n] }

func (l *levels) bytes() int {
	bytes := 0
	for _, level := range l.at {
		bytes += 8 * cap(level)
	}
	return bytes
}

// mustHave panics unless unit i exists; the padding must not be reached.
func (l *levels) mustHave(i int) {
	if uint(i) >= uint(l.n) {
		noUnit(i, l.n)
	}
}

// The panics stand apart so that what calls them stays small enough to be inlined.

func noUnit(i, n int) {
	panic(fmt.Sprintf("sumtree: unit %d: there are %d", i, n))
}

func badValue(i int, what string, v float64) {
	panic(fmt.Sprintf("sumtree: unit %d: %s %v", i, what, v))
}
