package figures

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/internal/words"
)

// farthest is the largest size of a number that is drawn; its inverse is the smallest on a logarithmic axis.
// Differences and margins of such numbers do not overflow.
const farthest = 1e200

// holds reports whether a value can stand on the axis, however far it goes.
func (a *Axis) holds(v Number) bool {
	return math.Abs(float64(v)) <= farthest && (!a.Log || v >= 1/farthest)
}

// scaled returns a value, or its logarithm on a logarithmic axis.
func (a *Axis) scaled(v Number) float64 {
	if a.Log {
		return math.Log10(float64(v))
	}
	return float64(v)
}

// share returns how far along the axis a value lies, 0 at its low end and 1 at its high one.
func (a *Axis) share(v Number) float64 {
	return (a.scaled(v) - a.scaled(a.Low)) / (a.scaled(a.High) - a.scaled(a.Low))
}

// shows reports whether a value stands between the ends, up to rounding.
func (a *Axis) shows(v Number) bool {
	const slack = 1e-9
	share := a.share(v)
	return a.holds(v) && share >= -slack && share <= 1+slack
}

// extent is the range of the values added so far.
type extent struct{ low, high float64 }

// nothing is the extent before any value.
func nothing() extent { return extent{math.Inf(1), math.Inf(-1)} }

// add widens the extent by the values that can stand on an axis, and reports whether there were any.
func (e *extent) add(a *Axis, values ...Number) (any bool) {
	for _, v := range values {
		if a.holds(v) {
			e.low, e.high, any = min(e.low, float64(v)), max(e.high, float64(v)), true
		}
	}
	return any
}

// padded returns the extent with a share of it added at both ends. A single value gets room around it.
func (e extent) padded(share float64) extent {
	room := cmp.Or((e.high-e.low)*share, math.Abs(e.high)*0.1, 1)
	return extent{e.low - room, e.high + room}
}

// Fit sets the ends of the axes that are none to those of the values, with some room. It reports whether there is
// anything to draw.
func (f *Figure) Fit() bool {
	xs, ys := nothing(), nothing()
	apart := false
	for i := range f.Curves {
		c := &f.Curves[i]
		for k, x := range c.X {
			if low, high := c.spread(&f.Y, k); ys.add(&f.Y, low, high, c.Y[k]) {
				xs.add(&f.X, Number(x))
			}
		}
		apart = apart || c.Apart
	}
	for _, m := range f.Marks {
		xs.add(&f.X, m.X)
		ys.add(&f.Y, m.Y)
	}
	if xs == nothing() || ys == nothing() {
		return false
	}
	for _, g := range f.Guides {
		xs.add(&f.X, g.X)
		ys.add(&f.Y, g.Y)
	}
	beside := 0.0
	if apart || xs.low == xs.high {
		beside = 0.05
	}
	f.X.reach(xs, beside)
	f.Y.reach(ys, 0.07)
	return true
}

// reach sets the ends that are none: to those of the values, with a share of their extent added.
func (a *Axis) reach(values extent, share float64) {
	shown := extent{a.scaled(Number(values.low)), a.scaled(Number(values.high))}
	if share > 0 {
		shown = shown.padded(share)
	}
	if !a.Log && values.low >= 0 { // room below 0 would say that values may lie there
		shown.low = max(0, shown.low)
	}
	if a.holds(a.Low) {
		shown.low = a.scaled(a.Low)
	}
	fixed := a.holds(a.High)
	if fixed {
		shown.high = a.scaled(a.High)
	}
	beyond := max(1, math.Abs(shown.low)/10, math.Abs(shown.high)/10)
	switch { // where an end was given beyond all values
	case shown.high > shown.low:
	case fixed:
		shown.low = shown.high - beyond
	default:
		shown.high = shown.low + beyond
	}
	a.Low, a.High = Number(shown.low), Number(shown.high)
	if a.Log {
		a.Low, a.High = Number(math.Pow(10, shown.low)), Number(math.Pow(10, shown.high))
	}
}

// tick is a place on an axis. Those without a label are smaller.
type tick struct {
	at    Number
	label string
}

// ruler finds the ticks of an axis in a drawing.
type ruler struct {
	*Axis
	length, least float64              // of the axis, and between labels
	room          func(string) float64 // that a label takes along it
	whole         bool                 // no ticks between whole numbers
}

// ticks returns as many ticks at round values as have room.
func (r ruler) ticks() []tick {
	if len(r.Names) > 0 {
		return r.densest(r.names)
	}
	if !r.Log {
		return r.densest(r.steps)
	}
	list := r.densest(r.powers)
	if len(list) < 3 { // too short an axis for powers
		return r.densest(r.steps)
	}
	if r.High <= 1e6*r.Low { // beyond, nine ticks to a power are a smear
		for _, t := range r.powersOfTen(1, 2, 3, 4, 5, 6, 7, 8, 9) {
			list = append(list, tick{at: t.at})
		}
	}
	return list
}

// densest returns the first of ever sparser choices in which labels keep clear of each other.
func (r ruler) densest(choices iter.Seq[[]tick]) (list []tick) {
	for next := range choices {
		if len(next) < 2 && len(list) > 2 {
			next = []tick{list[0], list[len(list)-1]}
		}
		if list = next; len(list) < 3 || r.fit(list) {
			break
		}
	}
	if len(list) == 2 && !r.fit(list) {
		return list[:1]
	}
	return list
}

// fit reports whether labels keep clear of each other.
func (r ruler) fit(list []tick) bool {
	for i, b := range list[1:] {
		a := list[i]
		if r.length*(r.share(b.at)-r.share(a.at)) < max(r.least, (r.room(a.label)+r.room(b.label))/2)-1e-6 {
			return false
		}
	}
	return true
}

// steps yields ticks at multiples of 1, 2, 2.5 or 5 times powers of ten.
func (r ruler) steps(yield func([]tick) bool) {
	low, high := float64(r.Low), float64(r.High)
	finest := (high - low) * r.least / r.length
	for p := math.Floor(math.Log10(finest)); !math.IsInf(p, 0) && p < 308; p++ {
		for _, m := range [4]float64{1, 2, 2.5, 5} {
			step, digits := m*math.Pow(10, p), math.Pow(10, p)
			if m == 2.5 {
				digits /= 2
			}
			if step < finest*(1-1e-9) || r.whole && step != math.Trunc(step) {
				continue
			}
			var list []tick
			first, last := math.Ceil(low/step-1e-9), math.Floor(high/step+1e-9)
			for k := range int(max(0, last-first+1)) { // counted from 0: far from 0 a step may be too small to add to
				v := (first + float64(k)) * step
				label := r.label(v, digits)
				if n := len(list); n == 0 || label != list[n-1].label {
					list = append(list, tick{Number(v), label})
				}
			}
			if !yield(list) {
				return
			}
		}
	}
}

// label writes a value with the digits that a step needs.
func (a *Axis) label(v, step float64) string {
	if a.Percent {
		return words.Minus(words.Percent(v, max(0, int(math.Ceil(-math.Log10(100*step)-1e-9)))))
	}
	return words.Tick(v, step)
}

// powers yields ticks at 1, 2 and 5 times powers of ten, at fewer of them, and at fewer powers.
func (r ruler) powers(yield func([]tick) bool) {
	for _, mantissas := range [][]float64{{1, 2, 5}, {1, 3}} {
		if !yield(r.powersOfTen(1, mantissas...)) {
			return
		}
	}
	for every := 1.0; yield(r.powersOfTen(every, 1)); every++ {
	}
}

// powersOfTen returns, in ascending order, each so manieth power of ten times each of the mantissas.
func (r ruler) powersOfTen(every float64, mantissas ...float64) (list []tick) {
	const slack = 1e-9 // ends that are such values themselves
	low, high := float64(r.Low)*(1-slack), float64(r.High)*(1+slack)
	for p := math.Floor(math.Log10(low)/every) * every; p <= math.Log10(high); p += every {
		for _, m := range mantissas {
			if v := m * math.Pow(10, p); v >= low && v <= high {
				list = append(list, tick{Number(v), r.label(v, 0)})
			}
		}
	}
	return list
}

// names yields each name, each second, each fifth, and so on.
func (r ruler) names(yield func([]tick) bool) {
	last := len(r.Names) - 1
	end := tick{Number(last), r.Names[last]}
	for power := 1; ; power *= 10 {
		for _, m := range [3]int{1, 2, 5} {
			var list []tick
			for i := 0; i <= last; i += m * power {
				list = append(list, tick{Number(i), r.Names[i]})
			}
			if r.Open {
				list = append(slices.DeleteFunc(list, func(t tick) bool { return !r.fit([]tick{t, end}) }), end)
			}
			if !yield(list) {
				return
			}
		}
	}
}
