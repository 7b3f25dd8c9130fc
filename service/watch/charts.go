package watch

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
)

// Charts are drawn at this size and scaled to the available width. Colours are classes of style.css.
const (
	chartWidth  = 320.0
	chartHeight = 132.0
	chartFloor  = 110.0 // base of the bars
	chartTop    = 16.0  // below the label of the highest value
)

// bar is one bar of a chart.
type bar struct {
	label string  // below it, if there is room
	value float64 // >= 0
	about string  // tooltip
	open  bool    // includes all larger values
}

// bars draws a bar chart whose scale ends at a value, labelled scale.
func bars(list []bar, class string, end float64, scale, about string) template.HTML {
	var b strings.Builder
	open(&b, chartHeight, about)
	fmt.Fprintf(&b, `<line class="grid" x1="0" x2="%g" y1="%g" y2="%g"/>`, chartWidth, chartTop+4, chartTop+4)
	fmt.Fprintf(&b, `<text class="scale" x="0" y="%g">%s</text>`, chartTop-1, html.EscapeString(scale))
	pitch := chartWidth / float64(max(len(list), 8)) // keep few bars narrow
	every := labelEvery(list, pitch)
	for i, x := range list {
		left, height := float64(i)*pitch, 0.0
		if end > 0 {
			height = min(x.value/end, 1) * (chartFloor - chartTop - 4)
		}
		if x.value > 0 {
			height = max(height, 1.5) // keep it visible
		}
		gap := min(pitch*0.22, 5)
		fmt.Fprintf(&b, `<g><title>%s</title><rect class="hit" x="%.2f" y="%g" width="%.2f" height="%g"/>`+
			`<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f" rx="%.2g"/></g>`,
			html.EscapeString(x.about), left, chartTop, pitch, chartFloor-chartTop, class, left+gap/2, chartFloor-height,
			pitch-gap, height, min(2, pitch/6, height/2))
		if i%every == 0 || x.open {
			if x.open && len(list) > 1 && (len(list)-1)%every != 0 && float64((len(list)-1)%every)*pitch < width(x.label)+8 {
				continue // it would overlap its neighbour
			}
			fmt.Fprintf(&b, `<text class="tick" x="%.2f" y="%g" text-anchor="middle">%s</text>`,
				clamp(left+pitch/2, width(x.label)/2, chartWidth-width(x.label)/2), chartHeight-7, html.EscapeString(x.label))
		}
	}
	fmt.Fprintf(&b, `<line class="axis" x1="0" x2="%g" y1="%g" y2="%g"/></svg>`, chartWidth, chartFloor, chartFloor)
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}

// labelEvery returns the step between labelled bars that leaves room for the labels.
func labelEvery(list []bar, pitch float64) int {
	widest := 0.0
	for _, x := range list {
		widest = max(widest, width(x.label))
	}
	for _, every := range []int{1, 2, 5, 10, 20} {
		if float64(every)*pitch >= widest+8 {
			return every
		}
	}
	return 50
}

// width estimates the width of a label.
func width(label string) float64 { return 6.3 * float64(len([]rune(label))) }

func clamp(x, low, high float64) float64 { return min(max(x, low), high) }

func open(b *strings.Builder, height float64, about string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, height, html.EscapeString(about))
}

// barsData returns the points that a bar chart carries for the page's script: each bar's tooltip and value.
func barsData(list []bar, title, unit string) template.JS {
	pitch, n := chartWidth/float64(max(len(list), 8)), float64(len(list))
	c := figures.Curve{Name: title, Arm: title, Colour: "ink"}
	d := figures.Data{
		X:     figures.Axis{Title: unit, Low: -0.5, High: figures.Number(n - 0.5)},
		Y:     figures.Axis{Title: title, High: figures.Number(highest(list))},
		Areas: [][4]float64{{0, chartHeight - chartFloor, n * pitch, chartHeight - chartTop}},
	}
	for i, b := range list {
		c.X, c.Y, d.Labels = append(c.X, float64(i)), append(c.Y, figures.Number(b.value)), append(d.Labels, b.about)
	}
	d.Curves = []figures.Curve{c}
	return template.JS(d.JSON()) //nolint:gosec // JSON with <, > and & escaped
}

// A sparkline's y grows upwards from its floor.
const (
	sparkHeight = 44.0
	sparkFloor  = 2.0
	sparkTop    = 40.0
)

// sparkData returns the points that a sparkline carries for the page's script: rates by seconds before now.
func sparkData(list []rate, now time.Time, window time.Duration, class, title string) template.JS {
	most := 0.0
	c := figures.Curve{Name: title, Arm: title, Colour: class}
	for _, r := range list {
		if ago := now.Sub(r.at); ago <= window && ago >= 0 {
			most = max(most, r.value)
			c.X, c.Y = append(c.X, -ago.Seconds()), append(c.Y, figures.Number(r.value))
		}
	}
	d := figures.Data{
		X:     figures.Axis{Title: "seconds", Low: figures.Number(-window.Seconds())},
		Y:     figures.Axis{Title: "rollouts per second", High: figures.Number(cmp.Or(most, 1))},
		Areas: [][4]float64{{0, sparkFloor, chartWidth, sparkTop}}, Noisy: true, Curves: []figures.Curve{c},
	}
	return template.JS(d.JSON()) //nolint:gosec // JSON with <, > and & escaped
}

// sparkline draws the rates of the last window, up to now.
func sparkline(list []rate, now time.Time, window time.Duration, class, about string) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %g %g" preserveAspectRatio="none" role="img" aria-label="%s">`+
		`<title>%s</title><g transform="scale(1, -1) translate(0, -%g)">`, chartWidth, sparkHeight,
		html.EscapeString(about), html.EscapeString(about), sparkHeight)
	fmt.Fprintf(&b, `<line class="axis" x1="0" x2="%g" y1="%g" y2="%g"/>`, chartWidth, sparkFloor, sparkFloor)
	highest := 0.0
	for _, r := range list {
		highest = max(highest, r.value)
	}
	var path strings.Builder
	first, last := math.NaN(), 0.0
	for _, r := range list {
		ago := now.Sub(r.at)
		if ago > window || ago < 0 {
			continue
		}
		x := chartWidth * (1 - ago.Seconds()/window.Seconds())
		y := sparkFloor
		if highest > 0 {
			y += r.value / highest * (sparkTop - sparkFloor)
		}
		if math.IsNaN(first) {
			first = x
		}
		last = x
		fmt.Fprintf(&path, " %.1f,%.1f", x, y)
	}
	if last > first {
		line := strings.ReplaceAll(strings.TrimSpace(path.String()), " ", "L")
		fmt.Fprintf(&b, `<path class="%s under" data-p="b0" d="M%.1f,%gL%sL%.1f,%gZ"/>`, class, first, sparkFloor, line,
			last, sparkFloor)
		fmt.Fprintf(&b, `<path class="%s line" data-p="l0" d="M%s"/>`, class, line)
	}
	b.WriteString(`</g>`)
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}

// meter draws a share as a horizontal bar, full from 1 on.
func meter(share float64, class, about string) template.HTML {
	full := chartWidth * clamp(share, 0, 1)
	if share > 0 {
		full = max(full, 3)
	}
	return template.HTML(fmt.Sprintf(`<svg class="meter" viewBox="0 0 %g 8" preserveAspectRatio="none" role="img" aria-label="%s">`+
		`<title>%s</title><rect class="track" width="%g" height="8"/><rect class="%s" width="%.1f" height="8"/></svg>`, //nolint:gosec // escaped
		chartWidth, html.EscapeString(about), html.EscapeString(about), chartWidth, class, full))
}

// balance draws a value against two bounds, which lie at a sixth and five sixths of the width.
func balance(value, low, high float64, about string) template.HTML {
	const height = 34.0
	at := func(x float64) float64 {
		return clamp(chartWidth/6+ratio(x-low, high-low)*chartWidth*4/6, 4, chartWidth-4)
	}
	var b strings.Builder
	open(&b, height, about)
	fmt.Fprintf(&b, `<title>%s</title>`, html.EscapeString(about))
	fmt.Fprintf(&b, `<rect class="track" y="6" width="%g" height="8" rx="4"/>`+
		`<rect class="allowed" x="%.1f" y="6" width="%.1f" height="8"/>`, chartWidth, chartWidth/6, chartWidth*4/6)
	for _, bound := range []float64{low, high} {
		fmt.Fprintf(&b, `<line class="bound" x1="%.1f" x2="%.1f" y1="3" y2="17"/>`+
			`<text class="tick" x="%.1f" y="31" text-anchor="middle">%s</text>`, at(bound), at(bound), at(bound), words.Amount(bound))
	}
	fmt.Fprintf(&b, `<circle class="needle" cx="%.1f" cy="10" r="6"/></svg>`, at(value))
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
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

// bucketsOf divides a histogram into equal ranges whose width is 1, 2 or 5 times a power of ten. They end at the 99%
// quantile, so that outliers do not flatten the rest; the last bucket takes the outliers.
func bucketsOf(h *rollout.Histogram) []bucket {
	if h.Count() == 0 {
		return nil
	}
	last := h.Quantile(0.99)
	if h.Max() < maxBars {
		last = h.Max()
	}
	step := stepTo(last)
	list := make([]bucket, last/step+1)
	for i := range list {
		list[i] = bucket{from: int64(i) * step, to: int64(i+1)*step - 1}
	}
	end := int64(len(list)) * step
	for _, b := range h.Bins() {
		if b.Value < end {
			list[b.Value/step].n += b.Count
			continue
		}
		if list[len(list)-1].to >= 0 {
			list = append(list, bucket{from: end, to: -1})
		}
		list[len(list)-1].n += b.Count
	}
	return list
}

// stepTo returns the width of ranges that divide [0, last] into at most maxBars.
func stepTo(last int64) int64 {
	step := int64(1)
	for i := 0; last/step >= maxBars-1; i++ {
		step = []int64{2, 5, 10}[i%3] * int64(math.Pow(10, float64(i/3)))
	}
	return step
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

// highest returns the value of the highest bar.
func highest(list []bar) float64 {
	var most float64
	for _, b := range list {
		most = max(most, b.value)
	}
	return most
}

// priorityBars returns the probability of a draw by age.
func priorityBars(shares []replay.AgeShare) []bar {
	if len(shares) == 0 {
		return nil
	}
	last := int64(shares[len(shares)-1].Age)
	step := stepTo(last)
	type group struct{ probability, base, units float64 }
	groups := make([]group, last/step+1)
	for _, s := range shares {
		g := &groups[int64(s.Age)/step]
		g.probability += s.Probability
		g.base += s.Base * float64(s.Units)
		g.units += float64(s.Units)
	}
	var list []bar
	for i, g := range groups {
		b := bucket{from: int64(i) * step, to: int64(i+1)*step - 1}
		list = append(list, bar{
			label: b.label(), value: g.probability,
			about: fmt.Sprintf("age %s: %s of the draws, among %s with a mean priority base of %s", b.about(),
				percent(g.probability), words.Plural(uint64(g.units), "unit"), words.Amount(ratio(g.base, g.units))),
		})
	}
	return list
}

// essBars returns the effective sample size by age. Ages without a report have a bar of height 0.
func essBars(list []replay.AgeESS) []bar {
	if len(list) == 0 {
		return nil
	}
	last := int64(list[len(list)-1].Last)
	step := stepTo(last)
	type group struct{ ess, tokens float64 }
	groups := make([]group, last/step+1)
	for _, a := range list {
		for age := int64(a.First); age <= int64(a.Last); age++ { // spread a range of ages evenly
			g := &groups[age/step]
			tokens := a.Tokens / float64(a.Last-a.First+1)
			g.ess += a.ESS * tokens
			g.tokens += tokens
		}
	}
	var bars []bar
	for i, g := range groups {
		b := bucket{from: int64(i) * step, to: int64(i+1)*step - 1}
		about := fmt.Sprintf("age %s: no report", b.about())
		if g.tokens > 0 {
			about = fmt.Sprintf("age %s: %s of the tokens count, measured on %s", b.about(), percent(g.ess/g.tokens),
				words.Amount(g.tokens))
		}
		bars = append(bars, bar{label: b.label(), value: ratio(g.ess, g.tokens), about: about})
	}
	return bars
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
