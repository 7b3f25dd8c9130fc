package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/reprise-rl/reprise/results"
)

// mostBins is how many bars fit into a histogram; with more values, equally many of them share a
// bar.
const mostBins = 48

// counted is a histogram of a run.
type counted struct {
	title string
	axis  string
	unit  string // of the y axis
	none  string // what to say if nothing was counted
	of    func(*results.Summary) results.Histogram
	more  func(*arm) string // a sentence that completes the note; nil: none
}

// histograms are those of how rollouts were used.
func histograms() []counted {
	return []counted{
		{"Staleness at use", "versions behind the trainer", "% of uses", "No rollout was used.",
			func(s *results.Summary) results.Histogram { return s.Staleness }, youngerTokens},
		{"Uses at eviction", "times used", "% of evicted rollouts", "No rollout was evicted.",
			func(s *results.Summary) results.Histogram { return s.Uses }, stillPresent},
		{"Time since last use", "updates; 0 is a repeat within a batch", "% of repeated uses", "No rollout was used twice.",
			func(s *results.Summary) results.Histogram { return s.SinceLastUse }, nil},
	}
}

// youngerTokens tells the staleness by token where rollouts had tokens of several versions.
func youngerTokens(side *arm) string {
	byToken := side.histogram(func(s *results.Summary) results.Histogram { return s.TokenStaleness })
	if byToken.Count() == 0 || slices.Equal(byToken, side.histogram(func(s *results.Summary) results.Histogram { return s.Staleness })) {
		return ""
	}
	return fmt.Sprintf(" That is of the oldest token; the mean over a rollout’s tokens is %s on average.", short(round(byToken.Mean().Float()), 0))
}

// stillPresent tells how often the rollouts were used that no histogram at eviction counts.
func stillPresent(side *arm) string {
	h := side.histogram(func(s *results.Summary) results.Histogram { return s.UsesPresent })
	if h.Count() == 0 {
		return ""
	}
	return fmt.Sprintf(" The %s in the table at the end: mean %s.", grouped(float64(h.Count())), short(round(h.Mean().Float()), 0))
}

// figuresOf draws histograms of an arm, all its seeds together.
func figuresOf(side *arm, list []counted) ([]figure, error) {
	var figures []figure
	for _, c := range list {
		h := side.histogram(c.of)
		f := figure{Title: c.title}
		switch {
		case len(side.summaries()) == 0:
			f.Empty = "Known when the run has ended."
		case h.Count() == 0:
			f.Empty = c.none
		default:
			svg, err := c.chart(side, h).svg()
			if err != nil {
				return nil, err
			}
			f.SVG = []markup{svg}
			f.Note = fmt.Sprintf("Mean %s, largest %d; %s counted.", short(round(h.Mean().Float()), 0), h.Max(), grouped(float64(h.Count())))
			if c.more != nil {
				f.Note += c.more(side)
			}
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// round keeps two decimals, as means of counts need no more.
func round(v float64) float64 { return math.Round(v*100) / 100 }

func (c counted) chart(side *arm, h results.Histogram) *chart {
	width := (h.Max() + mostBins) / mostBins // values per bar
	bars := bars{role: side.role}
	highest := 0.0
	total := float64(h.Count())
	for _, bin := range h {
		i := bin[0] / width
		if n := len(bars.bars); n == 0 || bars.bars[n-1].index != i {
			bars.bars = append(bars.bars, bar{index: i})
		}
		last := &bars.bars[len(bars.bars)-1]
		last.share += 100 * float64(bin[1]) / total
		highest = max(highest, last.share)
	}
	bars.width = float64(width)
	ch := &chart{title: c.title + ", " + side.label, class: "third", width: 290, height: 178, left: 36, right: 8, layers: []plot.Plotter{bars}}
	ch.x = axis{title: c.axis, low: -0.5, high: float64((h.Max()/width+1)*width) - 0.5, ticks: ticks{about: 6, integer: true}, gridless: true}
	if h.Max() < 3 { // a bar that fills the plot would say nothing
		ch.x.high = 3.5
	}
	ch.y = axis{title: c.unit, low: 0, high: highest * 1.05, ticks: ticks{about: 4}}
	return ch
}

// bar is a share of the counts, of the values from index times the common width on.
type bar struct {
	index uint64
	share float64
}

// bars is a layer of bars of one width.
type bars struct {
	bars  []bar
	width float64
	role  role
}

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	for _, bar := range b.bars {
		low := float64(bar.index)*b.width - 0.5
		gap := b.width * 0.08
		ring := plotter.XYs{{X: low + gap, Y: 0}, {X: low + gap, Y: bar.share}, {X: low + b.width - gap, Y: bar.share}, {X: low + b.width - gap, Y: 0}}
		(&plotter.Polygon{XYs: []plotter.XYs{ring}, Color: b.role.color()}).Plot(c, p)
	}
}
