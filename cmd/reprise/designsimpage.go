package main

import (
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

// simSections returns what the page shows of a schedule.
func simSections(s *simulated) []results.Section {
	text := append(s.setting(), s.Words...)
	for _, w := range s.Warnings {
		text = append(text, strings.ToUpper(w[:1])+w[1:]+".")
	}
	return []results.Section{{
		Title: "A schedule without a model",
		Text:  text,
		Grids: []results.Grid{{
			Title:   "Queues and buffer side by side",
			Note:    "One clock and one seed for all; waits before an update are in the time of an update, B/T. [ER] app. D.",
			Columns: s.columns(), Rows: s.rows(),
		}},
		Figures: []results.Figure{
			s.figure("Staleness", "versions", "Share of the draws, by the age of what was drawn ([ER] fig. 2).", func(a simArm) simCounts { return a.Staleness }),
			s.figure("Uses", "uses", "Share of the rollouts that left, by how often they had been used. A queue gives each once.", func(a simArm) simCounts { return a.Uses }),
			s.figure("Time since last use", "updates", "Share of the draws that were not a rollout's first, by the updates since its last use; 0 is a repeat within a batch.", func(a simArm) simCounts { return a.SinceLastUse }),
		},
	}}
}

// figureShare is the share of the counts that a figure shows: the last thousandth is a tail as long as the rest together.
const figureShare = 0.999

// mostBars is the most points of a curve; more values are gathered into bins of equal width.
const mostBars = 120

// figure shows a histogram of each arm that has counts.
func (s *simulated) figure(title, unit, note string, of func(a simArm) simCounts) results.Figure {
	f := results.Figure{Title: title, X: results.Axis{Title: unit}, Y: results.Axis{Title: "share", Low: results.Num(0)}}
	last := int64(0)
	for _, a := range s.Arms {
		c := of(a)
		last = max(last, c.Histogram.Quantile(figureShare))
	}
	width := last/mostBars + 1
	for i, a := range s.Arms {
		if c := of(a); c.Count > 0 {
			f.Curves = append(f.Curves, results.Curve{Name: a.Name, Colour: i, At: points(c, width, last)})
		}
	}
	if width > 1 {
		note += fmt.Sprintf(" Points gather %d values each.", width)
	}
	f.Note = note + " The last thousandth is cut off."
	return f
}

// points returns the shares of the counts in bins of a width, at the middle of each, as far as the last value.
func points(c simCounts, width, last int64) []results.Point {
	shares := make([]float64, last/width+1)
	for _, b := range c.Histogram.Bins() {
		if b.Value <= last {
			shares[b.Value/width] += float64(b.Count) / float64(c.Count)
		}
	}
	at := make([]results.Point, len(shares))
	for i, y := range shares {
		at[i] = results.Point{X: float64(int64(i)*width) + float64(width-1)/2, Y: results.Num(y)}
	}
	return at
}
