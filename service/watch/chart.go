package watch

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"time"
)

// Charts are drawn on a sheet of this size and scaled to the width that there is; colours are classes of style.css.
const (
	chartWidth  = 320.0
	chartHeight = 132.0
	chartFloor  = 110.0 // where bars stand
	chartTop    = 16.0  // above it stands the scale's greatest value
)

// bar is one bar of a chart.
type bar struct {
	label string  // under it, where there is room
	value float64 // >= 0
	about string  // shown when pointed at
	open  bool    // stands for everything from here on
}

// bars draws a bar chart up to a value, which a text names.
func bars(list []bar, class string, greatest float64, highest, about string) template.HTML {
	var b strings.Builder
	open(&b, chartHeight, about)
	fmt.Fprintf(&b, `<line class="grid" x1="0" x2="%g" y1="%g" y2="%g"/>`, chartWidth, chartTop+4, chartTop+4)
	fmt.Fprintf(&b, `<text class="scale" x="0" y="%g">%s</text>`, chartTop-1, html.EscapeString(highest))
	pitch := chartWidth / float64(max(len(list), 8)) // a few bars are not drawn as walls
	every := labelEvery(list, pitch)
	for i, x := range list {
		left, height := float64(i)*pitch, 0.0
		if greatest > 0 {
			height = min(x.value/greatest, 1) * (chartFloor - chartTop - 4)
		}
		if x.value > 0 {
			height = max(height, 1.5) // what is there is seen
		}
		gap := min(pitch*0.22, 5)
		fmt.Fprintf(&b, `<g><title>%s</title><rect class="hit" x="%.2f" y="%g" width="%.2f" height="%g"/><rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f" rx="%.2g"/></g>`,
			html.EscapeString(x.about), left, chartTop, pitch, chartFloor-chartTop, class, left+gap/2, chartFloor-height, pitch-gap, height, min(2, pitch/6, height/2))
		if i%every == 0 || x.open {
			if x.open && len(list) > 1 && (len(list)-1)%every != 0 && float64((len(list)-1)%every)*pitch < width(x.label)+8 {
				continue // it would run into its neighbour
			}
			fmt.Fprintf(&b, `<text class="tick" x="%.2f" y="%g" text-anchor="middle">%s</text>`, clamp(left+pitch/2, width(x.label)/2, chartWidth-width(x.label)/2), chartHeight-7, html.EscapeString(x.label))
		}
	}
	fmt.Fprintf(&b, `<line class="axis" x1="0" x2="%g" y1="%g" y2="%g"/></svg>`, chartWidth, chartFloor, chartFloor)
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}

// labelEvery is how many bars stand between two labels, so that these have room.
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

// width is about how wide a label is.
func width(label string) float64 { return 6.3 * float64(len([]rune(label))) }

func clamp(x, low, high float64) float64 { return min(max(x, low), high) }

func open(b *strings.Builder, height float64, about string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, height, html.EscapeString(about))
}

// sparkline draws rates over the last while, up to now.
func sparkline(list []rate, now time.Time, while time.Duration, class, about string) template.HTML {
	const height, floor, top = 44.0, 42.0, 4.0
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %g %g" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title>`, chartWidth, height, html.EscapeString(about), html.EscapeString(about))
	fmt.Fprintf(&b, `<line class="axis" x1="0" x2="%g" y1="%g" y2="%g"/>`, chartWidth, floor, floor)
	greatest := 0.0
	for _, r := range list {
		greatest = max(greatest, r.value)
	}
	var path strings.Builder
	first, last := math.NaN(), 0.0
	for _, r := range list {
		ago := now.Sub(r.at)
		if ago > while || ago < 0 {
			continue
		}
		x := chartWidth * (1 - ago.Seconds()/while.Seconds())
		y := floor
		if greatest > 0 {
			y = floor - r.value/greatest*(floor-top)
		}
		if math.IsNaN(first) {
			first = x
		}
		last = x
		fmt.Fprintf(&path, " %.1f,%.1f", x, y)
	}
	if last > first {
		fmt.Fprintf(&b, `<polygon class="%s under" points="%.1f,%g%s %.1f,%g"/><polyline class="%s line" points="%s"/>`,
			class, first, floor, path.String(), last, floor, class, strings.TrimSpace(path.String()))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}

// meter draws a share of a whole as a bar; more than the whole fills it.
func meter(share float64, class, about string) template.HTML {
	full := chartWidth * clamp(share, 0, 1)
	if share > 0 {
		full = max(full, 3)
	}
	return template.HTML(fmt.Sprintf(`<svg class="meter" viewBox="0 0 %g 8" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title><rect class="track" width="%g" height="8"/><rect class="%s" width="%.1f" height="8"/></svg>`, //nolint:gosec // escaped
		chartWidth, html.EscapeString(about), html.EscapeString(about), chartWidth, class, full))
}

// balance draws where a value stands between two bounds, which lie at a sixth and five sixths of the width.
func balance(value, low, high float64, about string) template.HTML {
	const height = 34.0
	at := func(x float64) float64 {
		return clamp(chartWidth/6+ratio(x-low, high-low)*chartWidth*4/6, 4, chartWidth-4)
	}
	var b strings.Builder
	open(&b, height, about)
	fmt.Fprintf(&b, `<title>%s</title>`, html.EscapeString(about))
	fmt.Fprintf(&b, `<rect class="track" y="6" width="%g" height="8" rx="4"/><rect class="allowed" x="%.1f" y="6" width="%.1f" height="8"/>`, chartWidth, chartWidth/6, chartWidth*4/6)
	for _, bound := range []float64{low, high} {
		fmt.Fprintf(&b, `<line class="bound" x1="%.1f" x2="%.1f" y1="3" y2="17"/><text class="tick" x="%.1f" y="31" text-anchor="middle">%s</text>`, at(bound), at(bound), at(bound), amount(bound))
	}
	fmt.Fprintf(&b, `<circle class="needle" cx="%.1f" cy="10" r="6"/></svg>`, at(value))
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}
