package report

import (
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

// beyond says which measured points, marks and guides the axes leave out.
func (p plane) beyond() string {
	n := 0
	var names []string
	for _, c := range p.of.Curves {
		for _, at := range c.At {
			if !c.Dashed && at.Y.Known() && !(p.x.holds(at.X) && p.y.holds(at.Y.Float())) {
				n++
			}
		}
	}
	for _, m := range p.of.Marks {
		if !p.x.holds(m.X) || !p.y.holds(m.Y) {
			names = append(names, oneLine(m.Name))
		}
	}
	for _, g := range p.of.Guides {
		if g.X.Known() && !p.x.holds(g.X.Float()) || g.Y.Known() && !p.y.holds(g.Y.Float()) {
			names = append(names, oneLine(g.Name))
		}
	}
	if n > 0 {
		names = append([]string{countOf(n, "point")}, names...)
	}
	if len(names) == 0 {
		return ""
	}
	return "Beyond the axes: " + strings.Join(names, ", ") + "."
}

// emptyPlane says why nothing is drawn.
func emptyPlane(f *results.Figure) string {
	switch n := len(f.Curves); n {
	case 0:
		return "Nothing to draw: no run came to what this figure shows."
	case 1:
		return "Nothing to draw: its one curve never has a value."
	default:
		return fmt.Sprintf("Nothing to draw: none of its %d curves has a value.", n)
	}
}
