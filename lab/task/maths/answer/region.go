package answer

import (
	"math"
	"slices"
	"strings"
)

// piece is an interval of the real line; its ends are expressions with their values.
type piece struct {
	low, high         *node
	from, to          float64
	openLow, openHigh bool
}

// region is a set of real numbers: pieces in order that do not touch. name is the variable of an inequality.
type region struct {
	name   string
	pieces []piece
}

// regionOf reads an interval, a union or difference of sets, a set of numbers, ℝ, or an inequality in one variable.
func regionOf(n *node) (region, bool) {
	switch n.op {
	case opTuple:
		if len(n.args) == 2 {
			return interval(n.args[0], n.args[1], n.name[0] == '(', n.name[1] == ')')
		}
	case opName:
		if n.name == `\mathbbR` {
			return interval(newNode(opMinus, "", infinity()), infinity(), true, true)
		}
	case opSet:
		return scattered(n.args)
	case opRegion:
		if n.name == "where" {
			r, ok := regionOf(n.args[1])
			ok = ok && r.name == n.args[0].name
			r.name = ""
			return r, ok
		}
		return combined(n)
	case opRelation:
		return inequality(n)
	case opEither:
		return united(n.args)
	}
	return region{}, false
}

func infinity() *node { return newNode(opConstant, "inf") }

// interval returns the region between two numbers, of which the first must be the smaller.
func interval(low, high *node, openLow, openHigh bool) (region, bool) {
	from, ok := place(low)
	to, okay := place(high)
	if !ok || !okay || from > to || from == to && (openLow || openHigh) {
		return region{}, false
	}
	return region{pieces: []piece{{low, high, from, to, openLow || math.IsInf(from, 0), openHigh ||
		math.IsInf(to, 0)}}}, true
}

// place returns the value of a number or an infinity.
func place(n *node) (float64, bool) {
	if sign := infinite(n); sign != 0 {
		return math.Inf(sign), true
	}
	if !n.constant() {
		return 0, false
	}
	e := evaluation{}
	v := e.at(n)
	return real(v.value), finite(v) && !e.unclear && imag(v.value) == 0
}

// scattered returns the region of single numbers.
func scattered(numbers []*node) (region, bool) {
	var all region
	for _, n := range numbers {
		one, ok := interval(n, n, false, false)
		if !ok {
			return region{}, false
		}
		all.pieces = append(all.pieces, one.pieces...)
	}
	return all.merged(), true
}

// combined returns the union of two regions, or the first without the numbers of the second.
func combined(n *node) (region, bool) {
	first, ok := regionOf(n.args[0])
	second, okay := regionOf(n.args[1])
	if !ok || !okay {
		return region{}, false
	}
	switch n.name {
	case "cup":
		first.pieces = append(slices.Clone(first.pieces), second.pieces...)
		return first.merged(), true
	case "setminus":
		for _, p := range second.pieces {
			if p.from != p.to {
				return region{}, false
			}
			first = first.without(p)
		}
		return first, true
	}
	return region{}, false
}

// united returns the union of inequalities joined by "or", all in one variable.
func united(parts []*node) (region, bool) {
	var all region
	for i, n := range parts {
		one, ok := regionOf(n)
		if !ok || i > 0 && one.name != all.name {
			return region{}, false
		}
		all.name = one.name
		all.pieces = append(all.pieces, one.pieces...)
	}
	return all.merged(), true
}

// merged sorts the pieces and joins those that touch.
func (r region) merged() region {
	slices.SortFunc(r.pieces, func(a, b piece) int {
		switch {
		case a.from < b.from || a.from == b.from && !a.openLow && b.openLow:
			return -1
		case a.from == b.from && a.openLow == b.openLow:
			return 0
		}
		return 1
	})
	var joined []piece
	for _, p := range r.pieces {
		if len(joined) == 0 || p.from > joined[len(joined)-1].to ||
			p.from == joined[len(joined)-1].to && p.openLow && joined[len(joined)-1].openHigh {
			joined = append(joined, p)
			continue
		}
		last := &joined[len(joined)-1]
		if p.to > last.to || p.to == last.to && !p.openHigh {
			last.high, last.to, last.openHigh = p.high, p.to, p.openHigh
		}
	}
	return region{r.name, joined}
}

// without removes one number.
func (r region) without(point piece) region {
	var left []piece
	for _, p := range r.pieces {
		switch x := point.from; {
		case x < p.from || x > p.to:
			left = append(left, p)
		default:
			if p.from < x {
				before := p
				before.high, before.to, before.openHigh = point.low, x, true
				left = append(left, before)
			}
			if x < p.to {
				after := p
				after.low, after.from, after.openLow = point.low, x, true
				left = append(left, after)
			}
		}
	}
	return region{r.name, left}
}

// inequality reads x > 5, 0 < x <= 1, x \ne 3 and x \in a set.
func inequality(n *node) (region, bool) {
	if n.only("in") && len(n.args) == 2 && title(n.args[0]) != "" {
		r, ok := regionOf(n.args[1])
		r.name = title(n.args[0])
		return r, ok
	}
	sides, relations := slices.Clone(n.args), strings.Fields(n.name)
	if strings.HasPrefix(relations[0], ">") {
		slices.Reverse(sides)
		slices.Reverse(relations)
		for i := range relations {
			relations[i] = strings.Replace(relations[i], ">", "<", 1)
		}
	}
	if len(sides) == 2 && relations[0] == "!=" {
		return unequal(sides)
	}
	for _, r := range relations {
		if r != "<" && r != "<=" {
			return region{}, false
		}
	}
	return between(sides, relations)
}

func unequal(sides []*node) (region, bool) {
	point, ok := interval(sides[1], sides[1], false, false)
	if !ok || sides[0].op != opName {
		return region{}, false
	}
	all, _ := interval(newNode(opMinus, "", infinity()), infinity(), true, true)
	all.name = sides[0].name
	return all.without(point.pieces[0]), true
}

// between reads a < x, x < b and a < x < b, with < or <=.
func between(sides []*node, relations []string) (region, bool) {
	low, high := newNode(opMinus, "", infinity()), infinity()
	openLow, openHigh := true, true
	var variable *node
	switch {
	case len(sides) == 3:
		low, variable, high = sides[0], sides[1], sides[2]
		openLow, openHigh = relations[0] == "<", relations[1] == "<"
	case len(sides) == 2 && title(sides[0]) != "":
		variable, high, openHigh = sides[0], sides[1], relations[0] == "<"
	case len(sides) == 2:
		low, variable, openLow = sides[0], sides[1], relations[0] == "<"
	default:
		return region{}, false
	}
	r, ok := interval(low, high, openLow, openHigh)
	r.name = title(variable)
	return r, ok && r.name != ""
}

// same reports whether two regions have the same numbers, and the same variable if both name one.
func (r region) same(other region) bool {
	if r.name != "" && other.name != "" && r.name != other.name {
		return false
	}
	return slices.EqualFunc(r.pieces, other.pieces, func(a, b piece) bool {
		return a.openLow == b.openLow && a.openHigh == b.openHigh && sameValue(a.low, b.low) && sameValue(a.high,
			b.high)
	})
}
