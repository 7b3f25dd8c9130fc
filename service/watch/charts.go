package watch

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"time"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
)

// bar is one bar of a chart.
type bar struct {
	label string // below it, if there is room
	value float64
	about string // tooltip
	open  bool   // includes all larger values
}

// bars draws a bar chart over an axis.
func bars(list []bar, unit string, y figures.Axis, colour, about string) (template.HTML, template.JS) {
	const few = 8 // bars, which are kept narrow
	last := len(list) - 1
	f := figures.Figure{Title: about, Y: y, X: figures.Axis{Title: unit, Low: -0.5,
		High: figures.Number(max(last, few-1)) + 0.5, Open: list[last].open}}
	c := figures.Curve{Name: y.Title, Arm: y.Title, Colour: colour, Bars: true}
	for i, b := range list {
		c.X, c.Y = append(c.X, float64(i)), append(c.Y, figures.Number(b.value))
		f.Labels, f.X.Names = append(f.Labels, b.about), append(f.X.Names, b.label)
	}
	f.Curves = []figures.Curve{c}
	d := f.Draw(figures.Size{Class: "half", Width: 320, Height: 160})
	return d.SVG[0], d.Data
}

// sparkline draws the rates of the last window, up to now; nothing if there are none.
func sparkline(list []rate, now time.Time, window time.Duration, colour, title string) figures.Drawing {
	c := figures.Curve{Name: title, Arm: title, Colour: colour, Filled: true}
	most := 0.0
	for _, r := range list {
		if ago := now.Sub(r.at); ago <= window && ago >= 0 {
			most = max(most, r.value)
			c.X, c.Y = append(c.X, -ago.Seconds()), append(c.Y, figures.Number(r.value))
		}
	}
	f := figures.Figure{
		Title: fmt.Sprintf("rollouts %s per second, the last %s", title, words.Span(window)), Noisy: true,
		X:      figures.Axis{Title: "seconds", Low: figures.Number(-window.Seconds())},
		Y:      figures.Axis{Title: "rollouts per second", High: figures.Number(cmp.Or(most, 1))},
		Curves: []figures.Curve{c},
	}
	return f.Draw(figures.Size{Class: "spark", Width: 320, Height: 44, Bare: true})
}

// window is how far back the charts of a table's history go.
type window struct {
	Key, Name string
	span      time.Duration
}

func windows() []window {
	return []window{{"5m", "5 min", 5 * time.Minute}, {"1h", "1 h", time.Hour}, {"6h", "6 h", 6 * time.Hour},
		{"24h", "24 h", daySpan}}
}

// windowOf returns the window that an address asks for; without one, an hour.
func windowOf(key string) window {
	list := windows()
	for _, w := range list {
		if w.Key == key {
			return w
		}
	}
	return list[1]
}

// flow is a curve of a history: its name, its colour, and its value between two points.
type flow struct {
	name, colour string
	of           func(before, after point) float64
}

// historyCard draws flows over a window.
func historyCard(title string, y figures.Axis, points []point, w window, flows ...flow) card {
	c := card{Title: title, Empty: "Not enough has been recorded yet."}
	now := points[len(points)-1].at
	back := min(w.span, max(time.Minute, now.Sub(points[0].at))) // as far as there is something to see
	unit, name := time.Minute, "minutes"
	if back > 2*time.Hour {
		unit, name = time.Hour, "hours"
	}
	f := figures.Figure{Title: title + ", the last " + w.Name, Noisy: true, Y: y,
		X: figures.Axis{Title: name, Low: figures.Number(-float64(back) / float64(unit)), High: 0}}
	most := 0.0
	for _, flow := range flows {
		curve := figures.Curve{Name: flow.name, Arm: flow.name, Colour: flow.colour}
		for i := 1; i < len(points); i++ {
			ago, value := now.Sub(points[i].at), flow.of(points[i-1], points[i])
			if ago <= back && !math.IsNaN(value) {
				curve.X = append(curve.X, -float64(ago)/float64(unit))
				curve.Y = append(curve.Y, figures.Number(value))
				most = max(most, value)
			}
		}
		f.Curves = append(f.Curves, curve)
	}
	if math.IsNaN(float64(f.Y.High)) && most == 0 {
		f.Y.High = 1
	}
	if len(points) > 2 {
		d := f.Draw(figures.Size{Class: "half", Width: 320, Height: 160})
		if len(d.SVG) > 0 {
			c.Chart, c.Data, c.Legend = d.SVG[0], d.Data, d.Legend
		}
	}
	return c
}

// perSecond returns the increase of a counter per second, NaN if it began anew.
func perSecond(of func(point) uint64) func(before, after point) float64 {
	return func(before, after point) float64 {
		took := after.at.Sub(before.at).Seconds()
		if took <= 0 || of(after) < of(before) {
			return math.NaN()
		}
		return float64(of(after)-of(before)) / took
	}
}

// shareOfTime returns by what share of the time a duration grew.
func shareOfTime(of func(point) time.Duration) func(before, after point) float64 {
	return func(before, after point) float64 {
		return min(1, ratio(float64(of(after)-of(before)), float64(after.at.Sub(before.at))))
	}
}

// historyCards draw a table's rates, its waits and its size over a window.
func historyCards(v *service.TableView, p past, w window) []card {
	points := p.over(w.span)
	axis := func(title string) figures.Axis { return figures.Axis{Title: title, Low: 0, High: figures.None()} }
	waits := []flow{
		{"for a batch", "out", shareOfTime(func(p point) time.Duration { return p.samplesWaited })},
		{"for room", "in", shareOfTime(func(p point) time.Duration { return p.insertsWaited })},
	}
	if v.Gate != nil {
		starts := shareOfTime(func(p point) time.Duration { return p.startsWaited })
		waits = append(waits, flow{"at the gate", "since", starts})
	}
	share := axis("share of the time")
	share.High, share.Percent = 1, true
	return []card{
		historyCard("Rollouts per second", axis("rollouts/s"), points, w,
			flow{"inserted", "in", perSecond(func(p point) uint64 { return p.inserted })},
			flow{"sampled", "out", perSecond(func(p point) uint64 { return p.sampled })}),
		historyCard("Callers wait", share, points, w, waits...),
		historyCard("Rollouts in the table", axis("rollouts"), points, w, flow{"rollouts", "size",
			func(_, after point) float64 { return float64(after.present) }}),
	}
}

// maxBars is the most bars of a histogram.
const maxBars = 20

// bucket is the values [from, to] of a histogram. A to of -1 includes all larger values.
type bucket struct {
	from, to int64
	n        uint64
}

func (b bucket) label() string {
	label := words.Amount(float64(b.from))
	if b.to == -1 {
		label += "+"
	}
	return label
}

// about writes the range of the bucket.
func (b bucket) about() string {
	switch b.to {
	case b.from:
		return words.Thousands(b.from)
	case -1:
		return words.Thousands(b.from) + " or more"
	}
	return words.Thousands(b.from) + " to " + words.Thousands(b.to)
}

// bucketsTo divides [0, last] into at most maxBars ranges whose width is 1, 2 or 5 times a power of ten.
func bucketsTo(last int64) (list []bucket, width int64) {
	width = 1
	for i := 0; last/width >= maxBars-1; i++ {
		width = []int64{2, 5, 10}[i%3] * int64(math.Pow(10, float64(i/3)))
	}
	for from := int64(0); from <= last; from += width {
		list = append(list, bucket{from: from, to: from + width - 1})
	}
	return list, width
}

// bucketsOf divides a histogram into equal ranges. They end at the 99% quantile, so that outliers do not flatten the
// rest; the last bucket takes the outliers.
func bucketsOf(h *rollout.Histogram) []bucket {
	if h.Count() == 0 {
		return nil
	}
	last := h.Quantile(0.99)
	if h.Max() < maxBars {
		last = h.Max()
	}
	list, width := bucketsTo(last)
	end := int64(len(list)) * width
	for _, b := range h.Bins() {
		if b.Value < end {
			list[b.Value/width].n += b.Count
			continue
		}
		if list[len(list)-1].to >= 0 {
			list = append(list, bucket{from: end, to: -1})
		}
		list[len(list)-1].n += b.Count
	}
	return list
}

// histogramBars returns a histogram's buckets as bars, with the unit of the values and the name of the things counted.
func histogramBars(h *rollout.Histogram, unit, things string) []bar {
	var list []bar
	for _, b := range bucketsOf(h) {
		list = append(list, bar{
			label: b.label(), value: float64(b.n), open: b.to == -1,
			about: fmt.Sprintf("%s %s: %s %s, %s", b.about(), unit, words.Thousands(b.n), things,
				percent(float64(b.n)/float64(h.Count()))),
		})
	}
	return list
}

// priorityBars returns the probability of a draw by age.
func priorityBars(shares []replay.AgeShare) (list []bar) {
	if len(shares) == 0 {
		return nil
	}
	buckets, width := bucketsTo(int64(shares[len(shares)-1].Age))
	type group struct{ probability, base, units float64 }
	groups := make([]group, len(buckets))
	for _, s := range shares {
		g := &groups[int64(s.Age)/width]
		g.probability += s.Probability
		g.base += s.Base * float64(s.Units)
		g.units += float64(s.Units)
	}
	for i, g := range groups {
		list = append(list, bar{label: buckets[i].label(), value: g.probability,
			about: fmt.Sprintf("age %s: %s of the draws, among %s with a mean priority base of %s", buckets[i].about(),
				percent(g.probability), words.Plural(uint64(g.units), "unit"), words.Amount(ratio(g.base, g.units)))})
	}
	return list
}

// essBars returns the effective sample size by age. Ages without a report have a bar of height 0.
func essBars(reports []replay.AgeESS) (list []bar) {
	if len(reports) == 0 {
		return nil
	}
	buckets, width := bucketsTo(int64(reports[len(reports)-1].Last))
	type group struct{ ess, tokens float64 }
	groups := make([]group, len(buckets))
	for _, a := range reports {
		for age := int64(a.First); age <= int64(a.Last); age++ { // spread a range of ages evenly
			g := &groups[age/width]
			tokens := a.Tokens / float64(a.Last-a.First+1)
			g.ess += a.ESS * tokens
			g.tokens += tokens
		}
	}
	for i, g := range groups {
		about := fmt.Sprintf("age %s: no report", buckets[i].about())
		if g.tokens > 0 {
			about = fmt.Sprintf("age %s: %s of the tokens count, measured on %s", buckets[i].about(),
				percent(g.ess/g.tokens), words.Amount(g.tokens))
		}
		list = append(list, bar{label: buckets[i].label(), value: ratio(g.ess, g.tokens), about: about})
	}
	return list
}

// meanESS returns the effective sample size over all ages, as a share in (0, 1], or 0 if nothing was reported.
func meanESS(v *service.TableView) float64 {
	var ess, tokens float64
	for _, a := range v.ESSByAge {
		ess += a.ESS * a.Tokens
		tokens += a.Tokens
	}
	return ratio(ess, tokens)
}
